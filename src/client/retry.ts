/** What failed is tried again here, and nowhere else: so often, and with these pauses. */

/** When a broken stream or socket is opened again: names and defaults are those of the SDK's transport. */
export interface Reconnection {
  /** Milliseconds before the first attempt; 1,000. The server's `retry` takes precedence. */
  readonly initialReconnectionDelay: number;
  /** Milliseconds; 30,000. */
  readonly maxReconnectionDelay: number;
  /** 1.5. */
  readonly reconnectionDelayGrowFactor: number;
  /** Attempts that fail in a row before a stream is given up; 2. */
  readonly maxRetries: number;
}

export const RECONNECTION: Reconnection = {
  initialReconnectionDelay: 1000,
  maxReconnectionDelay: 30_000,
  reconnectionDelayGrowFactor: 1.5,
  maxRetries: 2,
};

/** Thirteen seconds in all, with the default pauses. */
const LEAST_REPEATS = 5;

/** For a request that has the same effect however often it is sent: `maxRetries` may only make its time longer. */
export function forRepeats(options: Reconnection): Reconnection {
  return { ...options, maxRetries: Math.max(options.maxRetries, LEAST_REPEATS) };
}

/** A server that names no pause at all is not obeyed; in milliseconds. */
const LEAST_WAIT = 50;

/** The further attempts at one thing. */
export class Attempts {
  readonly #options: Reconnection;
  readonly #signal: AbortSignal;
  readonly #immediate: number;
  #made = 0;

  /** @param immediate how many come at once; a negative number makes the first pause longer */
  constructor(options: Reconnection, signal: AbortSignal, immediate = 0) {
    this.#options = options;
    this.#signal = signal;
    this.#immediate = immediate;
  }

  /**
   * Waits for the next attempt.
   * @param wait milliseconds that the server named
   * @returns false if there is none: all were made, or the signal is aborted
   */
  async next(wait?: number): Promise<boolean> {
    if (this.#made >= this.#options.maxRetries || this.#signal.aborted) return false;
    await pause(wait === undefined ? this.#delay : Math.max(wait, LEAST_WAIT), this.#signal);
    this.#made += 1;
    return !this.#signal.aborted;
  }

  /** The last attempt succeeded. */
  reset(): void {
    this.#made = 0;
  }

  get #delay(): number {
    const { initialReconnectionDelay, reconnectionDelayGrowFactor, maxReconnectionDelay } = this.#options;
    const earlier = this.#made - this.#immediate;
    if (earlier < 0) return 0;
    return Math.min(initialReconnectionDelay * reconnectionDelayGrowFactor ** earlier, maxReconnectionDelay);
  }
}

/** @throws the last failure, or the first that may not pass */
export async function retry<T>(
  doing: () => Promise<T>,
  attempts: Attempts,
  mayPass: (thrown: unknown) => boolean,
  wait?: number,
): Promise<T> {
  for (;;) {
    try {
      return await doing();
    } catch (thrown) {
      if (!mayPass(thrown) || !(await attempts.next(wait))) throw thrown;
    }
  }
}

/** No timer is longer than this. */
const LONGEST = 2 ** 31 - 1;

/** Ends early, without throwing, once the signal is aborted. */
export function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const end = (): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', end);
      resolve();
    };
    const timer = setTimeout(end, Math.min(milliseconds, LONGEST));
    signal.addEventListener('abort', end);
  });
}
