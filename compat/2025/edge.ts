/**
 * Streamable HTTP of 2025-03-26, 2025-06-18 and 2025-11-25: sessions, requests on the POST's own stream, asks
 * live on it, answers by POST.
 * https://modelcontextprotocol.io/specification/2025-11-25/basic/transports
 */

import type { Client } from '../../src/call/journal.ts';
import { isObject, type JsonObject } from '../../src/call/json.ts';
import { AwaitError } from '../../src/error.ts';
import { HostInstance, type Outside } from '../../src/host/instance.ts';
import type { Inbound, Reply } from '../../src/http/exchange.ts';
import { empty, idOf, isRequestId, json, rpcError } from '../../src/http/reply.ts';
import { parseEventId } from '../../src/stream/event-id.ts';
import * as multiTurn from '../sep-1858/server.ts';
import { REVISION } from '../sep-1858/wire.ts';
import type { Services } from '../services.ts';
import { goOnWithCalls, rememberCalls } from './calls.ts';
import { SESSION, sourceOf, sse } from './connection.ts';
import { CALLS, type RpcRequest, type Session } from './session.ts';
import { Sessions } from './sessions.ts';

/** What a host speaks to a client of a draft, when no other revision is served. */
const LATEST = '2025-11-25';
/** Named in requests by clients that negotiated them elsewhere; served as the nearest of ours. */
const TOLERATED: ReadonlySet<string> = new Set(['2025-03-26', '2025-06-18', '2025-11-25']);

export interface Edge {
  post(inbound: Inbound, body: unknown): Promise<Reply>;
  get(inbound: Inbound): Promise<Reply>;
  end(inbound: Inbound): Promise<Reply>;
  close(): void;
}

export function createEdge(services: Services): Edge {
  const sessions = new Sessions(services);
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
  const mayTakeOne = inbound.header('last-event-id') !== undefined && accept !== '';
  if (!mayTakeOne && !(accepts(accept, 'application/json') && accepts(accept, 'text/event-stream'))) {
    return rpcError(
      406,
      -32000,
      'Not Acceptable: Client must accept both application/json and text/event-stream',
      idOf(body),
    );
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
  const reserved: RpcRequest[] = [];
  for (const request of requests) if (session.reserve(request.id)) reserved.push(request);
  const release = (): void => {
    for (const { id } of reserved) session.release(id);
  };
  const twice = requests.find((request) => !reserved.includes(request));
  if (twice !== undefined) release();
  if (twice !== undefined)
    return rpcError(400, -32600, 'Invalid Request: a request with this id is in work', twice.id);
  for (const message of messages) {
    if (isRequest(message)) continue;
    if (typeof message.method === 'string') await session.notified(message);
    else if (!(await session.answer(message))) {
      services.settings.logger.warn('an answer came to an ask that is not open here', { id: message.id });
    }
  }
  if (requests.length === 0) return empty(202);
  try {
    return await serveRequests(services, session, inbound, requests);
  } catch (error) {
    release();
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
  if (
    typeof params.protocolVersion !== 'string' ||
    !isObject(params.capabilities) ||
    !isObject(params.clientInfo)
  ) {
    return invalid('initialize needs protocolVersion, capabilities and clientInfo');
  }
  const { settings } = services;
  const isMultiTurn = params.protocolVersion === REVISION && settings.revisions.has(REVISION);
  const served = settings.revisions.has(params.protocolVersion) && !isMultiTurn;
  const latest = [...settings.revisions]
    .filter((revision) => TOLERATED.has(revision))
    .sort()
    .at(-1);
  const client: Client = {
    capabilities: params.capabilities,
    info: params.clientInfo,
    protocolVersion: served ? params.protocolVersion : (latest ?? LATEST),
  };
  const principal = settings.principal(inbound.authInfo);
  const session = await sessions.create(client, principal, isMultiTurn ? REVISION : undefined);
  let instance: HostInstance;
  try {
    instance = await session.instance((outside) => openInstance(services, session, inbound, outside));
  } catch (error) {
    await sessions.end(session);
    if (!(error instanceof AwaitError) || error.code !== 'bad-answer') throw error;
    settings.logger.warn(error.message);
    return invalid('the server does not take these capabilities, or this clientInfo');
  }
  services.serverInfo ??= instance.initialized.serverInfo;
  const result = isMultiTurn ? { ...instance.initialized, protocolVersion: REVISION } : instance.initialized;
  return json({ jsonrpc: '2.0', id, result }, 200, { [SESSION]: session.id });
}

function openInstance(
  services: Services,
  session: Session,
  inbound: Inbound,
  outside: Outside,
): Promise<HostInstance> {
  const { factory, settings } = services;
  const { client } = session;
  return HostInstance.open({
    factory,
    client,
    context: {
      era: 'legacy',
      revision: client.protocolVersion,
      ...(inbound.authInfo !== undefined && { authInfo: inbound.authInfo }),
      requestInfo: inbound.request(),
      clientCapabilities: client.capabilities,
      clientInfo: client.info,
    },
    sessionId: session.id,
    single: false,
    contexts: settings.steps,
    outside,
  });
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
  if (session.client.protocolVersion >= '2025-11-25') stream.prime();
  const source = sourceOf(inbound, () => services.streams.disconnect(stream.id, session.id));
  const work = requests.map((request) => ({
    request,
    started: session.start(request, instance, source, stream),
  }));
  let left = work.length;
  for (const { request, started } of work) {
    void started.outcome.then(async (outcome) => {
      if (outcome.kind === 'responded' && 'result' in outcome.response) {
        await remembered(services, session.state.record(shared, request.method, request.params));
      }
      session.release(request.id);
      left -= 1;
      if (outcome.kind === 'responded') {
        const message = { jsonrpc: '2.0', id: request.id, ...outcome.response };
        if (left === 0) stream.end(message);
        else stream.send(message);
      } else if (left === 0) stream.finish();
    });
  }
  await rememberCalls(services, session, stream.id, work);
  return sse(services, session, found);
}

/** What cannot be told to other processes is this one's alone, and its client is served all the same. */
function remembered(services: Services, recorded: Promise<void>): Promise<void> {
  return recorded.catch((error: unknown) => {
    services.settings.logger.warn('a change of a session could not be kept', { error: String(error) });
  });
}

function callOf(services: Services, session: Session, inbound: Inbound): multiTurn.Call {
  return {
    services,
    session,
    inbound,
    ...(services.settings.instance !== 'call' && {
      home: () => session.ready((outside) => openInstance(services, session, inbound, outside)),
    }),
  };
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
      return sse(services, session, standing);
    }
    const place = await services.streams.resume(last, session.id);
    const { stream } = parseEventId(last, services.settings.limits.eventIdBytes) ?? { stream: '' };
    const source = sourceOf(inbound, () => services.streams.disconnect(stream, session.id));
    return sse(services, session, place, (sink) =>
      goOnWithCalls({ services, session, stream, source, open, sink }),
    );
  } catch (error) {
    const failure = AwaitError.from(error);
    if (failure.code !== 'bad-token') throw error;
    services.settings.logger.warn(failure.message, { cause: String(failure.cause ?? '') });
    await services.rates?.badToken(inbound);
    return rpcError(400, -32602, 'Invalid or expired Last-Event-ID');
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
    ((TOLERATED.has(version) || version === REVISION) && services.settings.revisions.has(version));
  if (!isKnown) return { reply: rpcError(400, -32000, 'Bad Request: Unsupported protocol version', id) };
  const session = await sessions.find(name, services.settings.principal(inbound.authInfo));
  // A draft's session is its own to the end, and nobody else's becomes one.
  const isOther = [session?.revision, version].includes(REVISION) && session?.revision !== version;
  if (session !== undefined && isOther) {
    const message = `Bad Request: this session speaks ${session.revision}, in MCP-Protocol-Version too`;
    return { reply: rpcError(400, -32000, message, id) };
  }
  if (session !== undefined) return { session };
  await services.rates?.badToken(inbound);
  return { reply: rpcError(404, -32001, 'Session not found', id) };
}

function accepts(accept: string, type: string): boolean {
  const [group] = type.split('/');
  return accept.includes(type) || accept.includes('*/*') || accept.includes(`${group}/*`);
}

function isMessage(value: unknown): value is JsonObject {
  if (!isObject(value) || value.jsonrpc !== '2.0') return false;
  if (typeof value.method === 'string')
    return hasTakenParams(value) && (value.id === undefined || isRequestId(value.id));
  return isRequestId(value.id) && ('result' in value || 'error' in value);
}

function isRequest(message: JsonObject): message is JsonObject & RpcRequest {
  if (typeof message.method !== 'string' || !isRequestId(message.id)) return false;
  message.params ??= {};
  return true;
}

function hasTakenParams({ params }: JsonObject): boolean {
  if (params === undefined) return true;
  if (!isObject(params)) return false;
  const { _meta: meta } = params;
  return (
    meta === undefined ||
    (isObject(meta) && (meta.progressToken === undefined || isRequestId(meta.progressToken)))
  );
}
