/**
 * A connection as a sink of events: server-sent events, something that keeps it open while nothing happens (a
 * comment, unless the wire has its own), and an end for a client that does not read. What waits for one is
 * bounded by what the socket takes and one event.
 */
import { type Clock, every, type Timer } from '../call/clock.ts';
import type { Writer } from '../http/exchange.ts';
import type { StreamEvent } from './log.ts';
import { SSE_KEEP_ALIVE, sseClosing, sseEvent, sseRetry } from './sse.ts';
import type { Sink, TailEnd } from './tail.ts';

export interface SseOptions {
  readonly clock: Clock;
  /** Time between two signs of life, in milliseconds. */
  readonly keepAlive: number;
  /** How long a client may take nothing of what waits for it, in milliseconds. */
  readonly stalled: number;
  /** Told when a connection is broken off, and not by its client. */
  readonly broken?: () => void;
  /** When a client whose connection ends should come back, in milliseconds. */
  readonly retry?: number;
  /** Default: comments for what is no event of the stream. */
  readonly framing?: Framing;
}

/** How a wire writes what goes over a connection. */
export interface Framing {
  event(event: StreamEvent, id: string): string;
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
  closed: 'come back',
};

const COMMENTS: Framing = {
  event: (event, id) => sseEvent({ ...event, id }),
  alive: () => SSE_KEEP_ALIVE,
  closing: (why) => sseClosing(REASONS[why]),
};

export function sseSink(
  writer: Writer,
  { clock, keepAlive, stalled, retry, broken, framing = COMMENTS }: SseOptions,
): Sink {
  let patience: Timer | undefined;
  const write = (text: string): boolean => {
    const keepsUp = writer.write(text);
    if (!keepsUp && patience === undefined) watch(writer.unsent);
    return keepsUp;
  };
  /** A client that is only slow takes some of it. */
  const watch = (before: number): void => {
    patience = clock
      .after(stalled, () => {
        if (writer.unsent < before) watch(writer.unsent);
        else breakOff();
      })
      .unref();
  };
  const breakOff = (): void => {
    broken?.();
    writer.destroy();
  };
  const alive = every(clock, keepAlive, () => {
    if (patience === undefined) write(framing.alive());
  });
  const rest = (): void => {
    alive.cancel();
    patience?.cancel();
  };
  writer.onClose(rest);
  const ready: (() => void)[] = [];
  writer.onDrain(() => {
    patience?.cancel();
    patience = undefined;
    for (const fn of ready) fn();
  });
  if (retry !== undefined) write(sseRetry(retry));
  return {
    send: (event, id) => write(framing.event(event, id)),
    onReady: (fn) => void ready.push(fn),
    onClose: (fn) => writer.onClose(fn),
    end: (why) => {
      alive.cancel();
      if (why === 'finished') {
        // What waits to be read still is somebody's who may never read it.
        if (patience === undefined && writer.unsent > 0) watch(writer.unsent);
        writer.end();
      }
      // Nothing is said to somebody who does not listen; what waits for the end of a stream is still watched.
      else if (patience !== undefined) breakOff();
      else {
        if (why === 'behind' || why === 'expired' || why === 'failed') broken?.();
        writer.write(framing.closing(why));
        writer.end();
      }
    },
  };
}
