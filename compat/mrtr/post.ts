/**
 * A POST of a session that speaks a draft of multi round-trip requests: one message. A request gets its response as
 * JSON or, if notifications come first, as the end of a stream.
 */

import { AwaitError } from '../../src/base/error.ts';
import { digest, isObject, type JsonObject } from '../../src/base/json.ts';
import { wireError } from '../../src/call/run/wire-error.ts';
import { NO_BATCH } from '../../src/http/batch.ts';
import { Departure } from '../../src/http/departure.ts';
import type { Reply } from '../../src/http/exchange.ts';
import { empty, idOf, isRequestId, json, rpcError } from '../../src/http/reply.ts';
import { SESSION } from '../session/connection.ts';
import { accepts, isMessage, isRequest } from '../session/messages.ts';
import { inWork, take } from '../session/requests.ts';
import type { RpcRequest } from '../session/start.ts';
import type { Exchange } from '../session/wire.ts';
import { hasOwnTasks } from '../tasks/legacy-wire.ts';
import { serveCall } from './call.ts';
import type { Answers, Dialect, Incoming } from './dialect.ts';
import { held, streamed, type Work } from './reply.ts';
import { type Rider, splitState } from './rider.ts';
import { type RpcError, refusal, type Told } from './served.ts';
import { acknowledgement, answerTask, isTaskMethod, serveTask } from './tasks.ts';

export async function post(exchange: Exchange, dialect: Dialect, body: unknown): Promise<Reply> {
  const { services, session } = exchange;
  if (!isObject(body)) {
    return rpcError(400, -32600, NO_BATCH);
  }
  const answered = await taskAnswers(exchange, dialect, body);
  if (answered !== undefined) return answered;
  if (!isMessage(body)) {
    return rpcError(400, -32600, 'Invalid Request: the body is no JSON-RPC message', idOf(body));
  }
  if (!isRequest(body)) {
    return (await take(services, session, [body])) ?? empty(202);
  }
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
  let found: { readonly taskId: string | undefined; readonly answers: Answers } | undefined;
  try {
    found = dialect.taskAnswers(body);
  } catch (thrown) {
    const error = AwaitError.from(thrown);
    if (error.code !== 'bad-answer') throw error;
    const { code, message } = wireError(error);
    return rpcError(status, code, message, id);
  }
  if (found === undefined || hasOwnTasks((await exchange.instance()).initialized)) return undefined;
  const { taskId, answers } = found;
  const wrong = await answerTask(tasks, exchange, taskId, answers);
  if (wrong !== undefined) {
    // The status shows the client whether it may send the request again.
    const isOurs = !dialect.acknowledges && wrong.code !== -32602;
    return rpcError(isOurs ? 500 : status, wrong.code, wrong.message, id);
  }
  if (!dialect.acknowledges || taskId === undefined) return empty(202);
  return json({ jsonrpc: '2.0', id, ...acknowledgement(dialect, taskId) }, 200, { [SESSION]: session.id });
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
  if (!isRetry && !session.reserve(id)) return inWork(request);
  const gone = new Departure();
  let end = (): void => {};
  const over = new Promise<void>((resolve) => {
    end = resolve;
  });
  // Kept by the request's id, the only name by which its client can cancel it.
  session.keep(id, {
    callId: `request ${String(id)}`,
    outcome: over.then(() => ({ kind: 'gone' })),
    answer: async () => false,
    report: () => false,
    cancel: gone.fire,
  });
  const work: Work = async (notify) => {
    try {
      return await told(notify);
    } catch (thrown) {
      const error = AwaitError.from(thrown);
      services.settings.logger.error(error.message, { code: error.code, cause: String(error.cause ?? '') });
      return refusal(wireError(error));
    } finally {
      if (!isRetry) session.release(id);
      end();
    }
  };
  const told = async (notify: (notification: JsonObject) => void): Promise<Told> => {
    const served = { exchange, dialect, request, gone, notify };
    const { tasks } = services.engine;
    const isOurs =
      tasks !== undefined && isTaskMethod(method) && !hasOwnTasks((await exchange.instance()).initialized);
    if (!isOurs) return serveCall(served, opened.incoming);
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
    services.settings.logger.warn(error.message, { code: error.code, cause: String(error.cause ?? '') });
    await services.rates?.badToken(inbound);
    return { error: wireError(error) };
  }
}
