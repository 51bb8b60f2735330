/**
 * Reading a journal on from a checkpoint, where the next position is taken: who has the turn, and what came
 * of it (invariant 10). Used when an insert lost, and when a step was still running as the asks went out.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { AwaitError } from '../error.ts';
import type { Checkpoint, Completion, Entry, Response } from './journal.ts';
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
  /** How long an owner may be silent before its turn is taken up, in milliseconds. */
  readonly lease: number;
  /** How long to wait for an owner that is not, in milliseconds. */
  readonly wait: number;
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
 * @throws AwaitError `bad-token` when the turn was claimed with other answers, `busy` when its owner is
 *   still at it after `wait`
 */
export async function readOn(contest: Contest): Promise<Found> {
  const { store, callId, sent } = contest;
  const since: Completion[] = [];
  const silence = new Silence(() => store.heard(callId));
  const started = performance.now();
  let { at } = contest;
  let claim: Extract<Entry, { type: 'claimed' }> | undefined;
  let left = false;
  for (let pause = 10; ; ) {
    const entry = await store.read(callId, at + 1);
    if (entry === undefined) {
      const idle =
        claim === undefined ? since.length >= contest.running : left || contest.abandoned(claim.by);
      if (idle || (await silence.lasts()) >= contest.lease)
        return { kind: 'free', at, since, claimed: claim !== undefined };
      if (performance.now() - started >= contest.wait) {
        throw new AwaitError(
          'fenced',
          `call ${callId}: its turn is still run by ${claim?.by ?? 'its owner'}`,
        );
      }
      await sleep(pause);
      pause = Math.min(pause * 2, 500, contest.lease / 4);
      continue;
    }
    at += 1;
    silence.end();
    switch (entry.type) {
      case 'completed':
        since.push(entry.completion);
        break;
      case 'claimed':
        if (entry.sent !== sent)
          throw new AwaitError('bad-token', `call ${callId}: this turn was taken with other answers`);
        if (claim === undefined) since.push(...entry.answers);
        claim = entry;
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

/**
 * How long an owner has been silent: neither its heartbeat nor the journal moved. It is measured by the
 * observer's own monotonic clock between two looks, so no two clocks are ever compared.
 */
class Silence {
  readonly #listen: () => Promise<unknown>;
  #heard: string | undefined;
  #since = performance.now();

  constructor(listen: () => Promise<unknown>) {
    this.#listen = listen;
  }

  end(): void {
    this.#since = performance.now();
  }

  /**
   * What is heard tells of the time up to the question, not of the time until the answer is looked at: this
   * process may have been stopped in between, and the owner not.
   *
   * @returns milliseconds
   */
  async lasts(): Promise<number> {
    const asked = performance.now();
    const heard = JSON.stringify(await this.#listen()) ?? '';
    if (heard !== this.#heard) this.end();
    this.#heard = heard;
    return asked - this.#since;
  }
}
