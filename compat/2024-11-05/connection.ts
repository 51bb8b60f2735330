/** The one connection of a session: first the URL to post to, then all messages of the server. */
import type { Inbound, Reply } from '../../src/http/exchange.ts';
import { SSE_HEADERS } from '../../src/http/reply.ts';
import type { Found } from '../../src/stream/event-streams.ts';
import { sseEvent } from '../../src/stream/sse.ts';
import type { Sink } from '../../src/stream/tail.ts';
import type { Services } from '../services.ts';
import type { Session } from '../session/session.ts';
import { RETRY } from '../session/stream.ts';
import { sinkOf } from '../sink.ts';
import { eventIdOf } from './identity.ts';

/**
 * @param found the session's stream, from after the event `from`
 * @param onSink called with the connection before it gets any event
 */
export function connected(
  services: Services,
  session: Session,
  inbound: Inbound,
  { found, from }: { readonly found: Found; readonly from: number },
  onSink: (sink: Sink) => void,
): Reply {
  const { paths } = services.settings;
  services.counters[inbound.header('last-event-id') ? 'resumedStreams' : 'getStreams'] += 1;
  const endpoint = `${paths.messagesFor(inbound.path, inbound.base)}?sessionId=${session.id}`;
  return {
    status: 200,
    headers: SSE_HEADERS,
    body: (writer) => {
      // With an id, so that a client whose connection breaks before the first message can still resume its session.
      writer.write(
        sseEvent({ event: 'endpoint', id: eventIdOf(session, from), retry: RETRY, data: endpoint }),
      );
      const sink = session.connect(sinkOf(services, writer));
      onSink(sink);
      void found.follow(named(sink, session));
    },
  };
}

/** The same events, under ids that contain their session's id. */
function named(sink: Sink, session: Session): Sink {
  return {
    ...sink,
    send: (event, id) => sink.send(event, eventIdOf(session, id.slice(id.lastIndexOf('_') + 1))),
  };
}
