/**
 * The bytes of journals in this process's memory, of all callers and of each. A call that would exceed a limit is
 * refused; finished calls, which are kept for repeated requests, are evicted first. Anonymous callers count as one, so
 * that they cannot use up the known callers' limit.
 */
import { AwaitError } from '../base/error.ts';
import { type CallRecord, type Kept, keptOf } from '../call/journal/entries.ts';

/** In characters of the records, which take one byte each where they are Latin letters, and two otherwise. */
export interface ByteLimits {
  readonly all: number;
  readonly caller: number;
}

export interface HeldCall {
  readonly call: Kept;
  bytes: number;
  /** The last position that is kept. */
  upTo: number;
}

export class HeldBytes {
  readonly #limits: ByteLimits;
  readonly #evict: (held: HeldCall) => void;
  /** By the ids of calls, the oldest first. */
  readonly #calls = new Map<string, HeldCall>();
  /** Those of them that are over. */
  readonly #finished = new Map<string, HeldCall>();
  readonly #byCaller = new Map<string | undefined, number>();
  #all = 0;

  /** @param evict deletes the records of a call */
  constructor(limits: ByteLimits, evict: (held: HeldCall) => void) {
    this.#limits = limits;
    this.#evict = evict;
  }

  get calls(): Iterable<HeldCall> {
    return this.#calls.values();
  }

  /** Calls that have not ended, with the bytes each one holds. */
  get suspended(): HeldCall[] {
    return [...this.#calls.values()].filter(({ call }) => !this.#finished.has(call.id));
  }

  /**
   * Makes room for bytes that a call is about to write.
   * @throws AwaitError `limit` if evicting all finished calls would not free enough
   */
  makeRoom({ principal }: CallRecord, bytes: number): void {
    const { all, caller } = this.#limits;
    const ofCaller = (): number => this.#byCaller.get(principal) ?? 0;
    for (const held of this.#finished.values()) {
      const isCallerFull = ofCaller() + bytes > caller;
      if (!isCallerFull && this.#all + bytes <= all) return;
      if (!isCallerFull || held.call.principal === principal) this.#evict(held);
    }
    if (ofCaller() + bytes > caller) {
      const whose = principal === undefined ? 'anonymous callers' : 'one caller';
      throw new AwaitError(
        'limit',
        `the suspended calls of ${whose} take ${caller} bytes (limits.callerStoredBytes)`,
      );
    }
    if (this.#all + bytes > all)
      throw new AwaitError(
        'limit',
        `suspended calls take ${all} bytes (limits.storedBytes); set the option store`,
      );
  }

  /** An entry is kept. */
  add(call: CallRecord, position: number, bytes: number, isOver: boolean): void {
    const held = this.#calls.get(call.id) ?? { call: keptOf(call), bytes: 0, upTo: -1 };
    this.#calls.set(call.id, held);
    held.bytes += bytes;
    held.upTo = Math.max(held.upTo, position);
    if (isOver) this.#finished.set(call.id, held);
    this.#count(call.principal, bytes);
  }

  drop(callId: string): void {
    const held = this.#calls.get(callId);
    if (held === undefined) return;
    this.#calls.delete(callId);
    this.#finished.delete(callId);
    this.#count(held.call.principal, -held.bytes);
  }

  #count(principal: string | undefined, bytes: number): void {
    this.#all += bytes;
    const left = (this.#byCaller.get(principal) ?? 0) + bytes;
    if (left > 0) this.#byCaller.set(principal, left);
    else this.#byCaller.delete(principal);
  }
}
