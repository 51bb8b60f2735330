/** When a stream that broke is opened again: names and defaults are those of the SDK's transport. */
import { EndpointError } from './endpoint.ts';

/** When a broken stream or socket is opened again. */
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

/** Errors of a connection that never came about. */
const UNREACHED: ReadonlySet<unknown> = new Set([
  'ECONNREFUSED',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ENOTFOUND',
  'EAI_AGAIN',
  'UND_ERR_CONNECT_TIMEOUT',
]);

/**
 * Retries a request that the server has certainly not taken: it could not be reached, or replied 503. Any other request
 * may have been taken, and a server that does not recognize repetitions would do it twice.
 */
export async function untilTaken<T>(
  doing: () => Promise<T>,
  options: Reconnection,
  signal: AbortSignal,
): Promise<T> {
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await doing();
    } catch (thrown) {
      if (attempt >= options.maxRetries || signal.aborted || !isUntaken(thrown)) throw thrown;
    }
    await pause(delayBefore(attempt, options), signal);
  }
}

function isUntaken(thrown: unknown): boolean {
  if (thrown instanceof EndpointError) return thrown.code === 503;
  const cause = thrown instanceof Error ? thrown.cause : undefined;
  return typeof cause === 'object' && cause !== null && 'code' in cause && UNREACHED.has(cause.code);
}

/** Thirteen seconds in all, with the default pauses; `maxRetries` may only make it longer. */
const LEAST_REPEATS = 5;

/** How often an idempotent request is sent again. */
export function repeatsOf({ maxRetries }: Reconnection): number {
  return Math.max(maxRetries, LEAST_REPEATS);
}

/** Whether a request or its reply was lost on the way, or refused by something that may be over soon. */
export function isLost(thrown: unknown): boolean {
  if (thrown instanceof EndpointError) return thrown.code >= 500 || thrown.code === 429;
  // `fetch` fails with a TypeError; other functions with one of Node's codes.
  if (thrown instanceof TypeError) return true;
  const errors = thrown instanceof Error ? [thrown, thrown.cause] : [];
  return errors.some(
    (one) => one instanceof Error && 'code' in one && /^(E[A-Z]|UND_ERR)/.test(String(one.code)),
  );
}
