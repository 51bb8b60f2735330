/** The errors that a client reads: fixed sentences. The reason is in the logged AwaitError. */
import type { AwaitError, AwaitErrorCode } from '../../base/error.ts';
import type { JsonObject } from '../../base/json.ts';
import { refusal } from '../ask/capability.ts';
import type { Response } from '../journal/entries.ts';
import type { Outcome, Responded } from './outcome.ts';
import type { EngineParts } from './run.ts';

type WireError = Extract<Response, { error: unknown }>['error'];

/** One sentence for every bad token, whatever is wrong with it. */
const BAD_TOKEN: WireError = { code: -32602, message: 'Invalid or expired requestState' };

export const INTERNAL: WireError = { code: -32603, message: 'Internal error' };

export const CLOSING: WireError = {
  code: -32000,
  message: 'This server is shutting down; send the same request again',
};

const STORE: WireError = {
  code: -32603,
  message: 'Internal error: this call could not be saved or read back; send the same request again',
};

const CHANGED: WireError = {
  code: -32603,
  message: 'Internal error: this call cannot be continued, because its tool has changed; call the tool again',
};

const LIMIT: WireError = { code: -32603, message: 'Internal error: this call exceeds a limit of the server' };

const EXPIRED: WireError = {
  code: -32000,
  message: 'This call has expired: it was not answered within the time for which this server keeps calls',
};

const HOST_GONE: WireError = {
  code: -32603,
  message: 'Internal error: the server behind this one ended or cannot be started; try again later',
};

const BUSY: WireError = {
  code: -32603,
  message: 'Internal error: this call is being continued elsewhere; send the same request again',
};

const NO_ROOM: WireError = { code: -32000, message: 'This server is busy; send the same request again' };

/** Says which steps are done instead of advising a call that would run them again. */
function unlessDone({ steps }: AwaitError, advice: WireError, why: string): WireError {
  if (steps.length === 0) return advice;
  return { code: advice.code, message: `Internal error: ${why}. Completed steps: ${steps.join(', ')}` };
}

export function wireError(error: AwaitError): WireError {
  switch (error.code) {
    case 'bad-token':
    case 'format':
      return BAD_TOKEN;
    case 'bad-answer':
      return { code: -32602, message: `Invalid params: ${error.message}` };
    case 'store':
      return unlessDone(error, STORE, 'this call could not be saved or read back, and may have ended');
    case 'fenced':
    case 'busy':
      return unlessDone(error, BUSY, 'this call is being continued elsewhere');
    case 'divergence':
    case 'question-drift':
      return unlessDone(error, CHANGED, 'this call cannot be continued, because its tool has changed');
    case 'replay-refused':
      // The user must know which steps were done; their names are the tool author's own.
      return { code: -32603, message: `Internal error: ${error.message}` };
    case 'expired':
      return unlessDone(error, EXPIRED, 'this call has expired before it was answered');
    case 'host-gone':
      return HOST_GONE;
    case 'closed':
      return unlessDone(error, CLOSING, 'this server is shutting down, and this call has ended');
    case 'limit':
      return LIMIT;
    case 'no-room':
      return NO_ROOM;
    default:
      return INTERNAL;
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
  const level = error.code === 'bad-token' || error.code === 'bad-answer' ? 'warn' : 'error';
  log(level, error.message, {
    code: error.code,
    ...(callId !== undefined && { call: callId }),
    ...(error.cause !== undefined && { cause: String(error.cause) }),
  });
  return failedWith(error);
}

export function isBadToken(outcome: Outcome): boolean {
  return outcome.kind === 'responded' && (outcome.failure === 'bad-token' || outcome.failure === 'format');
}

const ELSEWHERE: ReadonlySet<AwaitErrorCode> = new Set(['closed', 'busy', 'fenced']);

/** Whether a call's outcome is in its journal, if it has one: a failure of the store is one request's alone. */
export function isKept(outcome: Outcome): boolean {
  return outcome.kind !== 'responded' || outcome.failure !== 'store';
}

/** Whether the call was given up, or another process runs it now: a durable call's response is still to come. */
export function goesOnElsewhere(outcome: Outcome): boolean {
  return outcome.kind === 'responded' && outcome.failure !== undefined && ELSEWHERE.has(outcome.failure);
}
