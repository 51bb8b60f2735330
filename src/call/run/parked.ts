/**
 * The frames parked in this process, by the token they wait for. Bounded in number, in number and bytes of one caller,
 * and in idle time; a dropped frame costs nothing, since its call continues by replay (invariants 3 and 14).
 */
import { type Clock, every, type Repeating } from '../../base/values.ts';

export interface ParkedLimits {
  readonly frames: number;
  readonly callerFrames: number;
  readonly callerBytes: number;
  /** In milliseconds. */
  readonly frameIdle: number;
}

/** A frame's share of the limits. */
interface Weight {
  /** Absent for anonymous callers, which share one account of bytes. */
  readonly caller?: string;
  /** A frame's memory cannot be measured; its journal can. */
  readonly bytes: number;
}

interface ParkedItem<T> {
  readonly item: T;
  readonly since: number;
  readonly weight: Weight;
}

export class Parked<T> {
  /** In the order of insertion, and a frame is parked anew on each turn: the least recently used come first. */
  readonly #places = new Map<string, ParkedItem<T>>();
  readonly #accounts = new Map<string | undefined, { readonly keys: Set<string>; bytes: number }>();
  readonly #limits: ParkedLimits;
  readonly #clock: Clock;
  readonly #dropped: (item: T) => void;
  #timer: Repeating | undefined;

  constructor(limits: ParkedLimits, clock: Clock, dropped: (item: T) => void) {
    this.#limits = limits;
    this.#clock = clock;
    this.#dropped = dropped;
  }

  get size(): number {
    return this.#places.size;
  }

  park(key: string, item: T, weight: Weight): void {
    const { frames, callerFrames, callerBytes, frameIdle } = this.#limits;
    const account = this.#accounts.get(weight.caller) ?? { keys: new Set(), bytes: 0 };
    this.#accounts.set(weight.caller, account);
    this.#places.set(key, { item, since: this.#clock.elapsed(), weight });
    account.keys.add(key);
    account.bytes += weight.bytes;
    while (this.#places.size > frames) this.#drop(this.#places.keys());
    const most = weight.caller === undefined ? frames : callerFrames;
    while (account.keys.size > most || (account.bytes > callerBytes && account.keys.size > 0)) {
      this.#drop(account.keys);
    }
    if (this.#timer === undefined && this.#places.size > 0) {
      this.#timer = every(this.#clock, Math.min(frameIdle, 30_000), () => this.#dropIdle());
    }
  }

  /** The keys of the parked frames, as they are now. */
  get keys(): readonly string[] {
    return [...this.#places.keys()];
  }

  get(key: string): T | undefined {
    return this.#places.get(key)?.item;
  }

  take(key: string): T | undefined {
    const place = this.#places.get(key);
    if (place === undefined) return undefined;
    this.#places.delete(key);
    const { caller, bytes } = place.weight;
    const account = this.#accounts.get(caller);
    if (account !== undefined) {
      account.keys.delete(key);
      account.bytes -= bytes;
      if (account.keys.size === 0) this.#accounts.delete(caller);
    }
    return place.item;
  }

  /** Drops the parked frames of one caller. */
  dropOf(caller: string): void {
    const keys = this.#accounts.get(caller)?.keys ?? new Set();
    while (keys.size > 0) this.#drop(keys);
  }

  dropAll(): void {
    while (this.#places.size > 0) this.#drop(this.#places.keys());
    this.#stop();
  }

  /** Drops the first of some keys. */
  #drop(keys: Iterable<string>): void {
    for (const key of keys) {
      const item = this.take(key);
      if (item !== undefined) this.#dropped(item);
      return;
    }
  }

  #dropIdle(): void {
    const before = this.#clock.elapsed() - this.#limits.frameIdle;
    for (const [key, { since }] of this.#places) {
      if (since > before) break;
      this.#drop([key]);
    }
    if (this.#places.size === 0) this.#stop();
  }

  #stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }
}
