/**
 * Answers that arrive at another process than their call's (revisions that ask live): they are in the store before
 * their client gets its 202, under their ask's key, and the process that runs the call fetches them there. The relay
 * wakes it; without one it polls. Progress on an ask that listens takes the same way, numbered.
 */
import { keepNewest } from '../../base/bounded.ts';
import type { Clock, Timer } from '../../base/clock.ts';
import type { JsonObject } from '../../base/json.ts';
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
  /** Whether that ask's tool listens to progress. */
  listens(key: string): boolean;
  report(key: string, params: JsonObject): void;
}

/** Most reports on one ask that pass from process to process: each is a record. */
const REPORTS = 1_000;
/** Asks of other processes whose last report is remembered. */
const ASKS_KEPT = 1_000;

interface Expected {
  readonly call: Waiting;
  readonly keys: Set<string>;
  /** How many reports were fetched, by key. */
  readonly reports: Map<string, number>;
  pause: number;
  timer: Timer;
}

export class Inbox {
  readonly #store: CallStore;
  readonly #clock: Clock;
  readonly #failed: (callId: string, error: unknown) => void;
  readonly #expected = new Map<string, Expected>();
  /** How many reports on an ask of another process are known here. */
  readonly #reported = new Map<string, number>();

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
    this.#arm({ call, keys, reports: known?.reports ?? new Map(), pause: PAUSE.first });
  }

  /** A client's progress on an ask of another process. */
  async report(callId: string, key: string, params: JsonObject, expires: number): Promise<void> {
    const ask = JSON.stringify([callId, key]);
    for (let nth = this.#reported.get(ask) ?? 0; nth < REPORTS; nth += 1) {
      const isNew = await this.#store.deliver(callId, reportName(key, nth), { result: params }, expires);
      this.#reported.set(ask, nth + 1);
      keepNewest(this.#reported, ASKS_KEPT);
      if (isNew) return;
    }
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
    const { call, keys, reports, pause } = expected;
    for (const key of [...keys]) {
      try {
        if (call.listens(key)) await this.#fetchReports(expected, key);
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
    else this.#arm({ call, keys, reports, pause: Math.min(pause * PAUSE.growth, PAUSE.most) });
  }

  /** Those that came before the answer are passed on before it. */
  async #fetchReports({ call, reports }: Expected, key: string): Promise<void> {
    for (let nth = reports.get(key) ?? 0; ; nth += 1) {
      const found = await this.#store.delivered(call.callId, reportName(key, nth));
      if (found === undefined || !('result' in found)) return;
      reports.set(key, nth + 1);
      call.report(key, found.result);
    }
  }
}

/** No ask's key has a line break in it. */
function reportName(key: string, nth: number): string {
  return `${key}\nprogress ${nth}`;
}
