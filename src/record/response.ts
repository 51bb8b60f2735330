/**
 * The part of a `fetch` response that the journal keeps, and the response made from it: the same bytes live and
 * replayed.
 */

/** Most bytes of a body that are recorded; a longer one is passed on as a stream. */
const MOST_BYTES = 262_144;
/** Bodies that come bit by bit and may never end. */
const STREAMS =
  /^(text\/event-stream|application\/(x-)?ndjson|application\/json-seq|multipart\/x-mixed-replace)/;

export interface KeptResponse {
  readonly status: number;
  readonly statusText: string;
  readonly url: string;
  readonly redirected: boolean;
  readonly headers: readonly (readonly [string, string])[];
  /** Absent when it was a stream, or too long. */
  readonly body?: KeptBody;
}

type KeptBody = { readonly none: true } | { readonly text: string } | { readonly base64: string };

export interface KeptFailure {
  readonly name: string;
  readonly message: string;
  readonly cause?: { readonly name: string; readonly message: string; readonly code?: string };
}

export type KeptFetch = KeptResponse | { readonly error: KeptFailure };

/** @returns the kept part; if the body is not kept, also the response to pass on now */
export async function keepResponse(response: Response): Promise<{ kept: KeptFetch; response?: Response }> {
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
  return { kept: { ...head, body: keepBytes(Buffer.concat(chunks)) } };
}

function keepBytes(bytes: Buffer): KeptBody {
  const text = bytes.toString('utf8');
  return Buffer.from(text, 'utf8').equals(bytes) ? { text } : { base64: bytes.toString('base64') };
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

export function reviveResponse(head: KeptResponse, body: KeptBody): Response {
  if ('none' in body) return responseOf(head, null);
  return responseOf(head, 'text' in body ? Buffer.from(body.text) : Buffer.from(body.base64, 'base64'));
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

export function keepFailure(thrown: unknown): KeptFetch {
  if (!(thrown instanceof Error)) return { error: { name: 'Error', message: String(thrown) } };
  const { name, message, cause } = thrown;
  return { error: { name, message, ...(cause instanceof Error && { cause: keepCause(cause) }) } };
}

function keepCause(cause: Error & { code?: unknown }): NonNullable<KeptFailure['cause']> {
  const { name, message, code } = cause;
  return { name, message, ...(typeof code === 'string' && { code }) };
}

/** Tools recognize errors of `fetch` by their class: a TypeError, or the DOMException of an abort. */
export function reviveFailure({ name, message, cause }: KeptFailure): Error {
  if (name === 'AbortError' || name === 'TimeoutError') return new DOMException(message, name);
  const inner = cause && Object.assign(new Error(cause.message), cause);
  const options = inner === undefined ? {} : { cause: inner };
  if (name === 'TypeError') return new TypeError(message, options);
  return Object.assign(new Error(message, options), { name });
}
