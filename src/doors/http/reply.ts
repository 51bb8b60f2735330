/** Replies in JSON-RPC, as all revisions over HTTP write them. */

import { defined, type JsonObject } from '../../base/values.ts';
import { INTERNAL } from '../../call/run/wire-error.ts';
import type { Reply } from './exchange.ts';

const JSON_HEADERS = { 'content-type': 'application/json' };

export const SSE_HEADERS = {
  'content-type': 'text/event-stream',
  'cache-control': 'no-cache, no-transform',
  'x-accel-buffering': 'no',
};

/** A message as text. Where a tool's result cannot be written as JSON, its client gets an internal error instead. */
export function messageText(message: JsonObject): string {
  try {
    return JSON.stringify(message);
  } catch (error) {
    if (message.id === undefined || message.method !== undefined) throw error;
    return JSON.stringify({ jsonrpc: '2.0', id: message.id, error: INTERNAL });
  }
}

export function json(body: JsonObject, status = 200, headers: Readonly<Record<string, string>> = {}): Reply {
  return { status, headers: { ...JSON_HEADERS, ...headers }, body: messageText(body) };
}

/** The reply to a body that is neither a message nor an array of messages. */
export function noMessage(body: unknown): Reply {
  return rpcError(400, -32600, 'Invalid Request: the body is no JSON-RPC message', idOf(body));
}

/** The reply to a client that takes no stream of events. */
export function noStream(): Reply {
  return rpcError(406, -32000, 'Not Acceptable: Client must accept text/event-stream');
}

export function rpcError(
  status: number,
  code: number,
  message: string,
  id: unknown = null,
  data?: unknown,
): Reply {
  return json({ jsonrpc: '2.0', id, error: { code, message, ...defined({ data }) } }, status);
}

export function empty(status: number, headers: Readonly<Record<string, string>> = {}): Reply {
  return { status, headers };
}

/** The id to answer with, of a body that may be anything. */
export function idOf(body: unknown): string | number | null {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) return null;
  const { id, method } = body as JsonObject;
  return typeof method === 'string' && (typeof id === 'number' || isRequestId(id)) ? id : null;
}

/** Longest id, in characters: one is kept for each request, and sent with each notification of its progress. */
const LONGEST_ID = 1_024;

/**
 * Whether the SDKs' schemas accept a value as a request id or progress token. They drop other messages without an
 * answer.
 */
export function isRequestId(value: unknown): value is string | number {
  return typeof value === 'string' ? value.length <= LONGEST_ID : Number.isSafeInteger(value);
}

// --- the messages of one body, bounded before anything is made of them: 2.9 MB hold 40,000 calls ---

export const NO_BATCH = 'Invalid Request: this revision takes one JSON-RPC message in a body, and no array';

/** The messages of a body, which may be anything. */
export function messagesOf(body: unknown): readonly unknown[] {
  return Array.isArray(body) ? body : [body];
}

/** The refusal of a body that holds too many messages. */
export function refuseLong(body: unknown, most: number): Reply | undefined {
  if (!Array.isArray(body) || body.length <= most) return undefined;
  return rpcError(
    400,
    -32600,
    `Invalid Request: a body holds at most ${most} messages, and this one ${body.length}`,
  );
}
