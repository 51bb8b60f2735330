/**
 * The `timeout` that a tool passed with an ask, where asks are live: a timer for each ask that is out. Elsewhere a
 * deadline is looked at when an answer comes (invariant 3).
 */
import type { Clock, Timer } from './clock.ts';
import type { OpenAsk } from './journal.ts';

export class Deadlines {
  readonly #clock: Clock;
  readonly #timers = new Map<string, Timer>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** @param late told of the `timeout` once it is over; a timer may fire early, so the clock decides */
  arm(ask: OpenAsk, late: (timeout: number) => void): void {
    const { key, deadline } = ask;
    if (deadline === undefined) return;
    const onTime = (): void => {
      if (this.#clock.now() < deadline.at) this.arm(ask, late);
      else late(deadline.timeout);
    };
    const left = Math.max(deadline.at - this.#clock.now(), 0);
    this.#timers.set(key, this.#clock.after(left, onTime).unref());
  }

  disarm(key: string): void {
    this.#timers.get(key)?.cancel();
    this.#timers.delete(key);
  }

  clear(): void {
    for (const timer of this.#timers.values()) timer.cancel();
    this.#timers.clear();
  }
}
