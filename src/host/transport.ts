/**
 * The in-memory transport between the engine and the user's server. It has the shape that both SDKs expect
 * of a transport, and knows which answer a server's request is to get before the server sends it.
 */

import { type AwaitError, defined, isObject, type JsonObject, LoopTurns, objectOf } from '../base/values.ts';
import type { AskProgress } from '../call/frame/turn.ts';
import type { Response } from '../call/journal/entries.ts';

export interface Message extends JsonObject {
  readonly jsonrpc: '2.0';
  readonly id?: string | number;
  readonly method?: string;
  readonly params?: JsonObject;
}

export interface SendOptions {
  readonly relatedRequestId?: string | number;
  /** Of a request: fires when the server gives up on it. */
  readonly signal?: AbortSignal;
  /** Of a request: the server listens to its progress. */
  readonly progress?: AskProgress;
}

/** Receives the server's messages. */
export interface TransportSink {
  response(id: string | number, response: Response): void;
  notification(message: Message, options: SendOptions): void;
  /** A request of the server that was not intercepted; resolves with its answer. */
  request(message: Message, options: SendOptions): Promise<Response>;
  error(error: unknown): void;
  /** The server ended while this request of its client was open. */
  lost(id: string | number, error: AwaitError, isMeant: boolean): void;
}

/** A request whose caller's scopes are checked, in the form that SDK v2 passes to the server. */
export interface ChallengeContext {
  readonly request: JsonObject;
  readonly authInfo?: JsonObject;
}

export type ScopeResolver = (context: ChallengeContext) => unknown;

/** A tool that only sends would hold the event loop until its last one. */
const turns = new LoopTurns();
/** What a notification takes of a turn, if its tool waits for it. */
const SHARE = 1 / 32;

/** What answers a request: a response, one report of progress, or nothing. */
type Armed = Response | 'progress' | 'nothing';

export class HostTransport {
  readonly sessionId: string;
  onmessage?: (message: Message, extra?: JsonObject) => void;
  onclose?: () => void;
  onerror?: (error: Error) => void;
  /** Set by a server of SDK v2 as it connects: its check of scopes before a request reaches it. */
  scopeResolver?: ScopeResolver;
  readonly #sink: TransportSink;
  /** Called once the server hears, also while it is still in its `connect`. */
  onListening?: () => void;
  /** For a server that runs elsewhere: `Outside.isUsed`. */
  readonly isUsed: (() => boolean) | undefined;
  #armed: Armed | undefined;
  /** The requests that the server sent itself, and that are open. */
  #asked: Set<number> | undefined;
  #severed = false;

  constructor(sessionId: string, sink: TransportSink, isUsed?: () => boolean) {
    this.sessionId = sessionId;
    this.isUsed = isUsed;
    this.#sink = sink;
  }

  async start(): Promise<void> {
    this.onListening?.();
  }

  /** Called by a server of SDK v2. */
  setScopeChallengeResolver(resolver: ScopeResolver): void {
    this.scopeResolver = resolver;
  }

  /** Called by the server: by `close()` of an SDK server, after which nothing more is delivered. */
  async close(): Promise<void> {
    if (this.#severed) return;
    this.#severed = true;
    this.onclose?.();
  }

  /** Cuts the server off without closing it: closing would reject its tools' open asks (invariant 1). */
  sever(): void {
    this.#severed = true;
  }

  /**
   * Runs `send`, which makes the server send one request at once, and answers that request with `reply`.
   * An SDK sends within the call of its `request`, so nothing can come in between.
   */
  answering<T>(reply: Armed, send: () => T): T {
    this.#armed = reply;
    try {
      return send();
    } finally {
      this.#armed = undefined;
    }
  }

  deliver(message: Message, extra?: JsonObject): void {
    if (!this.#severed) this.onmessage?.(message, extra);
  }

  /** A client's response that answers no ask: an SDK reports it. It must not answer a request of the server's own. */
  deliverStray(response: Message): void {
    if (!this.#asked?.has(Number(response.id))) this.deliver(response);
  }

  /** A request of a server that is not an SDK's; resolves with its answer, if ever. */
  ask(message: Message, options: SendOptions): Promise<Response> {
    if (this.#severed) return new Promise(() => {});
    return this.#sink.request(message, options);
  }

  /**
   * For a server that runs elsewhere: it ended while this request of its client was open.
   * @param isMeant this process ended it, so the call continues in another
   */
  lose(id: string | number, error: AwaitError, isMeant: boolean): void {
    if (!this.#severed) this.#sink.lost(id, error, isMeant);
  }

  async send(message: Message, options?: SendOptions): Promise<void> {
    this.tell(message, options);
    if (message.id === undefined) await turns.next(SHARE, this);
  }

  /** As `send`, for a server that runs elsewhere: nothing in it would wait for a turn. */
  tell(message: Message, options: SendOptions = {}): void {
    const { id, method } = message;
    if (method === undefined) {
      if (id !== undefined) this.#sink.response(id, responseOf(message));
      return;
    }
    const armed = this.#armed;
    if (id !== undefined && armed !== undefined) {
      this.#armed = undefined;
      // Also when severed: a frame that is unwound gets its rejection through its SDK.
      if (armed === 'nothing') return;
      queueMicrotask(() => this.onmessage?.(armed === 'progress' ? progressOn(id) : reply(id, armed)));
      return;
    }
    if (this.#severed) return;
    if (id === undefined) {
      this.#sink.notification(message, options);
      return;
    }
    // A request that its server sent itself carries the server's own token.
    const token = progressTokenOf(message.params);
    const progress = token !== undefined && {
      report: (reported: JsonObject) => this.deliver(progressOn(token, reported)),
      resets: false,
    };
    this.#asked ??= new Set();
    this.#asked.add(Number(id));
    void this.#sink
      .request(message, { ...options, ...(progress && { progress }) })
      .finally(() => this.#asked?.delete(Number(id)))
      .then(
        (response) => this.deliver(reply(id, response)),
        (error: unknown) => this.#sink.error(error),
      );
  }
}

/** @param token a request's id, if its server is an SDK's */
export function progressOn(token: unknown, params: JsonObject = { progress: 0 }): Message {
  return {
    jsonrpc: '2.0',
    method: 'notifications/progress',
    params: { ...params, progressToken: token },
  };
}

/** A copy, so that a tool cannot change the record. (It is JSON; `structuredClone` is slower.) */
function reply(id: string | number, response: Response): Message {
  return JSON.parse(JSON.stringify({ jsonrpc: '2.0', id, ...response })) as Message;
}

export function responseOf(message: JsonObject): Response {
  if (isObject(message.error)) {
    const { code, message: text, data } = message.error;
    return {
      error: {
        code: Number.isSafeInteger(code) ? (code as number) : -32603,
        message: typeof text === 'string' ? text : 'Internal error',
        ...defined({ data }),
      },
    };
  }
  return { result: objectOf(message.result) };
}

/** The progress token that a request came with. */
export function progressTokenOf(params: unknown): unknown {
  return isObject(params) && isObject(params._meta) ? params._meta.progressToken : undefined;
}
