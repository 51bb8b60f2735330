/**
 * One open WebSocket: its pipe, its liveness, its bytes, and its standing. It is closed with 4401 when its credentials
 * are refused, expire or change their owner, or when its caller is disconnected; nothing is served on it from then on.
 */
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import type { WebSocket } from 'ws';
import type { QuotaKey } from '../../base/quota.ts';
import { type JsonObject, LONG, LoopTurns, shareOf, systemClock, within } from '../../base/values.ts';
import type { AwaitHandler } from '../../handler/await-handler.ts';
import { MAX_UNSENT } from '../http/exchange.ts';
import { onExpiry } from '../http/expiry.ts';
import { refusalOf } from '../http/refused.ts';
import type { PipeSource } from '../pipe/exchange.ts';
import { Pipe } from '../pipe/pipe.ts';
import { Receiving } from './receiving.ts';

/** Long messages are read one in a turn of the event loop, of all sockets together. */
const turns = new LoopTurns();
/** The parts of a handler that sockets need. */
export type Serves = Pick<AwaitHandler, 'serve' | 'traffic' | 'nameOf'>;

/** Names the client from its upgrade request. */
export type Authenticate = (
  request: IncomingMessage,
) => JsonObject | undefined | Promise<JsonObject | undefined>;

export interface SocketParts {
  readonly handler: Serves;
  readonly request: IncomingMessage;
  readonly socket: Duplex;
  readonly source: PipeSource;
  readonly quotaKey: QuotaKey;
  readonly authenticate: Authenticate | undefined;
  /** Time between two pings, in milliseconds. */
  readonly ping: number;
}

/** How long a socket is read on that is to close, and how long its closing handshake may take, in milliseconds. */
const CLOSING = 2_000;
const GOING_AWAY = 1001;
/** Bytes that wait before a client counts as behind. */
const HIGH_WATER = 1_048_576;
/** Bytes that a message which waits for its turn takes besides its content. */
const WAITING = 500;
const NOT_TEXT = 1003;
const TRY_AGAIN = 1013;
/** Application codes are from 4000 on (RFC 6455, section 7.4.2). */
const UNAUTHORIZED = 4401;
const NO_SESSION = 4404;

/**
 * @returns closes the socket once each message that came has its reply; after `CLOSING` it reads no more, since some
 *   clients always have a call open, and after `limits.drain` it waits no longer
 */
export function serveSocket(parts: SocketParts, ws: WebSocket): () => Promise<void> {
  const { handler, request, socket, source, quotaKey, authenticate, ping } = parts;
  const { received, unread, connections, drain } = handler.traffic;
  let drained = (): void => {};
  let isLeaving = false;
  /** Called after each event that may be the last one a closing socket waits for. */
  let progressed = (): void => {};
  // Nothing more is sent; the client learns why if it reads on within the time that a close may take.
  const behind = (): void => void closed(ws, TRY_AGAIN, 'this client does not read');
  /** Its bytes are freed at once; the client is told why where the network takes it. */
  const breakOff = (reason: string): void => {
    ws.close(TRY_AGAIN, reason);
    ws.terminate();
  };
  const waiting = unread.watch(
    {
      get unsent() {
        return ws.bufferedAmount;
      },
      destroy: () => breakOff('this client does not read'),
    },
    quotaKey,
  );
  const account = received.open(quotaKey, () => breakOff('a message took too long'));
  const receiving = new Receiving();
  let unfinished = 0;
  let waits = 0;
  const counted = (more: number): void => {
    waits += more;
    account.set(unfinished + waits);
  };
  socket.on('data', (chunk: Buffer) => {
    unfinished = receiving.add(chunk);
    counted(0);
    // `ws` parses chunks that it has buffered even after a bad frame, and its TypeError then ends the process.
    if (receiving.events > 0) ws.pause();
  });
  /** One of the events that the last chunk holds has come. */
  const came = (): void => {
    answered = true;
    receiving.events -= 1;
    readOn();
  };
  const readOn = (): void => {
    if (waits + receiving.events === 0) ws.resume();
  };
  const end = {
    send: (text: string): boolean => {
      if (ws.readyState !== ws.OPEN) return false;
      if (ws.bufferedAmount > MAX_UNSENT) {
        behind();
        return false;
      }
      ws.send(text, () => {
        waiting.note();
        if (ws.bufferedAmount < HIGH_WATER) drained();
        progressed();
      });
      waiting.note();
      return ws.bufferedAmount < HIGH_WATER;
    },
    get unsent() {
      return ws.bufferedAmount;
    },
    onDrain: (fn: () => void): void => {
      drained = fn;
    },
    destroy: behind,
  };
  const own = { ...source };
  const pipe = new Pipe({
    serve: handler.serve,
    source: own,
    end,
    resumable: true,
    mostValues: handler.traffic.mostValues,
    lost: () => void closed(ws, NO_SESSION, 'session not found: initialize again'),
    failed: () => void closed(ws, TRY_AGAIN, 'try again'),
    ended: () => progressed(),
  });
  const revoke = (reason: string): void => {
    void pipe.end(false);
    void closed(ws, UNAUTHORIZED, reason);
  };
  const expire = (): void => revoke('the credentials have expired');
  let expiry = onExpiry(own.authInfo, expire);
  const disconnected = connections.add(quotaKey.principal, () => revoke('this caller was disconnected'));
  /** Whether its credentials are still its caller's; until they expire also where they cannot be verified for now. */
  const isAccepted = async (): Promise<boolean> => {
    try {
      const authInfo = await authenticate?.(request);
      if (handler.nameOf(authInfo) !== quotaKey.principal) return false;
      expiry?.cancel();
      if (ws.readyState === ws.OPEN) expiry = onExpiry(authInfo, expire);
      if (authInfo !== undefined) own.authInfo = authInfo;
      return true;
    } catch (error) {
      return refusalOf(error).status >= 500;
    }
  };
  let answered = true;
  const timer = setInterval(() => {
    if (!answered) {
      ws.terminate();
      return;
    }
    answered = false;
    ws.ping();
    if (authenticate === undefined) return;
    void isAccepted().then(
      (is) => is || ws.readyState !== ws.OPEN || revoke('the credentials are not accepted'),
    );
  }, ping);
  ws.on('ping', came);
  ws.on('pong', came);
  ws.on('message', (data, isBinary) => {
    came();
    // A socket that is being closed still gives what its client sends.
    if (isLeaving || ws.readyState !== ws.OPEN) return;
    if (isBinary) return void closed(ws, NOT_TEXT, 'messages are text');
    const whole = data as Buffer;
    // A short one would keep the whole chunk that it came in.
    const message = whole.length < LONG ? String(whole) : whole;
    counted(message.length + WAITING);
    ws.pause();
    if (queue.push(message) === 1) takeFirst();
  });
  /** One message of a socket at a time waits in the row of all: the others are let go with their socket. */
  const queue: (string | Buffer)[] = [];
  const takeFirst = (): void => {
    const [{ length }] = queue as [string];
    void turns.next(shareOf(length), quotaKey.principal).then(() => {
      const message = queue.shift();
      if (message === undefined) return;
      counted(-length - WAITING);
      readOn();
      if (ws.readyState === ws.OPEN) pipe.receive(String(message));
      if (queue.length > 0) takeFirst();
      progressed();
    });
  };
  // Too long a message closes with 1009, bad frames with 1002, bad UTF-8 with 1007: ws does that.
  ws.on('error', () => {
    receiving.events = -Infinity;
  });
  ws.on('close', () => {
    clearInterval(timer);
    expiry?.cancel();
    disconnected();
    queue.length = 0;
    waiting.end();
    account.close();
    void pipe.end(false);
    progressed();
  });
  return async () => {
    const replied = new Promise<void>((resolve) => {
      progressed = () => {
        const isDone = waits === 0 && pipe.isIdle && ws.bufferedAmount === 0;
        if (isDone || ws.readyState === ws.CLOSED) resolve();
      };
    });
    progressed();
    await within(systemClock, CLOSING, replied);
    isLeaving = true;
    await within(systemClock, drain, replied);
    await closed(ws, GOING_AWAY, 'this server is shutting down');
  };
}

/** Resolves once it is closed, by force after a while. */
async function closed(ws: WebSocket, code: number, reason: string): Promise<void> {
  if (ws.readyState === ws.CLOSED) return;
  const gone = new Promise<unknown>((resolve) => ws.once('close', resolve));
  ws.close(code, reason);
  await within(systemClock, CLOSING, gone);
  ws.terminate();
  await gone;
}
