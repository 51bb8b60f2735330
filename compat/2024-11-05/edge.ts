/**
 * HTTP+SSE of 2024-11-05: one stream for each session, opened first; the client's messages are POSTs beside it, and the
 * server's messages come on it.
 * https://modelcontextprotocol.io/specification/2024-11-05/basic/transports
 * A POST is refused by its status where its session or its message cannot be read. An error of a readable request goes
 * out on the stream, as its response: clients of this wire read no other.
 *
 * HTTP+SSE has one stream for each session, opened before its client's first message. So a session's id is a random
 * name; its caller and, from `initialize` on, its client are records under that name, each inserted if absent: any
 * process has them, and there is one `initialize`. `Session`, `Sessions` and `SessionState` are those of 2025.
 *
 * The stream is the session's standing one: any process that gets a POST appends there, and the connection follows.
 * Event ids on this wire are the session's id and the sequence, since a reconnecting client sends nothing else that
 * names its session; the `endpoint` event has one, too (sequence 0), so a connection that breaks before the first
 * message loses no session. It is written to each connection anew and is in no store.
 *
 * A POST gets its 202 once its answers are in the logs of their calls, and each of its calls is either named in the
 * stream, so that other processes find it, or over (`compat/session/lasting.ts`). An error of a readable request goes
 * out on the stream, which is all that clients of this wire read.
 *
 * The process with the connection follows the named calls of other processes, and takes over a call whose owner is
 * silent for a lease. Without a relay it reads the stream and each of those calls' logs once a second, so after a pause
 * an answer may come up to a second late. A message of its own on the stream costs two inserts, its place and its
 * content, which expires first (`src/stream/log.ts`).
 */
import { AwaitError, hasCode, invalidParams, isObject } from '../../src/base/values.ts';
import type { Client, Response } from '../../src/call/journal/entries.ts';
import type { Inbound, Reply } from '../../src/doors/http/exchange.ts';
import {
  idOf,
  messagesOf,
  NO_BATCH,
  noMessage,
  noStream,
  rpcError,
  SSE_HEADERS,
} from '../../src/doors/http/reply.ts';
import { refuseScopes } from '../../src/handler/guards.ts';
import type { Services } from '../../src/handler/services.ts';
import type { HostInstance } from '../../src/host/instance.ts';
import type { Outside } from '../../src/host/router.ts';
import { type LastingPlace, lastingEventId, parseLastingId, standingId } from '../../src/stream/event-id.ts';
import type { StreamPlace } from '../../src/stream/event-streams.ts';
import { sseEvent } from '../../src/stream/sse.ts';
import type { Sink } from '../../src/stream/tail.ts';
import { refusedEventId, unknownEventId } from '../failure.ts';
import { quotaKeyOf } from '../quota-key.ts';
import type { Edges } from '../revision.ts';
import { LIVE_REPLY, liveProjection, type ReplyDialect } from '../session/call-reply.ts';
import { type Exchange, exchangeOf } from '../session/exchange.ts';
import { expiryOf, holderOf, type Identify, newName, type SessionIdentity } from '../session/identity.ts';
import { clientOf, NO_CLIENT, NOT_TAKEN, openInstance } from '../session/initialize.ts';
import { LastingCall, type LastingStart, namedCalls, withCalls } from '../session/lasting.ts';
import {
  accepts,
  inWork,
  isMessage,
  requestsOf,
  reserve,
  run,
  startAll,
  take,
  takesBatches,
} from '../session/requests.ts';
import type { Session } from '../session/session.ts';
import { Sessions } from '../session/sessions.ts';
import { isCall, type RpcRequest, sourceOf } from '../session/start.ts';
import { RETRY } from '../session/stream.ts';
import { sinkOf } from '../sink.ts';
import { hasTasks, withTaskCapability } from '../tasks/session.ts';

/** The one connection of a session: first the URL to post to, then all messages of the server. */

/** The events of a session's calls on its one stream. */
function dialectOf(services: Services): ReplyDialect {
  return {
    ...LIVE_REPLY,
    // A connection has an id from its first event on.
    project: (_exchange, call) => liveProjection(call, false),
    // It may have sent `initialize` to another process.
    caller: async (session: Session) => {
      await recallClient(services, session);
      return session.caller;
    },
  };
}

/**
 * @param found the session's stream, from where its client is
 * @param hears see `Session.announced`
 * @param from an event's id has the session's, since a client that comes back sends nothing else that names it
 */
function connected(
  exchange: Exchange,
  found: StreamPlace,
  hears: (sink: Sink) => Sink,
  from: Omit<LastingStart, 'dialect'>,
): Reply {
  const { services, session, inbound } = exchange;
  services.counters[inbound.header('last-event-id') ? 'resumedStreams' : 'getStreams'] += 1;
  const endpoint = `${services.settings.paths.messagesFor(inbound.path, inbound.base)}?sessionId=${session.id}`;
  return {
    status: 200,
    headers: SSE_HEADERS,
    body: (writer) => {
      // With an id, so that a client whose connection breaks before the first message can still resume its session.
      const id = lastingEventId(from.had);
      writer.write(sseEvent({ event: 'endpoint', id, retry: RETRY, data: endpoint }));
      const sink = hears(session.connect(sinkOf(services, writer)));
      void found.follow(withCalls(exchange, { dialect: dialectOf(services), ...from }, sink));
    },
  };
}

// --- requests ---

interface EdgeParts {
  readonly services: Services;
  readonly sessions: Sessions;
}

export function createEdge(services: Services): Edges {
  const sessions = new Sessions(services, identifier(services));
  const parts = { services, sessions };
  return {
    sse: { get: (inbound) => get(parts, inbound), close: () => sessions.close() },
    messages: { post: (inbound, body) => post(parts, inbound, body) },
  };
}

/** A new session, or with `Last-Event-ID` the one of that event, from there on. */
async function get(parts: EdgeParts, inbound: Inbound): Promise<Reply> {
  const { services, sessions } = parts;
  const { settings, streams, rates } = services;
  const accept = inbound.header('accept') ?? '';
  if (accept !== '' && !accepts(accept, 'text/event-stream')) return noStream();
  const quotaKey = quotaKeyOf(services, inbound);
  const last = inbound.header('last-event-id') ?? '';
  let session: Session | undefined;
  let had: LastingPlace;
  if (last === '') {
    const tooMuch = await rates?.refuse(inbound, { method: 'initialize' });
    if (tooMuch !== undefined) return tooMuch;
    sessions.makeRoom(quotaKey);
    const identity = await createIdentity(services, quotaKey.principal);
    session = sessions.add(identity.name, identity, quotaKey.address);
    had = { prefix: session.id, sequence: 0, calls: new Map() };
  } else {
    const place = parseLastingId(last, settings.limits.eventIdBytes);
    if (place === undefined) return unknownEventId(services, inbound);
    session = (await sessions.find(place.prefix, quotaKey))?.session;
    if (session === undefined) return notFound(parts, inbound, null);
    had = place;
  }
  const exchange = exchangeOf(services, session, inbound);
  const stream = { id: session.standing.id, scope: session.id };
  try {
    const found = await streams.find(stream.id, had.sequence, stream.scope, session.principal);
    const named = await namedCalls(exchange, had, stream);
    return connected(exchange, found, await session.announced(), { had, ...named });
  } catch (error) {
    return refusedEventId(services, inbound, error);
  }
}

async function post(parts: EdgeParts, inbound: Inbound, body: unknown): Promise<Reply> {
  const { services, sessions } = parts;
  const messages = messagesOf(body);
  if (messages.length === 0 || !messages.every(isMessage)) {
    return noMessage(body);
  }
  const id = inbound.query('sessionId') ?? '';
  if (id === '') {
    const message = 'Bad Request: sessionId is missing; GET the stream first, and POST to its endpoint event';
    return rpcError(400, -32000, message, idOf(body));
  }
  const { session, news } = (await sessions.find(id, quotaKeyOf(services, inbound))) ?? {};
  if (session === undefined) return notFound(parts, inbound, idOf(body));
  await recallClient(services, session);
  const requests = requestsOf(messages);
  const initialize = requests.find(({ method }) => method === 'initialize');
  if (initialize !== undefined) {
    if (Array.isArray(body))
      return rpcError(400, -32600, 'Invalid Request: initialize must be sent alone', initialize.id);
    await begin(services, session, inbound, initialize);
    return accepted();
  }
  if (Array.isArray(body) && !takesBatches(session)) return rpcError(400, -32600, NO_BATCH);
  if (!session.isKnown) {
    for (const request of requests) {
      // It may send a ping, and nothing else.
      const error = { code: -32600, message: 'Invalid Request: send initialize first' };
      await respond(session, request, request.method === 'ping' ? { result: {} } : { error });
    }
    return accepted();
  }
  const exchange = exchangeOf(services, session, inbound, news);
  const refused = await refuseScopes(services, exchange.instance, requests.filter(isCall), inbound);
  if (refused !== undefined) return refused;
  const twice = reserve(session, requests);
  if (twice !== undefined) return inWork(twice);
  try {
    const { streams: most } = services.settings.limits;
    if (session.inWork > most) {
      throw new AwaitError('limit', `${most} requests of one session are running; send fewer at once`);
    }
    const refusal = await take(services, session, messages);
    if (refusal !== undefined) {
      for (const { id } of requests) session.release(id);
      return refusal;
    }
    if (requests.length > 0) await start(exchange, requests);
  } catch (error) {
    for (const { id } of requests) session.release(id);
    throw error;
  }
  return accepted();
}

async function begin(
  services: Services,
  session: Session,
  inbound: Inbound,
  request: RpcRequest,
): Promise<void> {
  const { settings } = services;
  const client = clientOf(request.params, settings.revisions);
  if (client === undefined) {
    await respond(session, request, { error: invalidParams(NO_CLIENT) });
    return;
  }
  if (!(await keepClient(services, session, client))) {
    await respond(session, request, {
      error: { code: -32600, message: 'Invalid Request: this session was initialized already' },
    });
    return;
  }
  try {
    const open = (outside: Outside): Promise<HostInstance> =>
      openInstance(services, session, inbound, outside, true);
    const opened = await session.ready(open);
    const { initialized } = opened;
    services.serverInfo ??= initialized.serverInfo;
    const result = hasTasks(services, session, opened) ? withTaskCapability(initialized) : initialized;
    if (!(await respond(session, request, { result }))) {
      throw new AwaitError('store', 'the response to initialize could not be put into its stream');
    }
  } catch (error) {
    // The server did not take the client.
    session.introduce(undefined);
    await services.store?.remove(clientKey(session));
    if (!hasCode(error, 'bad-answer')) throw error;
    settings.logger.warn(error.message);
    await respond(session, request, { error: invalidParams(NOT_TAKEN) });
  }
}

/** Resolves once other processes can find the started calls, so that their client may get its 202. */
async function start(exchange: Exchange, requests: readonly RpcRequest[]): Promise<void> {
  const { services, session, inbound } = exchange;
  const shared = await exchange.instance();
  const instance = services.settings.instance === 'call' ? undefined : shared;
  await startAll(session, requests, async (request) => {
    const call = new LastingCall(exchange, request, dialectOf(services), session.standing);
    const source = sourceOf(inbound);
    const running = { instance, shared, source, stream: call.stream };
    await run(services, session, request, running).then(({ ended }) => call.begun(ended));
  });
}

/** @returns whether it is in the stream */
function respond(session: Session, { id }: RpcRequest, response: Response): Promise<boolean> {
  return session.standing.send({ jsonrpc: '2.0', id, ...response });
}

function accepted(): Reply {
  return { status: 202, headers: { 'content-type': 'text/plain' }, body: 'Accepted' };
}

async function notFound(
  { services }: EdgeParts,
  inbound: Inbound,
  id: string | number | null,
): Promise<Reply> {
  await services.rates?.badToken(inbound);
  return rpcError(404, -32001, 'Session not found: open a new stream with GET, without Last-Event-ID', id);
}

// --- sessions ---

/**
 * Identity: the stream opens before its client has named itself, so a session is a random id, and its facts (the
 * caller, later the client) are records in the store.
 */

const REVISION = '2024-11-05';

const NAME = /^[0-9a-z]{1,11}\.[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** A new session, whose client is unknown yet. */
async function createIdentity(services: Services, principal: string | undefined): Promise<SessionIdentity> {
  const name = newName(services);
  const bound = principal === undefined ? {} : { principal };
  if (
    (await services.store?.insert(`${name}:opened`, bound, expiryOf(name), {
      holder: holderOf(name, principal),
    })) === false
  ) {
    throw new AwaitError('store', 'a session of this name exists');
  }
  // All messages of the session go over its one stream.
  await services.listStream(principal, standingId(name, expiryOf(name)), name);
  return { name, principal, revision: REVISION, client: undefined };
}

/** Without a store a session is known to its own process alone, for as long as that keeps it. */
function identifier({ store, now }: Services): Identify {
  return async (id, principal) => {
    if (store === undefined || !NAME.test(id) || !(expiryOf(id) >= now())) return undefined;
    // A session of another service on this store is an unknown one.
    const opened = await store.get(`${id}:opened`).catch((error: unknown) => {
      if (!hasCode(error, 'bad-token')) throw error;
    });
    if (!isObject(opened) || opened.principal !== principal) return undefined;
    return { name: id, principal, revision: REVISION, client: undefined };
  };
}

/**
 * Keeps who a session's client is, for all processes.
 * @returns false when it is known already: there is one `initialize`
 */
async function keepClient({ store }: Services, session: Session, client: Client): Promise<boolean> {
  if (session.isKnown) return false;
  if (
    (await store?.insert(clientKey(session), client, session.expires, { holder: session.holder })) === false
  )
    return false;
  session.introduce(client);
  return true;
}

/** Lets a session know its client, where that introduced itself at another process. */
async function recallClient({ store }: Services, session: Session): Promise<void> {
  if (session.isKnown) return;
  const client = await store?.get(clientKey(session));
  if (isObject(client)) session.introduce(client as unknown as Client);
}

function clientKey({ name }: Session): string {
  return `${name}:client`;
}
