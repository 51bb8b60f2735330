/** The error of a request about a task that cannot be served: one sentence for every bad id. */

import { AwaitError } from '../../src/base/values.ts';
import type { RpcError } from '../../src/call/journal/entries.ts';
import { wireError } from '../../src/call/run/wire-error.ts';
import type { Tasks } from '../../src/call/task/tasks.ts';
import type { Services } from '../../src/handler/services.ts';

export const UNKNOWN: RpcError = { code: -32602, message: 'Unknown or expired taskId' };

/** Other failures in the sentences of calls, so that a failing store advises to send the request again. */
export function refusal({ settings }: Services, thrown: unknown): RpcError {
  const error = AwaitError.from(thrown);
  const { message, code } = error;
  if (code === 'bad-token' || code === 'bad-answer') settings.logger.warn(message, { code });
  else settings.logger.error(message, { code, cause: error.cause });
  return code === 'bad-token' ? UNKNOWN : wireError(error);
}

export function tasksOf({ engine }: Services): Tasks {
  if (engine.tasks === undefined) throw new AwaitError('internal', 'tasks without a store');
  return engine.tasks;
}
