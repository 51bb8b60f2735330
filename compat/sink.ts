/** A connection as a sink of events, by the limits that hold for all wires; one that is broken off is counted. */
import { systemClock } from '../src/call/clock.ts';
import type { Writer } from '../src/http/exchange.ts';
import { type Framing, sseSink } from '../src/stream/sse-sink.ts';
import type { Sink } from '../src/stream/tail.ts';
import type { Services } from './services.ts';

export function sinkOf({ settings, counters }: Services, writer: Writer, framing?: Framing): Sink {
  const { keepAlive, stalled } = settings.limits;
  const broken = (): void => {
    counters.brokenStreams += 1;
  };
  return sseSink(writer, {
    clock: systemClock,
    keepAlive,
    stalled,
    broken,
    ...(framing !== undefined && { framing }),
  });
}
