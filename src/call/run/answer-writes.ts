/** Answers on their way into a call's journal, by the keys of their asks. */
import type { AnswerCompletion, Entry } from '../journal/entries.ts';

type AnswerEntry = Extract<Entry, { type: 'completed' }> & { readonly completion: AnswerCompletion };

export class AnswerWrites {
  readonly #underWay = new Set<string>();
  /** Entries that may or may not be in the store; a second answer for their asks is ignored. */
  readonly #doubtful = new Map<string, AnswerEntry>();

  has(key: string): boolean {
    return this.#underWay.has(key);
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
    const entry = this.#doubtful.get(key) ?? make();
    this.#underWay.add(key);
    try {
      await append(entry);
      this.#doubtful.delete(key);
    } catch (error) {
      this.#doubtful.set(key, entry);
      throw error;
    } finally {
      this.#underWay.delete(key);
    }
  }
}
