/**
 * One session of a client in this process: its server instance, its running calls and its open asks. The session's
 * facts are in its id, or in a record under it; its streams, calls and answers are in the store, so any process can
 * continue them.
 */
import { setMaxListeners } from 'node:events';
import { AwaitError, CANCEL, defined, isObject, type JsonObject, objectOf } from '../../src/base/values.ts';
import type { Begun, Started } from '../../src/call/engine.ts';
import type { Client, Kept, Response, TaskWish } from '../../src/call/journal/entries.ts';
import type { AbortSignalLike } from '../../src/call/ports.ts';
import type { CallerOf } from '../../src/call/task/tasks.ts';
import { isRequestId } from '../../src/doors/http/reply.ts';
import type { Services } from '../../src/handler/services.ts';
import type { HostInstance } from '../../src/host/instance.ts';
import { type AskMessage, type Outside, refuseOutside } from '../../src/host/router.ts';
import type { Message } from '../../src/host/transport.ts';
import { expiryOf as expiryOfStream, newStreamId } from '../../src/stream/event-id.ts';
import type { Sink, TailEnd } from '../../src/stream/tail.ts';
import { cancelElsewhere, noteRequest } from '../cancellation.ts';
import type { Ability } from '../revision-facts.ts';
import { relatedTo } from '../tasks/legacy-wire.ts';
import { SessionAsks } from './asks.ts';
import { expiryOf, holderOf, type SessionIdentity } from './identity.ts';
import { LiveCalls } from './live-calls.ts';
import { CALLS, type Caller, loggedWay, type RpcRequest, type Source, startCall } from './start.ts';
import { type News, remembered, SessionState } from './state.ts';
import { type CallStream, SessionStream } from './stream.ts';

/** How often a session that is over looks whether its tasks are, in milliseconds. */
const TASKS_LOOK = 1_000;

export class Session {
  readonly id: string;
  /** The prefix of its records. */
  readonly name: string;
  readonly principal: string | undefined;
  /** Where it was begun from, as far as that is counted. */
  readonly address: string | undefined;
  /** The negotiated revision; its server's instance may speak another. */
  readonly revision: string;
  /** When it is over, in milliseconds since the epoch. */
  readonly expires: number;
  /** Whose bytes its records count with. */
  readonly holder: Kept;
  /** State that its client set since it began. */
  readonly state: SessionState;
  /** Replies to clients that wait for a task, by their streams: how to stop what this process does for one. */
  readonly taskReplies = new Map<string, () => void>();
  used: number;
  #client: Client | undefined;
  readonly #services: Services;
  readonly #reserved = new Set<string | number>();
  /** By the client's request id, for its cancellations. */
  readonly #calls = new Map<string | number, Started>();
  /** The streams of its running requests, by call. */
  readonly #streams = new Map<string, CallStream>();
  readonly #live: LiveCalls;
  /** Tasks that run in its instance. */
  readonly #tasks = new Set<string>();
  readonly #turns = new Map<string, Promise<unknown>>();
  /** Asks outside of calls. */
  readonly #asks: SessionAsks;
  readonly #standing: SessionStream;
  readonly #over = new AbortController();
  #connections = 0;
  #instance: Promise<HostInstance> | undefined;
  #opened: HostInstance | undefined;

  constructor(
    id: string,
    { name, principal, revision, client }: SessionIdentity,
    services: Services,
    address?: string | undefined,
  ) {
    this.id = id;
    this.address = address;
    this.name = name;
    this.principal = principal;
    this.revision = revision;
    this.expires = expiryOf(name);
    this.#client = client;
    this.#services = services;
    // One for each of its streams: Node would warn of a leak from eleven on.
    setMaxListeners(0, this.#over.signal);
    this.used = services.now();
    this.holder = holderOf(name, principal);
    this.state = new SessionState(services, name, this.holder);
    this.#asks = new SessionAsks(services, () => this);
    this.#live = new LiveCalls(services, this.#asks);
    this.#standing = new SessionStream(services.streams.standing(id, this.expires, principal), services);
  }

  /** @throws AwaitError `closed` as long as it is unknown, and nothing is asked of the session */
  get client(): Client {
    if (this.#client === undefined) throw new AwaitError('closed', 'this session has not begun');
    return this.#client;
  }

  /**
   * Its client, as its calls know it.
   * @throws AwaitError `closed` once the session is over here: nothing starts in it any more
   */
  get caller(): Caller {
    if (this.#over.signal.aborted) throw overBefore();
    const { client, principal } = this;
    return { client, principal, revision: client.protocolVersion };
  }

  /** Whether the revision that its client speaks has something. Over HTTP+SSE, too, clients speak later ones. */
  can(ability: Ability): boolean {
    const { table } = this.#services;
    const own = table.get(this.revision);
    const spoken = own?.wire?.isDraft ? own : table.get(this.client.protocolVersion);
    return spoken?.can.includes(ability) === true;
  }

  /** Whether its client has sent `initialize`. */
  get isKnown(): boolean {
    return this.#client !== undefined;
  }

  /** Sets the client of its `initialize`; undefined removes it. */
  introduce(client: Client | undefined): void {
    this.#client = client;
  }

  /** Fires when it is closed or evicted here. */
  get over(): AbortSignalLike {
    return this.#over.signal;
  }

  get #sender(): CallerOf {
    return { principal: this.principal, session: this.name };
  }

  /** Whether it has a connection; a session without one for long is closed, with its running calls. */
  get connected(): boolean {
    if (this.#connections > 0) this.used = this.#services.now();
    return this.#connections > 0;
  }

  /** Whether it has running or suspended calls here, which its eviction would lose or run again. */
  get busy(): boolean {
    return this.#reserved.size > 0 || this.#calls.size > 0 || this.#opened?.unfinished === true;
  }

  /** Whether it must not be evicted. */
  get held(): boolean {
    return this.connected || this.busy;
  }

  /**
   * Counts a waiting request as a connection.
   * @returns a function to call when the request has its response
   */
  hold(): () => void {
    this.#connections += 1;
    return () => {
      this.#connections -= 1;
    };
  }

  /** Counts a connection for as long as it is there. */
  connect(sink: Sink): Sink {
    let isEnded = false;
    const end = (why: TailEnd): void => {
      if (isEnded) return;
      isEnded = true;
      sink.end(why);
    };
    const onOver = (): void => end('closed');
    this.#connections += 1;
    this.#over.signal.addEventListener('abort', onOver, { once: true });
    sink.onClose(() => {
      this.#connections -= 1;
      this.#over.signal.removeEventListener('abort', onOver);
    });
    if (this.#over.signal.aborted) onOver();
    return { ...sink, end };
  }

  /**
   * Resolves once nothing is missed that `handler.notify` says.
   * @returns has a connection of its standing stream get that, too, in events without ids
   */
  async announced(): Promise<(sink: Sink) => Sink> {
    const { announcements, settings } = this.#services;
    const end = await announcements.listen();
    return (sink) => {
      const send = (message: JsonObject): void =>
        void sink.send({ event: 'message', data: JSON.stringify({ jsonrpc: '2.0', ...message }) });
      const stop = announcements.onHeard((message, _audience, toSessions) => {
        if (!toSessions) return;
        if (message.method !== 'notifications/resources/updated') return send(message);
        const uri = isObject(message.params) ? String(message.params.uri) : '';
        void this.state.subscribes(uri).then(
          (is) => is && send(message),
          (error: unknown) =>
            settings.logger.warn('the subscriptions of a session cannot be read', { error }),
        );
      });
      sink.onClose(() => {
        stop();
        end();
      });
      return sink;
    };
  }

  get standing(): SessionStream {
    return this.#standing;
  }

  /**
   * A stream of its own for a POST: it holds the events of its calls, and lives no longer than they may.
   * @throws AwaitError `closed` if the session ended meanwhile, since the stream would never be ended
   */
  newStream(id = this.newStreamId()): SessionStream {
    if (this.#over.signal.aborted) throw overBefore();
    return new SessionStream(
      this.#services.streams.open(this.id, expiryOfStream(id), { id, owner: this.principal }),
      this.#services,
    );
  }

  /** An id for such a stream. */
  newStreamId(): string {
    const { settings, now } = this.#services;
    return newStreamId(now() + settings.ttl);
  }

  /** The session's server instance, made when it is first needed. */
  instance(open: (outside: Outside) => Promise<HostInstance>): Promise<HostInstance> {
    if (this.#over.signal.aborted) return Promise.reject(overBefore());
    this.#instance ??= open(this.#outside()).then(
      (instance) => {
        this.#opened = instance;
        if (!this.#over.signal.aborted) return instance;
        // Closed here, since the session no longer owns it.
        instance.close();
        throw overBefore();
      },
      (error: unknown) => {
        this.#instance = undefined;
        throw error;
      },
    );
    return this.#instance;
  }

  /** The same, with the client's changes at other processes. */
  ready(open: (outside: Outside) => Promise<HostInstance>, news?: News): Promise<HostInstance> {
    const made = this.instance(open);
    if (this.state.isCurrent(news)) return made;
    return made.then(async (instance) => {
      await this.state.catchUp(instance, news);
      return instance;
    });
  }

  /** Reserves a request's id; false if a running request has it. */
  reserve(id: string | number): boolean {
    if (this.#reserved.has(id)) return false;
    this.#reserved.add(id);
    return true;
  }

  /** Requests that run here. */
  get inWork(): number {
    return this.#reserved.size;
  }

  release(id: string | number): void {
    this.#reserved.delete(id);
  }

  /** Starts a request; its notifications and asks go to its stream. */
  start(request: RpcRequest, instance: HostInstance | undefined, source: Source, stream: CallStream): Begun {
    const { caller } = this;
    const { log } = stream;
    if (log === undefined) throw new TypeError('a call has a log');
    const resumable = this.#services.store?.isShared === true;
    const started = startCall(
      this.#services,
      { request, caller, source, resumable, ...log.how },
      () => loggedWay(log.direct, (response) => this.beforeEnd(request, response)),
      instance,
    );
    this.#streams.set(started.callId, stream);
    void started.outcome.then(() => this.#streams.delete(started.callId));
    log.add(started);
    if (CALLS.has(request.method)) this.keepCall(request.id, started);
    else this.keep(request.id, started);
    return started;
  }

  /** Starts a call that is a task at once; its notifications go to the standing stream. */
  startTask(
    request: RpcRequest,
    instance: HostInstance | undefined,
    source: Source,
    task: TaskWish,
    ttl: number | undefined,
  ): Begun {
    const { caller } = this;
    const started = startCall(
      this.#services,
      { request, caller, source, task, ...defined({ ttl }) },
      (callId) => ({
        live: true,
        takesTasks: true,
        notify: ({ params, ...message }) =>
          this.#standing.send({
            jsonrpc: '2.0',
            ...message,
            params: relatedTo(callId(), objectOf(params)),
          }),
      }),
      instance,
    );
    if (instance === undefined) return started;
    // A task outlives its session, and needs its instance.
    for (const id of this.#tasks) if (!this.#isTask(id)) this.#tasks.delete(id);
    void started.outcome.then(({ kind }) => {
      if (kind === 'task') this.#tasks.add(started.callId);
    });
    return started;
  }

  #isTask(callId: string): boolean {
    return this.#services.engine.tasks?.runs(callId) === true;
  }

  /** Whether a call is run here whose reply is read from its log. */
  runsLogged(callId: string): boolean {
    return this.#streams.get(callId)?.log !== undefined;
  }

  /** Whether a call is run here. */
  runs(callId: string): boolean {
    return this.#live.runs(callId);
  }

  /** Runs a function once for all concurrent requests of the same key. */
  once<T>(key: string, run: () => Promise<T>): Promise<T> {
    const known = this.#turns.get(key);
    if (known !== undefined) return known as Promise<T>;
    const turn = run().finally(() => this.#turns.delete(key));
    this.#turns.set(key, turn);
    return turn;
  }

  /** @returns false when nothing of this session asked it, or waits for it any more */
  async answer(message: JsonObject): Promise<boolean> {
    const came = await this.#live.answer(this.#sender, message);
    // The server's SDK reports it, as it would on its own transport.
    if (came !== 'new') (await this.#instance)?.stray({ ...message, jsonrpc: '2.0' } as Message);
    return came !== undefined;
  }

  /** Ends the connection of its standing stream, in whichever process it is; its client comes back. */
  closeStanding(): void {
    const { streams, settings } = this.#services;
    streams.endConnection(this.#standing.id, this.id).catch((error: unknown) => {
      settings.logger.warn("a session's stream could not be closed", { error });
    });
  }

  /** A notification of the client's. */
  async notified(message: JsonObject): Promise<void> {
    const { method, params } = message;
    if (method === 'notifications/initialized') return;
    if (method === CANCEL) {
      const { requestId, reason } = objectOf(params);
      if (!isRequestId(requestId)) return;
      const call = this.#calls.get(requestId);
      if (call === undefined) cancelElsewhere(this.#services, this.name, requestId, this.principal);
      else call.cancel(typeof reason === 'string' ? reason : undefined);
      return;
    }
    if (method === 'notifications/progress' && (await this.#live.report(this.#sender, params))) return;
    const instance = await this.#instance;
    instance?.notify({ jsonrpc: '2.0', method: String(method), ...(isObject(params) && { params }) });
    await this.state.notified(instance, String(method));
  }

  /** Ends the session: its tools' signals fire. */
  close(): void {
    for (const call of this.#calls.values()) call.cancel('the session was closed');
    this.#services.streams.drop(this.id);
    this.leave();
  }

  /**
   * Stops serving it here; its tools do not notice (invariant 1).
   * @param atOnce the process shuts down: its tasks are given up, and others take them over
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
  keepCall(requestId: string | number, started: Started & Partial<Pick<Begun, 'kept'>>): void {
    this.keep(requestId, started);
    noteRequest(this.#services, this.name, requestId, started, this.expires);
  }

  /** Registers a call that the client may cancel here. */
  keep(requestId: string | number, started: Started): void {
    // It was between the store and its start when the session ended.
    if (this.#over.signal.aborted) started.cancel('the session was closed');
    this.#calls.set(requestId, started);
    this.#live.keep(started, this.#sender);
    void started.outcome.then(() => {
      if (this.#calls.get(requestId) === started) this.#calls.delete(requestId);
    });
  }

  /**
   * Called before a call's outcome is sent: stores the call's changes to its server for all processes, and sends what
   * its server asked before.
   */
  settled(): Promise<unknown> | undefined {
    const { sending } = this.#asks;
    if (!this.state.hasChanges) return sending;
    return Promise.all([sending, this.#settle()]);
  }

  /** As `settled`, where the response is about to be in the call's log; a request that sets state is stored too. */
  beforeEnd(
    { method, params }: Pick<RpcRequest, 'method' | 'params'>,
    response: Response,
  ): Promise<unknown> | undefined {
    const instance = this.#opened;
    const isDone = 'result' in response && instance !== undefined;
    const recorded = isDone ? this.state.record(instance, method, params) : undefined;
    if (recorded === undefined) return this.settled();
    return Promise.all([remembered(this.#services, recorded), this.settled()]);
  }

  async #settle(): Promise<void> {
    const instance = await this.#instance;
    if (instance === undefined) return;
    try {
      await this.state.settle(instance, (message) => this.#tell(message));
    } catch (error) {
      this.#services.settings.logger.warn('a change of a session could not be stored', {
        error,
      });
    }
  }

  /** Sends a server's own messages over the session's standing stream. */
  #outside(): Outside {
    const { logger } = this.#services.settings;
    return {
      isUsed: () => this.connected || this.busy,
      notification: (message, frame) => {
        this.#changed(message);
        if (!this.state.holds(message, frame)) this.#tell(message);
      },
      inReply: (message) => {
        this.#changed(message);
        return true;
      },
      request: (asked) => {
        if (!this.can('asks-in-responses')) return this.#ask(asked, this.#standing);
        return refuseOutside(asked, logger);
      },
      requestIn: (asked, { call }) =>
        this.can('asks-in-responses') ? undefined : this.#ask(asked, this.#streams.get(call.id)),
      error: (error) => logger.warn('a server instance reported an error', { error }),
    };
  }

  #changed({ method }: Message): void {
    if (method === 'notifications/tools/list_changed') this.#services.marks.forget();
  }

  #ask(asked: AskMessage, stream: CallStream = this.#standing): Promise<Response> {
    return this.#asks.ask(asked, (message) => stream.send(message));
  }

  #tell({ method, params }: Message): void {
    this.#standing.send({ jsonrpc: '2.0', method, ...defined({ params }) });
  }
}

/** A request was on its way here when its session ended, or was evicted. */
function overBefore(): AwaitError {
  return new AwaitError('closed', 'this session has ended');
}
