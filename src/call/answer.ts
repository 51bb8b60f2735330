/**
 * Checks an answer before it is fed to a tool (invariant 12). Three verdicts: good; asked again under a new
 * key (its content breaks the ask's schema); or refused as a whole, because it is no answer to such an ask.
 */
import { AwaitError } from '../error.ts';
import { type AnswerCompletion, answerTo, type OpenAsk, type Response, timedOut } from './journal.ts';
import { isObject, type JsonObject } from './json.ts';
import { isMeta } from './meta.ts';

/** Compiles a JSON schema; the returned function tells whether a value keeps it. */
export type SchemaCheck = (schema: JsonObject, value: unknown) => boolean;

type RpcError = Extract<Response, { error: unknown }>['error'];

/** JSON-RPC errors in place of answers, by key: the revisions on which a client answers with whole responses. */
export type ErrorAnswers = Readonly<Record<string, RpcError>>;

export interface Answered {
  readonly accepted: readonly AnswerCompletion[];
  /** Asks whose answer broke their schema. */
  readonly bad: readonly OpenAsk[];
  readonly missing: readonly OpenAsk[];
}

/**
 * Sorts what a client sent by what was asked.
 *
 * @param responses the client's `inputResponses` as it came, key → result
 * @param errors asks that were answered by a JSON-RPC error: the tool's `await` rejects
 * @throws AwaitError `bad-answer` when it is no object, or a value is no result of its ask's kind
 */
export function sortAnswers(
  open: readonly OpenAsk[],
  responses: unknown,
  now: number,
  check: SchemaCheck,
  errors: ErrorAnswers = {},
): Answered {
  if (responses !== undefined && !isObject(responses)) {
    throw new AwaitError('bad-answer', 'inputResponses must be an object of results by key');
  }
  const accepted: AnswerCompletion[] = [];
  const bad: OpenAsk[] = [];
  const missing: OpenAsk[] = [];
  for (const ask of open) {
    const value =
      responses !== undefined && Object.hasOwn(responses, ask.key) ? responses[ask.key] : undefined;
    if (ask.deadline !== undefined && now > ask.deadline.at)
      accepted.push(timedOut(ask, ask.deadline.timeout));
    else if (errors[ask.key] !== undefined && Object.hasOwn(errors, ask.key)) {
      accepted.push(answerTo(ask, { error: errors[ask.key] as RpcError }));
    } else if (value === undefined) missing.push(ask);
    else if (!isResultOf(ask.method, value)) {
      throw new AwaitError('bad-answer', `inputResponses['${ask.key}'] is no result of ${ask.method}`);
    } else if (keepsSchema(ask, value, check)) accepted.push(answerTo(ask, { result: value }));
    else bad.push(ask);
  }
  return { accepted, bad, missing };
}

/** As `sortAnswers`, for one answer that came before its ask was made; `undefined` when it breaks the schema. */
export function checkGiven(ask: OpenAsk, value: unknown, check: SchemaCheck): Response | undefined {
  if (!isResultOf(ask.method, value)) {
    throw new AwaitError('bad-answer', `inputResponses['${ask.key}'] is no result of ${ask.method}`);
  }
  return keepsSchema(ask, value, check) ? { result: value } : undefined;
}

function isResultOf(method: string, value: unknown): value is JsonObject {
  if (!isObject(value) || !isMeta(value._meta)) return false;
  switch (method) {
    case 'elicitation/create':
      return (
        (value.action === 'accept' || value.action === 'decline' || value.action === 'cancel') &&
        (value.content === undefined || value.content === null || isObject(value.content))
      );
    case 'sampling/createMessage':
      return (
        (value.role === 'assistant' || value.role === 'user') &&
        typeof value.model === 'string' &&
        (Array.isArray(value.content) ? value.content.every(isBlock) : isBlock(value.content))
      );
    case 'roots/list':
      return (
        Array.isArray(value.roots) &&
        value.roots.every((root) => isObject(root) && typeof root.uri === 'string')
      );
    default:
      return true;
  }
}

function isBlock(value: unknown): boolean {
  return isObject(value) && typeof value.type === 'string';
}

function keepsSchema(ask: OpenAsk, value: JsonObject, check: SchemaCheck): boolean {
  if (ask.method !== 'elicitation/create' || ask.params.mode === 'url' || value.action !== 'accept')
    return true;
  const schema = ask.params.requestedSchema;
  return !isObject(schema) || check(schema, value.content ?? {});
}
