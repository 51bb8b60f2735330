/**
 * Sends random lines to servers on stdio, each with streams of its own in place of a process. Whatever comes, the
 * process lives, no rejection is unhandled, nothing is an internal error, each server closes, and memory is bounded.
 */
import { randomBytes } from 'node:crypto';
import { PassThrough, Writable } from 'node:stream';
import { setImmediate as breath } from 'node:timers/promises';
import { createStdio } from '../../src/stdio.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import type { Random } from '../fixtures/random.ts';
import { messagesOf } from './pipe-messages.ts';
import { type Ended, fuzzPipes, type PipeFuzzOptions, type PipeFuzzReport } from './pipes.ts';
import { Known } from './requests.ts';
import { FUZZED, Watch } from './watch.ts';

/** Servers at once, and turns of the event loop until a client ends. */
const AT_ONCE = 16;
const TURNS = 40;
const LONGEST = 200_000;

export async function fuzzStdio(options: PipeFuzzOptions): Promise<PipeFuzzReport> {
  const known = new Known();
  const connect = async (random: Random, sends: (messages: number) => void): Promise<Ended> => {
    const stdin = new PassThrough();
    let out = '';
    let isBehind = false;
    const stdout = new Writable({
      write(chunk: Buffer, _encoding, done) {
        out += chunk.toString();
        if (!isBehind) done();
      },
    });
    const server = createStdio(() => buildServer(() => {}), {
      ...FUZZED,
      limits: { ...FUZZED.limits, bodyBytes: LONGEST },
      stdin,
      stdout,
    });
    const texts = messagesOf(random, known);
    sends(texts.length);
    isBehind = random.int(20) === 0;
    for (const bytes of chunks(texts, random)) {
      stdin.write(bytes);
      if (random.int(3) === 0) await breath();
    }
    for (let turn = 0; turn < TURNS; turn += 1) await breath();
    if (random.int(10) === 0) stdout.destroy(new Error('EPIPE'));
    else stdin.end();
    await server.closed;
    const replies = out.split('\n').filter((line) => line !== '');
    const isTooLong = replies.some((line) => line.includes('raise limits.bodyBytes'));
    return { end: isTooLong ? 'too long' : 'ended', replies };
  };
  return fuzzPipes({ ...options, known, watch: new Watch(), atOnce: AT_ONCE, connect });
}

/** Lines, whole or cut anywhere, with what is no line at all among them. */
function chunks(texts: readonly string[], random: Random): Buffer[] {
  const lines = texts.map((text) => {
    const broken = random.int(40) === 0;
    const bytes = broken
      ? Buffer.concat([Buffer.from(text), randomBytes(random.int(50))])
      : Buffer.from(text);
    return Buffer.concat([bytes, Buffer.from(random.pick(['\n', '\n', '\r\n', '\n\n', '\n \n']))]);
  });
  if (random.int(200) === 0) lines.push(Buffer.alloc(LONGEST + 1, 'a'));
  const all = Buffer.concat(lines);
  if (random.int(2) === 0) return lines;
  const pieces: Buffer[] = [];
  for (let at = 0; at < all.length; ) {
    const size = 1 + random.int(Math.min(all.length, 65_536));
    pieces.push(all.subarray(at, at + size));
    at += size;
  }
  return pieces;
}
