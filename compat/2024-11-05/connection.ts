/** The one connection of a session: first the URL to post to, then all messages of the server. */
import type { Reply } from '../../src/doors/http/exchange.ts';
import { SSE_HEADERS } from '../../src/doors/http/reply.ts';
import type { Services } from '../../src/handler/services.ts';
import { lastingEventId } from '../../src/stream/event-id.ts';
import type { StreamPlace } from '../../src/stream/event-streams.ts';
import { sseEvent } from '../../src/stream/sse.ts';
import type { Sink } from '../../src/stream/tail.ts';
import { LIVE_REPLY, liveProjection, type ReplyDialect } from '../session/call-reply.ts';
import type { Exchange } from '../session/exchange.ts';
import { type LastingStart, withCalls } from '../session/lasting.ts';
import type { Session } from '../session/session.ts';
import { RETRY } from '../session/stream.ts';
import { sinkOf } from '../sink.ts';
import { recallClient } from './identity.ts';

/** The events of a session's calls on its one stream. */
export function dialectOf(services: Services): ReplyDialect {
  return {
    ...LIVE_REPLY,
    // A connection has an id from its first event on.
    project: (_exchange, call) => liveProjection(call, false),
    // It may have sent `initialize` to another process.
    caller: async (session: Session) => {
      await recallClient(services, session);
      return session.caller;
    },
  };
}

/**
 * @param found the session's stream, from where its client is
 * @param hears see `Session.announced`
 * @param from an event's id has the session's, since a client that comes back sends nothing else that names it
 */
export function connected(
  exchange: Exchange,
  found: StreamPlace,
  hears: (sink: Sink) => Sink,
  from: Omit<LastingStart, 'dialect'>,
): Reply {
  const { services, session, inbound } = exchange;
  const { paths } = services.settings;
  services.counters[inbound.header('last-event-id') ? 'resumedStreams' : 'getStreams'] += 1;
  const endpoint = `${paths.messagesFor(inbound.path, inbound.base)}?sessionId=${session.id}`;
  return {
    status: 200,
    headers: SSE_HEADERS,
    body: (writer) => {
      // With an id, so that a client whose connection breaks before the first message can still resume its session.
      const id = lastingEventId(from.had);
      writer.write(sseEvent({ event: 'endpoint', id, retry: RETRY, data: endpoint }));
      const sink = hears(session.connect(sinkOf(services, writer)));
      void found.follow(withCalls(exchange, { dialect: dialectOf(services), ...from }, sink));
    },
  };
}
