/**
 * Streamable HTTP with sessions, for every revision of it: reads the session, and finds the revision of a request. The
 * revision reads the body (`SessionWire`).
 */
import { hasCode } from '../../src/base/values.ts';
import type { Inbound, Reply } from '../../src/doors/http/exchange.ts';
import {
  empty,
  idOf,
  json,
  messagesOf,
  noStream,
  rpcError,
  SSE_HEADERS,
} from '../../src/doors/http/reply.ts';
import { refuseScopes } from '../../src/handler/guards.ts';
import type { Services } from '../../src/handler/services.ts';
import type { HostInstance } from '../../src/host/instance.ts';
import { LATEST, SPOKEN } from '../../src/host/spoken.ts';
import { callIdOf, parseBatchId, parseEventId, unknownEvent } from '../../src/stream/event-id.ts';
import { later, refusedEventId } from '../failure.ts';
import { quotaKeyOf } from '../quota-key.ts';
import type { Edges } from '../revision.ts';
import { callAt, comeBack, hasAll, logOf, resumed, SESSION, sse } from './call-reply.ts';
import { resumedBatch } from './calls-reply.ts';
import { type Exchange, exchangeOf } from './exchange.ts';
import { createIdentity, identifier } from './identity.ts';
import { clientOf, NO_CLIENT, NOT_TAKEN, openInstance } from './initialize.ts';
import { accepts, isMessage, isRequest } from './requests.ts';
import { Sessions } from './sessions.ts';
import { isCall, type RpcRequest } from './start.ts';
import type { SessionWire } from './wire.ts';

const VERSION = 'mcp-protocol-version';

interface SessionEdgeParts {
  readonly services: Services;
  readonly sessions: Sessions;
  /** How each revision speaks, by its name. */
  readonly wires: ReadonlyMap<string, SessionWire>;
}

/** @param wires how each revision speaks, by its name */
export function createEdge(services: Services, wires: ReadonlyMap<string, SessionWire>): Edges {
  const sessions = new Sessions(services, identifier(services));
  const parts = { services, sessions, wires };
  /** The session may end while a request of it is on its way; one that was only evicted here is opened again. */
  const unlessOver = (inbound: Inbound, id: string | number | null, served: Promise<Reply>): Promise<Reply> =>
    served.catch((thrown: unknown) => {
      if (!hasCode(thrown, 'closed')) throw thrown;
      return sessions.wasEnded(inbound.header(SESSION)) ? notFound(id) : later('closed');
    });
  return {
    mcp: {
      post: (inbound, body) => unlessOver(inbound, idOf(body), post(parts, inbound, body)),
      get: (inbound) => unlessOver(inbound, null, get(parts, inbound)),
      end: (inbound) => end(parts, inbound),
      close: () => sessions.close(),
    },
  };
}

/** Sessions that negotiated no revision of this wire's speak the latest. */
function wireOf({ wires }: SessionEdgeParts, revision: string | undefined): SessionWire | undefined {
  return wires.get(revision ?? '') ?? wires.get(LATEST);
}

async function post(parts: SessionEdgeParts, inbound: Inbound, body: unknown): Promise<Reply> {
  const messages = messagesOf(body).filter(isMessage).filter(isRequest);
  const initialize = messages.find(({ method }) => method === 'initialize');
  const asked =
    initialize === undefined ? inbound.header(VERSION) : String(initialize.params.protocolVersion);
  const wire = wireOf(parts, asked);
  const refusal = wire?.refuse(inbound, body);
  if (refusal !== undefined) return refusal;
  if (initialize !== undefined) {
    if (!Array.isArray(body)) return startSession(parts, inbound, initialize);
    return rpcError(400, -32600, 'Invalid Request: initialize must be sent alone', initialize.id);
  }
  const found = await sessionOf(parts, inbound, idOf(body));
  if ('reply' in found) return found.reply;
  const { wire: spoken, exchange } = found;
  const { services, instance } = exchange;
  const refused = await refuseScopes(services, instance, messages.filter(isCall), inbound);
  return refused ?? spoken.post(exchange, body);
}

async function startSession(parts: SessionEdgeParts, inbound: Inbound, request: RpcRequest): Promise<Reply> {
  const { services, sessions, wires } = parts;
  const { params, id } = request;
  const invalid = (what: string): Reply => rpcError(400, -32602, `Invalid params: ${what}`, id);
  const { settings } = services;
  const asked = String(params.protocolVersion);
  const draft = settings.revisions.has(asked) && wires.get(asked)?.isDraft ? asked : undefined;
  const client = clientOf(params, settings.revisions);
  if (client === undefined) return invalid(NO_CLIENT);
  const wire = wireOf(parts, draft ?? client.protocolVersion);
  if (wire === undefined) return invalid('no revision of this protocolVersion is served');
  const quotaKey = quotaKeyOf(services, inbound);
  const { principal } = quotaKey;
  const named = inbound.header(SESSION);
  if (named !== undefined && (await sessions.find(named, quotaKey)) !== undefined)
    return rpcError(400, -32600, 'Invalid Request: Server already initialized', id);
  // Before anything is kept of it.
  sessions.makeRoom(quotaKey);
  const { id: sessionId, identity } = await createIdentity(services, client, principal, draft);
  const session = sessions.add(sessionId, identity, quotaKey.address);
  let instance: HostInstance;
  try {
    instance = await session.instance((outside) => openInstance(services, session, inbound, outside, true));
  } catch (error) {
    await sessions.end(session);
    if (!hasCode(error, 'bad-answer')) throw error;
    settings.logger.warn(error.message);
    return invalid(NOT_TAKEN);
  }
  services.serverInfo ??= instance.initialized.serverInfo;
  return json({ jsonrpc: '2.0', id, ...wire.begun(exchangeOf(services, session, inbound), instance) }, 200, {
    [SESSION]: session.id,
  });
}

/** With `Last-Event-ID` a stream is resumed; without, the reply is the session's standing stream. */
async function get(parts: SessionEdgeParts, inbound: Inbound): Promise<Reply> {
  if (!accepts(inbound.header('accept') ?? '', 'text/event-stream')) return noStream();
  const found = await sessionOf(parts, inbound, null);
  if ('reply' in found) return found.reply;
  const { services } = parts;
  const { wire, exchange } = found;
  const { session } = exchange;
  const last = inbound.header('last-event-id');
  if (services.hasLeft) return comeBack(session, last);
  try {
    if (last === undefined) {
      await exchange.instance();
      const standing = await services.streams.find(session.standing.id, 'new', session.id, session.principal);
      return sse(services, session, standing, 'getStreams', await session.announced());
    }
    const event = parseEventId(last, services.settings.limits.eventIdBytes);
    const found = event && (await callAt(exchange, callIdOf(event.stream), event.sequence));
    const { eventIdBytes, batch: most } = services.settings.limits;
    const batch = parseBatchId(last, eventIdBytes, most);
    if (batch !== undefined) {
      const rest = await resumedBatch(exchange, batch.stream, batch.places);
      return rest ?? refusedEventId(services, inbound, unknownEvent('it is of no batch of this session'));
    }
    if (event !== undefined && found !== undefined) {
      const { suspended } = found;
      if (hasAll(found, event) || (suspended && wire.reply?.isEnd(suspended, event)))
        return { status: 200, headers: { ...SSE_HEADERS, [SESSION]: session.id }, body: '' };
      return resumed(exchange, logOf(found.call, wire.reply), event, last);
    }
    const place = await services.streams.resume(last, session.id, session.principal);
    const hears = event?.stream === session.standing.id ? await session.announced() : undefined;
    return sse(services, session, place, 'resumedStreams', (sink) =>
      wire.follow(exchange, event?.stream ?? '', last, hears?.(sink) ?? sink),
    );
  } catch (error) {
    return refusedEventId(services, inbound, error);
  }
}

async function end(parts: SessionEdgeParts, inbound: Inbound): Promise<Reply> {
  const found = await sessionOf(parts, inbound, null);
  if ('reply' in found) return found.reply;
  await parts.sessions.end(found.exchange.session);
  return empty(200);
}

async function sessionOf(
  parts: SessionEdgeParts,
  inbound: Inbound,
  id: string | number | null,
): Promise<{ wire: SessionWire; exchange: Exchange } | { reply: Reply }> {
  const { services, sessions, wires } = parts;
  const name = inbound.header(SESSION);
  if (name === undefined) {
    return {
      reply: rpcError(400, -32000, 'Bad Request: Mcp-Session-Id header is required', id),
    };
  }
  const version = inbound.header(VERSION);
  const isKnown =
    version === undefined ||
    ((SPOKEN.has(version) || wires.has(version)) && services.settings.revisions.has(version));
  if (!isKnown) return { reply: unsupported(version, services.settings.revisions, id) };
  const { session, news } = (await sessions.find(name, quotaKeyOf(services, inbound))) ?? {};
  // A session of a draft keeps that draft, and no other session changes to it.
  const isOther =
    [session?.revision, version].some((revision) => wires.get(revision ?? '')?.isDraft) &&
    session?.revision !== version;
  if (session !== undefined && isOther) {
    const message = `Bad Request: this session speaks ${session.revision}, in MCP-Protocol-Version too`;
    return { reply: rpcError(400, -32000, message, id) };
  }
  const wire = wireOf(parts, session?.revision);
  if (session !== undefined && wire !== undefined) {
    return { wire, exchange: exchangeOf(services, session, inbound, news) };
  }
  await services.rates?.badToken(inbound);
  return { reply: notFound(id) };
}

function unsupported(version: string, served: ReadonlySet<string>, id: string | number | null): Reply {
  const supported = [...served].filter((name) => SPOKEN.has(name)).join(', ');
  const message = `Bad Request: Unsupported protocol version: ${version} (supported versions: ${supported})`;
  return rpcError(400, -32000, message, id);
}

function notFound(id: string | number | null): Reply {
  return rpcError(404, -32001, 'Session not found', id);
}
