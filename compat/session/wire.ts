/**
 * The interface of a revision with sessions over Streamable HTTP. The edge (`edge.ts`) handles sessions, paths and
 * headers; the revision handles bodies.
 */
import type { JsonObject } from '../../src/base/values.ts';
import type { Inbound, Reply } from '../../src/doors/http/exchange.ts';
import type { HostInstance } from '../../src/host/instance.ts';
import type { Sink } from '../../src/stream/tail.ts';
import type { ReplyDialect } from './call-reply.ts';
import type { Exchange } from './exchange.ts';

export interface SessionWire {
  /** Whether its sessions speak nothing else, and its requests say so in `MCP-Protocol-Version`. */
  readonly isDraft: boolean;
  /** How it writes the reply to a call, if not as live revisions do. */
  readonly reply?: ReplyDialect;
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
   * A client resumes the stream of a POST: its calls are followed, and their outcomes sent on it.
   * @param last the last event that it had
   * @returns the sink for the stream's events
   */
  follow(exchange: Exchange, stream: string, last: string, sink: Sink): Sink;
}
