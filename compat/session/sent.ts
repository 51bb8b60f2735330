/**
 * Requests that may arrive twice, since their wire does not report whether they arrived: each runs once; the second is
 * a follower.
 */
import { digest } from '../../src/base/digest.ts';
import type { Reply } from '../../src/doors/http/exchange.ts';
import { empty } from '../../src/doors/http/reply.ts';
import { callIdOf } from '../../src/stream/event-id.ts';
import { refusedEventId } from '../failure.ts';
import { isSessionTaskMethod } from '../tasks/session.ts';
import { callAt, pause, type ReplyDialect, replyTo, resumed, SOON, sse } from './call-reply.ts';
import type { Exchange } from './exchange.ts';
import type { RpcRequest } from './start.ts';
import { resumeTaskReply } from './task-reply.ts';

/**
 * Notes a request with the id of its stream before it runs, so that it runs once, whichever process gets it.
 * @returns that id, or the one that it has; undefined without a store
 */
export async function sentOnce(
  { services: { store }, session }: Exchange,
  request: RpcRequest,
): Promise<{ readonly stream?: string; readonly sentOn?: string } | undefined> {
  if (store === undefined) return undefined;
  const stream = session.newStreamId();
  const key = keyOf(session.name, request);
  if (await store.insert(key, stream, session.expires)) return { stream };
  return { sentOn: String(await store.get(key)) };
}

/** It did not run after all. */
export async function forgetSent({ services, session }: Exchange, request: RpcRequest): Promise<void> {
  await services.store?.remove(keyOf(session.name, request));
}

/** The stream of a request that came before, from its start. */
export async function sentBefore(
  exchange: Exchange,
  request: RpcRequest,
  stream: string,
  dialect: ReplyDialect,
): Promise<Reply> {
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
    const place = await services.streams.find(stream, 0, session.id);
    return sse(services, session, place, 'resumedStreams', (sink) => {
      resumeTaskReply(exchange, stream, sink);
      return sink;
    });
  } catch (error) {
    return refusedEventId(services, inbound, error);
  }
}

function keyOf(name: string, { id }: RpcRequest): string {
  return `${name}:sent:${digest(id)}`;
}
