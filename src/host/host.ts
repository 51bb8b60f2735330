/** What a user hands in: a factory of servers. Anything with `connect(transport)` is a host. */
import type { JsonObject } from '../call/json.ts';
import { AwaitError } from '../error.ts';

/** An SDK server, version 1 or 2, high or low level, or anything else that speaks MCP over a transport. */
export interface HostServer {
  // biome-ignore lint/suspicious/noExplicitAny: the SDKs' transports differ in their types, not in their shape
  connect(transport: any): Promise<void>;
  close?(): Promise<void> | void;
}

/** What the factory is told of the client that the instance is for. */
export interface FactoryContext {
  /** `modern` for 2026-07-28 and its drafts, `legacy` for revisions with sessions. */
  readonly era: 'modern' | 'legacy';
  readonly revision: string;
  readonly authInfo?: JsonObject;
  readonly requestInfo?: Request;
  readonly clientCapabilities: JsonObject;
  readonly clientInfo: JsonObject;
  /** The workspace that was asked for, where the path has one (`workspace-sse`). */
  readonly workspace?: string;
}

export type HostProduct =
  | HostServer
  | { readonly server: HostServer; readonly cleanup?: (sessionId?: string) => void };

export type HostFactory = (context: FactoryContext) => HostProduct | Promise<HostProduct>;

/** A factory's product, taken apart. */
export interface Made {
  readonly server: HostServer;
  readonly cleanup?: (sessionId?: string) => void;
}

export async function make(factory: HostFactory, context: FactoryContext): Promise<Made> {
  let product: unknown;
  try {
    product = await factory(context);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new AwaitError('internal', `the factory could not make a server: ${reason}`, error);
  }
  if (isServer(product)) return { server: product };
  if (typeof product === 'object' && product !== null && 'server' in product && isServer(product.server)) {
    const { cleanup } = product as { cleanup?: unknown };
    return {
      server: product.server,
      ...(typeof cleanup === 'function' && { cleanup: cleanup as (sessionId?: string) => void }),
    };
  }
  throw new AwaitError(
    'bad-option',
    'the factory must return a server (an object with connect(transport), such as an McpServer), or { server, cleanup }',
  );
}

function isServer(value: unknown): value is HostServer {
  return (
    typeof value === 'object' && value !== null && 'connect' in value && typeof value.connect === 'function'
  );
}
