/** The user's host: a factory of servers, each with `connect(transport)`. */

import { AwaitError, defined, type JsonObject, LoopTurns, optionError } from '../base/values.ts';
import type { Client } from '../call/journal/entries.ts';
import type { HostServer } from './protocol.ts';
import { type ServerOptions, serverOptions } from './validator.ts';

export type { HostServer } from './protocol.ts';

/** The client that a server instance is made for, as the factory sees it. */
export interface FactoryContext {
  /** `modern` for 2026-07-28 and its drafts, `legacy` for revisions with sessions. */
  readonly era: 'modern' | 'legacy';
  readonly revision: string;
  readonly authInfo?: JsonObject;
  readonly requestInfo?: Request;
  readonly clientCapabilities: JsonObject;
  readonly clientInfo: JsonObject;
  /** The caller's stable subject; absent for one that is not known. */
  readonly principal?: string;
  /** The session that the instance is for, where there are sessions. */
  readonly sessionId?: string;
  /** Whether the request came from this machine directly, without a proxy. */
  readonly isLocal?: boolean;
  /**
   * For the server's constructor, `new McpServer(info, serverOptions)` of either SDK: what all instances can share, so
   * that making one takes less time.
   */
  readonly serverOptions: ServerOptions;
  /** The workspace that was asked for, where the path has one (`workspace-sse`). */
  readonly workspace?: string;
}

/** The facts from which a factory's context is made. */
export interface ContextParts {
  readonly era: FactoryContext['era'];
  readonly revision: string;
  readonly client: Client;
  readonly authInfo?: JsonObject | undefined;
  readonly request?: (() => Request) | undefined;
  readonly workspace?: string | undefined;
  readonly principal?: string | undefined;
  readonly sessionId?: string | undefined;
  readonly isLocal?: boolean | undefined;
}

export function contextOf({ era, revision, client, request, ...parts }: ContextParts): FactoryContext {
  const context: FactoryContext = {
    era,
    revision,
    clientCapabilities: client.capabilities,
    clientInfo: client.info,
    serverOptions: serverOptions(),
    ...defined({ ...parts, isLocal: parts.isLocal || undefined }),
  };
  if (request === undefined) return context;
  // Made when the factory looks at it.
  return Object.defineProperty(context, 'requestInfo', { get: request, enumerable: true });
}

/** A factory's product: a server, and optionally a function that is called when the server is no longer needed. */
export type HostProduct =
  | HostServer
  | { readonly server: HostServer; readonly cleanup?: (sessionId?: string) => void };

/** Makes a server for one session or call, and is called for each. */
export type HostFactory = (context: FactoryContext) => HostProduct | Promise<HostProduct>;

/** A factory's product, taken apart. */
export interface Made {
  readonly server: HostServer;
  readonly cleanup?: (sessionId?: string) => void;
}

/** For servers that were made elsewhere and are ready at once: each goes on in a turn of its own. */
const turns = new LoopTurns();

/** Servers that a factory returned before. */
const returned = new WeakSet<HostServer>();

/**
 * Calls a factory.
 * @throws AwaitError with the factory's own code or `internal` if it throws, `bad-option` if it returns anything but a
 * new server
 */
export async function make(factory: HostFactory, context: FactoryContext): Promise<Made> {
  let product: unknown;
  try {
    const making = factory(context);
    product = await making;
    if (making instanceof Promise) await turns.next(1, context.principal);
  } catch (error) {
    const { code, message } = AwaitError.from(error);
    throw new AwaitError(code, `the factory could not make a server: ${message}`, error);
  }
  const made = takeApart(product);
  if (made === undefined) {
    throw optionError('the factory must return a server, or { server, cleanup }');
  }
  if (returned.has(made.server)) {
    throw optionError('the factory must make a new server each time: () => buildServer()');
  }
  returned.add(made.server);
  return made;
}

function takeApart(product: unknown): Made | undefined {
  if (isServer(product)) return { server: product };
  if (typeof product !== 'object' || product === null || !('server' in product)) return undefined;
  const { server } = product;
  if (!isServer(server)) return undefined;
  const { cleanup } = product as { cleanup?: unknown };
  return {
    server,
    ...(typeof cleanup === 'function' && { cleanup: cleanup as (sessionId?: string) => void }),
  };
}

function isServer(value: unknown): value is HostServer {
  return (
    typeof value === 'object' && value !== null && 'connect' in value && typeof value.connect === 'function'
  );
}
