/**
 * Answers that arrive at another process than their call's (revisions that ask live): they are in the store before
 * their client gets its 202, under their ask's key, and the process that runs the call fetches them there. The relay
 * wakes it; without one it polls.
 */
import type { Clock, Timer } from '../../base/clock.ts';
import type { Delivered } from '../journal/entries.ts';
import type { CallStore } from '../journal/store.ts';

/** How long between two looks, in milliseconds: at first, and at most. */
const PAUSE = { first: 50, most: 500, growth: 1.5 };

/** A call that waits for answers. */
export interface Waiting {
  readonly callId: string;
  /** Whether its ask of this key still waits. */
  waits(key: string): boolean;
  answer(key: string, response: Delivered): Promise<void>;
}

interface Expected {
  readonly call: Waiting;
  readonly keys: Set<string>;
  pause: number;
  timer: Timer;
}

export class Inbox {
  readonly #store: CallStore;
  readonly #clock: Clock;
  readonly #failed: (callId: string, error: unknown) => void;
  readonly #expected = new Map<string, Expected>();

  constructor(store: CallStore, clock: Clock, failed: (callId: string, error: unknown) => void) {
    this.#store = store;
    this.#clock = clock;
    this.#failed = failed;
  }

  /** An ask went out: its answer may come in anywhere. */
  expect(call: Waiting, key: string): void {
    const known = this.#expected.get(call.callId);
    known?.timer.cancel();
    const keys = (known?.keys ?? new Set<string>()).add(key);
    this.#arm({ call, keys, pause: PAUSE.first });
  }

  /** Something came in. */
  wake(callId: string): void {
    const expected = this.#expected.get(callId);
    if (expected === undefined) return;
    expected.timer.cancel();
    expected.pause = PAUSE.first;
    void this.#look(expected);
  }

  #arm(expected: Omit<Expected, 'timer'>): void {
    const armed: Expected = {
      ...expected,
      timer: this.#clock.after(expected.pause, () => void this.#look(armed)).unref(),
    };
    this.#expected.set(expected.call.callId, armed);
  }

  async #look(expected: Expected): Promise<void> {
    const { call, keys, pause } = expected;
    for (const key of [...keys]) {
      try {
        const response = call.waits(key) ? await this.#store.delivered(call.callId, key) : undefined;
        if (response !== undefined) await call.answer(key, response);
      } catch (error) {
        this.#failed(call.callId, error);
      }
      if (!call.waits(key)) keys.delete(key);
    }
    // It was woken, or asked something more, while it looked.
    if (this.#expected.get(call.callId) !== expected) return;
    if (keys.size === 0) this.#expected.delete(call.callId);
    else this.#arm({ call, keys, pause: Math.min(pause * PAUSE.growth, PAUSE.most) });
  }
}
