/**
 * A task in the words of the revisions with sessions: 2025-11-25, and the drafts that build on it.
 * https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks
 */

import { AwaitError, isObject, type JsonObject, objectOf } from '../../src/base/values.ts';
import type { TaskStatus, TaskView } from '../../src/call/task/tasks.ts';
import type { TaskChoice, TaskRequest } from '../../src/handler/options.ts';
import type { Services } from '../../src/handler/services.ts';
import type { HostInstance } from '../../src/host/instance.ts';
import { markOf } from './marks.ts';
import { chosenBy, makesTasks, taskRequest } from './wish.ts';

/** The `_meta` entry that names a message's task. */
const RELATED_TASK = 'io.modelcontextprotocol/related-task';

/** The capability of a server whose tool calls may become tasks. */
export const TASKS_CAPABILITY: JsonObject = { list: {}, cancel: {}, requests: { tools: { call: {} } } };

const MESSAGES: Readonly<Record<TaskStatus, string>> = {
  working: 'The task is being worked on.',
  input_required: 'Input is required: call tasks/result to get the requests.',
  completed: 'The task is completed: call tasks/result to get its result.',
  failed: 'The task failed.',
  cancelled: 'The task was cancelled.',
};

/** A type, since an interface has no index signature, and the wire wants one. */
export type LegacyTask = {
  readonly taskId: string;
  readonly status: TaskStatus;
  readonly statusMessage: string;
  /** ISO 8601, here and below. */
  readonly createdAt: string;
  readonly lastUpdatedAt: string;
  /** How long it lives from its creation on, in milliseconds. */
  readonly ttl: number;
  /** When its client should look again, in milliseconds. */
  readonly pollInterval: number;
};

/** @param pollInterval `limits.taskPoll` */
export function legacyTask(view: TaskView, pollInterval: number): LegacyTask {
  const { id, status, created, updated, expires, response } = view;
  const isFailure = status === 'failed' && response !== undefined && 'error' in response;
  return {
    taskId: id,
    status,
    statusMessage: isFailure ? response.error.message : MESSAGES[status],
    createdAt: new Date(created).toISOString(),
    lastUpdatedAt: new Date(updated).toISOString(),
    ttl: expires - created,
    pollInterval,
  };
}

/** A task's response or notification, with the task's id in its `_meta`. */
export function relatedTo(taskId: string, message: JsonObject = {}): JsonObject {
  return { ...message, _meta: { ...objectOf(message._meta), [RELATED_TASK]: { taskId } } };
}

/** The task that a message names; undefined without one. */
export function relatedTask({ _meta }: JsonObject): string | undefined {
  const related = isObject(_meta) ? _meta[RELATED_TASK] : undefined;
  return isObject(related) && typeof related.taskId === 'string' ? related.taskId : undefined;
}

/** Only calls of tools may be tasks; of other requests the wish is passed over, which SDK v1 would refuse. */
export function withoutTask(method: string, params: JsonObject): JsonObject {
  if (params.task === undefined || !/^(tools|prompts|resources|completion)\//.test(method)) return params;
  const { task, ...rest } = params;
  return rest;
}

/** Whether a server runs tasks of its own: its clients then deal with those alone. */
export function hasOwnTasks({ capabilities }: JsonObject): boolean {
  return isObject(capabilities) && isObject(capabilities.tasks);
}

/** Whether this package runs the tasks of a session's clients. */
export function runsTasks(services: Services, initialized: JsonObject): boolean {
  return makesTasks(services, initialized) && !hasOwnTasks(initialized);
}

/** The result of `tools/list` where this package runs the tasks. */
export function withTaskSupport(
  services: Services,
  result: JsonObject,
  revision: string,
  instance: Pick<HostInstance, 'forbids'>,
): JsonObject {
  if (!Array.isArray(result.tools)) return result;
  const marked = (tool: unknown): unknown => {
    if (!isObject(tool)) return tool;
    const mark = markOf(tool, instance);
    const request = taskRequest('tools/call', { name: tool.name }, revision, undefined);
    const isNever = (choiceIn(services, request) ?? mark.when) === 'never';
    const taskSupport = mark.support ?? (isNever ? 'forbidden' : 'optional');
    return { ...tool, execution: { ...objectOf(tool.execution), taskSupport } };
  };
  return { ...result, tools: result.tools.map(marked) };
}

/** A list is not lost for an option that does not expect a call without arguments. */
function choiceIn(services: Services, request: TaskRequest): TaskChoice | undefined {
  try {
    return chosenBy(services, request);
  } catch (error) {
    services.settings.logger.warn(AwaitError.from(error).message, { name: request.params.name });
    return undefined;
  }
}
