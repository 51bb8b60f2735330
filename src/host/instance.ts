/**
 * One instance of the user's server, connected and initialized as its client would do it (invariant 4): with the
 * client's capabilities, name, version and era.
 * It owns the calls that are open in the server; the router assigns asks and notifications to them.
 */
import { digest } from '../base/digest.ts';
import {
  CANCEL,
  defined,
  isObject,
  type JsonObject,
  keepNewest,
  memoryOf,
  objectOf,
  sleep,
  systemClock,
  WENT_ON,
} from '../base/values.ts';
import { namesOddUrl, ODD_URL } from '../base/web-url.ts';
import { contextOfRequest, nameCall, runInContext, runOutsideContext } from '../call/frame/context.ts';
import type { Frame } from '../call/frame/frame.ts';
import { KEY_META } from '../call/frame/place.ts';
import type { Client, Response } from '../call/journal/entries.ts';
import type { AbortSignalLike, Instance, InstanceContext } from '../call/ports.ts';
import { told } from '../call/run/wire-error.ts';
import { envelopeOf, hasEras, LOG_LEVEL } from './era.ts';
import { type Guards, guardsOf } from './guards.ts';
import { type FactoryContext, type HostFactory, type Made, make } from './host.ts';
import { LazyRequest } from './intercept.ts';
import { type InFlight, type Outside, Router } from './router.ts';
import { type BegunHost, start } from './start.ts';
import { HostTransport, type Message, progressTokenOf } from './transport.ts';

/** Methods that every SDK server answers by itself, and that only sessions have. */
const SESSION_METHODS: ReadonlySet<string> = new Set(['initialize', 'ping', 'logging/setLevel']);

/** The response to requests that are open in a server when it closes. */
const CLOSED: Response = { error: { code: -32000, message: 'Connection closed' } };

/** How many ids of requests without a response an instance remembers. */
const UNANSWERED = 1_000;

export interface InstanceOptions {
  readonly factory: HostFactory;
  readonly context: FactoryContext;
  readonly client: Client;
  /** The session's id, or the call's: servers keep state in maps by it. */
  readonly sessionId: string;
  /** Whether the instance serves one call alone. */
  readonly single: boolean;
  /** Whether it joins a call or session that its client began earlier, here or in another process. */
  readonly joins: boolean;
  /** Whether calls get an async context of their own. */
  readonly contexts: boolean;
  /** Receives messages that belong to no call. */
  readonly outside: Outside;
  /** Whose requests that are no calls it gets. */
  readonly principal?: string | undefined;
  /**
   * A request of so many bytes was let go of, and its handler may run on.
   * @param handler is held for as long as it may
   */
  readonly runsOn: (handler: object, principal: string | undefined, bytes: number) => void;
}

/** Without the factory's context, whose request a suspended call has no use for. */
type InstanceSettings = Omit<InstanceOptions, 'context'>;

export interface SentRequest {
  readonly id: string | number;
  readonly method: string;
  readonly params: JsonObject;
}

/** An instance as its opener sees it. */
export interface HostInstance extends Instance {
  /** The result of `initialize`; in an era without it, the server's capabilities, name and version. */
  readonly initialized: JsonObject;
  /** Whether a call in it is unfinished: running, or suspended with its frame here. */
  readonly unfinished: boolean;
  /**
   * Whether a tool is listed as "not a task" by its author's choice: the high-level server of SDK v1 lists every tool
   * that way, so what a server behind the proxy lists is no choice either.
   */
  readonly forbids: boolean;
  /** Checks that its SDK makes before a request reaches the server; undefined if it makes none. */
  readonly guards: Guards | undefined;
  /** Whether the server has a handler for a method without a capability of its own. */
  handles(method: string): boolean;
  /** Sends a request that cannot ask, such as `tools/list` on revisions without sessions, until its client is gone. */
  request(request: SentRequest, context: InstanceContext, gone?: AbortSignalLike): Promise<Response>;
  /** A notification of the client's. */
  notify(message: Message): void;
  /** A response of the client's that answers no ask. */
  stray(response: Message): void;
  /** Ends the instance; a server with an unfinished frame is cut off, never closed (invariant 1). */
  close(): void;
}

export class LiveInstance implements HostInstance {
  readonly initialized: JsonObject;
  readonly guards: Guards | undefined;
  readonly #options: InstanceSettings;
  readonly #revision: string;
  readonly #made: Made;
  readonly #transport: HostTransport;
  readonly #router: Router;
  readonly #begun: BegunHost;
  /** The calls that are open in the server, with the request of their present turn. */
  readonly #calls = new Map<Frame, InstanceContext>();
  /** The ends of rounds of calls that wait for answers. */
  readonly #between = new WeakMap<Frame, JsonObject>();
  #released = false;
  #again = 0;
  /** Ids of requests that ended without a response: what their handlers still do must not count as another one's. */
  readonly #unanswered = new Set<string | number>();

  private constructor(
    options: InstanceSettings,
    revision: string,
    made: Made,
    transport: HostTransport,
    router: Router,
    begun: BegunHost,
  ) {
    this.#options = options;
    this.#revision = revision;
    this.#made = made;
    this.#transport = transport;
    this.#router = router;
    this.#begun = begun;
    this.initialized = begun.declared;
    this.guards = guardsOf(made.server, transport.scopeResolver);
  }

  /** Makes a server, connects it and initializes it. Resolves once the tools that it registers meanwhile are there. */
  static open(options: InstanceOptions): Promise<LiveInstance> {
    return runOutsideContext(() => LiveInstance.#open(options));
  }

  static async #open({ context, ...options }: InstanceOptions): Promise<LiveInstance> {
    const { client, single } = options;
    const made = await make(options.factory, context);
    const { server } = made;
    const router = new Router(options);
    const transport = new HostTransport(options.sessionId, router, options.outside.isUsed);
    try {
      const begun = await start({ server, transport, router, context, client, single });
      router.isStarting = false;
      return new LiveInstance(options, context.revision, made, transport, router, begun);
    } catch (error) {
      transport.sever();
      cleanUp(made, options);
      throw error;
    }
  }

  get unfinished(): boolean {
    for (const frame of this.#calls.keys()) if (!frame.over) return true;
    return false;
  }

  handles(method: string): boolean {
    return (this.#begun.lowLevel?._requestHandlers.has(method) ?? false) && !SESSION_METHODS.has(method);
  }

  get forbids(): boolean {
    const { lowLevel } = this.#begun;
    return hasEras(lowLevel) || (lowLevel !== undefined && !('_registeredTools' in this.#made.server));
  }

  call(frame: Frame, request: SentRequest, context: InstanceContext): void {
    this.#calls.set(frame, context);
    // A rehearsed call asks its client nothing: asks of the server's start-up wait for a call that is run.
    const held = context.isRehearsal ? undefined : this.#router.adopt(frame);
    const { lastRound } = frame;
    // The recorded params of the next round of a replayed call.
    const round =
      this.#begun.takesRounds && lastRound !== undefined ? askFor(frame, readNeeds(lastRound)) : undefined;
    if (round !== undefined) this.#between.set(frame, lastRound ?? {});
    if (held === undefined && round === undefined) this.#attempt(frame, request);
    else void Promise.all([round, held]).then(([params]) => this.#attempt(frame, request, params));
  }

  /** Runs the call's tool, from its start or with the answers that its last round needed. */
  #attempt(frame: Frame, request: SentRequest, round?: JsonObject): void {
    const { method, id } = request;
    this.#between.delete(frame);
    const runsTasks = isObject(objectOf(this.initialized.capabilities).tasks);
    const isOwn = frame.call.task?.isOwn === true && this.#options.single && runsTasks;
    const params = { ...request.params, ...(isOwn && { task: {} }), ...round };
    this.#deliver(frame, { id, method, params }, (response) => {
      const result = 'result' in response ? response.result : {};
      const asksBack = this.#begun.takesRounds && result.resultType === 'input_required';
      const needs = asksBack ? readNeeds(result) : undefined;
      // The task that the server made of the request.
      const task = isOwn ? objectOf(result.task) : {};
      const taskId = typeof task.taskId === 'string' ? task.taskId : undefined;
      if (needs !== undefined && JSON.stringify(needs).length > (frame.options.maxDrawnBytes ?? Infinity)) {
        // Each call that waits would hold it, in its frame and in its log.
        this.#finish(frame, { error: told('limit') });
      } else if (needs !== undefined) {
        this.#between.set(frame, needs);
        // It never settles if the call continues elsewhere.
        void (async () => {
          const next = await askFor(frame, readNeeds(await frame.endRound(needs)));
          if (next.inputResponses === undefined) await sleep(systemClock, PAUSE);
          this.#attempt(frame, request, next);
        })();
      } else if (taskId !== undefined) {
        // If the server runs the tool as a task of its own, the call ends with that task; its asks are the call's.
        const fetching = { id, method: 'tasks/result', params: { taskId } };
        this.#deliver(frame, fetching, (ended) => this.#finish(frame, ended));
      } else this.#finish(frame, response);
    });
  }

  #finish(frame: Frame, response: Response): void {
    this.#calls.delete(frame);
    frame.finish(response);
  }

  #deliver(frame: Frame, request: SentRequest, settle: (response: Response) => void): void {
    const context = this.#calls.get(frame);
    if (context === undefined || this.#released) return;
    const entry = this.#enter(request, context, settle, frame);
    const send = (): void => this.#send(request, context, entry);
    if (this.#options.contexts) runInContext(frame.context, send);
    else send();
    // Its handler starts in a later microtask, and may pass its `extra` on: `step(name, fn, { call: extra })`.
    const signal = this.#handlers?.get(entry.id)?.signal;
    if (signal !== undefined) nameCall(signal, frame.context);
  }

  request(request: SentRequest, context: InstanceContext, gone?: AbortSignalLike): Promise<Response> {
    if (this.#released || gone?.aborted) return Promise.resolve(CLOSED);
    return new Promise((settle) => {
      const entry = this.#enter(request, context, settle);
      gone?.addEventListener('abort', () => this.#cancelRequest(entry), { once: true });
      const send = (): void => this.#send(request, context, entry);
      if (this.#options.contexts) runInContext(contextOfRequest(entry), send);
      else send();
    });
  }

  refresh(frame: Frame, context: InstanceContext): void {
    this.#calls.set(frame, context);
    for (const entry of this.#router.inFlight.values()) {
      if (entry.frame !== frame) continue;
      entry.progress.wanted = context.progressToken;
      for (const name of Object.keys(entry.auth)) delete entry.auth[name];
      Object.assign(entry.auth, context.authInfo);
    }
  }

  cancel(frame: Frame, reason?: string): void {
    const { inFlight } = this.#router;
    this.#calls.delete(frame);
    const { requestState } = this.#between.get(frame) ?? {};
    this.#between.delete(frame);
    // A server elsewhere may keep something for the call between its rounds, such as a task.
    if (requestState !== undefined && reason !== WENT_ON && this.#begun.lowLevel === undefined)
      this.notify({ jsonrpc: '2.0', method: CANCEL, params: { requestState } });
    for (const [id, entry] of inFlight) {
      if (entry.frame !== frame) continue;
      this.#tell(id, reason);
      this.#letGo(entry);
    }
  }

  /** Cancels a request: its handler's signal fires. */
  #tell(requestId: string | number, reason?: string): void {
    this.notify({ jsonrpc: '2.0', method: CANCEL, params: { requestId, ...defined({ reason }) } });
    // The SDK looks for it in a later microtask.
    this.#handlers?.get(requestId)?.abort(reason);
  }

  /** The SDK's own, for each request whose handler is not done. */
  get #handlers(): Map<string | number, AbortController> | undefined {
    return this.#begun.lowLevel?._requestHandlerAbortControllers;
  }

  /** The client of a request that is no call has gone, or the instance closes: its handler is cancelled. */
  #cancelRequest(entry: InFlight): void {
    if (this.#router.inFlight.get(entry.id) !== entry) return;
    this.#tell(entry.id);
    this.#letGo(entry);
    entry.settle(CLOSED);
  }

  /** A frame that was dropped: it answers no more, and nothing is kept for it. */
  abandon(frame: Frame): void {
    const { inFlight } = this.#router;
    this.#calls.delete(frame);
    this.#between.delete(frame);
    this.#router.leave(frame);
    for (const entry of inFlight.values()) if (entry.frame === frame) this.#letGo(entry);
  }

  /** Nothing waits for its response: the server keeps it for as long as its handler may run on, and no longer. */
  #letGo(entry: InFlight): void {
    const { id, params, frame } = entry;
    this.#router.inFlight.delete(id);
    keepNewest(this.#unanswered.add(shortOf(id)), UNANSWERED);
    const handler = this.#handlers?.get(id)?.signal ?? params;
    this.#handlers?.delete(id);
    const { runsOn, principal } = this.#options;
    const bytes = memoryOf(params) + (frame?.memory() ?? 0);
    runsOn(handler, frame === undefined ? principal : frame.call.principal, bytes);
  }

  notify(message: Message): void {
    this.#transport.deliver(message);
  }

  stray(response: Message): void {
    this.#transport.deliverStray(response);
  }

  release(unfinished: boolean, frame?: Frame, why?: string): void {
    if (this.#options.single) this.close(unfinished);
    else if (unfinished && frame !== undefined) {
      if (why === undefined) this.abandon(frame);
      else this.cancel(frame, why);
    }
  }

  close(unfinished = false): void {
    if (this.#released) return;
    this.#released = true;
    cleanUp(this.#made, this.#options);
    // Closing a finished server only calls its `onclose`, for which an SDK makes an error.
    const unheard = this.#begun.lowLevel?.onclose === undefined && this.#options.single;
    if (unfinished || unheard || this.#calls.size > 0 || this.#router.inFlight.size > 0) {
      for (const entry of [...this.#router.inFlight.values()])
        if (entry.frame === undefined) this.#cancelRequest(entry);
        else this.#letGo(entry);
      this.#transport.sever();
      for (const frame of this.#calls.keys()) dropParked(frame);
      this.#calls.clear();
      return;
    }
    // In a later turn of the event loop: the SDK still finishes the request whose response it just sent.
    setImmediate(() => {
      const closed = Promise.resolve().then(() => this.#made.server.close?.());
      closed.catch((error: unknown) => this.#options.outside.error(error));
    });
  }

  #enter(
    request: SentRequest,
    context: InstanceContext,
    settle: (response: Response) => void,
    frame?: Frame,
  ): InFlight {
    const { inFlight } = this.#router;
    // SDK v1 does not cancel a request with the id 0, which some clients use first.
    const wanted = request.id === 0 ? 'mcp-await-0' : request.id;
    // A frame of this call that was dropped may answer its request yet, and must not answer for the new one.
    const isTaken = inFlight.has(wanted) || this.#unanswered.has(shortOf(wanted));
    if (isTaken) this.#again += 1;
    const id = isTaken ? `mcp-await-${this.#again}-${wanted}` : wanted;
    const entry: InFlight = {
      id,
      ...defined({ frame }),
      method: request.method,
      params: request.params,
      settle: (response) => {
        // No client is sent to a URL that is not of the web (`javascript:`): that error is replaced on every revision.
        const isOdd = 'error' in response && namesOddUrl(response.error);
        settle(isOdd ? { error: { code: -32603, message: `Internal error: ${ODD_URL}` } } : response);
      },
      progress: { known: progressTokenOf(request.params), wanted: context.progressToken },
      auth: { ...context.authInfo },
    };
    inFlight.set(id, entry);
    return entry;
  }

  #send({ method, params }: SentRequest, context: InstanceContext, entry: InFlight): void {
    const { request } = context;
    const extra: JsonObject = {
      ...(context.authInfo !== undefined && { authInfo: entry.auth }),
      ...(request !== undefined && {
        requestInfo: requestInfoOf(request),
        request: new LazyRequest(request),
      }),
      ...defined({ closeSSEStream: context.closeStream, closeStandaloneSSEStream: context.closeStanding }),
    };
    this.#transport.deliver(
      { jsonrpc: '2.0', id: entry.id, method, params: this.#inEra(params, context) },
      extra,
    );
  }

  /** A call keeps the client of its first request (invariant 4). */
  #inEra(params: JsonObject, { logLevel }: InstanceContext): JsonObject {
    const { client } = this.#options;
    const meta = objectOf(params._meta);
    if (!this.#begun.isModern)
      return logLevel === undefined || !this.#begun.takesRounds
        ? params
        : { ...params, _meta: { ...meta, [LOG_LEVEL]: logLevel } };
    return { ...params, _meta: { ...meta, ...envelopeOf(this.#revision, client, logLevel) } };
  }
}

/**
 * Drops the parked frames of a closed instance: they would wait for ever. The process that resumes such a call replays
 * it.
 */
function dropParked(frame: Frame): void {
  const drop = (): void => {
    if (!frame.entered && !frame.over) frame.drop();
  };
  if (frame.busy) void frame.settled().then(drop);
  else drop();
}

/** Few bytes for an id that its client chose. */
function shortOf(id: string | number): string | number {
  return String(id).length > 64 ? digest(id) : id;
}

/** Runs the factory's `cleanup` once, whatever the state of the server; a failure is logged and stops nothing. */
function cleanUp({ cleanup }: Made, options: InstanceSettings): void {
  const cleaned = Promise.resolve().then(() => cleanup?.(options.sessionId));
  cleaned.catch((error: unknown) => options.outside.error(error));
}

/** SDK v1's view of the HTTP request, made when a tool reads it. */
function requestInfoOf(request: () => Request): JsonObject {
  return {
    get headers() {
      return Object.fromEntries(request().headers);
    },
    get url() {
      return new URL(request().url);
    },
  };
}

// --- rounds ---

/**
 * Tools that return their asks (`inputRequired`, SDK v2) instead of awaiting them. The asks go out as written, under
 * the tool's own keys; the tool's `requestState` stays in the call's journal, inside of this package's own state; and
 * each round is one attempt in the same frame as any `await` beside it.
 */

/** Before a tool that asked nothing is run again in the same process, in milliseconds, as the SDKs' clients wait. */
const PAUSE = 250;

/** The result of a round that asks. */
interface Needs extends JsonObject {
  readonly inputRequests: JsonObject;
  readonly requestState?: string;
}

/** The params with which a round is run. */
interface RoundParams extends JsonObject {
  readonly inputResponses?: JsonObject;
  readonly requestState?: string;
}

function readNeeds({ inputRequests, requestState }: JsonObject): Needs {
  return {
    inputRequests: objectOf(inputRequests),
    ...(typeof requestState === 'string' && { requestState }),
  };
}

async function askFor(frame: Frame, { inputRequests, requestState }: Needs): Promise<RoundParams> {
  const state = defined({ requestState });
  // The first one beyond the limit ends the call; a remote server may have sent any number.
  const entries = Object.entries(inputRequests).slice(0, frame.options.maxAsks + 1);
  if (entries.length === 0) {
    // Its client brings the call back without an answer.
    await frame.context.shed?.();
    return state;
  }
  const asked = entries.map(async ([key, entry]) => {
    const { method, params } = objectOf(entry);
    const given = objectOf(params);
    const meta = objectOf(given._meta);
    const named = { ...given, _meta: { ...meta, [KEY_META]: key } };
    return [key, await frame.ask(String(method), named, { inContext: true, raw: true })] as const;
  });
  const answered = await Promise.all(asked);
  const inputResponses = Object.fromEntries(
    // A client that answers by an error (of a task) gave no response to this one.
    answered.flatMap(([key, response]) => ('result' in response ? [[key, response.result]] : [])),
  );
  return { ...state, inputResponses };
}
