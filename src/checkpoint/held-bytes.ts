/**
 * The bytes of records that this process put into the store for callers: journals of calls, and what sessions keep. A
 * write that would exceed a limit is refused; finished calls (kept for repeated requests) and released sessions are
 * evicted first. Anonymous callers count as one, so that they cannot use up the known callers' limit. What ends a call
 * is written in any case, and then the caller's oldest ones that are over go.
 *
 * In a shared store each process counts what it wrote itself, and evicts a finished call only after others that follow
 * it had time to read its end.
 */

import { Quota, type Shares } from '../base/quota.ts';
import { AwaitError, defined } from '../base/values.ts';
import { isContinued, type Kept } from '../call/journal/entries.ts';
import { REPEATED } from './page-records.ts';

/** In bytes of the records, as `memoryOf` estimates them. */
export interface ByteLimits {
  readonly all: number;
  readonly caller: number;
  /** Calls of one caller that are over and kept. */
  readonly outcomes: number;
}

export interface BytesHolder {
  readonly call: Kept;
  bytes: number;
  /** The last position of its journal that is kept. */
  upTo: number;
  /** Names of its other records. */
  readonly beside: Set<string>;
}

/** Bytes that a holder costs besides its records. */
const HOLDER = 500;
/** Holders that are counted of a shared store, where the records of older ones stay until they expire. */
const MOST = 100_000;

export class HeldBytes {
  readonly #limits: ByteLimits;
  readonly #evict: (held: BytesHolder) => void;
  readonly #now: () => number;
  readonly #quiet: number;
  readonly #room: Quota<BytesHolder>;
  /** By the ids of calls and sessions, the oldest first. */
  readonly #held = new Map<string, BytesHolder>();
  /** Those of them that are over, with when they were: by caller, the oldest first. */
  readonly #finished = new Map<string | undefined, Map<BytesHolder, number>>();

  /**
   * @param evict deletes the records of a holder
   * @param quiet how long a finished one is left alone, in milliseconds of `now`
   */
  constructor(limits: ByteLimits, evict: (held: BytesHolder) => void, now: () => number, quiet: number) {
    this.#limits = limits;
    this.#evict = evict;
    this.#now = now;
    this.#quiet = quiet;
    const { all, caller } = limits;
    this.#room = new Quota({ all, caller });
  }

  get calls(): Iterable<BytesHolder> {
    return this.#held.values();
  }

  /** Those of a caller that are not over, as far as this process knows. */
  unfinished(principal: string | undefined): BytesHolder[] {
    return [...this.#held.values()].filter(
      (held) => held.call.principal === principal && !this.#isFinished(held),
    );
  }

  /** Whether a caller has used up most of its limit. */
  isTight({ principal }: Kept): boolean {
    return !this.#room.has({ principal }, this.#limits.caller / 4);
  }

  /**
   * Makes room for bytes that are about to be written for a call or a session.
   * @param isAnswer of a call that waits: its caller may have a quarter more for those
   * @throws AwaitError `limit` if evicting all that is finished would not free enough
   */
  makeRoom({ principal }: Kept, bytes: number, isAnswer = false): void {
    const { all, caller } = this.#limits;
    const lack = this.#free(principal, bytes + HOLDER - (isAnswer ? caller / 4 : 0));
    if (lack === undefined) return;
    if (lack === 'all')
      throw new AwaitError(
        'limit',
        `suspended calls take ${all} bytes (limits.storedBytes); set the option store`,
      );
    const whose = principal === undefined ? 'anonymous callers' : 'one caller';
    throw new AwaitError(
      'limit',
      `the suspended calls of ${whose} take ${caller} bytes (its part of limits.storedBytes)`,
    );
  }

  /** Whether there is room for bytes that a call can do without: a quarter of its caller's stays free for what it needs. */
  spares({ principal }: Kept, bytes: number): boolean {
    return this.#free(principal, bytes + this.#limits.caller / 4) === undefined;
  }

  /** A record is kept. @param record its position in a call's journal, or the name of another record */
  add(call: Kept, record: number | string, bytes: number): void {
    const held = this.#held.get(call.id) ?? {
      call: { id: call.id, expires: call.expires, ...defined({ principal: call.principal }) },
      bytes: HOLDER,
      upTo: -1,
      beside: new Set(),
    };
    this.#held.set(call.id, held);
    held.bytes += bytes;
    if (typeof record === 'number') held.upTo = Math.max(held.upTo, record);
    else {
      held.beside.add(record);
      // Its session is used again; a call is over for good.
      if (held.upTo < 0) this.#reopen(held);
    }
    this.#room.change(held, { principal: call.principal }, held.bytes);
    for (const oldest of this.#held.keys()) {
      // What this process's own memory holds is bounded by its room, and none of it goes uncounted.
      if (this.#held.size <= MOST || Number.isFinite(this.#limits.all)) return;
      this.drop(oldest);
    }
  }

  /** It is over: its records may be deleted when their room is needed. @param upTo the last position of its journal */
  finish(id: string, upTo = -1): void {
    const held = this.#held.get(id);
    if (held === undefined) return;
    held.upTo = Math.max(held.upTo, upTo);
    if (this.#isFinished(held)) return;
    const { principal } = held.call;
    const over = this.#finished.get(principal) ?? new Map<BytesHolder, number>();
    this.#finished.set(principal, over.set(held, this.#now()));
    if (held.upTo < 0) return;
    const { outcomes } = this.#limits;
    const calls = over.size > outcomes ? [...over.keys()].filter((other) => other.upTo >= 0) : [];
    for (const oldest of calls.slice(0, -outcomes)) this.#evict(oldest);
    this.#free(principal, 0, held);
  }

  /**
   * Evicts what is over, the oldest first: of this caller, or where all together lack room of strangers before others.
   * @param kept one that stays
   * @returns what is lacking after that
   */
  #free(principal: string | undefined, bytes: number, kept?: BytesHolder): keyof Shares | undefined {
    for (;;) {
      const lack = this.#room.lacks({ principal }, bytes);
      const oldest =
        lack && this.#oldest(lack === 'all' ? [undefined, ...this.#finished.keys()] : [principal]);
      if (oldest === undefined || oldest === kept) return lack;
      this.#evict(oldest);
    }
  }

  #oldest(callers: readonly (string | undefined)[]): BytesHolder | undefined {
    for (const caller of callers)
      for (const [held, at] of this.#finished.get(caller) ?? []) {
        // An equal call gets the outcome of one that outlasted its request for a while, if the store is shared.
        const quiet = this.#quiet > 0 && isContinued(held.call.id) ? REPEATED : this.#quiet;
        if (this.#now() - at >= quiet) return held;
      }
    return undefined;
  }

  #isFinished(held: BytesHolder): boolean | undefined {
    return this.#finished.get(held.call.principal)?.has(held);
  }

  #reopen(held: BytesHolder): void {
    const { principal } = held.call;
    const over = this.#finished.get(principal);
    over?.delete(held);
    if (over?.size === 0) this.#finished.delete(principal);
  }

  /** @returns what was held, whose records are to be deleted */
  drop(id: string): BytesHolder | undefined {
    const held = this.#held.get(id);
    if (held === undefined) return undefined;
    this.#held.delete(id);
    this.#reopen(held);
    this.#room.leave(held);
    return held;
  }
}
