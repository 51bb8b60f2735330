/** A client's own wish for a task (`params.task`, on 2025-11-25 and on the drafts that build on it), and its list of them. */

import {
  defined,
  hasCode,
  invalidParams,
  isObject,
  type JsonObject,
  objectOf,
} from '../../src/base/values.ts';
import type { RpcError, TaskWish } from '../../src/call/journal/entries.ts';
import type { Tasks, TaskView } from '../../src/call/task/tasks.ts';
import type { Services } from '../../src/handler/services.ts';
import type { Session } from '../session/session.ts';
import type { TaskMark } from './marks.ts';
import { chosenBy, taskRequest, wishFor } from './wish.ts';

/** Milliseconds, whatever less a client asks for: a task must be there to be asked about (2025-11-25 lets us override a ttl). */
const LEAST_LIFE = 1_000;
/** Tasks in one page of a list. */
const PAGE = 50;
/** A row, a position in it and which of the row's names, as `TaskIndex` writes them. */
const CURSOR = /^[0-9a-z]{1,11}\.[0-9a-z]{1,11}\.[0-9a-z]$/;

export interface Wanted {
  readonly revision: string;
  /** Without `task`. */
  readonly params: JsonObject;
  readonly task: unknown;
  readonly mark: TaskMark;
}

/** Whether and how a tool call becomes a task, by its client's request; or the error if it cannot. */
export function wantedTask(
  services: Services,
  session: Session,
  { revision, params, task, mark }: Wanted,
): { readonly wish?: TaskWish; readonly ttl?: number } | { readonly error: RpcError } {
  const name = String(params.name ?? '');
  const { ttl } = objectOf(task);
  const isSound =
    task === undefined || (isObject(task) && (ttl === undefined || ttl === null || isLife(ttl)));
  if (!isSound) return { error: invalidParams('task must be { ttl }, in milliseconds') };
  const isWanted = task !== undefined;
  const request = taskRequest('tools/call', params, revision, session.principal);
  const isNever = mark.support !== 'required' && (chosenBy(services, request) ?? mark.when) === 'never';
  if (isWanted && (isNever || mark.support === 'forbidden'))
    return notAsTask(`${name} cannot be run as a task`);
  const wish = wishFor(services, { request, mark, canTake: isWanted, isWanted, owner: ownerOf(session) });
  if (wish === 'required')
    return notAsTask(`${name} runs as a task alone: send params.task with the request`);
  return { ...defined({ wish }), ...(isLife(ttl) && { ttl: Math.max(ttl, LEAST_LIFE) }) };
}

function notAsTask(why: string): { readonly error: RpcError } {
  return { error: { code: -32601, message: `Method not found: ${why}` } };
}

function isLife(ttl: unknown): ttl is number {
  return typeof ttl === 'number' && Number.isFinite(ttl) && ttl > 0;
}

/** The owner of a task's list: its caller, or for anonymous callers its session. */
function ownerOf({ principal, name }: Session): string {
  return principal ?? name;
}

/** A page of a caller's tasks, the newest first. */
export async function listTasks(
  services: Services,
  session: Session,
  tasks: Tasks,
  cursor: unknown,
): Promise<
  { readonly views: readonly TaskView[]; readonly nextCursor?: string } | { readonly error: RpcError }
> {
  if (cursor !== undefined && (typeof cursor !== 'string' || !CURSOR.test(cursor))) {
    return { error: invalidParams('cursor must be one that tasks/list gave') };
  }
  const page = await services.taskIndex?.list(ownerOf(session), cursor, PAGE);
  const found = await Promise.all((page?.ids ?? []).map((id) => known(tasks, id, session.principal)));
  return {
    views: found.filter((view) => view !== undefined),
    ...(page?.next !== undefined && { nextCursor: page.next }),
  };
}

/** Expired tasks are skipped in a list. */
async function known(tasks: Tasks, id: string, principal: string | undefined): Promise<TaskView | undefined> {
  try {
    return await tasks.get(id, principal);
  } catch (error) {
    if (hasCode(error, 'bad-token')) return undefined;
    throw error;
  }
}
