/**
 * `mcp-await/websocket`: the handler on the upgrade of a `node:http` server, subprotocol `mcp`. Each socket is a pipe
 * (`src/doors/pipe`).
 *
 * 1. Access is decided at the upgrade: path, subprotocol, origin, host and credentials.
 * 2. A socket that breaks ends nothing but itself: its calls stay in work or suspended, and a client that is able to
 *  (`docs/websocket.md`) goes on with them on another socket, at any process.
 * 3. Every refusal has a status or a close code, and a reason.
 */
import type { IncomingMessage, Server } from 'node:http';
import { STATUS_CODES } from 'node:http';
import type { Duplex } from 'node:stream';
import { Server as TlsServer } from 'node:tls';
import { WebSocketServer } from 'ws';
import { Quota } from '../../base/quota.ts';
import { checkAtLeast, defined, type JsonObject } from '../../base/values.ts';
import { LIMITS } from '../../call/limits.ts';
import { countedAddress, isLoopback } from '../http/address.ts';
import { DisconnectSignal } from '../http/disconnect-signal.ts';
import type { Reply } from '../http/exchange.ts';
import { refusalOf } from '../http/refused.ts';
import { inboundOf, type PipeSource } from '../pipe/exchange.ts';
import { MAX_CHUNKS, MAX_FRAGMENTS } from './receiving.ts';
import { type Authenticate, type Serves, serveSocket } from './socket.ts';

/** The options of `mountWebSocket` and `createWebSocket`. */
export interface WebSocketOptions {
  /** Where it is. Default `/mcp`. */
  readonly path?: string;
  /**
   * Names the client from its upgrade request: the value that tools get as `extra.authInfo`. A rejection refuses it
   * with 401. Asked again with each ping: once it rejects, or names another caller, the socket is closed with 4401, as it
   * is when `authInfo.expiresAt` (seconds since the epoch) is reached. Default: all clients are anonymous.
   */
  readonly authenticate?: Authenticate;
  /** Bytes of one message. Default 4 MiB. */
  readonly maxMessage?: number;
  /**
   * Time between two pings, in milliseconds; a client that has not answered one by the next is disconnected. Default 30
   * s.
   */
  readonly ping?: number;
  /**
   * Open sockets at once. With `authenticate` anonymous ones are half of them at most, and those of one caller or address a
   * fifth. Default 10,000.
   */
  readonly maxSockets?: number;
}

/** Mounted WebSockets. */
export interface MountedWebSocket {
  /** For a server that handles other upgrades as well: returns false for a path that is not this one's. */
  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): boolean;
  /** Closes each socket with 1001 once all that came on it is replied to, or after `limits.drain`. */
  close(): Promise<void>;
}

const SUBPROTOCOL = 'mcp';

/**
 * Serves WebSockets beside HTTP.
 *
 * @throws AwaitError `bad-option`
 *
 * @example
 * import { createServer } from 'node:http';
 * import { createAwaitHandler } from 'mcp-await';
 * import { toNodeHandler } from 'mcp-await/node';
 * import { mountWebSocket } from 'mcp-await/websocket';
 * import buildServer from './server.js';
 *
 * const handler = createAwaitHandler(buildServer);
 * const server = createServer(toNodeHandler(handler)).listen(3000, '127.0.0.1');
 * const sockets = mountWebSocket(server, handler);
 */
export function mountWebSocket(
  server: Server,
  handler: Serves,
  options: WebSocketOptions = {},
): MountedWebSocket {
  const mounted = createWebSocket(handler, options);
  server.on('upgrade', (request, socket, head) => {
    if (!/^websocket$/i.test(request.headers.upgrade ?? '')) notUpgraded(server, request, socket, head);
    else if (!mounted.upgrade(request, socket, head)) refuse(socket, 404, 'Not found');
  });
  return mounted;
}

/**
 * Serves WebSockets on a server whose `upgrade` event is shared with other code: `upgrade` returns false for a request
 * that is not for it.
 *
 * @throws AwaitError `bad-option`
 *
 * @example
 * import { createServer } from 'node:http';
 * import { createAwaitHandler } from 'mcp-await';
 * import { createWebSocket } from 'mcp-await/websocket';
 * import buildServer from './server.js';
 *
 * const sockets = createWebSocket(createAwaitHandler(buildServer));
 * createServer().on('upgrade', (request, socket, head) => {
 *   if (!sockets.upgrade(request, socket, head)) socket.destroy();
 * });
 */
export function createWebSocket(handler: Serves, options: WebSocketOptions = {}): MountedWebSocket {
  const { path = '/mcp', maxMessage = LIMITS.bodyBytes, ping = 30_000, maxSockets = 10_000 } = options;
  for (const [name, value] of Object.entries({ maxMessage, ping, maxSockets })) checkAtLeast(1, name, value);
  const wss = new WebSocketServer({
    noServer: true,
    maxPayload: maxMessage,
    maxFragments: MAX_FRAGMENTS,
    maxBufferedChunks: MAX_CHUNKS,
    // What one chunk holds, 9,000 messages of a byte, comes in as many turns of the event loop.
    allowSynchronousEvents: false,
    handleProtocols: () => SUBPROTOCOL,
  });
  // Where nobody can name themselves all are strangers.
  const part = (of: number): number => (options.authenticate === undefined ? maxSockets : maxSockets / of);
  const room = new Quota({ all: maxSockets, caller: part(5), anonymous: part(2) });
  const closers = new Map<Duplex, () => Promise<void>>();
  let isClosed = false;

  const admit = async (request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> => {
    if (isClosed) return refuse(socket, 503, 'This server is shutting down');
    const offered = request.headers['sec-websocket-protocol'] ?? '';
    if (!offered.split(',').some((name) => name.trim() === SUBPROTOCOL)) {
      return refuse(socket, 400, 'Bad Request: the subprotocol mcp is required');
    }
    const source = sourceOf(request, path);
    const refusal = await handler.serve(
      inboundOf(source, {
        method: 'HEAD',
        headers: {},
        text: undefined,
        gone: new DisconnectSignal(),
        repeats: false,
      }),
    );
    // Any other method is refused with 405, after the checks of origin, host and closing.
    if (refusal.status !== 405) {
      const { status, body } = refusal;
      const said: { error?: { message?: string } } =
        typeof body === 'string' && body !== '' ? JSON.parse(body) : {};
      return refuse(socket, status, said.error?.message ?? 'Refused');
    }
    let authInfo: JsonObject | undefined;
    try {
      authInfo = await options.authenticate?.(request);
    } catch (error) {
      const { status, headers } = refusalOf(error);
      return refuse(socket, status, 'Refused', headers);
    }
    if (socket.destroyed) return undefined;
    const own = { ...source, ...defined({ authInfo }) };
    const quotaKey = { principal: handler.nameOf(authInfo), address: countedAddress(source) };
    if (!room.has(quotaKey)) return refuse(socket, 503, 'Too many connections');
    room.hold(socket, quotaKey);
    socket.once('close', () => {
      room.leave(socket);
      closers.delete(socket);
    });
    const { authenticate } = options;
    wss.handleUpgrade(request, socket, head, (ws) =>
      closers.set(
        socket,
        serveSocket({ handler, request, socket, source: own, quotaKey, authenticate, ping }, ws),
      ),
    );
    return undefined;
  };

  return {
    upgrade: (request, socket, head) => {
      const [own] = (request.url ?? '/').split('?', 1);
      if (own !== path) return false;
      socket.on('error', () => {});
      void admit(request, socket, head).catch(() => refuse(socket, 500, 'Internal error'));
      return true;
    },
    close: async () => {
      isClosed = true;
      await Promise.all([...closers.values()].map((close) => close()));
      wss.close();
    },
  };
}

/**
 * Serves a request as HTTP/1.1 that offers another protocol: Java's client and curl offer h2c with each of theirs. Node
 * has taken its connection off the server, which gets it anew, with the request but without the offer.
 */
function notUpgraded(
  server: Server,
  { method, url, rawHeaders }: IncomingMessage,
  socket: Duplex,
  head: Buffer,
): void {
  const lines = [`${method} ${url} HTTP/1.1`];
  for (let at = 0; at < rawHeaders.length; at += 2)
    if (!/^(connection|upgrade|http2-settings)$/i.test(rawHeaders[at] ?? ''))
      lines.push(`${rawHeaders[at]}: ${rawHeaders[at + 1]}`);
  socket.unshift(Buffer.concat([Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1'), head]));
  server.emit(server instanceof TlsServer ? 'secureConnection' : 'connection', socket);
}

/** The upgrade's headers, without those of the upgrade itself. */
function sourceOf({ headers, socket }: IncomingMessage, path: string): PipeSource {
  const own = Object.entries(headers).flatMap(([name, value]) =>
    typeof value === 'string' && !HOP.test(name) ? [[name, value] as const] : [],
  );
  return {
    path,
    headers: Object.fromEntries(own),
    ...defined({ address: socket.remoteAddress }),
    ...(socket.localAddress !== undefined && { onLoopback: isLoopback(socket.localAddress) }),
  };
}

const HOP =
  /^(?:connection|upgrade|sec-websocket-.*|content-.*|transfer-encoding|mcp-.*|last-event-id|accept)$/;

/** @param headers of the refusal; those of its body are not passed on */
function refuse(socket: Duplex, status: number, reason: string, headers: Reply['headers'] = {}): void {
  const body = `${reason}\n`;
  const head = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? 'Refused'}`,
    'Connection: close',
    'Content-Type: text/plain',
    `Content-Length: ${Buffer.byteLength(body)}`,
    ...Object.entries(headers).flatMap(([name, value]) =>
      name.startsWith('content-') ? [] : [`${name}: ${value}`],
    ),
  ];
  // Its client may never end its own half.
  socket.once('finish', () => socket.destroy());
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`);
}
