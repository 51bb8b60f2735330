/** First checks of the messages of clients with sessions. */
import { isObject, type JsonObject } from '../../src/base/values.ts';
import { isMeta, isRpcError } from '../../src/call/ask/meta.ts';
import type { Reply } from '../../src/doors/http/exchange.ts';
import { idOf, isRequestId, messagesOf, rpcError } from '../../src/doors/http/reply.ts';
import type { Session } from './session.ts';
import type { RpcRequest } from './start.ts';

/** Arrays of messages came with one revision, and went with the next. */
export function takesBatches(session: Session): boolean {
  return session.isKnown && session.can('batches');
}

/** Refuses a body that is neither a message nor an array of messages. */
export function refuseMessages(body: unknown): Reply | undefined {
  const messages = messagesOf(body);
  if (messages.length > 0 && messages.every(isMessage)) return undefined;
  return rpcError(400, -32600, 'Invalid Request: the body is no JSON-RPC message', idOf(body));
}

/** Whether an `Accept` header takes a media type. */
export function accepts(accept: string, type: string): boolean {
  const [group] = type.split('/');
  const taken = accept.toLowerCase();
  return taken.includes(type) || taken.includes('*/*') || taken.includes(`${group}/*`);
}

export function isMessage(value: unknown): value is JsonObject {
  if (!isObject(value) || value.jsonrpc !== '2.0') return false;
  const isResponse = 'result' in value || 'error' in value;
  if (typeof value.method === 'string')
    return !isResponse && hasTakenParams(value) && (value.id === undefined || isRequestId(value.id));
  return isRequestId(value.id) && isResponse && isTakenResponse(value);
}

export function isRequest(message: JsonObject): message is JsonObject & RpcRequest {
  if (typeof message.method !== 'string' || !isRequestId(message.id)) return false;
  message.params ??= {};
  return true;
}

function hasTakenParams({ params }: JsonObject): boolean {
  return params === undefined || (isObject(params) && isMeta(params._meta));
}

/** A response has a result or an error, not both; the code that asked checks the result's content. */
function isTakenResponse({ result, error }: JsonObject): boolean {
  if (error !== undefined) return result === undefined && isRpcError(error);
  return isObject(result) && isMeta(result._meta);
}
