/** POSTs of sessions whose asks are live: every request runs on the POST's own stream. */

import { digest } from '../../src/base/digest.ts';
import { defined, type JsonObject } from '../../src/base/values.ts';
import type { Inbound, Reply } from '../../src/doors/http/exchange.ts';
import { empty, idOf, messagesOf, NO_BATCH, rpcError } from '../../src/doors/http/reply.ts';
import type { HostInstance } from '../../src/host/instance.ts';
import { callIdOf } from '../../src/stream/event-id.ts';
import { refusedEventId } from '../failure.ts';
import { hasTasks, isSessionTaskMethod, withTaskCapability } from '../tasks/session.ts';
import {
  callAt,
  closing,
  LIVE_REPLY,
  pause,
  type ReplyDialect,
  replyTo,
  resumed,
  SOON,
  sse,
} from './call-reply.ts';
import { CallsReply } from './calls-reply.ts';
import type { Exchange } from './exchange.ts';
import { accepts, inWork, requestsOf, reserve, run, startAll, take, takesBatches } from './requests.ts';
import { type RpcRequest, sourceOf } from './start.ts';
import { resumeTaskReply, TaskReply } from './task-reply.ts';

/**
 * Requests that may arrive twice, since their wire does not report whether they arrived: each runs once; the second is
 * a follower.
 */

/**
 * Notes a request with the id of its stream before it runs, so that it runs once, whichever process gets it.
 * @returns that id, or the one that it has; undefined without a store
 */
async function sentOnce(
  { services, session }: Exchange,
  request: RpcRequest,
): Promise<{ readonly stream?: string; readonly sentOn?: string } | undefined> {
  const { store } = services;
  if (store === undefined) return undefined;
  const stream = session.newStreamId();
  const key = keyOf(session.name, request);
  // It counts with its call, and lasts as long.
  const id = callIdOf(stream);
  const expires = services.now() + services.settings.ttl;
  const holder = { id, expires, ...defined({ principal: session.principal }) };
  if (await store.insert(key, stream, expires, { holder })) return { stream };
  return { sentOn: String(await store.get(key)) };
}

/**
 * The stream of a request that came before, from its start.
 * @returns undefined where the process that got it has ended before it wrote anything: then it runs here
 */
async function sentBefore(
  exchange: Exchange,
  request: RpcRequest,
  stream: string,
  dialect: ReplyDialect,
): Promise<Reply | undefined> {
  const { services, session, inbound } = exchange;
  try {
    const callId = callIdOf(stream);
    const isLogged = async (): Promise<boolean> =>
      session.runsLogged(callId) || (await callAt(exchange, callId, 0)) !== undefined;
    const isTask = isSessionTaskMethod(request.method);
    let found = await isLogged();
    // It is written once its server is made, here or elsewhere.
    const until = services.now() + services.settings.limits.lease;
    for (; !found && !isTask && services.now() < until; found = await isLogged()) await pause(SOON);
    // Its client has gone, and may read on another connection already.
    if (inbound.signal.aborted) return empty(202);
    if (found) {
      return resumed(exchange, replyTo(request, callId, dialect), { sequence: 0 }, undefined);
    }
    if (!isTask) return undefined;
    const place = await services.streams.find(stream, 0, session.id, session.principal);
    return sse(services, session, place, 'resumedStreams', (sink) => resumeTaskReply(exchange, stream, sink));
  } catch (error) {
    return refusedEventId(services, inbound, error);
  }
}

function keyOf(name: string, { id }: RpcRequest): string {
  return `${name}:sent:${digest(id)}`;
}

// --- POSTs ---

/** Refuses a client that does not accept both kinds of replies. */
export function refuseOneKind(inbound: Inbound, body: unknown): Reply | undefined {
  const accept = inbound.header('accept') ?? '';
  if (accepts(accept, 'application/json') && accepts(accept, 'text/event-stream')) return undefined;
  const message = 'Not Acceptable: Client must accept both application/json and text/event-stream';
  return rpcError(406, -32000, message, idOf(body));
}

/** The server's own `initialize` result, with the capabilities that mcp-await adds. */
export function introduced({ services, session }: Exchange, instance: HostInstance): JsonObject {
  const { initialized } = instance;
  return hasTasks(services, session, instance) ? withTaskCapability(initialized) : initialized;
}

/** @param own the id of the stream of a request that may come again */
type Start = (exchange: Exchange, requests: readonly RpcRequest[], own?: string) => Promise<Reply>;

/** Takes in the answers and notifications of a body, and starts its requests. */
export async function serveMessages(
  exchange: Exchange,
  body: unknown,
  start: Start,
  dialect = LIVE_REPLY,
): Promise<Reply> {
  const { services, session, inbound } = exchange;
  if (Array.isArray(body) && !takesBatches(session)) return rpcError(400, -32600, NO_BATCH);
  const messages = messagesOf(body) as JsonObject[];
  const requests = requestsOf(messages);
  const [only] = requests;
  const mayRepeat = inbound.repeats && messages.length === 1;
  const noted = mayRepeat && only !== undefined ? await sentOnce(exchange, only) : undefined;
  const before = only && noted?.sentOn && (await sentBefore(exchange, only, noted.sentOn, dialect));
  if (before) return before;
  const twice = reserve(session, requests);
  if (twice !== undefined) return inWork(twice);
  const release = (): void => {
    for (const { id } of requests) session.release(id);
  };
  try {
    const hasMore = messages.length > requests.length;
    const refusal = hasMore ? await take(services, session, messages) : undefined;
    if (requests.length > 0 && refusal === undefined)
      return await start(exchange, requests, noted?.stream ?? noted?.sentOn);
    release();
    return refusal ?? empty(202);
  } catch (error) {
    release();
    // It did not run after all.
    if (noted !== undefined && only !== undefined) await services.store?.remove(keyOf(session.name, only));
    throw error;
  }
}

/** Runs requests; the reply ends with the last response. */
export async function serveLive(
  exchange: Exchange,
  requests: readonly RpcRequest[],
  own?: string,
): Promise<Reply> {
  const { services, session, inbound, instance: ready, home } = exchange;
  const shared = await ready();
  const instance = home && shared;
  const [only] = requests;
  // What a task of ours says while its client waits for it is in no log of a call.
  const isAlone = only !== undefined && requests.length === 1;
  const isTask = isAlone && isSessionTaskMethod(only.method) && hasTasks(services, session, shared);
  const stream = isTask ? new TaskReply(exchange, only, own) : new CallsReply(exchange, requests, own);
  const source = sourceOf(
    inbound,
    closing(session, inbound, () => stream.disconnect()),
  );
  const work = await startAll(session, requests, (request) => {
    const running = {
      instance,
      shared,
      source,
      stream: stream instanceof CallsReply ? stream.of(request) : stream,
    };
    return run(services, session, request, running);
  }).catch((error: unknown) => {
    stream.abandon();
    throw error;
  });
  for (const { request, ended } of work) {
    void ended.then((outcome) => {
      stream.respond(request, outcome);
    });
  }
  stream.started();
  return stream.reply;
}
