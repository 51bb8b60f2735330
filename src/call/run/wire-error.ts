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
import type { RpcError } from '../journal/entries.ts';
import type { Outcome, Responded } from './outcome.ts';
import type { EngineParts } from './run.ts';

function advising(code: number, message: string, ...how: Parameters<typeof advice>): RpcError {
  return { code, message, data: advice(...how) };
}

/** One sentence, and one advice, for every bad token, whatever is wrong with it. */
const BAD_TOKEN: RpcError = {
  code: -32602,
  message: 'Invalid or expired requestState',
  // The reason is SDK v2's.
  data: { reason: 'invalid_request_state', ...advice('bad-token') },
};

/** Without advice: nobody knows why it failed. */
export const INTERNAL: RpcError = { code: -32603, message: 'Internal error' };

export const CLOSING = advising(
  -32000,
  'This server is shutting down; send the same request again',
  'closed',
  true,
);

const STORE = advising(
  -32603,
  'Internal error: this call could not be saved or read back; send the same request again',
  'store',
  true,
);

const CHANGED = advising(
  -32603,
  'Internal error: this call cannot be continued, because its tool has changed; call the tool again',
  'divergence',
);

const LIMIT = advising(-32603, 'Internal error: this call exceeds a limit of the server', 'limit');

export const EXPIRED = advising(
  -32000,
  'This call has expired: it was not answered within the time for which this server keeps calls',
  'expired',
);

const HOST_GONE = advising(
  -32603,
  'Internal error: the server behind this one ended or cannot be started; try again later',
  'host-gone',
);

const BUSY = advising(
  -32603,
  'Internal error: this call is being continued elsewhere; send the same request again',
  'busy',
  true,
);

const NO_ROOM = advising(-32000, 'This server is busy; send the same request again', 'no-room', true);

/** Says which steps are done instead of advising a call that would run them again. */
function unlessDone({ steps }: AwaitError, usual: RpcError, reason: Reason, why: string): RpcError {
  if (steps.length === 0) return usual;
  const message = `Internal error: ${why}. Completed steps: ${steps.join(', ')}`;
  return advising(usual.code, message, reason);
}

export function wireError(error: AwaitError): RpcError {
  switch (error.code) {
    case 'bad-token':
    case 'format':
      return BAD_TOKEN;
    case 'bad-answer':
      return advising(-32602, `Invalid params: ${error.message}`, 'bad-answer');
    case 'store':
      return unlessDone(
        error,
        STORE,
        'store',
        'this call could not be saved or read back, and may have ended',
      );
    case 'fenced':
    case 'busy':
      return unlessDone(error, BUSY, 'busy', 'this call is being continued elsewhere');
    case 'divergence':
    case 'question-drift':
      return unlessDone(
        error,
        CHANGED,
        'divergence',
        'this call cannot be continued, because its tool has changed',
      );
    case 'replay-refused':
      // The user must know which steps were done; their names are the tool author's own.
      return advising(-32603, `Internal error: ${error.message}`, 'replay-refused');
    case 'expired':
      return unlessDone(error, EXPIRED, 'expired', 'this call has expired before it was answered');
    case 'host-gone':
      return HOST_GONE;
    case 'closed':
      return unlessDone(error, CLOSING, 'closed', 'this server is shutting down, and this call has ended');
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
  const level = ['bad-token', 'bad-answer', 'no-room'].includes(error.code) ? 'warn' : 'error';
  log(level, error.message, {
    code: error.code,
    ...defined({ call: callId }),
    ...(error.cause !== undefined && { cause: String(error.cause) }),
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
