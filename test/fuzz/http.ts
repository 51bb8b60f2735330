/**
 * Sends random HTTP requests, in pieces, to a handler behind `node:http`, without a network in between. Whatever comes,
 * the process lives, no rejection is unhandled, no reply is 500, and memory is bounded.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import process from 'node:process';
import { Duplex } from 'node:stream';
import { setImmediate as breath } from 'node:timers/promises';
import { createAwaitHandler, type Logger } from '../../src/index.ts';
import { toNodeHandler } from '../../src/node.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { type Random, randomOf } from '../fixtures/random.ts';
import { Known, requestText } from './requests.ts';

/** Requests that are open at once, and how long a reply is read that does not end, in turns of the event loop. */
const AT_ONCE = 128;
const TURNS = 40;
/** Requests between two looks at the memory. */
const LOOK = 20_000;

export interface HttpFuzzOptions {
  readonly requests: number;
  readonly seed: number;
  readonly progress?: (sent: number) => void;
}

export interface HttpFuzzReport {
  readonly sent: number;
  readonly byStatus: ReadonlyMap<number, number>;
  /** Bytes of heap in use, at the first look and the most of any. */
  readonly heap: { readonly first: number; readonly most: number };
  readonly problems: readonly string[];
}

const silent: Logger = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };

export async function fuzzHttp({ requests, seed, progress }: HttpFuzzOptions): Promise<HttpFuzzReport> {
  const known = new Known();
  const byStatus = new Map<number, number>();
  const problems: string[] = [];
  const handler = createAwaitHandler(() => buildServer(() => {}), {
    secrets: ['the secret of the HTTP fuzz: longer than 32 bytes'],
    logger: silent,
    ttl: 5_000,
    warnUnjournaled: false,
    limits: { stalled: 1_000 },
  });
  const listener = toNodeHandler(handler, { compress: true });
  const server = createServer((req: IncomingMessage & { auth?: unknown }, res: ServerResponse) => {
    const caller = /^Bearer (\w+)$/.exec(req.headers.authorization ?? '')?.[1];
    if (caller !== undefined)
      req.auth = { token: `of ${caller}`, clientId: caller, scopes: [], extra: { sub: caller } };
    void listener(req, res);
  });
  const onProblem = (what: string) => (error: unknown) =>
    void problems.push(`${what}: ${error instanceof Error ? error.stack : String(error)}`);
  const onRejection = onProblem('unhandled rejection');
  const onException = onProblem('uncaught exception');
  process.on('unhandledRejection', onRejection);
  process.on('uncaughtException', onException);
  const heap = { first: 0, most: 0 };
  let sent = 0;
  let done = 0;
  const work = async (): Promise<void> => {
    while (sent < requests && problems.length < 20) {
      sent += 1;
      const nth = sent;
      // Of its own, so that one request does not depend on how the others were interleaved.
      const random = randomOf(seed + nth);
      const text = requestText(random, known);
      const reply = await exchange(server, text, random);
      const status = Number(/^HTTP\/1\.1 (\d{3})/.exec(reply)?.[1] ?? 0);
      byStatus.set(status, (byStatus.get(status) ?? 0) + 1);
      if (status >= 500 && status !== 503)
        problems.push(`request ${nth}: ${status} to ${text.slice(0, 2_000)}`);
      learn(known, reply, text);
      done += 1;
      if (done % LOOK === 0) measure(heap);
      progress?.(done);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  measure(heap);
  await handler.close();
  await breath();
  process.off('unhandledRejection', onRejection);
  process.off('uncaughtException', onException);
  return { sent: done, byStatus, heap, problems };
}

/** One request and as much of its reply as comes soon. */
async function exchange(
  server: ReturnType<typeof createServer>,
  text: string,
  random: Random,
): Promise<string> {
  let reply = '';
  let isOver = false;
  const socket = new Duplex({
    read() {},
    write(chunk: Buffer, _encoding, done) {
      if (reply.length < 100_000) reply += chunk.toString('latin1');
      done();
    },
    final(done) {
      isOver = true;
      done();
    },
    destroy(_error, done) {
      isOver = true;
      done(null);
    },
  });
  socket.on('error', () => {});
  server.emit('connection', socket);
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length && !isOver; ) {
    const size = random.int(4) === 0 ? 1 + random.int(bytes.length) : bytes.length;
    socket.push(bytes.subarray(at, at + size));
    at += size;
    if (at < bytes.length) await breath();
  }
  for (let turn = 0; turn < TURNS && !isOver; turn += 1) await breath();
  // Some clients end their request, others break off.
  if (!isOver && random.int(2) === 0) socket.push(null);
  socket.destroy();
  return reply;
}

const LEARNT: readonly (readonly [string, RegExp])[] = [
  ['event', /^id: (\S{1,300})\r?$/gm],
  ['ask', /"id":"([^"]{1,200}\/[^"]{1,100})"/g],
  ['state', /"(?:requestState|request_state)":"([^"]{1,6000})"/g],
  ['key', /"(?:inputRequests|input_requests)":\{"([^"]{1,100})"/g],
  ['task', /"taskId":"([^"]{1,200})"/g],
  ['oldest', /sessionId=([\w.-]{1,200})/g],
];

function learn(known: Known, reply: string, text: string): void {
  for (const [kind, pattern] of LEARNT) {
    for (const [, value] of reply.matchAll(pattern)) if (value !== undefined) known.learn(kind, value);
  }
  const session = /^mcp-session-id: (\S{1,6000})\r$/im.exec(reply)?.[1];
  const version = /"protocolVersion":"([^"]{1,40})"/.exec(reply)?.[1];
  if (session !== undefined && version !== undefined && text.includes('initialize'))
    known.learn(`session ${version}`, session);
}

function measure(heap: { first: number; most: number }): void {
  globalThis.gc?.();
  const { heapUsed } = process.memoryUsage();
  if (heap.first === 0) heap.first = heapUsed;
  heap.most = Math.max(heap.most, heapUsed);
}
