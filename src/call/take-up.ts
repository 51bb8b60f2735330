/**
 * Following a call that goes on without the request that began it: to its outcome, or to where its owner has
 * been silent for a lease and the call may be taken up from the start of its journal.
 */
import { AwaitError } from '../error.ts';
import { type Clock, sleep } from './clock.ts';
import { Silence } from './contested.ts';
import { Folding } from './folding.ts';
import type { CallRecord, Response } from './journal.ts';
import type { CallStore } from './ports.ts';

export interface Following {
  readonly store: CallStore;
  readonly clock: Clock;
  readonly callId: string;
  /** Only this caller's calls are followed. */
  readonly principal: string | undefined;
  /** How long an owner may be silent, in milliseconds. */
  readonly lease: number;
  /** Longest pause between two looks, in milliseconds. */
  readonly pace: number;
  /** Whether nobody wants to know any more. */
  readonly stopped: () => boolean;
}

export type Followed =
  | { readonly kind: 'ended'; readonly response: Response }
  | { readonly kind: 'cancelled' }
  | { readonly kind: 'stopped' }
  /** It waits for whoever has its token. */
  | { readonly kind: 'suspended'; readonly at: number }
  /** The call may be taken up from what is known of it. */
  | { readonly kind: 'lapsed'; readonly call: CallRecord; readonly known: Folding };

/** @throws AwaitError `bad-token` when there is no such call */
export async function follow(following: Following): Promise<Followed> {
  const { store, clock, callId, principal, lease, pace, stopped } = following;
  const known = new Folding();
  const silence = new Silence(clock, () => store.heard(callId));
  for (let pause = 10; ; ) {
    const entry = await store.read(callId, known.at + 1);
    if (stopped()) return { kind: 'stopped' };
    if (entry !== undefined) {
      known.take(entry);
      silence.end();
      if (known.cancelled) return { kind: 'cancelled' };
      if (known.response !== undefined) return { kind: 'ended', response: known.response };
      continue;
    }
    const { call } = known;
    if (call === undefined || call.principal !== principal)
      throw new AwaitError('bad-token', `call ${callId} has no record of this caller's to go on from`);
    if (known.suspended) return { kind: 'suspended', at: known.at };
    if (known.left || (await silence.lasts()) >= lease) return { kind: 'lapsed', call, known };
    await sleep(clock, pause);
    pause = Math.min(pause * 2, pace, lease / 4);
  }
}
