/**
 * A pipe of a child, read no faster than a rate, whatever comes on it: the rest waits in the pipe, and then in the child.
 */
import type { Readable } from 'node:stream';

/** Lines of any kind that are read in a second, empty ones too. */
const LINES = 20_000;
/** Bytes that are read in a second. */
const BYTES = 33_554_432;
/** How far ahead of that it is read, in milliseconds. */
const AHEAD = 100;

export class Paced {
  readonly #pipe: Readable;
  /** Whether it is to wait for another reason, until `resume`. */
  readonly #isHeld: () => boolean;
  /** How far it was read ahead at `#at`, in milliseconds. */
  #ahead = 0;
  #at = performance.now();
  #waits = false;

  constructor(pipe: Readable, isHeld: () => boolean) {
    this.#pipe = pipe;
    this.#isHeld = isHeld;
  }

  took(lines: number, bytes: number): void {
    const now = performance.now();
    this.#ahead = Math.max(0, this.#ahead - (now - this.#at)) + 1_000 * (lines / LINES + bytes / BYTES);
    this.#at = now;
    const isAhead = this.#ahead > AHEAD;
    if (isAhead && !this.#waits) {
      this.#waits = true;
      const next = (): void => {
        this.#waits = false;
        this.resume();
      };
      setTimeout(next, this.#ahead - AHEAD / 2).unref();
    }
    if (isAhead || this.#isHeld()) this.#pipe.pause();
  }

  resume(): void {
    if (!this.#waits && !this.#isHeld()) this.#pipe.resume();
  }
}
