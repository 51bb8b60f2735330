/**
 * Requests that may arrive twice, since their wire does not report whether they arrived: each runs once; the second is
 * a follower.
 */
import { digest } from '../../src/base/digest.ts';
import type { Reply } from '../../src/doors/http/exchange.ts';
import { callIdOf } from '../../src/stream/event-id.ts';
import { refusedEventId } from '../failure.ts';
import { callAt, type ReplyDialect, replyTo, resumed, sse } from './call-reply.ts';
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
    // It may be on its way into the store.
    const isLogged = session.runsLogged(callId) || (await callAt(exchange, callId, 0));
    if (isLogged) {
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
