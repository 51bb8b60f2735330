/**
 * Sends random upgrade requests and frames to a handler behind `mountWebSocket`, without a network in between. Whatever
 * comes, the process lives, no rejection is unhandled, nothing is an internal error, and memory is bounded.
 */
import { createServer } from 'node:http';
import { createAwaitHandler } from '../../src/index.ts';
import { mountWebSocket } from '../../src/websocket.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import type { Random } from '../fixtures/random.ts';
import { closing, framesOf, received, upgradeText } from './frames.ts';
import { messagesOf } from './pipe-messages.ts';
import { type Ended, fuzzPipes, type PipeFuzzOptions, type PipeFuzzReport } from './pipes.ts';
import { Known } from './requests.ts';
import { FuzzSocket } from './socket.ts';
import { FUZZED, Watch } from './watch.ts';

/** Sockets at once. */
const AT_ONCE = 32;

export function fuzzWebSocket(options: PipeFuzzOptions): Promise<PipeFuzzReport> {
  const known = new Known();
  const watch = new Watch();
  const handler = createAwaitHandler(() => buildServer(() => {}), FUZZED);
  const server = createServer((_req, res) => res.writeHead(404).end());
  const sockets = mountWebSocket(server, handler, {
    maxMessage: 200_000,
    authenticate: ({ headers }) => {
      const caller = /^Bearer (\w+)$/.exec(headers.authorization ?? '')?.[1];
      if (caller === 'refused') throw new Error('an invalid token');
      return caller === undefined
        ? undefined
        : { token: caller, clientId: caller, scopes: [], extra: { sub: caller } };
    },
  });
  const connect = async (random: Random, sends: (messages: number) => void): Promise<Ended> => {
    const socket = new FuzzSocket();
    server.emit('connection', socket);
    await socket.send(Buffer.from(upgradeText(random)), random);
    const texts = messagesOf(random, known);
    sends(texts.length);
    const frames = texts.map((text) => framesOf(text, random));
    if (random.int(3) === 0) frames.push(closing(random));
    // All at once, or each on its own.
    if (random.int(2) === 0) await socket.send(Buffer.concat(frames), random);
    else for (const bytes of frames) await socket.send(bytes, random);
    await socket.finish(random);
    const { status, texts: replies, closed } = received(socket.received);
    const end = status !== 101 ? `refused ${status}` : closed === undefined ? 'open' : `closed ${closed}`;
    return { end, replies, isProblem: closed === 1011 || (status >= 500 && status !== 503) };
  };
  const close = async (): Promise<void> => {
    await sockets.close();
    await handler.close();
  };
  return fuzzPipes({ ...options, known, watch, atOnce: AT_ONCE, connect, close });
}
