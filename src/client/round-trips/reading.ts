/** Classifies a server's response: an outcome, a task, or a round of asks. */

import { AwaitError, defined, isObject, type JsonObject } from '../../base/values.ts';
import type { AnswerError, RpcAnswer } from '../message.ts';
import type { ClientDialect } from './dialect.ts';
import { type InputRequests, isInputRequests } from './saved-call.ts';

export type ReadResult =
  | { readonly kind: 'complete'; readonly outcome: Finished }
  | { readonly kind: 'task'; readonly task: JsonObject }
  | { readonly kind: 'input_required'; readonly input: Input };

export type Finished = { readonly result: JsonObject } | { readonly error: AnswerError };

export interface Input {
  readonly inputRequests?: InputRequests;
  readonly requestState?: string;
}

/**
 * @param takesTask whether a task may take the place of the outcome
 * @throws AwaitError (`bad-response`) for a form that the revision does not have
 */
export function readAnswer(answer: RpcAnswer, { tasks }: ClientDialect, takesTask: boolean): ReadResult {
  if ('error' in answer) return { kind: 'complete', outcome: { error: answer.error } };
  const task = takesTask ? tasks.created(answer.result) : undefined;
  if (task !== undefined) return { kind: 'task', task };
  const { resultType, ...result } = answer.result;
  if (resultType === 'input_required') return { kind: 'input_required', input: inputOf(result) };
  if (resultType !== undefined && resultType !== 'complete') {
    throw malformed(`a result of the unknown type ${JSON.stringify(resultType)}`);
  }
  // Without its type, since SDK v1 refuses empty results that are not empty.
  return { kind: 'complete', outcome: { result } };
}

/** The asks of a call or a task, by their keys. */
export function asksIn(inputRequests: unknown): InputRequests {
  if (isInputRequests(inputRequests)) return inputRequests;
  throw malformed('inputRequests that are no requests by keys');
}

function inputOf({ inputRequests, requestState }: JsonObject): Input {
  if (requestState !== undefined && typeof requestState !== 'string') {
    throw malformed('a requestState that is no string');
  }
  return {
    ...(inputRequests !== undefined && { inputRequests: asksIn(inputRequests) }),
    ...defined({ requestState }),
  };
}

/** The outcome in a task that includes it. */
export function outcomeOf({ result, error }: JsonObject): Finished {
  if (isObject(result)) {
    const { resultType: _type, ...rest } = result;
    return { result: rest };
  }
  if (isObject(error) && typeof error.code === 'number' && typeof error.message === 'string') {
    const { code, message, data } = error;
    return { error: { code, message, ...defined({ data }) } };
  }
  throw malformed('a task that is over, and tells neither result nor error');
}

export function malformed(what: string): AwaitError {
  return new AwaitError('bad-response', `The server answered with ${what}.`);
}
