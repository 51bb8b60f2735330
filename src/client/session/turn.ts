/** Collects asks between `buffer_input` and `input_required`, and their answers until all are there. */
import type { RequestId, RpcAnswer } from '../message.ts';

export class AskTurn {
  /** In the order of the asks. */
  readonly #answers = new Map<RequestId, RpcAnswer | undefined>();
  /** Asks without an answer. */
  #open = 0;
  /** Set once `input_required` has come: resolves the promise of `answers`. */
  #settle: ((answers: readonly RpcAnswer[] | undefined) => void) | undefined;

  get asked(): RequestId[] {
    return [...this.#answers.keys()];
  }

  has(id: RequestId): boolean {
    return this.#answers.has(id);
  }

  expect(id: RequestId): void {
    if (!this.#waitsFor(id)) this.#open += 1;
    this.#answers.set(id, undefined);
  }

  answer(id: RequestId, answer: RpcAnswer): void {
    if (this.#waitsFor(id)) this.#open -= 1;
    this.#answers.set(id, answer);
    this.#check();
  }

  /** The server no longer wants to know. */
  withdraw(id: RequestId): void {
    if (this.#waitsFor(id)) this.#open -= 1;
    this.#answers.delete(id);
    this.#check();
  }

  /** All answers, however long they take; none once the turn is given up. */
  answers(): Promise<readonly RpcAnswer[] | undefined> {
    return new Promise((resolve) => {
      this.#settle = resolve;
      this.#check();
    });
  }

  giveUp(): void {
    this.#settle?.(undefined);
  }

  #waitsFor(id: RequestId): boolean {
    return this.#answers.has(id) && this.#answers.get(id) === undefined;
  }

  #check(): void {
    if (this.#open > 0 || this.#settle === undefined) return;
    this.#settle([...this.#answers.values()].filter((answer) => answer !== undefined));
  }
}
