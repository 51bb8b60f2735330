/** A connection of a session: what a request brings, and the events of a stream as its reply. */
import { systemClock } from '../../src/call/clock.ts';
import type { Leg } from '../../src/call/ports.ts';
import type { Inbound, Reply } from '../../src/http/exchange.ts';
import { SSE_HEADERS } from '../../src/http/reply.ts';
import type { Found } from '../../src/stream/event-streams.ts';
import { sseSink } from '../../src/stream/sse-sink.ts';
import type { Sink } from '../../src/stream/tail.ts';
import { REVISION, untilInput } from '../sep-1858/wire.ts';
import type { Services } from '../services.ts';
import type { Session } from './session.ts';

export const SESSION = 'mcp-session-id';

/** What a request brings besides its params. */
export function sourceOf(
  inbound: Inbound,
  closeStream?: () => void,
): Pick<Leg, 'authInfo' | 'request' | 'closeStream'> {
  return {
    ...(inbound.authInfo !== undefined && { authInfo: inbound.authInfo }),
    request: inbound.request(),
    ...(closeStream !== undefined && { closeStream }),
  };
}

/** A stream, from where its connection begins. */
export function sse(
  services: Services,
  session: Session,
  found: Found,
  onSink: (sink: Sink) => void = () => {},
): Reply {
  const { keepAlive, stalled } = services.settings.limits;
  return {
    status: 200,
    headers: { ...SSE_HEADERS, [SESSION]: session.id },
    body: (writer) => {
      const plain = session.connect(sseSink(writer, { clock: systemClock, keepAlive, stalled }));
      const sink = session.revision === REVISION ? untilInput(plain) : plain;
      onSink(sink);
      void found.follow(sink);
    },
  };
}
