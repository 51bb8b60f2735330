/**
 * The checks that SDK v2 makes before a request reaches its server, on every revision: a caller who lacks a scope that
 * a tool declares gets 403 and a `WWW-Authenticate` that names it, and the tool does not run.
 *
 * An edge makes the check before it starts or continues a call. `admit` repeats it on the call's own instance as the
 * call starts, so that every way into the engine is checked.
 */

import {
  bearerAuthChallengeResponse,
  getOAuthProtectedResourceMetadataUrl,
  OAuthError,
  OAuthErrorCode,
  requireScopes,
} from '@modelcontextprotocol/server';
import { defined, type JsonObject } from '../base/values.ts';
import type { CallRecord, Response as RpcResponse } from '../call/journal/entries.ts';
import type { Instance, RequestContext } from '../call/ports.ts';
import type { Inbound, Reply } from '../doors/http/exchange.ts';
import { replyOf } from '../doors/http/fetch.ts';
import { rpcError } from '../doors/http/reply.ts';
import { type Challenge, mirrorsArguments, readChallenge } from '../host/guards.ts';
import type { HostInstance } from '../host/instance.ts';
import type { Logger } from '../observe/logger.ts';

const INVALID = { code: -32600, message: 'Invalid Request' };
/** Names of tools that are remembered to mirror no argument in a header. */
const NAMES = 5_000;

/**
 * The guards seen on the servers of this process: if they have none, a request is spared the instance that checks it.
 */
export class KnownGuards {
  #wasOpened = false;
  #hasScopes = false;
  #hasSchemas = false;
  readonly #plain = new Set<string>();

  saw({ guards }: HostInstance): void {
    this.#wasOpened = true;
    if (guards === undefined) return;
    this.#hasSchemas = true;
    this.#hasScopes ||= guards.hasScopes;
  }

  /** The input schema of a tool, as its server's SDK looks at it. */
  schemaOf({ guards }: HostInstance, tool: string): JsonObject | undefined {
    const schema = guards?.inputSchema(tool);
    if (schema !== undefined && !mirrorsArguments(schema) && this.#plain.size < NAMES) this.#plain.add(tool);
    return schema;
  }

  /** Whether a request may be refused by a check that only an instance can make. */
  mayRefuse(method: string, target: unknown): boolean {
    if (!this.#wasOpened || this.#hasScopes) return true;
    return this.#hasSchemas && method === 'tools/call' && !this.#plain.has(String(target));
  }

  /** Whether a tool's arguments are mirrored in headers. */
  mirrors(instance: HostInstance, tool: string): boolean {
    return !this.#plain.has(tool) && mirrorsArguments(this.schemaOf(instance, tool));
  }

  /** Tools changed. */
  forget(): void {
    this.#plain.clear();
  }
}

/** An instance's refusal of a request; its SDK checks the shape of the returned value. */
export function challengeOf(instance: HostInstance, request: JsonObject, inbound: Inbound): unknown {
  const { piped, authInfo } = inbound;
  // A client on stdio has no credentials whose scopes could be checked.
  if (piped && authInfo === undefined) return undefined;
  return instance.guards?.challenge({ request, ...defined({ authInfo }) });
}

/** Whether a server has nothing against a request; false also where it fails to say. */
export async function passes(
  instance: HostInstance,
  request: JsonObject,
  inbound: Inbound,
): Promise<boolean> {
  try {
    return (await challengeOf(instance, request, inbound)) === undefined;
  } catch {
    return false;
  }
}

/**
 * Checks the requests of a session's POST.
 * @returns the SDK's refusal where its caller lacks a scope
 */
export async function refuseScopes(
  { settings }: { readonly settings: { readonly logger: Logger } },
  opened: () => Promise<HostInstance>,
  calls: readonly { readonly method: string; readonly params: JsonObject }[],
  inbound: Inbound,
): Promise<Reply | undefined> {
  if (calls.length === 0) return undefined;
  const instance = await opened();
  if (instance.guards === undefined) return undefined;
  try {
    for (const call of calls) {
      const challenge = readChallenge(await challengeOf(instance, { ...call }, inbound));
      if (challenge !== undefined) return await challengeReply(challenge, inbound.authInfo ?? {});
    }
    return undefined;
  } catch (error) {
    settings.logger.error('the scopes of a request could not be checked', { error });
    return rpcError(500, -32603, 'Internal server error');
  }
}

async function challengeReply({ scopes, errorDescription }: Challenge, authInfo: JsonObject): Promise<Reply> {
  const [first, ...more] = scopes;
  // Throws if the list is empty, or holds an invalid scope.
  requireScopes(first ?? '', ...more);
  const { resourceMetadataUrl: given, resource } = authInfo;
  const isHttp = resource instanceof URL && ['http:', 'https:'].includes(resource.protocol);
  const found = isHttp ? getOAuthProtectedResourceMetadataUrl(resource) : undefined;
  const resourceMetadataUrl = typeof given === 'string' ? given : found;
  const error = new OAuthError(OAuthErrorCode.InsufficientScope, errorDescription ?? 'Insufficient scope');
  const response = bearerAuthChallengeResponse(error, {
    requiredScopes: [...scopes],
    ...defined({ resourceMetadataUrl }),
  });
  return replyOf(response);
}

/**
 * Asks the instance that a call is about to run in.
 * @returns the error for a call that an edge let through because it had not seen that this server declares scopes
 */
export function admit(
  instance: Instance,
  { id, method, params }: CallRecord,
  { authInfo, request, isRefused }: RequestContext,
): Promise<RpcResponse | undefined> | undefined {
  if (isRefused !== undefined) {
    const refused = isRefused(instance);
    // Its client has its reply already.
    return refused === false
      ? undefined
      : Promise.resolve(refused).then((is) => (is ? { error: INVALID } : undefined));
  }
  const { guards } = instance as HostInstance;
  if (request === undefined || guards?.hasScopes !== true) return undefined;
  const message = { jsonrpc: '2.0', id, method, params };
  const context = { request: message, ...defined({ authInfo }) };
  return Promise.resolve(guards.challenge(context)).then((asked) => {
    const challenge = readChallenge(asked);
    if (challenge === undefined) return undefined;
    const { errorDescription = 'Insufficient scope', scopes } = challenge;
    return { error: { code: -32600, message: errorDescription, data: { scopes } } };
  });
}
