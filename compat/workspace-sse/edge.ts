/**
 * `GET` and `POST /mcp/:workspace`: requests by POST, responses and the messages before them as named events, on the
 * open GET of the same caller and workspace or on the POST's own body. There is no session. docs/workspace-sse.md is
 * the wire.
 */

import { Allowance } from '../../src/base/allowance.ts';
import { AwaitError } from '../../src/base/error.ts';
import type { JsonObject } from '../../src/base/json.ts';
import type { Begun } from '../../src/call/engine.ts';
import type { Client } from '../../src/call/journal/entries.ts';
import { goesOnElsewhere } from '../../src/call/run/wire-error.ts';
import type { Inbound, Reply } from '../../src/http/exchange.ts';
import type { Place } from '../../src/http/paths.ts';
import { empty, idOf, isRequestId, json, rpcError } from '../../src/http/reply.ts';
import { undelivered } from '../failure.ts';
import type { Edges } from '../revision.ts';
import type { Services } from '../services.ts';
import { isResumable, messageOf } from '../session/start.ts';
import { Calls, clientOf, unknownClient } from './calls.ts';
import { type Channel, Channels, type Owner } from './channels.ts';
import { type Connections, listen, whoIs } from './connection.ts';
import { Listeners } from './listeners.ts';
import { readMessage, type WorkspaceRequest } from './message.ts';
import { OwnBody } from './own-body.ts';
import { STREAM } from './wire.ts';

export function createEdge(services: Services): Edges {
  const { sessions: all, callerSessions: caller, anonymousSessions: anonymous } = services.settings.limits;
  const parts: Connections = {
    services,
    calls: new Calls(services),
    channels: new Channels(services),
    listeners: new Listeners(services),
    room: new Allowance({ all, caller, anonymous }),
  };
  return {
    workspace: {
      post: (inbound, body, place) => post(parts, inbound, body, ownerOf(services, inbound, place)),
      get: (inbound, place) => listen(parts, inbound, ownerOf(services, inbound, place)),
      close: () => {
        parts.channels.close();
        return parts.listeners.close();
      },
    },
  };
}

function ownerOf(services: Services, inbound: Inbound, place: Place): Owner {
  const workspace = place.wire === 'workspace' ? place.workspace : '';
  return { principal: services.principal(inbound.authInfo), workspace };
}

async function post(parts: Connections, inbound: Inbound, body: unknown, owner: Owner): Promise<Reply> {
  const posted = readMessage(body);
  switch (posted.kind) {
    case 'invalid':
      return refuse(parts, inbound, owner, idOf(body), posted);
    case 'response':
      if ((await parts.calls.live.answer(owner.principal, posted.message)) === undefined) {
        const { logger } = parts.services.settings;
        logger.warn('an answer came to an ask that is not open here', { id: posted.message.id });
        return undelivered(posted.message.id);
      }
      return empty(202);
    case 'notification':
      if (posted.method === 'notifications/cancelled') await cancel(parts, inbound, owner, posted.params);
      if (posted.method === 'notifications/progress')
        await parts.calls.live.report(owner.principal, posted.params);
      return empty(202);
    case 'request':
      return serve(parts, inbound, owner, posted.request);
  }
}

/**
 * The error response to a bad request: an event of the stream on which its client waits for it. Without a stream, an id
 * to wait for, or where that id is another request's, it is the reply of the POST.
 */
async function refuse(
  { services, channels, listeners }: Connections,
  inbound: Inbound,
  owner: Owner,
  id: string | number | null,
  { code, message }: { readonly code: number; readonly message: string },
): Promise<Reply> {
  const reply = rpcError(400, code, message, id);
  if (!isRequestId(id)) return reply;
  const stream = await listeners.find(whoIs(owner, inbound), inbound.header(STREAM));
  const channel = stream === undefined ? undefined : channels.of(owner, stream, 'get');
  if (channel === undefined || !(await channel.reserve(id))) return reply;
  const told = channel.respond({ jsonrpc: '2.0', id, error: { code, message } });
  written(
    services,
    told.then(() => {}),
  );
  return empty(202);
}

async function serve(
  parts: Connections,
  inbound: Inbound,
  owner: Owner,
  request: WorkspaceRequest,
): Promise<Reply> {
  const { channels } = parts;
  const client = clientOf(request.params);
  if (request.method === 'initialize' && client === undefined) {
    const message = 'Invalid params: initialize needs protocolVersion, capabilities and clientInfo';
    return refuse(parts, inbound, owner, request.id, { code: -32602, message });
  }
  const stream = await parts.listeners.find(whoIs(owner, inbound), inbound.header(STREAM));
  if (stream !== undefined) return serveOn(parts, inbound, channels.of(owner, stream, 'get'), request);
  const accept = inbound.header('accept') ?? '*/*';
  const takesEvents = /text\/(event-stream|\*)/.test(accept);
  if (!takesEvents && !/application\/json|application\/\*|\*\/\*/.test(accept)) {
    const message = 'Not Acceptable: Client must accept text/event-stream or application/json';
    return rpcError(406, -32000, message, request.id);
  }
  return takesEvents
    ? serveEvents(parts, inbound, owner, request)
    : serveJson(parts, inbound, owner, request);
}

/** The response goes over the stream of a GET, in whichever process that is. */
async function serveOn(
  { services, calls }: Connections,
  inbound: Inbound,
  channel: Channel,
  request: WorkspaceRequest,
): Promise<Reply> {
  if (!(await channel.reserve(request.id))) {
    const message = 'Invalid Request: a request with this id was sent on this stream before';
    return rpcError(400, -32600, message, request.id);
  }
  const { owner } = channel;
  const said = clientOf(request.params);
  if (request.method === 'initialize' && said !== undefined) {
    const introduce = async (): Promise<void> => {
      const message = await calls.initialize(request, { owner, inbound, client: said });
      // Before its client hears of it: the next request may be at another process.
      if ('result' in message) await channel.introduce(said);
      await channel.respond(message);
    };
    written(services, introduce());
    return empty(202);
  }
  const client = (await channel.client()) ?? anyClient(services);
  const asker = { owner, inbound, client };
  const started = calls.start(request, asker, { say: (message) => channel.say(message), goesOn: true });
  channel.keep(request.id, started);
  const listed = isResumable(services, request) ? started.callId : undefined;
  void started.outcome.then((outcome) => written(services, channel.tell(request.id, outcome, listed)));
  if (listed !== undefined) await kept(services, list(channel, started));
  return empty(202);
}

/** Lists a call beside its stream, once the journal has the call. */
async function list(channel: Channel, { callId, kept }: Begun): Promise<void> {
  await kept;
  await channel.list?.add(callId);
}

/** The response is an event of the POST's own body. */
function serveEvents(
  { services, calls, channels }: Connections,
  inbound: Inbound,
  owner: Owner,
  request: WorkspaceRequest,
): Reply {
  const body: OwnBody = new OwnBody(
    services,
    inbound.signal,
    () => {
      const channel = channels.make(owner, 'post');
      channel.keep(request.id, started);
      return channel;
    },
    async (channel) => {
      if (isResumable(services, request)) await kept(services, list(channel, started));
    },
  );
  const said = clientOf(request.params);
  if (request.method === 'initialize' && said !== undefined) {
    const initialized = calls.initialize(request, { owner, inbound, client: said });
    void initialized.then((message) => body.respond(message));
    return body.reply;
  }
  const asker = { owner, inbound, client: anyClient(services) };
  const started = calls.start(request, asker, {
    say: (message) => body.say(message),
    goesOn: true,
    signal: body.gone,
  });
  void started.outcome.then((outcome) => {
    // Another process continues the call, and sends its outcome on the same stream.
    if (goesOnElsewhere(outcome) && body.isStream && isResumable(services, request)) return;
    body.respond(messageOf(request, outcome));
  });
  return body.reply;
}

/** One JSON body: no message can go before it, so the client counts as one that cannot be asked. */
async function serveJson(
  { calls }: Connections,
  inbound: Inbound,
  owner: Owner,
  request: WorkspaceRequest,
): Promise<Reply> {
  const said = clientOf(request.params);
  if (request.method === 'initialize' && said !== undefined) {
    return json(await calls.initialize(request, { owner, inbound, client: said }));
  }
  const asker = { owner, inbound, client: unknownClient({}) };
  const outcome = await calls.start(request, asker, { say: () => {}, goesOn: false, signal: inbound.signal })
    .outcome;
  const message = messageOf(request, outcome);
  return message === undefined ? empty(499) : json(message);
}

/** By the stream that the request was sent on; without one, where the caller has one request of this id here. */
async function cancel(
  { channels, listeners }: Connections,
  inbound: Inbound,
  owner: Owner,
  { requestId, reason }: JsonObject,
): Promise<void> {
  if (typeof requestId !== 'string' && typeof requestId !== 'number') return;
  const stream = await listeners.find(whoIs(owner, inbound), inbound.header(STREAM));
  const channel = stream === undefined ? undefined : channels.of(owner, stream, 'get');
  const onStream = channel?.calls.get(requestId);
  const inWork = owner.principal === undefined ? [] : channels.inWork(owner, requestId);
  const call = onStream ?? (inWork.length === 1 ? inWork[0] : undefined);
  if (call === undefined) channel?.cancelElsewhere(requestId);
  else call.cancel(typeof reason === 'string' ? reason : undefined);
}

/** A client without `initialize` has the capabilities of the option. */
function anyClient({ settings }: Services): Client {
  return unknownClient(settings.workspace.capabilities);
}

/** A handler that closes waits for outcomes that are being sent. */
function written(services: Services, telling: Promise<void>): void {
  const settled = kept(services, telling);
  services.writing.add(settled);
  void settled.then(() => services.writing.delete(settled));
}

/** If it cannot be shared with other processes, it stays in this one, and its client is served all the same. */
function kept(services: Services, keeping: Promise<void>): Promise<void> {
  return keeping.catch((error: unknown) => {
    const { message } = AwaitError.from(error);
    services.settings.logger.warn('a record of a stream could not be stored', { error: message });
  });
}
