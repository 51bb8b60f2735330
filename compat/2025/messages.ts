/** What clients with sessions send, before it is looked at any closer. */
import { isObject, type JsonObject } from '../../src/call/json.ts';
import { isMeta, isRpcError } from '../../src/call/meta.ts';
import { isRequestId } from '../../src/http/reply.ts';
import type { RpcRequest } from './session.ts';

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

/** One or the other; what a result holds is checked by who asked for it. */
function isTakenResponse({ result, error }: JsonObject): boolean {
  if (error !== undefined) return result === undefined && isRpcError(error);
  return isObject(result) && isMeta(result._meta);
}
