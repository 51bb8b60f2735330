/**
 * Requests that may arrive twice, since their wire does not report whether they arrived: each runs once; the second is
 * a follower.
 */
import { digest } from '../../src/base/json.ts';
import type { Reply } from '../../src/http/exchange.ts';
import { refusedEventId } from '../failure.ts';
import { sse } from './connection.ts';
import { followLive } from './post-calls.ts';
import type { RpcRequest } from './start.ts';
import type { SessionStream } from './stream.ts';
import type { Exchange } from './wire.ts';

/**
 * Notes a request with its stream before it runs, so that it runs once, whichever process gets it.
 * @returns its new stream, or the id of the one it has; undefined without a store
 */
export async function sentOnce(
  { services: { store }, session }: Exchange,
  request: RpcRequest,
): Promise<{ readonly stream: SessionStream } | { readonly sentOn: string } | undefined> {
  if (store === undefined) return undefined;
  const stream = session.newStream();
  const key = keyOf(session.name, request);
  if (await store.insert(key, stream.id, session.expires)) return { stream };
  return { sentOn: String(await store.get(key)) };
}

/** It did not run after all. */
export async function forgetSent({ services, session }: Exchange, request: RpcRequest): Promise<void> {
  await services.store?.remove(keyOf(session.name, request));
}

/** The stream of a request that came before, from its start. */
export async function sentBefore(exchange: Exchange, stream: string): Promise<Reply> {
  const { services, session, inbound } = exchange;
  try {
    const place = await services.streams.find(stream, 0, session.id);
    return sse(services, session, place, 'resumedStreams', (sink) => {
      followLive(exchange, stream, sink);
      return sink;
    });
  } catch (error) {
    return refusedEventId(services, inbound, error);
  }
}

function keyOf(name: string, { id }: RpcRequest): string {
  return `${name}:sent:${digest(id)}`;
}
