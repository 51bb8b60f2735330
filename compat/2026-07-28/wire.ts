/**
 * The released revision's wire form: reads a request, and writes the outcome of a call.
 * https://modelcontextprotocol.io/specification/2026-07-28
 */
import {
  CLIENT_CAPABILITIES_META_KEY,
  CLIENT_INFO_META_KEY,
  LOG_LEVEL_META_KEY,
  SERVER_INFO_META_KEY,
} from '@modelcontextprotocol/server';
import { withoutIcons } from '../../src/base/description.ts';
import { defined, type JsonObject, objectOf } from '../../src/base/values.ts';
import { URLS_NEEDED } from '../../src/call/ask/url-elicitation.ts';
import type { Client, OpenAsk, RpcError } from '../../src/call/journal/entries.ts';
import type { Binding } from '../../src/call/ports.ts';
import { bindingOf } from '../../src/call/run/binding.ts';
import { isRequestId } from '../../src/doors/http/reply.ts';
import { LATEST } from '../../src/host/spoken.ts';

export const REVISION = '2026-07-28';

/** The requests that may be answered with `input_required`. */
export const ASKING: ReadonlySet<string> = new Set(['tools/call', 'prompts/get', 'resources/read']);

const LEVELS = ['debug', 'info', 'notice', 'warning', 'error', 'critical', 'alert', 'emergency'];

/** A request that was found to be this revision's. */
export interface ModernRequest {
  readonly id: string | number;
  readonly method: string;
  readonly params: JsonObject;
}

export interface Read {
  /** The params as the server gets them: without the envelope, the answers and the state. */
  readonly params: JsonObject;
  readonly client: Client;
  readonly binding: Binding;
  readonly progressToken?: string | number;
  /** The least severe log messages this request wants; none when it names no level. */
  readonly logLevel?: string;
  readonly requestState?: unknown;
  readonly inputResponses?: unknown;
}

export function readRequest(request: ModernRequest, principal: string | undefined): Read {
  // `task`, a parameter of 2025's clients, has no meaning on this revision.
  const { _meta, inputResponses, requestState, task, ...rest } = request.params;
  const envelope = objectOf(_meta);
  const meta = Object.fromEntries(Object.entries(envelope).filter(([key]) => !ENVELOPE.has(key)));
  const { progressToken } = meta;
  const logLevel = envelope[LOG_LEVEL_META_KEY];
  return {
    params: Object.keys(meta).length > 0 ? { ...rest, _meta: meta } : rest,
    client: {
      capabilities: objectOf(envelope[CLIENT_CAPABILITIES_META_KEY]),
      info: withoutIcons(objectOf(envelope[CLIENT_INFO_META_KEY])),
      protocolVersion: LATEST,
    },
    binding: bindingOf({ revision: REVISION, method: request.method, params: rest, principal }),
    ...(isRequestId(progressToken) && { progressToken }),
    ...(typeof logLevel === 'string' && { logLevel }),
    ...defined({ requestState, inputResponses }),
  };
}

const ENVELOPE: ReadonlySet<string> = new Set([
  CLIENT_CAPABILITIES_META_KEY,
  CLIENT_INFO_META_KEY,
  LOG_LEVEL_META_KEY,
  'io.modelcontextprotocol/protocolVersion',
]);

/** The result of a request whose call is suspended. */
export function inputRequired(asks: readonly OpenAsk[], requestState: string): JsonObject {
  // A call that was given up asks nothing, and its client comes back at once.
  const inputRequests = Object.fromEntries(asks.map((ask) => [ask.name ?? ask.key, askOnWire(ask)]));
  return { resultType: 'input_required', ...(asks.length > 0 && { inputRequests }), requestState };
}

/** This revision has no `elicitationId`, and no tasks inside of asks. */
export function askOnWire({ method, params }: OpenAsk): JsonObject {
  const { elicitationId, task, ...rest } = params;
  return Object.keys(rest).length === 0 ? { method } : { method, params: rest };
}

/** A server's own result, with the members that this revision adds to every result. */
export function complete(method: string, result: JsonObject, serverInfo: unknown): JsonObject {
  const { ttlMs = 0, cacheScope = 'private' } = result;
  const cached = method === 'resources/read' && { ttlMs, cacheScope };
  return stamp({ ...result, resultType: 'complete', ...cached }, serverInfo);
}

export function stamp(result: JsonObject, serverInfo: unknown): JsonObject {
  if (serverInfo === undefined) return result;
  return { ...result, _meta: { [SERVER_INFO_META_KEY]: serverInfo, ...objectOf(result._meta) } };
}

/** Converts errors to this revision's form: an unknown resource is -32602, with its URI (SEP-2164). */
export function errorOnWire(error: RpcError, request: ModernRequest): RpcError {
  if (error.code === -32042) return URLS_NEEDED;
  const missing = request.method === 'resources/read' && (error.code === -32002 || error.code === -32602);
  if (!missing) return error.code === -32002 ? { ...error, code: -32602 } : error;
  return { ...error, code: -32602, data: error.data ?? { uri: request.params.uri } };
}

/** Members of 2025's results that this revision does not have; members of no revision are the author's own. */
const OLDER: ReadonlySet<string> = new Set([
  'notifications/elicitation/complete',
  'notifications/tasks/status',
]);

/** Whether a notification may go out on a request's stream, and is loud enough for it. */
export function wanted(notification: JsonObject, logLevel: string | undefined): boolean {
  const method = String(notification.method);
  if (method !== 'notifications/message') return !OLDER.has(method);
  const { level } = objectOf(notification.params);
  return logLevel !== undefined && LEVELS.indexOf(String(level)) >= LEVELS.indexOf(logLevel);
}
