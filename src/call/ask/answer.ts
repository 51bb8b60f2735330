/**
 * Checks an answer before a tool gets it (invariant 12). Three verdicts: good; asked again under a new key (its content
 * breaks the ask's schema); or refused as a whole, because it cannot be a result of that kind of ask.
 */
import { AwaitError, ELICIT, invalidParams, isObject, type JsonObject } from '../../base/values.ts';
import { isOddUrlAsk, ODD_URL } from '../../base/web-url.ts';
import {
  type AnswerCompletion,
  answerTo,
  type OpenAsk,
  type Response,
  type RpcError,
  timedOut,
} from '../journal/entries.ts';
import { isMeta } from './meta.ts';

/** Checks an answer as the server's SDK would. */
export interface AnswerCheck {
  /** Whether the SDK takes a value for a result of an ask. */
  isResult(method: string, params: JsonObject, value: JsonObject): boolean;
  /** Whether content keeps a schema. */
  keeps(schema: JsonObject, content: unknown): boolean;
  /** Why no content can be judged by a schema; undefined where it can. */
  unfit(schema: JsonObject): string | undefined;
}

/** JSON-RPC errors in place of answers, by key: the revisions on which a client answers with whole responses. */
export type ErrorAnswers = Readonly<Record<string, RpcError>>;

export interface Answered {
  readonly accepted: readonly AnswerCompletion[];
  /** Asks whose answer broke their schema. */
  readonly bad: readonly OpenAsk[];
  readonly missing: readonly OpenAsk[];
}

/**
 * Matches a client's answers to the open asks.
 * @param responses the client's `inputResponses`, unchecked, key → result
 * @param errors asks that were answered by a JSON-RPC error: the tool's `await` rejects
 * @param isRecorded whether they were recorded as they were given, and only while that was in time; so is a time-out
 * @throws AwaitError `bad-answer` when it is not an object, or a value cannot be a result of its ask's kind
 */
export function sortAnswers(
  open: readonly OpenAsk[],
  responses: unknown,
  now: number,
  check: AnswerCheck,
  errors: ErrorAnswers = {},
  isRecorded = false,
): Answered {
  if (responses !== undefined) checkResponses(responses);
  const accepted: AnswerCompletion[] = [];
  const bad: OpenAsk[] = [];
  const missing: OpenAsk[] = [];
  for (const ask of open) {
    const names = [ask.key, ask.name ?? ask.key];
    const name = names.find((key) => Object.hasOwn(responses ?? {}, key));
    const value = name === undefined ? undefined : responses?.[name];
    const failed = names.find((key) => Object.hasOwn(errors, key));
    if (isLate(ask, now) && !isRecorded) accepted.push(timedOut(ask, ask.deadline.timeout));
    else if (failed !== undefined) {
      accepted.push(answerTo(ask, { error: errors[failed] as RpcError }));
    } else if (value === undefined) missing.push(ask);
    else {
      const result = usable(ask, value, check);
      if (result === undefined) bad.push(ask);
      else accepted.push(answerTo(ask, { result }));
    }
  }
  return { accepted, bad, missing };
}

/** @throws AwaitError `bad-answer` */
export function checkResponses(responses: unknown): asserts responses is JsonObject {
  if (!isObject(responses))
    throw new AwaitError('bad-answer', 'inputResponses must be an object of results by key');
}

/** Whether the time is over that its tool gave an ask, if it gave any. */
export function isLate<A extends Pick<OpenAsk, 'deadline'>>(
  ask: A,
  now: number,
): ask is A & { readonly deadline: NonNullable<OpenAsk['deadline']> } {
  return ask.deadline !== undefined && now > ask.deadline.at;
}

/** As `sortAnswers`, for one answer that came before its ask was made; `undefined` when it breaks the schema. */
export function checkGiven(ask: OpenAsk, value: unknown, check: AnswerCheck): Response | undefined {
  const result = usable(ask, value, check);
  return result && { result };
}

/**
 * The error of an ask that may not go out: its URL is none of the web's, or its answer could not be checked, in the SDKs'
 * words.
 * @param isRaw its answer is not checked here
 */
export function uncheckable(
  method: string,
  params: JsonObject,
  check: AnswerCheck,
  isRaw: boolean,
): Response | undefined {
  if (isOddUrlAsk(method, params)) return { error: invalidParams(ODD_URL) };
  if (isRaw) return undefined;
  const schema = schemaOf(method, params);
  const why = schema && check.unfit(schema);
  if (why === undefined) return undefined;
  return { error: { code: -32603, message: `Error validating elicitation response: ${why}` } };
}

/**
 * @returns undefined for accepted content that breaks the ask's schema, or that the SDK refuses: it is asked again
 * @throws AwaitError `bad-answer` when it cannot be a result of the ask's kind
 */
function usable(ask: OpenAsk, value: unknown, check: AnswerCheck): JsonObject | undefined {
  const { method, params } = ask;
  const schema = schemaOf(method, params);
  if (isObject(value) && isMeta(value._meta)) {
    const isFilled = schema !== undefined && value.action === 'accept';
    if (check.isResult(method, params, value)) {
      return ask.raw || !isFilled || check.keeps(schema, value.content ?? {}) ? value : undefined;
    }
    // A form that was filled in wrongly is the user's to fill in again.
    if (isFilled && isObject(value.content) && check.isResult(method, params, { ...value, content: {} }))
      return undefined;
  }
  throw new AwaitError('bad-answer', `inputResponses['${ask.key}'] is no result of ${method}`);
}

/** The schema of a form. */
function schemaOf(method: string, params: JsonObject): JsonObject | undefined {
  const { mode, requestedSchema } = params;
  return method === ELICIT && mode !== 'url' && isObject(requestedSchema) ? requestedSchema : undefined;
}
