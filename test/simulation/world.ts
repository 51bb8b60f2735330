/**
 * A world with a clock of its own: everything that happens between processes, stores, relays and clients is an
 * event in one queue, drawn in an order that a seed decides. Between two events all promises that can settle
 * do; so a process can crash or fall asleep between any two things it awaits.
 */
import type { Clock, Timer } from '../../src/base/values.ts';

/** A small generator of numbers (mulberry32): the same for the same seed, everywhere. */
function randomFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

interface Event {
  readonly at: number;
  readonly nth: number;
  readonly run: () => void;
  /** The life of a process that this happens in; it waits while that sleeps, and is lost when that is dead. */
  readonly life?: Life;
  cancelled?: true;
}

/** A process from its start to its crash. */
export interface Life {
  readonly name: string;
  dead: boolean;
  asleepUntil: number;
  /** Whether anything happened to it that may cut off a step. */
  disturbed: boolean;
}

/** Milliseconds between two turns of an event loop. */
const TURN = 0.01;
/** Events that may happen at one moment. */
const STILL = 10_000;

export class World {
  readonly random: () => number;
  readonly violations: string[] = [];
  time = 0;
  #queue: Event[] = [];
  #nth = 0;

  constructor(seed: number) {
    this.random = randomFrom(seed);
  }

  violated(what: string): void {
    this.violations.push(`at ${this.time.toFixed(2)}: ${what}`);
  }

  between(least: number, most: number): number {
    return least + this.random() * (most - least);
  }

  chance(probability: number): boolean {
    return this.random() < probability;
  }

  at(at: number, run: () => void, life?: Life): () => void {
    const event: Event = {
      at: Math.max(at, this.time),
      nth: this.#nth++,
      run,
      ...(life !== undefined && { life }),
    };
    this.#insert(event);
    return () => {
      event.cancelled = true;
    };
  }

  after(delay: number, run: () => void, life?: Life): () => void {
    return this.at(this.time + delay, run, life);
  }

  /** @param skew how far the process's wall clock is off, in milliseconds; it may be moved while it runs */
  clockOf(life: Life, skew: { value: number }): Clock {
    return {
      now: () => 1_700_000_000_000 + this.time + skew.value,
      elapsed: () => this.time,
      after: (delay, run) => {
        const cancel = this.after(Math.max(delay, TURN), run, life);
        const timer: Timer = { cancel, unref: () => timer };
        return timer;
      },
      soon: (run) => void this.after(TURN, run, life),
    };
  }

  /** Runs until `isOver`, or until nothing is left to happen, or until `end`. */
  async run(isOver: () => boolean, end: number): Promise<void> {
    let still = 0;
    while (!isOver() && this.violations.length === 0) {
      const event = this.#queue.shift();
      if (event === undefined) return;
      still = event.at > this.time ? 0 : still + 1;
      if (still > STILL) {
        this.violated('events follow one another, and no time passes');
        return;
      }
      if (event.cancelled || event.life?.dead) continue;
      if (event.at > end) {
        this.violated('it goes on and on');
        return;
      }
      this.time = Math.max(this.time, event.at);
      const { life } = event;
      if (life !== undefined && life.asleepUntil > this.time) {
        // What happened while it slept happens when it wakes, in order.
        this.#insert({ ...event, at: life.asleepUntil, nth: event.nth });
        continue;
      }
      event.run();
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  #insert(event: Event): void {
    let low = 0;
    let high = this.#queue.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      const other = this.#queue[middle];
      if (other !== undefined && (other.at < event.at || (other.at === event.at && other.nth < event.nth)))
        low = middle + 1;
      else high = middle;
    }
    this.#queue.splice(low, 0, event);
  }
}
