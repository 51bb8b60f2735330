/**
 * A POST of a session that speaks a draft of multi round-trip requests: one message. A request gets its response as
 * JSON or, if notifications come first, as the end of a stream.
 *
 * Both use the sessions of 2025 (`compat/session/edge.ts`): `initialize` negotiates them, the host speaks 2025-11-25
 * behind, GET is the standing stream. A call is the engine's, as on 2026-07-28: its turn ends at its asks, and its
 * token is the state. So the drafts differ only in the places of members in a message, which is a `Dialect`
 * (`compat/sep-2322/wire.ts`, `compat/mrtr-draft/wire.ts`); the handling of a POST is in `compat/mrtr`.
 *
 * 1. The state is bound to revision, method, target, caller and a digest of the params without `_meta` and `task`;
 *    not to the session, since a retry is a request of its own. Anything wrong with it is one frozen sentence.
 * 2. SEP-2322 requires another id on a retry than on the request before. The id is behind the token
 *    (below), sealed and bound to it, so any process can check it, without a record for it.
 * 3. An ask inside a request that SEP-2322's table excludes is an error of that request. The first draft limits no
 *    request, and neither does this.
 * 4. On SEP-2322 the reply is a stream of the session from the first notification on, its last event the result,
 *    incomplete or not; with events that have ids, so what a broken connection missed comes by GET.
 * 5. On the first draft an incomplete response cannot be a stream. A call's notifications are held,
 *    `heldNotifications` of them, until its outcome is known: sent before a complete one, on a stream; kept for the
 *    next turn before an incomplete one, and sent under the next request's progress token. They are kept in the
 *    state itself, sealed behind the token (below), the newest 16 KiB: so they go out wherever the
 *    call ends, and no process can lose them.
 * 6. The same retry twice is one turn. It does not reserve an id of the session, so the second waits for the first
 *    instead of being refused.
 * 7. A frame that waits in a session's instance is dropped with it: a retry in another session of the same caller is
 *    replayed there.
 * 8. `shed()` ends a turn with a state and no asks. -32021 exists on 2026-07-28 alone: here an ask that the client
 *    lacks the capability for fails with an error, as on the live revisions. -32042 never goes out: its URLs are
 *    asked for, by a task too; one that names none is -32603, in a sentence without the code.
 *
 * Tasks (`compat/mrtr/tasks.ts`): `params.task` of a `tools/call` makes it one, and nothing else does; `ttl` bounds
 * the call's life from its request on, so rounds before the task count. Such a call gets an instance of its own
 * instead of the session's, which ends before the task may. `tasks/get`, `tasks/list` and `tasks/cancel` are those
 * of 2025-11-25 (`compat/tasks/legacy-wire.ts`); `tasks/result` waits until the task is over or asks. Answers are in
 * the store before they are acknowledged; one that is bad or missing leaves the ask under its key, and is asked for
 * again. A list is its caller's, or its session's where callers have no names. A server that declares tasks of its
 * own keeps them: `tasks/*` and `params.task` go through to it.
 *
 * The drafts' printed examples are in `test/e2e/vectors`, and the messages here are compared with them.
 */
import { digest } from '../../src/base/digest.ts';
import {
  AwaitError,
  badToken,
  deferred,
  invalidParams,
  isObject,
  type JsonObject,
  objectOf,
} from '../../src/base/values.ts';
import type { RpcError } from '../../src/call/journal/entries.ts';
import type { AbortSignalLike } from '../../src/call/ports.ts';
import { wireError } from '../../src/call/run/wire-error.ts';
import type { Tasks, TaskView } from '../../src/call/task/tasks.ts';
import { DisconnectSignal } from '../../src/doors/http/disconnect-signal.ts';
import type { Reply } from '../../src/doors/http/exchange.ts';
import { empty, isRequestId, json, NO_BATCH, noMessage, rpcError } from '../../src/doors/http/reply.ts';
import type { Services } from '../../src/handler/services.ts';
import type { StreamPlace } from '../../src/stream/event-streams.ts';
import { primed, SESSION, sse } from '../session/call-reply.ts';
import type { Exchange } from '../session/exchange.ts';
import { refuseOneKind } from '../session/live.ts';
import { accepts, inWork, isMessage, isRequest, reserve, take } from '../session/requests.ts';
import type { RpcRequest } from '../session/start.ts';
import type { SessionStream } from '../session/stream.ts';
import type { SessionWire } from '../session/wire.ts';
import { relatedTo, runsTasks } from '../tasks/legacy-wire.ts';
import { refusal as taskRefusal, UNKNOWN } from '../tasks/refusal.ts';
import { withTaskCapability } from '../tasks/session.ts';
import { listTasks } from '../tasks/wanted.ts';
import { inDraftWords, serveCall } from './call.ts';
import type { Dialect, GivenAnswers, Incoming } from './dialect.ts';
import { type Responding, refusal, type Served } from './served.ts';

/** A session whose turns end at their asks, in a draft's spelling. */

export function roundTrips(dialect: Dialect): SessionWire {
  return {
    isDraft: true,
    // A client that accepts only JSON gets every response in it.
    refuse: (inbound, body) =>
      accepts(inbound.header('accept') ?? '', 'application/json') ? undefined : refuseOneKind(inbound, body),
    begun({ services }, { initialized }) {
      const result = runsTasks(services, initialized) ? withTaskCapability(initialized) : initialized;
      return dialect.complete({ ...result, protocolVersion: dialect.revision });
    },
    post: (exchange, body) => post(exchange, dialect, body),
    // Its turns continue by their state; a broken stream only has its missed events to send.
    follow: (exchange, _stream, last, sink) => primed(exchange.session, last, sink),
  };
}

// --- a POST ---

/**
 * The reply to a request: JSON, unless notifications come before the response. Then it is a stream of the session,
 * whose events have ids, so a client whose connection broke gets the rest by GET.
 */

type Notify = (notification: JsonObject) => void;

type Serve = (notify: Notify) => Promise<Responding>;

interface Replying {
  readonly exchange: Exchange;
  readonly dialect: Dialect;
  readonly id: string | number;
  /** Whether the response is JSON even after notifications. */
  readonly alone: boolean;
}

/** SEP-2322: a stream from the first notification on, whose last message is the response, incomplete or not. */
async function streamed(replying: Replying, work: Serve): Promise<Reply> {
  const { exchange, id, alone } = replying;
  const { services, session } = exchange;
  const rider: Rider = { id, session: digest(session.name) };
  let stream: { readonly to: SessionStream; readonly found: Promise<StreamPlace> } | undefined;
  let isOver = false;
  let begin = (): void => {};
  const begun = new Promise<undefined>((resolve) => {
    begin = () => resolve(undefined);
  });
  const notify: Notify = (notification) => {
    if (alone || isOver) return tellStanding(exchange, notification);
    stream ??= newStream(exchange);
    stream.to.send({ jsonrpc: '2.0', ...notification });
    begin();
  };
  const ended = work(notify).then((told) => {
    isOver = true;
    if (told.kind === 'gone') stream?.to.finish();
    else stream?.to.send(responseOf(replying, told, rider), true);
    return told;
  });
  const told = await Promise.race([ended, begun]);
  if (stream !== undefined) return sse(services, session, await stream.found, 'postStreams');
  return told === undefined ? empty(202) : inJson(replying, told, rider);
}

/**
 * The first draft: notifications wait for the outcome. An incomplete one carries them in its state, for the next turn,
 * in any process.
 * @param before the notifications in the state of this request
 */
async function held(
  {
    before,
    progressToken,
    ...replying
  }: Replying & { readonly before: readonly JsonObject[]; readonly progressToken: unknown },
  work: Serve,
): Promise<Reply> {
  const { exchange, alone } = replying;
  const { services, session } = exchange;
  const { heldNotifications } = services.settings.limits;
  const said = alone ? [] : [...before];
  if (alone) for (const notification of before) tellStanding(exchange, notification);
  let isOver = false;
  const told = await work((notification) => {
    if (alone || isOver) tellStanding(exchange, notification);
    else if (said.push(notification) > heldNotifications) said.shift();
  });
  isOver = true;
  if (told.kind !== 'final') return inJson(replying, told, { said });
  const token = isRequestId(progressToken) ? progressToken : undefined;
  const all = said.flatMap((one) => renamed(one, token));
  if (all.length === 0) return inJson(replying, told, {});
  const stream = newStream(exchange);
  for (const notification of all) stream.to.send({ jsonrpc: '2.0', ...notification });
  stream.to.send(responseOf(replying, told, {}), true);
  return sse(services, session, await stream.found, 'postStreams');
}

/** Progress carries the token of the request that gets it. */
function renamed(notification: JsonObject, progressToken: string | number | undefined): JsonObject[] {
  const { method, params } = notification;
  if (method !== 'notifications/progress') return [notification];
  if (progressToken === undefined) return [];
  return [{ method, params: { ...objectOf(params), progressToken } }];
}

function newStream({ services, session }: Exchange): { to: SessionStream; found: Promise<StreamPlace> } {
  const to = session.newStream();
  return { to, found: services.streams.find(to.id, 0, session.id, session.principal) };
}

/**
 * Sends notifications of a task on the session's stream: after its request has its response, or beside a response that
 * is JSON alone.
 */
function tellStanding({ session }: Exchange, notification: JsonObject): void {
  session.standing.send({ jsonrpc: '2.0', ...notification });
}

function inJson(replying: Replying, told: Responding, rider: Rider): Reply {
  if (told.kind === 'gone') return empty(202);
  return json(responseOf(replying, told, rider), 200, { [SESSION]: replying.exchange.session.id });
}

/** @param rider data that goes into the state of an incomplete outcome */
function responseOf(
  { exchange, dialect, id }: Replying,
  told: Exclude<Responding, { kind: 'gone' }>,
  rider: Rider,
): JsonObject {
  const fields =
    told.kind === 'incomplete'
      ? dialect.incomplete(told.asks, stateOf(exchange.services, told.token, rider))
      : told.fields;
  return { jsonrpc: '2.0', id, ...fields };
}

// --- the request ---

async function post(exchange: Exchange, dialect: Dialect, body: unknown): Promise<Reply> {
  const { services, session } = exchange;
  if (!isObject(body)) return rpcError(400, -32600, NO_BATCH);
  const answered = await taskAnswers(exchange, dialect, body);
  if (answered !== undefined) return answered;
  if (!isMessage(body)) return noMessage(body);
  if (!isRequest(body)) return (await take(services, session, [body])) ?? empty(202);
  const incoming = readOrRefuse(exchange, dialect, body);
  if ('error' in incoming) return json({ jsonrpc: '2.0', id: body.id, ...incoming });
  return serve(exchange, dialect, body, incoming);
}

/** Answers to a task: a request of one draft, a message without a method in the other. */
async function taskAnswers(
  exchange: Exchange,
  dialect: Dialect,
  body: JsonObject,
): Promise<Reply | undefined> {
  const { services, session } = exchange;
  const { tasks } = services.engine;
  if (tasks === undefined || body.jsonrpc !== '2.0' || !isRequestId(body.id)) return undefined;
  const { id } = body;
  // A message without a method is refused by its status: no response is read to it.
  const status = dialect.acknowledges ? 200 : 400;
  let found: { readonly taskId: string | undefined; readonly answers: GivenAnswers } | undefined;
  try {
    found = dialect.taskAnswers(body);
  } catch (thrown) {
    const error = AwaitError.from(thrown);
    if (error.code !== 'bad-answer') throw error;
    return json({ jsonrpc: '2.0', id, error: wireError(error) }, status);
  }
  if (found === undefined || !runsTasks(services, (await exchange.instance()).initialized)) return undefined;
  const { taskId, answers } = found;
  const wrong = await answerTask(tasks, exchange, taskId, answers);
  if (wrong !== undefined) {
    // The status shows the client whether it may send the request again.
    return json(
      { jsonrpc: '2.0', id, error: wrong },
      !dialect.acknowledges && wrong.code !== -32602 ? 500 : status,
    );
  }
  if (!dialect.acknowledges || taskId === undefined) return empty(202);
  return json({ jsonrpc: '2.0', id, ...dialect.complete(relatedTo(taskId)) }, 200, { [SESSION]: session.id });
}

function readOrRefuse(
  { services }: Exchange,
  dialect: Dialect,
  body: JsonObject & RpcRequest,
): Incoming | { readonly error: ReturnType<typeof wireError> } {
  try {
    return dialect.read(body);
  } catch (thrown) {
    const error = AwaitError.from(thrown);
    if (error.code !== 'bad-answer') throw error;
    services.settings.logger.warn(error.message, { code: error.code });
    return { error: wireError(error) };
  }
}

async function serve(
  exchange: Exchange,
  dialect: Dialect,
  request: RpcRequest,
  incoming: Incoming,
): Promise<Reply> {
  const { services, session, inbound } = exchange;
  const { id, method, params } = request;
  const opened = await openState(exchange, dialect, request, incoming);
  if ('error' in opened) return json({ jsonrpc: '2.0', id, ...opened }, 200, { [SESSION]: session.id });
  const { rider } = opened;
  // The same retry twice is one turn, and its second request waits for it.
  const isRetry = incoming.state !== undefined;
  if (!isRetry && reserve(session, [request])) return inWork(request);
  const gone = new DisconnectSignal();
  const { promise: over, resolve: end } = deferred();
  // Kept by the request's id, the only name by which its client can cancel it.
  session.keep(id, {
    callId: `request ${String(id)}`,
    outcome: over.then(() => ({ kind: 'gone' })),
    answer: async () => false,
    report: () => false,
    cancel: gone.fire,
  });
  const work: Serve = async (notify) => {
    try {
      return await told(notify);
    } catch (thrown) {
      const error = AwaitError.from(thrown);
      services.settings.logger.error(error.message, { code: error.code, cause: error.cause });
      return refusal(wireError(error));
    } finally {
      if (!isRetry) session.release(id);
      end();
    }
  };
  const told = async (notify: (notification: JsonObject) => void): Promise<Responding> => {
    const served = { exchange, dialect, request, gone, notify };
    const { tasks } = services.engine;
    const isOurs = METHODS.includes(method) && runsTasks(services, (await exchange.instance()).initialized);
    if (!isOurs || tasks === undefined) return serveCall(served, opened.incoming);
    // A wait for a task is one open connection, and ends with it.
    inbound.signal.addEventListener('abort', gone.fire, { once: true });
    return serveTask(tasks, served);
  };
  const progressToken = isObject(params._meta) ? params._meta.progressToken : undefined;
  // A client that accepts only JSON gets earlier notifications on its session's stream.
  const takesStream = accepts(inbound.header('accept') ?? '', 'text/event-stream');
  const replying = { exchange, dialect, id, alone: !takesStream || !dialect.mayAsk(method) };
  if (dialect.notifications === 'stream') return streamed(replying, work);
  return held({ ...replying, before: rider.said ?? [], progressToken }, work);
}

/** A retry with the engine's token for its state; an error if the state is not one of this draft. */
async function openState(
  { services, session, inbound }: Exchange,
  { newIds }: Dialect,
  request: RpcRequest,
  incoming: Incoming,
): Promise<{ readonly rider: Rider; readonly incoming: Incoming } | { readonly error: RpcError }> {
  if (incoming.state === undefined) return { rider: {}, incoming };
  try {
    const { token, ...rider } = await splitState(services, incoming.state, newIds);
    if (newIds && rider.id === request.id && rider.session === digest(session.name)) {
      return { error: { code: -32600, message: 'Invalid Request: a retry needs an id of its own' } };
    }
    return { rider, incoming: { ...incoming, state: token } };
  } catch (thrown) {
    const error = AwaitError.from(thrown);
    if (error.code !== 'bad-token') throw error;
    services.settings.logger.warn(error.message, { code: error.code, cause: error.cause });
    await services.rates?.badToken(inbound);
    return { error: wireError(error) };
  }
}

// --- data behind the token ---

/**
 * Data behind the engine's token in a state, sealed and bound to it: any process can read it, no record is stored for
 * it, and an altered one makes the state invalid.
 */

/** No character of a token. */
const BETWEEN = '~';

/** Most that notifications may make a state longer by, in characters of JSON. */
const LONGEST = 16_384;

interface Rider {
  /** Of the request that this state is the reply to, where its retry needs another one (SEP-2322). */
  readonly id?: string | number;
  /** The session that the id is of: in another one it means nothing. */
  readonly session?: string;
  /**
   * Notifications that the client has not got yet, where an incomplete response cannot be a stream (the first draft).
   */
  readonly said?: readonly JsonObject[];
}

/** The state of a call: its token with the data behind it. If notifications are too long, the newest are kept. */
function stateOf(
  { sealer, settings, now }: Services,
  token: string,
  { id, session, said = [] }: Rider,
): string {
  const kept = newest(said);
  if (id === undefined && kept.length === 0) return token;
  const body = {
    of: digest(token),
    ...(id !== undefined && { id, session }),
    ...(kept.length > 0 && { said: kept }),
  };
  return `${token}${BETWEEN}${sealer.seal('retry', body, now() + settings.ttl)}`;
}

/**
 * @param needed whether a state without a rider is invalid
 * @returns the engine's token, and the rider
 * @throws AwaitError `bad-token`
 */
async function splitState(
  { sealer }: Services,
  state: unknown,
  needed: boolean,
): Promise<Rider & { readonly token: unknown }> {
  const [token = '', sealed, ...more] = typeof state === 'string' ? state.split(BETWEEN) : [];
  if (sealed === undefined && !needed) return { token: state };
  if (sealed === undefined || more.length > 0) {
    throw badToken('it is not a state of this draft');
  }
  const { of, id, session, said } = await sealer.open('retry', sealed);
  if (of !== digest(token)) throw badToken('the data behind it belongs to another state');
  return {
    token,
    ...((typeof id === 'string' || typeof id === 'number') && { id }),
    ...(typeof session === 'string' && { session }),
    ...(Array.isArray(said) && { said: said.filter(isObject) }),
  };
}

function newest(said: readonly JsonObject[]): readonly JsonObject[] {
  let room = LONGEST;
  const tooOld = said.findLastIndex((one) => {
    room -= JSON.stringify(one).length;
    return room < 0;
  });
  return said.slice(tooOld + 1);
}

// --- tasks ---

/**
 * Tasks on the drafts of multi round-trip requests: `tasks/get`, `tasks/list` and `tasks/cancel` as 2025-11-25 has
 * them; `tasks/result` waits until a task is over or asks, and then has its asks; answers are a message of their own.
 */

const METHODS: readonly string[] = ['tasks/get', 'tasks/list', 'tasks/result', 'tasks/cancel'];

/** A `tasks/*` request; its failure is an error with the same sentence on every revision. */
async function serveTask(tasks: Tasks, served: Served): Promise<Responding> {
  const { exchange, dialect, request, gone } = served;
  const { services, session } = exchange;
  const { principal } = session;
  const { taskId, cursor } = request.params;
  if (request.method === 'tasks/list') return list(tasks, served, cursor);
  if (typeof taskId !== 'string') return refusal(UNKNOWN);
  const final = (view: TaskView): Responding => ({
    kind: 'final',
    fields: dialect.complete(dialect.task(view, services.settings.limits.taskPoll)),
  });
  try {
    switch (request.method) {
      case 'tasks/get':
        return final(await tasks.get(taskId, principal));
      case 'tasks/cancel': {
        if (await tasks.cancel(taskId, principal)) return final(await tasks.get(taskId, principal));
        const { status } = await tasks.get(taskId, principal);
        return refusal(invalidParams(`the task is ${status}, and cannot be cancelled`));
      }
      default:
        services.engine.hold(gone, session, exchange.inbound.memory);
        return await result(tasks, dialect, { taskId, principal, gone });
    }
  } catch (error) {
    return refusal(taskRefusal(services, error));
  } finally {
    services.engine.release(gone);
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
  if ('error' in listed) return refusal(listed.error);
  const { views, ...next } = listed;
  return {
    kind: 'final',
    fields: dialect.complete({
      tasks: views.map((view) => dialect.task(view, services.settings.limits.taskPoll)),
      ...next,
    }),
  };
}

/**
 * Records the answers to a task; they are in the store when this resolves. Bad, missing or unknown ones change nothing.
 * @returns the reason if they are refused
 */
async function answerTask(
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
    return taskRefusal(services, error);
  }
}
