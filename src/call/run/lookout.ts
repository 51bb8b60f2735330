/**
 * Looks for what other processes append to the logs of this one, while something here waits for it: when the relay says
 * so, and now and then in any case.
 */
import type { Clock } from '../../base/values.ts';

/** How long between two looks, in milliseconds: at first, at most, and at most where a relay reports what comes. */
const PAUSE = { first: 50, most: 500, told: 2_500, growth: 1.5 };

/** Pauses of those who wait for more of a call's log, which news of it end. */
export class Naps {
  readonly #clock: Clock;
  readonly #waiting = new Map<string, Set<() => void>>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  sleep(callId: string, milliseconds: number): Promise<void> {
    const waiting = this.#waiting.get(callId) ?? new Set();
    this.#waiting.set(callId, waiting);
    return new Promise((resolve) => {
      const wake = (): void => {
        timer.cancel();
        waiting.delete(wake);
        if (waiting.size === 0) this.#waiting.delete(callId);
        resolve();
      };
      const timer = this.#clock.after(milliseconds, wake).unref();
      waiting.add(wake);
    });
  }

  /** There may be more in the log of this call. @returns false if nobody waits for that */
  wake(callId: string): boolean {
    const waiting = this.#waiting.get(callId);
    for (const wake of [...(waiting ?? [])]) wake();
    return waiting !== undefined;
  }
}

interface LookedFor {
  readonly callId: string;
  /** Whether anything is still waited for. */
  readonly waits: () => boolean;
  /** Reads the log on; never rejects. */
  readonly look: () => Promise<void>;
}

export class Lookout {
  readonly #naps: Naps;
  readonly #most: number;
  /** How often something new was waited for, by the call: then looks are frequent again. */
  readonly #expected = new Map<string, number>();

  constructor(naps: Naps, hasRelay: boolean) {
    this.#naps = naps;
    this.#most = hasRelay ? PAUSE.told : PAUSE.most;
  }

  /** Something of this call is waited for from now on. */
  expect(waiting: LookedFor): void {
    const { callId } = waiting;
    const isLooking = this.#expected.has(callId);
    this.#expected.set(callId, (this.#expected.get(callId) ?? 0) + 1);
    if (!isLooking) void this.#watch(waiting);
  }

  async #watch({ callId, waits, look }: LookedFor): Promise<void> {
    let pause = PAUSE.first;
    for (let known: number | undefined; waits(); ) {
      const expected = this.#expected.get(callId);
      pause = expected === known ? Math.min(pause * PAUSE.growth, this.#most) : PAUSE.first;
      known = expected;
      await this.#naps.sleep(callId, pause);
      if (waits()) await look();
    }
    this.#expected.delete(callId);
  }
}
