/**
 * A remote server of 2025-11-25 or before, over Streamable HTTP or, where its endpoint refuses that, HTTP+SSE. The
 * transports are those of SDK v1, an optional peer: sessions, streams and their resumption are theirs.
 *
 * A link is one session. A request that the server refuses gets an error; a session that it no longer knows, a server
 * that cannot be reached, or a reply that ends or breaks without the response, and is not resumed, is the end of the
 * link.
 */
import type { BoundedReading } from '../base/bounded-response.ts';
import { mediaType } from '../base/bounded-response.ts';
import type { Account, OpenAccount } from '../base/budget.ts';
import { importPeer } from '../base/peer.ts';
import {
  advice,
  type Deferred,
  deferred,
  hasCode,
  type JsonObject,
  objectOf,
  systemClock,
  within,
} from '../base/values.ts';
import { Attempts, isLost, RECONNECTION, RESTARTS, retry } from '../client/message.ts';
import { fetchWithinOrigin } from '../client/redirect.ts';
import { Inflow } from './inflow.ts';
import { FULL, heldMemory, isRpcMessage, type LinkEvents, type PeerLink, reasonOf } from './link.ts';

export interface RemoteOptions {
  readonly url: string;
  /** Sent with every request. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** Limits what is collected of a response of the server. */
export type BoundReply = (response: Response, reading: Omit<BoundedReading, 'account'>) => Response;

/** The part of the SDK's transports that is used here. */
interface Transport {
  onmessage?: (message: never) => void;
  onclose?: () => void;
  onerror?: (error: Error) => void;
  start(): Promise<void>;
  send(message: never, options?: { readonly onresumptiontoken: (token: string) => void }): Promise<void>;
  close(): Promise<void>;
  terminateSession?(): Promise<void>;
  setProtocolVersion?(version: string): void;
}

/** Messages of a server that are read in a second. */
export const RATE = 1_000;
/** Bytes that a request takes beside its message. */
const REQUEST = 65_536;
/** How long the server may take to answer the end of its session, and to end a reply after its response; in milliseconds. */
const GRACE = 2_000;
/** How long after the end of a reply the transport has passed on what was in it, in milliseconds. */
const PASSED = 100;
/** Most characters of a URL or a protocol version that the server names: the link sends it with each request. */
const MOST_KEPT = 8_192;

type RemoteWire = 'http' | 'sse';

/** A request whose response has not come. */
interface Unanswered {
  /** Names its present reply: its id, or the last event, after which it is resumed; undefined over HTTP+SSE. */
  key: unknown;
  /** How often that may fail. */
  left: number;
  /** Its response has come, and what may follow in its reply. */
  readonly over: Deferred<void>;
}

type Fetch = (input: string | URL, init?: RequestInit) => Promise<Response>;

export class RemoteLink implements PeerLink {
  readonly #options: RemoteOptions;
  readonly #bound: BoundReply;
  readonly #events: LinkEvents;
  #transport: Promise<Transport>;
  #wire: RemoteWire = 'http';
  /** Ends its requests with it; not through `#transport`, which an HTTP+SSE server need not let start. */
  readonly #gone = new AbortController();
  get #isOver(): boolean {
    return this.#gone.signal.aborted;
  }
  readonly #inflow: Inflow;
  #left: Promise<void> | undefined;
  /** By their ids. */
  readonly #unanswered = new Map<unknown, Unanswered>();
  /** Responses to the server's own requests, and notifications, that are under way: each is a request. */
  readonly #responses: Account;
  /** What they take, in bytes. */
  #responding = 0;

  constructor(options: RemoteOptions, bound: BoundReply, account: OpenAccount, events: LinkEvents) {
    this.#options = options;
    this.#bound = bound;
    this.#events = events;
    this.#inflow = new Inflow({
      rate: RATE,
      account,
      pass: (message) => this.#events.message(message),
      link: this,
    });
    this.#responses = account(() => this.kill(FULL));
    this.#transport = this.#open('http');
    this.#transport.catch((error: unknown) => this.#ended(reasonOf(error)));
  }

  send(message: JsonObject): void {
    // What a call sends counts with the call.
    const memory = message.id !== undefined && message.method ? 0 : heldMemory(message) + REQUEST;
    this.#responds(memory);
    if (this.#isOver) return;
    const sent = this.#send(message);
    // The server may ask as soon as it has a request, on the stream that is opened with this.
    if (message.method === 'notifications/initialized') {
      const transport = this.#transport;
      this.#transport = sent.catch(() => {}).then(() => transport);
    }
    void sent.catch((error: unknown) => this.#failed(message, error)).finally(() => this.#responds(-memory));
  }

  /** May end this link, and others. */
  #responds(memory: number): void {
    this.#responding += memory;
    this.#responses.set(this.#responding);
  }

  /** Ends the session at its server too, where a tool would wait on for its answer, beside the next session. */
  close(reason = 'it was closed'): Promise<void> {
    this.#ended(reason);
    this.#left ??= this.#leave();
    return this.#left;
  }

  kill(reason = 'it was ended'): void {
    void this.close(reason);
  }

  async #leave(): Promise<void> {
    const transport = this.#transport;
    await within(
      systemClock,
      GRACE,
      transport.then((open) => open.terminateSession?.()),
    );
    void transport.then((open) => open.close()).catch(() => undefined);
  }

  async #send(message: JsonObject): Promise<void> {
    const transport = await this.#transport;
    const { id, method } = message;
    const left = RECONNECTION.maxRetries;
    const request: Unanswered = { key: this.#wire === 'http' ? id : undefined, left, over: deferred() };
    const onresumptiontoken = (key: string): void => void Object.assign(request, { key, left });
    // One that is cancelled may end without a response.
    const isRequest = id !== undefined && method !== undefined;
    if (isRequest) this.#unanswered.set(id, request);
    else if (id === undefined) this.#unanswered.delete(objectOf(message.params).requestId);
    const send = (): Promise<void> => transport.send(message as never, { onresumptiontoken });
    try {
      // A request may have been taken, and would be done twice.
      await (isRequest ? send() : retry(send, new Attempts(RESTARTS, this.#gone.signal), isLost));
    } catch (error) {
      const code = Number(objectOf(error).code);
      const isRefused = code >= 400 && code < 500 && code !== 401 && code !== 403;
      if (method !== 'initialize' || this.#wire === 'sse' || !isRefused) throw error;
      // As the revisions of 2025 have it for clients that also know the one before.
      request.key = undefined;
      this.#transport = this.#open('sse');
      await (await this.#transport).send(message as never);
    }
  }

  async #open(wire: RemoteWire): Promise<Transport> {
    this.#wire = wire;
    const transport = await make(wire, this.#options, async (input, init = {}) => {
      let isLast = false;
      const requests = this.#requestsOf(init, wire);
      // Over HTTP+SSE the server names it.
      if (String(input).length > MOST_KEPT) this.kill('it names a URL that is too long');
      // A transport may forget a reply that it refuses, and would leave the connection open.
      if (init.method !== 'DELETE') init.signal = this.#gone.signal;
      const onOver = (): void => void setTimeout(() => this.#over(requests(), isLast), PASSED);
      let response = await fetchHere(input, init).catch((error: unknown) => {
        onOver();
        throw error;
      });
      isLast = response.ok || response.status === 405;
      // The transport reads whatever a GET returns as events. A server that has no stream says 405. A page is from
      // something before the server, and taken for an answer's receipt its call would wait for ever.
      const isGet = init.method === 'GET';
      const type = mediaType(response);
      if (response.ok && (isGet ? type !== 'text/event-stream' : type === 'text/html' && !requests()[0])) {
        await response.body?.cancel();
        response = new Response(null, { status: isGet ? 405 : 502 });
      }
      return this.#bound(response, {
        onExceeded: ({ message }) => this.#refuse(requestIn(init), message) || this.kill(message),
        onOver,
        mayRead: () => this.#inflow.ready(),
        // A server need not end a reply.
        until: wire === 'http' ? requests()[0]?.over.promise : undefined,
      });
    });
    transport.onmessage = (message: JsonObject) => {
      if (this.#isOver || !isRpcMessage(message)) return;
      const { id, method, result } = message;
      const answered = method === undefined && this.#unanswered.get(id);
      if (answered) {
        this.#unanswered.delete(id);
        setTimeout(answered.over.resolve, GRACE).unref();
      }
      const { protocolVersion } = objectOf(result);
      if (typeof protocolVersion === 'string' && protocolVersion.length < MOST_KEPT)
        transport.setProtocolVersion?.(protocolVersion);
      this.#inflow.push(message);
    };
    // What its parser refuses takes ten times as long as a message.
    transport.onerror = (error) => {
      if (error instanceof SyntaxError || 'issues' in error) this.#inflow.took(100, 0);
    };
    transport.onclose = () => {
      if (this.#wire === wire) this.#ended('its connection closed');
    };
    if (this.#isOver) throw new Error('it is over');
    await transport.start();
    return transport;
  }

  /**
   * @param unpassed whether the server has certainly not taken it
   * @returns whether it is a request whose response has not come
   */
  #refuse({ id, method }: JsonObject, why: string, unpassed = false): boolean {
    if (method === undefined || !this.#unanswered.delete(id)) return false;
    if (!this.#isOver)
      this.#events.message({
        jsonrpc: '2.0',
        id,
        error: { code: -32603, message: `Internal error: ${why}`, data: advice('host-gone') },
        unpassed,
      });
    return true;
  }

  /** @returns finds the unanswered requests whose reply the transport asks for by `init`; its body is parsed once */
  #requestsOf(init: RequestInit, wire: RemoteWire): () => Unanswered[] {
    // Over HTTP+SSE responses come in the stream of the session alone.
    if (wire === 'sse' && init.body) return () => [];
    const { id, method } = requestIn(init);
    const key = new Headers(init.headers).get('last-event-id') ?? (method && id);
    return () => [...this.#unanswered.values()].filter((request) => request.key === key);
  }

  /**
   * A reply is over, or could not be had.
   * @param requests those that it was for
   * @param isLast whether the transport does not ask for the rest of it again
   */
  #over(requests: readonly Unanswered[], isLast: boolean): void {
    for (const request of requests) {
      request.left -= 1;
      if (!isLast && request.left > 0) continue;
      this.kill('a reply of it ended without the response');
    }
  }

  #failed(message: JsonObject, error: unknown): void {
    // Its call was told.
    if (hasCode(error, 'limit')) return;
    const code = Number(objectOf(error).code);
    // What waits for an answer that is lost would wait for ever; 400 is to one that nothing waits for.
    const isGone =
      code === 404 ||
      Number.isNaN(code) ||
      message.method === 'initialize' ||
      (!message.method && code !== 400);
    // Its session is unknown to the server, which may have started anew, or it is away for a moment.
    const untaken = code === 404 || code === 429 || code === 503;
    // At -1 something in front of it sent a reply that is no message.
    const isAway = (untaken || [-1, 502, 504].includes(code)) && message.method !== 'initialize';
    if (isAway && this.#unanswered.delete(message.id))
      this.#events.lost?.(message.id as number, reasonOf(error), { untaken });
    if (isGone) this.kill(reasonOf(error));
    else if (!isAway)
      this.#refuse(message, `the server refused the request (${code})`, code === 401 || code === 403);
  }

  #ended(reason: string): void {
    if (this.#isOver) return;
    this.#gone.abort();
    this.#inflow.close();
    this.#responses.close();
    this.#events.ended(reason);
  }
}

async function make(
  wire: RemoteWire,
  { url, headers = {} }: RemoteOptions,
  fetch: Fetch,
): Promise<Transport> {
  const options = { requestInit: { headers }, reconnectionOptions: RECONNECTION, fetch };
  return importPeer('@modelcontextprotocol/sdk', async () => {
    if (wire === 'sse') {
      const { SSEClientTransport } = await import('@modelcontextprotocol/sdk/client/sse.js');
      return new SSEClientTransport(new URL(url), options) as Transport;
    }
    const { StreamableHTTPClientTransport } = await import(
      '@modelcontextprotocol/sdk/client/streamableHttp.js'
    );
    return new StreamableHTTPClientTransport(new URL(url), options) as Transport;
  });
}

/** The message in a request's body. */
function requestIn({ body }: RequestInit): JsonObject {
  return objectOf(typeof body === 'string' && JSON.parse(body));
}

/** The headers, which may be credentials, and the callers' messages are for the server that was named. */
async function fetchHere(input: string | URL, init: RequestInit = {}): Promise<Response> {
  const response = await fetchWithinOrigin(fetch, new URL(input), { ...init, redirect: 'follow' });
  const location = response.headers.get('location');
  if (response.status < 300 || response.status > 399 || location === null) return response;
  await response.body?.cancel();
  throw new Error(
    `the server redirects to ${new URL(location, response.url).href}; name the URL that is meant`,
  );
}
