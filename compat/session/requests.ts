/** Handles a POST of a known session: runs its requests, and delivers its notifications and answers. */

import { isObject, type JsonObject, LoopTurns, nextTurn } from '../../src/base/values.ts';
import { isMeta, isRpcError } from '../../src/call/ask/meta.ts';
import type { Begun } from '../../src/call/engine.ts';
import type { Response } from '../../src/call/journal/entries.ts';
import type { Outcome } from '../../src/call/ports.ts';
import { DisconnectSignal } from '../../src/doors/http/disconnect-signal.ts';
import type { Reply } from '../../src/doors/http/exchange.ts';
import { isRequestId, messagesOf, noMessage, rpcError } from '../../src/doors/http/reply.ts';
import type { Services } from '../../src/handler/services.ts';
import type { HostInstance } from '../../src/host/instance.ts';
import { failure, undelivered } from '../failure.ts';
import { withoutTask, withTaskSupport } from '../tasks/legacy-wire.ts';
import type { TaskMark } from '../tasks/marks.ts';
import { hasTasks, isSessionTaskMethod, serveSessionTask, taskCreated } from '../tasks/session.ts';
import { wantedTask } from '../tasks/wanted.ts';
import type { Session } from './session.ts';
import type { RpcRequest, Source } from './start.ts';
import type { CallStream } from './stream.ts';

/**
 * Reserves the ids of requests, all of them or none.
 * @returns a request whose id is in use by a running one
 * @throws AwaitError `limit`
 */
export function reserve(session: Session, requests: readonly RpcRequest[]): RpcRequest | undefined {
  const reserved: RpcRequest[] = [];
  for (const request of requests) session.state.check(request);
  for (const request of requests) if (session.reserve(request.id)) reserved.push(request);
  const twice = requests.find((request) => !reserved.includes(request));
  if (twice !== undefined) for (const { id } of reserved) session.release(id);
  return twice;
}

export function inWork({ id }: RpcRequest): Reply {
  return rpcError(400, -32600, 'Invalid Request: a request with this id is in work', id);
}

/**
 * Delivers the notifications and answers of a body; an answer is in the store when this resolves.
 * @returns a refusal if an answer matches no open ask: it must not be acknowledged
 */
export async function take(
  services: Services,
  session: Session,
  messages: readonly JsonObject[],
): Promise<Reply | undefined> {
  let refusal: Reply | undefined;
  for (const message of messages) {
    if (isRequest(message)) continue;
    // An answer may take a tenth of a second to check.
    if (messages.length > 1) await nextTurn();
    if (typeof message.method === 'string') await session.notified(message);
    else if (!(await session.answer(message))) {
      services.settings.logger.warn('an answer came to an ask that is not open here', { id: message.id });
      refusal = undelivered(services, message.id);
    }
  }
  return refusal;
}

export interface RunningIn {
  /** The instance to run in; undefined for a new one. */
  readonly instance: HostInstance | undefined;
  /** The session's. */
  readonly shared: HostInstance;
  readonly source: Source;
  /** The stream for its notifications and asks. */
  readonly stream: CallStream;
}

export interface Work {
  readonly request: RpcRequest;
  /** Its outcome, once its changes to the session are stored for all processes, and its id is free. */
  readonly ended: Promise<Outcome>;
}

/** Each request of an array may need a server of its own, and many arrays may come at once. */
const turns = new LoopTurns();

/** Starts requests of one body, in their order. */
export function startAll<T>(
  { principal }: Session,
  requests: readonly RpcRequest[],
  start: (request: RpcRequest) => Promise<T>,
): Promise<T[]> {
  return Promise.all(
    requests.map(async (request, nth) => {
      if (nth > 0) await turns.next(1, principal);
      return start(request);
    }),
  );
}

/** Runs a request whose id is reserved. */
export async function run(
  services: Services,
  session: Session,
  given: RpcRequest,
  running: RunningIn,
): Promise<Work> {
  const { instance, shared, source, stream } = running;
  const isAmongTasks = hasTasks(services, session, shared);
  const isPassedOver = isAmongTasks && given.method !== 'tools/call';
  const request = isPassedOver ? { ...given, params: withoutTask(given.method, given.params) } : given;
  const { outcome } = isAmongTasks
    ? await runAmongTasks(services, session, request, running)
    : session.start(request, instance, source, stream);
  const ended = outcome.then(async (came) => {
    const settled = session.settled();
    if (settled !== undefined) await settled;
    session.release(request.id);
    return came;
  });
  return { request, ended };
}

type StartedRequest = Pick<Begun, 'outcome'>;

/** Runs a request on a revision with tasks. If it cannot be started, its client gets the error as its response. */
async function runAmongTasks(
  services: Services,
  session: Session,
  request: RpcRequest,
  running: RunningIn,
): Promise<StartedRequest> {
  try {
    const { method, params } = request;
    const mark =
      method === 'tools/call'
        ? services.marks.of(session.principal, String(params.name), running.shared)
        : undefined;
    return startAmongTasks(services, session, request, running, mark instanceof Promise ? await mark : mark);
  } catch (thrown) {
    return { outcome: Promise.resolve(failure(services)(thrown)) };
  }
}

/** Starts a request about a task, a call that becomes one, or neither. @param mark of a call's tool */
function startAmongTasks(
  services: Services,
  session: Session,
  request: RpcRequest,
  { instance, shared, source, stream }: RunningIn,
  mark: TaskMark | undefined,
): StartedRequest {
  const { method, params } = request;
  const responded = (response: Promise<Response>): StartedRequest => ({
    outcome: response.then((came): Outcome => ({ kind: 'responded', response: came })),
  });
  if (isSessionTaskMethod(method)) {
    const send = (message: JsonObject): void => void stream.send(message);
    return untilCancelled(services, session, request, (gone) =>
      serveSessionTask(services, session, request, send, gone, stream.sent, source.memory),
    );
  }
  if (method === 'tools/list') {
    const { outcome } = session.start(request, instance, source, stream);
    return {
      outcome: outcome.then((came): Outcome => {
        if (came.kind !== 'responded' || !('result' in came.response)) return came;
        services.marks.learn(session.principal, came.response.result, shared);
        return {
          ...came,
          response: { result: withTaskSupport(services, came.response.result, session.revision, shared) },
        };
      }),
    };
  }
  if (mark === undefined) return session.start(request, instance, source, stream);
  const { task, ...own } = params;
  const wanted = wantedTask(services, session, { revision: session.revision, params: own, task, mark });
  if ('error' in wanted) return responded(Promise.resolve({ error: wanted.error }));
  if (wanted.wish === undefined) return session.start(request, instance, source, stream);
  // The client follows a task and gets its asks there, since this revision has no rounds before it.
  const wish = { ...wanted.wish, when: 'now' as const };
  const { outcome } = session.startTask({ ...request, params: own }, instance, source, wish, wanted.ttl);
  const created = outcome.then(async (came): Promise<Outcome> => {
    if (came.kind !== 'task') return came;
    return { kind: 'responded', response: await taskCreated(services, session, came.taskId) };
  });
  return { outcome: created.catch(failure(services)) };
}

/** A request that waits for a task, which its client may cancel without the task. */
function untilCancelled(
  services: Services,
  session: Session,
  { id }: RpcRequest,
  serve: (gone: DisconnectSignal) => Promise<Response>,
): StartedRequest {
  const gone = new DisconnectSignal();
  session.over.addEventListener('abort', gone.fire, { once: true });
  const served = serve(gone).then((response): Outcome => ({ kind: 'responded', response }));
  const outcome = served.catch(failure(services)).then((came): Outcome => {
    session.over.removeEventListener('abort', gone.fire);
    return gone.aborted ? { kind: 'gone' } : came;
  });
  session.keep(id, {
    callId: `request ${String(id)}`,
    outcome,
    answer: async () => false,
    report: () => false,
    cancel: gone.fire,
  });
  return { outcome };
}

// --- first checks of messages ---

/** Arrays of messages came with one revision, and went with the next. */
export function takesBatches(session: Session): boolean {
  return session.isKnown && session.can('batches');
}

/** Refuses a body that is neither a message nor an array of messages. */
export function refuseMessages(body: unknown): Reply | undefined {
  const messages = messagesOf(body);
  if (messages.length > 0 && messages.every(isMessage)) return undefined;
  return noMessage(body);
}

/** Whether an `Accept` header takes a media type. */
export function accepts(accept: string, type: string): boolean {
  const [group] = type.split('/');
  const taken = accept.toLowerCase();
  return taken.includes(type) || taken.includes('*/*') || taken.includes(`${group}/*`);
}

export function isMessage(value: unknown): value is JsonObject {
  if (!isObject(value) || value.jsonrpc !== '2.0') return false;
  const isResponse = 'result' in value || 'error' in value;
  if (typeof value.method === 'string')
    return (
      !isResponse &&
      (value.params === undefined || (isObject(value.params) && isMeta(value.params._meta))) &&
      (value.id === undefined || isRequestId(value.id))
    );
  if (!isRequestId(value.id) || !isResponse) return false;
  // A response has a result or an error, not both; the code that asked checks the result's content.
  const { result, error } = value;
  if (error !== undefined) return result === undefined && isRpcError(error);
  return isObject(result) && isMeta(result._meta);
}

export function isRequest(message: JsonObject): message is JsonObject & RpcRequest {
  if (typeof message.method !== 'string' || !isRequestId(message.id)) return false;
  message.params ??= {};
  return true;
}

/** The requests in a body, without what else their messages hold. */
export function requestsOf(messages: readonly JsonObject[]): RpcRequest[] {
  return messages.filter(isRequest).map(({ id, method, params }) => ({ id, method, params }));
}
