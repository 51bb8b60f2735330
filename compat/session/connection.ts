/** A connection of a session: the events of a stream, as a reply. */
import type { JsonObject } from '../../src/base/values.ts';
import type { Inbound, Reply, Writer } from '../../src/doors/http/exchange.ts';
import { messageText, SSE_HEADERS } from '../../src/doors/http/reply.ts';
import type { Services } from '../../src/handler/services.ts';
import type { StreamPlace } from '../../src/stream/event-streams.ts';
import { sseEvent, sseRetry } from '../../src/stream/sse.ts';
import { RETRY_LATER } from '../../src/stream/sse-sink.ts';
import type { Sink } from '../../src/stream/tail.ts';
import { sinkOf } from '../sink.ts';
import type { Session } from './session.ts';
import type { Closing } from './start.ts';
import { RETRY } from './stream.ts';

export const SESSION = 'mcp-session-id';

/** The kind of a connection, for the counters. */
type StreamPurpose = 'postStreams' | 'getStreams' | 'resumedStreams';

/** A stream, from where its connection begins. */
export function sse(
  services: Services,
  session: Session,
  found: StreamPlace,
  purpose: StreamPurpose,
  wrap: (sink: Sink) => Sink = (sink) => sink,
): Reply {
  return eventsReply(services, session, purpose, (sink) => void found.follow(wrap(sink)));
}

/** A reply in server-sent events. @param attach gets its connection, once the head is out */
export function eventsReply(
  services: Services,
  session: Session,
  purpose: StreamPurpose,
  attach: (sink: Sink) => void,
): Reply {
  services.counters[purpose] += 1;
  // A transport keeps the last pause that it was told, and that may be one of a process that left.
  const retry = purpose === 'postStreams' ? undefined : RETRY;
  return {
    status: 200,
    headers: { ...SSE_HEADERS, [SESSION]: session.id },
    body: (writer) => attach(session.connect(sinkOf(services, writer, { retry }))),
  };
}

/** The stream of a process that leaves: its client keeps the id it came with, and comes back to another process. */
export function comeBack(session: Session, last: string | undefined): Reply {
  const id = last !== undefined && session.can('primes') ? sseEvent({ id: last, data: '' }) : '';
  return {
    status: 200,
    headers: { ...SSE_HEADERS, [SESSION]: session.id },
    body: sseRetry(RETRY_LATER) + id,
  };
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

/** A whole reply, in events without ids. */
export function atOnce(
  services: Services,
  session: Session,
  inbound: Inbound,
  messages: readonly JsonObject[],
): Reply {
  services.counters.postStreams += 1;
  const texts = messages.map((message) => sseEvent({ event: 'message', data: messageText(message) }));
  const [only = ''] = texts;
  // One by one, since a text of them all may be longer than a string can be; at once, so that they are counted until the
  // client has read them. A pipe takes a stream alone.
  const written = (writer: Writer): void => {
    for (const text of texts) writer.write(text);
    writer.end();
  };
  const body = inbound.piped || texts.length > 1 ? written : only;
  return { status: 200, headers: { ...SSE_HEADERS, [SESSION]: session.id }, body };
}
