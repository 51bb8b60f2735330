/**
 * All timed waits of a frame: for a replayed tool to reach its next completion, for a step to end before asks go out,
 * for an ask's own deadline; and the warning about asks that were not sent.
 */
import { type Clock, callAt, type JsonObject, type Repeating, type Timer } from '../../base/values.ts';
import type { OpenAsk } from '../journal/entries.ts';

/** Event-loop turns without any activity after which a tool counts as waiting for its asks. */
const QUIET_TURNS = 1;

/** How many times as long a recorded step is waited for before its call ends: a branch may wait for a slow network. */
const LONG = 10;

/** How long a frame waits before it takes its tool to be waiting, or to have taken another way than before. */
export class Patience {
  readonly #begin: () => Timer;
  readonly #look: () => void;
  #quiet = 0;
  /** Runs while a recorded completion is waited for. */
  #timer: Timer | undefined;
  /** How often `grace` went by without anything. */
  #graces = 0;

  /**
   * @param grace how long a replayed tool may take to get where it was, in milliseconds
   * @param look has the frame look again
   */
  constructor(clock: Clock, grace: number, look: () => void) {
    this.#look = look;
    this.#begin = () =>
      clock.after(grace, () => {
        this.#timer = undefined;
        this.#graces += 1;
        look();
      });
  }

  /** The tool does something. */
  stir(): void {
    this.#quiet = 0;
    this.#graces = 0;
    this.stop();
  }

  /** A completion was passed over: the next one may be attempted already. */
  goOn(): void {
    this.#quiet = 0;
  }

  stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  /** True once nothing has happened for a while; until then the frame looks again. */
  idle(): boolean {
    this.#quiet += 1;
    if (this.#quiet > QUIET_TURNS) return true;
    this.#look();
    return false;
  }

  /** True once the tool has been idle for so long that it will not attempt the next recorded completion. */
  gaveUp(): boolean {
    return this.#waited(1);
  }

  /** As `gaveUp`, where giving up is the end of the call: ten times as long. */
  gaveUpForGood(): boolean {
    return this.#waited(LONG);
  }

  #waited(graces: number): boolean {
    if (this.#graces >= graces) return true;
    if (this.#graces === 0 && !this.idle()) return false;
    this.#timer ??= this.#begin();
    return false;
  }
}

/** How long asks wait for a step that is running, before they go out beside it (invariant 6). */
export class AskDelay {
  readonly #begin: () => Timer | undefined;
  #timer: Timer | undefined;
  #isOver = false;

  /**
   * @param delay milliseconds; without end, asks wait for the step however long it takes
   * @param look has the frame look again
   */
  constructor(clock: Clock, delay: number, look: () => void) {
    const over = (): void => {
      this.#isOver = true;
      look();
    };
    this.#begin = () => (Number.isFinite(delay) ? clock.after(delay, over) : undefined);
  }

  /** True once they waited long enough; the first look begins the time. */
  isOver(): boolean {
    this.#timer ??= this.#begin();
    return this.#isOver;
  }

  /** The turn is over. */
  stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#isOver = false;
  }
}

/**
 * The `timeout` that a tool passed with an ask, where asks are live: a timer for each ask that is out. Elsewhere a
 * deadline is checked when an answer comes (invariant 3).
 */
export class Deadlines {
  readonly #clock: Clock;
  #timers: Map<string, Repeating> | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** @param late called with the `timeout` once it has passed */
  arm(ask: OpenAsk, late: (timeout: number) => void): void {
    const { key, deadline } = ask;
    if (deadline === undefined) return;
    this.#timers ??= new Map();
    this.#timers.set(
      key,
      callAt(this.#clock, deadline.at, () => late(deadline.timeout)),
    );
  }

  disarm(key: string): void {
    this.#timers?.get(key)?.cancel();
    this.#timers?.delete(key);
  }

  clear(): void {
    for (const timer of this.#timers?.values() ?? []) timer.cancel();
    this.#timers = undefined;
  }
}

/** In milliseconds. */
const SOON = 1_000;

const REASONS = {
  gate: 'its turn has ended; it goes out with the next one',
  step: 'a step runs; it goes out in five seconds',
  replay: 'the tool is still led through its journal',
  outside: 'it was made outside of the flow of any call; it goes out with the next ask of this one',
} as const;

export interface Unsent {
  /** Each is reported once. */
  readonly attempt: object;
  readonly call: string;
  readonly method: string;
  readonly why: keyof typeof REASONS;
}

interface UnsentOptions {
  readonly clock: Clock;
  readonly warn: (message: string, detail: JsonObject) => void;
}

/** Logs which asks were not sent a second after they were made, with the reason. */
export class UnsentAsks {
  readonly #options: UnsentOptions;
  readonly #find: () => Iterable<Unsent>;
  #reported: WeakSet<object> | undefined;
  #timer: Timer | undefined;

  /** @param find returns the asks that were not sent */
  constructor(options: UnsentOptions, find: () => Iterable<Unsent>) {
    this.#options = options;
    this.#find = find;
  }

  /** There may be some. */
  watch(): void {
    this.#timer ??= this.#options.clock.after(SOON, () => this.#report()).unref();
  }

  stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #report(): void {
    this.#timer = undefined;
    this.#reported ??= new WeakSet();
    for (const { attempt, why, ...detail } of this.#find()) {
      if (this.#reported.has(attempt)) continue;
      this.#reported.add(attempt);
      this.#options.warn('an ask has not gone out for a second', { ...detail, reason: REASONS[why] });
    }
  }
}
