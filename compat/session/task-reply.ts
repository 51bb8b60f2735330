/**
 * The reply to a client that waits for a task (`tasks/result`): what the task asks meanwhile, and its outcome. It is no
 * call, so its events are kept in a stream of the session, from the first message on or after `limits.heldReply`.
 * Whichever process has its connection goes on with it: it reads which asks the stream has, and appends those that are
 * missing. Two that do so at once lose positions to one another, and read again.
 */
import { deferred, isObject, type JsonObject } from '../../src/base/values.ts';
import type { Outcome } from '../../src/call/ports.ts';
import type { Reply } from '../../src/doors/http/exchange.ts';
import { isRequestId, messageText } from '../../src/doors/http/reply.ts';
import type { Services } from '../../src/handler/services.ts';
import { expiryOf } from '../../src/stream/event-id.ts';
import type { StreamEvent } from '../../src/stream/log.ts';
import { RETRY_LATER } from '../../src/stream/sse-sink.ts';
import type { Sink } from '../../src/stream/tail.ts';
import { serveSessionTask } from '../tasks/session.ts';
import { atOnce, expiredEvent, LIVE_REPLY, pause, sse } from './call-reply.ts';
import type { Exchange } from './exchange.ts';
import { Held } from './held.ts';
import type { Session } from './session.ts';
import { messageOf, type RpcRequest } from './start.ts';
import { type CallStream, RETRY, SessionStream } from './stream.ts';

export class TaskReply implements CallStream {
  readonly #reply = deferred<Reply>();
  readonly reply = this.#reply.promise;
  readonly #sent = deferred<void>();
  readonly sent = this.#sent.promise;
  readonly #exchange: Exchange;
  /** The id of its stream, if its request may come again: then it is one from the first. */
  readonly #own: string | undefined;
  readonly #release: () => void;
  readonly #request: RpcRequest;
  #said: JsonObject[] = [];
  #stream: SessionStream | undefined;
  /** Of a response that came before the stream was opened: settles once the store has it. */
  #ended: Promise<boolean> | undefined;
  readonly #held: Held;
  /** Its client came back, and its reply is gone on with from there. */
  #isStopped = false;

  /** @throws AwaitError `limit` where the session has too many streams already */
  constructor(exchange: Exchange, request: RpcRequest, own: string | undefined) {
    const { services, session } = exchange;
    this.#exchange = exchange;
    this.#held = new Held(services, () => this.#open());
    this.#own = own;
    this.#request = request;
    this.#release = services.streams.reserve(session.id);
  }

  started(): void {
    const { heldReply } = this.#exchange.services.settings.limits;
    this.#held.begin(this.#own !== undefined || heldReply === 0, this.#reply.reject);
  }

  /** Its request could not be started. */
  abandon(): void {
    this.#leave();
  }

  send(message: JsonObject): void {
    if (this.#isStopped) return;
    if (this.#stream !== undefined) void this.#stream.event(askEvent(this.#exchange.session, message));
    else {
      this.#said.push(message);
      this.#held.keep().catch(() => {});
    }
  }

  respond(request: RpcRequest, outcome: Outcome): void {
    void this.#respond(request, outcome).finally(this.#sent.resolve);
  }

  async #respond(request: RpcRequest, outcome: Outcome): Promise<unknown> {
    if (this.#isStopped) return;
    if (this.#stream !== undefined) this.#exchange.session.taskReplies.delete(this.#stream.id);
    const message = messageOf(request, outcome);
    if (this.#stream !== undefined) {
      return message === undefined ? this.#stream.finish() : this.#stream.send(message, true);
    }
    if (message !== undefined) this.#said.push(message);
    if (!this.#held.isHeld) return this.#held.settled().then(() => this.#ended);
    const { services, session, inbound } = this.#exchange;
    this.#leave();
    this.#reply.resolve(atOnce(services, session, inbound, this.#said.splice(0)));
  }

  /** Its connection ends; its client comes back for the rest. */
  disconnect(): void {
    const { services, session } = this.#exchange;
    this.#held.keep().then(
      () => this.#stream && services.streams.disconnect(this.#stream.id, session.id),
      () => {},
    );
  }

  async #open(): Promise<void> {
    const { services, session, inbound } = this.#exchange;
    const id = this.#own ?? session.newStreamId();
    const { store } = services;
    if (store?.isShared === true) {
      await services.listStream(session.principal, id, session.id);
      const { id: requestId, method, params } = this.#request;
      await store.insert(recordOf(id), { id: requestId, method, params }, expiryOf(id));
    }
    // It was answered meanwhile.
    if (!this.#held.isHeld) return;
    this.#leave();
    const stream = session.newStream(id);
    const found = await services.streams
      .find(stream.id, 0, session.id, session.principal)
      .catch((error: unknown) => {
        this.#reply.reject(error);
        throw error;
      });
    await new Promise<void>((connected) => {
      const connect = (sink: Sink): Sink => {
        connected();
        return untilExpiry(sink, this.#request);
      };
      this.#reply.resolve(sse(services, session, found, 'postStreams', connect));
      inbound.signal.addEventListener('abort', () => connected(), { once: true });
    });
    this.#stream = stream;
    session.taskReplies.set(id, () => {
      this.#isStopped = true;
    });
    // For a client that has no other id to come back with.
    if (session.can('primes')) void stream.event({ data: '', retry: RETRY });
    for (const message of this.#said.splice(0)) {
      if (message.method === undefined) this.#ended = stream.send(message, true);
      else void stream.event(askEvent(session, message));
    }
  }

  /** It is held back no more. */
  #leave(): void {
    this.#held.release();
    this.#release();
  }
}

/** Its user takes a while: if this process ends meanwhile, so may the next one to come up. */
function askEvent(session: Session, message: JsonObject): StreamEvent {
  const retry = session.can('primes') ? { retry: RETRY_LATER } : {};
  return { event: 'message', data: messageText(message), ...retry };
}

/** The request that a stream is the reply to. */
function recordOf(stream: string): string {
  return `${stream}:request`;
}

/** A connection whose client is told as the reply's time ends, if a store that is away keeps its outcome from it. */
function untilExpiry(sink: Sink, request: Partial<Pick<RpcRequest, 'id'>>): Sink {
  return {
    ...sink,
    end: (why) => {
      const id = why === 'expired' ? request.id : undefined;
      if (id !== undefined) sink.send(expiredEvent(LIVE_REPLY, id));
      sink.end(id === undefined ? why : 'finished');
    },
  };
}

/** A client came back for such a reply: this process goes on with it, whichever began it. @returns its connection */
export function resumeTaskReply({ services, session }: Exchange, stream: string, sink: Sink): Sink {
  const stopping = new AbortController();
  const { signal } = stopping;
  const stop = (): void => stopping.abort();
  sink.onClose(stop);
  // Its id is read with the rest.
  const request: { id?: RpcRequest['id'] } = {};
  const { logger, limits } = services.settings;
  const goOn = async (): Promise<void> => {
    while (!signal.aborted) {
      try {
        if (await produce(services, session, stream, { signal, stop, to: request })) break;
      } catch (error) {
        // The client waits on its connection for as long as the store is away.
        logger.warn('the reply to a client that waits for a task waits for the store', { error });
      }
      await pause(limits.lease / 2, signal);
    }
    if (session.taskReplies.get(stream) === stop) session.taskReplies.delete(stream);
  };
  void goOn();
  return untilExpiry(sink, request);
}

/** @returns whether nothing more is to be appended */
async function produce(
  services: Services,
  session: Session,
  stream: string,
  { signal: stopped, stop, to }: { signal: AbortSignal; stop: () => void; to: { id?: RpcRequest['id'] } },
): Promise<boolean> {
  const { store } = services;
  const record = store?.isShared === true ? await store.get(recordOf(stream)) : undefined;
  if (!isObject(record) || !isRequestId(record.id) || !isObject(record.params)) return true;
  const request = { id: record.id, method: String(record.method), params: record.params };
  to.id = record.id;
  const other = session.taskReplies.get(stream);
  if (other !== stop) other?.();
  session.taskReplies.set(stream, stop);
  const found = await services.streams.events(stream, session.id, session.principal, ({ data = '' }) =>
    data === '' ? undefined : (JSON.parse(data) as JsonObject).id,
  );
  if (found === undefined) return true;
  const { end } = found;
  const sent = [...found.events];
  const own = new SessionStream(
    services.streams.shared(stream, session.id, { owner: session.principal, end }),
    services,
  );
  // Another process appended, which ends this appender.
  const isBehind = new AbortController();
  const signal = AbortSignal.any([stopped, isBehind.signal]);
  const send = (message: JsonObject, times: number): void => {
    if (sent.filter((id) => id === message.id).length >= times || signal.aborted) return;
    sent.push(message.id);
    void own.event(askEvent(session, message)).then((isThere) => isThere || isBehind.abort());
  };
  const told = deferred<void>();
  try {
    const response = await serveSessionTask(services, session, request, send, signal, told.promise);
    if (signal.aborted) return false;
    return await own.send({ jsonrpc: '2.0', id: request.id, ...response }, true);
  } finally {
    told.resolve();
  }
}
