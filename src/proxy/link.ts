/** A connection to a server that runs elsewhere: a child process over stdio, or a remote one over HTTP. */

import { isObject, type JsonObject, memoryOf } from '../base/values.ts';

/** Memory of what a server may declare of itself, in bytes: each session keeps it. */
export const MOST_DECLARED = 65_536;

/** Why a server is ended where the budget of what is held of servers is full. */
export const FULL = 'the memory for what servers sent is full';

/** About how many bytes of memory a message takes: at most 64 MiB, also where a number in it is infinite. */
export function heldMemory(value: unknown): number {
  return Math.min(memoryOf(value), 67_108_864);
}

export interface PeerLink {
  /** Sends one JSON-RPC message. A message that cannot be delivered ends the link; it never throws. */
  send(message: JsonObject): void;
  /** Ends the server: first by closing its input, by force after `grace`. Resolves once it has ended. */
  close(): Promise<void>;
  /** Ends the server at once. @param reason passed to `ended`, if this process is the one that ends it */
  kill(reason?: string): void;
  /** Whether another process has the server, and grants its turns. */
  readonly elsewhere?: boolean;
  /** Whether the server's requests are apart from each other: none has to wait for another to end. */
  readonly isConcurrent?: boolean;
}

/** Why a server has ended, beside the reason in words. */
export interface Ended {
  /** It was ended so that its call continues in another. */
  readonly planned?: boolean;
  /** Only the process that had it is known to be gone: another server can be started at once. */
  readonly elsewhere?: boolean;
  /** It certainly has not taken the request. */
  readonly untaken?: boolean;
}

export interface LinkEvents {
  /** One JSON-RPC message of the server. @param about the request in whose reply it came, where that is known */
  message(message: JsonObject, about?: string | number): void;
  /** The server has ended, for the reason given. Called once. */
  ended(reason: string, how?: Ended): void;
  /** The server may or may not have done one request: its reply was lost. The link goes on. */
  lost?(id: string | number, reason: string, how?: Ended): void;
}

/** Opens a connection to a new server; failures are reported by `ended`. */
export type OpenLink = (events: LinkEvents) => PeerLink;

export interface PeerLogger {
  debug(message: string, detail?: JsonObject): void;
  info(message: string, detail?: JsonObject): void;
  warn(message: string, detail?: JsonObject): void;
}

/** Longest id of a request: each response repeats it, and may wait. */
const LONGEST_ID = 1_024;

/** Whether a value is one JSON-RPC 2.0 message. */
export function isRpcMessage(value: unknown): value is JsonObject {
  if (!isObject(value) || value.jsonrpc !== '2.0') return false;
  if (typeof value.id === 'string' && value.id.length > LONGEST_ID) return false;
  return typeof value.method === 'string' || 'result' in value || 'error' in value;
}

/** Why something failed, in a line: `fetch` says it in the cause. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { cause, message, code }: Error & { code?: unknown } = error;
  const status = typeof code === 'number' ? ` (${code})` : '';
  return cause instanceof Error ? `${message}: ${cause.message}` : `${message}${status}`;
}
