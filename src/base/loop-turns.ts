/** One piece of work in a turn of the event loop: much that is ready at once leaves others their turn. */
import { nextTurn } from './values.ts';

export class LoopTurns {
  #last: Promise<unknown> = Promise.resolve();

  /** Resolves in a turn that no one else has got. */
  next(): Promise<unknown> {
    this.#last = this.#last.then(nextTurn);
    return this.#last;
  }
}
