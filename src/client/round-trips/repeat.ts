/**
 * Requests about a task: reading it, answering its asks and cancelling it have the same effect however often they are
 * sent. So a request that fails on the way is sent again; the task runs on in any case.
 */

import { AwaitError } from '../../base/error.ts';
import { serverErrorIn } from '../failure.ts';
import type { Answer } from '../message.ts';
import { delayBefore, isLost, pause, type Reconnection, repeatsOf } from '../reconnection.ts';

const INTERNAL = -32603;
/** This package's servers send this when the store failed, or they are about to close. */
const SAYS_SO = /send the same request again/;

type RpcError = Extract<Answer, { error: unknown }>['error'];

/** The server replied to every attempt, and never to the question. The task may still run. */
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
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await doing();
    } catch (thrown) {
      signal.throwIfAborted();
      if (attempt >= repeatsOf(options) || !mayPass(thrown)) throw thrown;
    }
    await pause(delayBefore(attempt, options), signal);
    signal.throwIfAborted();
  }
}

/**
 * An answer about the task.
 * @throws Unserved for an error that only means "not now"
 */
export function served(method: string, answer: Answer): Answer {
  if ('error' in answer && isPassing(answer.error, method)) throw new Unserved(answer.error);
  return answer;
}

/**
 * Whether an error is worth another attempt. An internal error of `tasks/result` is the outcome of the task's tool, so
 * it is not.
 */
function isPassing({ code, message }: RpcError, method?: string): boolean {
  return SAYS_SO.test(message) || (code === INTERNAL && method !== 'tasks/result');
}

function mayPass(thrown: unknown): boolean {
  if (thrown instanceof Unserved || isLost(thrown)) return true;
  if (thrown instanceof AwaitError) return thrown.code === 'stream';
  const error = serverErrorIn(thrown);
  return error !== undefined && isPassing(error);
}
