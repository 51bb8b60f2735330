/**
 * `notifications/tasks` on a `subscriptions/listen` stream: the SDK serves the stream and its own kinds of
 * notifications; this file adds one for each change of a task that the client listens to.
 */

import { ACKNOWLEDGED, hasCode, isObject, type JsonObject, objectOf } from '../../src/base/values.ts';
import type { AbortSignalLike } from '../../src/call/ports.ts';
import type { TaskView } from '../../src/call/task/tasks.ts';
import type { GuardedWriter, Reply } from '../../src/doors/http/exchange.ts';
import type { Services } from '../../src/handler/services.ts';
import { sseMessage } from '../../src/stream/sse.ts';
import { detailed } from './tasks.ts';

const SUBSCRIPTION = 'io.modelcontextprotocol/subscriptionId';
/** Tasks of one subscription. */
const MOST = 100;

/** Whether a `subscriptions/listen` speaks of tasks, however it does. */
export function listensToTasks({ method, params }: JsonObject): boolean {
  const isListening = method === 'subscriptions/listen' && isObject(params) && isObject(params.notifications);
  return isListening && (params.notifications as JsonObject).taskIds !== undefined;
}

/** The tasks that a request names, each once; undefined if that is not a list of ids. */
export function tasksListenedTo({ params }: JsonObject): readonly string[] | undefined {
  const { taskIds } = (params as JsonObject).notifications as JsonObject;
  if (!Array.isArray(taskIds) || !taskIds.every((id) => typeof id === 'string')) return undefined;
  return [...new Set<string>(taskIds)].slice(0, MOST);
}

/** The same request without them: the SDK does not know of tasks. */
export function withoutTaskIds(body: JsonObject): JsonObject {
  const params = body.params as JsonObject;
  const { taskIds: _ids, ...notifications } = params.notifications as JsonObject;
  return { ...body, params: { ...params, notifications } };
}

/** Adds changes of tasks to the stream of a reply; tasks of other callers are left out of the acknowledgement. */
export async function alsoTelling(
  services: Services,
  reply: Reply,
  ids: readonly string[],
  principal: string | undefined,
  subscription: unknown,
): Promise<Reply> {
  const { body } = reply;
  if (typeof body !== 'function') return reply;
  const views = await Promise.all(ids.map((id) => viewOf(services, id, principal)));
  const known = views.filter((view) => view !== undefined);
  return {
    ...reply,
    body: (writer) => {
      const gone = new AbortController();
      writer.onClose(() => gone.abort());
      const tell = (view: TaskView): void => {
        const params = { ...detailed(services, view), _meta: { [SUBSCRIPTION]: subscription } };
        writer.write(sseMessage({ jsonrpc: '2.0', method: 'notifications/tasks', params }));
      };
      const agreed = known.map(({ id }) => id);
      const followAll = (): Promise<unknown> =>
        Promise.all(known.map((view) => follow(services, view, principal, gone.signal, tell)));
      body(sdkSide(writer, agreed, subscription, followAll));
    },
  };
}

async function viewOf(
  services: Services,
  id: string,
  principal: string | undefined,
): Promise<TaskView | undefined> {
  try {
    return await services.engine.tasks?.get(id, principal);
  } catch (error) {
    if (hasCode(error, 'bad-token')) return undefined;
    throw error;
  }
}

/** Sends a task's state, and each change of it; it never rejects. */
async function follow(
  services: Services,
  from: TaskView,
  principal: string | undefined,
  gone: AbortSignalLike,
  tell: (view: TaskView) => void,
): Promise<void> {
  const { engine, settings } = services;
  try {
    for (let known: TaskView | undefined = from; known !== undefined; ) {
      tell(known);
      if (known.response !== undefined) return;
      const before: string = shape(known);
      known = await engine.tasks?.until(from.id, principal, (view) => shape(view) !== before, gone);
    }
  } catch (error) {
    if (!hasCode(error, 'bad-token'))
      settings.logger.warn('the notification of a task could not be sent', { task: from.id, error });
  }
}

/** The parts of a task whose change is reported. */
function shape({ status, asks }: TaskView): string {
  return JSON.stringify([status, asks.map(({ key }) => key)]);
}

/**
 * The SDK's side of the stream: the tasks are added to its first event, the acknowledgement; its last event, which ends
 * a subscription that is empty in the SDK's view, waits until all tasks have ended.
 */
function sdkSide(
  writer: GuardedWriter,
  taskIds: readonly string[],
  subscription: unknown,
  onTold: () => Promise<unknown>,
): GuardedWriter {
  let rest = '';
  let last = '';
  let over: Promise<unknown> | undefined;
  const take = (block: string): boolean => {
    const message = objectOf(JSON.parse(/^data: (.*)$/m.exec(block)?.[1] ?? '0'));
    if (message.method === ACKNOWLEDGED && over === undefined) {
      const params = objectOf(message.params);
      const notifications = { ...objectOf(params.notifications), taskIds };
      const keepsUp = writer.write(sseMessage({ ...message, params: { ...params, notifications } }));
      over = onTold();
      return keepsUp;
    }
    if (message.id === subscription && message.method === undefined) {
      last = `${block}\n\n`;
      return true;
    }
    return writer.write(`${block}\n\n`);
  };
  return {
    get unsent() {
      return writer.unsent;
    },
    get behind() {
      return writer.behind;
    },
    breakOff: () => writer.breakOff(),
    onDrain: (fn) => writer.onDrain(fn),
    onClose: (fn) => writer.onClose(fn),
    destroy: () => writer.destroy(),
    write: (text) => {
      const blocks = (rest + text).split('\n\n');
      rest = blocks.pop() ?? '';
      return blocks.map(take).every(Boolean);
    },
    end: () => {
      void (over ?? Promise.resolve()).then(() => {
        if (last !== '') writer.write(last);
        writer.end();
      });
    },
  };
}
