/**
 * Reading a journal on from a checkpoint, where the next position is taken: who has the turn, and what came
 * of it (invariant 10). Used when an insert lost, and when a step was still running as the asks went out.
 */
import { AwaitError } from '../error.ts';
import { type Clock, sleep } from './clock.ts';
import { addDrawn, type DrawnValues } from './drawn.ts';
import type { Checkpoint, Completion, Entry, Response } from './journal.ts';
import type { CallStore } from './ports.ts';
import { CANCELLED } from './wire-error.ts';

export interface Contest {
  readonly store: CallStore;
  readonly clock: Clock;
  readonly callId: string;
  readonly at: number;
  /** Digest of what this client sends. */
  readonly sent: string;
  /** Whether a claim of this process is one that it has given up. */
  readonly abandoned: (by: string) => boolean;
  /**
   * Paths of the steps that the checkpoint says are running; their completions come next, in any order, and
   * among them those of what is inside. Undefined when a claim is certain to be there.
   */
  readonly running: readonly string[] | undefined;
  /** How long an owner may be silent before its turn is taken up, in milliseconds. */
  readonly lease: number;
  /** How long to wait for an owner that is not, in milliseconds. */
  readonly wait: number;
  /** Whether nobody wants to know any more; what is returned then does not matter. */
  readonly stopped: () => boolean;
}

export type Found =
  | { readonly kind: 'suspended'; readonly checkpoint: Checkpoint; readonly at: number; readonly by?: string }
  | { readonly kind: 'ended'; readonly response: Response }
  /** The call goes on as a task. */
  | { readonly kind: 'task' }
  /** The turn may be claimed after position `at`, with what is recorded since the checkpoint. */
  | {
      readonly kind: 'free';
      readonly at: number;
      readonly since: readonly Completion[];
      readonly claimed: boolean;
      readonly drawn?: DrawnValues;
    };

/**
 * @throws AwaitError `bad-token` when the turn was claimed with other answers, `busy` when its owner is
 *   still at it after `wait`
 */
export async function readOn(contest: Contest): Promise<Found> {
  const { store, clock, callId, sent } = contest;
  const since: Completion[] = [];
  let drawn: { drawn?: DrawnValues } = {};
  const silence = new Silence(clock, () => store.heard(callId));
  const started = clock.elapsed();
  let { at } = contest;
  let claim: Extract<Entry, { type: 'claimed' }> | undefined;
  let left = false;
  for (let pause = 10; ; ) {
    const entry = await store.read(callId, at + 1);
    if (entry === undefined) {
      const idle =
        claim === undefined ? areDone(contest.running, since) : left || contest.abandoned(claim.by);
      if (idle || contest.stopped() || (await silence.lasts()) >= contest.lease)
        return { kind: 'free', at, since, claimed: claim !== undefined, ...drawn };
      if (clock.elapsed() - started >= contest.wait) {
        throw new AwaitError('busy', `call ${callId}: its turn is still run by ${claim?.by ?? 'its owner'}`);
      }
      await sleep(clock, pause);
      pause = Math.min(pause * 2, 500, contest.lease / 4);
      continue;
    }
    at += 1;
    silence.end();
    switch (entry.type) {
      case 'completed':
        since.push(entry.completion);
        break;
      case 'drawn':
        drawn = addDrawn(drawn.drawn, entry.drawn);
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
        return {
          kind: 'suspended',
          checkpoint: entry.checkpoint,
          at,
          ...(entry.by !== undefined && { by: entry.by }),
        };
      case 'detached':
        return { kind: 'task' };
      case 'ended':
        return { kind: 'ended', response: entry.response };
      case 'cancelled':
        return { kind: 'ended', response: { error: CANCELLED } };
      default:
        break;
    }
  }
}

function areDone(running: readonly string[] | undefined, since: readonly Completion[]): boolean {
  return running?.every((path) => since.some((item) => item.kind === 'step' && item.path === path)) ?? false;
}

/**
 * How long an owner has been silent: neither its heartbeat nor the journal moved. It is measured by the
 * observer's own monotonic clock between two looks, so no two clocks are ever compared.
 */
export class Silence {
  readonly #clock: Clock;
  readonly #listen: () => Promise<unknown>;
  #heard: string | undefined;
  #since: number;

  constructor(clock: Clock, listen: () => Promise<unknown>) {
    this.#clock = clock;
    this.#listen = listen;
    this.#since = clock.elapsed();
  }

  end(): void {
    this.#since = this.#clock.elapsed();
  }

  /**
   * What is heard tells of the time up to the question, not of the time until the answer is looked at: this
   * process may have been stopped in between, and the owner not.
   *
   * @returns milliseconds
   */
  async lasts(): Promise<number> {
    const asked = this.#clock.elapsed();
    const heard = JSON.stringify(await this.#listen()) ?? '';
    if (heard !== this.#heard) this.end();
    this.#heard = heard;
    return asked - this.#since;
  }
}
