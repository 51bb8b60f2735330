/**
 * The interface of a revision with sessions over Streamable HTTP. The edge (`edge.ts`) handles sessions, paths and
 * headers; the revision handles bodies.
 */
import type { JsonObject } from '../../src/base/json.ts';
import type { HostInstance } from '../../src/host/instance.ts';
import type { Outside } from '../../src/host/router.ts';
import type { Inbound, Reply } from '../../src/http/exchange.ts';
import type { Sink } from '../../src/stream/tail.ts';
import type { Services } from '../services.ts';
import { openInstance } from './initialize.ts';
import type { Session } from './session.ts';
import type { News } from './state.ts';

/** A request of a session. */
export interface Exchange {
  readonly services: Services;
  readonly session: Session;
  readonly inbound: Inbound;
  /** The session's instance. */
  readonly instance: () => Promise<HostInstance>;
  /** The same as a function; undefined if each call has an instance of its own. */
  readonly home: (() => Promise<HostInstance>) | undefined;
}

export interface SessionWire {
  /** Whether its sessions speak nothing else, and its requests say so in `MCP-Protocol-Version`. */
  readonly isDraft: boolean;
  /** Refuses a POST that is invalid whatever its session. */
  refuse(inbound: Inbound, body: unknown): Reply | undefined;
  /** The response to `initialize`: the members beside `jsonrpc` and `id`. */
  begun(exchange: Exchange, instance: HostInstance): JsonObject;
  /**
   * Handles a POST: reads a request and starts its call, or resumes its turn; delivers an answer. Asks and the outcome
   * are in the reply, or on the stream that the reply is.
   */
  post(exchange: Exchange, body: unknown): Promise<Reply>;
  /**
   * Whether nothing follows an event on its stream for a GET, though the stream may go on.
   * @throws AwaitError `bad-token` for an id of no known event
   */
  isOver?(exchange: Exchange, last: string): Promise<boolean>;
  /**
   * A client resumes the stream of a POST: its calls are followed, and their outcomes sent on it.
   * @param last the last event that it had
   * @returns the sink for the stream's events
   */
  follow(exchange: Exchange, stream: string, last: string, sink: Sink): Sink;
}

/** @param news the session's records, read once for the whole request, except for work that runs on after it */
export function exchangeOf(services: Services, session: Session, inbound: Inbound, news?: News): Exchange {
  const open = (outside: Outside): Promise<HostInstance> => openInstance(services, session, inbound, outside);
  let ready: Promise<HostInstance> | undefined;
  const instance = (): Promise<HostInstance> => {
    ready ??= session.ready(open, news);
    return ready;
  };
  const home = services.settings.instance === 'call' ? undefined : () => session.ready(open);
  return { services, session, inbound, instance, home };
}
