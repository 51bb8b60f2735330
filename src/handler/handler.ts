/** The one handler over all revisions: who is it, which revision does it speak, and off it goes. */
import { isLater, later } from '../../compat/failure.ts';
import { quotaKeyOf } from '../../compat/quota-key.ts';
import type { Edge } from '../../compat/revision.ts';
import { KNOWN, type Revision, TABLE } from '../../compat/revisions.ts';
import { FORM_BYTES } from '../ask/serve.ts';
import { Quota, type QuotaKey } from '../base/quota.ts';
import {
  AwaitError,
  hasCode,
  isObject,
  isPerRequest,
  LoopTurns,
  memoryOf,
  objectOf,
  optionError,
  SHARE,
  sleep,
  systemClock,
} from '../base/values.ts';
import { ENDING } from '../call/run/relay.ts';
import { noRoomForCalls } from '../call/run/room.ts';
import { wireError } from '../call/run/wire-error.ts';
import { inTime } from '../checkpoint/in-time.ts';
import { countedAddress } from '../doors/http/address.ts';
import { type BeginBody, bodiesOf } from '../doors/http/bodies.ts';
import { readBody, refuseParsed } from '../doors/http/body.ts';
import type { Inbound, Reply, SentReply } from '../doors/http/exchange.ts';
import { onExpiry } from '../doors/http/expiry.ts';
import { type OriginRules, preflight, type Refusal, refuseForeign, withCors } from '../doors/http/origin.ts';
import type { Place } from '../doors/http/paths.ts';
import { idOf, json, messagesOf, refuseLong, rpcError } from '../doors/http/reply.ts';
import { Traffic } from '../doors/http/traffic.ts';
import { enterEra, hasEras } from '../host/era.ts';
import { contextOf, type FactoryContext, type HostFactory, type Made, make } from '../host/host.ts';
import { lowLevelOf } from '../host/protocol.ts';
import { NOBODY } from '../host/spoken.ts';
import { type Counters, newCounters } from '../observe/counters.ts';
import { type AwaitHandler, fetchOver, notifyBy } from './await-handler.ts';
import type { AwaitOptions as Options } from './options.ts';
import { createServices } from './services.ts';
import { type Settings, settle } from './settings.ts';

/** Of all wires together. */
const METHODS = 'GET, POST, DELETE';
const NOT_SERVED = 'Not found: no revision of Streamable HTTP is served here';

/** Bytes that a request takes besides its head and its body. */
const REQUEST = 8_192;
/** Counts the memory of a request: of its text, where that waits to be parsed, and then of its body. */
type Count = (memory: number, body?: unknown) => void;

/** The options of `createAwaitHandler`. Every one may be left out. */
export type AwaitOptions = Options<Revision>;

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
    throw optionError('createAwaitHandler needs a factory: () => buildServer()');
  }
  const settings = settle(options, KNOWN);
  return isPerRequest() ? handlerPerRequest(factory, settings) : createHandler(factory, settings);
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
  const at = new Map<string, readonly Edge[]>();
  for (const [wire, edge] of edges.flatMap((of) => Object.entries(of)))
    at.set(wire, [...(at.get(wire) ?? []), edge]);
  const everywhere = [...at.values()].flat();
  const rules: OriginRules = {
    origins: settings.allowedOrigins,
    hosts: settings.allowedHosts,
  };
  const logForeign = logOnceEach(settings.logger);
  /** Of known callers one after the other; strangers delay strangers alone. */
  const turns = new LoopTurns();
  let isLeaving = false;
  let isClosed = false;
  const { calls: all, callerCalls: caller, anonymousCalls: anonymous } = settings.limits;
  const arriving = new Quota({ all, caller, anonymous });

  const route = async (inbound: Inbound, count: Count): Promise<Reply> => {
    if (isClosed) return later('closed');
    const place = settings.paths.find(inbound.path, inbound.base);
    if (place === undefined) return rpcError(404, -32000, 'Not found: no workspace is called that');
    const here = edgesOf(place);
    switch (inbound.method) {
      case 'POST': {
        const read = await readBody(inbound, settings.limits, bodiesFor(inbound), (share, text) => {
          count(memoryOf(text));
          return turns.next(share, quotaKeyOf(services, inbound).principal);
        });
        if ('reply' in read) return read.reply;
        const memory = memoryOf(read.body);
        // JSON writes an infinite number as null: the page and the journal would hold another value than the tool gets.
        if (memory === Infinity)
          return rpcError(
            400,
            -32602,
            'Invalid params: a number is too large; send it as text',
            idOf(read.body),
          );
        count(memory, read.body);
        const refused =
          refuseLong(read.body, settings.limits.batch) ?? services.rates?.refuse(inbound, read.body);
        const tooMuch = refused instanceof Promise ? await refused : refused;
        if (tooMuch !== undefined) return tooMuch;
        const messages = messagesOf(read.body);
        const requests = messages.filter(
          (one) => isObject(one) && typeof one.method === 'string' && one.id !== undefined,
        ).length;
        // Of several each counts what is its own.
        if (!Array.isArray(read.body)) inbound.memory = memoryOf(objectOf(read.body).params);
        const quotaKey = quotaKeyOf(services, inbound);
        // Each takes its place as its call begins, after the store was read: until then it counts here.
        const bytes = inbound.memory ?? memory;
        if (
          requests > 0 &&
          !(services.engine.fits(quotaKey, requests, bytes) && arriving.has(quotaKey, requests))
        )
          throw noRoomForCalls();
        const post = async (): Promise<Reply> => {
          for (const edge of here) {
            const reply = edge.post?.(inbound, read.body, place);
            if (reply !== undefined) return reply;
          }
          const refusing = here.find(({ refuse }) => refuse);
          const refused = refusing?.refuse?.(inbound, read.body);
          if (refused !== undefined || here.length > 0) return refused ?? notAllowed('GET');
          return rpcError(404, -32000, NOT_SERVED, idOf(read.body));
        };
        arriving.hold(inbound, quotaKey, requests);
        try {
          // Clients do not send an answer again, and its call would wait for it for ever.
          const isWanted = messages.every((message) => objectOf(message).method === undefined);
          return await (isWanted ? services.retry.write(post, services.now() + settings.ttl) : post());
        } finally {
          arriving.leave(inbound);
        }
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
    bodiesOf(traffic.received, quotaKeyOf(services, inbound), settings.limits.bodyBytes);

  /** The page has rules of its own for who may ask, and from where. */
  const servePage = (inbound: Inbound): Promise<Reply> | undefined => {
    if (services.page === undefined || isClosed) return undefined;
    const begin = bodiesOf(traffic.received, { address: countedAddress(inbound) }, FORM_BYTES);
    return services.page.serve(inbound, begin);
  };

  const serve = async (inbound: Inbound): Promise<SentReply> => {
    const page = await servePage(inbound);
    if (page !== undefined) return whole(page);
    const refusal = refuseForeign(inbound, rules);
    if (refusal !== undefined) {
      logForeign(refusal);
      return whole(refusal.reply);
    }
    const asked = inbound.method === 'OPTIONS' ? preflight(inbound, METHODS) : undefined;
    if (asked !== undefined) return whole(withCors(inbound, asked));
    // Its caller's name needs the secrets, which may have to be asked for.
    const isReady = services.ready();
    if (isReady !== true && !(await isReady)) return whole(withCors(inbound, later('not-ready')));
    let quotaKey: QuotaKey;
    try {
      quotaKey = quotaKeyOf(services, inbound);
    } catch (error) {
      return whole(withCors(inbound, failed(error, null)));
    }
    const { disconnect } = inbound;
    const isKnown = disconnect !== undefined && quotaKey.principal !== undefined;
    const ended = isKnown ? traffic.connections.add(quotaKey.principal, disconnect) : undefined;
    const reply = await settled(inbound, quotaKey).finally(ended);
    const sent = traffic.unread.bounded(withCors(inbound, reply), quotaKey);
    return disconnect === undefined ? sent : closable(inbound, sent, quotaKey);
  };

  const whole = (reply: Reply): SentReply => traffic.unread.bounded(reply, {});

  /** Its stream is closed with the other connections of its caller, and a GET's once its credentials expire. */
  const closable = (inbound: Inbound, reply: SentReply, { principal }: QuotaKey): SentReply => {
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

  /** Counts its memory until its reply begins: a request may wait for a store that is down. */
  const settled = async (inbound: Inbound, quotaKey: QuotaKey): Promise<Reply> => {
    let id: string | number | null = null;
    let held = 0;
    const count: Count = (memory, body) => {
      id = idOf(body);
      const all = REQUEST + (inbound.headBytes ?? 0) + memory;
      if (!traffic.memory.has(quotaKey, all - held)) {
        throw new AwaitError(
          'no-room',
          'a request was refused: those without a reply reached half of limits.argumentBytes',
        );
      }
      held = all;
      traffic.memory.change(inbound, quotaKey, held);
    };
    try {
      // What middleware has parsed takes its memory while it waits.
      const refused = refuseParsed(inbound, settings.limits.bodyValues);
      if (refused !== undefined) return refused;
      const { textBytes = memoryOf(inbound.parsedBody) } = inbound;
      if (textBytes < Infinity) count(textBytes);
      // A body is read before its request waits (`readBody`): Node keeps a hundred bytes for each piece that nobody read.
      if (inbound.method !== 'POST' || inbound.parsedBody !== undefined)
        await turns.next(SHARE, quotaKey.principal);
      return await route(inbound, count);
    } catch (error) {
      return failed(error, id);
    } finally {
      traffic.memory.leave(inbound);
    }
  };

  const failed = (error: unknown, id: string | number | null): Reply => {
    const failure = AwaitError.from(error);
    // Its session, or this server, was closed while the request arrived.
    if (failure.code === 'closed') return later('closed', id, 'Its session was closed meanwhile');
    const level = failure.code === 'no-room' ? 'warn' : 'error';
    settings.logger[level](failure.message, { code: failure.code, cause: failure.cause });
    if (isLater(failure.code)) return later(failure.code, id);
    if (failure.code !== 'limit') return rpcError(500, -32603, 'Internal error', id);
    return json({ jsonrpc: '2.0', id, error: wireError(failure) }, 429);
  };

  const leave = async (linger: number = 0): Promise<void> => {
    isLeaving = true;
    if (linger > 0) await sleep(systemClock, linger);
    await services.leave();
    for (const edge of everywhere) await edge.leave?.();
  };

  return {
    serve,
    check: () => {
      // A revision of each era, since servers are alike within an era; with one era, its revision twice.
      const eras = ['modern', 'legacy']
        .flatMap((era) => served.find((one) => one.era === era) ?? [])
        .map(({ era, name: revision }) => ({ era, revision }));
      return checkFactory(factory, eras.length === 1 ? [...eras, ...eras] : eras);
    },
    fetch: fetchOver(serve),
    leave,
    close: once(async () => {
      await leave();
      isClosed = true;
      await services.close();
      for (const edge of everywhere) await edge.close?.();
      await services.store?.close();
    }),
    release: once(async () => {
      const { relay, store } = settings;
      const keyv = store === 'memory' ? undefined : store;
      const ends = [letGo('relay', relay?.close()), letGo('store', keyv?.disconnect())];
      await Promise.allSettled(ends);
      await Promise.all(ends);
    }),
    health: async () => {
      const reason = isLeaving ? 'this process is about to end' : await services.health();
      return reason === undefined ? { ready: true } : { ready: false, reason };
    },
    notify: notifyBy((message) => services.announcements.announce(message, null, true)),
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

/** @throws AwaitError `store` where it is silent: its connection is open, and would keep the process */
async function letGo(what: string, closing: Promise<void> = Promise.resolve()): Promise<void> {
  try {
    await inTime(closing, ENDING);
  } catch (cause) {
    throw new AwaitError('store', `the ${what} does not answer, so its connection stays open`, cause);
  }
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

function logOnceEach(logger: Settings['logger']): (refusal: Refusal) => void {
  const told = new Set<string>();
  return ({ message, detail }) => {
    const name = JSON.stringify(detail);
    if (told.has(name) || told.size >= TOLD) return;
    told.add(name);
    logger.warn(message, detail);
  };
}

function methodNotAllowed(edges: readonly Edge[], inbound: Inbound): Reply {
  const owners = ownersOf(edges, inbound);
  const has = (method: 'get' | 'post' | 'end'): boolean => owners.some((edge) => edge[method] !== undefined);
  const allowed = [has('get') && 'GET', has('post') && 'POST', has('end') && 'DELETE'];
  return notAllowed(allowed.filter(Boolean).join(', ') || 'POST');
}

function notAllowed(allow: string): Reply {
  return json({ jsonrpc: '2.0', id: null, error: { code: -32000, message: 'Method not allowed.' } }, 405, {
    allow,
  });
}

// --- calls without sessions ---

/**
 * A handler for Cloudflare Workers: each request has a handler of its own, closed when its response is complete. So no
 * frame is kept, and every call is resumed by replay, from its token or from the store. Only plain data is shared: the
 * settings, the counters and the connections.
 */
function handlerPerRequest(factory: HostFactory, given: Settings): AwaitHandler {
  const settings: Settings = { ...given, warnUnjournaled: false, limits: { ...given.limits, frames: 0 } };
  const counters = newCounters();
  const traffic = new Traffic(settings.limits, counters);
  const own = (): AwaitHandler => createHandler(factory, settings, counters, traffic);
  let isLeaving = false;
  let closed = false;

  const serve = async (inbound: Inbound): Promise<SentReply> => {
    const handler = own();
    // A closed handler's refusal says that it is closed.
    if (closed) await handler.close();
    const reply = await handler.serve(inbound);
    const { body } = reply;
    if (typeof body !== 'function') {
      await handler.close();
      return reply;
    }
    return {
      ...reply,
      body: (writer) => {
        writer.onClose(() => void handler.close());
        body(writer);
      },
    };
  };

  const once = async <T>(use: (handler: AwaitHandler) => Promise<T>): Promise<T> => {
    const handler = own();
    return use(handler).finally(() => handler.close());
  };

  const notify = (what: keyof AwaitHandler['notify'], uri = ''): Promise<void> =>
    once((handler) => handler.notify[what](uri));

  return {
    serve,
    fetch: fetchOver(serve),
    check: () => once((handler) => handler.check()),
    suspended: (caller) => once((handler) => handler.suspended(caller)),
    notify: {
      toolsChanged: () => notify('toolsChanged'),
      promptsChanged: () => notify('promptsChanged'),
      resourcesChanged: () => notify('resourcesChanged'),
      resourceUpdated: (uri) => notify('resourceUpdated', uri),
    },
    forget: (caller) => once((handler) => handler.forget(caller)),
    leave: async () => {
      isLeaving = true;
    },
    close: async () => {
      isLeaving = true;
      closed = true;
    },
    release: () => once((handler) => handler.release()),
    health: () =>
      once(async (handler) => {
        if (isLeaving) await handler.leave();
        return handler.health();
      }),
    counters,
    traffic,
    nameOf: (authInfo) => own().nameOf(authInfo),
    disconnect: (caller) => traffic.connections.close(caller),
    parked: 0,
  };
}

// --- checking the factory ---

/**
 * Checks a factory at start, before a client meets its fault: it must return a server, a new one each time, whose SDK
 * can be served on every enabled revision.
 */

/**
 * @param revisions with their eras; one server is made for each era
 * @throws AwaitError `bad-option` for a fault that every client would meet. An exception of the factory itself is
 * ignored: there is no client yet, and the factory may need one
 */
async function checkFactory(
  factory: HostFactory,
  revisions: readonly Pick<FactoryContext, 'era' | 'revision'>[],
): Promise<void> {
  for (const { era, revision } of revisions) {
    let made: Made;
    try {
      made = await make(factory, contextOf({ era, revision, client: NOBODY }));
    } catch (error) {
      if (hasCode(error, 'bad-option')) throw error;
      return;
    }
    try {
      const server = lowLevelOf(made.server);
      if (era === 'modern' && server !== undefined && hasEras(server)) enterEra(server, revision, NOBODY);
    } finally {
      // The server made for this check is cleaned up; a failure of its cleanup is ignored.
      void Promise.resolve()
        .then(() => made.cleanup?.())
        .catch(() => {});
    }
  }
}
