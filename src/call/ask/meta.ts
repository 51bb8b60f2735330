/**
 * The shapes of `_meta` and of an error that both SDKs accept. They drop other messages silently, and the other side
 * would wait for ever; so such a message is refused before an SDK gets it.
 */

import { isObject } from '../../base/values.ts';
import type { Response } from '../journal/entries.ts';

const RELATED_TASK = 'io.modelcontextprotocol/related-task';

/** The `_meta` of params or of a result. */
export function isMeta(meta: unknown): boolean {
  if (meta === undefined) return true;
  if (!isObject(meta)) return false;
  const { progressToken: token, [RELATED_TASK]: related } = meta;
  const isToken = token === undefined || typeof token === 'string' || Number.isSafeInteger(token);
  return isToken && (related === undefined || (isObject(related) && typeof related.taskId === 'string'));
}

/** The error of a JSON-RPC response. */
export function isRpcError(error: unknown): error is Extract<Response, { error: unknown }>['error'] {
  return isObject(error) && Number.isSafeInteger(error.code) && typeof error.message === 'string';
}
