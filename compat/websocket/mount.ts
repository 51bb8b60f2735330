/**
 * `mcp-await/websocket`: the handler on the upgrade of a `node:http` server, subprotocol `mcp`. Each socket is a pipe
 * (`compat/pipe`).
 *
 * 1. Access is decided at the upgrade: path, subprotocol, origin, host and credentials.
 * 2. A socket that breaks ends nothing but itself: its calls stay in work or suspended, and a client that is able to
 *  (`docs/websocket.md`) goes on with them on another socket, at any process.
 * 3. Every refusal has a status or a close code, and a reason.
 */
import type { IncomingMessage, Server } from 'node:http';
import { STATUS_CODES } from 'node:http';
import type { Duplex } from 'node:stream';
import { type WebSocket, WebSocketServer } from 'ws';
import { AwaitError } from '../../src/base/error.ts';
import type { JsonObject } from '../../src/base/json.ts';
import { DEFAULT_LIMITS } from '../../src/call/limits.ts';
import { isLoopback } from '../../src/http/address.ts';
import { Departure } from '../../src/http/departure.ts';
import { type Inbound, MAX_UNSENT, type Reply } from '../../src/http/exchange.ts';
import { inboundOf, type Source } from '../pipe/exchange.ts';
import { Pipe } from '../pipe/pipe.ts';

/** The options of `mountWebSocket` and `createWebSocket`. */
export interface WebSocketOptions {
  /** Where it is. Default `/mcp`. */
  readonly path?: string;
  /**
   * Names the client from its upgrade request: the value that tools get as `extra.authInfo`. A rejection refuses it
   * with 401. Default: all clients are anonymous.
   */
  readonly authenticate?: (
    request: IncomingMessage,
  ) => JsonObject | undefined | Promise<JsonObject | undefined>;
  /** Bytes of one message. Default 4 MiB. */
  readonly maxMessage?: number;
  /**
   * Time between two pings, in milliseconds; a client that has not answered one by the next is disconnected. Default 30
   * s.
   */
  readonly ping?: number;
  /** Open sockets at once. Default 10,000. */
  readonly maxSockets?: number;
}

/** Mounted WebSockets. */
export interface MountedWebSocket {
  /** For a server that handles other upgrades as well: returns false for a path that is not this one's. */
  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): boolean;
  /** Closes every socket with 1001. */
  close(): Promise<void>;
}

interface Serves {
  readonly serve: (inbound: Inbound) => Promise<Reply>;
}

const SUBPROTOCOL = 'mcp';
/** How long a socket may take for its closing handshake, in milliseconds. */
const CLOSING = 2_000;
/** Bytes that wait before a client counts as behind. */
const HIGH_WATER = 1_048_576;
const GOING_AWAY = 1001;
const NOT_TEXT = 1003;
const TRY_AGAIN = 1013;
/** Application codes are from 4000 on (RFC 6455, section 7.4.2). */
const NO_SESSION = 4404;

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
    if (!mounted.upgrade(request, socket, head)) refuse(socket, 404, 'Not found');
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
  const {
    path = '/mcp',
    maxMessage = DEFAULT_LIMITS.bodyBytes,
    ping = 30_000,
    maxSockets = 10_000,
  } = options;
  for (const [name, value] of Object.entries({ maxMessage, ping, maxSockets })) {
    if (!(Number.isFinite(value) && value > 0))
      throw new AwaitError('bad-option', `option ${name} must be a number above 0, not ${String(value)}`);
  }
  const wss = new WebSocketServer({
    noServer: true,
    maxPayload: maxMessage,
    clientTracking: true,
    handleProtocols: () => SUBPROTOCOL,
  });
  let isClosed = false;

  const admit = async (request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> => {
    if (isClosed) return refuse(socket, 503, 'This server is shutting down');
    if (wss.clients.size >= maxSockets) return refuse(socket, 503, 'Too many connections');
    if (!offered(request).includes(SUBPROTOCOL)) {
      return refuse(socket, 400, 'Bad Request: the subprotocol mcp is required');
    }
    const source = sourceOf(request, path);
    const refusal = await handler.serve(
      inboundOf(source, {
        method: 'HEAD',
        headers: {},
        text: undefined,
        gone: new Departure(),
        repeats: false,
      }),
    );
    // Any other method is refused with 405, after the checks of origin, host and closing.
    if (refusal.status !== 405) return refuse(socket, refusal.status, messageOf(refusal));
    let authInfo: JsonObject | undefined;
    try {
      authInfo = await options.authenticate?.(request);
    } catch {
      return refuse(socket, 401, 'Unauthorized');
    }
    if (socket.destroyed) return undefined;
    wss.handleUpgrade(request, socket, head, (ws) =>
      serve(handler, ws, { ...source, ...(authInfo !== undefined && { authInfo }) }, ping),
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
      const left = [...wss.clients].map((ws) => closed(ws, GOING_AWAY, 'this server is shutting down'));
      await Promise.all(left);
      wss.close();
    },
  };
}

function serve(handler: Serves, ws: WebSocket, source: Source, ping: number): void {
  let drained = (): void => {};
  // Nothing more is sent; the client learns why if it reads on within the time that a close may take.
  const behind = (): void => void closed(ws, TRY_AGAIN, 'this client does not read');
  const end = {
    send: (text: string): boolean => {
      if (ws.readyState !== ws.OPEN) return false;
      if (ws.bufferedAmount > MAX_UNSENT) {
        behind();
        return false;
      }
      ws.send(text, () => {
        if (ws.bufferedAmount < HIGH_WATER) drained();
      });
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
  const pipe = new Pipe({
    serve: handler.serve,
    source,
    end,
    resumable: true,
    lost: () => void closed(ws, NO_SESSION, 'session not found: initialize again'),
  });
  let answered = true;
  const timer = setInterval(() => {
    if (!answered) {
      ws.terminate();
      return;
    }
    answered = false;
    ws.ping();
  }, ping);
  ws.on('pong', () => {
    answered = true;
  });
  ws.on('message', (data, isBinary) => {
    answered = true;
    if (isBinary) void closed(ws, NOT_TEXT, 'messages are text');
    else pipe.receive(String(data));
  });
  // Too long a message closes with 1009, bad frames with 1002, bad UTF-8 with 1007: ws does that.
  ws.on('error', () => {});
  ws.on('close', () => {
    clearInterval(timer);
    void pipe.end(false);
  });
}

/** Resolves once it is closed, by force after a while. */
function closed(ws: WebSocket, code: number, reason: string): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => ws.terminate(), CLOSING);
    ws.once('close', () => {
      clearTimeout(timer);
      resolve();
    });
    ws.close(code, reason);
  });
}

function offered({ headers }: IncomingMessage): string[] {
  return (headers['sec-websocket-protocol'] ?? '').split(',').map((name) => name.trim());
}

/** The upgrade's headers, without those of the upgrade itself. */
function sourceOf({ headers, socket }: IncomingMessage, path: string): Source {
  const own = Object.entries(headers).flatMap(([name, value]) =>
    typeof value === 'string' && !HOP.test(name) ? [[name, value] as const] : [],
  );
  return {
    path,
    headers: Object.fromEntries(own),
    ...(socket.remoteAddress !== undefined && { address: socket.remoteAddress }),
    ...(socket.localAddress !== undefined && { onLoopback: isLoopback(socket.localAddress) }),
  };
}

const HOP =
  /^(?:connection|upgrade|sec-websocket-.*|content-.*|transfer-encoding|mcp-.*|last-event-id|accept)$/;

function messageOf({ body }: Reply): string {
  const said: unknown = typeof body === 'string' && body !== '' ? JSON.parse(body) : undefined;
  const { error } = (said ?? {}) as { error?: { message?: unknown } };
  return typeof error?.message === 'string' ? error.message : 'Refused';
}

function refuse(socket: Duplex, status: number, reason: string): void {
  const body = `${reason}\n`;
  const head = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? 'Refused'}`,
    'Connection: close',
    'Content-Type: text/plain',
    `Content-Length: ${Buffer.byteLength(body)}`,
  ];
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`);
}
