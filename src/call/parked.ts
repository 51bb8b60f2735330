/**
 * The frames parked in this process, by the token they wait for. Bounded in number and in idle time;
 * a dropped one costs nothing, its call goes on by replay (invariant 3).
 */
import { type Clock, every, type Timer } from './clock.ts';

export class Parked<T> {
  readonly #items = new Map<string, { readonly item: T; readonly since: number }>();
  readonly #max: number;
  readonly #idle: number;
  readonly #clock: Clock;
  readonly #dropped: (item: T) => void;
  #timer: Timer | undefined;

  constructor(max: number, idle: number, clock: Clock, dropped: (item: T) => void) {
    this.#max = max;
    this.#idle = idle;
    this.#clock = clock;
    this.#dropped = dropped;
  }

  get size(): number {
    return this.#items.size;
  }

  park(key: string, item: T): void {
    this.#items.set(key, { item, since: this.#clock.elapsed() });
    while (this.#items.size > this.#max) this.#dropOldest();
    if (this.#timer === undefined && this.#items.size > 0) {
      this.#timer = every(this.#clock, Math.min(this.#idle, 30_000), () => this.#dropIdle());
    }
  }

  get(key: string): T | undefined {
    return this.#items.get(key)?.item;
  }

  take(key: string): T | undefined {
    const entry = this.#items.get(key);
    this.#items.delete(key);
    return entry?.item;
  }

  dropAll(): void {
    while (this.#items.size > 0) this.#dropOldest();
    this.#stop();
  }

  #dropOldest(): void {
    const [oldest] = this.#items;
    if (oldest === undefined) return;
    this.#items.delete(oldest[0]);
    this.#dropped(oldest[1].item);
  }

  /** A map keeps the order of insertion, and a frame is parked anew on each turn: the oldest come first. */
  #dropIdle(): void {
    const before = this.#clock.elapsed() - this.#idle;
    for (const [key, { item, since }] of this.#items) {
      if (since > before) break;
      this.#items.delete(key);
      this.#dropped(item);
    }
    if (this.#items.size === 0) this.#stop();
  }

  #stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }
}
