/**
 * Requests about a task: reading it, answering its asks and cancelling it come to the same however often they are
 * sent. So what fails on the way there is sent again, since the task goes on whether its client can see it or not.
 */
import { EndpointError } from '../../src/client/endpoint.ts';
import { serverErrorIn } from '../../src/client/failure.ts';
import type { Answer } from '../../src/client/message.ts';
import { delayBefore, pause, type Reconnection } from '../../src/client/reconnection.ts';
import { AwaitError } from '../../src/error.ts';

/** Thirteen seconds in all, with the default pauses; the option `maxRetries` may only make it longer. */
const LEAST_RETRIES = 5;
const INTERNAL = -32603;
/** What this package's servers say where the store failed, or they are about to close. */
const SAYS_SO = /send the same request again/;

type RpcError = Extract<Answer, { error: unknown }>['error'];

/** The server answered for as long as it was asked, and never to the question. The task may well go on. */
export class Unserved extends Error {
  readonly error: RpcError;

  constructor(error: RpcError) {
    super(error.message);
    this.name = 'Unserved';
    this.error = error;
  }
}

/** @throws Unserved, or the last failure */
export async function untilServed<T>(
  doing: () => Promise<T>,
  options: Reconnection,
  signal: AbortSignal,
): Promise<T> {
  const retries = Math.max(options.maxRetries, LEAST_RETRIES);
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await doing();
    } catch (thrown) {
      signal.throwIfAborted();
      if (attempt >= retries || !mayPass(thrown)) throw thrown;
    }
    await pause(delayBefore(attempt, options), signal);
    signal.throwIfAborted();
  }
}

/**
 * An answer that is about the task.
 * @throws Unserved for one that only says that it cannot be told now
 */
export function served(method: string, answer: Answer): Answer {
  if ('error' in answer && isPassing(answer.error, method)) throw new Unserved(answer.error);
  return answer;
}

/** What a task came to may be an internal error of its tool, and is told by `tasks/result` as such. */
function isPassing({ code, message }: RpcError, method?: string): boolean {
  return SAYS_SO.test(message) || (code === INTERNAL && method !== 'tasks/result');
}

function mayPass(thrown: unknown): boolean {
  if (thrown instanceof Unserved) return true;
  if (thrown instanceof EndpointError) {
    const error = serverErrorIn(thrown);
    return thrown.code >= 500 || thrown.code === 429 || (error !== undefined && isPassing(error));
  }
  if (thrown instanceof AwaitError) return thrown.code === 'stream';
  return isOfNetwork(thrown);
}

/** `fetch` fails with a TypeError; others tell of it as Node does, by a code. */
function isOfNetwork(thrown: unknown): boolean {
  if (thrown instanceof TypeError) return true;
  const codes = thrown instanceof Error ? [thrown, thrown.cause] : [];
  return codes.some(
    (one) => one instanceof Error && 'code' in one && /^(E[A-Z]|UND_ERR)/.test(String(one.code)),
  );
}
