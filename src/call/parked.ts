/**
 * The frames parked in this process, by the token they wait for. Bounded in number and in idle time;
 * a dropped one costs nothing, its call goes on by replay (invariant 3).
 */
export class Parked<T> {
  readonly #items = new Map<string, { readonly item: T; readonly since: number }>();
  readonly #max: number;
  readonly #idle: number;
  readonly #now: () => number;
  readonly #dropped: (item: T) => void;
  #timer: NodeJS.Timeout | undefined;

  constructor(max: number, idle: number, now: () => number, dropped: (item: T) => void) {
    this.#max = max;
    this.#idle = idle;
    this.#now = now;
    this.#dropped = dropped;
  }

  get size(): number {
    return this.#items.size;
  }

  park(key: string, item: T): void {
    this.#items.set(key, { item, since: this.#now() });
    while (this.#items.size > this.#max) this.#dropOldest();
    if (this.#timer === undefined && this.#items.size > 0) {
      this.#timer = setInterval(() => this.#dropIdle(), Math.min(this.#idle, 30_000));
      this.#timer.unref();
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
    const before = this.#now() - this.#idle;
    for (const [key, { item, since }] of this.#items) {
      if (since > before) break;
      this.#items.delete(key);
      this.#dropped(item);
    }
    if (this.#items.size === 0) this.#stop();
  }

  #stop(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }
}
