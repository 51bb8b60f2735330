/**
 * Tasks of 2025-11-25: a client's `params.task`, `tasks/get`, `tasks/result`, `tasks/list`, `tasks/cancel`, and a
 * notification of each change. A server that has tasks of its own keeps them, and nothing here is in its way.
 * https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks
 */

import {
  badToken,
  hasCode,
  type JsonObject,
  LONG,
  memoryOf,
  objectOf,
  replyFor,
} from '../../src/base/values.ts';
import type { Response } from '../../src/call/journal/entries.ts';
import type { AbortSignalLike } from '../../src/call/ports.ts';
import type { Tasks, TaskView } from '../../src/call/task/tasks.ts';
import type { Services } from '../../src/handler/services.ts';
import type { HostInstance } from '../../src/host/instance.ts';
import type { Session } from '../session/session.ts';
import { listening, type RpcRequest } from '../session/start.ts';
import { legacyTask, relatedTo, runsTasks, TASKS_CAPABILITY } from './legacy-wire.ts';
import { refusal, tasksOf } from './refusal.ts';
import { listTasks } from './wanted.ts';

const METHODS: ReadonlySet<string> = new Set(['tasks/get', 'tasks/result', 'tasks/list', 'tasks/cancel']);

/** @param times how often the reply should contain the message by then */
type SendAsk = (message: JsonObject, times: number) => void;

/** Whether a session's calls can be tasks of ours. */
export function hasTasks(services: Services, session: Session, instance: HostInstance): boolean {
  const isSpoken = session.revision === session.client.protocolVersion && session.can('tasks');
  return isSpoken && runsTasks(services, instance.initialized);
}

export function isSessionTaskMethod(method: string): boolean {
  return METHODS.has(method);
}

/** The result of `initialize` with the tasks capability of mcp-await. */
export function withTaskCapability(result: JsonObject): JsonObject {
  const capabilities = objectOf(result.capabilities);
  return { ...result, capabilities: { ...capabilities, tasks: TASKS_CAPABILITY } };
}

/** The result of a call that became a task; its client gets each change on the session's standing stream. */
export async function taskCreated(services: Services, session: Session, taskId: string): Promise<Response> {
  const tasks = tasksOf(services);
  const view = await tasks.get(taskId, session.principal);
  void tellChanges(services, session, tasks, view).catch((error: unknown) => {
    if (!hasCode(error, 'bad-token'))
      services.settings.logger.warn('the changes of a task could not be sent', { error });
  });
  return { result: { task: taskOnWire(services, view) } };
}

async function tellChanges(
  services: Services,
  session: Session,
  tasks: Tasks,
  from: TaskView,
): Promise<void> {
  for (let known: TaskView = from; known.response === undefined; ) {
    const { status } = known;
    const next = await tasks.until(
      known.id,
      session.principal,
      (view) => view.status !== status,
      session.over,
    );
    if (next === undefined) return;
    known = next;
    void session.standing.send({
      jsonrpc: '2.0',
      method: 'notifications/tasks/status',
      params: taskOnWire(services, known),
    });
  }
}

/**
 * A `tasks/*` request of a session.
 * @param send sends an ask, once for each time that an owner of the task wrote it
 * @param gone a signal that fires when the client disconnects
 * @param sent settles once the reply is on its way, or never will be
 * @param memory that the request takes, in bytes
 */
export async function serveSessionTask(
  services: Services,
  session: Session,
  { method, params }: RpcRequest,
  send: SendAsk,
  gone: AbortSignalLike,
  sent: Promise<unknown> | undefined,
  memory?: number,
): Promise<Response> {
  const tasks = tasksOf(services);
  const { principal } = session;
  try {
    if (method === 'tasks/list') return await list(services, session, tasks, params.cursor);
    const { taskId } = params;
    if (typeof taskId !== 'string') throw badToken('taskId is not a string');
    if (method === 'tasks/get') {
      const view = await tasks.get(taskId, principal);
      return { result: { ...taskOnWire(services, view), ...(await services.asking?.waiting(view)) } };
    }
    if (method === 'tasks/cancel') return await cancel(services, tasks, taskId, principal);
    services.engine.hold(gone, session, memory);
    return await result(tasks, taskId, principal, send, gone, sent);
  } catch (error) {
    return { error: refusal(services, error) };
  } finally {
    services.engine.release(gone);
  }
}

async function list(services: Services, session: Session, tasks: Tasks, cursor: unknown): Promise<Response> {
  const listed = await listTasks(services, session, tasks, cursor);
  if ('error' in listed) return listed;
  const { views, ...next } = listed;
  return { result: { tasks: views.map((view) => taskOnWire(services, view)), ...next } };
}

async function cancel(
  services: Services,
  tasks: Tasks,
  taskId: string,
  principal: string | undefined,
): Promise<Response> {
  const isCancelled = await tasks.cancel(taskId, principal);
  const view = await tasks.get(taskId, principal);
  if (isCancelled) return { result: taskOnWire(services, view) };
  return { error: { code: -32602, message: `Cannot cancel a task that is ${view.status}` } };
}

/** Waits until the task has ended; sends each of its asks as often as owners of the task wrote it. */
async function result(
  tasks: Tasks,
  taskId: string,
  principal: string | undefined,
  send: SendAsk,
  gone: AbortSignalLike,
  sent: Promise<unknown> | undefined,
): Promise<Response> {
  const asked = new Map<string, number>();
  let response: Response | undefined;
  let isLong = false;
  await tasks.until(
    taskId,
    principal,
    ({ asks, response: came }) => {
      for (const { key, method, params, progress, times } of asks) {
        if (asked.get(key) === times) continue;
        asked.set(key, times);
        const id = `${taskId}/${key}`;
        const own = progress === undefined ? params : listening(params, id);
        send({ jsonrpc: '2.0', id, method, params: relatedTo(taskId, own) }, times);
      }
      isLong = memoryOf(came) > LONG;
      if (!isLong) response = came;
      return came !== undefined;
    },
    gone,
  );
  // Many may wait for it, or for others like it: each reads it when it is its turn.
  if (isLong) {
    await replyFor(principal, sent);
    if (!gone.aborted) ({ response } = await tasks.get(taskId, principal));
  }
  if (response === undefined) throw badToken(`the wait for task ${taskId} has ended`);
  if (!('result' in response)) return response;
  return { result: relatedTo(taskId, response.result) };
}

function taskOnWire({ settings }: Services, view: TaskView): JsonObject {
  return legacyTask(view, settings.limits.taskPoll);
}
