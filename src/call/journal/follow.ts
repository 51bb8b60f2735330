/**
 * Follows by its journal a call that another process runs: to the outcome of a turn, or of a call that continues
 * without its request; or until its owner has been silent for a lease, so that it may be taken over (invariant 10).
 * Both are one loop: read the next entry; if there is none, decide or wait, a little longer each time.
 */

import { AwaitError, badToken, type Clock, defined, sleep } from '../../base/values.ts';
import { addDrawn, type DrawnValues } from './drawn.ts';
import {
  CANCELLED,
  type CallRecord,
  type Checkpoint,
  type Completion,
  type Entry,
  isReceived,
  type Response,
} from './entries.ts';
import { Folding } from './fold.ts';
import { silenceOf } from './silence.ts';
import type { CallStore } from './store.ts';

interface Polling {
  readonly store: CallStore;
  readonly clock: Clock;
  readonly callId: string;
  /** Only this caller's calls are followed. */
  readonly principal: string | undefined;
  /** How long an owner may be silent before it may be taken over, in milliseconds. */
  readonly lease: number;
  /** Whether the waiter has left; the return value no longer matters then. */
  readonly stopped: () => boolean;
  /** Waits so many milliseconds, or until there may be something to read. */
  readonly pause?: (milliseconds: number) => Promise<void>;
  /** Called with each entry that is read, in order. */
  readonly seen?: ((at: number, entry: Entry) => void) | undefined;
}

/** Reads entries in order; returns a result once there is one, undefined to read on. */
interface Reader<T> {
  entry(entry: Entry, at: number): T | undefined;
  /** Called when there is no next entry; `silence` gives how long the owner has been silent, in milliseconds. */
  end(silence: () => Promise<number>): T | undefined | Promise<T | undefined>;
}

/** Longest pause between two looks, in milliseconds. */
const PACE = 500;

async function poll<T>(polling: Polling, after: number, pace: number, reader: Reader<T>): Promise<T> {
  const { store, clock, callId, principal, lease } = polling;
  const silence = silenceOf(clock, store, callId);
  let at = after;
  silence.saw(at);
  for (let pause = 10; ; ) {
    const entries = polling.stopped() ? [] : store.readOn(callId, at + 1, principal);
    for await (const entry of entries) {
      at += 1;
      if (!isReceived(entry)) silence.saw(at);
      const found = reader.entry(entry, at);
      if (found !== undefined) return found;
    }
    const found = await reader.end(() => silence.lasts());
    if (found !== undefined) return found;
    await (polling.pause?.(pause) ?? sleep(clock, pause));
    pause = Math.min(pause * 2, pace, lease / 4);
  }
}

export interface Contest extends Polling {
  readonly at: number;
  /** Digest of this client's answers. */
  readonly sent: string;
  /** Whether this process still acts on a claim of its own; undefined for another process's. */
  readonly owns: (by: string) => boolean | undefined;
  /**
   * Paths of the steps that run, by the checkpoint; their completions come next, in any order, and among them those of
   * steps inside them. Undefined when the claim is certain to be there.
   */
  readonly running: readonly string[] | undefined;
  /** How long to wait for an owner that is not, in milliseconds. */
  readonly wait: number;
}

export type FoundTurn =
  | { readonly kind: 'suspended'; readonly checkpoint: Checkpoint; readonly at: number; readonly by?: string }
  | { readonly kind: 'ended'; readonly response: Response }
  /** The call continues as a task. */
  | { readonly kind: 'task' }
  /** The turn may be claimed after position `at`, with the completions recorded since the checkpoint. */
  | {
      readonly kind: 'free';
      readonly at: number;
      readonly since: readonly Completion[];
      readonly claimed: boolean;
      readonly drawn?: DrawnValues;
    };

/**
 * Reads a turn on from its checkpoint, whose next position is taken or may be: finds its owner and its outcome.
 * @throws AwaitError `bad-token` when the turn was claimed with other answers, `busy` when its owner still runs it
 * after `wait`
 */
export function readOn(contest: Contest): Promise<FoundTurn> {
  const { clock, callId, running, lease, wait, stopped, seen } = contest;
  const started = clock.elapsed();
  const turn = new JournalTurn(contest);
  return poll<FoundTurn>(contest, contest.at, PACE, {
    entry: (entry, at) => {
      seen?.(at, entry);
      return turn.take(entry, at);
    },
    end: async (silence) => {
      const isIdle = turn.claim === undefined ? turn.areDone(running) : turn.isGivenUp;
      // One that is here writes nothing while the store fails, and may have done a step meanwhile.
      if (isIdle || stopped() || ((await silence()) >= lease && turn.isHere !== true)) return turn.free;
      if (clock.elapsed() - started < wait) return undefined;
      throw new AwaitError(
        'busy',
        `call ${callId}: its turn is still run by ${turn.claim?.by ?? 'its owner'}`,
      );
    },
  });
}

/** A turn as its journal has it since the checkpoint. */
class JournalTurn {
  readonly #contest: Contest;
  readonly #since: Completion[] = [];
  #drawn: { drawn?: DrawnValues } = {};
  #at: number;
  #isLeft = false;
  claim: Extract<Entry, { type: 'claimed' }> | undefined;

  constructor(contest: Contest) {
    this.#contest = contest;
    this.#at = contest.at;
  }

  /** @returns the turn's outcome, with its last entry */
  take(entry: Entry, at: number): FoundTurn | undefined {
    this.#at = at;
    switch (entry.type) {
      case 'completed':
        if (!isReceived(entry)) this.#since.push(entry.completion);
        return undefined;
      case 'drawn':
        this.#drawn = addDrawn(this.#drawn.drawn, entry.drawn);
        return undefined;
      case 'claimed':
        this.#claimed(entry);
        return undefined;
      case 'left':
        this.#isLeft = true;
        return undefined;
      case 'suspended': {
        const { checkpoint, by } = entry;
        return { kind: 'suspended', checkpoint, at, ...defined({ by }) };
      }
      case 'detached':
        return { kind: 'task' };
      case 'ended':
        return { kind: 'ended', response: entry.response };
      case 'cancelled':
        if (entry.when > 0) return { kind: 'ended', response: CANCELLED };
        throw badToken(`call ${this.#contest.callId}: its log is deleted`);
      default:
        return undefined;
    }
  }

  #claimed(entry: Extract<Entry, { type: 'claimed' }>): void {
    const { callId, sent } = this.#contest;
    if (entry.sent !== sent) throw badToken(`call ${callId}: this turn was claimed with other answers`);
    // A second claim of the same turn carries the same answers.
    if (this.claim === undefined) this.#since.push(...entry.answers);
    this.claim = entry;
    this.#isLeft = false;
  }

  /** Whether its owner is this process, and acts on it. */
  get isHere(): boolean | undefined {
    return this.claim && this.#contest.owns(this.claim.by);
  }

  /** Whether its owner gave it up. */
  get isGivenUp(): boolean {
    return this.#isLeft || this.isHere === false;
  }

  areDone(running: readonly string[] | undefined): boolean {
    const isDone = (path: string): boolean =>
      this.#since.some((item) => item.kind === 'step' && item.path === path);
    return running?.every(isDone) ?? false;
  }

  get free(): FoundTurn {
    const isClaimed = this.claim !== undefined;
    return { kind: 'free', at: this.#at, since: this.#since, claimed: isClaimed, ...this.#drawn };
  }
}

export interface Following extends Polling {
  /** Longest pause between two looks, in milliseconds; default 500. */
  readonly pace?: number | undefined;
  /** Called at the end of the log. @returns whether there may be more to read now */
  readonly atEnd?: (call: CallRecord, at: number) => Promise<boolean>;
}

export type FollowedTurn =
  | { readonly kind: 'ended'; readonly response: Response }
  | { readonly kind: 'cancelled' }
  | { readonly kind: 'stopped' }
  /** It waits for the client that has its token. */
  | { readonly kind: 'suspended'; readonly at: number }
  /** Its owner is silent, and last moved it at `moved`: the call may be taken over after `at`. */
  | { readonly kind: 'lapsed'; readonly call: CallRecord; readonly at: number; readonly moved: number };

/**
 * Follows a call from its first entry, and holds nothing of it that may be long: many may follow many calls.
 * @throws AwaitError `bad-token` if there is no such call
 */
export function follow(following: Following): Promise<FollowedTurn> {
  const { callId, principal, lease, pace = PACE, stopped, seen, atEnd } = following;
  const known = new Folding();
  return poll<FollowedTurn>(following, -1, pace, {
    entry: (entry) => {
      if (stopped()) return { kind: 'stopped' };
      known.take(entry);
      known.open.clear();
      seen?.(known.at, entry);
      if (known.cancelled) return { kind: 'cancelled' };
      return known.response && { kind: 'ended', response: known.response };
    },
    end: async (silence) => {
      if (stopped()) return { kind: 'stopped' };
      const { call, at, moved } = known;
      if (call === undefined || call.principal !== principal)
        throw badToken(`call ${callId} has no record of this caller to continue from`);
      if (known.suspended) return { kind: 'suspended', at };
      if (await atEnd?.(call, at)) return undefined;
      return known.left || (await silence()) >= lease ? { kind: 'lapsed', call, at, moved } : undefined;
    },
  });
}

/** The whole of a log up to a position; without a call where that has expired. */
export async function wholeOf(
  store: CallStore,
  { id, principal }: Pick<CallRecord, 'id' | 'principal'>,
  at: number,
): Promise<Folding> {
  const whole = new Folding(true);
  for await (const entry of store.readOn(id, 0, principal)) {
    whole.take(entry);
    if (whole.at === at) break;
  }
  return whole;
}
