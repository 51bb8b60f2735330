/**
 * What a revision with sessions over Streamable HTTP implements, so that reading one is reading all. Sessions,
 * paths and headers are the edge's (`edge.ts`); what is in a body, and what becomes of it, is the revision's.
 */
import type { JsonObject } from '../../src/base/json.ts';
import type { HostInstance } from '../../src/host/instance.ts';
import type { Inbound, Reply } from '../../src/http/exchange.ts';
import type { Sink } from '../../src/stream/tail.ts';
import type { Services } from '../services.ts';
import { openInstance } from './initialize.ts';
import type { Session } from './session.ts';

/** A request of a session. */
export interface Exchange {
  readonly services: Services;
  readonly session: Session;
  readonly inbound: Inbound;
  /** The session's instance. */
  readonly instance: () => Promise<HostInstance>;
  /** The same, for what runs in it; undefined where each call has an instance of its own. */
  readonly home: (() => Promise<HostInstance>) | undefined;
}

export interface SessionWire {
  /** Whether its sessions speak nothing else, and its requests say so in `MCP-Protocol-Version`. */
  readonly isDraft: boolean;
  /** Refuses a POST for what can be seen without its session. */
  refuse(inbound: Inbound, body: unknown): Reply | undefined;
  /** The response to `initialize`: what stands beside `jsonrpc` and `id`. */
  begun(exchange: Exchange, instance: HostInstance): JsonObject;
  /**
   * What a client posts: a request is read and its call started, or its turn resumed; an answer is taken in. Asks
   * and the end are told in the reply, or on the stream that it is.
   */
  post(exchange: Exchange, body: unknown): Promise<Reply>;
  /**
   * A client came back for the stream of a POST: its calls are followed, and their ends told on it.
   * @param last the event that it had
   * @returns where the stream's events go
   */
  follow(exchange: Exchange, stream: string, last: string, sink: Sink): Sink;
}

export function exchangeOf(services: Services, session: Session, inbound: Inbound): Exchange {
  const instance = (): Promise<HostInstance> =>
    session.ready((outside) => openInstance(services, session, inbound, outside));
  const home = services.settings.instance === 'call' ? undefined : instance;
  return { services, session, inbound, instance, home };
}
