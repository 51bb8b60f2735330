/** `error.data['mcp-await']`: what a client may do about an error of this package. Sentences are for people. */
import { isObject } from './values.ts';

const ADVICE = 'mcp-await';

/** Why a request failed: one for each sentence, so that it tells no more than the sentence does. */
export type Reason =
  | 'bad-token'
  | 'bad-answer'
  | 'store'
  | 'busy'
  | 'divergence'
  | 'replay-refused'
  | 'expired'
  | 'host-gone'
  | 'closed'
  | 'limit'
  | 'no-room'
  | 'not-ready'
  | 'rate-limit';

/** @param retry whether the same request may be sent again: it may succeed, and no completed step runs twice */
export function advice(reason: Reason, retry = false): { readonly [ADVICE]: object } {
  return { [ADVICE]: { reason, retry } };
}

/** Whether the same request may be sent again; undefined if the error does not say. */
export function retryIn(data: unknown): boolean | undefined {
  const given = isObject(data) ? data[ADVICE] : undefined;
  return isObject(given) && typeof given.retry === 'boolean' ? given.retry : undefined;
}
