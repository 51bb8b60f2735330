/**
 * The extension `io.modelcontextprotocol/tasks` of 2026-07-28 (SEP-2663): `tasks/get` with asks, result or error
 * in it, `tasks/update`, `tasks/cancel`.
 * https://github.com/modelcontextprotocol/ext-tasks
 */

import { invalidParams, isObject, type JsonObject } from '../../src/base/values.ts';
import type { Response, RpcError } from '../../src/call/journal/entries.ts';
import type { TaskView } from '../../src/call/task/tasks.ts';
import type { Services } from '../../src/handler/services.ts';
import { legacyTask } from '../tasks/legacy-wire.ts';
import { refusal, tasksOf, UNKNOWN } from '../tasks/refusal.ts';
import { EXTENSION } from '../tasks/wish.ts';
import { askOnWire, complete, errorOnWire } from './wire.ts';

/** The error of a request that needs the Tasks extension, from a client that did not declare it. */
export const MISSING: RpcError = {
  code: -32021,
  message: `Missing required client capability: ${EXTENSION}`,
  data: { requiredCapabilities: { extensions: { [EXTENSION]: {} } } },
};

/**
 * A `tasks/*` request.
 * @param canTake whether its client declares the extension
 */
export async function serveTask(
  services: Services,
  request: { readonly method: string; readonly params: JsonObject },
  principal: string | undefined,
  canTake: boolean,
): Promise<Response> {
  const { tasks } = services.engine;
  if (tasks === undefined) return { error: { code: -32601, message: 'Method not found' } };
  if (!canTake) return { error: MISSING };
  const { taskId, inputResponses } = request.params;
  if (typeof taskId !== 'string') return { error: UNKNOWN };
  try {
    if (request.method === 'tasks/get') {
      const view = await tasks.get(taskId, principal);
      return { result: { ...detailed(services, view), ...(await services.asking?.waiting(view)) } };
    }
    if (request.method === 'tasks/cancel') {
      // Has no effect on a task that has ended; its client gets the same reply.
      await tasks.cancel(taskId, principal);
      return { result: {} };
    }
    if (!isObject(inputResponses)) {
      return { error: invalidParams('inputResponses must be an object') };
    }
    await tasks.update(taskId, principal, inputResponses);
    return { result: {} };
  } catch (error) {
    return { error: refusal(services, error) };
  }
}

/** The result of a request whose call continues as a task. */
export async function taskResult(
  services: Services,
  taskId: string,
  principal: string | undefined,
): Promise<JsonObject> {
  const view = await tasksOf(services).get(taskId, principal);
  return { resultType: 'task', ...created(services, view) };
}

/** A task as its creation shows it: without asks and outcome. */
function created(services: Services, view: TaskView): JsonObject {
  const { response } = view;
  const own = legacyTask(view, services.settings.limits.taskPoll);
  const { statusMessage: _, ttl: ttlMs, pollInterval: pollIntervalMs, ...task } = own;
  const failure = response && 'error' in response && { statusMessage: response.error.message };
  return { ...task, ...failure, ttlMs, pollIntervalMs };
}

/** A task in the form of `tasks/get` and `notifications/tasks`. */
export function detailed(services: Services, view: TaskView): JsonObject {
  const task = created(services, view);
  const { status, asks, response, call } = view;
  if (status === 'input_required') {
    return { ...task, inputRequests: Object.fromEntries(asks.map((ask) => [ask.key, askOnWire(ask)])) };
  }
  if (status === 'cancelled' || response === undefined) return task;
  if ('result' in response) return { ...task, result: complete(call.method, response.result, undefined) };
  const request = { id: call.requestId, method: call.method, params: call.params };
  return { ...task, error: errorOnWire(response.error, request) };
}
