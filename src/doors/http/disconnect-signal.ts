import type { AbortSignalLike } from '../../call/ports.ts';

/**
 * Reports that a client disconnected. It has the part of AbortSignal that is used here: a real one for each request
 * costs more than most of the other work for it.
 */
export class DisconnectSignal implements AbortSignalLike {
  #listeners: Set<() => void> | undefined;
  aborted = false;

  /** One that has fired calls it at once: a client may go away before its request gets its turn. */
  addEventListener(_type: 'abort', listener: () => void): void {
    this.#listeners ??= new Set();
    if (this.aborted) listener();
    else this.#listeners.add(listener);
  }

  removeEventListener(_type: 'abort', listener: () => void): void {
    this.#listeners?.delete(listener);
    if (this.#listeners?.size === 0) this.#listeners = undefined;
  }

  /** The client disconnected; each listener is called once. */
  readonly fire = (): void => {
    if (this.aborted) return;
    this.aborted = true;
    for (const listener of this.#listeners ?? []) listener();
    this.#listeners = undefined;
  };

  /** A real signal, for code that needs one. */
  asAbortSignal(): AbortSignal {
    const controller = new AbortController();
    this.addEventListener('abort', () => controller.abort());
    return controller.signal;
  }
}
