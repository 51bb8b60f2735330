/**
 * One session of a client in this process: its server instance, the calls it has in work here and the asks it
 * has not answered. The session itself is in its id, or in a record under it; its streams, its calls and their
 * answers are in the store, so any process can go on with them.
 */
import { randomUUID } from 'node:crypto';
import { bindingOf } from '../../src/call/binding.ts';
import type { Begun, NewCall, Started } from '../../src/call/engine.ts';
import type { CallRecord, Client, OpenAsk, TaskWish } from '../../src/call/journal.ts';
import { isObject, type JsonObject } from '../../src/call/json.ts';
import type { Binding, Gone, Leg, Outcome } from '../../src/call/ports.ts';
import { AwaitError } from '../../src/error.ts';
import type { HostInstance, Outside } from '../../src/host/instance.ts';
import { type Message, responseOf } from '../../src/host/transport.ts';
import { isRequestId } from '../../src/http/reply.ts';
import type { Sink } from '../../src/stream/tail.ts';
import { cancelElsewhere, noteRequest } from '../cancellation.ts';
import type { Services } from '../services.ts';
import { relatedTo } from '../tasks/legacy-wire.ts';
import { SessionAsks } from './asks.ts';
import { expiryOf, LEAST_LIFETIME } from './identity.ts';
import type { Identity } from './sessions.ts';
import { SessionState } from './state.ts';
import { SessionStream } from './stream.ts';

/** The methods whose requests go on without their connection: others answer at once. */
export const CALLS: ReadonlySet<string> = new Set(['tools/call', 'prompts/get', 'resources/read']);

/** How often a session that is over looks whether its tasks are, in milliseconds. */
const TASKS_LOOK = 1_000;

export interface RpcRequest {
  readonly id: string | number;
  readonly method: string;
  readonly params: JsonObject;
}

type Source = Pick<Leg, 'authInfo' | 'request' | 'closeStream'>;

export class Session {
  readonly id: string;
  /** What its records stand under. */
  readonly name: string;
  readonly principal: string | undefined;
  /** What it negotiated; its server's instance may speak another. */
  readonly revision: string;
  /** When it is over, in milliseconds since the epoch. */
  readonly expires: number;
  /** What its client set since it began. */
  readonly state: SessionState;
  used: number;
  #client: Client | undefined;
  readonly #services: Services;
  readonly #reserved = new Set<string | number>();
  /** By the client's request id, for its cancellations. */
  readonly #calls = new Map<string | number, Started>();
  /** By the call's id, for its answers. */
  readonly #running = new Map<string, Started>();
  /** Tasks that run in its instance. */
  readonly #tasks = new Set<string>();
  readonly #turns = new Map<string, Promise<unknown>>();
  /** What is asked outside of calls. */
  readonly #asks: SessionAsks;
  readonly #standing: SessionStream;
  readonly #over = new AbortController();
  #connections = 0;
  #instance: Promise<HostInstance> | undefined;
  #opened: HostInstance | undefined;

  constructor(id: string, { name, principal, revision, client }: Identity, services: Services) {
    this.id = id;
    this.name = name;
    this.principal = principal;
    this.revision = revision;
    this.expires = expiryOf(name);
    this.#client = client;
    this.#services = services;
    this.used = services.now();
    this.state = new SessionState(services, name, this.expires);
    this.#asks = new SessionAsks(services, name, this.expires);
    this.#standing = new SessionStream(services.streams.standing(id, this.expires), services);
  }

  /** @throws AwaitError `closed` as long as it is unknown, and nothing is asked of the session */
  get client(): Client {
    if (this.#client === undefined) throw new AwaitError('closed', 'this session has not begun');
    return this.#client;
  }

  /** Whether its client said who it is. */
  get isKnown(): boolean {
    return this.#client !== undefined;
  }

  /** Its client says who it is; undefined takes that back. */
  introduce(client: Client | undefined): void {
    this.#client = client;
  }

  /** Fires when it is let go here. */
  get over(): Gone {
    return this.#over.signal;
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

  /**
   * A request waits here for what it comes to.
   * @returns how to tell that it has it
   */
  hold(): () => void {
    this.#connections += 1;
    return () => {
      this.#connections -= 1;
    };
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

  /** Requests that are in work here. */
  get inWork(): number {
    return this.#reserved.size;
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
  ): Begun {
    const { method, params, id: requestId } = request;
    const leg = this.#leg(
      params,
      source,
      () => started.callId,
      (message) => stream.send(message),
    );
    const resumable = CALLS.has(method) && this.#services.store?.isShared === true;
    const started: Begun = this.#begin(request, leg, instance, { resumable });
    if (CALLS.has(method)) this.keepCall(requestId, started);
    else this.keep(requestId, started);
    return started;
  }

  /** Starts a call that is a task at once: what it says goes to the standing stream. */
  startTask(
    request: RpcRequest,
    instance: HostInstance | undefined,
    source: Source,
    task: TaskWish,
    ttl: number | undefined,
  ): Begun {
    const leg: Leg = {
      ...this.#leg(
        request.params,
        source,
        () => started.callId,
        (message) => void this.#standing.send(relatedMessage(started.callId, message)),
      ),
      takesTasks: true,
      ask: () => {},
      withdraw: () => {},
    };
    const started: Begun = this.#begin(request, leg, instance, { task, ...(ttl !== undefined && { ttl }) });
    if (instance !== undefined) this.#hold(started);
    return started;
  }

  #begin(
    request: RpcRequest,
    leg: Leg,
    instance: HostInstance | undefined,
    how: Pick<NewCall, 'resumable' | 'task' | 'ttl'>,
  ): Begun {
    const { method, params, id: requestId } = request;
    const { client } = this;
    const call: NewCall = { method, params, requestId, client, binding: this.binding(request), ...how };
    return this.#services.engine.start(call, leg, instance);
  }

  /** A task goes on without its session, and needs its instance. */
  #hold({ callId, outcome }: Begun): void {
    for (const id of this.#tasks) if (!this.#isTask(id)) this.#tasks.delete(id);
    void outcome.then(({ kind }) => {
      if (kind === 'task') this.#tasks.add(callId);
    });
  }

  #isTask(callId: string): boolean {
    return this.#services.engine.tasks?.runs(callId) === true;
  }

  /**
   * Follows a call that another process runs, and takes it up when that is silent for a lease.
   *
   * @param take an instance for it, and its stream from here on
   * @param pace longest pause between two looks at it, in milliseconds
   */
  follow(
    callId: string,
    source: Source,
    take: (call: CallRecord) => Promise<{ instance: HostInstance | undefined; stream: SessionStream }>,
    pace?: number,
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
    const onTaken = async (call: CallRecord): Promise<HostInstance | undefined> => {
      isTaken = true;
      const taken = await take(call);
      stream = taken.stream;
      this.keepCall(call.requestId, started);
      return taken.instance;
    };
    const started: Started = this.#services.engine.takeUp(callId, binding, leg, onTaken, { pace });
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
    const slash = id.indexOf('/');
    if (slash < 0) return this.#asks.answer(id, response);
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
      if (!isRequestId(requestId)) return;
      const call = this.#calls.get(requestId);
      if (call === undefined) cancelElsewhere(this.#services, this.name, requestId, this.principal);
      else call.cancel(typeof reason === 'string' ? reason : undefined);
      return;
    }
    const instance = await this.#instance;
    instance?.notify({ jsonrpc: '2.0', method: String(method), ...(isObject(params) && { params }) });
    await this.state.notified(instance, String(method));
  }

  /** Ends it: its tools are told, by their signals. */
  close(): void {
    for (const call of this.#calls.values()) call.cancel('the session was closed');
    this.#services.streams.drop(this.id);
    this.leave();
  }

  /**
   * It is served here no more, and tools hear nothing of it (invariant 1).
   * @param atOnce the process goes away: its tasks are put down, and others take them up
   */
  leave(atOnce = false): void {
    this.#asks.close();
    this.#over.abort();
    this.#services.streams.leave(this.#standing.id, this.id);
    this.#closeInstance(atOnce);
  }

  #closeInstance(atOnce: boolean): void {
    const isNeeded = !atOnce && [...this.#tasks].some((id) => this.#isTask(id));
    if (isNeeded) setTimeout(() => this.#closeInstance(false), TASKS_LOOK).unref();
    else this.#opened?.close();
  }

  /** A call that the client may cancel at any process. */
  keepCall(requestId: string | number, started: Started): void {
    this.keep(requestId, started);
    noteRequest(this.#services, this.name, requestId, started, this.expires);
  }

  /** What the client may cancel here. */
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
    return bindingOf({ revision, method, params, principal: this.principal });
  }

  /** Before a call's outcome is told: what it left in its server is every process's. */
  async settled(): Promise<void> {
    const instance = await this.#instance;
    if (instance === undefined) return;
    try {
      await this.state.settle(instance, (message) => this.#tell(message));
    } catch (error) {
      this.#services.settings.logger.warn('a change of a session could not be kept', {
        error: String(error),
      });
    }
  }

  /** What a server does on its own account goes over the session's standing stream. */
  #outside(): Outside {
    const { logger } = this.#services.settings;
    return {
      notification: (message, frame) => {
        if (message.method === 'notifications/tools/list_changed') this.#services.marks.forget();
        if (!this.state.holds(message, frame)) this.#tell(message);
      },
      request: ({ method, params }) =>
        this.#asks.ask(method, params, (message) => this.#standing.send(message)),
      error: (error) => logger.warn('a server instance reported an error', { error: String(error) }),
    };
  }

  #tell({ method, params }: Message): void {
    this.#standing.send({ jsonrpc: '2.0', method, ...(params !== undefined && { params }) });
  }
}

/** A message of a task, on the session's stream. */
function relatedMessage(taskId: string, message: JsonObject): JsonObject {
  return { ...message, params: relatedTo(taskId, isObject(message.params) ? message.params : {}) };
}

/** URL mode needs an `elicitationId` on the revisions with sessions. */
export function paramsOf({ method, params }: OpenAsk): { params?: JsonObject } {
  if (Object.keys(params).length === 0) return {};
  const isUrl = method === 'elicitation/create' && params.mode === 'url';
  return { params: isUrl ? { elicitationId: randomUUID(), ...params } : params };
}
