/**
 * One running server behind a link, initialized for one client.
 * It owns the ids on the link, the server's open asks, and the turn: an ask on a pipe names no request, so one call
 * that may ask runs at a time, and asks go to the client of that call. Requests that cannot ask run beside it.
 * 1. Each request gets an id of its own on the link, and that id as its progress token.
 * 2. An ask that comes while no call has the turn (`roots/list` at start-up) belongs to the session, if there is one,
 *    else to the next call, which is sent once it is answered.
 * 3. When the server ends, each of its open requests is rejected with `PeerGone`.
 * 4. Its open asks count in the budget of what is held of servers; where that is full, the server is ended.
 * Where another process has the server, that process does 2 and grants the turns among all processes.
 */

import type { Account, OpenAccount } from '../base/budget.ts';
import {
  AwaitError,
  CANCEL,
  defined,
  isObject,
  type JsonObject,
  memoryOf,
  objectOf,
  systemClock,
  unpassed,
  within,
} from '../base/values.ts';
import { runOutsideContext } from '../call/frame/context.ts';
import type { AskProgress } from '../call/frame/turn.ts';
import type { Client, Response } from '../call/journal/entries.ts';
import { progressOn, progressTokenOf, responseOf } from '../host/transport.ts';
import {
  type Ended,
  FULL,
  heldMemory,
  MOST_DECLARED,
  type OpenLink,
  type PeerLink,
  type PeerLogger,
} from './link.ts';
import { repeatableTools } from './replay-rule.ts';

/** The server ended before it answered. */
export class PeerGone extends AwaitError {
  readonly how: Ended;

  constructor(reason: string, how: Ended) {
    super('host-gone', reason);
    this.how = how;
  }
}

/**
 * Another process that has the server asks with this method, before it sends it a call of this one. The result says
 * whether it may: then the call's journal says that it is sent.
 */
export const SENDING = 'mcp-await/sending';

/** The sender of a request, which receives the server's messages about it. */
export interface RequestOwner {
  notification(message: JsonObject, requestId?: string | number): void;
  ask(ask: PeerAsk, requestId?: string | number): Promise<Response>;
}

/** Receives messages that belong to no call; without `ask`, the next call's client is asked. */
export interface OutsideHandler {
  notification(message: JsonObject): void;
  ask?(ask: PeerAsk): Promise<Response>;
  /** Whether its client is connected, or something is unfinished in its session. */
  readonly isUsed?: boolean;
}

export interface PeerAsk {
  readonly method: string;
  readonly params: unknown;
  /** Fires when the server gives up on it. */
  readonly signal: AbortSignal;
  /** Present if the server listens to its progress. */
  readonly progress?: AskProgress;
}

export interface PeerOptions {
  /** In log lines and errors. */
  readonly name: string;
  /** How long `initialize` may take, in milliseconds. */
  readonly startTimeout: number;
  /** When the server gives up on an ask, in milliseconds; 0: never. */
  readonly askTimeout: number;
  readonly logger: PeerLogger;
  /** Opens the account of the server's open asks. */
  readonly account: OpenAccount;
}

/** The one call that may ask. */
export interface Holder {
  readonly owner: RequestOwner;
  readonly requestId: string | number;
  /** Whether it may be run again from its start: then the server is ended before it gives up on an ask. */
  repeatable: boolean;
}

/** Whose request it is. */
interface From {
  readonly owner: RequestOwner;
  readonly requestId: string | number;
  /** Called before another process sends it to the server. @returns whether it may */
  readonly sending?: (repeatable: boolean) => Promise<boolean>;
}

interface PeerRequest {
  readonly settle: (response: Response) => void;
  readonly reject: (gone: PeerGone) => void;
  readonly owner?: RequestOwner;
  readonly requestId?: string | number;
  readonly sending?: From['sending'];
  /** The client's own token in progress notifications. */
  readonly progressToken?: unknown;
}

interface Stray {
  readonly ask: PeerAsk;
  readonly settle: (response: Response) => void;
}

/** Most asks outside of calls that wait for a client. */
const STRAYS = 100;
/** About what an open ask takes beside its message, in bytes. */
const ASK = 1_500;
/** How long a new server may take to answer a ping, in milliseconds. */
const PING = 2_000;
/** How long before its time-out a server is ended, at most, in milliseconds. */
const MARGIN = 10_000;

export class Peer {
  /** The result of `initialize`; empty before. */
  initialized: JsonObject = {};
  readonly #options: PeerOptions;
  readonly #link: PeerLink;
  readonly #account: Account;
  readonly #pending = new Map<string | number, PeerRequest>();
  readonly #onGone: ((gone: PeerGone) => void)[] = [];
  #gone: PeerGone | undefined;
  #next = 0;
  /** The turn is this call's until it is undefined. */
  holder: Holder | undefined;
  /** Receives messages that belong to no call. */
  outside: OutsideHandler | undefined;
  readonly #asks = new Map<string | number, AbortController>();
  /** Of those, the ones outside of calls: with the server they are over, and those of a call are asked on by another. */
  readonly #outside = new Set<AbortController>();
  /** Of the open asks, in bytes. */
  #memory = 0;
  readonly #strays = new Set<Stray>();
  #tools: ReturnType<typeof repeatableTools> | undefined;
  #planned = false;

  private constructor(openLink: OpenLink, options: PeerOptions) {
    this.#options = options;
    this.#account = options.account(() => this.#link.kill(FULL));
    this.#link = openLink({
      message: (message, about) => {
        const { id, method } = message;
        if (typeof method !== 'string') this.#settle(message);
        else if (typeof id === 'string' || typeof id === 'number') this.#asked(id, method, message.params);
        else this.#notified(method, message, about);
      },
      ended: (reason, how) => this.#ended(reason, how),
      lost: (id, reason, how = {}) => {
        const request = this.#pending.get(id);
        this.#pending.delete(id);
        request?.reject(new PeerGone(reason, how));
      },
    });
  }

  /**
   * Starts a server and initializes it.
   * @throws AwaitError `host-gone`, in one line, if that fails; its cause is a `PeerGone` where the server ended
   */
  static async open(openLink: OpenLink, client: Client, options: PeerOptions): Promise<Peer> {
    const peer = new Peer(openLink, options);
    const timer = setTimeout(() => {
      peer.#link.kill(`it did not answer initialize within ${options.startTimeout} ms`);
    }, options.startTimeout);
    const { protocolVersion, capabilities, info } = client;
    try {
      const response = await peer.request('initialize', { protocolVersion, capabilities, clientInfo: info });
      if ('error' in response) throw new Error(`it refused initialize: ${response.error.message}`);
      // Each session keeps it.
      if (memoryOf(response.result) > MOST_DECLARED)
        throw new Error('its result of initialize is above 64 KiB');
      peer.initialized = response.result;
    } catch (error) {
      if (!peer.gone) peer.kill();
      const { message } = AwaitError.from(error);
      throw new AwaitError('host-gone', `${options.name} cannot be served: ${message}`, error);
    } finally {
      clearTimeout(timer);
    }
    peer.notify({ jsonrpc: '2.0', method: 'notifications/initialized' });
    // Asks that it makes on `initialized` arrive before its response to a ping.
    if (capabilities.roots !== undefined) await within(systemClock, PING, peer.request('ping', {}));
    return peer;
  }

  /** Whether another process has the server. */
  get elsewhere(): boolean {
    return this.#link.elsewhere === true;
  }

  /** Whether its calls run at the same time, without turns. */
  get isConcurrent(): boolean {
    return this.#link.isConcurrent === true;
  }

  get gone(): boolean {
    return this.#gone !== undefined;
  }

  /** Calls `listener` when the server ends; at once if it has ended. */
  onGone(listener: (gone: PeerGone) => void): void {
    if (this.#gone !== undefined) listener(this.#gone);
    else this.#onGone.push(listener);
  }

  /** Whether it has open requests. */
  get busy(): boolean {
    return this.#pending.size > 0 || this.holder !== undefined;
  }

  /**
   * Sends a request.
   * @throws PeerGone when the server ends before it answers
   */
  request(method: string, params: JsonObject, from?: From, onSent?: (id: number) => void): Promise<Response> {
    return new Promise((settled, reject) => {
      if (this.#gone !== undefined) {
        reject(this.#gone);
        return;
      }
      this.#next += 1;
      const id = this.#next;
      const meta = isObject(params._meta) ? params._meta : undefined;
      const progressToken = meta?.progressToken;
      const sent =
        progressToken === undefined ? params : { ...params, _meta: { ...meta, progressToken: id } };
      this.#pending.set(id, { settle: settled, reject, ...from, progressToken });
      this.#send({ jsonrpc: '2.0', id, method, params: sent });
      onSent?.(id);
    });
  }

  /** Tells the server that a request's client cancelled it; the server may never respond. */
  cancel(id: number, reason?: string): void {
    if (!this.#pending.has(id)) return;
    this.notify({ jsonrpc: '2.0', method: CANCEL, params: { requestId: id, ...defined({ reason }) } });
  }

  /** Waits no longer for a response. */
  forget(id: number): void {
    this.#pending.delete(id);
  }

  notify(message: JsonObject): void {
    this.#send(message);
  }

  /** Outside of any call: the connection that the link opens for it, and its timers, would keep the call. */
  #send(message: JsonObject): void {
    runOutsideContext(() => this.#link.send(message));
  }

  /**
   * Asks a client what the server asked before it had one; resolves once all is answered. If the call is dropped before
   * its client answers, the next call is asked.
   */
  async askStrays(ask: (ask: PeerAsk) => Promise<Response>): Promise<void> {
    await Promise.all(
      [...this.#strays].map(async (stray) => {
        stray.settle(await ask(stray.ask));
        this.#strays.delete(stray);
      }),
    );
  }

  /** Whether a tool declares that it may be called twice: it only reads, or a second call changes nothing. */
  async mayRepeat(tool: string): Promise<boolean> {
    const list = async (params: JsonObject): Promise<Response> => {
      let response: Response | undefined;
      try {
        response = await this.request('tools/list', params);
        return response;
      } finally {
        // Then the next call asks for it anew.
        if (response === undefined || 'error' in response) this.#tools = undefined;
      }
    };
    this.#tools ??= runOutsideContext(() => repeatableTools(list));
    return (await this.#tools).has(tool);
  }

  /** Ends it politely. */
  close(): Promise<void> {
    return this.#link.close();
  }

  /** Ends it at once. */
  kill(planned = false): void {
    this.#planned = planned;
    this.#link.kill();
  }

  // --- messages of the server --------------------------------------------------------------------------

  #notified(method: string, message: JsonObject, about?: string | number): void {
    const params = objectOf(message.params);
    if (method === CANCEL) {
      this.#asks.get(params.requestId as number)?.abort();
      return;
    }
    if (method === 'notifications/progress') {
      const request = this.#pending.get(params.progressToken as number);
      if (request?.progressToken === undefined) return;
      const own = { ...message, params: { ...params, progressToken: request.progressToken } };
      request.owner?.notification(own, request.requestId);
      return;
    }
    if (method === 'notifications/tools/list_changed') this.#tools = undefined;
    const request = this.#pending.get(about as string);
    const holder = this.holder;
    if (request?.owner !== undefined) request.owner.notification(message, request.requestId);
    else if (holder === undefined) this.outside?.notification(message);
    else holder.owner.notification(message, holder.requestId);
  }

  #asked(id: string | number, method: string, params: unknown): void {
    // An open one with its id will not be answered twice.
    this.#asks.get(id)?.abort();
    const abort = new AbortController();
    const memory = heldMemory([id, method, params]) + ASK;
    const close = (): boolean => {
      this.#outside.delete(abort);
      const isOpen = this.#asks.get(id) === abort && this.#asks.delete(id);
      if (isOpen) this.#count(-memory);
      return isOpen;
    };
    const respond = (response: Response): void => {
      if (close()) this.#send({ jsonrpc: '2.0', id, ...response });
    };
    abort.signal.addEventListener('abort', close, { once: true });
    this.#asks.set(id, abort);
    this.#count(memory);
    if (method === 'ping') {
      respond({ result: {} });
      return;
    }
    if (method === SENDING && this.elsewhere) {
      const { requestId, repeatable } = objectOf(params);
      const told = this.#pending.get(requestId as number)?.sending?.(repeatable === true);
      void Promise.resolve(told)
        .catch(() => false)
        .then((may = false) => respond({ result: { may } }));
      return;
    }
    const token = progressTokenOf(params);
    const progress: AskProgress = {
      report: (reported) => void (this.#asks.has(id) && this.#send(progressOn(token, reported))),
      resets: false,
    };
    const ask: PeerAsk = { method, params, signal: abort.signal, ...(token !== undefined && { progress }) };
    const holder = this.holder;
    if (holder === undefined) this.#outside.add(abort);
    const late = holder && this.#beforeTimeout(holder);
    void this.#answerTo(ask, holder)
      .catch((): Response => ({ error: { code: -32603, message: 'Internal error' } }))
      .then((response) => {
        clearTimeout(late);
        respond(response);
      });
  }

  /** Memory of open asks, which may be too much. */
  #count(by: number): void {
    this.#memory += by;
    this.#account.set(this.#memory);
  }

  #answerTo(ask: PeerAsk, holder: Holder | undefined): Promise<Response> {
    if (holder !== undefined) return holder.owner.ask(ask, holder.requestId);
    if (this.outside?.ask !== undefined) return this.outside.ask(ask);
    if (this.#strays.size >= STRAYS) {
      return Promise.resolve({ error: { code: -32000, message: 'Too many requests wait for a client' } });
    }
    return new Promise((settled) => {
      const stray: Stray = { ask, settle: settled };
      this.#strays.add(stray);
      ask.signal.addEventListener('abort', () => this.#strays.delete(stray));
    });
  }

  /** A server that gives up on an ask runs its tool's `catch`; where the call may be run again it is ended before. */
  #beforeTimeout(holder: Holder): NodeJS.Timeout | undefined {
    const { askTimeout, logger, name } = this.#options;
    if (askTimeout === 0 || this.elsewhere) return undefined;
    return setTimeout(
      () => {
        if (this.holder !== holder || !holder.repeatable) return;
        logger.debug('a server is ended before its ask times out; its call continues in another', {
          from: name,
        });
        this.kill(true);
      },
      askTimeout - Math.min(MARGIN, askTimeout / 4),
    ).unref();
  }

  #settle(message: JsonObject): void {
    const id = message.id as number;
    const request = this.#pending.get(id);
    this.#pending.delete(id);
    const response = responseOf(message);
    if (message.unpassed === true && 'error' in response) unpassed.add(objectOf(response.error.data));
    request?.settle(response);
  }

  #ended(reason: string, how: Ended = {}): void {
    if (this.#gone !== undefined) return;
    const gone = new PeerGone(reason, { ...how, planned: how.planned ?? this.#planned });
    this.#gone = gone;
    for (const abort of this.#outside) abort.abort();
    this.#account.close();
    const waiting = [...this.#pending.values()];
    this.#pending.clear();
    for (const { reject } of waiting) reject(gone);
    for (const listener of this.#onGone.splice(0)) listener(gone);
  }
}
