/** What clients with sessions send, before it is looked at any closer. */
import { isObject, type JsonObject } from '../../src/call/json.ts';
import { isRequestId } from '../../src/http/reply.ts';
import type { RpcRequest } from './session.ts';

/** Whether an `Accept` header takes a media type. */
export function accepts(accept: string, type: string): boolean {
  const [group] = type.split('/');
  return accept.includes(type) || accept.includes('*/*') || accept.includes(`${group}/*`);
}

export function isMessage(value: unknown): value is JsonObject {
  if (!isObject(value) || value.jsonrpc !== '2.0') return false;
  if (typeof value.method === 'string')
    return hasTakenParams(value) && (value.id === undefined || isRequestId(value.id));
  return isRequestId(value.id) && ('result' in value || 'error' in value);
}

export function isRequest(message: JsonObject): message is JsonObject & RpcRequest {
  if (typeof message.method !== 'string' || !isRequestId(message.id)) return false;
  message.params ??= {};
  return true;
}

function hasTakenParams({ params }: JsonObject): boolean {
  if (params === undefined) return true;
  if (!isObject(params)) return false;
  const { _meta: meta } = params;
  return (
    meta === undefined ||
    (isObject(meta) && (meta.progressToken === undefined || isRequestId(meta.progressToken)))
  );
}
