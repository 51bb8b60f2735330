/** `node:http`, Express, Fastify: a request listener around a handler. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { constants, createGzip, type Gzip } from 'node:zlib';
import type { JsonObject } from './call/json.ts';
import { Departure } from './http/departure.ts';
import type { Inbound, Reply, Writer } from './http/exchange.ts';
import { MAX_UNSENT, tooLarge } from './http/exchange.ts';

/** What `createAwaitHandler` returns, as far as it is used here. */
export interface ServesExchanges {
  readonly serve: (inbound: Inbound) => Promise<Reply>;
}

/** A request that middleware may have added credentials, a parsed body, or what it was mounted under to. */
export type NodeRequest = IncomingMessage & { auth?: unknown; body?: unknown; baseUrl?: unknown };

export interface NodeHandlerOptions {
  /**
   * Whether event streams are compressed for clients that take gzip; each event is flushed as it is written, so none
   * waits for the next. Default false: a stream that is open keeps about 40 KiB for it.
   */
  readonly compress?: boolean;
}

/**
 * A listener for `http.createServer(…)`, `app.all('/mcp', …)` and the like. `req.auth`, as the SDKs' bearer
 * middleware sets it, reaches tools as `extra.authInfo`; `req.body` is used when a body parser was there first.
 */
export function toNodeHandler(
  handler: ServesExchanges,
  { compress = false }: NodeHandlerOptions = {},
): (req: NodeRequest, res: ServerResponse) => Promise<void> {
  const answer = async (req: NodeRequest, res: ServerResponse): Promise<void> => {
    const gone = new Departure();
    res.once('close', () => {
      if (!res.writableFinished) gone.tell();
    });
    const { status, headers, body } = await handler.serve(inboundOf(req, gone));
    if (res.destroyed) return;
    if (typeof body !== 'function') {
      // With its length known a body goes out in one write, and not in chunks.
      res.writeHead(status, { ...headers, 'content-length': Buffer.byteLength(body ?? '') }).end(body);
      return;
    }
    const zip = compress && takesGzip(req.headers['accept-encoding']) ? gzipTo(res) : undefined;
    const coding = zip === undefined ? {} : { 'content-encoding': 'gzip', vary: 'accept-encoding' };
    res.writeHead(status, { ...headers, ...coding });
    res.flushHeaders();
    body(writerOf(res, zip));
  };
  return async (req, res) => {
    try {
      await answer(req, res);
    } catch {
      // Nobody else hears of it: a listener's rejection would end the process.
      if (!res.headersSent) res.writeHead(500);
      res.end();
    }
  };
}

function inboundOf(req: NodeRequest, signal: Departure): Inbound {
  const { headers, method = 'GET', url = '/', auth, body, baseUrl, socket } = req;
  const [path = '/', query = ''] = url.split('?', 2);
  let made: Request | undefined;
  return {
    method,
    path,
    base: typeof baseUrl === 'string' ? baseUrl : '',
    query: (name) => new URLSearchParams(query).get(name) ?? undefined,
    header: (name) => {
      const value = headers[name];
      return Array.isArray(value) ? value.join(', ') : value;
    },
    text: (maxBytes) => readText(req, maxBytes),
    ...(body !== undefined && { parsedBody: body }),
    ...(typeof auth === 'object' && auth !== null && { authInfo: auth as JsonObject }),
    ...(socket.remoteAddress !== undefined && { address: socket.remoteAddress }),
    signal,
    request: () => {
      made ??= new Request(urlOf(req), { method, headers: webHeaders(req), signal: signal.asAbortSignal() });
      return made;
    },
  };
}

/** A `Host` that is no host must not keep a request from its answer. */
function urlOf({ url = '/', headers }: IncomingMessage): string {
  const base = `http://${headers.host ?? 'localhost'}`;
  if (!URL.canParse(url, base)) return 'http://localhost/';
  const parsed = new URL(url, base);
  // A Request takes no credentials in its URL.
  parsed.username = '';
  parsed.password = '';
  return parsed.href;
}

function webHeaders(req: IncomingMessage): Headers {
  const headers = new Headers();
  for (const [name, value] of Object.entries(req.headers)) {
    for (const item of Array.isArray(value) ? value : [value])
      if (item !== undefined) headers.append(name, item);
  }
  return headers;
}

function readText(req: IncomingMessage, maxBytes: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let size = 0;
    req.on('data', (chunk: Buffer) => {
      size += chunk.byteLength;
      if (size <= maxBytes) chunks.push(chunk);
      else reject(tooLarge(maxBytes));
    });
    req.once('end', () => resolve(Buffer.concat(chunks).toString('utf8')));
    req.once('error', reject);
    req.once('close', () => reject(new Error('the client went away')));
  });
}

/** `gzip`, unless it is refused by `q=0`. */
function takesGzip(header: string | string[] | undefined): boolean {
  const accepted = /(?:^|,)\s*(?:gzip|\*)\s*(?:;\s*q=([\d.]+))?\s*(?:,|$)/i.exec(String(header ?? ''));
  return accepted !== null && Number(accepted[1] ?? 1) > 0;
}

/** Small windows: a stream lives long, and its events are short. */
function gzipTo(res: ServerResponse): Gzip {
  const zip = createGzip({ flush: constants.Z_SYNC_FLUSH, windowBits: 12, memLevel: 5 });
  zip.pipe(res);
  res.once('close', () => zip.destroy());
  return zip;
}

function writerOf(res: ServerResponse, zip?: Gzip): Writer {
  const out = zip ?? res;
  const unsent = (): number => res.writableLength + (zip?.writableLength ?? 0) + (zip?.readableLength ?? 0);
  return {
    write: (text) => {
      if (res.destroyed || out.writableEnded) return false;
      if (unsent() <= MAX_UNSENT) return out.write(text);
      res.destroy();
      return false;
    },
    get unsent() {
      return unsent();
    },
    onDrain: (fn) => out.on('drain', fn),
    end: () => {
      if (!out.writableEnded) out.end();
    },
    destroy: () => void res.destroy(),
    onClose: (fn) => {
      if (res.closed) fn();
      else res.once('close', fn);
    },
  };
}
