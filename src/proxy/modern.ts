/**
 * A server of 2026-07-28, as a `Peer` knows servers: `initialize` on this side, an envelope in each request on the other.
 * 1. What `initialize` declares of the client goes with each request; the server's `server/discover` is the response.
 * 2. An `input_required` is passed as it is: the instance asks, and calls again with the answers (`src/host/instance.ts`).
 *    So the server's `requestState` is in the call's log, nothing is parked in a server, and any process goes on. A task
 *    that a server makes of a call is such a round, too (`modern-tasks.ts`).
 * 3. Requests are apart from each other, and run at the same time. One that is lost on its way takes no other along.
 * 4. Subscriptions of a session are one `subscriptions/listen`; over HTTP, those of a known caller (`remote-host.ts`). What the revision has no method for is answered here.
 */
import type { OpenAccount } from '../base/budget.ts';
import {
  advice,
  CANCEL,
  defined,
  isObject,
  type JsonObject,
  memoryOf,
  objectOf,
  Subscriptions,
  WENT_ON,
} from '../base/values.ts';
import { EndpointError } from '../client/endpoint.ts';
import {
  asError,
  type ClientRequest,
  isAnswer,
  isRequestId,
  isUntaken,
  RECONNECTION,
  type RequestId,
  type Rpc,
  serverErrorIn,
} from '../client/message.ts';
import { META, RELEASED } from '../client/modern/dialect.ts';
import { Listener, type ListenerPorts } from '../client/modern/listener.ts';
import type { Opened } from '../client/round-trips/round-trips.ts';
import { Inflow } from './inflow.ts';
import { type LinkEvents, MOST_DECLARED, type PeerLink, type PeerLogger } from './link.ts';
import { asRound, followTask, taskOf } from './modern-tasks.ts';

const TASKS = `${META}/tasks`;
const SERVER_INFO = `${META}/serverInfo`;
const SUBSCRIPTION = `${META}/subscriptionId`;

/** How requests reach the server. */
export interface ModernWire {
  /**
   * Sends a request; `hear` gets the notifications before its response. Aborting the signal cancels it.
   * @throws EndpointError where the server refuses it
   */
  open(request: ClientRequest, signal: AbortSignal, hear: (message: Rpc) => void): Promise<Opened>;
  close(): Promise<void>;
  kill(reason?: string): void;
}

/** The subscriptions of a link. */
export type Listening = Pick<Listener, 'declared' | 'start' | 'subscribe' | 'unsubscribe' | 'close'>;

/** Asked before more of a server is read; it is read once that resolves. */
export type MayRead = () => Promise<unknown> | undefined;

export interface ListeningPorts {
  /** The `_meta` of the link's requests. */
  readonly envelope: () => JsonObject;
  readonly deliver: (message: Rpc) => void;
  readonly mayRead: MayRead;
}

export interface ModernLinkOptions {
  readonly wire: ModernWire;
  readonly logger: PeerLogger;
  /** Whether what the server says outside of requests is for somebody. */
  readonly listens: boolean;
  /** Opens an account of what is held of the server. */
  readonly account: OpenAccount;
  /** Messages of the server that are passed on in a second. */
  readonly rate: number;
  /** The subscriptions of a caller whose links share one stream; default: a stream of this link's own. */
  readonly listening?: ((ports: ListeningPorts) => Listening) | undefined;
}

/** One that listens on until it is closed. */
export function listenerOf({
  logger,
  ...ports
}: Pick<ListenerPorts, 'open' | 'deliver' | 'closed'> & { readonly logger: PeerLogger }): Listener {
  return new Listener({
    ...ports,
    report: (error) => logger.debug('a subscription broke', { error }),
    reconnection: { ...RECONNECTION, maxRetries: Infinity },
  });
}

/** A message, and the request in whose reply it came. */
interface Heard extends JsonObject {
  readonly message: JsonObject;
  readonly about: RequestId | undefined;
}

export class ModernPeerLink implements PeerLink {
  readonly isConcurrent = true;
  readonly #options: ModernLinkOptions;
  readonly #events: LinkEvents;
  readonly #listener: Listening;
  readonly #inflow: Inflow;
  readonly #closed = new AbortController();
  readonly #open = new Map<
    RequestId,
    { readonly stop: AbortController; readonly task: string | undefined }
  >();
  readonly #uris = new Subscriptions();
  /** The `_meta` of every request. */
  #envelope: JsonObject = {};
  #isOver = false;

  constructor(options: ModernLinkOptions, events: LinkEvents) {
    this.#options = options;
    this.#events = events;
    this.#inflow = new Inflow({
      rate: options.rate,
      account: options.account,
      pass: (heard) => {
        const { message, about } = heard as Heard;
        const { params } = message;
        // The number of a subscription is of this link's own stream.
        const told = isObject(params)
          ? { ...message, params: without(params, '_meta', SUBSCRIPTION) }
          : message;
        events.message(told, about);
      },
      link: this,
    });
    const deliver = (message: Rpc): void => this.#hear(message);
    const shared = options.listening?.({
      envelope: () => this.#envelope,
      deliver,
      mayRead: () => this.ready(),
    });
    this.#listener =
      shared ??
      listenerOf({
        open: (request, signal, hear) => this.#exchange(request, signal, hear),
        deliver,
        logger: options.logger,
        closed: this.#closed.signal,
      });
  }

  send(message: JsonObject): void {
    const { id, method } = message;
    const params = objectOf(message.params);
    // Servers of this revision wait for no response.
    if (typeof method !== 'string') return;
    if (isRequestId(id)) void this.#request({ jsonrpc: '2.0', id, method, params });
    else if (method === 'notifications/initialized' && this.#options.listens) this.#listener.start();
    else if (method === CANCEL && isRequestId(params.requestId)) {
      const { stop, task } = this.#open.get(params.requestId) ?? {};
      stop?.abort();
      // Its client wants no result; else another process may go on with its task.
      if (params.reason !== WENT_ON) this.#cancelTask(task);
    } else if (method === CANCEL) this.#cancelTask(taskOf(params));
  }

  async close(): Promise<void> {
    this.#leave();
    await this.#options.wire.close();
    this.ended('it was closed');
  }

  kill(reason = 'it was ended'): void {
    this.#leave();
    this.#options.wire.kill(reason);
    this.ended(reason);
  }

  /** Resolves once more of the server may be read; undefined: at once. */
  ready(): Promise<void> | undefined {
    return this.#inflow.ready();
  }

  /** The server is gone. */
  ended(reason: string): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#leave();
    this.#events.ended(reason);
  }

  #leave(): void {
    this.#listener.close();
    this.#closed.abort();
    this.#inflow.close();
    for (const { stop } of this.#open.values()) stop.abort();
  }

  /** Where that is not taken, the task ends with its `ttl`. */
  #cancelTask(taskId: string | undefined): void {
    if (taskId === undefined) return;
    void this.#exchange(
      { jsonrpc: '2.0', id: `${taskId}~cancel`, method: 'tasks/cancel', params: { taskId } },
      this.#closed.signal,
      () => {},
    )
      .then(({ answer }) => answer)
      .catch(() => {});
  }

  async #request(request: ClientRequest): Promise<void> {
    const { id } = request;
    const stop = new AbortController();
    this.#open.set(id, { stop, task: taskOf(request.params ?? {}) });
    try {
      const result = await this.#result(request, stop.signal);
      if (!stop.signal.aborted) this.#hear({ jsonrpc: '2.0', id, ...result } as Rpc);
    } catch (thrown) {
      if (!stop.signal.aborted) this.#failed(request, thrown);
    } finally {
      this.#open.delete(id);
    }
  }

  async #result(request: ClientRequest, signal: AbortSignal): Promise<JsonObject> {
    const { id, method, params = {} } = request;
    switch (method) {
      case 'initialize':
        return this.#discover(request, signal);
      case 'ping':
        return { result: {} };
      case 'logging/setLevel':
        this.#envelope = { ...this.#envelope, [`${META}/logLevel`]: params.level };
        return { result: {} };
      case 'resources/subscribe':
        return this.#subscribe(String(params.uri));
      case 'resources/unsubscribe':
        this.#uris.delete(String(params.uri));
        await this.#listener.unsubscribe(String(params.uri));
        return { result: {} };
      default: {
        const send = async (sent: ClientRequest): Promise<Rpc> =>
          (await this.#exchange(sent, signal, (message) => this.#hear(message, id))).answer;
        const task = taskOf(params);
        if (task === undefined) return asRound(plain(await send(request)));
        let nth = 0;
        const about = (name: string, more: JsonObject): Promise<Rpc> =>
          send({ jsonrpc: '2.0', id: `${id}~${nth++}`, method: name, params: more });
        return plain(await followTask(task, params.inputResponses, about, signal));
      }
    }
  }

  /** The server's declaration, in the form of the revisions with `initialize`. */
  async #discover({ id, params = {} }: ClientRequest, signal: AbortSignal): Promise<JsonObject> {
    const { protocolVersion, capabilities, clientInfo } = params;
    this.#envelope = {
      [`${META}/protocolVersion`]: RELEASED.revision,
      [`${META}/clientInfo`]: clientInfo,
      [`${META}/clientCapabilities`]: declared(objectOf(capabilities)),
    };
    const request: ClientRequest = { jsonrpc: '2.0', id, method: 'server/discover' };
    const { answer } = await this.#exchange(request, signal, () => {});
    const response = await answer;
    if ('error' in response) {
      const { code, message } = response.error;
      return { error: { code, message: `server/discover: ${message}` } };
    }
    const { supportedVersions, capabilities: has, instructions, _meta: meta } = response.result;
    if (!Array.isArray(supportedVersions) || !supportedVersions.includes(RELEASED.revision))
      return { error: { code: -32022, message: `it does not serve ${RELEASED.revision}` } };
    const offered = objectOf(has);
    // A caller's other links keep the listener, also where this one is refused for its size.
    if (memoryOf(offered) <= MOST_DECLARED) this.#listener.declared = offered;
    return {
      result: {
        protocolVersion,
        capabilities: offered,
        serverInfo: (isObject(meta) && meta[SERVER_INFO]) || { name: 'unknown', version: '0' },
        ...defined({ instructions }),
      },
    };
  }

  async #subscribe(uri: string): Promise<JsonObject> {
    try {
      if (!this.#uris.hasRoomFor(uri)) throw new Error('No more resources can be subscribed to');
      // Before the server answers: others that are sent meanwhile find its room taken.
      this.#uris.add(uri);
      await this.#listener.subscribe(uri);
      return { result: {} };
    } catch (thrown) {
      this.#uris.delete(uri);
      return { error: { code: -32602, message: asError(thrown).message } };
    }
  }

  #exchange(request: ClientRequest, signal: AbortSignal, hear: (message: Rpc) => void): Promise<Opened> {
    return this.#options.wire.open(
      { ...request, params: { ...request.params, _meta: { ...request.params?._meta, ...this.#envelope } } },
      signal,
      hear,
    );
  }

  #hear(message: Rpc, about?: RequestId): void {
    const heard: Heard = { message, about };
    // What may be work for others is a request, and this revision's servers send none.
    if (isAnswer(message) || !('id' in message)) this.#inflow.push(heard);
  }

  #failed({ id, method, params = {} }: ClientRequest, thrown: unknown): void {
    const error = asError(thrown);
    const reason = error.cause instanceof Error ? `${error.message}: ${error.cause.message}` : error.message;
    const own = serverErrorIn(thrown);
    const isLater = (params.inputResponses ?? params.requestState) !== undefined;
    const status = thrown instanceof EndpointError ? thrown.code : 500;
    // A later round without the right credentials, or sent elsewhere, was not taken either, and may be later.
    const isDenied = isLater && (status === 401 || status === 403 || (status >= 300 && status < 400));
    const isUnpassed = isUntaken(thrown) || isDenied;
    const refusal = { code: -32603, message: `Internal error: the server refused the request (${status})` };
    const refuse = (refused: object, unpassed = false): void =>
      this.#hear({ jsonrpc: '2.0', id, error: refused, ...(unpassed && { unpassed }) } as Rpc);
    if (method === 'initialize') {
      const isAway = isUnpassed || status === 502 || status === 504;
      if (isAway || !(thrown instanceof EndpointError)) this.kill(reason);
      // At 500 it may be of this revision all the same.
      else refuse(own ?? refusal, status >= 500);
    }
    // What the server says of a later round is no outcome of a call that it may still go on with.
    else if (own !== undefined && !(isUnpassed && isLater)) refuse(own);
    else if (isUnpassed) {
      // A client that called again would run the earlier rounds a second time.
      const what = isLater ? 'the answers' : 'the request; call again';
      const why = isDenied ? `replied ${status}` : 'cannot be reached';
      const message = `The server ${why}, and has not got ${what}`;
      refuse({ code: -32000, message, data: advice('host-gone') }, true);
    } else if (status < 500 && !isLater) refuse(refusal);
    // Whatever else was the reply to a later round, the server may have got that.
    else this.#events.lost?.(id, reason);
  }
}

/** The client's capabilities in this revision's words, and that of following tasks, which is this link's. */
function declared({ tasks: _2025, extensions, elicitation, ...capabilities }: JsonObject): JsonObject {
  const hasModes = isObject(elicitation) && ('form' in elicitation || 'url' in elicitation);
  return {
    ...capabilities,
    ...(isObject(elicitation) && { elicitation: hasModes ? elicitation : { ...elicitation, form: {} } }),
    extensions: { ...objectOf(extensions), [TASKS]: {} },
  };
}

/** A response without what this revision alone has in it. */
function plain(response: JsonObject): JsonObject {
  if (!isObject(response.result)) return { error: response.error };
  const { resultType, ...result } = without(response.result, '_meta', SERVER_INFO);
  return {
    result: { ...result, ...(resultType !== undefined && resultType !== 'complete' && { resultType }) },
  };
}

/** An object whose member `name` lacks a key, and which lacks that member where it had nothing else. */
function without(object: JsonObject, name: string, key: string): JsonObject {
  const { [name]: member, ...rest } = object;
  if (!isObject(member)) return object;
  const { [key]: _dropped, ...others } = member;
  return Object.keys(others).length > 0 ? { ...rest, [name]: others } : rest;
}
