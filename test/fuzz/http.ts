/**
 * Sends random HTTP requests, in pieces, to a handler behind `node:http`, without a network in between. Whatever comes,
 * the process lives, no rejection is unhandled, no reply is 500, and memory is bounded.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createAwaitHandler } from '../../src/index.ts';
import { toNodeHandler } from '../../src/node.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { type Random, randomOf } from '../fixtures/random.ts';
import { Known, requestText } from './requests.ts';
import { FuzzSocket } from './socket.ts';
import { FUZZED, type Heap, Watch } from './watch.ts';

/** Requests that are open at once. */
const AT_ONCE = 128;
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
  readonly heap: Heap;
  readonly problems: readonly string[];
}

export async function fuzzHttp({ requests, seed, progress }: HttpFuzzOptions): Promise<HttpFuzzReport> {
  const known = new Known();
  const byStatus = new Map<number, number>();
  const watch = new Watch();
  const handler = createAwaitHandler(() => buildServer(() => {}), FUZZED);
  const listener = toNodeHandler(handler, { compress: true });
  const server = createServer((req: IncomingMessage & { auth?: unknown }, res: ServerResponse) => {
    const caller = /^Bearer (\w+)$/.exec(req.headers.authorization ?? '')?.[1];
    if (caller !== undefined)
      req.auth = { token: `of ${caller}`, clientId: caller, scopes: [], extra: { sub: caller } };
    void listener(req, res);
  });
  let sent = 0;
  let done = 0;
  const work = async (): Promise<void> => {
    while (sent < requests && !watch.failed) {
      sent += 1;
      const nth = sent;
      // Of its own, so that one request does not depend on how the others were interleaved.
      const random = randomOf(seed + nth);
      const text = requestText(random, known);
      const reply = await exchange(server, text, random);
      const status = Number(/^HTTP\/1\.1 (\d{3})/.exec(reply)?.[1] ?? 0);
      byStatus.set(status, (byStatus.get(status) ?? 0) + 1);
      if (status >= 500 && status !== 503)
        watch.problems.push(`request ${nth}: ${status} to ${text.slice(0, 2_000)}`);
      learn(known, reply, text);
      done += 1;
      if (done % LOOK === 0) watch.measure();
      progress?.(done);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  await handler.close();
  await watch.stop();
  return { sent: done, byStatus, heap: watch.heap, problems: watch.problems };
}

/** One request and as much of its reply as comes soon. */
async function exchange(
  server: ReturnType<typeof createServer>,
  text: string,
  random: Random,
): Promise<string> {
  const socket = new FuzzSocket();
  server.emit('connection', socket);
  await socket.send(Buffer.from(text), random);
  await socket.finish(random);
  return socket.received.toString('latin1');
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
