/**
 * Calls of which a server of 2026-07-28 made tasks (SEP-2663), as rounds: the task's id is the `requestState` of the next
 * one. So it is in the call's log before the task is waited for; any process waits on, and no second task begins.
 * What the task asks is asked as the asks of any round; its client sees a call, which may be a task of this package.
 */
import { isObject, type JsonObject, objectOf, textOf } from '../base/values.ts';
import { pause } from '../client/message.ts';
import { RELEASED } from '../client/modern/dialect.ts';
import { outcomeOf } from '../client/round-trips/reading.ts';
import { pollInterval } from '../client/round-trips/task.ts';

const STATE = 'mcp-await/task:';

/** The task that the params of a round name; undefined of another one. */
export function taskOf({ requestState }: JsonObject): string | undefined {
  return typeof requestState === 'string' && requestState.startsWith(STATE)
    ? requestState.slice(STATE.length)
    : undefined;
}

/** A response that is a new task, as a round that asks nothing; another one as it is. */
export function asRound(response: JsonObject): JsonObject {
  const { result } = response;
  const isTask = isObject(result) && result.resultType === 'task' && typeof result.taskId === 'string';
  return isTask ? { result: roundOf(String(result.taskId), {}) } : response;
}

/**
 * Waits until a task is over or asks.
 *
 * @param given the answers to what it asked before
 * @param request sends a request about the task
 * @param signal aborts when the client cancels the call, or the link closes
 */
export async function followTask(
  taskId: string,
  given: unknown,
  request: (method: string, params: JsonObject) => Promise<JsonObject>,
  signal: AbortSignal,
): Promise<JsonObject> {
  const answers = objectOf(given);
  if (Object.keys(answers).length > 0) {
    const taken = await request('tasks/update', { taskId, inputResponses: answers });
    if ('error' in taken) return taken;
  }
  for (;;) {
    const { result: task, error } = await request('tasks/get', { taskId });
    if (!isObject(task)) return { error };
    if (task.status === 'cancelled') {
      const { statusMessage: message = 'The task was cancelled' } = task;
      return { error: { code: -32000, message: textOf(message) } };
    }
    if (task.status === 'completed' || task.status === 'failed') return outcomeOf(task);
    const asks = Object.entries(objectOf(task.inputRequests));
    // It may list for a while what was answered.
    const open = asks.filter(([key]) => !Object.hasOwn(answers, key));
    if (task.status === 'input_required' && open.length > 0)
      return { result: roundOf(taskId, Object.fromEntries(open)) };
    await pause(pollInterval(task[RELEASED.tasks.interval]), signal);
    signal.throwIfAborted();
  }
}

function roundOf(taskId: string, inputRequests: JsonObject): JsonObject {
  return { resultType: 'input_required', inputRequests, requestState: STATE + taskId };
}
