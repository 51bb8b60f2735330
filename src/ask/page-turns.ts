/**
 * Pages in turn. The page serves few requests at a time, one for each person, and lets other requests run between two
 * of them. Persons take turns, so that the many pages that one person opens do not delay another person's.
 */
import { nextTurn } from '../base/values.ts';

/** Pages that are read and written at the same time. */
const MOST_PAGES = 4;
/** Pages of one person that may wait. */
const MOST_WAITING = 32;

export class PageTurns {
  /** The persons of the pages that are being made. */
  readonly #served = new Set<string>();
  /** Those who wait, the next one first; each with the pages that they wait for. */
  readonly #waiting = new Map<string, (() => void)[]>();

  /** @returns undefined where too many pages of this person wait */
  async take<T>(person: string, serve: () => Promise<T>): Promise<T | undefined> {
    const pages = this.#waiting.get(person) ?? [];
    if (pages.length === MOST_WAITING) return undefined;
    this.#waiting.set(person, pages);
    await new Promise<void>((resolve) => {
      pages.push(resolve);
      this.#begin();
    });
    try {
      await nextTurn();
      return await serve();
    } finally {
      this.#served.delete(person);
      this.#begin();
    }
  }

  #begin(): void {
    for (const [person, pages] of this.#waiting) {
      if (this.#served.size === MOST_PAGES) return;
      if (this.#served.has(person)) continue;
      this.#served.add(person);
      pages.shift()?.();
      // Behind all others.
      this.#waiting.delete(person);
      if (pages.length > 0) this.#waiting.set(person, pages);
    }
  }
}
