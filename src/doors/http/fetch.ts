/** The web's side of an exchange: `Request` in, `Response` out. */

import { type AwaitError, deferred, defined, isObject } from '../../base/values.ts';
import type { BeginBody } from './bodies.ts';
import type { Inbound, Reply, SentReply, Writer } from './exchange.ts';

export interface FetchOptions {
  /** Validated credentials, passed through to the server's tools as `extra.authInfo`. */
  readonly authInfo?: object;
  /** A body that was parsed already. */
  readonly parsedBody?: unknown;
  /** The client's address, for `rateLimit`. */
  readonly address?: string;
}

export function inboundOf(request: Request, options: FetchOptions = {}): Inbound {
  let url: URL | undefined;
  const urlOf = (): URL => {
    url ??= new URL(request.url);
    return url;
  };
  return {
    method: request.method.toUpperCase(),
    get path() {
      return urlOf().pathname;
    },
    base: '',
    query: (name) => urlOf().searchParams.get(name) ?? undefined,
    header: (name) => request.headers.get(name) ?? undefined,
    text: (_maxBytes, begin) => boundedText(request, begin),
    ...defined({ parsedBody: options.parsedBody }),
    ...(isObject(options.authInfo) && { authInfo: options.authInfo }),
    ...defined({ address: options.address }),
    signal: request.signal,
    request: () => request,
  };
}

async function boundedText(request: Request, begin: BeginBody): Promise<string> {
  const reader = request.body?.getReader();
  if (reader === undefined) return '';
  let broken: AwaitError | undefined;
  const body = begin((error) => {
    broken = error;
    void reader.cancel().catch(() => undefined);
  });
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (broken !== undefined) throw broken;
      if (done) return body.text();
      body.add(value);
    }
  } catch (error) {
    void reader.cancel().catch(() => undefined);
    throw error;
  } finally {
    body.over();
  }
}

/** Bytes that may wait before a client counts as behind, as many as Node's own streams take. */
const HIGH_WATER = 16_384;

/** A shorter body is given to the runtime whole, and waits there for its client. In characters. */
const SHORT = 65_536;

export function responseOf(reply: SentReply, onCancel: () => void): Response {
  const { status, cookies = [], body: given, waits } = reply;
  const headers = new Headers(reply.headers);
  for (const cookie of cookies) headers.append('set-cookie', cookie);
  if (typeof given !== 'function' && (waits === undefined || (given ?? '').length < SHORT))
    return new Response(given ?? null, { status, headers });
  const body = typeof given === 'function' ? given : whole(given ?? '', waits);
  const encoder = new TextEncoder();
  const closing: (() => void)[] = [];
  const draining: (() => void)[] = [];
  let closed = false;
  let behind = false;
  let finish: (() => void) | undefined;
  const close = (): void => {
    if (closed) return;
    closed = true;
    for (const fn of closing) fn();
  };
  const stream = new ReadableStream<Uint8Array>(
    {
      start(controller) {
        const unsent = (): number => HIGH_WATER - (controller.desiredSize ?? HIGH_WATER);
        const destroy = (): void => {
          if (closed) return;
          controller.error(new Error('the client does not read'));
          onCancel();
          close();
        };
        const writer: Writer = {
          write: (text) => {
            if (closed || finish !== undefined) return false;
            const bytes = encoder.encode(text);
            // Hono's server copies one piece into the socket before the client reads it; `unsent` counts only the rest.
            for (let at = 0; at < bytes.byteLength; at += SHORT)
              controller.enqueue(bytes.subarray(at, at + SHORT));
            behind = unsent() >= HIGH_WATER;
            return !behind;
          },
          get unsent() {
            return unsent();
          },
          onDrain: (fn) => draining.push(fn),
          end: () => {
            if (closed || finish !== undefined) return;
            const end = (): void => {
              controller.close();
              close();
            };
            // What the client has not read yet stays counted.
            if (unsent() >= HIGH_WATER) finish = end;
            else end();
          },
          destroy,
          onClose: (fn) => {
            if (closed) fn();
            else closing.push(fn);
          },
        };
        body(writer);
      },
      // Asked for more: less than the mark waits.
      pull() {
        finish?.();
        if (!behind || closed) return;
        behind = false;
        for (const fn of draining) fn();
      },
      cancel() {
        onCancel();
        close();
      },
    },
    new ByteLengthQueuingStrategy({ highWaterMark: HIGH_WATER }),
  );
  return new Response(stream, { status, headers });
}

function whole(text: string, waits: SentReply['waits']): (writer: Writer) => void {
  return (writer) => {
    writer.write(text);
    waits?.(writer);
    writer.end();
  };
}

/** Converts a `Response` of other code into a reply. */
export async function replyOf(response: Response): Promise<Reply> {
  const { status } = response;
  const headers = Object.fromEntries(response.headers);
  const { body } = response;
  if (body === null) return { status, headers };
  if (headers['content-type'] !== 'text/event-stream')
    return { status, headers, body: await response.text() };
  return {
    status,
    headers,
    body: (writer) => {
      const reader = body.getReader();
      const decoder = new TextDecoder();
      writer.onClose(() => void reader.cancel().catch(() => undefined));
      let drain = deferred();
      writer.onDrain(() => drain.resolve());
      const pump = async (): Promise<void> => {
        for (;;) {
          const { done, value } = await reader.read();
          if (done) break;
          drain = deferred();
          if (!writer.write(decoder.decode(value, { stream: true }))) await drain.promise;
        }
        writer.end();
      };
      pump().catch(() => writer.end());
    },
  };
}
