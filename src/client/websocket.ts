/**
 * A WebSocket transport for a client of SDK v1, which reconnects after a broken socket, at any process, and continues
 * the same session without repeating or missing a message (`docs/websocket.md`). With a server of another package it
 * behaves like `WebSocketClientTransport`.
 * It owns the requests without a response, with the last event of each, and the answers that may not have arrived.
 */
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { MOST_MESSAGE } from '../base/bounded-response.ts';
import { AwaitError } from '../base/error.ts';
import { EVENT_META, REQUEST_META, RESUME, SESSION_META, VERSION_META } from '../base/resume-meta.ts';
import { asError } from './failure.ts';
import {
  type Answer,
  isAnswer,
  isObject,
  isRequest,
  isRequestId,
  type JsonObject,
  parseMessages,
  type RequestId,
  type Rpc,
  type RpcRequest,
} from './message.ts';
import { refusedAsk, withoutOddUrls } from './odd-urls.ts';
import { delayBefore, pause, RECONNECTION, type Reconnection } from './reconnection.ts';

/** A socket as browsers, Node and `ws` have it. */
export interface WebSocketLike {
  onopen: ((event: never) => void) | null;
  onmessage: ((event: never) => void) | null;
  onclose: ((event: never) => void) | null;
  onerror: ((event: never) => void) | null;
  send(text: string): void;
  close(code?: number, reason?: string): void;
}

/** The options of `AwaitWebSocketTransport`. */
export interface WebSocketTransportOptions {
  /** Opens a socket. Default: the runtime's `WebSocket`, else that of the package `ws`. */
  readonly open?: ((url: string, protocol: string) => WebSocketLike) | undefined;
  /** How a socket that broke is opened again; five attempts in a row by default. */
  readonly reconnectionOptions?: Partial<Reconnection> | undefined;
}

interface Pending {
  readonly message: RpcRequest;
  /** The last event that its client had. */
  event?: string;
}

const SUBPROTOCOL = 'mcp';
/** The server's code for a session that it does not know. */
const NO_SESSION = 4404;
/** Answers that are sent again after a break. */
const ANSWERS = 200;
const MAX_RETRIES = 5;

/**
 * A transport over WebSocket which reopens a broken socket and resumes its calls.
 *
 * @example
 * import { Client } from '@modelcontextprotocol/sdk/client/index.js';
 * import { AwaitWebSocketTransport } from 'mcp-await/client';
 *
 * const client = new Client({ name: 'desk', version: '1.0.0' });
 * await client.connect(new AwaitWebSocketTransport('wss://example.com/mcp'));
 */
export class AwaitWebSocketTransport implements Transport {
  onclose?: (() => void) | undefined;
  onerror?: ((error: Error) => void) | undefined;
  onmessage?: Transport['onmessage'];
  readonly #url: string;
  readonly #options: WebSocketTransportOptions;
  readonly #reconnection: Reconnection;
  readonly #closing = new AbortController();
  readonly #pending = new Map<RequestId, Pending>();
  readonly #answers = new Map<RequestId, Answer>();
  /** Notifications that wait for a socket. */
  #waiting: Rpc[] = [];
  #socket: WebSocketLike | undefined;
  #session: string | undefined;
  #version: string | undefined;
  /** The last event of the session's own stream. */
  #standing: string | undefined;

  constructor(url: URL | string, options: WebSocketTransportOptions = {}) {
    this.#url = String(url);
    this.#options = options;
    this.#reconnection = { ...RECONNECTION, maxRetries: MAX_RETRIES, ...options.reconnectionOptions };
  }

  /** Rejects when the server cannot be reached, or refuses the connection. */
  async start(): Promise<void> {
    await this.#connect();
  }

  async send(message: Rpc): Promise<void> {
    const sent = isRequest(message) && message.method === 'initialize' ? asking(message) : message;
    if (isRequest(sent)) this.#pending.set(sent.id, { message: sent });
    else if (isAnswer(sent) && isRequestId(sent.id)) this.#keepAnswer(sent.id, sent);
    else if (this.#socket === undefined) this.#waiting.push(sent);
    this.#write(sent);
  }

  /** Leaves the session open; the server ends it after it has been idle for long. */
  async close(): Promise<void> {
    if (this.#closing.signal.aborted) return;
    this.#closing.abort();
    const socket = this.#socket;
    this.#socket = undefined;
    socket?.close(1000, 'the client closed');
    this.onclose?.();
  }

  // --- the socket ------------------------------------------------------------------------------------

  async #connect(): Promise<void> {
    const socket = await this.#openSocket();
    await new Promise<void>((resolve, reject) => {
      const failed = (): void => {
        reject(new AwaitError('stream', `${this.#url} could not be reached, or refused the connection`));
      };
      socket.onerror = failed;
      socket.onclose = failed;
      socket.onopen = () => resolve();
    });
    socket.onerror = () => {};
    socket.onmessage = ({ data }: { data: unknown }) => this.#received(String(data));
    socket.onclose = ({ code, reason }: { code: number; reason: string }) => {
      if (this.#socket === socket) this.#broke(code, reason);
    };
    if (this.#closing.signal.aborted) {
      socket.close();
      return;
    }
    this.#socket = socket;
    this.#goOn();
  }

  async #openSocket(): Promise<WebSocketLike> {
    const { open } = this.#options;
    if (open !== undefined) return open(this.#url, SUBPROTOCOL);
    const known = (globalThis as { WebSocket?: new (url: string, protocol: string) => WebSocketLike })
      .WebSocket;
    if (known !== undefined) return new known(this.#url, SUBPROTOCOL);
    const { WebSocket } = await import('ws');
    const bounds = { maxPayload: MOST_MESSAGE };
    return new WebSocket(this.#url, SUBPROTOCOL, bounds) as unknown as WebSocketLike;
  }

  #broke(code: number, reason: string): void {
    this.#socket = undefined;
    const error = new AwaitError(
      'stream',
      `the socket closed (${code}${reason === '' ? '' : `: ${reason}`})`,
    );
    // Without a session to resume, the state of the open requests is lost.
    if (code === NO_SESSION || (this.#session === undefined && this.#pending.size > 0)) this.#giveUp(error);
    else void this.#reconnect(error);
  }

  async #reconnect(broken: AwaitError): Promise<void> {
    const { signal } = this.#closing;
    for (let attempt = 0; attempt < this.#reconnection.maxRetries; attempt += 1) {
      await pause(attempt === 0 ? 0 : delayBefore(attempt - 1, this.#reconnection), signal);
      if (signal.aborted) return;
      try {
        await this.#connect();
        return;
      } catch (error) {
        this.onerror?.(asError(error));
      }
    }
    this.#giveUp(broken);
  }

  #giveUp(error: AwaitError): void {
    if (this.#closing.signal.aborted) return;
    this.#closing.abort();
    this.onerror?.(error);
    this.onclose?.();
  }

  /** After a break: the session, then whatever the server may not have, or not have answered. */
  #goOn(): void {
    if (this.#session !== undefined) {
      const _meta = {
        [SESSION_META]: this.#session,
        ...(this.#version !== undefined && { [VERSION_META]: this.#version }),
        ...(this.#standing !== undefined && { [EVENT_META]: this.#standing }),
      };
      this.#write({ jsonrpc: '2.0', method: RESUME, params: { _meta } });
      for (const { message, event } of this.#pending.values()) this.#write(after(message, event));
      for (const answer of this.#answers.values()) this.#write(answer);
    }
    for (const message of this.#waiting.splice(0)) this.#write(message);
  }

  #write(message: Rpc): void {
    this.#socket?.send(JSON.stringify(message));
  }

  // --- messages --------------------------------------------------------------------------------------

  #received(text: string): void {
    try {
      for (const message of parseMessages(text)) {
        const noted = this.#noted(message);
        const refused = refusedAsk(noted);
        if (refused === undefined) this.onmessage?.(withoutOddUrls(noted));
        else void this.send(refused);
      }
    } catch (error) {
      this.onerror?.(asError(error));
    }
  }

  /** Strips the members that are only for the two ends of the connection. */
  #noted(message: Rpc): Rpc {
    if (isAnswer(message)) {
      if (isRequestId(message.id)) this.#pending.delete(message.id);
      if (this.#session === undefined && 'result' in message) this.#began(message.result);
      return message;
    }
    const { params } = message;
    const meta = isObject(params) && isObject(params._meta) ? params._meta : {};
    const { [EVENT_META]: event, [REQUEST_META]: request, ...rest } = meta;
    if (typeof event !== 'string') return message;
    const pending = isRequestId(request) ? this.#pending.get(request) : undefined;
    if (pending !== undefined) pending.event = event;
    else if (request === undefined) this.#standing = event;
    const { _meta: _own, ...others } = params as JsonObject;
    const left = { ...others, ...(Object.keys(rest).length > 0 && { _meta: rest }) };
    return { ...message, params: left } as Rpc;
  }

  #began(result: JsonObject): void {
    const session = isObject(result._meta) ? result._meta[SESSION_META] : undefined;
    if (typeof session === 'string') this.#session = session;
    if (typeof result.protocolVersion === 'string') this.#version = result.protocolVersion;
  }

  #keepAnswer(id: RequestId, answer: Answer): void {
    this.#answers.set(id, answer);
    for (const oldest of this.#answers.keys()) {
      if (this.#answers.size <= ANSWERS) return;
      this.#answers.delete(oldest);
    }
  }
}

function withMeta(message: RpcRequest, more: JsonObject): RpcRequest {
  const params = message.params ?? {};
  return { ...message, params: { ...params, _meta: { ...params._meta, ...more } } };
}

/** `initialize`, with the wish to come back. */
function asking(message: RpcRequest): RpcRequest {
  return withMeta(message, { [SESSION_META]: true });
}

function after(message: RpcRequest, event: string | undefined): RpcRequest {
  return event === undefined ? message : withMeta(message, { [EVENT_META]: event });
}
