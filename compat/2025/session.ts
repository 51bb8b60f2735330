/**
 * One session of a 2025 client in this process: its server instance, the calls it has in work here and the asks
 * it has not answered. The session itself is in its id, sealed; its streams, its calls and their answers are in
 * the store, so any process can go on with them.
 */
import { randomUUID } from 'node:crypto';
import type { Started } from '../../src/call/engine.ts';
import type { CallRecord, Client, OpenAsk, Response } from '../../src/call/journal.ts';
import { digest, isObject, type JsonObject } from '../../src/call/json.ts';
import type { Binding, Leg, Outcome } from '../../src/call/ports.ts';
import { AwaitError } from '../../src/error.ts';
import type { HostInstance, Outside } from '../../src/host/instance.ts';
import { responseOf } from '../../src/host/transport.ts';
import type { Sink } from '../../src/stream/tail.ts';
import type { Services } from '../services.ts';
import { SessionState } from './state.ts';
import { SessionStream } from './stream.ts';

/** The methods whose requests go on without their connection: others answer at once. */
export const CALLS: ReadonlySet<string> = new Set(['tools/call', 'prompts/get', 'resources/read']);

/** Sessions and their streams outlive the calls in them. */
export const LEAST_LIFETIME = 86_400_000;

export interface RpcRequest {
  readonly id: string | number;
  readonly method: string;
  readonly params: JsonObject;
}

type Source = Pick<Leg, 'authInfo' | 'request' | 'closeStream'>;

export class Session {
  readonly id: string;
  readonly client: Client;
  readonly principal: string | undefined;
  /** What it negotiated; its server's instance may speak another. */
  readonly revision: string;
  /** When it is over, in milliseconds since the epoch. */
  readonly expires: number;
  /** What its client set since it began. */
  readonly state: SessionState;
  used: number;
  /** When the store was last asked whether it was ended, in milliseconds since the epoch. */
  checked: number;
  readonly #services: Services;
  readonly #reserved = new Set<string | number>();
  /** By the client's request id, for its cancellations. */
  readonly #calls = new Map<string | number, Started>();
  /** By the call's id, for its answers. */
  readonly #running = new Map<string, Started>();
  readonly #turns = new Map<string, Promise<unknown>>();
  /** Asks made outside of calls. */
  readonly #asked = new Map<string, (response: Response) => void>();
  readonly #standing: SessionStream;
  #connections = 0;
  #instance: Promise<HostInstance> | undefined;
  #opened: HostInstance | undefined;

  constructor(
    id: string,
    client: Client,
    principal: string | undefined,
    name: string,
    revision: string,
    services: Services,
  ) {
    // A session's name begins with when it is over.
    const expires = Number.parseInt(name.slice(0, name.indexOf('.')), 36);
    this.revision = revision;
    this.id = id;
    this.client = client;
    this.principal = principal;
    this.expires = expires;
    this.#services = services;
    this.used = services.now();
    this.checked = this.used;
    this.state = new SessionState(services, name, expires);
    this.#standing = new SessionStream(services.streams.standing(id, expires), services);
  }

  /** Whether somebody listens; a session that nobody listens to for long is let go, with what it has in work. */
  get connected(): boolean {
    if (this.#connections > 0) this.used = this.#services.now();
    return this.#connections > 0;
  }

  /** Whether calls of it are in work here. */
  get busy(): boolean {
    return this.#calls.size > 0;
  }

  /** Counts a connection for as long as it is there. */
  connect(sink: Sink): Sink {
    this.#connections += 1;
    sink.onClose(() => {
      this.#connections -= 1;
    });
    return sink;
  }

  get standing(): SessionStream {
    return this.#standing;
  }

  /** A stream of its own for a POST: it lives for as long as a call may, or its session. */
  newStream(): SessionStream {
    const { streams, settings, now } = this.#services;
    const expires = Math.max(this.expires, now() + Math.max(settings.ttl, LEAST_LIFETIME));
    return new SessionStream(streams.open(this.id, expires), this.#services);
  }

  /** The session's server instance, made when it is first needed. */
  instance(open: (outside: Outside) => Promise<HostInstance>): Promise<HostInstance> {
    this.#instance ??= open(this.#outside()).then(
      (instance) => {
        this.#opened = instance;
        return instance;
      },
      (error: unknown) => {
        this.#instance = undefined;
        throw error;
      },
    );
    return this.#instance;
  }

  /** The same, knowing what the client set at other processes. */
  async ready(open: (outside: Outside) => Promise<HostInstance>): Promise<HostInstance> {
    const instance = await this.instance(open);
    await this.state.catchUp(instance);
    return instance;
  }

  /** Takes a request's id; false when a request of this id is in work. */
  reserve(id: string | number): boolean {
    if (this.#reserved.has(id)) return false;
    this.#reserved.add(id);
    return true;
  }

  release(id: string | number): void {
    this.#reserved.delete(id);
  }

  /** Starts a request; what it says on the way goes to its stream. */
  start(
    request: RpcRequest,
    instance: HostInstance | undefined,
    source: Source,
    stream: SessionStream,
  ): Started {
    const { method, params, id: requestId } = request;
    const leg = this.#leg(
      params,
      source,
      () => started.callId,
      (message) => stream.send(message),
    );
    const started: Started = this.#services.engine.start(
      {
        method,
        params,
        requestId,
        client: this.client,
        binding: this.binding(request),
        resumable: CALLS.has(method) && this.#services.store?.isShared === true,
      },
      leg,
      instance,
    );
    this.keep(requestId, started);
    return started;
  }

  /**
   * Follows a call that another process runs, and takes it up when that is silent for a lease.
   *
   * @param take an instance for it, and its stream from here on
   */
  follow(
    callId: string,
    source: Source,
    take: (call: CallRecord) => Promise<{ instance: HostInstance | undefined; stream: SessionStream }>,
  ): { readonly outcome: Promise<Outcome>; readonly taken: () => boolean; stop(): void } {
    let stream: SessionStream | undefined;
    let isTaken = false;
    const leg = this.#leg(
      {},
      source,
      () => callId,
      (message) => stream?.send(message),
    );
    const binding = this.binding({ id: '', method: '', params: {} });
    const started = this.#services.engine.takeUp(callId, binding, leg, async (call) => {
      isTaken = true;
      const taken = await take(call);
      stream = taken.stream;
      this.keep(call.requestId, started);
      return taken.instance;
    });
    return {
      outcome: started.outcome,
      taken: () => isTaken,
      stop: () => {
        if (!isTaken) started.cancel();
      },
    };
  }

  /** Whether a call is run here. */
  runs(callId: string): boolean {
    return this.#running.has(callId);
  }

  /** Runs something once, whoever asks for it meanwhile. */
  once<T>(key: string, run: () => Promise<T>): Promise<T> {
    const known = this.#turns.get(key);
    if (known !== undefined) return known as Promise<T>;
    const turn = run().finally(() => this.#turns.delete(key));
    this.#turns.set(key, turn);
    return turn;
  }

  /** The client's response to an ask; false when nothing of this session asked it. */
  async answer(message: JsonObject): Promise<boolean> {
    const id = String(message.id);
    const response = responseOf(message);
    const settle = this.#asked.get(id);
    if (settle !== undefined) {
      this.#asked.delete(id);
      settle(response);
      return true;
    }
    const slash = id.indexOf('/');
    if (slash < 0) return false;
    const [callId, key] = [id.slice(0, slash), id.slice(slash + 1)];
    const here = this.#running.get(callId);
    if (here !== undefined) return here.answer(key, response);
    try {
      await this.#services.engine.deliver(callId, this.principal, key, response);
      return true;
    } catch (error) {
      if (error instanceof AwaitError && error.code === 'bad-token') return false;
      throw error;
    }
  }

  /** A notification of the client's. */
  async notified(message: JsonObject): Promise<void> {
    const { method, params } = message;
    if (method === 'notifications/initialized') return;
    if (method === 'notifications/cancelled') {
      const { requestId, reason } = isObject(params) ? params : {};
      const call = this.#calls.get(requestId as string | number);
      call?.cancel(typeof reason === 'string' ? reason : undefined);
      return;
    }
    const instance = await this.#instance;
    instance?.notify({ jsonrpc: '2.0', method: String(method), ...(isObject(params) && { params }) });
  }

  /** Ends it: its tools are told, by their signals. */
  close(): void {
    for (const call of this.#calls.values()) call.cancel('the session was closed');
    this.#services.streams.drop(this.id);
    this.leave();
  }

  /** The process goes away, and tools hear nothing of it (invariant 1). */
  leave(): void {
    this.#opened?.close();
  }

  /** A call that the client may cancel. */
  keep(requestId: string | number, started: Started): void {
    this.#calls.set(requestId, started);
    this.#running.set(started.callId, started);
    void started.outcome.finally(() => {
      if (this.#calls.get(requestId) === started) this.#calls.delete(requestId);
      this.#running.delete(started.callId);
    });
  }

  #leg(params: JsonObject, source: Source, callId: () => string, send: (message: JsonObject) => void): Leg {
    const meta = isObject(params._meta) ? params._meta : {};
    const token = meta.progressToken;
    // Any process that gets the answer can tell by its id whose it is.
    const idOf = (ask: OpenAsk): string => `${callId()}/${ask.key}`;
    return {
      ...source,
      live: true,
      capabilities: this.client.capabilities,
      ...((typeof token === 'string' || typeof token === 'number') && { progressToken: token }),
      notify: (notification) => send({ jsonrpc: '2.0', ...notification }),
      ask: (ask) => send({ jsonrpc: '2.0', id: idOf(ask), method: ask.method, ...paramsOf(ask) }),
      withdraw: (ask) =>
        send({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: idOf(ask) } }),
    };
  }

  /** What a call of this session is bound to. */
  binding({ method, params }: RpcRequest, revision = this.client.protocolVersion): Binding {
    return {
      revision,
      method,
      target: String(params.name ?? params.uri ?? ''),
      args: digest(params),
      ...(this.principal !== undefined && { principal: this.principal }),
    };
  }

  /** What a server does on its own account goes over the session's standing stream. */
  #outside(): Outside {
    const { logger, limits } = this.#services.settings;
    return {
      notification: ({ method, params }) => {
        this.#standing.send({ jsonrpc: '2.0', method, ...(params !== undefined && { params }) });
      },
      request: ({ method, params }) =>
        new Promise((settle) => {
          if (this.#asked.size >= limits.asks) {
            logger.warn('a server asks its session more than it may; the ask stays pending', { method });
            return;
          }
          const id = randomUUID();
          this.#asked.set(id, settle);
          this.#standing.send({ jsonrpc: '2.0', id, method, ...(isObject(params) && { params }) });
        }),
      error: (error) => logger.warn('a server instance reported an error', { error: String(error) }),
    };
  }
}

/** URL mode needs an `elicitationId` on the revisions with sessions. */
function paramsOf({ method, params }: OpenAsk): { params?: JsonObject } {
  if (Object.keys(params).length === 0) return {};
  const isUrl = method === 'elicitation/create' && params.mode === 'url';
  return { params: isUrl ? { elicitationId: randomUUID(), ...params } : params };
}
