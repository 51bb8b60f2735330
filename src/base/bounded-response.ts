/**
 * A server's response whose messages have a bound: the whole body, or each event of a stream. Without one a reply that
 * never ends is collected for as long as it comes.
 */
import { AwaitError } from './error.ts';
import { MAX_DEPTH } from './shape.ts';

/** Bytes of one message of a server: a body, or an event. */
export const MOST_MESSAGE = 67_108_864;
/** Values of one message: parsing that many may take a fifth of a second, and twenty times their bytes. */
export const MOST_VALUES = 250_000;

const LF = 0x0a;
const CR = 0x0d;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
/** The bytes before which a value begins, and those that end one. */
const COMMA = 0x2c;
const OPENING: ReadonlySet<number> = new Set([0x5b, 0x7b]);
const CLOSING: ReadonlySet<number> = new Set([0x5d, 0x7d]);

/**
 * The same response; reading it fails once a message is longer than that.
 * @param most bytes of one message
 * @param onExceeded called then, before the reader sees the error
 */
export function boundedResponse(
  response: Response,
  most = MOST_MESSAGE,
  onExceeded: (error: AwaitError) => void = () => {},
): Response {
  const { body, headers, status, statusText, url, redirected } = response;
  if (body === null) return response;
  const isStream = headers.get('content-type')?.toLowerCase().startsWith('text/event-stream') ?? false;
  const isCoded = headers.has('content-encoding');
  const length = headers.get('content-length');
  // So few bytes are neither nested deeply nor many values.
  if (!isStream && !isCoded && length !== null && Number(length) <= Math.min(most, MAX_DEPTH))
    return response;
  const own = new Response(body.pipeThrough(bound(most, isStream, onExceeded)), {
    status,
    statusText,
    headers,
  });
  // A response that was made here has neither.
  Object.defineProperties(own, { url: { value: url }, redirected: { value: redirected } });
  return own;
}

function bound(
  most: number,
  isStream: boolean,
  onExceeded: (error: AwaitError) => void,
): TransformStream<Uint8Array, Uint8Array> {
  let size = 0;
  /** Line breaks in a row: two end an event; a CR and its LF are one. */
  let breaks = 0;
  let afterCr = false;
  let values = 0;
  let depth = 0;
  let inString = false;
  let isEscaped = false;
  /** No string goes over a line's end, so that nothing before a message hides what is in it. */
  const shape = (byte: number): void => {
    if (byte === LF || byte === CR) {
      inString = false;
      isEscaped = false;
    } else if (inString) {
      if (isEscaped) isEscaped = false;
      else if (byte === BACKSLASH) isEscaped = true;
      else if (byte === QUOTE) inString = false;
    } else if (byte === QUOTE) inString = true;
    else if (byte === COMMA) values += 1;
    else if (OPENING.has(byte)) {
      values += 1;
      depth += 1;
    } else if (CLOSING.has(byte)) depth -= 1;
  };
  /** @returns why the message is too much */
  const count = (chunk: Uint8Array): string | undefined => {
    for (const byte of chunk) {
      size += 1;
      if (isStream) {
        const isBreak = byte === CR || (byte === LF && !afterCr);
        if (isBreak) breaks += 1;
        else if (byte !== LF) breaks = 0;
        afterCr = byte === CR;
        if (breaks >= 2) {
          size = 0;
          values = 0;
          depth = 0;
        }
      }
      shape(byte);
      if (values > MOST_VALUES) return `of more than ${MOST_VALUES} values`;
      if (depth > MAX_DEPTH) return `that is nested more than ${MAX_DEPTH} levels deep`;
    }
    return size > most ? `of more than ${most} bytes` : undefined;
  };
  return new TransformStream({
    transform(chunk, controller) {
      const excess = count(chunk);
      if (excess === undefined) {
        controller.enqueue(chunk);
        return;
      }
      const error = new AwaitError('limit', `the server sent a message ${excess}`);
      onExceeded(error);
      controller.error(error);
    },
  });
}
