/** When a stream that broke is opened again: names and defaults are those of the SDK's transport. */

export interface Reconnection {
  /** Milliseconds before the first attempt; 1,000. What the server says in `retry` counts for more. */
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

export function delayBefore(attempt: number, options: Reconnection): number {
  const { initialReconnectionDelay, reconnectionDelayGrowFactor, maxReconnectionDelay } = options;
  return Math.min(initialReconnectionDelay * reconnectionDelayGrowFactor ** attempt, maxReconnectionDelay);
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
