/**
 * A server's response whose messages have a bound: the whole body, or each event of a stream. Without one a reply that
 * never ends is collected for as long as it comes. The lines of a stream end with LF alone: `eventsource-parser` 3.1
 * looks for each CR in all that a piece still has, and one of 65 KB took it two seconds.
 */
import type { OpenAccount } from './budget.ts';
import { MAX_DEPTH, type Shape, shapeOfText } from './shape.ts';
import { AwaitError, hasCode, nextTurn } from './values.ts';

/** Bytes of one message of a server: a body, or an event. */
export const MOST_MESSAGE = 67_108_864;
/** What each line of an event takes of memory besides its bytes, until the event is whole. */
export const LINE_OVERHEAD = 64;
/** Bytes of the line of an event's id, which its reader keeps: it goes back in a header. */
const MOST_ID = 8_192;
/** Values of one message: parsing that many may take a fifth of a second, and twenty times their bytes. */
export const MOST_VALUES = 250_000;

/** Most events that a reader gets in one turn of the event loop: each that is no message costs it a thrown error. */
const TURN_EVENTS = 20;

const LF = 0x0a;
const CR = 0x0d;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
/** The prefix of the lines that carry an event's message: its reader drops all other lines. */
const DATA = new TextEncoder().encode('data:');
/** The bytes before which a value begins, and those that end one. */
const COMMA = 0x2c;
const OPENING = 0x7b;
const CLOSING = 0x7d;
/** Makes a bracket a brace. */
const BRACE = 0x20;

/** What else is to be known of it. */
export interface BoundedReading {
  /** Called once a message is too much, before the reader sees the error. */
  readonly onExceeded?: (error: AwaitError) => void;
  /** Called once it is over: read to its end, broken or cancelled. What was read may still be on its way. */
  readonly onOver?: () => void;
  /** Opens one for the bytes of a message that is not whole, which may break the response off. */
  readonly account?: OpenAccount;
  /** Asked for each piece, which is passed on, and the next one read, once it resolves; undefined: at once. */
  readonly mayRead?: () => Promise<unknown> | undefined;
  /** Ends it once that resolves, as if it were over. */
  readonly until?: Promise<unknown> | undefined;
}

/** `text/event-stream`, whatever its parameters. */
export function mediaType({ headers }: Response): string {
  return (headers.get('content-type') ?? '').split(';', 1)[0]?.trim().toLowerCase() ?? '';
}

/**
 * The same response; reading it fails once a message is longer than that.
 * @param most bytes of one message
 */
export function boundedResponse(
  response: Response,
  most = MOST_MESSAGE,
  reading: BoundedReading = {},
): Response {
  const { body } = response;
  if (body === null) {
    reading.onOver?.();
    return response;
  }
  const isStream = mediaType(response) === 'text/event-stream';
  const own = new Response(bound(body, { ...reading, most, isStream }));
  // The constructor has no place for some, and refuses values that `fetch` passes on.
  for (const name of ['status', 'statusText', 'ok', 'headers', 'url', 'redirected'] as const)
    Object.defineProperty(own, name, { value: response[name] });
  return own;
}

/** Why a message is too much, counted before it is parsed; undefined if it is not. */
export function excessOf(text: string): string | undefined {
  if (text.length > MOST_MESSAGE) return `of more than ${MOST_MESSAGE} characters`;
  return excessOfShape(shapeOfText(text, MOST_VALUES));
}

function excessOfShape({ depth, values }: Pick<Shape, 'depth' | 'values'>): string | undefined {
  if (values > MOST_VALUES) return `of more than ${MOST_VALUES} values`;
  return depth > MAX_DEPTH ? `that is nested more than ${MAX_DEPTH} levels deep` : undefined;
}

/** Its body as text; undefined for one of more bytes than that, whose rest is not read. */
export async function boundedText(response: Response, most: number): Promise<string | undefined> {
  try {
    return await boundedResponse(response, most).text();
  } catch (error) {
    if (hasCode(error, 'limit')) return undefined;
    throw error;
  }
}

interface BoundParts extends BoundedReading {
  readonly most: number;
  readonly isStream: boolean;
}

function bound(
  body: ReadableStream<Uint8Array>,
  { most, isStream, onExceeded, onOver, account, mayRead, until }: BoundParts,
): ReadableStream<Uint8Array> {
  let size = 0;
  /** Bytes of the last event with data: the stream's reader keeps its text, and the parsed message, until the next one. */
  let last = 0;
  let hasData = false;
  let values = 0;
  let depth = 0;
  /** Inside of a string; above 1 behind a backslash in one. */
  let quoted = 0;
  /** Bytes of the present line that were counted, and whether it is one of the message. */
  let column = 0;
  let isData = true;
  let isId = false;
  /** What was read and not passed on, and how many bytes of it are counted. */
  let rest: Uint8Array = new Uint8Array();
  let counted = 0;
  /** No string goes over a line's end, so that nothing before a message hides what is in it. */
  const shape = (byte: number): void => {
    if (byte === LF) quoted = 0;
    else if (quoted > 1) quoted = 1;
    else if (byte === QUOTE) quoted = 1 - quoted;
    else if (quoted > 0) quoted += Number(byte === BACKSLASH);
    else if (byte === COMMA) values += 1;
    else if ((byte | BRACE) === OPENING) {
      values += 1;
      depth += 1;
    } else if ((byte | BRACE) === CLOSING && isData && depth > 0) depth -= 1;
  };
  /** @returns why the message is too much */
  const count = (): string | undefined => {
    let left = TURN_EVENTS;
    for (counted = 0; counted < rest.length && left > 0; counted += 1) {
      const byte = rest[counted] as number;
      size += 1;
      if (isStream) {
        if (byte === LF) {
          size += LINE_OVERHEAD;
          hasData ||= isData && column >= DATA.length;
          // An empty line ends an event.
          if (column === 0) {
            last = hasData ? size : last;
            hasData = false;
            left -= 1;
            size = 0;
            values = 0;
            depth = 0;
          }
          column = 0;
        } else {
          if (column < DATA.length) isData = (column === 0 || isData) && byte === DATA[column];
          // An `i`, with which no other field begins.
          if (column === 0) isId = byte === 0x69;
          column += 1;
          if (isId && column > MOST_ID) return `with an id of over ${MOST_ID} bytes`;
        }
      }
      shape(byte);
      const excess = excessOfShape({ depth, values });
      if (excess !== undefined) return excess;
    }
    return size > most ? `of more than ${most} bytes` : undefined;
  };
  let isAfterCr = false;
  const withLf = (chunk: Uint8Array): Uint8Array => {
    if (!isAfterCr && !chunk.includes(CR)) return chunk;
    const bytes: number[] = [];
    for (const byte of chunk) {
      if (byte !== LF || !isAfterCr) bytes.push(byte === CR ? LF : byte);
      isAfterCr = byte === CR;
    }
    return Uint8Array.from(bytes);
  };
  const reader = body.getReader();
  let isOver = false;
  let fail = (_why: string): void => {};
  const held = account?.(() => fail('that is still held, and such messages reached their limit'));
  const end = (): void => {
    isOver = true;
    held?.close();
    onOver?.();
  };
  return new ReadableStream(
    {
      start(controller) {
        fail = (why) => {
          const error = new AwaitError('limit', `the server sent a message ${why}`);
          end();
          onExceeded?.(error);
          controller.error(error);
          void reader.cancel(error).catch(() => {});
        };
        void until?.then(() => {
          if (isOver) return;
          end();
          controller.close();
          void reader.cancel().catch(() => {});
        });
      },
      async pull(controller) {
        if (rest.length > 0) await nextTurn();
        else {
          const { value, done } = await reader.read().catch((error: unknown) => {
            end();
            throw error;
          });
          if (isOver) return;
          if (done) {
            end();
            controller.close();
            return;
          }
          rest = isStream ? withLf(value) : value;
        }
        await mayRead?.();
        if (isOver) return;
        const excess = count();
        if (excess !== undefined) {
          fail(excess);
          return;
        }
        held?.set(size + 2 * last);
        // It may be the one that was broken off.
        if (isOver) return;
        controller.enqueue(rest.subarray(0, counted));
        rest = rest.subarray(counted);
      },
      cancel(reason) {
        end();
        return reader.cancel(reason);
      },
    },
    { highWaterMark: 0 },
  );
}
