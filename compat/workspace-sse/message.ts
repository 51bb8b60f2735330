/** Reads a client's POST: one JSON-RPC 2.0 message, or the error for an invalid one. */
import { isObject, type JsonObject } from '../../src/base/values.ts';
import { isMeta, isRpcError } from '../../src/call/ask/meta.ts';
import { isRequestId } from '../../src/doors/http/reply.ts';

export interface WorkspaceRequest {
  readonly id: string | number;
  readonly method: string;
  readonly params: JsonObject;
}

export type Posted =
  | { readonly kind: 'request'; readonly request: WorkspaceRequest }
  | { readonly kind: 'notification'; readonly method: string; readonly params: JsonObject }
  /** The client's answer to an ask. */
  | { readonly kind: 'response'; readonly message: JsonObject }
  | { readonly kind: 'invalid'; readonly code: -32600 | -32602; readonly message: string };

/** Which of its params a method cannot do without, and is a string: SDK v1 takes its absence for an error of its own. */
const NEEDED: Readonly<Record<string, string>> = {
  'tools/call': 'name',
  'prompts/get': 'name',
  'resources/read': 'uri',
  'resources/subscribe': 'uri',
  'resources/unsubscribe': 'uri',
  'logging/setLevel': 'level',
};

const TAKEN_META =
  '_meta must be an object; in it, progressToken is an id and related-task an object with a taskId';

export function readMessage(body: unknown): Posted {
  if (!isObject(body)) return invalid('the body must be one JSON-RPC message, an object');
  if (body.jsonrpc !== '2.0') return invalid('jsonrpc must be "2.0"');
  if (body.id === null) return invalid('id must not be null');
  if (body.id !== undefined && !isRequestId(body.id)) return invalid('id must be a string or a whole number');
  const { id, method } = body;
  if (method === undefined) return readResponse(body);
  if (typeof method !== 'string') return invalid('method must be a string');
  if ('result' in body || 'error' in body)
    return invalid('a message with a method has no result and no error');
  const { params = {} } = body;
  if (!isObject(params)) return badParams('params must be an object');
  if (!isMeta(params._meta)) return badParams(TAKEN_META);
  if (id === undefined) return { kind: 'notification', method, params };
  const needed = Object.hasOwn(NEEDED, method) ? NEEDED[method] : undefined;
  if (needed !== undefined && typeof params[needed] !== 'string') {
    return badParams(`${method} needs ${needed}, a string`);
  }
  if (params.arguments !== undefined && !isObject(params.arguments)) {
    return badParams('arguments must be an object');
  }
  return { kind: 'request', request: { id: id as string | number, method, params } };
}

function readResponse(body: JsonObject): Posted {
  const { error, result } = body;
  if ('result' in body && 'error' in body) return invalid('a response has a result or an error, never both');
  if (!('result' in body || 'error' in body)) return invalid('method, result or error is missing');
  if (body.id === undefined) return invalid('a response echoes the id of what it answers');
  if ('result' in body && !isObject(result)) return invalid('result must be an object');
  if (isObject(result) && !isMeta(result._meta)) return invalid(TAKEN_META);
  if ('error' in body && !isRpcError(error))
    return invalid('error must have a whole number as code, and a message');
  return { kind: 'response', message: body };
}

function invalid(what: string): Posted {
  return { kind: 'invalid', code: -32600, message: `Invalid Request: ${what}` };
}

function badParams(what: string): Posted {
  return { kind: 'invalid', code: -32602, message: `Invalid params: ${what}` };
}
