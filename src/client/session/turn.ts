/** Collects asks between `buffer_input` and `input_required`, and their answers until all are there. */
import type { Answer, RequestId } from '../message.ts';

export class Turn {
  /** In the order of the asks. */
  readonly #answers = new Map<RequestId, Answer | undefined>();
  /** Set once `input_required` has come: resolves the promise of `answers`. */
  #settle: ((answers: readonly Answer[] | undefined) => void) | undefined;

  get asked(): RequestId[] {
    return [...this.#answers.keys()];
  }

  has(id: RequestId): boolean {
    return this.#answers.has(id);
  }

  expect(id: RequestId): void {
    this.#answers.set(id, undefined);
  }

  answer(id: RequestId, answer: Answer): void {
    this.#answers.set(id, answer);
    this.#check();
  }

  /** The server no longer wants to know. */
  withdraw(id: RequestId): void {
    this.#answers.delete(id);
    this.#check();
  }

  /** All answers, however long they take; none once the turn is given up. */
  answers(): Promise<readonly Answer[] | undefined> {
    return new Promise((resolve) => {
      this.#settle = resolve;
      this.#check();
    });
  }

  giveUp(): void {
    this.#settle?.(undefined);
  }

  #check(): void {
    const answers = [...this.#answers.values()].filter((answer) => answer !== undefined);
    if (answers.length === this.#answers.size) this.#settle?.(answers);
  }
}
