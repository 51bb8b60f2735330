/** A stranger's text reaches the log escaped and cut: it can neither forge a line nor fill a disk. */
import { runInNewContext } from 'node:vm';
import { afterEach, describe, expect, it } from 'vitest';
import { guardedLogger } from '../../src/observe/redact.ts';
import { post } from '../e2e/clients.ts';
import { LogBook, SECRET, type Served, serveHere } from '../e2e/harness.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { answer, inSession } from './peer.ts';

let served: Served | undefined;
afterEach(() => served?.close());

const FORGED = 'x\n{"level":"error","message":"all is well"}\r\u2028\u0085\u001b[31m';

/** The bytes that a log would have. */
const bytesOf = ({ text }: LogBook): number => Buffer.byteLength(text);
const raw = ({ lines }: LogBook): string =>
  lines.map(({ message, detail }) => message + Object.values(detail).join()).join();

const controlsIn = (text: string): string[] =>
  ['\n', '\r', '\u2028', '\u0085', '\u001b'].filter((one) => text.includes(one));

async function serve(): Promise<string> {
  served = await serveHere(() => buildServer(() => {}), { secrets: [SECRET] });
  return served.url;
}

describe('a token', () => {
  it('whose kid holds line ends and half a megabyte is one short line', async () => {
    const url = await serve();
    const { state, keys } = await post(url, { tool: 'one' });
    const [, ...rest] = state.split('.');
    const kid = FORGED + 'k'.repeat(500_000);
    const header = Buffer.from(JSON.stringify({ alg: 'dir', enc: 'A256GCM', kid })).toString('base64url');
    const reply = await post(url, {
      tool: 'one',
      state: [header, ...rest].join('.'),
      responses: { [keys[0] ?? '']: {} },
    });
    expect(reply.message.error?.code).toBe(-32602);
    const { log } = served as Served;
    expect(log.lines.length).toBeGreaterThan(0);
    expect(bytesOf(log)).toBeLessThan(10_000);
    expect(controlsIn(raw(log))).toEqual([]);
  });
});

describe('the id of an answer', () => {
  it('is escaped and cut, in an answer without an ask', async () => {
    const peer = await inSession(await serve(), '2025-11-25');
    const before = bytesOf((served as Served).log);
    for (const length of [900, 500_000]) await peer.post(answer(`${FORGED}${'i'.repeat(length)}`, {}));
    const { log } = served as Served;
    expect(log.text).toContain('not open here');
    expect(bytesOf(log) - before).toBeLessThan(5_000);
    expect(controlsIn(raw(log))).toEqual([]);
  });
});

describe('the logger', () => {
  it('is told no more than so much of a value, however deep and long, and no password', () => {
    const log = new LogBook();
    const deep = JSON.parse(`${'{"a":'.repeat(50)}"x"${'}'.repeat(50)}`) as object;
    guardedLogger(log).warn('redis://user:secret@host failed', {
      deep,
      long: Array.from({ length: 1_000 }, () => 'x'.repeat(10_000)),
      error: new Error(`redis://user:secret@host\n${'y'.repeat(10_000)}`),
      number: 7,
      [FORGED]: 1,
    });
    expect(log.text).not.toContain('secret');
    expect(bytesOf(log)).toBeLessThan(30_000);
    expect(log.lines[0]?.detail.number).toBe(7);
    expect(controlsIn(raw(log))).toEqual([]);
    expect(controlsIn(Object.keys(log.lines[0]?.detail ?? {}).join())).toEqual([]);
  });

  it('is told no members of what was thrown, which may be any value', () => {
    const log = new LogBook();
    const thrown = { password: 'secret', headers: { authorization: 'secret' } };
    guardedLogger(log).warn('it failed', { error: thrown, nested: { cause: thrown } });
    guardedLogger(log).warn('it failed', { error: runInNewContext('new TypeError("of another realm")') });
    guardedLogger(log).warn('it failed', { cause: undefined });
    expect(log.text).not.toContain('secret');
    expect(log.lines.map(({ detail }) => detail)).toEqual([
      { error: '[object Object]', nested: { cause: '[object Object]' } },
      { error: 'TypeError: of another realm' },
      { cause: undefined },
    ]);
  });
});
