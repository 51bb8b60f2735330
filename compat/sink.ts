/** The one way that events are written, on every wire: kept alive, with an end for clients that do not read, counted. */
import { defined, every, systemClock } from '../src/base/values.ts';
import type { GuardedWriter, Reply } from '../src/doors/http/exchange.ts';
import type { Services } from '../src/handler/services.ts';
import { SSE_KEEP_ALIVE, sseEvent } from '../src/stream/sse.ts';
import { type Framing, sseSink } from '../src/stream/sse-sink.ts';
import type { Sink } from '../src/stream/tail.ts';

export function sinkOf(
  { settings, counters }: Services,
  writer: GuardedWriter,
  { framing, retry }: { readonly framing?: Framing; readonly retry?: number | undefined } = {},
): Sink {
  const broken = (): void => {
    counters.brokenStreams += 1;
  };
  return sseSink(writer, {
    clock: systemClock,
    keepAlive: settings.limits.keepAlive,
    broken,
    ...defined({ framing, retry }),
  });
}

/** Events without ids, which cannot be resumed. */
export const WITHOUT_IDS: Framing = {
  event: (event) => sseEvent(event),
  alive: () => SSE_KEEP_ALIVE,
  closing: () => '',
};

/** A stream that other code writes, such as the SDK. */
export function kept({ settings, counters }: Services, reply: Reply): Reply {
  const { body } = reply;
  if (typeof body !== 'function') return reply;
  return {
    ...reply,
    body: (writer) => {
      counters.postStreams += 1;
      const alive = every(systemClock, settings.limits.keepAlive, () => {
        if (!writer.behind) writer.write(SSE_KEEP_ALIVE);
      });
      writer.onClose(() => alive.cancel());
      body(writer);
    },
  };
}
