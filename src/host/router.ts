/**
 * Routes a server's messages: to the call that a message names, else to the call in whose async context it was sent,
 * else, where an instance serves one call alone, to that call. An ask never reaches another caller than the one whose
 * code made it: where that cannot be decided, it is an error at once (invariant 13).
 * It owns the table of the requests that are open in the server, and the asks made before there was a call.
 */
import {
  AwaitError,
  CANCEL,
  deferred,
  defined,
  isObject,
  type JsonObject,
  keepNewest,
  nextTurn,
} from '../base/values.ts';
import { currentContext } from '../call/frame/context.ts';
import type { Frame } from '../call/frame/frame.ts';
import type { Client, Response } from '../call/journal/entries.ts';
import type { AskRequest } from './intercept.ts';
import type { Message, SendOptions } from './transport.ts';

const NAME_IT = 'Name the request it belongs to (extra.sendRequest, ctx.mcpReq, relatedRequestId)';

/** How long an ask may wait for a call before the logger warns, in milliseconds. */
const SOON = 1_000;

/** An ask as it goes out. */
export type AskMessage = Pick<AskRequest, 'method' | 'params' | 'progress' | 'signal'>;

/** Receives messages that belong to no call. */
export interface Outside {
  /**
   * An ask of a task of the server's own, made in its `tasks/result`; it lasts longer than that request.
   * @returns undefined where asks are the calls' alone
   */
  requestIn?(message: AskMessage, frame: Frame): Promise<Response> | undefined;
  /** Whether what it is told reaches all users of the server: of an instance's users, one is told. */
  readonly isForAll?: true;
  /** Of a session: whether its client is connected, or something is unfinished in it. */
  readonly isUsed?: () => boolean;
  /** @param frame the call in whose async context it was sent */
  notification(message: Message, frame?: Frame): void;
  /** A notification about the server that names a call. @returns whether it is part of the call's reply */
  inReply?(message: Message, frame: Frame): boolean;
  /** An ask made on start-up or on a timer. The promise may never settle. */
  request(message: AskMessage): Promise<Response>;
  error(error: unknown): void;
}

/** A request that is in the server. */
export interface InFlight {
  readonly id: string | number;
  readonly method: string;
  readonly params: JsonObject;
  /** The call of the request; absent if it cannot ask. */
  readonly frame?: Frame;
  readonly settle: (response: Response) => void;
  /** The token the server knows, and the one that this turn's client wants. */
  readonly progress: { readonly known: unknown; wanted: unknown };
  /** Passed to the server once, and updated in place each turn. */
  readonly auth: JsonObject;
}

export interface RouterOptions {
  /** Whether the instance serves one call alone. */
  readonly single: boolean;
  /** Whether calls get an async context of their own. */
  readonly contexts: boolean;
  readonly outside: Outside;
  /** Whether its client joined earlier elsewhere, so that start-up asks go out with its first call. */
  readonly joins: boolean;
  readonly client: Client;
}

interface Early extends AskMessage {
  readonly settle: (response: Response) => void;
}

const ROOTS = 'roots/list';

export class Router {
  readonly inFlight = new Map<string | number, InFlight>();
  /** Resolves with the first ask that belongs to no call, once the code before that ask has run. */
  readonly asked: Promise<void>;
  /** Until the instance is ready. */
  isStarting = true;
  readonly #options: RouterOptions;
  /** The call that the instance is for, once it is there. */
  #adopted: Frame | undefined;
  /** Asks made before the call was there. */
  readonly #early: Early[] = [];
  /** Roots asked for as the server starts: its first tool waits for them, since it may rest on them. */
  #roots: Early[] = [];
  readonly #onAsked: () => void;
  /** Calls that go on elsewhere: what their tools ask here stays pending, and what they say is not heard (invariant 10). */
  readonly #left = new WeakSet<object>();
  /** The ids of their requests. */
  readonly #leftIds = new Map<string | number, WeakRef<Frame>>();

  constructor(options: RouterOptions) {
    this.#options = options;
    const { promise, resolve } = deferred();
    this.asked = promise;
    this.#onAsked = () => setImmediate(resolve);
  }

  response(id: string | number, response: Response): void {
    const entry = this.inFlight.get(id);
    this.inFlight.delete(id);
    entry?.settle(response);
  }

  /** The call is let go of without an end. */
  leave(frame: Frame): void {
    this.#left.add(frame);
    for (const [id, entry] of this.inFlight)
      if (entry.frame === frame) this.#leftIds.set(id, new WeakRef(frame));
    keepNewest(this.#leftIds, 1_000);
  }

  #leftBy(id: string | number | undefined, call = currentContext()?.call): Frame | undefined {
    if (call !== undefined && this.#left.has(call)) return call as Frame;
    return this.#leftIds.get(id as string)?.deref();
  }

  notification(message: Message, options: SendOptions): void {
    if (message.method === CANCEL) return;
    if (message.method === 'notifications/progress') {
      this.#progress(message, this.#ownerOf(options.relatedRequestId));
      return;
    }
    // Tools that a server registers as it starts are not a change for any client.
    if (isAboutServer(message.method) && this.isStarting) return;
    const { outside } = this.#options;
    const { relatedRequestId } = options;
    if (!isAboutServer(message.method) && this.#leftBy(relatedRequestId) !== undefined) return;
    const { frame } = this.#ownerOf(relatedRequestId) ?? {};
    // A server elsewhere names no request, so the proxy names the call that may ask. While that call waits, it causes no
    // change: the message is for its session.
    const isWaiting = relatedRequestId !== undefined && frame?.entered === false;
    const isInReply = (): boolean =>
      relatedRequestId !== undefined && frame !== undefined && outside.inReply?.(message, frame) === true;
    if (frame === undefined || (isAboutServer(message.method) && (isWaiting || !isInReply()))) {
      outside.notification(message, isWaiting ? undefined : frame);
    } else
      frame.notify({
        method: message.method,
        ...defined({ params: message.params }),
      });
  }

  /** Requests that reach the transport: asks of a host that is not an SDK server, and requests other than asks. */
  request(message: Message, options: SendOptions): Promise<Response> {
    const { method = '', params } = message;
    if (method === 'ping') return Promise.resolve({ result: {} });
    const { relatedRequestId, progress } = options;
    const entry = this.inFlight.get(relatedRequestId as string);
    if (entry?.method === 'tasks/result' && entry.frame !== undefined && !this.#options.single) {
      const asked = { method, params, ...defined({ progress }) };
      const answered = this.#options.outside.requestIn?.(asked, entry.frame);
      if (answered !== undefined) return answered;
    }
    return this.ask({
      method,
      params,
      ...defined({ relatedRequestId, signal: options.signal, progress }),
      context: currentContext(),
    });
  }

  error(error: unknown): void {
    this.#options.outside.error(error);
  }

  lost(id: string | number, error: AwaitError, isMeant: boolean): void {
    const entry = this.inFlight.get(id);
    this.inFlight.delete(id);
    if (entry?.frame !== undefined) entry.frame.lose(error, isMeant);
    else entry?.settle({ error: { code: -32000, message: error.message } });
  }

  ask(request: AskRequest): Promise<Response> {
    const { method, params, relatedRequestId, timeout, signal, progress, context } = request;
    const listening = defined({ progress });
    const owner = this.#askedBy(request);
    if (owner.kind === 'refused') {
      this.#options.outside.error(owner.error);
      return Promise.reject(owner.error);
    }
    if (owner.kind === 'none') {
      this.#onAsked();
      if (method === ROOTS && this.isStarting && this.#options.joins) {
        if (isObject(this.#options.client.capabilities.roots))
          return new Promise((settle) => this.#roots.push({ method: ROOTS, params, settle }));
        return Promise.resolve({ error: { code: -32601, message: 'Client does not support roots' } });
      }
      // Without a client to ask outside of calls, it goes out with the instance's one call.
      if (this.#options.single) return this.#wait({ method, params, ...listening });
      return this.#options.outside.request({ method, params, ...listening, ...defined({ signal }) });
    }
    const { frame } = owner;
    const stepPath = context?.call === frame ? context.stepPath : undefined;
    // On an instance that serves one call alone, and where calls have no contexts, every ask is in a call's flow.
    const isOwn = this.#options.single || !this.#options.contexts;
    const inContext = isOwn || relatedRequestId !== undefined || context?.call === frame;
    return frame.ask(
      method,
      params,
      {
        inContext,
        ...defined({ timeout, signal }),
        ...listening,
      },
      stepPath,
    );
  }

  /**
   * The call that an ask belongs to (invariant 13): that of the request it names; else that of its async context;
   * without a context, or in that of a call that has ended, the one call of the instance. Never another caller's.
   */
  #askedBy({ method, relatedRequestId, context }: AskRequest): AskOwner {
    const { single, contexts } = this.#options;
    const entries = [...this.inFlight.values()];
    const left = this.#leftBy(relatedRequestId, context?.call);
    if (left !== undefined) return { kind: 'call', frame: left };
    if (relatedRequestId !== undefined) {
      const entry = this.inFlight.get(relatedRequestId);
      if (entry?.frame !== undefined) return { kind: 'call', frame: entry.frame };
      if (entry !== undefined) return cannotAsk(method, entry.method);
      return refused(`${method} was asked for the request ${relatedRequestId}, which is over`);
    }
    const inside = this.isStarting ? undefined : this.#requestIn(entries, context);
    if (inside !== undefined) return cannotAsk(method, inside.method);
    const own = entries.find(({ frame }) => frame !== undefined && frame === context?.call)?.frame;
    if (own !== undefined) return { kind: 'call', frame: own };
    if (context !== undefined && (context.isLive?.() ?? true)) {
      return refused(
        `${method} was asked on a server that serves another call than its async context. ${NAME_IT}, or ask outside of queues and pools`,
      );
    }
    if (contexts && !single) return { kind: 'none' };
    const frames = new Set(entries.flatMap(({ frame }) => (frame === undefined ? [] : [frame])));
    const [only] = frames;
    if (only !== undefined && frames.size === 1) return { kind: 'call', frame: only };
    const call = this.#adopted;
    if (call === undefined) return { kind: 'none' };
    if (!call.over) return { kind: 'call', frame: call };
    return refused(`${method} was asked after the call of this instance was over`);
  }

  /** Until the call is there that the instance is for. */
  #wait(ask: Omit<Early, 'settle'>): Promise<Response> {
    return new Promise((settle) => {
      const early = { ...ask, settle };
      this.#early.push(early);
      setTimeout(() => {
        if (!this.#early.includes(early)) return;
        this.#options.outside.error(
          new AwaitError(
            'wrong-call',
            `${ask.method} was asked outside of any call; it goes out with the next ask of this instance's call`,
          ),
        );
      }, SOON).unref();
    });
  }

  /**
   * Binds the instance's call: earlier asks go out with it.
   * @returns a promise that the tool's start waits for; undefined if it can start now
   */
  adopt(frame: Frame): Promise<void> | undefined {
    if (this.#options.single) this.#adopted = frame;
    for (const { method, params, progress, settle } of this.#early.splice(0)) {
      void frame.ask(method, params, { inContext: false, ...(progress && { progress }) }).then(settle);
    }
    if (frame.call.method !== 'tools/call' || this.#roots.length === 0) return undefined;
    const asked = this.#roots.map(async ({ params, settle }) =>
      settle(await frame.ask(ROOTS, params, { inContext: true })),
    );
    this.#roots = [];
    // The code that awaits them handles them before the tool starts.
    return Promise.all(asked).then(nextTurn);
  }

  /**
   * Progress carries its request's token; each turn's client has its own. A session's instance may hold two frames of
   * one call, so the context or the request decides.
   */
  #progress(message: Message, owner: InFlight | undefined): void {
    const token = message.params?.progressToken;
    const isOf = ({ progress }: InFlight): boolean =>
      progress.known !== undefined && progress.known === token;
    const entry = owner !== undefined && isOf(owner) ? owner : [...this.inFlight.values()].find(isOf);
    if (entry?.progress.wanted === undefined) return;
    entry.frame?.notify({
      method: message.method,
      params: { ...message.params, progressToken: entry.progress.wanted },
    });
  }

  /** The request that cannot ask, of those that are in the server, in which an ask was made. */
  #requestIn(entries: readonly InFlight[], context: AskRequest['context']): InFlight | undefined {
    if (this.#options.contexts) return entries.find((entry) => entry === context?.call);
    // Without contexts it is a call's, where one is in the server.
    return entries.some(({ frame }) => frame !== undefined) ? undefined : entries[0];
  }

  #ownerOf(relatedRequestId: string | number | undefined): InFlight | undefined {
    if (relatedRequestId !== undefined) return this.inFlight.get(relatedRequestId);
    const call = currentContext()?.call;
    if (call !== undefined) {
      for (const entry of this.inFlight.values()) if (entry.frame === call || entry === call) return entry;
    }
    if (this.isStarting || (!this.#options.single && this.#options.contexts)) return undefined;
    const [only, ...more] = [...this.inFlight.values()].filter(({ frame }) => frame !== undefined);
    return more.length === 0 ? only : undefined;
  }
}

/** The owner of an ask, or the error if it has none. */
type AskOwner =
  | { readonly kind: 'call'; readonly frame: Frame }
  | { readonly kind: 'none' }
  | { readonly kind: 'refused'; readonly error: AwaitError };

function refused(message: string): AskOwner {
  return { kind: 'refused', error: new AwaitError('wrong-call', message) };
}

/** Rejects an ask made where no client can be asked, which would wait for ever. */
function cannotAsk(method: string, inside: string): AskOwner {
  return refused(
    `${method} cannot be asked inside of ${inside}: on this revision tools/call, prompts/get and resources/read alone can wait for an answer`,
  );
}

/** Refuses an ask outside of calls on a revision whose asks are parts of its responses, and logs it. */
export function refuseOutside(
  { method }: AskMessage,
  logger: { warn(message: string): void },
): Promise<never> {
  const error = new AwaitError(
    'wrong-call',
    `${method} was asked outside of any call: on this revision an ask is part of a response. ${NAME_IT}, or ask in the flow of a tool, a prompt or a resource`,
  );
  logger.warn(error.message);
  return Promise.reject(error);
}

/** Notifications that are about the server, not about a call. */
function isAboutServer(method: string | undefined): boolean {
  return method?.endsWith('/list_changed') === true || method === 'notifications/resources/updated';
}
