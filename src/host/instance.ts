/**
 * One instance of the user's server, connected and initialized with the real capabilities, name and version
 * of the client that asks (invariant 4).
 *
 * It owns the table of the calls that are in the server, and says whose an ask or a notification is: by the
 * request it names, else by the async context it was made in, else, where an instance serves one call alone,
 * by the instance.
 */
import { currentContext, runInContext, runOutsideContext } from '../call/context.ts';
import type { Frame } from '../call/frame.ts';
import type { Client, Response } from '../call/journal.ts';
import { isObject, type JsonObject } from '../call/json.ts';
import type { Instance, InstanceLeg } from '../call/ports.ts';
import { AwaitError } from '../error.ts';
import { type FactoryContext, type HostFactory, type HostServer, make } from './host.ts';
import { type AskRequest, intercept, type LowLevel, lowLevelOf } from './intercept.ts';
import { HostTransport, type Message, type SendOptions } from './transport.ts';
import { shareValidator } from './validator.ts';

/** What every SDK server answers of itself, and only sessions have. */
const SESSION_METHODS: ReadonlySet<string> = new Set(['initialize', 'ping', 'logging/setLevel']);

const INITIALIZE = 'mcp-await-initialize';
const NOBODY = { known: undefined, wanted: undefined };
/** Stands in the table of requests until the instance is ready. */
const STARTING = 'mcp-await-starting';
/** How long `oninitialized` may take to register what it registers, in milliseconds. */
const INITIALIZED_WAIT = 5_000;

export interface InstanceOptions {
  readonly factory: HostFactory;
  readonly context: FactoryContext;
  readonly client: Client;
  /** The session's id, or the call's: servers keep state in maps by it. */
  readonly sessionId: string;
  /** Whether the instance serves one call alone. */
  readonly single: boolean;
  /** Whether calls get an async context of their own. */
  readonly contexts: boolean;
  /** What belongs to no call goes here. */
  readonly outside: Outside;
}

export interface Outside {
  /** @param frame the call in whose flow it was said */
  notification(message: Message, frame?: Frame): void;
  /** An ask made on start-up or on a timer. The promise may never settle. */
  request(message: { method: string; params?: unknown }): Promise<Response>;
  error(error: unknown): void;
}

interface InFlight {
  readonly id: string | number;
  readonly frame?: Frame;
  readonly settle: (response: Response) => void;
  /** The token the server knows, and the one that this turn's client wants. */
  readonly progress: { readonly known: unknown; wanted: unknown };
  /** Handed to the server once, and refreshed in place each turn. */
  readonly auth: JsonObject;
}

export class HostInstance implements Instance {
  /** The result of `initialize`. */
  readonly initialized: JsonObject;
  readonly #options: InstanceOptions;
  readonly #server: HostServer;
  readonly #cleanup: ((sessionId?: string) => void) | undefined;
  readonly #transport: HostTransport;
  readonly #router: Router;
  readonly #inFlight: Map<string | number, InFlight>;
  #released = false;
  #again = 0;

  private constructor(
    options: InstanceOptions,
    server: HostServer,
    cleanup: ((sessionId?: string) => void) | undefined,
    transport: HostTransport,
    router: Router,
    inFlight: Map<string | number, InFlight>,
    initialized: JsonObject,
  ) {
    this.#options = options;
    this.#server = server;
    this.#cleanup = cleanup;
    this.#transport = transport;
    this.#router = router;
    this.#inFlight = inFlight;
    this.initialized = initialized;
  }

  /** Makes a server, connects and initializes it; what it registers on `initialized` is there when this resolves. */
  static open(options: InstanceOptions): Promise<HostInstance> {
    return runOutsideContext(() => HostInstance.#open(options));
  }

  static async #open(options: InstanceOptions): Promise<HostInstance> {
    const { server, cleanup } = await make(options.factory, options.context);
    const inFlight = new Map<string | number, InFlight>();
    inFlight.set(STARTING, { id: STARTING, settle: () => {}, progress: NOBODY, auth: {} });
    const router = new Router(options, inFlight);
    const transport = new HostTransport(options.sessionId, router);
    const lowLevel = lowLevelOf(server);
    if (lowLevel !== undefined) {
      shareValidator(lowLevel);
      intercept(lowLevel, transport, (request) => router.ask(request), options.single);
    }
    try {
      const initialized = await initialize(options, server, transport, inFlight, router, lowLevel);
      inFlight.delete(STARTING);
      return new HostInstance(options, server, cleanup, transport, router, inFlight, initialized);
    } catch (error) {
      transport.sever();
      cleanUp(cleanup, options);
      throw error;
    }
  }

  /** Whether the server has a handler for a method that no capability tells of. */
  handles(method: string): boolean {
    return (lowLevelOf(this.#server)?._requestHandlers?.has(method) ?? false) && !SESSION_METHODS.has(method);
  }

  call(
    frame: Frame,
    request: { method: string; params: JsonObject; id: string | number },
    leg: InstanceLeg,
  ): void {
    const isOwn = frame.call.task?.isOwn === true && this.#options.single && this.#runsTasks;
    const sent = isOwn ? { ...request, params: { ...request.params, task: {} } } : request;
    const settle = (response: Response): void => {
      const taskId = isOwn ? createdTask(response) : undefined;
      if (taskId === undefined) frame.finish(response);
      else this.#awaitOwn(frame, { ...request, method: 'tasks/result', params: { taskId } }, leg);
    };
    const entry = this.#enter(sent, leg, settle, frame);
    this.#router.adopt(frame);
    const deliver = (): void => this.#deliver(sent, leg, entry);
    if (this.#options.contexts) runInContext(frame.context, deliver);
    else deliver();
  }

  /** What the server runs as a task of its own is done when that is; its asks go out as those of the call. */
  #awaitOwn(
    frame: Frame,
    request: { method: string; params: JsonObject; id: string | number },
    leg: InstanceLeg,
  ): void {
    const entry = this.#enter(request, leg, (response) => frame.finish(response), frame);
    runInContext(frame.context, () => this.#deliver(request, leg, entry));
  }

  get #runsTasks(): boolean {
    const { capabilities } = this.initialized;
    return isObject(capabilities) && isObject(capabilities.tasks);
  }

  /** A request that cannot ask: `tools/list` and the like, on revisions without sessions. */
  request(
    request: { method: string; params: JsonObject; id: string | number },
    leg: InstanceLeg,
  ): Promise<Response> {
    return new Promise((settle) => this.#deliver(request, leg, this.#enter(request, leg, settle)));
  }

  refresh(frame: Frame, leg: InstanceLeg): void {
    for (const entry of this.#inFlight.values()) {
      if (entry.frame !== frame) continue;
      entry.progress.wanted = leg.progressToken;
      for (const name of Object.keys(entry.auth)) delete entry.auth[name];
      Object.assign(entry.auth, leg.authInfo);
    }
  }

  cancel(frame: Frame, reason?: string): void {
    for (const [id, entry] of this.#inFlight) {
      if (entry.frame !== frame) continue;
      const params = { requestId: id, ...(reason !== undefined && { reason }) };
      this.notify({ jsonrpc: '2.0', method: 'notifications/cancelled', params });
      this.#inFlight.delete(id);
    }
  }

  /** A notification of the client's. */
  notify(message: Message): void {
    this.#transport.deliver(message);
  }

  release(unfinished: boolean): void {
    if (!this.#options.single) return;
    this.close(unfinished);
  }

  /** Ends the instance; a server with an unfinished frame is cut off, never closed (invariant 1). */
  close(unfinished = false): void {
    if (this.#released) return;
    this.#released = true;
    cleanUp(this.#cleanup, this.#options);
    // Closing a server that is done only tells its `onclose`, and an SDK makes an error for it.
    const unheard = lowLevelOf(this.#server)?.onclose === undefined && this.#options.single;
    if (unfinished || unheard || this.#inFlight.size > 0) {
      this.#transport.sever();
      for (const { frame } of this.#inFlight.values()) if (frame !== undefined) dropParked(frame);
      this.#inFlight.clear();
      return;
    }
    // In a later turn of the event loop: the SDK still finishes the request whose response it just sent.
    setImmediate(() => {
      const closed = Promise.resolve().then(() => this.#server.close?.());
      closed.catch((error: unknown) => this.#options.outside.error(error));
    });
  }

  #enter(
    request: { id: string | number; params: JsonObject },
    leg: InstanceLeg,
    settle: (response: Response) => void,
    frame?: Frame,
  ): InFlight {
    const meta = isObject(request.params._meta) ? request.params._meta : {};
    // SDK v1 does not cancel a request whose id is the number 0, and some clients' first one is.
    const wanted = request.id === 0 ? 'mcp-await-0' : request.id;
    // A frame of this call that was dropped may answer its request yet, and must not answer for the new one.
    if (this.#inFlight.has(wanted)) this.#again += 1;
    const id = this.#inFlight.has(wanted) ? `mcp-await-${this.#again}-${wanted}` : wanted;
    const entry: InFlight = {
      id,
      ...(frame !== undefined && { frame }),
      settle,
      progress: { known: meta.progressToken, wanted: leg.progressToken },
      auth: { ...leg.authInfo },
    };
    this.#inFlight.set(id, entry);
    return entry;
  }

  #deliver(
    request: { method: string; params: JsonObject; id: string | number },
    leg: InstanceLeg,
    entry: InFlight,
  ): void {
    const extra: JsonObject = {
      ...(leg.authInfo !== undefined && { authInfo: entry.auth }),
      ...(leg.request !== undefined && {
        requestInfo: { headers: Object.fromEntries(leg.request.headers), url: new URL(leg.request.url) },
        request: leg.request,
      }),
      ...(leg.closeStream !== undefined && { closeSSEStream: leg.closeStream }),
    };
    this.#transport.deliver(
      { jsonrpc: '2.0', id: entry.id, method: request.method, params: request.params },
      extra,
    );
  }
}

async function initialize(
  options: InstanceOptions,
  server: HostServer,
  transport: HostTransport,
  inFlight: Map<string | number, InFlight>,
  router: Router,
  lowLevel: LowLevel | undefined,
): Promise<JsonObject> {
  await server.connect(transport);
  const { client } = options;
  const response = await new Promise<Response>((settle) => {
    inFlight.set(INITIALIZE, { id: INITIALIZE, settle, progress: NOBODY, auth: {} });
    const params = {
      protocolVersion: client.protocolVersion,
      capabilities: client.capabilities,
      clientInfo: client.info,
    };
    transport.deliver({ jsonrpc: '2.0', id: INITIALIZE, method: 'initialize', params });
  });
  if ('error' in response)
    throw new AwaitError('bad-answer', `the server refused to initialize: ${response.error.message}`);
  await announceInitialized(transport, lowLevel, router.asked);
  return response.result;
}

/** A frame that waits in an instance that is gone would wait for ever: whoever goes on with its call replays it. */
function dropParked(frame: Frame): void {
  const drop = (): void => {
    if (!frame.entered && !frame.over) frame.drop();
  };
  if (frame.busy) void frame.settled().then(drop);
  else drop();
}

/** The task that a server made of a request, by its id. */
function createdTask(response: Response): string | undefined {
  const task = 'result' in response ? response.result.task : undefined;
  return isObject(task) && typeof task.taskId === 'string' ? task.taskId : undefined;
}

/** Always runs once, whatever becomes of the server; a cleanup that fails is told, and stops nothing. */
function cleanUp(cleanup: ((sessionId?: string) => unknown) | undefined, options: InstanceOptions): void {
  const cleaned = Promise.resolve().then(() => cleanup?.(options.sessionId));
  cleaned.catch((error: unknown) => options.outside.error(error));
}

/** Sends what the server says to whom it belongs. */
class Router {
  readonly #options: InstanceOptions;
  readonly #inFlight: Map<string | number, InFlight>;
  /** Asks made before the call was there. */
  readonly #early: { method: string; params: unknown; settle: (response: Response) => void }[] = [];
  /** Resolves with the first ask that belongs to no call, once what its code did before it is done. */
  readonly asked: Promise<void>;
  #onAsked: () => void = () => {};

  constructor(options: InstanceOptions, inFlight: Map<string | number, InFlight>) {
    this.#options = options;
    this.#inFlight = inFlight;
    this.asked = new Promise((resolve) => {
      this.#onAsked = () => setImmediate(resolve);
    });
  }

  response(id: string | number, response: Response): void {
    const entry = this.#inFlight.get(id);
    this.#inFlight.delete(id);
    entry?.settle(response);
  }

  notification(message: Message, options: SendOptions): void {
    if (message.method === 'notifications/cancelled') return;
    if (message.method === 'notifications/progress') {
      this.#progress(message, this.#ownerOf(options.relatedRequestId));
      return;
    }
    // What a server registers as it starts is no change to anybody.
    if (aboutServer(message.method) && this.#inFlight.has(STARTING)) return;
    const owner = this.#ownerOf(options.relatedRequestId);
    if (owner?.frame === undefined || aboutServer(message.method)) {
      this.#options.outside.notification(message, owner?.frame);
    } else
      owner.frame.notify({
        method: message.method,
        ...(message.params !== undefined && { params: message.params }),
      });
  }

  /** Asks that reach the transport: those of a host that is no SDK server, and requests that are no asks. */
  request(message: Message, options: SendOptions): Promise<Response> {
    const { method = '', params } = message;
    if (method === 'ping') return Promise.resolve({ result: {} });
    return this.ask({
      method,
      params,
      ...(options.relatedRequestId !== undefined && { relatedRequestId: options.relatedRequestId }),
      context: currentContext(),
    });
  }

  error(error: unknown): void {
    this.#options.outside.error(error);
  }

  ask(request: AskRequest): Promise<Response> {
    const { method, params, relatedRequestId, timeout, signal, context } = request;
    const owner = this.#ownerOf(relatedRequestId);
    const { frame } = owner ?? {};
    if (frame === undefined) {
      this.#onAsked();
      // Where nobody can be asked outside of a call, it rides with the call that the instance is for.
      if (this.#options.single) return new Promise((settle) => this.#early.push({ method, params, settle }));
      return this.#options.outside.request({ method, params });
    }
    // Without contexts a stray ask cannot be told from the tool's own.
    const inContext = !this.#options.contexts || relatedRequestId !== undefined || context?.call === frame;
    const stepPath = context?.call === frame ? context.stepPath : undefined;
    return frame.ask(
      method,
      params,
      { inContext, ...(timeout !== undefined && { timeout }), ...(signal !== undefined && { signal }) },
      stepPath,
    );
  }

  /** The instance's call is there: what was asked before rides with it. */
  adopt(frame: Frame): void {
    for (const { method, params, settle } of this.#early.splice(0)) {
      void frame.ask(method, params, { inContext: false }).then(settle);
    }
  }

  /**
   * Progress names its request by the token that came with it; each turn's client has its own. A session's
   * instance may hold two frames of one call, and then it is whose context or request it is.
   */
  #progress(message: Message, owner: InFlight | undefined): void {
    const token = message.params?.progressToken;
    const isOf = ({ progress }: InFlight): boolean =>
      progress.known !== undefined && progress.known === token;
    const entry = owner !== undefined && isOf(owner) ? owner : [...this.#inFlight.values()].find(isOf);
    if (entry?.progress.wanted === undefined) return;
    entry.frame?.notify({
      method: message.method,
      params: { ...message.params, progressToken: entry.progress.wanted },
    });
  }

  #ownerOf(relatedRequestId: string | number | undefined): InFlight | undefined {
    if (relatedRequestId !== undefined) return this.#inFlight.get(relatedRequestId);
    const call = currentContext()?.call;
    if (call !== undefined) {
      for (const entry of this.#inFlight.values()) if (entry.frame === call) return entry;
    }
    if (!this.#options.single && this.#options.contexts) return undefined;
    return this.#inFlight.size === 1 ? [...this.#inFlight.values()][0] : undefined;
  }
}

/** Notifications that are about the server, not about a call. */
function aboutServer(method: string | undefined): boolean {
  return method?.endsWith('/list_changed') === true || method === 'notifications/resources/updated';
}

/**
 * Sends `initialized` and waits for the server's own handler, which may register tools; not for what it asks
 * its client, since that is answered later if ever.
 */
async function announceInitialized(
  transport: HostTransport,
  server: LowLevel | undefined,
  asked: Promise<void>,
): Promise<void> {
  const message: Message = { jsonrpc: '2.0', method: 'notifications/initialized' };
  const handler = server?.oninitialized;
  if (server === undefined || handler === undefined) {
    transport.deliver(message);
    return;
  }
  await new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, INITIALIZED_WAIT);
    const done = (): void => {
      clearTimeout(timer);
      resolve();
    };
    server.oninitialized = async () => {
      try {
        await handler.call(server);
      } finally {
        server.oninitialized = handler;
        done();
      }
    };
    void asked.then(done);
    transport.deliver(message);
  });
}
