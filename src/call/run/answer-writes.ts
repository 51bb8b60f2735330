/** Answers on their way into a call's journal, by the keys of their asks. */
import type { AnswerCompletion, Entry } from '../journal/entries.ts';

type AnswerEntry = Extract<Entry, { type: 'completed' }> & { readonly completion: AnswerCompletion };

export class AnswerWrites {
  /** On their way; or, where that failed, perhaps in the store: then a second answer for the ask is ignored. */
  readonly #entries = new Map<string, { readonly entry: AnswerEntry; readonly isUnderWay: boolean }>();

  has(key: string): boolean {
    return this.#entries.get(key)?.isUnderWay === true;
  }

  /**
   * @param make the entry, if none of this key is in doubt
   * @throws any error of `append`; the entry is then in doubt
   */
  async write(
    key: string,
    make: () => AnswerEntry,
    append: (entry: AnswerEntry) => Promise<void>,
  ): Promise<void> {
    const known = this.#entries.get(key);
    const entry = known === undefined || known.isUnderWay ? make() : known.entry;
    this.#entries.set(key, { entry, isUnderWay: true });
    try {
      await append(entry);
      this.#entries.delete(key);
    } catch (error) {
      this.#entries.set(key, { entry, isUnderWay: false });
      throw error;
    }
  }
}
