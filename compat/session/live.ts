/** POSTs of sessions whose asks are live: every request runs on the POST's own stream. */
import type { JsonObject } from '../../src/base/json.ts';
import type { HostInstance } from '../../src/host/instance.ts';
import { messagesOf, NO_BATCH } from '../../src/http/batch.ts';
import type { Inbound, Reply } from '../../src/http/exchange.ts';
import { empty, idOf, rpcError } from '../../src/http/reply.ts';
import { hasTasks, withTaskCapability } from '../tasks/session.ts';
import { closing } from './connection.ts';
import { HeldReply } from './held-reply.ts';
import { accepts, isRequest, takesBatches } from './messages.ts';
import { isLeft } from './post-calls.ts';
import { inWork, reserve, run, take } from './requests.ts';
import { forgetSent, sentBefore, sentOnce } from './sent.ts';
import { type RpcRequest, sourceOf } from './start.ts';
import type { SessionStream } from './stream.ts';
import type { Exchange } from './wire.ts';

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

/** @param own the stream of a request that may come again */
type Start = (exchange: Exchange, requests: readonly RpcRequest[], own?: SessionStream) => Promise<Reply>;

/** Takes in the answers and notifications of a body, and starts its requests. */
export async function serveMessages(exchange: Exchange, body: unknown, start: Start): Promise<Reply> {
  const { services, session, inbound } = exchange;
  if (Array.isArray(body) && !takesBatches(session)) return rpcError(400, -32600, NO_BATCH);
  const messages = messagesOf(body) as JsonObject[];
  const requests = messages.filter(isRequest);
  const [only] = requests;
  const mayRepeat = inbound.repeats && messages.length === 1;
  const sent = mayRepeat && only !== undefined ? await sentOnce(exchange, only) : undefined;
  if (sent !== undefined && 'sentOn' in sent) return sentBefore(exchange, sent.sentOn);
  const twice = reserve(session, requests);
  if (twice !== undefined) return inWork(twice);
  const release = (): void => {
    for (const { id } of requests) session.release(id);
  };
  try {
    const hasMore = messages.length > requests.length;
    const refusal = hasMore ? await take(services, session, messages) : undefined;
    if (requests.length > 0 && refusal === undefined) return await start(exchange, requests, sent?.stream);
    release();
    return refusal ?? empty(202);
  } catch (error) {
    release();
    if (sent !== undefined && only !== undefined) await forgetSent(exchange, only);
    throw error;
  }
}

/** Runs requests; the reply ends with the last response. */
export async function serveLive(
  { services, session, inbound, instance: ready, home }: Exchange,
  requests: readonly RpcRequest[],
  own?: SessionStream,
): Promise<Reply> {
  const shared = await ready();
  const instance = home && shared;
  const stream = new HeldReply({ services, session, inbound, count: requests.length, own });
  const source = sourceOf(
    inbound,
    closing(session, inbound, () => stream.disconnect()),
  );
  const work = await Promise.all(
    requests.map((request) => run(services, session, request, { instance, shared, source, stream })),
  ).catch((error: unknown) => {
    stream.abandon();
    throw error;
  });
  for (const { request, ended } of work) {
    void ended.then((outcome) => {
      if (isLeft(services, request, stream, outcome)) stream.handOver();
      else stream.respond(request, outcome);
    });
  }
  stream.started();
  return stream.reply;
}
