/** What a handler is to its mounts. */
import type { JsonObject } from '../base/values.ts';
import { DisconnectSignal } from '../doors/http/disconnect-signal.ts';
import type { Inbound, SentReply } from '../doors/http/exchange.ts';
import { type FetchOptions, inboundOf, responseOf } from '../doors/http/fetch.ts';
import type { Traffic } from '../doors/http/traffic.ts';
import type { Counters } from '../observe/counters.ts';

/** Whether a process is ready for requests. */
export interface Health {
  readonly ready: boolean;
  /** A sentence that says why it is not. */
  readonly reason?: string;
}

/** The handler of `createAwaitHandler`: serves requests, and is closed at shutdown. */
export interface AwaitHandler {
  /** One HTTP request of any revision: for Hono, Workers, Bun, Deno, and everything fetch-shaped. */
  readonly fetch: (request: Request, options?: FetchOptions) => Promise<Response>;
  /**
   * For shutting down: everything that comes in is served on; running turns have `limits.drain` to end, and are then
   * handed over to other processes; open streams end, and their clients come back elsewhere. Then requests get 503, and
   * nothing is written any more. Suspended calls stay valid. Each call returns the same promise. In a `node:http`
   * server `closeOnSignals` (`mcp-await/node`) calls it.
   */
  readonly close: () => Promise<void>;
  /**
   * The first half of `close`: resolves once the running calls were handed over, and goes on serving. A later call hands
   * over what came meanwhile.
   * @param linger milliseconds before that, in which `health` says no already: for balancers that ask
   */
  readonly leave: (linger?: number) => Promise<void>;
  /** Closes the relay and disconnects the store that the handler was given, in this order; after `close`. */
  readonly release: () => Promise<void>;
  /**
   * Whether requests should be sent here: the store answers, there are secrets, and the process does not leave. For a
   * path such as `/readyz`. It reads the store once a second at most.
   */
  readonly health: () => Promise<Health>;
  /**
   * Checks the factory by calling it without a client, so that a fault that every client would meet shows at start.
   * @throws AwaitError `bad-option`: it returns no server, the same one twice, or one of an unknown SDK
   */
  readonly check: () => Promise<void>;
  /** Frames parked in this process. */
  readonly parked: number;
  /**
   * How many calls wait for their caller, in whichever process: of a known caller (a name that `principal` gives), or
   * of all, for which a shared store lists its keys. It reads each of these calls: for a look now and then.
   *
   * @throws AwaitError `store`
   */
  readonly suspended: (caller?: string) => Promise<number>;
  /**
   * Closes all connections of a known caller to this process, on every wire: WebSockets with 4401, streams, requests
   * without a response, bodies that are being received. Its calls are not ended.
   * @param caller a name that `principal` returns
   * @returns the number of connections
   */
  readonly disconnect: (caller: string) => number;
  /**
   * Erases the records of a known caller's calls, and ends those that still run, in any process, and closes
   * its connections to this one (`disconnect`). Tokens that clients
   * hold cannot be recalled; they find nothing any more, except where `state: 'sealed'` has no store.
   * @param caller a name that `principal` returns
   * @returns the number of calls
   * @throws AwaitError `store`: call it again to erase the rest
   */
  readonly forget: (caller: string) => Promise<number>;
  /**
   * Tells the clients that listen, in every process, what has changed outside of any call: on 2026-07-28, and on the
   * standing streams of sessions. Each resolves once the others can read it. What a tool's own server says reaches its
   * caller's listeners by itself.
   */
  readonly notify: {
    readonly toolsChanged: () => Promise<void>;
    readonly promptsChanged: () => Promise<void>;
    readonly resourcesChanged: () => Promise<void>;
    readonly resourceUpdated: (uri: string) => Promise<void>;
  };
  /** Event counts since the handler was made. */
  readonly counters: Readonly<Counters>;
  /** Used by `mcp-await/node`, which saves making a `Request` and a `Response`. */
  readonly serve: (inbound: Inbound) => Promise<SentReply>;
  /** Used by `mcp-await/websocket`: the connections and bytes of its sockets count with those of HTTP. */
  readonly traffic: Traffic;
  /** Used by `mcp-await/websocket`: the stable name of a caller; undefined for an anonymous one. */
  readonly nameOf: (authInfo: JsonObject | undefined) => string | undefined;
}

/** @param announce to all listeners */
export function notifyBy(announce: (message: JsonObject) => Promise<void>): AwaitHandler['notify'] {
  const changed = (list: string) => () => announce({ method: `notifications/${list}/list_changed` });
  return {
    toolsChanged: changed('tools'),
    promptsChanged: changed('prompts'),
    resourcesChanged: changed('resources'),
    resourceUpdated: (uri) => announce({ method: 'notifications/resources/updated', params: { uri } }),
  };
}

/** The web's door to a handler. */
export function fetchOver(serve: AwaitHandler['serve']): AwaitHandler['fetch'] {
  return async (request, options) => {
    const gone = new DisconnectSignal();
    if (request.signal.aborted) gone.fire();
    request.signal.addEventListener('abort', gone.fire, { once: true });
    const reply = await serve({ ...inboundOf(request, options), signal: gone, disconnect: gone.fire });
    // Of a client that has gone by now nothing would end a stream.
    return responseOf(gone.aborted ? { ...reply, body: '' } : reply, gone.fire);
  };
}
