/**
 * A remote server of 2025-11-25 or before, over Streamable HTTP or, where its endpoint refuses that, HTTP+SSE. The
 * transports are those of SDK v1, an optional peer: sessions, streams and their resumption are theirs.
 *
 * A link is one session. A request that the server refuses gets an error; a session that it no longer knows, or a
 * server that cannot be reached, is the end of the link.
 */
import type { BoundedReading } from '../base/bounded-response.ts';
import type { Account, OpenAccount } from '../base/budget.ts';
import { importPeer } from '../base/peer.ts';
import { AwaitError, isObject, type JsonObject, objectOf, systemClock, within } from '../base/values.ts';
import { fetchWithinOrigin } from '../client/redirect.ts';
import { Inflow } from './inflow.ts';
import { FULL, heldMemory, isRpcMessage, type LinkEvents, type PeerLink } from './link.ts';

export interface RemoteOptions {
  readonly url: string;
  /** Sent with every request. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** Limits what is collected of a response of the server. */
export type BoundReply = (
  response: Response,
  reading: Pick<BoundedReading, 'onExceeded' | 'mayRead'>,
) => Response;

/** The part of the SDK's transports that is used here. */
interface Transport {
  onmessage?: (message: never) => void;
  onerror?: (error: Error) => void;
  onclose?: () => void;
  start(): Promise<void>;
  send(message: never): Promise<void>;
  close(): Promise<void>;
  terminateSession?(): Promise<void>;
  setProtocolVersion?(version: string): void;
}

/** Messages of a server that are read in a second. */
export const RATE = 1_000;
/** Bytes that a request takes beside its message. */
const REQUEST = 65_536;
/** How long the server may take to answer the end of its session, in milliseconds. */
const GRACE = 2_000;

type RemoteWire = 'http' | 'sse';

export function openRemote(
  options: RemoteOptions,
  bound: BoundReply,
  account: OpenAccount,
  events: LinkEvents,
): PeerLink {
  return new RemoteLink(options, bound, account, events);
}

class RemoteLink implements PeerLink {
  readonly #options: RemoteOptions;
  readonly #bound: BoundReply;
  readonly #events: LinkEvents;
  #transport: Promise<Transport>;
  #wire: RemoteWire = 'http';
  #isOver = false;
  readonly #inflow: Inflow;
  /** Responses to the server's own requests that are under way, each a request. */
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
      failed: (reason) => this.kill(reason),
    });
    this.#responses = account(() => this.kill(FULL));
    this.#transport = this.#open('http');
    this.#transport.catch((error: unknown) => this.#ended(reasonOf(error)));
  }

  send(message: JsonObject): void {
    const memory = message.method === undefined ? heldMemory(message) + REQUEST : 0;
    this.#responds(memory);
    if (this.#isOver) return;
    void this.#send(message)
      .catch((error: unknown) => this.#failed(message, error))
      .finally(() => this.#responds(-memory));
  }

  /** May end this link, and others. */
  #responds(memory: number): void {
    this.#responding += memory;
    if (memory !== 0) this.#responses.set(this.#responding);
  }

  async close(): Promise<void> {
    const left = this.#transport.then((transport) => transport.terminateSession?.());
    await within(systemClock, GRACE, left);
    this.kill('it was closed');
  }

  kill(reason = 'it was ended'): void {
    this.#ended(reason);
    void this.#transport.then((transport) => transport.close()).catch(() => undefined);
  }

  async #send(message: JsonObject): Promise<void> {
    const transport = await this.#transport;
    try {
      await transport.send(message as never);
    } catch (error) {
      const code = isObject(error) ? error.code : undefined;
      const isRefused = typeof code === 'number' && code >= 400 && code < 500 && code !== 401 && code !== 403;
      if (message.method !== 'initialize' || this.#wire === 'sse' || !isRefused) throw error;
      // As the revisions of 2025 have it for clients that also know the one before.
      this.#transport = this.#open('sse');
      await (await this.#transport).send(message as never);
    }
  }

  async #open(wire: RemoteWire): Promise<Transport> {
    this.#wire = wire;
    const transport = await make(wire, this.#options, (response, sent) =>
      this.#bound(response, {
        onExceeded: (error) => this.#exceeded(sent, error),
        mayRead: () => this.#inflow.ready(),
      }),
    );
    transport.onmessage = (message: JsonObject) => {
      if (this.#isOver || !isRpcMessage(message)) return;
      const { result } = message;
      if (isObject(result) && typeof result.protocolVersion === 'string') {
        transport.setProtocolVersion?.(result.protocolVersion);
      }
      this.#inflow.push(message);
    };
    transport.onclose = () => {
      if (this.#wire === wire) this.#ended('its connection closed');
    };
    transport.onerror = () => {};
    await transport.start();
    return transport;
  }

  /** A reply is too much: its call fails, and without a call the session. */
  #exceeded(sent: unknown, { message }: AwaitError): void {
    const { id, method } = requestIn(sent);
    if (
      typeof method !== 'string' ||
      method === 'initialize' ||
      !(typeof id === 'string' || typeof id === 'number')
    )
      this.kill(message);
    else if (!this.#isOver)
      this.#events.message({
        jsonrpc: '2.0',
        id,
        error: { code: -32603, message: `Internal error: ${message}` },
      });
  }

  #failed(message: JsonObject, error: unknown): void {
    // Its call was told.
    if (error instanceof AwaitError && error.code === 'limit') return;
    const { id, method } = message;
    const code = isObject(error) ? error.code : undefined;
    const isGone = code === 404 || typeof code !== 'number' || method === 'initialize';
    if (isGone) this.#ended(reasonOf(error));
    else if (id !== undefined && method !== undefined) {
      const refused = { code: -32603, message: `Internal error: the server refused the request (${code})` };
      this.#events.message({ jsonrpc: '2.0', id, error: refused });
    }
  }

  #ended(reason: string): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#inflow.close();
    this.#responses.close();
    this.#events.ended(reason);
  }
}

async function make(
  wire: RemoteWire,
  { url, headers = {} }: RemoteOptions,
  bound: (response: Response, sent: unknown) => Response,
): Promise<Transport> {
  const requestInit = { headers: { ...headers } };
  const fetch = async (input: string | URL, init?: RequestInit): Promise<Response> =>
    bound(await fetchHere(input, init), init?.body);
  const options = { requestInit, fetch };
  return importPeer(need, '@modelcontextprotocol/sdk', async () => {
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

const need = (name: string): string => `a remote server needs the package ${name}: npm install ${name}`;

/** The message in a request's body. */
function requestIn(body: unknown): JsonObject {
  const message: unknown = typeof body === 'string' ? JSON.parse(body) : undefined;
  return objectOf(message);
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

function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { cause, message } = error;
  const status = 'code' in error && typeof error.code === 'number' ? ` (${error.code})` : '';
  return cause instanceof Error ? `${message}: ${cause.message}` : `${message}${status}`;
}
