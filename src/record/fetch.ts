/**
 * `fetch` inside of a call, recorded as a step is: its response is in the journal before the tool continues, and a
 * replay reads it there. The live response passes through the journal's form too, so a tool sees the same bytes live
 * and replayed.
 */
import { AwaitError } from '../base/values.ts';
import { type CallContext, currentContext } from '../call/frame/context.ts';
import { branchOf, short } from './place.ts';

/** Methods that change nothing: sent again where the response was not kept. */
const SAFE: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS']);

export function patchFetch(): void {
  const real = globalThis.fetch;

  globalThis.fetch = function fetch(input, init): Promise<Response> {
    const once = currentContext()?.once;
    if (once === undefined) return real(input, init);
    const method = (init?.method ?? (input instanceof Request ? input.method : 'GET')).toUpperCase();
    const url = input instanceof Request ? input.url : String(input);
    const body = init?.body;
    const text = typeof body === 'string' || body instanceof URLSearchParams ? String(body) : bytesOf(body);
    const host = URL.canParse(url) ? new URL(url).host : '';
    // A digest, for its secrets, of all parts that can be read without consuming them.
    const site = `fetch ${method} ${host} ~${short(`${method}\n${url}\n${text}`)}`;
    const place = { site, branch: branchOf(fetch) };
    return recorded(once, place, method, () => real(input, init));
  };
}

async function recorded(
  once: NonNullable<CallContext['once']>,
  place: { site: string; branch: string },
  method: string,
  send: () => Promise<Response>,
): Promise<Response> {
  let live: Response | undefined;
  const kept = await once<KeptFetch>(place, async () => {
    try {
      const { kept, response } = await keepResponse(await send());
      live = response;
      return kept;
    } catch (error) {
      return keepFailure(error);
    }
  });
  if ('error' in kept) throw reviveFailure(kept.error);
  const { body } = kept;
  if (body !== undefined) {
    if ('none' in body) return responseOf(kept, null);
    return responseOf(kept, 'text' in body ? Buffer.from(body.text) : Buffer.from(body.base64, 'base64'));
  }
  if (live !== undefined) return live;
  if (SAFE.has(method)) return send();
  throw new AwaitError(
    'fetch-not-kept',
    `the response to ${place.site} was a stream, or too long for the journal. Put it into a step.`,
  );
}

function bytesOf(body: unknown): string {
  if (body instanceof ArrayBuffer) return Buffer.from(body).toString('base64');
  if (ArrayBuffer.isView(body)) {
    return Buffer.from(body.buffer, body.byteOffset, body.byteLength).toString('base64');
  }
  return '';
}

// --- responses ---

/**
 * The part of a `fetch` response that the journal keeps, and the response made from it: the same bytes live and
 * replayed.
 */
/** Most bytes of a body that are recorded; a longer one is passed on as a stream. */
const MOST_BYTES = 262_144;
/** Bodies that come bit by bit and may never end. */
const STREAMS =
  /^(text\/event-stream|application\/(x-)?ndjson|application\/json-seq|multipart\/x-mixed-replace)/;

interface KeptResponse {
  readonly status: number;
  readonly statusText: string;
  readonly url: string;
  readonly redirected: boolean;
  readonly headers: readonly (readonly [string, string])[];
  /** Absent when it was a stream, or too long. */
  readonly body?: KeptBody;
}

type KeptBody = { readonly none: true } | { readonly text: string } | { readonly base64: string };

interface KeptFailure {
  readonly name: string;
  readonly message: string;
  readonly cause?: { readonly name: string; readonly message: string; readonly code?: string };
}

type KeptFetch = KeptResponse | { readonly error: KeptFailure };

/** @returns the kept part; if the body is not kept, also the response to pass on now */
async function keepResponse(response: Response): Promise<{ kept: KeptFetch; response?: Response }> {
  const { status, statusText, url, redirected } = response;
  const head = { status, statusText, url, redirected, headers: [...response.headers] };
  if (response.body === null) return { kept: { ...head, body: { none: true } } };
  const type = response.headers.get('content-type') ?? '';
  const tooLong = Number(response.headers.get('content-length')) > MOST_BYTES;
  if (STREAMS.test(type) || tooLong) return { kept: head, response };
  const reader = response.body.getReader();
  const chunks: Uint8Array[] = [];
  for (let size = 0; ; ) {
    const { done, value } = await reader.read();
    if (done) break;
    chunks.push(value);
    size += value.byteLength;
    if (size > MOST_BYTES) {
      return { kept: head, response: responseOf(head, continued(chunks, reader)) };
    }
  }
  const bytes = Buffer.concat(chunks);
  const text = bytes.toString('utf8');
  const isText = Buffer.from(text, 'utf8').equals(bytes);
  return { kept: { ...head, body: isText ? { text } : { base64: bytes.toString('base64') } } };
}

/** A body made of the chunks read already and the rest. */
function continued(
  chunks: readonly Uint8Array[],
  reader: ReadableStreamDefaultReader<Uint8Array>,
): ReadableStream<Uint8Array> {
  const read = [...chunks];
  return new ReadableStream({
    async pull(controller) {
      const chunk = read.shift();
      if (chunk !== undefined) {
        controller.enqueue(chunk);
        return;
      }
      const { done, value } = await reader.read();
      if (done) controller.close();
      else controller.enqueue(value);
    },
    cancel: (reason) => reader.cancel(reason),
  });
}

function responseOf(head: KeptResponse, body: BodyInit | null): Response {
  const headers = head.headers.map(([name, value]): [string, string] => [name, value]);
  const response = new Response(body, { status: head.status, statusText: head.statusText, headers });
  // Only `fetch` itself can make a response with a URL.
  return Object.defineProperties(response, {
    url: { value: head.url },
    redirected: { value: head.redirected },
    type: { value: 'basic' },
  });
}

function keepFailure(thrown: unknown): KeptFetch {
  if (!(thrown instanceof Error)) return { error: { name: 'Error', message: String(thrown) } };
  const { name, message, cause } = thrown;
  if (!(cause instanceof Error)) return { error: { name, message } };
  const { code } = cause as { code?: unknown };
  const kept = { name: cause.name, message: cause.message, ...(typeof code === 'string' && { code }) };
  return { error: { name, message, cause: kept } };
}

/** Tools recognize errors of `fetch` by their class: a TypeError, or the DOMException of an abort. */
function reviveFailure({ name, message, cause }: KeptFailure): Error {
  if (name === 'AbortError' || name === 'TimeoutError') return new DOMException(message, name);
  const inner = cause && Object.assign(new Error(cause.message), cause);
  const options = inner === undefined ? {} : { cause: inner };
  if (name === 'TypeError') return new TypeError(message, options);
  return Object.assign(new Error(message, options), { name });
}
