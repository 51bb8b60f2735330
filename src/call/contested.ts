/**
 * Reading a journal on from a checkpoint, where the next position is taken: who has the turn, and what came
 * of it (invariant 10). Used when an insert lost, and when a step was still running as the asks went out.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { AwaitError } from '../error.ts';
import type { AnswerCompletion, Checkpoint, Completion, Response } from './journal.ts';
import type { CallStore } from './ports.ts';

export interface Contest {
  readonly store: CallStore;
  readonly callId: string;
  readonly at: number;
  /** Digest of what this client sends. */
  readonly sent: string;
  /** Whether a claim of this process is one that it has given up. */
  readonly abandoned: (by: string) => boolean;
  /** Steps the checkpoint says are running; their completions come next, in any order. */
  readonly running: number;
  /** How long to wait for somebody else, in milliseconds. */
  readonly wait: number;
  readonly signal?: AbortSignal | undefined;
}

export type Found =
  | { readonly kind: 'suspended'; readonly checkpoint: Checkpoint; readonly at: number }
  | { readonly kind: 'ended'; readonly response: Response }
  /** The turn may be claimed after position `at`, with what is recorded since the checkpoint. */
  | {
      readonly kind: 'free';
      readonly at: number;
      readonly since: readonly Completion[];
      readonly claimed: boolean;
    };

/**
 * @throws AwaitError `bad-token` when the turn was claimed with other answers, `fenced` when its owner is
 *   still at it after `wait`
 */
export async function readOn(contest: Contest): Promise<Found> {
  const { store, callId, sent } = contest;
  const since: Completion[] = [];
  let { at } = contest;
  let owner: string | undefined;
  let answers: readonly AnswerCompletion[] | undefined;
  let left = false;
  let pause = 10;
  for (let waited = 0; ; ) {
    const entry = await store.read(callId, at + 1);
    if (entry === undefined) {
      const stepsDone = answers !== undefined || since.length >= contest.running;
      const free = owner === undefined ? stepsDone : left || contest.abandoned(owner);
      // A running step whose process is gone is not recorded any more: after the wait it runs again.
      if (free || (owner === undefined && waited >= contest.wait)) {
        return { kind: 'free', at, since, claimed: answers !== undefined };
      }
      if (waited >= contest.wait)
        throw new AwaitError('fenced', `call ${callId}: its turn is still run by ${owner}`);
      await sleep(pause, undefined, contest.signal === undefined ? {} : { signal: contest.signal });
      waited += pause;
      pause = Math.min(pause * 2, 500);
      continue;
    }
    at += 1;
    switch (entry.type) {
      case 'completed':
        since.push(entry.completion);
        break;
      case 'claimed':
        if (entry.sent !== sent)
          throw new AwaitError('bad-token', `call ${callId}: this turn was taken with other answers`);
        if (answers === undefined) since.push(...entry.answers);
        answers = entry.answers;
        owner = entry.by;
        left = false;
        break;
      case 'left':
        left = true;
        break;
      case 'suspended':
        return { kind: 'suspended', checkpoint: entry.checkpoint, at };
      case 'ended':
        return { kind: 'ended', response: entry.response };
      default:
        break;
    }
  }
}
