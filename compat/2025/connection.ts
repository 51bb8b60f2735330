/** A connection of a session: what a request brings, and the events of a stream as its reply. */
import type { Leg } from '../../src/call/ports.ts';
import type { Inbound, Reply } from '../../src/http/exchange.ts';
import { SSE_HEADERS } from '../../src/http/reply.ts';
import type { Found } from '../../src/stream/event-streams.ts';
import type { Sink } from '../../src/stream/tail.ts';
import { REVISION, untilInput } from '../sep-1858/wire.ts';
import type { Services } from '../services.ts';
import { sinkOf } from '../sink.ts';
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

/** What a connection is for, as it is counted. */
type Purpose = 'postStreams' | 'getStreams' | 'resumedStreams';

/** A stream, from where its connection begins. */
export function sse(
  services: Services,
  session: Session,
  found: Found,
  purpose: Purpose,
  wrap: (sink: Sink) => Sink = (sink) => sink,
): Reply {
  services.counters[purpose] += 1;
  return {
    status: 200,
    headers: { ...SSE_HEADERS, [SESSION]: session.id },
    body: (writer) => {
      const plain = session.connect(sinkOf(services, writer));
      const sink = session.revision === REVISION ? untilInput(plain) : plain;
      void found.follow(wrap(sink));
    },
  };
}

/** Tells when the connection has had an event: from then on its client has an id to come back with. */
export function noteFirst(onFirst: () => void): (sink: Sink) => Sink {
  return (sink) => ({
    ...sink,
    send: (event, id) => {
      const keepsUp = sink.send(event, id);
      onFirst();
      return keepsUp;
    },
  });
}
