/** A connection of a session: the events of a stream, as a reply. */
import type { Inbound, Reply } from '../../src/http/exchange.ts';
import { SSE_HEADERS } from '../../src/http/reply.ts';
import type { Found } from '../../src/stream/event-streams.ts';
import { sseEvent, sseRetry } from '../../src/stream/sse.ts';
import { RETRY_LEAVING } from '../../src/stream/sse-sink.ts';
import type { Sink } from '../../src/stream/tail.ts';
import type { Services } from '../services.ts';
import { sinkOf } from '../sink.ts';
import type { Session } from './session.ts';
import type { Closing } from './start.ts';
import { RETRY } from './stream.ts';

export const SESSION = 'mcp-session-id';

/** The kind of a connection, for the counters. */
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
  // A transport keeps the last pause that it was told, and that may be one of a process that left.
  const retry = purpose === 'postStreams' ? undefined : RETRY;
  return {
    status: 200,
    headers: { ...SSE_HEADERS, [SESSION]: session.id },
    body: (writer) => {
      void found.follow(wrap(session.connect(sinkOf(services, writer, { retry }))));
    },
  };
}

/** The stream of a process that leaves: its client keeps the id it came with, and comes back to another process. */
export function comeBack(session: Session, last: string | undefined): Reply {
  const id = last !== undefined && session.can('primes') ? sseEvent({ id: last, data: '' }) : '';
  return {
    status: 200,
    headers: { ...SSE_HEADERS, [SESSION]: session.id },
    body: sseRetry(RETRY_LEAVING) + id,
  };
}

/** Calls `onFirst` when the connection has had an event: from then on its client has an id to resume with. */
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

/** As an SDK offers it: to clients whose streams begin with an event, so that they can come back. A pipe has none. */
export function closing(session: Session, { piped }: Inbound, closeStream: () => void): Closing {
  return session.can('primes') && !piped ? { closeStream, closeStanding: () => session.closeStanding() } : {};
}

/** Clients of the SDKs only know an id that came on this very connection, should it break as well. */
export function primed(session: Session, last: string, sink: Sink): Sink {
  if (session.can('primes')) sink.send({ data: '' }, last);
  return sink;
}
