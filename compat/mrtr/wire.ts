/** A session whose turns end at their asks, in a draft's spelling. */
import { primed } from '../session/call-reply.ts';
import { refuseOneKind } from '../session/live.ts';
import { accepts } from '../session/requests.ts';
import type { SessionWire } from '../session/wire.ts';
import { runsTasks } from '../tasks/legacy-wire.ts';
import { withTaskCapability } from '../tasks/session.ts';
import type { Dialect } from './dialect.ts';
import { post } from './post.ts';

export function roundTrips(dialect: Dialect): SessionWire {
  return {
    isDraft: true,
    // A client that accepts only JSON gets every response in it.
    refuse: (inbound, body) =>
      accepts(inbound.header('accept') ?? '', 'application/json') ? undefined : refuseOneKind(inbound, body),
    begun({ services }, { initialized }) {
      const result = runsTasks(services, initialized) ? withTaskCapability(initialized) : initialized;
      return dialect.complete({ ...result, protocolVersion: dialect.revision });
    },
    post: (exchange, body) => post(exchange, dialect, body),
    // Its turns continue by their state; a broken stream only has its missed events to send.
    follow: (exchange, _stream, last, sink) => primed(exchange.session, last, sink),
  };
}
