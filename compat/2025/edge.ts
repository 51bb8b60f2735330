/**
 * Streamable HTTP of 2025-03-26, 2025-06-18 and 2025-11-25: sessions, requests on the POST's own stream, asks
 * live on it, answers by POST.
 * https://modelcontextprotocol.io/specification/2025-11-25/basic/transports
 */

import { isObject, type JsonObject } from '../../src/call/json.ts';
import { AwaitError } from '../../src/error.ts';
import type { HostInstance, Outside } from '../../src/host/instance.ts';
import type { Inbound, Reply } from '../../src/http/exchange.ts';
import { empty, idOf, json, rpcError } from '../../src/http/reply.ts';
import { parseEventId } from '../../src/stream/event-id.ts';
import { refusedEventId } from '../failure.ts';
import { post as postRound } from '../mrtr/post.ts';
import type { Exchange } from '../mrtr/served.ts';
import { MRTR_DRAFT } from '../mrtr-draft/wire.ts';
import * as multiTurn from '../sep-1858/server.ts';
import { REVISION } from '../sep-1858/wire.ts';
import { SEP_2322 } from '../sep-2322/wire.ts';
import type { Services } from '../services.ts';
import { hasOwnTasks, TASKS_CAPABILITY } from '../tasks/legacy-wire.ts';
import { hasTasks, withTaskCapability } from '../tasks/session.ts';
import { goOnWithCalls, isLeft, rememberCalls } from './calls.ts';
import { noteFirst, SESSION, sourceOf, sse } from './connection.ts';
import { createIdentity, identifier } from './identity.ts';
import { clientOf, NO_CLIENT, NOT_TAKEN, openInstance } from './initialize.ts';
import { accepts, isMessage, isRequest } from './messages.ts';
import { inWork, reserve, run, take } from './requests.ts';
import { CALLS, type RpcRequest, type Session } from './session.ts';
import { Sessions } from './sessions.ts';

/** Named in requests by clients that negotiated them elsewhere; served as the nearest of ours. */
const TOLERATED: ReadonlySet<string> = new Set(['2025-03-26', '2025-06-18', '2025-11-25']);

/** The drafts whose answers come with the next request. */
const ROUNDS = new Map([MRTR_DRAFT, SEP_2322].map((dialect) => [dialect.revision, dialect]));

/** The revisions of a session that nothing else is spoken in. */
const DRAFTS: ReadonlySet<string> = new Set([REVISION, ...ROUNDS.keys()]);

export interface Edge {
  post(inbound: Inbound, body: unknown): Promise<Reply>;
  get(inbound: Inbound): Promise<Reply>;
  end(inbound: Inbound): Promise<Reply>;
  close(): void;
}

export function createEdge(services: Services): Edge {
  const sessions = new Sessions(services, identifier(services));
  return {
    post: (inbound, body) => post(services, sessions, inbound, body),
    get: (inbound) => get(services, sessions, inbound),
    end: (inbound) => end(services, sessions, inbound),
    close: () => sessions.close(),
  };
}

async function post(services: Services, sessions: Sessions, inbound: Inbound, body: unknown): Promise<Reply> {
  const accept = inbound.header('accept') ?? '';
  // Whoever goes on with a turn of SEP-1858 may take either.
  const mayTakeOne = isTurnOf(inbound) && accept !== '';
  if (!mayTakeOne && !(accepts(accept, 'application/json') && accepts(accept, 'text/event-stream'))) {
    return rpcError(
      406,
      -32000,
      'Not Acceptable: Client must accept both application/json and text/event-stream',
      idOf(body),
    );
  }
  const dialect = ROUNDS.get(inbound.header('mcp-protocol-version') ?? '');
  if (dialect !== undefined && !isInitialize(body)) {
    const found = await sessionOf(services, sessions, inbound, idOf(body));
    if ('reply' in found) return found.reply;
    return postRound(exchangeOf(services, found.session, inbound), dialect, body);
  }
  const messages = Array.isArray(body) ? body : [body];
  const isTurn = inbound.header('last-event-id') !== undefined && messages.length === 0;
  if ((messages.length === 0 && !isTurn) || !messages.every(isMessage)) {
    return rpcError(400, -32600, 'Invalid Request: the body is no JSON-RPC message', idOf(body));
  }
  const requests = messages.filter(isRequest);
  const initialize = requests.find(({ method }) => method === 'initialize');
  if (initialize !== undefined) {
    if (messages.length > 1)
      return rpcError(400, -32600, 'Invalid Request: initialize must be sent alone', initialize.id);
    return startSession(services, sessions, inbound, initialize);
  }
  const found = await sessionOf(services, sessions, inbound, idOf(body));
  if ('reply' in found) return found.reply;
  const { session } = found;
  const last = inbound.header('last-event-id');
  if (session.revision === REVISION && (last !== undefined || Array.isArray(body))) {
    if (last === undefined || !Array.isArray(body)) {
      return rpcError(400, -32600, 'Invalid Request: an array of responses goes with Last-Event-ID');
    }
    return multiTurn.goOn(callOf(services, session, inbound), last, messages);
  }
  const twice = reserve(session, requests);
  if (twice !== undefined) return inWork(twice);
  await take(services, session, messages);
  if (requests.length === 0) return empty(202);
  try {
    return await serveRequests(services, session, inbound, requests);
  } catch (error) {
    for (const { id } of requests) session.release(id);
    throw error;
  }
}

async function startSession(
  services: Services,
  sessions: Sessions,
  inbound: Inbound,
  request: RpcRequest,
): Promise<Reply> {
  const { params, id } = request;
  const invalid = (what: string): Reply => rpcError(400, -32602, `Invalid params: ${what}`, id);
  const { settings } = services;
  const { protocolVersion } = params;
  const draft =
    settings.revisions.has(protocolVersion as string) && DRAFTS.has(protocolVersion as string)
      ? String(protocolVersion)
      : undefined;
  const client = clientOf(params, settings.revisions, TOLERATED);
  if (client === undefined) return invalid(NO_CLIENT);
  const principal = settings.principal(inbound.authInfo);
  const { id: sessionId, identity } = await createIdentity(services, client, principal, draft);
  const session = sessions.add(sessionId, identity);
  let instance: HostInstance;
  try {
    instance = await session.instance((outside) => openInstance(services, session, inbound, outside));
  } catch (error) {
    await sessions.end(session);
    if (!(error instanceof AwaitError) || error.code !== 'bad-answer') throw error;
    settings.logger.warn(error.message);
    return invalid(NOT_TAKEN);
  }
  services.serverInfo ??= instance.initialized.serverInfo;
  const own = hasTasks(services, session, instance)
    ? withTaskCapability(instance.initialized)
    : instance.initialized;
  const result = { ...own, ...(draft !== undefined && { protocolVersion: draft }) };
  const dialect = ROUNDS.get(draft ?? '');
  const fields = dialect === undefined ? { result } : dialect.complete(withTasks(services, result));
  return json({ jsonrpc: '2.0', id, ...fields }, 200, { [SESSION]: session.id });
}

async function serveRequests(
  services: Services,
  session: Session,
  inbound: Inbound,
  requests: readonly RpcRequest[],
): Promise<Reply> {
  const shared = await session.ready((outside) => openInstance(services, session, inbound, outside));
  const instance = services.settings.instance === 'call' ? undefined : shared;
  const [request] = requests;
  if (session.revision === REVISION && request !== undefined && CALLS.has(request.method)) {
    return multiTurn.begin(callOf(services, session, inbound), request, instance);
  }
  const stream = session.newStream();
  const found = await services.streams.find(stream.id, 0, session.id);
  if (isPrimed(session)) stream.prime();
  let onFirst = (): void => {};
  const isHeard = new Promise<void>((resolve) => {
    onFirst = resolve;
  });
  // A tool may close its stream before that is open, and a client without an id would not come back.
  const source = sourceOf(inbound, () => {
    void isHeard.then(() => services.streams.disconnect(stream.id, session.id));
  });
  const work = await Promise.all(
    requests.map((request) => run(services, session, request, { instance, shared, source, stream })),
  );
  let left = work.length;
  for (const { request, ended } of work) {
    void ended.then((outcome) => {
      if (isLeft(services, request, stream, outcome)) return;
      left -= 1;
      if (outcome.kind === 'responded') {
        const message = { jsonrpc: '2.0', id: request.id, ...outcome.response };
        if (left === 0) stream.end(message);
        else stream.send(message);
      } else if (left === 0) stream.finish();
    });
  }
  await rememberCalls(services, session, stream.id, work);
  return sse(services, session, found, 'postStreams', noteFirst(onFirst));
}

function exchangeOf(services: Services, session: Session, inbound: Inbound): Exchange {
  const instance = (): Promise<HostInstance> =>
    session.ready((outside) => openInstance(services, session, inbound, outside));
  return { services, session, inbound, instance };
}

function callOf(services: Services, session: Session, inbound: Inbound): multiTurn.Call {
  const { instance } = exchangeOf(services, session, inbound);
  return { services, session, inbound, ...(services.settings.instance !== 'call' && { home: instance }) };
}

/** A server that runs no tasks of its own has its calls run as tasks here, where a store keeps them. */
function withTasks({ engine }: Services, initialized: JsonObject): JsonObject {
  if (engine.tasks === undefined || hasOwnTasks(initialized)) return initialized;
  const { capabilities } = initialized;
  return {
    ...initialized,
    capabilities: { ...(isObject(capabilities) && capabilities), tasks: TASKS_CAPABILITY },
  };
}

/** A POST that goes on with a turn of SEP-1858. */
function isTurnOf(inbound: Inbound): boolean {
  return inbound.header('last-event-id') !== undefined && inbound.header('mcp-protocol-version') === REVISION;
}

function isInitialize(body: unknown): boolean {
  return isObject(body) && body.method === 'initialize';
}

/** Whether its client expects events without content, which only tell an id. */
function isPrimed({ client, revision }: Session): boolean {
  return client.protocolVersion >= '2025-11-25' && revision !== REVISION;
}

/** With `Last-Event-ID` a stream goes on; without, it is the session's standing one. */
async function get(services: Services, sessions: Sessions, inbound: Inbound): Promise<Reply> {
  if (!accepts(inbound.header('accept') ?? '', 'text/event-stream')) {
    return rpcError(406, -32000, 'Not Acceptable: Client must accept text/event-stream');
  }
  const found = await sessionOf(services, sessions, inbound, null);
  if ('reply' in found) return found.reply;
  const { session } = found;
  const open = (outside: Outside): Promise<HostInstance> => openInstance(services, session, inbound, outside);
  const last = inbound.header('last-event-id');
  try {
    if (last === undefined) {
      await session.ready(open);
      const standing = await services.streams.find(session.standing.id, 'new', session.id);
      return sse(services, session, standing, 'getStreams');
    }
    const place = await services.streams.resume(last, session.id);
    const { stream } = parseEventId(last, services.settings.limits.eventIdBytes) ?? { stream: '' };
    const source = sourceOf(inbound, () => services.streams.disconnect(stream, session.id));
    return sse(services, session, place, 'resumedStreams', (sink) => {
      // Clients of the SDKs only know an id that came on this very connection, should it break as well.
      if (isPrimed(session)) sink.send({ data: '' }, last);
      if (session.revision === REVISION) multiTurn.follow(callOf(services, session, inbound), stream, sink);
      else goOnWithCalls({ services, session, stream, source, open, sink });
      return sink;
    });
  } catch (error) {
    return refusedEventId(services, inbound, error);
  }
}

async function end(services: Services, sessions: Sessions, inbound: Inbound): Promise<Reply> {
  const found = await sessionOf(services, sessions, inbound, null);
  if ('reply' in found) return found.reply;
  await sessions.end(found.session);
  return empty(200);
}

async function sessionOf(
  services: Services,
  sessions: Sessions,
  inbound: Inbound,
  id: string | number | null,
): Promise<{ session: Session } | { reply: Reply }> {
  const name = inbound.header(SESSION);
  if (name === undefined) {
    return {
      reply: rpcError(
        400,
        -32000,
        'Bad Request: Mcp-Session-Id header is required; send initialize first',
        id,
      ),
    };
  }
  const version = inbound.header('mcp-protocol-version');
  const isKnown =
    version === undefined ||
    ((TOLERATED.has(version) || DRAFTS.has(version)) && services.settings.revisions.has(version));
  if (!isKnown) return { reply: rpcError(400, -32000, 'Bad Request: Unsupported protocol version', id) };
  const session = await sessions.find(name, services.settings.principal(inbound.authInfo));
  // A draft's session is its own to the end, and nobody else's becomes one.
  const isOther =
    [session?.revision, version].some((revision) => revision !== undefined && DRAFTS.has(revision)) &&
    session?.revision !== version;
  if (session !== undefined && isOther) {
    const message = `Bad Request: this session speaks ${session.revision}, in MCP-Protocol-Version too`;
    return { reply: rpcError(400, -32000, message, id) };
  }
  if (session !== undefined) return { session };
  await services.rates?.badToken(inbound);
  return { reply: rpcError(404, -32001, 'Session not found', id) };
}
