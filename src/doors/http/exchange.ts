/**
 * One HTTP exchange as the revisions see it: neither Node's objects nor a `Request` and a `Response`, which
 * cost more to make than a call takes. `fetch.ts` and `src/node.ts` translate.
 */

import type { JsonObject } from '../../base/values.ts';
import type { AbortSignalLike } from '../../call/ports.ts';
import type { BeginBody } from './bodies.ts';

export interface Inbound {
  /** In capitals. */
  readonly method: string;
  /** The path without mount prefix and query. */
  readonly path: string;
  /** The mount prefix: `''`, or such as `/api`. */
  readonly base: string;
  /** A parameter of the query. */
  query(name: string): string | undefined;
  header(name: string): string | undefined;
  /** How long its headers are, where that is known. */
  readonly headBytes?: number;
  /** How long its text is, where that is here already. */
  readonly textBytes?: number;
  /**
   * The body as text.
   * @throws AwaitError `limit` when it is longer than `maxBytes`; `no-room` when it took too long, and others have no room
   */
  text(maxBytes: number, begin: BeginBody): Promise<string>;
  /** Closes the connection, where that is ours to do. */
  readonly disconnect?: () => void;
  /** A body that was parsed before it came here. */
  readonly parsedBody?: unknown;
  /** About how many bytes of memory the params of each request in its body take, once that is read. */
  memory?: number;
  readonly authInfo?: JsonObject;
  /** The address of the connection, where it is known. */
  readonly address?: string;
  /** Whether the connection came in on an address of this machine alone, where that is known. */
  readonly onLoopback?: boolean;
  /** Whether its client sends the same request again where its connection breaks: it is to run once. */
  readonly repeats?: boolean;
  /** Whether it came over a pipe, whose messages have no headers of their own. */
  readonly piped?: boolean;
  /** Fires when the client goes away before the reply is complete. */
  readonly signal: AbortSignalLike;
  /** The request as a web `Request`, made on the first read. Its body is spent. */
  request(): Request;
}

export interface Reply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** `Set-Cookie` lines, each a header of its own. */
  readonly cookies?: readonly string[];
  /** A whole body, or a function that writes one. */
  readonly body?: string | StreamBody;
}

/** Called once the head is out. */
type StreamBody = (writer: GuardedWriter) => void;

/** A reply as adapters send it: the bytes that wait for its client are counted. */
export interface SentReply extends Reply {
  readonly body?: string | ((writer: Writer) => void);
  /** Called after a whole body was written, where some of it waits for the client. */
  readonly waits?: (writer: Writer) => void;
}

export interface Writer {
  /** @returns false when the client is behind: later writes wait in memory */
  write(text: string): boolean;
  /** Bytes that wait for the client. */
  readonly unsent: number;
  /** Calls each time that nothing waits any more after a write that returned false. */
  onDrain(fn: () => void): void;
  /** @param isUnfinished whether its client could not be given the rest, and has to come back for it */
  end(isUnfinished?: boolean): void;
  /** Breaks the connection off, and drops the bytes that wait. */
  destroy(): void;
  /** Whether its connection is counted as a whole, elsewhere: one pipe carries many replies. */
  readonly limitsItself?: boolean;
  /** Whether another response of the same connection is before it. */
  readonly isQueued?: boolean;
  /** Called once, when the client goes away or the stream was ended; at once when that is past. */
  onClose(fn: () => void): void;
}

/** A writer that limits how long its client is waited for. */
export interface GuardedWriter extends Writer {
  /** Whether something waits for its client. */
  readonly behind: boolean;
  /** Breaks the connection off, and has it counted. */
  breakOff(): void;
}

/**
 * Most bytes that may wait for a client of a pipe or a WebSocket before its connection is broken off. A single message may
 * be longer.
 */
export const MAX_UNSENT = 4_194_304;
