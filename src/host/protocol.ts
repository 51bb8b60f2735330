/**
 * Finds the SDK's `Protocol` behind a host by its shape: a high-level server keeps it at `.server`, other frameworks
 * deeper (mongodb-mcp-server at `.mcpServer.server`).
 */
import type { JsonObject } from '../base/values.ts';

/** An SDK server, version 1 or 2, high or low level, or anything else that speaks MCP over a transport. */
export interface HostServer {
  // biome-ignore lint/suspicious/noExplicitAny: the SDKs' transports differ in their types, not in their shape
  connect(transport: any): Promise<void>;
  close?(): Promise<void> | void;
  /** Whether it may return its asks (`input_required`), and is called again with the answers. */
  readonly takesRounds?: boolean;
}

interface RequestLike {
  method: string;
  params?: JsonObject;
}

export type RequestMethod = (request: RequestLike, ...rest: unknown[]) => Promise<unknown>;
export type Handler = (...args: unknown[]) => unknown;

/** Serves `inputRequired` tools to clients of the revisions with sessions (SDK v2). */
export interface LegacyLoop {
  fulfill(
    method: string,
    handler: Handler,
    request: unknown,
    context: unknown,
    first: unknown,
  ): Promise<unknown>;
}

/** The low-level server of either SDK, as far as it is touched. */
export interface LowLevel {
  request: RequestMethod;
  notification: (notification: RequestLike, ...rest: unknown[]) => Promise<void>;
  readonly transport?: unknown;
  assertCapabilityForMethod?(method: string): void;
  oninitialized?: (() => unknown) | undefined;
  onclose?: (() => unknown) | undefined;
  onerror?: ((error: Error) => unknown) | undefined;
  /** Version 2 alone has it. */
  buildContext?(context: JsonObject, transportInfo?: unknown): JsonObject;
  /** Listeners to progress, by the token of their request. */
  readonly _progressHandlers?: Map<number, (progress: unknown) => void>;
  readonly _requestHandlers: ReadonlyMap<string, unknown>;
  readonly _requestHandlerAbortControllers?: Map<string | number, AbortController>;
  _options?: { enforceStrictCapabilities?: boolean };
  _legacyInputRequiredShim?(): LegacyLoop;
}

/** How deep a server may be inside of its host. */
const DEPTH = 3;
const LOOKED_AT = 300;

/**
 * The low-level server of a host; undefined if the host is not an SDK server, or hides it (in a closure or a private
 * field).
 * @param connectedTo choose the server that is connected to this transport
 */
export function lowLevelOf(host: HostServer, connectedTo?: unknown): LowLevel | undefined {
  const isIt = (candidate: unknown): candidate is LowLevel =>
    isLowLevel(candidate) && (connectedTo === undefined || candidate.transport === connectedTo);
  if (isIt(host)) return host;
  const { server } = host as { server?: unknown };
  if (isIt(server)) return server;
  const seen = new Set<object>([host]);
  let level: readonly object[] = [host];
  for (let depth = 0; depth <= DEPTH; depth += 1) {
    const found = level.find(isIt);
    if (found !== undefined) return found;
    level = level.flatMap((owner) => membersOf(owner, seen));
  }
  return undefined;
}

/** The objects that an object owns, and its getter `server`; other getters are not called. */
function membersOf(owner: object, seen: Set<object>): object[] {
  const owned = Object.values(Object.getOwnPropertyDescriptors(owner)).map(({ value }): unknown => value);
  const members: object[] = [];
  for (const value of ['server' in owner ? Reflect.get(owner, 'server') : undefined, ...owned]) {
    if (typeof value !== 'object' || value === null || seen.has(value) || seen.size >= LOOKED_AT) continue;
    seen.add(value);
    members.push(value);
  }
  return members;
}

/** A `Protocol` of either SDK, and of these a server: a client is one too. */
function isLowLevel(value: unknown): value is LowLevel {
  if (typeof value !== 'object' || value === null) return false;
  const { request, notification, setRequestHandler, getClientCapabilities, _requestHandlers } =
    value as JsonObject;
  return (
    typeof request === 'function' &&
    typeof notification === 'function' &&
    typeof setRequestHandler === 'function' &&
    typeof getClientCapabilities === 'function' &&
    _requestHandlers instanceof Map
  );
}
