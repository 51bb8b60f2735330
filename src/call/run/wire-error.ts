/** The errors that a client reads: fixed sentences, each with one advice. The reason is in the logged AwaitError. */
import {
  type AwaitError,
  type AwaitErrorCode,
  advice,
  defined,
  type JsonObject,
  type Reason,
} from '../../base/values.ts';
import { refusal } from '../ask/capability.ts';
import type { Response, RpcError } from '../journal/entries.ts';
import type { Outcome, Responded } from './outcome.ts';
import type { EngineParts } from './run.ts';

/** One sentence, and one advice, for every bad token, whatever is wrong with it. */
const BAD_TOKEN: RpcError = {
  code: -32602,
  message: 'Invalid or expired requestState',
  // The reason is SDK v2's.
  data: { reason: 'invalid_request_state', ...advice('bad-token') },
};

/** Without advice: nobody knows why it failed. */
export const INTERNAL: RpcError = { code: -32603, message: 'Internal error' };

const AGAIN = 'send the same request again';

/** What is so, and what its client may do, of errors that are no fault of a request. */
const TOLD = {
  closed: ['This server is shutting down', AGAIN],
  'no-room': ['This server is busy', AGAIN],
  'host-gone': ['The server behind this one ended or cannot be started', 'try again later'],
  expired: ['This call has expired: it did not end within the time for which this server keeps calls'],
  store: ['This call could not be saved or read back', AGAIN],
  busy: ['This call is being continued elsewhere', AGAIN],
  divergence: ['This call cannot be continued, because its tool has changed', 'call the tool again'],
  limit: ['This call exceeds a limit of the server'],
} satisfies Partial<Record<Reason, [why: string, what?: string]>>;

/** Those that may befall any request. */
const OUTSIDE: ReadonlySet<string> = new Set(['closed', 'no-room', 'expired']);

export function whyOf(reason: keyof typeof TOLD): string {
  return TOLD[reason][0];
}

/** @param steps those that are done: they are told, in place of an advice that would run them again */
export function told(reason: keyof typeof TOLD, steps: readonly string[] = []): RpcError {
  const [why, what] = TOLD[reason] as [string, string?];
  const isDone = steps.length > 0;
  const code = OUTSIDE.has(reason) ? -32000 : -32603;
  const begins =
    isDone || code === -32603 ? `Internal error: ${why.charAt(0).toLowerCase()}${why.slice(1)}` : why;
  const rest = isDone ? `. Completed steps: ${steps.join(', ')}` : what === undefined ? '' : `; ${what}`;
  return { code, message: begins + rest, data: advice(reason, !isDone && what === AGAIN) };
}

/** The texts of errors that end a call and say to make it again. */
const TO_MAKE_AGAIN: readonly string[] = [told('divergence').message, told('host-gone').message];

export function isToMakeAgain(response: Response): boolean {
  return 'error' in response && TO_MAKE_AGAIN.includes(response.error.message);
}

export function wireError({ code, message, steps }: AwaitError): RpcError {
  switch (code) {
    case 'bad-token':
    case 'format':
      return BAD_TOKEN;
    case 'bad-answer':
      return { code: -32602, message: `Invalid params: ${message}`, data: advice(code) };
    case 'replay-refused':
      // The user must know which steps were done; their names are the tool author's own.
      return { code: -32603, message: `Internal error: ${message}`, data: advice(code) };
    case 'fenced':
      return told('busy', steps);
    case 'question-drift':
      return told('divergence', steps);
    default:
      return code in TOLD ? told(code as keyof typeof TOLD, steps) : INTERNAL;
  }
}

/** The outcome of a request whose client lacks the capability for an ask. */
export function refused(required: JsonObject, method: string): Responded {
  return { kind: 'responded', response: refusal(required, method) };
}

/** The outcome of a failed request. */
export function failedWith(error: AwaitError): Responded {
  return { kind: 'responded', response: { error: wireError(error) }, failure: error.code };
}

/** As `failedWith`, and logs the error with its details. */
export function reported(
  { log }: Pick<EngineParts, 'log'>,
  callId: string | undefined,
  error: AwaitError,
): Responded {
  const level = ['bad-token', 'bad-answer', 'no-room'].includes(error.code) ? 'warn' : 'error';
  log(level, error.message, {
    code: error.code,
    ...defined({ call: callId, cause: error.cause }),
  });
  return failedWith(error);
}

export function isBadToken(outcome: Outcome): boolean {
  return outcome.kind === 'responded' && (outcome.failure === 'bad-token' || outcome.failure === 'format');
}

const ELSEWHERE: ReadonlySet<AwaitErrorCode> = new Set(['closed', 'busy', 'fenced']);

/** Whether the call was given up, or another process runs it now: a durable call's response is still to come. */
export function goesOnElsewhere(outcome: Outcome): boolean {
  return outcome.kind === 'responded' && outcome.failure !== undefined && ELSEWHERE.has(outcome.failure);
}
