/** The one handler over all revisions: who is it, which revision does it speak, and off it goes. */

import type { Taker } from '../src/base/allowance.ts';
import { sleep, systemClock } from '../src/base/clock.ts';
import { AwaitError } from '../src/base/error.ts';
import { isObject, type JsonObject } from '../src/base/json.ts';
import { isPerRequest } from '../src/base/runtime.ts';
import { wireError } from '../src/call/run/wire-error.ts';
import { checkFactory } from '../src/host/check.ts';
import type { FactoryContext, HostFactory } from '../src/host/host.ts';
import { messagesOf, refuseLong } from '../src/http/batch.ts';
import { type BeginBody, bodiesOf } from '../src/http/bodies.ts';
import { readBody } from '../src/http/body.ts';
import { Departure } from '../src/http/departure.ts';
import type { Inbound, Reply, SentReply } from '../src/http/exchange.ts';
import { onExpiry } from '../src/http/expiry.ts';
import { type FetchOptions, inboundOf, responseOf } from '../src/http/fetch.ts';
import { type OriginRules, preflight, type Refusal, refuseForeign, withCors } from '../src/http/origin.ts';
import type { Place } from '../src/http/paths.ts';
import { empty, idOf, rpcError } from '../src/http/reply.ts';
import { Traffic } from '../src/http/traffic.ts';
import { type Counters, newCounters } from '../src/observe/counters.ts';
import { type AwaitOptions as Options, type Settings, settle } from '../src/options.ts';
import { closedMeanwhile, noRoom, shuttingDown, withoutSecrets } from './failure.ts';
import { handlerPerRequest } from './per-request.ts';
import type { Edge, Row } from './revision.ts';
import { NAMES, type Revision, STORED, TABLE } from './revisions.ts';
import { createServices } from './services.ts';
import { takerOf } from './taker.ts';

/** Of all wires together. */
const METHODS = 'GET, POST, DELETE';

/** The options of `createAwaitHandler`. Every one may be left out. */
export type AwaitOptions = Options<Revision>;

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
   * The first half of `close`: resolves once the running calls were handed over, and goes on serving.
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
  /** Event counts since the handler was made. */
  readonly counters: Readonly<Counters>;
  /** Used by `mcp-await/node`, which saves making a `Request` and a `Response`. */
  readonly serve: (inbound: Inbound) => Promise<SentReply>;
  /** Used by `mcp-await/websocket`: the connections and bytes of its sockets count with those of HTTP. */
  readonly traffic: Traffic;
  /** Used by `mcp-await/websocket`: the stable name of a caller; undefined for an anonymous one. */
  readonly nameOf: (authInfo: JsonObject | undefined) => string | undefined;
}

/**
 * Serves an await-style MCP server to clients of every revision.
 * @param factory makes a server: an SDK v1 or v2 `McpServer` or `Server`, or `{ server, cleanup }`. It is called for
 * each session, or each call on revisions without sessions, and must return a new one.
 * @throws AwaitError `bad-option` for an invalid option; the message says what to write instead
 *
 * @example
 * import { createAwaitHandler } from 'mcp-await';
 * import { openStore } from 'mcp-await/store';
 * import buildServer from './server.js';
 *
 * export async function makeHandler() {
 *   const store = await openStore('redis://127.0.0.1:6379');
 *   return createAwaitHandler(buildServer, { store, secrets: [process.env.MCP_AWAIT_SECRET] });
 * }
 */
export function createAwaitHandler(factory: HostFactory, options: AwaitOptions = {}): AwaitHandler {
  if (typeof factory !== 'function') {
    throw new AwaitError(
      'bad-option',
      'createAwaitHandler needs a factory that makes a server: createAwaitHandler(() => buildServer(), options)',
    );
  }
  const settings = settle(options, NAMES, STORED);
  return isPerRequest()
    ? handlerPerRequest(settings, (own, ...shared) => createHandler(factory, own, ...shared))
    : createHandler(factory, settings);
}

function createHandler(
  factory: HostFactory,
  given: Settings,
  counters: Counters = newCounters(),
  traffic = new Traffic(given.limits, counters),
): AwaitHandler {
  const services = createServices(factory, given, TABLE, counters, traffic);
  const { settings } = services;
  const served = [...TABLE.values()].filter(({ name }) => settings.revisions.has(name));
  const edges = [...new Set(served.map(({ edge }) => edge))].reverse().map((edge) => edge(services));
  const at = new Map<Place['wire'], readonly Edge[]>();
  for (const wire of new Set(edges.flatMap((edge) => Object.keys(edge) as Place['wire'][])))
    at.set(
      wire,
      edges.flatMap((edge) => edge[wire] ?? []),
    );
  const rules: OriginRules = {
    origins: settings.allowedOrigins,
    hosts: settings.allowedHosts,
  };
  const logForeign = onceEach(({ message, detail }: Refusal) => settings.logger.warn(message, detail));
  let isLeaving = false;
  let isClosed = false;

  const route = async (inbound: Inbound, onBody: (body: unknown) => void): Promise<Reply> => {
    const asked = inbound.method === 'OPTIONS' ? preflight(inbound, METHODS) : undefined;
    if (asked !== undefined) return asked;
    const isReady = services.ready();
    if (isReady !== true && !(await isReady)) return withoutSecrets();
    if (isClosed) return shuttingDown();
    const place = settings.paths.find(inbound.path, inbound.base);
    if (place === undefined) return rpcError(404, -32000, 'Not found: no workspace is called that');
    const here = edgesOf(place);
    switch (inbound.method) {
      case 'POST': {
        const read = await readBody(inbound, settings.limits, bodiesFor(inbound));
        if ('reply' in read) return read.reply;
        onBody(read.body);
        const refused =
          refuseLong(read.body, settings.limits.batch) ?? services.rates?.refuse(inbound, read.body);
        const tooMuch = refused instanceof Promise ? await refused : refused;
        if (tooMuch !== undefined) return tooMuch;
        const requests = messagesOf(read.body).filter(isRequest).length;
        if (requests > 0 && !services.engine.takes(takerOf(services, inbound), requests)) {
          throw new AwaitError(
            'no-room',
            'a request was refused: limits.calls, callerCalls or anonymousCalls are running',
          );
        }
        return (
          postTo(here, inbound, read.body, place) ??
          here.find(({ refuse }) => refuse)?.refuse?.(inbound, read.body) ??
          nobodyAt(here, idOf(read.body))
        );
      }
      case 'GET':
        return first(here, inbound, 'get')?.get?.(inbound, place) ?? methodNotAllowed(here, inbound);
      case 'DELETE':
        return first(here, inbound, 'end')?.end?.(inbound) ?? methodNotAllowed(here, inbound);
      default:
        return methodNotAllowed(here, inbound);
    }
  };

  /** A path that no edge is on is one of Streamable HTTP, which is wherever the handler is mounted. */
  const edgesOf = ({ wire }: Place): readonly Edge[] => at.get(wire) ?? at.get('mcp') ?? [];

  const bodiesFor = (inbound: Inbound): BeginBody =>
    bodiesOf(traffic.received, takerOf(services, inbound), settings.limits.bodyBytes);

  const serve = async (inbound: Inbound): Promise<SentReply> => {
    const refusal = refuseForeign(inbound, rules);
    if (refusal !== undefined) {
      logForeign(refusal);
      return whole(refusal.reply);
    }
    const asked = inbound.method === 'OPTIONS' ? preflight(inbound, METHODS) : undefined;
    if (asked !== undefined) return whole(withCors(inbound, asked));
    // Its caller's name needs the secrets, which may have to be asked for.
    const isReady = services.ready();
    if (isReady !== true && !(await isReady)) return whole(withCors(inbound, withoutSecrets()));
    let taker: Taker;
    try {
      taker = takerOf(services, inbound);
    } catch (error) {
      return whole(withCors(inbound, failed(error, null)));
    }
    const { disconnect } = inbound;
    const isKnown = disconnect !== undefined && taker.principal !== undefined;
    const ended = isKnown ? traffic.connections.add(taker.principal, disconnect) : undefined;
    const reply = await (ended === undefined ? settled(inbound) : settled(inbound).finally(ended));
    const sent = traffic.unread.bounded(withCors(inbound, reply), taker);
    return disconnect === undefined ? sent : closable(inbound, sent, taker);
  };

  const whole = (reply: Reply): SentReply => traffic.unread.bounded(reply, {});

  /** Its stream is closed with the other connections of its caller, and a GET's once its credentials expire. */
  const closable = (inbound: Inbound, reply: SentReply, { principal }: Taker): SentReply => {
    const { body } = reply;
    if (typeof body !== 'function' || principal === undefined) return reply;
    return {
      ...reply,
      body: (writer) => {
        const close = (): void => writer.destroy();
        const ended = traffic.connections.add(principal, close);
        // A POST's stream ends with its calls; some revisions would take its end for a cancellation.
        const expiry = inbound.method === 'GET' ? onExpiry(inbound.authInfo, close) : undefined;
        writer.onClose(() => {
          ended();
          expiry?.cancel();
        });
        body(writer);
      },
    };
  };

  const settled = (inbound: Inbound): Promise<Reply> => {
    let id: string | number | null = null;
    const onBody = (body: unknown): void => {
      id = idOf(body);
    };
    return route(inbound, onBody).catch((error: unknown) => failed(error, id));
  };

  const failed = (error: unknown, id: string | number | null): Reply => {
    const failure = AwaitError.from(error);
    if (failure.code === 'closed') return closedMeanwhile(id);
    const level = failure.code === 'no-room' ? 'warn' : 'error';
    settings.logger[level](failure.message, { code: failure.code, cause: String(failure.cause ?? '') });
    if (failure.code === 'no-room') return noRoom(id);
    if (failure.code !== 'limit') return rpcError(500, -32603, 'Internal error', id);
    const { code, message } = wireError(failure);
    return rpcError(429, code, message, id);
  };

  const leave = once(async (linger: number = 0) => {
    isLeaving = true;
    if (linger > 0) await sleep(systemClock, linger);
    await services.leave();
    for (const edge of edges.flatMap((of) => Object.values(of))) await edge.leave?.();
  });

  return {
    serve,
    check: () => checkFactory(factory, erasOf(served)),
    fetch: fetchOver(serve),
    leave,
    close: once(async () => {
      await leave();
      isClosed = true;
      await services.close();
      for (const edge of edges.flatMap((of) => Object.values(of))) await edge.close?.();
      await services.store?.close();
    }),
    release: once(async () => {
      const { relay, store } = settings;
      try {
        await relay?.close();
      } finally {
        if (store !== undefined && store !== 'memory') await store.disconnect();
      }
    }),
    health: async () => {
      const reason = isLeaving ? 'this process is about to end' : await services.health();
      return reason === undefined ? { ready: true } : { ready: false, reason };
    },
    counters: services.counters,
    traffic,
    nameOf: services.principal,
    disconnect: (caller) => traffic.connections.close(caller),
    suspended: services.suspended,
    forget: services.forget,
    get parked() {
      return services.engine.parked;
    },
  };
}

/** The web's door to a handler. */
export function fetchOver(serve: AwaitHandler['serve']): AwaitHandler['fetch'] {
  return async (request, options) => {
    const gone = new Departure();
    if (request.signal.aborted) gone.fire();
    request.signal.addEventListener('abort', gone.fire, { once: true });
    const reply = await serve({ ...inboundOf(request, options), signal: gone, disconnect: gone.fire });
    return responseOf(reply, gone.fire);
  };
}

/** The first call counts; every one gets its promise. */
function once<Args extends unknown[]>(
  run: (...args: Args) => Promise<void>,
): (...args: Args) => Promise<void> {
  let running: Promise<void> | undefined;
  return (...args) => {
    running ??= run(...args);
    return running;
  };
}

/** A revision of each era, since servers are alike within an era; with one era, its revision twice. */
function erasOf(served: readonly Row[]): Pick<FactoryContext, 'era' | 'revision'>[] {
  const eras = (['modern', 'legacy'] as const).flatMap((era) => {
    const row = served.find((one) => one.era === era);
    return row === undefined ? [] : [{ era, revision: row.name }];
  });
  const [only, other] = eras;
  return only !== undefined && other === undefined ? [only, only] : eras;
}

/** The first edge that serves a body. */
function postTo(
  edges: readonly Edge[],
  inbound: Inbound,
  body: unknown,
  place: Place,
): Promise<Reply> | undefined {
  for (const edge of edges) {
    const reply = edge.post?.(inbound, body, place);
    if (reply !== undefined) return reply;
  }
  return undefined;
}

/** The edge that a GET or a DELETE is for, if any takes one. */
function first(edges: readonly Edge[], inbound: Inbound, method: 'get' | 'end'): Edge | undefined {
  return ownersOf(edges, inbound).find((edge) => edge[method] !== undefined);
}

function ownersOf(edges: readonly Edge[], inbound: Inbound): readonly Edge[] {
  const owner = edges.find(({ owns }) => owns?.(inbound));
  return owner === undefined ? edges : [owner];
}

/** Most refusals that are logged, each once: a client could fill a log with them. */
const TOLD = 100;

function onceEach(tell: (refusal: Refusal) => void): (refusal: Refusal) => void {
  const told = new Set<string>();
  return (refusal) => {
    const name = JSON.stringify(refusal.detail);
    if (told.has(name) || told.size >= TOLD) return;
    told.add(name);
    tell(refusal);
  };
}

function isRequest(message: unknown): boolean {
  return isObject(message) && typeof message.method === 'string' && message.id !== undefined;
}

function nobodyAt(edges: readonly Edge[], id: string | number | null): Reply {
  if (edges.length > 0) return notAllowed('GET');
  return rpcError(404, -32000, 'Not found: no revision of Streamable HTTP is served here', id);
}

function methodNotAllowed(edges: readonly Edge[], inbound: Inbound): Reply {
  const owners = ownersOf(edges, inbound);
  const has = (method: 'get' | 'post' | 'end'): boolean => owners.some((edge) => edge[method] !== undefined);
  const allowed = [has('get') && 'GET', has('post') && 'POST', has('end') && 'DELETE'];
  return notAllowed(allowed.filter(Boolean).join(', ') || 'POST');
}

function notAllowed(allow: string): Reply {
  return { ...empty(405, { allow }), body: '' };
}
