/**
 * A WebSocket transport for a client of SDK v1, which reconnects after a broken socket, at any process, and continues
 * the same session without missing a message, and without repeating one unless a process ended (`docs/websocket.md`).
 * With a server of another package it behaves like `WebSocketClientTransport`.
 * It owns the requests without a response, with the last event of each, and the answers that may not have arrived.
 */
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { excessOf, MOST_MESSAGE } from '../base/bounded-response.ts';
import { EVENT_META, REQUEST_META, RESUME, SESSION_META, VERSION_META } from '../base/resume-meta.ts';
import { AwaitError, CANCEL, defined, type JsonObject, objectOf } from '../base/values.ts';
import {
  Attempts,
  asError,
  type ClientRequest,
  isAnswer,
  isRequest,
  isRequestId,
  parseMessages,
  RECONNECTION,
  type Reconnection,
  type RequestId,
  type Rpc,
  type RpcAnswer,
} from './message.ts';
import { refusedAsk, withoutOddUrls } from './odd-urls.ts';

/** A socket as browsers, Node and `ws` have it. */
export interface WebSocketLike {
  onopen: ((event: never) => void) | null;
  onmessage: ((event: never) => void) | null;
  onclose: ((event: never) => void) | null;
  onerror: ((event: never) => void) | null;
  /** Characters or bytes that the server has not read. */
  readonly bufferedAmount?: number;
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

interface PendingRequest {
  readonly message: ClientRequest;
  /** The last event that its client had. */
  event?: string;
}

const SUBPROTOCOL = 'mcp';
/** The server's code for a session that it does not know. */
const NO_SESSION = 4404;
/** Answers that are sent again after a break. */
const ANSWERS = 200;
const MAX_RETRIES = 5;
/** Requests of a server that wait for their answers: more than any user or model answers. */
const MOST_ASKED = 1_000;

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
  readonly #pending = new Map<RequestId, PendingRequest>();
  readonly #answers = new Map<RequestId, RpcAnswer>();
  /** Notifications that wait for a socket. */
  #waiting: Rpc[] = [];
  /** Requests of the server without an answer. */
  readonly #asked = new Set<RequestId>();
  #socket: WebSocketLike | undefined;
  #session: string | undefined;
  #version: string | undefined;
  /** Sockets in a row that opened, and brought no message. */
  #silent = 0;
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
    const isFirst = isRequest(message) && message.method === 'initialize';
    // With the wish to come back.
    const sent = isFirst ? withMeta(message, { [SESSION_META]: true }) : message;
    if (isRequest(sent)) this.#pending.set(sent.id, { message: sent });
    else if (isAnswer(sent) && isRequestId(sent.id)) {
      this.#asked.delete(sent.id);
      this.#keepAnswer(sent.id, sent);
    } else if (this.#socket === undefined) this.#waiting.push(sent);
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
    // The first message may come with the end of the handshake.
    socket.onmessage = ({ data }: { data: unknown }) => this.#received(String(data), socket);
    await new Promise<void>((resolve, reject) => {
      const failed = (): void => {
        reject(new AwaitError('stream', `${this.#url} could not be reached, or refused the connection`));
      };
      socket.onerror = failed;
      socket.onclose = failed;
      socket.onopen = () => resolve();
    });
    socket.onerror = () => {};
    socket.onclose = ({ code, reason }: { code: number; reason: string }) => {
      if (this.#socket === socket) this.#broke(code, reason);
    };
    if (this.#closing.signal.aborted) {
      socket.close();
      return;
    }
    this.#socket = socket;
    this.#silent += 1;
    this.#goOn();
  }

  async #openSocket(): Promise<WebSocketLike> {
    const { open } = this.#options;
    if (open !== undefined) return open(this.#url, SUBPROTOCOL);
    const known = (globalThis as { WebSocket?: new (url: string, protocol: string) => WebSocketLike })
      .WebSocket;
    if (known !== undefined) return new known(this.#url, SUBPROTOCOL);
    const { WebSocket } = await import('ws');
    return new WebSocket(this.#url, SUBPROTOCOL, { maxPayload: MOST_MESSAGE }) as unknown as WebSocketLike;
  }

  #broke(code: number, reason: string): void {
    this.#socket = undefined;
    const error = new AwaitError(
      'stream',
      `the socket closed (${code}${reason === '' ? '' : `: ${reason}`})`,
    );
    // Without a session to resume, the state of the open requests is lost; `initialize` has none.
    const begins = [...this.#pending.values()].every(({ message }) => message.method === 'initialize');
    if (code === NO_SESSION || (this.#session === undefined && !begins)) this.#giveUp(error);
    else void this.#reconnect(error);
  }

  async #reconnect(broken: AwaitError): Promise<void> {
    const attempts = new Attempts(this.#reconnection, this.#closing.signal, 1 - this.#silent);
    while (await attempts.next()) {
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
        ...defined({ [VERSION_META]: this.#version, [EVENT_META]: this.#standing }),
      };
      this.#write({ jsonrpc: '2.0', method: RESUME, params: { _meta } });
    }
    for (const { message, event } of this.#pending.values()) this.#write(after(message, event));
    if (this.#session !== undefined) for (const answer of this.#answers.values()) this.#write(answer);
    for (const message of this.#waiting.splice(0)) this.#write(message);
  }

  #write(message: Rpc): void {
    const socket = this.#socket;
    socket?.send(JSON.stringify(message));
    if ((socket?.bufferedAmount ?? 0) > MOST_MESSAGE)
      this.#refuse(`reads nothing while more than ${MOST_MESSAGE} bytes wait for it`, socket);
  }

  /** The server sends too much, or reads too little: it would again. */
  #refuse(what: string, socket: WebSocketLike | undefined): void {
    this.#socket = undefined;
    socket?.close(1009, 'too much');
    this.#giveUp(new AwaitError('limit', `the connection was closed, since the server ${what}`));
  }

  // --- messages --------------------------------------------------------------------------------------

  #received(text: string, socket: WebSocketLike): void {
    if (this.#closing.signal.aborted) return;
    this.#silent = 0;
    const excess = excessOf(text);
    if (excess !== undefined) {
      this.#refuse(`sent a message ${excess}`, socket);
      return;
    }
    try {
      for (const message of parseMessages(text)) {
        const noted = this.#noted(message);
        const refused = refusedAsk(noted);
        if (isRequest(noted)) this.#asked.add(noted.id);
        else if ('method' in noted && noted.method === CANCEL)
          this.#asked.delete(noted.params?.requestId as RequestId);
        if (this.#asked.size > MOST_ASKED) {
          this.#refuse(`asks more than ${MOST_ASKED} things at once`, socket);
          return;
        }
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
      if (this.#session === undefined && 'result' in message) {
        const { _meta, protocolVersion } = message.result;
        const session = objectOf(_meta)[SESSION_META];
        if (typeof session === 'string') this.#session = session;
        if (typeof protocolVersion === 'string') this.#version = protocolVersion;
      }
      return message;
    }
    const { params } = message;
    const meta = objectOf(objectOf(params)._meta);
    const { [EVENT_META]: event, [REQUEST_META]: request, ...rest } = meta;
    if (typeof event !== 'string') return message;
    const pending = isRequestId(request) ? this.#pending.get(request) : undefined;
    if (pending !== undefined) pending.event = event;
    else if (request === undefined) this.#standing = event;
    const { _meta: _own, ...others } = params as JsonObject;
    const left = { ...others, ...(Object.keys(rest).length > 0 && { _meta: rest }) };
    return { ...message, params: left } as Rpc;
  }

  #keepAnswer(id: RequestId, answer: RpcAnswer): void {
    this.#answers.set(id, answer);
    for (const oldest of this.#answers.keys()) {
      if (this.#answers.size <= ANSWERS) return;
      this.#answers.delete(oldest);
    }
  }
}

function withMeta(message: ClientRequest, more: JsonObject): ClientRequest {
  const params = message.params ?? {};
  return { ...message, params: { ...params, _meta: { ...params._meta, ...more } } };
}

function after(message: ClientRequest, event: string | undefined): ClientRequest {
  return event === undefined ? message : withMeta(message, { [EVENT_META]: event });
}
