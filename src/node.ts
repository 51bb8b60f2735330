/** `node:http`, Express, Fastify: a request listener around a handler. */
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import { constants, createGzip, type Gzip } from 'node:zlib';
import { defined, type JsonObject } from './base/values.ts';
import { headOf } from './doors/http/address.ts';
import type { BeginBody } from './doors/http/bodies.ts';
import { DisconnectSignal } from './doors/http/disconnect-signal.ts';
import type { Inbound, SentReply, Writer } from './doors/http/exchange.ts';

export { type CloseOptions, type Closes, closeOnSignals } from './doors/http/shutdown.ts';

/** The part of `createAwaitHandler`'s product that is used here. */
export interface ServesExchanges {
  readonly serve: (inbound: Inbound) => Promise<SentReply>;
}

/** A request to which middleware may have added credentials, a parsed body, or the path it is mounted under. */
export type NodeRequest = IncomingMessage & {
  auth?: unknown;
  body?: unknown;
  baseUrl?: unknown;
  ip?: unknown;
};

/**
 * Requests of one HTTP/1 connection that may be open, or begun in one turn of the event loop: Node begins all that come
 * in one piece in one turn. Clients and balancers wait for a reply first, as RFC 9112 (section 9.3.2) has it for POST.
 */
const PIPELINED = 16;

/** A connection of `node:http`; its parser is no public name. */
interface Parsed {
  readonly parser: { onIncoming: () => number } | null;
}

/** From this length on, in characters, what may wait for a client is kept outside of V8's heap: many of them would fill it. */
const LARGE = 16_384;
const kept = (text: string): string | Buffer => (text.length < LARGE ? text : Buffer.from(text));

/** The options of `toNodeHandler`. */
export interface NodeHandlerOptions {
  /**
   * Whether event streams are compressed for clients that take gzip; each event is flushed as it is written, so none
   * waits for the next. Default false: a stream that is open keeps about 40 KiB for it.
   */
  readonly compress?: boolean;
}

/**
 * A listener for `http.createServer(…)`, `app.all('/mcp', …)` and the like. `req.auth`, as the SDKs' bearer
 * middleware sets it, reaches tools as `extra.authInfo`; `req.body` is used if a body parser has read the body.
 *
 * @example
 * import { createServer } from 'node:http';
 * import { createAwaitHandler } from 'mcp-await';
 * import { toNodeHandler } from 'mcp-await/node';
 * import buildServer from './server.js';
 *
 * const handler = createAwaitHandler(buildServer);
 * createServer(toNodeHandler(handler)).listen(3000, '127.0.0.1');
 */
export function toNodeHandler(
  handler: ServesExchanges,
  { compress = false }: NodeHandlerOptions = {},
): (req: NodeRequest, res: ServerResponse) => Promise<void> {
  const begun = new WeakMap<object, number>();
  // It has no scope in common with the request, whose parsed body it would keep for another turn.
  const over = (socket: object): void => void begun.set(socket, (begun.get(socket) as number) - 1);
  const answer = async (req: NodeRequest, res: ServerResponse): Promise<void> => {
    const gone = new DisconnectSignal();
    const { socket } = req;
    // A POST's body alone is read; Node would keep another one until the reply has ended.
    if (req.method !== 'POST') req.resume();
    const open = begun.get(socket) ?? 0;
    if (req.httpVersionMajor === 1 && open >= PIPELINED) {
      // Node makes requests of all that it has read on all connections, and would keep each until its connection ends.
      const { parser } = socket as Partial<Parsed>;
      if (parser) parser.onIncoming = () => 0;
      return void socket.destroy();
    }
    begun.set(socket, open + 1);
    onEnd(req, res, () => {
      setImmediate(over, socket);
      if (!res.writableFinished) gone.fire();
    });
    const reply = await handler.serve(inboundOf(req, gone));
    const { status, body, waits } = reply;
    // What becomes of the connection, and how long it stays, is Node's to say: where a reply says it, Node does not.
    const { connection: _, ...named } = reply.headers;
    const { cookies } = reply;
    const headers: Record<string, string | string[]> = { ...named };
    if (cookies !== undefined) headers['set-cookie'] = [...cookies];
    if (res.destroyed || req.socket.destroyed) return;
    // Of a body that was refused the rest may never come, or never end.
    if (!req.complete && req.method === 'POST') res.shouldKeepAlive = false;
    if (typeof body !== 'function') {
      // With its length known a body goes out in one write, and not in chunks.
      const content = kept(body ?? '');
      res.writeHead(status, { ...headers, 'content-length': Buffer.byteLength(content) }).end(content);
      if (res.writableLength > 0) waits?.(writerOf(req, res));
      return;
    }
    const zip =
      compress && headers['content-type'] === 'text/event-stream' && takesGzip(req.headers['accept-encoding'])
        ? gzipTo(res)
        : undefined;
    const vary = [headers.vary, 'accept-encoding'].filter((name) => name !== undefined).join(', ');
    const coding = zip === undefined ? {} : { 'content-encoding': 'gzip', vary };
    res.writeHead(status, { ...headers, ...coding });
    res.flushHeaders();
    body(writerOf(req, res, zip));
  };
  // Caught here: an unhandled rejection of a listener would end the process.
  return (req, res) =>
    answer(req, res).catch(() => {
      if (!res.headersSent) res.writeHead(500);
      res.end();
    });
}

function inboundOf(req: NodeRequest, signal: DisconnectSignal): Inbound {
  const { headers, method = 'GET', url = '/', auth, body, baseUrl, socket } = req;
  const [path = '/', query = ''] = url.split('?', 2);
  // Express computes `req.ip` from a proxy's headers if it is set to trust that proxy.
  const address = typeof req.ip === 'string' ? req.ip : socket.remoteAddress;
  const connection = new WeakRef(socket);
  let made: Request | undefined;
  // A suspended call keeps what is returned here for its tool, and so must not keep the message and its socket.
  let unread = body === undefined ? req : undefined;
  return {
    method,
    path,
    base: typeof baseUrl === 'string' ? baseUrl : '',
    query: (name) => new URLSearchParams(query).get(name) ?? undefined,
    ...headOf(req),
    headBytes: req.rawHeaders.reduce((sum, part) => sum + part.length, 0),
    text: (_maxBytes, begin) => {
      const message = unread;
      unread = undefined;
      return message === undefined ? Promise.resolve('') : readText(message, begin);
    },
    disconnect: () => void connection.deref()?.destroy(),
    ...defined({ parsedBody: body }),
    ...(typeof auth === 'object' && auth !== null && { authInfo: auth as JsonObject }),
    ...defined({ address }),
    signal,
    request: () => {
      made ??= new Request(urlOf(url, headers), {
        method,
        headers: webHeaders(headers),
        signal: signal.asAbortSignal(),
      });
      return made;
    },
  };
}

/** An invalid `Host` must not keep a request from getting a reply. */
function urlOf(url: string, headers: IncomingHttpHeaders): string {
  const base = `http://${headers.host ?? 'localhost'}`;
  if (!URL.canParse(url, base)) return 'http://localhost/';
  const parsed = new URL(url, base);
  // A Request takes no credentials in its URL.
  parsed.username = '';
  parsed.password = '';
  return parsed.href;
}

function webHeaders(received: IncomingHttpHeaders): Headers {
  const headers = new Headers();
  for (const [name, value] of Object.entries(received)) {
    for (const item of Array.isArray(value) ? value : [value])
      if (item !== undefined) headers.append(name, item);
  }
  return headers;
}

function readText(req: IncomingMessage, begin: BeginBody): Promise<string> {
  return new Promise((resolve, reject) => {
    // A call that waits keeps its message, which must not keep the text beside its parsed arguments.
    const leave = (): void => {
      req.off('data', onData).off('end', onWhole).off('error', fail).off('close', onClose);
      req.on('error', ignore);
    };
    const fail = (error: unknown): void => {
      leave();
      body.over();
      // The rest of the body is discarded; the reply closes the connection.
      req.resume();
      reject(error);
    };
    const body = begin(fail);
    const onData = (chunk: Buffer | string): void => {
      try {
        // The command line has pieces that wait kept as characters of one byte each.
        body.add(typeof chunk === 'string' ? Buffer.from(chunk, 'latin1') : chunk);
      } catch (error) {
        fail(error);
      }
    };
    const onWhole = (): void => {
      leave();
      resolve(body.text());
    };
    const onClose = (): void => fail(new Error('the client went away'));
    req.on('data', onData).on('end', onWhole).on('error', fail).on('close', onClose);
    // It may have waited for its turn, and its client have gone before.
    if (req.destroyed) onClose();
  });
}

const ignore = (): void => {};

/** `gzip`, unless it is refused by `q=0`. */
function takesGzip(header: string | string[] | undefined): boolean {
  const coding = /(?:^|,)\s*(?:gzip|\*)\s*(?:;\s*q=([\d.]+)\s*)?(?:,|$)/i;
  const [found, quality = 1] = coding.exec(String(header ?? '')) ?? [];
  return found !== undefined && Number(quality) > 0;
}

/** Small windows: a stream lives long, and its events are short. */
function gzipTo(res: ServerResponse): Gzip {
  const zip = createGzip({ flush: constants.Z_SYNC_FLUSH, windowBits: 12, memLevel: 5 });
  zip.pipe(res);
  res.once('close', () => zip.destroy());
  return zip;
}

/** Of each connection, the functions to call when it ends; several requests may be queued on it. */
const ends = new WeakMap<object, Set<() => void>>();

/**
 * Calls once, when a response is over or its connection is: a response that was still queued then never closes. One may
 * be over before its request comes here, where a parser has read the body.
 */
function onEnd({ socket }: IncomingMessage, res: ServerResponse, fn: () => void): void {
  if (res.closed || socket.destroyed) return void fn();
  const known = ends.get(socket);
  const own = known ?? new Set();
  if (known === undefined) {
    ends.set(socket, own);
    endAllWith(socket, own);
  }
  const end = (): void => {
    if (own.delete(end)) fn();
  };
  own.add(end);
  res.once('close', end);
}

/** A function of its own: a listener keeps all that its scope holds, and a connection outlasts its requests. */
function endAllWith(socket: IncomingMessage['socket'], own: ReadonlySet<() => void>): void {
  socket.once('close', () => {
    for (const end of own) end();
  });
}

function writerOf(req: IncomingMessage, res: ServerResponse, zip?: Gzip): Writer {
  const out = zip ?? res;
  let isFirst = true;
  const unsent = (): number => res.writableLength + (zip?.writableLength ?? 0) + (zip?.readableLength ?? 0);
  return {
    write: (text) => {
      if (res.destroyed || out.writableEnded) return false;
      const keepsUp = out.write(kept(text));
      // The id of a stream. Node would send it after this turn's promises, in which a step may begin, and the process end.
      if (isFirst) req.socket.uncork();
      isFirst = false;
      return keepsUp;
    },
    get unsent() {
      return unsent();
    },
    onDrain: (fn) => out.on('drain', fn),
    end: () => {
      if (!out.writableEnded) out.end();
    },
    get isQueued() {
      return res.socket === null;
    },
    // Not the response's `destroy`: it would keep the bytes of a response that is queued.
    destroy: () => void req.socket.destroy(),
    onClose: (fn) => onEnd(req, res, fn),
  };
}
