/**
 * Tasks on the drafts of multi round-trip requests: `tasks/get`, `tasks/list` and `tasks/cancel` as 2025-11-25 has
 * them; `tasks/result` waits until a task is over or asks, and then has its asks; answers are a message of their own.
 */
import type { JsonObject } from '../../src/base/values.ts';
import type { RpcError } from '../../src/call/journal/entries.ts';
import type { AbortSignalLike } from '../../src/call/ports.ts';
import type { Tasks, TaskView } from '../../src/call/task/tasks.ts';
import type { Exchange } from '../session/exchange.ts';
import { relatedTo } from '../tasks/legacy-wire.ts';
import { refusal, UNKNOWN } from '../tasks/refusal.ts';
import { listTasks } from '../tasks/wanted.ts';
import { inDraftWords } from './call.ts';
import type { Dialect, GivenAnswers } from './dialect.ts';
import { type Responding, refusal as refused, type Served } from './served.ts';

const METHODS: ReadonlySet<string> = new Set(['tasks/get', 'tasks/list', 'tasks/result', 'tasks/cancel']);

export function isTaskMethod(method: string): boolean {
  return METHODS.has(method);
}

/** A `tasks/*` request; its failure is an error with the same sentence on every revision. */
export async function serveTask(tasks: Tasks, served: Served): Promise<Responding> {
  const { exchange, dialect, request, gone } = served;
  const { services, session } = exchange;
  const { taskPoll } = services.settings.limits;
  const { principal } = session;
  const { taskId, cursor } = request.params;
  if (request.method === 'tasks/list') return list(tasks, served, cursor);
  if (typeof taskId !== 'string') return refused(UNKNOWN);
  const final = (view: TaskView): Responding => ({
    kind: 'final',
    fields: dialect.complete(dialect.task(view, taskPoll)),
  });
  try {
    switch (request.method) {
      case 'tasks/get':
        return final(await tasks.get(taskId, principal));
      case 'tasks/cancel': {
        if (await tasks.cancel(taskId, principal)) return final(await tasks.get(taskId, principal));
        const { status } = await tasks.get(taskId, principal);
        return refused({
          code: -32602,
          message: `Invalid params: the task is ${status}, and cannot be cancelled`,
        });
      }
      default:
        services.engine.inWork.hold(gone, session);
        return await result(tasks, dialect, { taskId, principal, gone });
    }
  } catch (error) {
    return refused(refusal(services, error));
  } finally {
    services.engine.inWork.leave(gone);
  }
}

async function result(
  tasks: Tasks,
  dialect: Dialect,
  { taskId, principal, gone }: { taskId: string; principal: string | undefined; gone: AbortSignalLike },
): Promise<Responding> {
  const isOverOrAsks = ({ response, asks }: TaskView): boolean => response !== undefined || asks.length > 0;
  const view = await tasks.until(taskId, principal, isOverOrAsks, gone);
  if (view === undefined) return { kind: 'gone' };
  const { response, asks } = view;
  if (response === undefined) return { kind: 'final', fields: dialect.taskAsks(asks, taskId) };
  if ('error' in response) return { kind: 'final', fields: { error: inDraftWords(response.error) } };
  return { kind: 'final', fields: dialect.complete(relatedTo(taskId, response.result)) };
}

async function list(tasks: Tasks, { exchange, dialect }: Served, cursor: unknown): Promise<Responding> {
  const { services, session } = exchange;
  const listed = await listTasks(services, session, tasks, cursor);
  if ('error' in listed) return refused(listed.error);
  const { views, ...next } = listed;
  const { taskPoll } = services.settings.limits;
  const known = views.map((view) => dialect.task(view, taskPoll));
  return { kind: 'final', fields: dialect.complete({ tasks: known, ...next }) };
}

/**
 * Records the answers to a task; they are in the store when this resolves. Bad, missing or unknown ones change nothing.
 * @returns the reason if they are refused
 */
export async function answerTask(
  tasks: Tasks,
  { services, session }: Exchange,
  taskId: string | undefined,
  { results, errors = {} }: GivenAnswers,
): Promise<RpcError | undefined> {
  if (taskId === undefined) return UNKNOWN;
  const { principal } = session;
  try {
    // The next `tasks/result` asks again for the open asks, so the key may stay.
    await tasks.update(taskId, principal, results, 'kept');
    if (Object.keys(errors).length === 0) return undefined;
    const { asks } = await tasks.get(taskId, principal);
    for (const { key } of asks) {
      const error = Object.hasOwn(errors, key) ? errors[key] : undefined;
      if (error !== undefined) await services.engine.deliver(taskId, { principal }, key, { error });
    }
    return undefined;
  } catch (error) {
    return refusal(services, error);
  }
}

/** The response to answers that were recorded, on drafts that have one. */
export function acknowledgement(dialect: Dialect, taskId: string): JsonObject {
  return dialect.complete(relatedTo(taskId));
}
