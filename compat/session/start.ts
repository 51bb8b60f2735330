/**
 * How a request becomes a call, on every revision: the call's binding, and the context of the request. A revision adds its
 * way: where asks and notifications go, and what ends the turn.
 */
import { sha256 } from '../../src/base/digest.ts';
import { CANCEL, defined, ELICIT, type JsonObject, objectOf } from '../../src/base/values.ts';
import type { Begun, NewCall } from '../../src/call/engine.ts';
import type { Client, OpenAsk } from '../../src/call/journal/entries.ts';
import type { Binding, Instance, Outcome, RequestContext } from '../../src/call/ports.ts';
import { bindingOf } from '../../src/call/run/binding.ts';
import { countedAddress } from '../../src/doors/http/address.ts';
import type { Inbound } from '../../src/doors/http/exchange.ts';
import { isRequestId } from '../../src/doors/http/reply.ts';
import type { Services } from '../../src/handler/services.ts';

/** The methods whose requests continue without their connection; others respond at once. */
export const CALLS: ReadonlySet<string> = new Set(['tools/call', 'prompts/get', 'resources/read']);

export function isCall({ method }: Pick<RpcRequest, 'method'>): boolean {
  return CALLS.has(method);
}

export interface RpcRequest {
  readonly id: string | number;
  readonly method: string;
  readonly params: JsonObject;
}

/** The client that a call is run for. */
export interface Caller {
  readonly client: Client;
  readonly principal: string | undefined;
  /** The revision of its tokens and takeovers. */
  readonly revision: string;
}

/** The facts of an HTTP request besides its message. */
export type Source = Pick<
  RequestContext,
  'authInfo' | 'request' | keyof Closing | 'address' | 'workspace' | 'idempotencyKey' | 'memory'
>;

/** What ends a connection early, where its client comes back for the rest. */
export type Closing = Pick<RequestContext, 'closeStream' | 'closeStanding'>;

/** How a revision talks to the client while a turn is run. */
export type Way = Omit<RequestContext, keyof Source | 'capabilities' | 'progressToken'>;

export type Say = (message: JsonObject) => void;

export interface Starting extends Omit<NewCall, 'method' | 'params' | 'requestId' | 'client' | 'binding'> {
  readonly request: RpcRequest;
  readonly caller: Caller;
  readonly source: Source;
  /** Params that the call is bound to. Default: all of them. */
  readonly bound?: JsonObject;
}

/**
 * Starts a call.
 * @param way gets a function for the call's id, which is known from the first message on
 * @param instance the one that it runs in; undefined for one of its own
 */
export function startCall(
  { engine }: Services,
  starting: Starting,
  way: (callId: () => string) => Way,
  instance?: Instance,
): Begun {
  const { request, caller, source, bound, ...how } = starting;
  const { method, params, id: requestId } = request;
  const binding = boundTo(caller, request, bound);
  const call: NewCall = { ...how, method, params, requestId, client: caller.client, binding };
  const started: Begun = engine.start(
    call,
    requestContextOf(
      caller,
      source,
      params,
      way(() => started.callId),
    ),
    instance,
  );
  return started;
}

/** The facts that a call's tokens and takeovers must match. */
export function boundTo(
  { revision, principal }: Caller,
  { method, params }: Pick<RpcRequest, 'method' | 'params'>,
  bound?: JsonObject,
): Binding {
  return bindingOf({ revision, method, params, principal }, bound);
}

/** @param params of the request that began the call, or of its retry: they have the progress token */
export function requestContextOf(
  { client }: Caller,
  source: Source,
  params: JsonObject,
  way: Way,
): RequestContext {
  const { progressToken } = objectOf(params._meta);
  return {
    ...source,
    capabilities: client.capabilities,
    ...(isRequestId(progressToken) && { progressToken }),
    ...way,
  };
}

/** The reply is read from the call's log. @param direct sends what is not in it to the connection */
export function loggedWay(direct: Say, beforeEnd: NonNullable<RequestContext['beforeEnd']>): Way {
  return { live: true, isLogged: true, notify: direct, beforeEnd };
}

/** An ask under an id that names its call, so that any process can receive the answer. */
export function askMessage(callId: string, ask: OpenAsk): JsonObject {
  const id = `${callId}/${ask.key}`;
  return { jsonrpc: '2.0', id, method: ask.method, ...paramsOf(ask, id) };
}

export function withdrawal(callId: string, key: string): JsonObject {
  return { jsonrpc: '2.0', method: CANCEL, params: { requestId: `${callId}/${key}` } };
}

export function sourceOf(inbound: Inbound, closing: Closing = {}): Source {
  const address = countedAddress(inbound);
  const idempotencyKey = inbound.header('idempotency-key');
  return {
    ...defined({ idempotencyKey, address, authInfo: inbound.authInfo, memory: inbound.memory }),
    request: () => inbound.request(),
    ...closing,
  };
}

/** URL mode needs an `elicitationId` where asks are requests of their own; the progress token is the ask's id. */
function paramsOf(ask: OpenAsk, id: string): { params?: JsonObject } {
  const { method } = ask;
  const params = ask.progress === undefined ? ask.params : listening(ask.params, id);
  if (Object.keys(params).length === 0) return {};
  if (method !== ELICIT || params.mode !== 'url') return { params };
  // The same wherever the ask is read from its call's log.
  const hex = Buffer.from(sha256(id), 'base64url').toString('hex').slice(0, 32);
  const elicitationId = hex.replace(/^(.{8})(.{4}).(.{3}).(.{3})(.{12})$/, '$1-$2-4$3-8$4-$5');
  return { params: { elicitationId, ...params } };
}

/** The params of an ask whose server listens to its progress. */
export function listening(params: JsonObject, progressToken: string): JsonObject {
  return { ...params, _meta: { ...objectOf(params._meta), progressToken } };
}

/** The response to a request; undefined when it was cancelled, and gets none. */
export function messageOf(
  { id }: { readonly id: string | number },
  outcome: Outcome,
): JsonObject | undefined {
  return outcome.kind === 'responded' ? { jsonrpc: '2.0', id, ...outcome.response } : undefined;
}
