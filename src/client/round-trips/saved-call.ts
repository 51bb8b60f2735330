/** A call that can be resumed later, by another client: as JSON, for a file or a table. */
import { isObject, type JsonObject, objectOf } from '../../base/values.ts';
import type { ClientRequest } from '../message.ts';

/** The `_meta` entry with a saved call, which the request resumes instead of beginning a new one. */
const RESUME = 'mcp-await/resume';

/** The server's asks, by their keys. */
export type InputRequests = Readonly<
  Record<string, { readonly method: string; readonly params?: JsonObject | undefined }>
>;

/** The state of a call. It holds the user's answers and data, and is as secret as the call itself. */
export interface SavedCall {
  /** The same in each state of one call: the key to store it under. */
  readonly call: string;
  readonly revision: string;
  readonly method: string;
  /** As the client sent them, without the entries of `_meta` that belong to one request. */
  readonly params: JsonObject;
  /** Byte for byte as the server sent it; absent where it sent none. */
  readonly requestState?: string;
  readonly inputRequests?: InputRequests;
  /** The task that the call has become. */
  readonly taskId?: string;
}

/**
 * The params that resume a call. The client's handlers get the asks that were open.
 *
 * @example
 * import type { Client } from '@modelcontextprotocol/sdk/client/index.js';
 * import { resuming, type SavedCall } from 'mcp-await/client';
 *
 * export const resume = (client: Client, saved: SavedCall) => client.callTool(resuming(saved));
 */
export function resuming<Params extends JsonObject = { name: string }>(saved: SavedCall): Params {
  const { params } = saved;
  return { ...params, _meta: { ...objectOf(params._meta), [RESUME]: saved } } as unknown as Params;
}

/** A request without the members that are not for the server, and the saved call in it, whose params count. */
export function takeSaved(request: ClientRequest): { request: ClientRequest; saved?: unknown } {
  const meta: JsonObject | undefined = request.params?._meta;
  if (meta === undefined || !Object.hasOwn(meta, RESUME)) return { request };
  const { [RESUME]: saved, ...own } = meta;
  const params = isSavedCall(saved) ? saved.params : request.params;
  const kept = isObject(params?._meta) ? params._meta : {};
  const { [RESUME]: _saved, ...rest } = { ...kept, ...own };
  return { request: { ...request, params: { ...params, _meta: rest } }, saved };
}

/** The part of `_meta` that applies to more than one request: a progress token belongs to one. */
export function lasting({ params = {} }: ClientRequest): JsonObject {
  const { _meta, ...rest } = params as JsonObject;
  if (!isObject(_meta)) return rest;
  const { progressToken: _token, ...meta } = _meta;
  return Object.keys(meta).length > 0 ? { ...rest, _meta: meta } : rest;
}

export function isSavedCall(value: unknown): value is SavedCall {
  if (!isObject(value)) return false;
  const { call, revision, method, params, requestState, inputRequests, taskId } = value;
  return (
    [call, revision, method].every((member) => typeof member === 'string') &&
    isObject(params) &&
    [requestState, taskId].every((member) => member === undefined || typeof member === 'string') &&
    (inputRequests === undefined || isInputRequests(inputRequests))
  );
}

export function isInputRequests(value: unknown): value is InputRequests {
  if (!isObject(value)) return false;
  return Object.values(value).every(
    (ask) =>
      isObject(ask) && typeof ask.method === 'string' && (ask.params === undefined || isObject(ask.params)),
  );
}
