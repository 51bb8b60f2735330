/** A resumed turn, shared by all who ask for it. */

import type { Outcome } from './outcome.ts';
import type { AbortSignalLike } from './request-context.ts';

const GONE: Outcome = { kind: 'gone' };

export class Active {
  /** Digest of the answers that it was asked for with. */
  readonly sent: string;
  readonly outcome: Promise<Outcome>;
  /** Whether it claims the turn, or has claimed it. */
  owns = false;
  /** Until when the process that has its frame may still accept it, by the monotonic clock; 0: it does not. */
  mayBeTaken = 0;
  #waiters = 0;
  #disconnect: (() => void) | undefined;
  #isAbandoned = false;

  /** @param run runs the turn; it must not throw */
  constructor(sent: string, run: (active: Active) => Promise<Outcome>) {
    this.sent = sent;
    this.outcome = Promise.resolve().then(() => run(this));
  }

  /**
   * The turn is entered.
   * @param disconnect ends it without an outcome, once no request waits for it
   */
  begun(disconnect: () => void): void {
    this.#disconnect = disconnect;
    queueMicrotask(() => this.#endUnlessAwaited());
  }

  /** It is over: of its turn the outcome alone is kept. */
  release(): void {
    this.#disconnect = undefined;
  }

  /** Whether clients wait for it, and it has not been entered. */
  get isAwaited(): boolean {
    return this.#waiters > 0 && this.#disconnect === undefined;
  }

  /** Whether it ends without an outcome, because every client disconnected: no request may join it. */
  get isAbandoned(): boolean {
    return this.#isAbandoned;
  }

  /** The outcome for one request; `gone` once its client disconnected. */
  wait(signal: AbortSignalLike | undefined): Promise<Outcome> {
    this.#waiters += 1;
    if (signal === undefined) return this.outcome;
    return new Promise((resolve) => {
      const onAbort = (): void => {
        this.#waiters -= 1;
        this.#endUnlessAwaited();
        resolve(GONE);
      };
      if (signal.aborted) {
        onAbort();
        return;
      }
      signal.addEventListener('abort', onAbort, { once: true });
      void this.outcome.then((outcome) => {
        signal.removeEventListener('abort', onAbort);
        resolve(outcome);
      });
    });
  }

  #endUnlessAwaited(): void {
    if (this.#waiters > 0 || this.#disconnect === undefined) return;
    this.#isAbandoned = true;
    this.#disconnect();
  }
}
