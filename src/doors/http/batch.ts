/**
 * JSON-RPC messages of one body. Arrays of messages are of 2025-03-26 alone, arrays of answers of SEP-1858; both are
 * bounded before anything is made of them: 2.9 MB hold 40,000 calls.
 */
import type { Reply } from './exchange.ts';
import { rpcError } from './reply.ts';

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
