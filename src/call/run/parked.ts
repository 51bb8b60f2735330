/**
 * The frames parked in this process, by the token they wait for. Bounded in number, in number and bytes of one caller,
 * and in idle time; a dropped frame costs nothing, since its call continues by replay, unless that is forbidden
 * (invariants 3 and 14).
 */
import { Quota, type QuotaKey } from '../../base/quota.ts';
import { type Clock, every, type Repeating } from '../../base/values.ts';

export interface ParkedLimits {
  readonly frames: number;
  readonly callerFrames: number;
  readonly callerBytes: number;
  /** In milliseconds. */
  readonly frameIdle: number;
}

interface ParkedItem<T> {
  readonly key: string;
  readonly item: T;
  readonly since: number;
  readonly principal: string | undefined;
}

export class Parked<T> {
  /** In the order of insertion, and a frame is parked anew on each turn: the least recently used come first. */
  readonly #places = new Map<string, ParkedItem<T>>();
  /** Anonymous callers may have all frames: theirs go before a known caller's. */
  readonly #frames: Quota<ParkedItem<T>>;
  /** A frame's memory cannot be measured; its journal can. */
  readonly #bytes: Quota<ParkedItem<T>>;
  readonly #limits: ParkedLimits;
  readonly #clock: Clock;
  readonly #dropped: (item: T) => void;
  #timer: Repeating | undefined;

  constructor(limits: ParkedLimits, clock: Clock, dropped: (item: T) => void) {
    this.#limits = limits;
    const { frames, callerFrames, callerBytes } = limits;
    this.#frames = new Quota({ all: frames, caller: callerFrames, anonymous: frames });
    this.#bytes = new Quota({ all: Infinity, caller: callerBytes });
    this.#clock = clock;
    this.#dropped = dropped;
  }

  get size(): number {
    return this.#places.size;
  }

  park(key: string, item: T, { principal }: QuotaKey, bytes: number): void {
    const place = { key, item, since: this.#clock.elapsed(), principal };
    this.#places.set(key, place);
    this.#frames.hold(place, place);
    this.#bytes.hold(place, place, bytes);
    for (const quota of [this.#frames, this.#bytes])
      quota.makeRoom(place, 0, (oldest) => this.#drop(oldest.key));
    if (this.#places.size > 0)
      this.#timer ??= every(this.#clock, Math.min(this.#limits.frameIdle, 30_000), () => this.#dropIdle());
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
    this.#frames.leave(place);
    this.#bytes.leave(place);
    return place.item;
  }

  /** Drops the parked frames of one caller. */
  dropOf(caller: string): void {
    for (const { key, principal } of this.#places.values()) if (principal === caller) this.#drop(key);
  }

  dropAll(): void {
    for (const key of this.#places.keys()) this.#drop(key);
    this.#stop();
  }

  #drop(key: string): void {
    const item = this.take(key);
    if (item !== undefined) this.#dropped(item);
  }

  #dropIdle(): void {
    const before = this.#clock.elapsed() - this.#limits.frameIdle;
    for (const [key, { since }] of this.#places) {
      if (since > before) break;
      this.#drop(key);
    }
    if (this.#places.size === 0) this.#stop();
  }

  #stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }
}
