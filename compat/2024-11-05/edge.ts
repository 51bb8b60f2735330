/**
 * HTTP+SSE of 2024-11-05: one stream for each session, opened first; whatever its client has to say is posted
 * beside it, and whatever the server has to say comes on it.
 * https://modelcontextprotocol.io/specification/2024-11-05/basic/transports
 *
 * A POST is refused by its status where it cannot be said whose it is, or what. What is wrong with a request
 * that is understood is said on the stream, as its response: clients of this wire read no other.
 */

import type { Response } from '../../src/call/journal.ts';
import { AwaitError } from '../../src/error.ts';
import type { HostInstance, Outside } from '../../src/host/instance.ts';
import type { Inbound, Reply } from '../../src/http/exchange.ts';
import { idOf, rpcError } from '../../src/http/reply.ts';
import type { Found } from '../../src/stream/event-streams.ts';
import { sourceOf } from '../2025/connection.ts';
import { clientOf, NO_CLIENT, NOT_TAKEN, openInstance } from '../2025/initialize.ts';
import { accepts, isMessage, isRequest } from '../2025/messages.ts';
import { inWork, remembered, reserve, run, take } from '../2025/requests.ts';
import { CALLS, type RpcRequest, type Session } from '../2025/session.ts';
import { Sessions } from '../2025/sessions.ts';
import { refusedEventId, unknownEventId } from '../failure.ts';
import type { Services } from '../services.ts';
import { hasTasks, withTaskCapability } from '../tasks/session.ts';
import { Calls } from './calls.ts';
import { connected } from './connection.ts';
import { followCalls } from './follower.ts';
import {
  createIdentity,
  forgetClient,
  identifier,
  keepClient,
  parseEventId,
  REVISION,
  recallClient,
} from './identity.ts';

/** What its clients negotiate: the SDKs' speak later revisions over this wire, too. */
const SPOKEN: ReadonlySet<string> = new Set([REVISION, '2025-03-26', '2025-06-18', '2025-11-25']);

export interface Edge {
  readonly sse: { get(inbound: Inbound): Promise<Reply>; close(): void };
  readonly messages: { post(inbound: Inbound, body: unknown): Promise<Reply> };
}

interface Parts {
  readonly services: Services;
  readonly sessions: Sessions;
  /** The calls of a session, where processes share a store. */
  readonly callsOf: (session: Session) => Calls | undefined;
}

export function createEdge(services: Services): Edge {
  const sessions = new Sessions(services, identifier(services));
  const known = new WeakMap<Session, Calls>();
  const callsOf = (session: Session): Calls | undefined => {
    const { store } = services;
    if (store?.isShared !== true) return undefined;
    const calls = known.get(session) ?? new Calls(services, store, session);
    known.set(session, calls);
    return calls;
  };
  const parts = { services, sessions, callsOf };
  return {
    sse: { get: (inbound) => get(parts, inbound), close: () => sessions.close() },
    messages: { post: (inbound, body) => post(parts, inbound, body) },
  };
}

/** A new session, or with `Last-Event-ID` the one of that event, from there on. */
async function get(parts: Parts, inbound: Inbound): Promise<Reply> {
  const { services, sessions, callsOf } = parts;
  const { settings, streams, rates } = services;
  const accept = inbound.header('accept') ?? '';
  if (accept !== '' && !accepts(accept, 'text/event-stream')) {
    return rpcError(406, -32000, 'Not Acceptable: Client must accept text/event-stream');
  }
  const principal = settings.principal(inbound.authInfo);
  const last = inbound.header('last-event-id') ?? '';
  let session: Session | undefined;
  let from = 0;
  if (last === '') {
    const tooMuch = await rates?.refuse(inbound, { method: 'initialize' });
    if (tooMuch !== undefined) return tooMuch;
    const identity = await createIdentity(services, principal);
    session = sessions.add(identity.name, identity);
  } else {
    const place = parseEventId(last, settings.limits.eventIdBytes);
    if (place === undefined) return unknownEventId(services, inbound);
    session = await sessions.find(place.session, principal);
    if (session === undefined) return notFound(parts, inbound, null);
    from = place.sequence;
  }
  let found: Found;
  try {
    found = await streams.find(session.standing.id, from, session.id);
  } catch (error) {
    return refusedEventId(services, inbound, error);
  }
  const { source, instance } = served(services, session, inbound);
  const calls = callsOf(session);
  return connected(services, session, inbound, { found, from }, (sink) => {
    if (calls !== undefined) followCalls({ services, session, calls, source, instance }, sink);
  });
}

async function post(parts: Parts, inbound: Inbound, body: unknown): Promise<Reply> {
  const { services, sessions } = parts;
  const messages = Array.isArray(body) ? body : [body];
  if (messages.length === 0 || !messages.every(isMessage)) {
    return rpcError(400, -32600, 'Invalid Request: the body is no JSON-RPC message', idOf(body));
  }
  const id = inbound.query('sessionId') ?? '';
  if (id === '') {
    const message = 'Bad Request: sessionId is missing; GET the stream first, and POST to its endpoint event';
    return rpcError(400, -32000, message, idOf(body));
  }
  const session = await sessions.find(id, services.settings.principal(inbound.authInfo));
  if (session === undefined) return notFound(parts, inbound, idOf(body));
  await recallClient(services, session);
  const requests = messages.filter(isRequest);
  const initialize = requests.find(({ method }) => method === 'initialize');
  if (initialize !== undefined) {
    if (messages.length > 1)
      return rpcError(400, -32600, 'Invalid Request: initialize must be sent alone', initialize.id);
    await begin(services, session, inbound, initialize);
    return accepted();
  }
  if (!session.isKnown) {
    for (const request of requests) await respond(session, request, tooEarly(request));
    return accepted();
  }
  const twice = reserve(session, requests);
  if (twice !== undefined) return inWork(twice);
  try {
    const { streams: most } = services.settings.limits;
    if (session.inWork > most) {
      throw new AwaitError(
        'limit',
        `${most} requests of one session are in work; raise limits.streams if that is meant`,
      );
    }
    await take(services, session, messages);
    if (requests.length > 0) await start(parts, session, inbound, requests);
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
  const invalid = (what: string): Response => ({
    error: { code: -32602, message: `Invalid params: ${what}` },
  });
  const { settings } = services;
  const client = clientOf(request.params, settings.revisions, SPOKEN);
  if (client === undefined) {
    await respond(session, request, invalid(NO_CLIENT));
    return;
  }
  if (!(await keepClient(services, session, client))) {
    const message = 'Invalid Request: this session was initialized already';
    await respond(session, request, { error: { code: -32600, message } });
    return;
  }
  try {
    const opened = await served(services, session, inbound).instance();
    const { initialized } = opened;
    services.serverInfo ??= initialized.serverInfo;
    const result = hasTasks(services, session, opened) ? withTaskCapability(initialized) : initialized;
    if (!(await respond(session, request, { result }))) {
      throw new AwaitError('store', 'the response to initialize could not be put into its stream');
    }
  } catch (error) {
    await forgetClient(services, session);
    if (!(error instanceof AwaitError) || error.code !== 'bad-answer') throw error;
    settings.logger.warn(error.message);
    await respond(session, request, invalid(NOT_TAKEN));
  }
}

/** Resolves once other processes know of what was started: its client may be told that it is accepted. */
async function start(
  { services, callsOf }: Parts,
  session: Session,
  inbound: Inbound,
  requests: readonly RpcRequest[],
): Promise<void> {
  const { source, instance } = served(services, session, inbound);
  const shared = await instance();
  const running = {
    instance: services.settings.instance === 'call' ? undefined : shared,
    shared,
    source,
    stream: session.standing,
  };
  const kept = requests.map(async (request) => {
    const { started, ended } = await run(services, session, request, running);
    const calls = CALLS.has(request.method) && started !== undefined ? callsOf(session) : undefined;
    const callId = started?.callId ?? '';
    void ended.then(async (outcome) => {
      if (outcome.kind !== 'responded') await calls?.dismiss(callId);
      else if (calls === undefined) await respond(session, request, outcome.response);
      else await calls.tell(callId, request.id, outcome.response);
    });
    await started?.kept;
    if (calls !== undefined) await remembered(services, calls.add(callId));
  });
  await Promise.all(kept);
}

/** What a request of a session brings, and the session's instance here. */
function served(
  services: Services,
  session: Session,
  inbound: Inbound,
): { readonly source: ReturnType<typeof sourceOf>; readonly instance: () => Promise<HostInstance> } {
  const open = (outside: Outside): Promise<HostInstance> => openInstance(services, session, inbound, outside);
  return { source: sourceOf(inbound), instance: () => session.ready(open) };
}

/** @returns whether it is in the stream */
function respond(session: Session, { id }: RpcRequest, response: Response): Promise<boolean> {
  return session.standing.send({ jsonrpc: '2.0', id, ...response });
}

/** Before `initialize` a client may see whether anybody is there, and nothing else. */
function tooEarly({ method }: RpcRequest): Response {
  if (method === 'ping') return { result: {} };
  return { error: { code: -32600, message: 'Invalid Request: send initialize first' } };
}

function accepted(): Reply {
  return { status: 202, headers: { 'content-type': 'text/plain' }, body: 'Accepted' };
}

async function notFound({ services }: Parts, inbound: Inbound, id: string | number | null): Promise<Reply> {
  await services.rates?.badToken(inbound);
  return rpcError(404, -32001, 'Session not found: open a new stream with GET, without Last-Event-ID', id);
}
