/** What a client gets to read whose request about a task cannot be served: one sentence for every bad id. */
import type { Response } from '../../src/call/journal.ts';
import { AwaitError } from '../../src/error.ts';
import type { Services } from '../services.ts';

type RpcError = Extract<Response, { error: unknown }>['error'];

export const UNKNOWN: RpcError = { code: -32602, message: 'Unknown or expired taskId' };

/** @throws what is no answer to a client */
export function refusal(services: Services, thrown: unknown): RpcError {
  const error = AwaitError.from(thrown);
  if (error.code !== 'bad-token' && error.code !== 'bad-answer') throw error;
  services.settings.logger.warn(error.message, { code: error.code });
  return error.code === 'bad-token' ? UNKNOWN : { code: -32602, message: `Invalid params: ${error.message}` };
}
