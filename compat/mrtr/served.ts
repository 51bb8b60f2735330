/** One POST of a session that speaks a draft of multi round-trip requests, and its outcome. */

import type { JsonObject } from '../../src/base/values.ts';
import type { OpenAsk, RpcError } from '../../src/call/journal/entries.ts';
import type { AbortSignalLike } from '../../src/call/ports.ts';
import type { Exchange } from '../session/exchange.ts';
import type { RpcRequest } from '../session/start.ts';
import type { Dialect } from './dialect.ts';

/** A request, while it is being served. */
export interface Served {
  readonly exchange: Exchange;
  readonly dialect: Dialect;
  readonly request: RpcRequest;
  /** Fires when its client cancels it. */
  readonly gone: AbortSignalLike;
  /** Receives notifications that go out with the response. */
  readonly notify: (notification: JsonObject) => void;
}

/** The outcome of a request. */
export type Responding =
  /** `refused`: nothing began, and the state that it came with stays good. */
  | { readonly kind: 'final' | 'refused'; readonly fields: JsonObject }
  /** `asks`: empty for a call that was given up. `token`: continues the call. */
  | { readonly kind: 'incomplete'; readonly asks: readonly OpenAsk[]; readonly token: string }
  | { readonly kind: 'gone' };

export function refusal(error: RpcError): Responding {
  return { kind: 'refused', fields: { error } };
}
