/** What a client gets to read: frozen sentences. The reason is in the AwaitError that went to the logger. */
import type { AwaitError } from '../error.ts';
import type { Response } from './journal.ts';

type WireError = Extract<Response, { error: unknown }>['error'];

/** One sentence for every bad token, whatever is wrong with it. */
const BAD_TOKEN: WireError = { code: -32602, message: 'Invalid or expired requestState' };

export const INTERNAL: WireError = { code: -32603, message: 'Internal error' };

export const CLOSING: WireError = {
  code: -32000,
  message: 'This server is shutting down; send the same request again',
};

export const CANCELLED: WireError = { code: -32000, message: 'This request was cancelled' };

const STORE: WireError = {
  code: -32603,
  message: 'Internal error: this call could not be saved or read back; send the same request again',
};

const CHANGED: WireError = {
  code: -32603,
  message: 'Internal error: this call cannot be continued, because its tool has changed; call the tool again',
};

const LIMIT: WireError = { code: -32603, message: 'Internal error: this call exceeds a limit of the server' };

const BUSY: WireError = {
  code: -32603,
  message: 'Internal error: this call is being continued elsewhere; send the same request again',
};

export function wireError(error: AwaitError): WireError {
  switch (error.code) {
    case 'bad-token':
    case 'format':
      return BAD_TOKEN;
    case 'bad-answer':
      return { code: -32602, message: `Invalid params: ${error.message}` };
    case 'store':
      return STORE;
    case 'fenced':
    case 'busy':
      return BUSY;
    case 'divergence':
    case 'question-drift':
      return CHANGED;
    case 'replay-refused':
      // The user must know what was done: the names are the tool author's own.
      return { code: -32603, message: `Internal error: ${error.message}` };
    case 'closed':
      return CLOSING;
    case 'limit':
      return LIMIT;
    default:
      return INTERNAL;
  }
}

export function isBadToken(response: Response): boolean {
  return 'error' in response && response.error.message === BAD_TOKEN.message;
}

/** Whether a response only says that the call was put down, or is another process's now: its outcome is to come. */
export function goesOnElsewhere(response: Response): boolean {
  return 'error' in response && [CLOSING.message, BUSY.message].includes(response.error.message);
}
