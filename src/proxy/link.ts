/** A connection to a server that runs elsewhere: a child process over stdio, or a remote one over HTTP. */

import { isObject, type JsonObject } from '../base/json.ts';

export interface PeerLink {
  /** Sends one JSON-RPC message. A message that cannot be delivered ends the link; it never throws. */
  send(message: JsonObject): void;
  /** Ends the server: first by closing its input, by force after `grace`. Resolves once it has ended. */
  close(): Promise<void>;
  /** Ends the server at once. @param reason passed to `ended`, if this process is the one that ends it */
  kill(reason?: string): void;
  /** Whether another process has the server, and grants its turns. */
  readonly elsewhere?: boolean;
}

/** Why a server has ended, beside the reason in words. */
export interface Ended {
  /** It was ended so that its call continues in another. */
  readonly planned?: boolean;
  /** Only the process that had it is known to be gone: another server can be started at once. */
  readonly elsewhere?: boolean;
}

export interface LinkEvents {
  /** One JSON-RPC message of the server. */
  message(message: JsonObject): void;
  /** The server has ended, for the reason given. Called once. */
  ended(reason: string, how?: Ended): void;
}

/** Opens a connection to a new server; failures are reported by `ended`. */
export type OpenLink = (events: LinkEvents) => PeerLink;

export interface PeerLogger {
  debug(message: string, detail?: JsonObject): void;
  info(message: string, detail?: JsonObject): void;
  warn(message: string, detail?: JsonObject): void;
}

/** Whether a value is one JSON-RPC 2.0 message. */
export function isRpcMessage(value: unknown): value is JsonObject {
  if (!isObject(value) || value.jsonrpc !== '2.0') return false;
  return typeof value.method === 'string' || 'result' in value || 'error' in value;
}
