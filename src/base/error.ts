/**
 * The error class of this package. `code` is literal and stable; the message says what to do next. A client never sees
 * these texts: the edges write fixed sentences, and the logger gets the error.
 *
 * @example
 * import { AwaitError, step } from 'mcp-await';
 *
 * export async function once(name: string, work: () => Promise<void>) {
 *   try {
 *     await step(name, work);
 *   } catch (error) {
 *     if (error instanceof AwaitError && error.code === 'duplicate-step') return;
 *     throw error;
 *   }
 * }
 */
export class AwaitError extends Error {
  readonly code: AwaitErrorCode;
  /** Of an error that ends a call: its steps that are done. A client is told their names, and not to call again. */
  steps: readonly string[] = [];

  constructor(code: AwaitErrorCode, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = 'AwaitError';
    this.code = code;
  }

  /** Wraps anything thrown, and leaves an AwaitError as it is. */
  static from(thrown: unknown, code: AwaitErrorCode = 'internal'): AwaitError {
    if (thrown instanceof AwaitError) return thrown;
    return new AwaitError(code, thrown instanceof Error ? thrown.message : String(thrown), thrown);
  }
}

/** Why an `AwaitError` was thrown. */
export type AwaitErrorCode =
  /** an option of `createAwaitHandler` or the command line makes no sense */
  | 'bad-option'
  /** a token failed one of its checks; which one is in the message, for the logger alone */
  | 'bad-token'
  /** a client sent a message that cannot be used */
  | 'bad-answer'
  /** the tool took another way on replay than its journal records */
  | 'divergence'
  /** the text of a question changed a second time under replay */
  | 'question-drift'
  /** the call would have to be run again from its start, which the option `replay` forbids */
  | 'replay-refused'
  /** `elicit` and the like inside of `step` */
  | 'ask-in-step'
  /** `shed` inside of `step` */
  | 'shed-in-step'
  /** two steps of one name open at once */
  | 'duplicate-step'
  /** a step's result is not JSON, so it cannot be kept */
  | 'step-not-json'
  /** a replay reached a response that `mcp-await/record` could not record, of a request that must not be sent twice */
  | 'fetch-not-kept'
  /** an ask was made in the async context of another call than its server's, or for a request that is over */
  | 'wrong-call'
  /** a step was called in a call that is over, or named one */
  | 'call-over'
  /** a step ran outside the async context of its call */
  | 'step-without-context'
  /** the client lacks the capability for an ask */
  | 'capability'
  /** a call waited for its client until its `ttl` was over */
  | 'expired'
  /** one of `limits` was reached */
  | 'limit'
  /** this process runs as many requests as `limits` allow; the same request succeeds in a moment, or elsewhere */
  | 'no-room'
  /** the store failed */
  | 'store'
  /** another instance owns the turn */
  | 'fenced'
  /** another instance is still running the turn after 30 seconds */
  | 'busy'
  /** the format of a record is not one this version reads */
  | 'format'
  /** (`mcp-await/client`) a server's stream ended where the call cannot continue */
  | 'stream'
  /** (`mcp-await/client`) a server sent a response that its revision does not have */
  | 'bad-response'
  /** a server that runs elsewhere (a child process, a remote one) could not be started, or ended */
  | 'host-gone'
  /** the handler was closed */
  | 'closed'
  | 'internal';

/** @param what what the option must be instead */
export function badOption(name: string, what: string): AwaitError {
  return new AwaitError('bad-option', `option ${name} ${what}.`);
}
