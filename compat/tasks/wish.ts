/** Which calls become tasks, and when: by the option `tasks`, the tool's declaration, and the client's capabilities. */

import { defined, isObject, type JsonObject } from '../../src/base/values.ts';
import { CLIENT_ROUNDS } from '../../src/call/frame/turn.ts';
import type { TaskWish } from '../../src/call/journal/entries.ts';
import type { TaskChoice, TaskRequest } from '../../src/handler/options.ts';
import type { Services } from '../../src/handler/services.ts';
import type { TaskMark } from './marks.ts';

/** The Tasks extension of 2026-07-28. */
export const EXTENSION = 'io.modelcontextprotocol/tasks';

/** Whether a client or a server declares the Tasks extension. */
export function declaresTasks({ extensions }: JsonObject): boolean {
  return isObject(extensions) && isObject(extensions[EXTENSION]);
}

/**
 * Whether this package makes tasks of a server's calls: by the option `tasks`, else if the server declares tasks.
 * @param initialized what the server declares
 */
export function makesTasks({ engine, settings }: Services, { capabilities }: JsonObject): boolean {
  if (engine.tasks === undefined || settings.tasks === 'never') return false;
  if (settings.tasks !== undefined) return true;
  return isObject(capabilities) && (isObject(capabilities.tasks) || declaresTasks(capabilities));
}

/** The choice of the option `tasks` for a call; undefined where its client and its tool decide. */
export function chosenBy(
  { settings: { tasks } }: Services,
  request: TaskRequest,
): Exclude<TaskChoice, 'optional'> | undefined {
  const choice = tasks === 'never' ? tasks : tasks?.(request);
  return choice === 'optional' ? undefined : choice;
}

export interface AskedTask {
  readonly request: TaskRequest;
  readonly mark: TaskMark;
  /** Whether the client can take a task in reply to this request. */
  readonly canTake: boolean;
  /** Whether the client asked for one. */
  readonly isWanted: boolean;
  /** The owner of the list of tasks that it is in, if any. */
  readonly owner?: string;
}

/** `undefined`: no task. `required`: the tool runs as a task alone, and the client cannot take one. */
export function wishFor(services: Services, asked: AskedTask): TaskWish | 'required' | undefined {
  const { request, mark, canTake, isWanted, owner } = asked;
  if (services.engine.tasks === undefined) return undefined;
  if (!canTake) return mark.support === 'required' ? 'required' : undefined;
  const must = mark.support === 'required' || isWanted;
  const when = whenFor(chosenBy(services, request), mark, must);
  if (when === undefined) return undefined;
  return {
    when,
    after: services.settings.limits.taskAfter,
    rounds: CLIENT_ROUNDS,
    always: must,
    ...defined({ owner }),
    ...(mark.isOwn && { isOwn: true }),
  };
}

function whenFor(
  chosen: Exclude<TaskChoice, 'optional'> | undefined,
  mark: TaskMark,
  must: boolean,
): TaskWish['when'] | undefined {
  const when = chosen ?? mark.when;
  if (when !== undefined && when !== 'never') return when;
  if (must) return 'now';
  if (when === 'never' || mark.support === 'forbidden') return undefined;
  return mark.support === 'optional' ? 'now' : 'late';
}

/** The argument of the option `tasks`. */
export function taskRequest(
  method: string,
  params: JsonObject,
  revision: string,
  principal: string | undefined,
): TaskRequest {
  return { method, params, revision, ...defined({ principal }) };
}
