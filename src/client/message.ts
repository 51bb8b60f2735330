/** JSON-RPC messages as far as a transport looks into them: the client checks the rest. */

import type { JSONRPCMessage, RequestId } from '@modelcontextprotocol/sdk/types.js';
import { AwaitError, isObject, retryIn, systemClock } from '../base/values.ts';
import { EndpointError } from './endpoint.ts';

export type Rpc = JSONRPCMessage;
export type ClientRequest = Extract<Rpc, { id: RequestId; method: string }>;
export type RpcNotification = Exclude<Extract<Rpc, { method: string }>, { id: RequestId }>;
/** A result or an error. */
export type RpcAnswer = Exclude<Rpc, { method: string }>;
/** The error that an answer may be. */
export type AnswerError = Extract<RpcAnswer, { error: unknown }>['error'];
export type { RequestId };

export function isRequest(message: Rpc): message is ClientRequest {
  return 'method' in message && 'id' in message && message.id !== undefined;
}

export function isAnswer(message: Rpc): message is RpcAnswer {
  return !('method' in message);
}

export function isRequestId(value: unknown): value is RequestId {
  return typeof value === 'string' || typeof value === 'number';
}

/**
 * The messages of a body or of an event: one, or a batch.
 * @param read turns a draft's own message forms into JSON-RPC
 */
export function parseMessages(text: string, read: (value: unknown) => unknown = (value) => value): Rpc[] {
  const parsed: unknown = JSON.parse(text);
  return (Array.isArray(parsed) ? parsed : [parsed]).map((member: unknown) => {
    const value = read(member);
    if (isMessage(value)) return value;
    throw new Error(`The server sent what is no JSON-RPC message: ${JSON.stringify(value).slice(0, 200)}`);
  });
}

function isMessage(value: unknown): value is Rpc {
  if (typeof value !== 'object' || value === null || !('jsonrpc' in value) || value.jsonrpc !== '2.0') {
    return false;
  }
  if ('method' in value) return typeof value.method === 'string';
  const { result, error } = value as { result?: unknown; error?: unknown };
  const isError = isObject(error) && typeof error.code === 'number' && typeof error.message === 'string';
  return isObject(result) || isError;
}

// --- what a failure means: which may pass if its request is sent again, and the error that the client gets otherwise ---

/** JSON-RPC leaves this code to servers; the SDKs use it for a connection that closed. */
const BROKEN = -32000;
const INTERNAL = -32603;

/** The server replied, with an error that means "not now". Its call may still run. */
class Unserved extends Error {
  readonly error: AnswerError;

  constructor(error: AnswerError) {
    super(error.message);
    this.name = 'Unserved';
    this.error = error;
  }
}

/**
 * @param isIdempotent whether an internal error is worth another attempt, if the server advises nothing
 * @throws Unserved for an error whose request may be sent again
 */
export function served(answer: RpcAnswer, isIdempotent: boolean): RpcAnswer {
  if (!('error' in answer)) return answer;
  const { code, data } = answer.error;
  if (retryIn(data) ?? (isIdempotent && code === INTERNAL)) throw new Unserved(answer.error);
  return answer;
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
 * Whether the server certainly has not taken a request: it says so, replied 429 or 503, or could not be reached. It may
 * have taken any other, and a server that does not recognize repetitions would do it twice.
 */
export function isUntaken(thrown: unknown): boolean {
  if (thrown instanceof Unserved) return true;
  if (thrown instanceof EndpointError)
    return retryIn(serverErrorIn(thrown)?.data) ?? (thrown.code === 429 || thrown.code === 503);
  const cause = thrown instanceof Error ? thrown.cause : undefined;
  return typeof cause === 'object' && cause !== null && 'code' in cause && UNREACHED.has(cause.code);
}

/** Whether a request, or its reply, was lost on the way, or refused by something that may be over soon. */
export function isLost(thrown: unknown): boolean {
  if (thrown instanceof Unserved) return true;
  if (thrown instanceof AwaitError) return thrown.code === 'stream';
  const status = thrown instanceof Error && 'code' in thrown ? thrown.code : undefined;
  if (typeof status === 'number') {
    const error = serverErrorIn(thrown);
    return retryIn(error?.data) ?? (status >= 500 || status === 429 || error?.code === INTERNAL);
  }
  // `fetch` fails with a TypeError; other functions with one of Node's codes.
  if (thrown instanceof TypeError) return true;
  const errors = thrown instanceof Error ? [thrown, thrown.cause] : [];
  return errors.some(
    (one) => one instanceof Error && 'code' in one && /^(E[A-Z]|UND_ERR)/.test(String(one.code)),
  );
}

/**
 * The error response of a request that can have none from the server; without it the client would wait until its own
 * timeout. The server's own error, if it sent one with its status.
 */
export function failureOf(id: RequestId, error: Error): Rpc {
  const status = error instanceof EndpointError ? { data: { status: error.code } } : {};
  const broken = { code: BROKEN, message: error.message, ...status };
  const own = error instanceof Unserved ? error.error : serverErrorIn(error);
  return { jsonrpc: '2.0', id, error: own ?? broken };
}

/** The JSON-RPC error in the body of a refusal; none where it is of another kind. */
export function serverErrorIn(thrown: unknown): AnswerError | undefined {
  if (!(thrown instanceof EndpointError)) return undefined;
  try {
    return parseMessages(thrown.body).find((message) => 'error' in message)?.error;
  } catch {
    return undefined;
  }
}

export function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}

// --- what failed is tried again here, and nowhere else ---

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

/** For a server that restarts: it is back within eight seconds, or the request fails. */
export const RESTARTS = { ...RECONNECTION, initialReconnectionDelay: 250, maxRetries: 7 };

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
    const { initialReconnectionDelay, reconnectionDelayGrowFactor, maxReconnectionDelay } = this.#options;
    const earlier = this.#made - this.#immediate;
    const grown = initialReconnectionDelay * reconnectionDelayGrowFactor ** earlier;
    const delay = earlier < 0 ? 0 : Math.min(grown, maxReconnectionDelay);
    await pause(wait === undefined ? delay : Math.max(wait, LEAST_WAIT), this.#signal);
    this.#made += 1;
    return !this.#signal.aborted;
  }

  /** The last attempt succeeded. */
  reset(): void {
    this.#made = 0;
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

/** Ends early, without throwing, once the signal is aborted. */
export function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const end = (): void => {
      timer.cancel();
      signal.removeEventListener('abort', end);
      resolve();
    };
    const timer = systemClock.after(milliseconds, end);
    signal.addEventListener('abort', end);
  });
}
