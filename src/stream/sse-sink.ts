/**
 * A connection as a sink of events: server-sent events, and a keep-alive while nothing happens (a comment, unless the
 * wire has its own). At most one event waits beyond what the socket takes; the guard (`src/doors/http/backlog.ts`) limits for
 * how long, and the bytes of all connections together.
 */
import { type Clock, every } from '../base/values.ts';
import type { GuardedWriter } from '../doors/http/exchange.ts';
import type { StreamEvent } from './log.ts';
import { SSE_KEEP_ALIVE, sseEvent } from './sse.ts';
import type { Sink, TailEnd } from './tail.ts';

export interface SseOptions {
  readonly clock: Clock;
  /** Time between two signs of life, in milliseconds. */
  readonly keepAlive: number;
  /** Called when this process ends a connection before its stream's end. */
  readonly broken?: () => void;
  /** When a client whose connection ends should reconnect, in milliseconds. */
  readonly retry?: number;
  /** Default: server-sent events, with comments for keep-alive and closing. */
  readonly framing?: Framing;
}

/** The bytes that a wire writes for events, keep-alive and closing. */
export interface Framing {
  event(event: StreamEvent, id?: string): string;
  /** A sign of life. */
  alive(): string;
  /** The last words of a connection that ends before its stream does. */
  closing(why: Exclude<TailEnd, 'finished'>): string;
}

const REASONS: Readonly<Record<Exclude<TailEnd, 'finished'>, string>> = {
  replaced: 'a newer connection has this stream',
  behind: 'events were deleted before they were read',
  expired: 'this stream has expired',
  failed: 'the server cannot read this stream; come back',
  leaving: 'this process ends; come back to another one',
  closed: 'come back',
};

/**
 * When a client should come back whose process leaves, or crashes while its user is asked, in milliseconds. The SDKs try
 * twice, with a fixed pause: that gives the next process ten seconds to come up.
 */
export const RETRY_LATER = 5_000;

const COMMENTS: Framing = {
  event: ({ event, data, retry }, id) => sseEvent({ event, id, retry, data }),
  alive: () => SSE_KEEP_ALIVE,
  // A comment, for people who read the wire.
  closing: (why) =>
    `${why === 'leaving' ? sseEvent({ retry: RETRY_LATER }) : ''}: closing, ${REASONS[why]}\n\n`,
};

export function sseSink(
  writer: GuardedWriter,
  { clock, keepAlive, retry, broken, framing = COMMENTS }: SseOptions,
): Sink {
  const alive = every(clock, keepAlive, () => {
    if (!writer.behind) writer.write(framing.alive());
  });
  writer.onClose(() => alive.cancel());
  if (retry !== undefined) writer.write(sseEvent({ retry }));
  return {
    send: (event, id) => writer.write(framing.event(event, id)),
    onReady: (fn) => writer.onDrain(fn),
    onClose: (fn) => writer.onClose(fn),
    end: (why) => {
      alive.cancel();
      if (why === 'finished') writer.end();
      // A client that does not read gets no closing comment; the bytes it has still to read stay guarded.
      else if (writer.behind) writer.breakOff();
      else {
        const isBroken = why === 'behind' || why === 'expired' || why === 'failed';
        if (isBroken) broken?.();
        writer.write(framing.closing(why));
        writer.end(isBroken);
      }
    },
  };
}
