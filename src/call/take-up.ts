/**
 * Following a call that goes on without the request that began it: to its outcome, or to where its owner has
 * been silent for a lease and the call may be taken up from the start of its journal.
 */
import { AwaitError } from '../error.ts';
import { type Clock, sleep } from './clock.ts';
import { Silence } from './contested.ts';
import { addDrawn, type DrawnValues } from './drawn.ts';
import type { CallRecord, Completion, OpenAsk, Response } from './journal.ts';
import type { CallStore } from './ports.ts';

export interface Following {
  readonly store: CallStore;
  readonly clock: Clock;
  readonly callId: string;
  /** Only this caller's calls are followed. */
  readonly principal: string | undefined;
  /** How long an owner may be silent, in milliseconds. */
  readonly lease: number;
  /** Whether nobody wants to know any more. */
  readonly stopped: () => boolean;
}

export type Followed =
  | { readonly kind: 'ended'; readonly response: Response }
  | { readonly kind: 'stopped' }
  | {
      readonly kind: 'lapsed';
      readonly call: CallRecord;
      /** The position of the last entry. */
      readonly at: number;
      readonly completions: readonly Completion[];
      /** Asks that went out and have no answer. */
      readonly open: readonly OpenAsk[];
      readonly asked: number;
      readonly drawn?: DrawnValues;
    };

/** @throws AwaitError `bad-token` when there is no such call, or it is one that suspends */
export async function follow(following: Following): Promise<Followed> {
  const { store, clock, callId, principal, lease, stopped } = following;
  const first = await store.read(callId, 0);
  if (first?.type !== 'called' || first.call.principal !== principal)
    throw new AwaitError('bad-token', `call ${callId} has no record of this caller's to go on from`);
  const completions: Completion[] = [];
  const open = new Map<string, OpenAsk>();
  const silence = new Silence(clock, () => store.heard(callId));
  let drawn: { drawn?: DrawnValues } = {};
  let asked = 0;
  let at = 0;
  for (let pause = 10; ; ) {
    const entry = await store.read(callId, at + 1);
    if (stopped()) return { kind: 'stopped' };
    if (entry === undefined) {
      if ((await silence.lasts()) >= lease) {
        return {
          kind: 'lapsed',
          call: first.call,
          at,
          completions,
          open: [...open.values()],
          asked,
          ...drawn,
        };
      }
      await sleep(clock, pause);
      pause = Math.min(pause * 2, 500, lease / 4);
      continue;
    }
    at += 1;
    silence.end();
    switch (entry.type) {
      case 'asked':
        asked += 1;
        open.set(entry.ask.key, entry.ask);
        break;
      case 'completed':
        completions.push(entry.completion);
        if (entry.completion.kind === 'answer') open.delete(entry.completion.key);
        break;
      case 'drawn':
        drawn = addDrawn(drawn.drawn, entry.drawn);
        break;
      case 'ended':
        return { kind: 'ended', response: entry.response };
      case 'suspended':
        throw new AwaitError('bad-token', `call ${callId} is one that suspends: its token goes on with it`);
      default:
        break;
    }
  }
}
