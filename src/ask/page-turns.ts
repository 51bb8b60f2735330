/**
 * Pages in turn. The page serves few requests at a time, and lets other requests run between two of them. Persons take
 * turns, so that the many pages that one person opens do not delay another person's.
 */
import { nextTurn } from '../base/values.ts';

/** Pages that are read and written at the same time. */
const MOST_PAGES = 4;
/** Pages of one person that may wait. */
const MOST_WAITING = 32;

export class PageTurns {
  #taken = 0;
  /** Those who wait, the next one first; each with the pages that they wait for. */
  readonly #waiting = new Map<string, (() => void)[]>();

  /** @returns undefined where too many pages of this person wait */
  async take<T>(person: string, serve: () => Promise<T>): Promise<T | undefined> {
    if (this.#taken < MOST_PAGES) this.#taken += 1;
    else {
      const pages = this.#waiting.get(person) ?? [];
      if (pages.length === MOST_WAITING) return undefined;
      this.#waiting.set(person, pages);
      await new Promise<void>((resolve) => pages.push(resolve));
    }
    try {
      await nextTurn();
      return await serve();
    } finally {
      this.#next();
    }
  }

  #next(): void {
    const [first] = this.#waiting;
    if (first === undefined) {
      this.#taken -= 1;
      return;
    }
    const [person, pages] = first;
    const begin = pages.shift();
    // Behind all others.
    this.#waiting.delete(person);
    if (pages.length > 0) this.#waiting.set(person, pages);
    begin?.();
  }
}
