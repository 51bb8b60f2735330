/**
 * A server's response whose messages have a bound: the whole body, or each event of a stream. Without one a reply that
 * never ends is collected for as long as it comes.
 */
import { AwaitError } from './error.ts';

/** Bytes of one message of a server: a body, or an event. */
export const MOST_MESSAGE = 67_108_864;

const LF = 0x0a;
const CR = 0x0d;

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
  if (!isStream && !isCoded && length !== null && Number(length) <= most) return response;
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
  const count = (chunk: Uint8Array): void => {
    for (const byte of isStream ? chunk : []) {
      const isBreak = byte === CR || (byte === LF && !afterCr);
      if (isBreak) breaks += 1;
      else if (byte !== LF) breaks = 0;
      afterCr = byte === CR;
      size = breaks >= 2 ? 0 : size + 1;
    }
    if (!isStream) size += chunk.byteLength;
  };
  return new TransformStream({
    transform(chunk, controller) {
      count(chunk);
      if (size <= most) {
        controller.enqueue(chunk);
        return;
      }
      const error = new AwaitError('limit', `the server sent a message of more than ${most} bytes`);
      onExceeded(error);
      controller.error(error);
    },
  });
}
