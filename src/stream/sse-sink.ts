/**
 * A connection as a sink of events: server-sent events, comments that keep it open while nothing happens, and
 * an end for a client that does not read. What waits for one is bounded by what the socket takes and one event.
 */
import { type Clock, every, type Timer } from '../call/clock.ts';
import type { Writer } from '../http/exchange.ts';
import { SSE_KEEP_ALIVE, sseClosing, sseEvent, sseRetry } from './sse.ts';
import type { Sink, TailEnd } from './tail.ts';

export interface SseOptions {
  readonly clock: Clock;
  /** Time between two comments, in milliseconds. */
  readonly keepAlive: number;
  /** How long a client may take nothing of what waits for it, in milliseconds. */
  readonly stalled: number;
  /** When a client whose connection ends should come back, in milliseconds. */
  readonly retry?: number;
}

const REASONS: Readonly<Record<Exclude<TailEnd, 'finished'>, string>> = {
  replaced: 'a newer connection has this stream',
  behind: 'events were deleted before they were read',
  expired: 'this stream has expired',
  failed: 'the server cannot read this stream; come back',
  closed: 'come back',
};

export function sseSink(writer: Writer, { clock, keepAlive, stalled, retry }: SseOptions): Sink {
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
        else writer.destroy();
      })
      .unref();
  };
  const alive = every(clock, keepAlive, () => {
    if (patience === undefined) write(SSE_KEEP_ALIVE);
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
    send: (event, id) => write(sseEvent({ ...event, id })),
    onReady: (fn) => void ready.push(fn),
    onClose: (fn) => writer.onClose(fn),
    end: (why) => {
      alive.cancel();
      if (why === 'finished') writer.end();
      // Nothing is said to somebody who does not listen; what waits for the end of a stream is still watched.
      else if (patience !== undefined) writer.destroy();
      else {
        writer.write(sseClosing(REASONS[why]));
        writer.end();
      }
    },
  };
}
