/**
 * `GET` and `POST /mcp/:workspace`: requests by POST, responses and the messages before them as named events, on the
 * open GET of the same caller and workspace or on the POST's own body. There is no session. docs/workspace-sse.md is
 * the wire.
 *
 * `compat/workspace-sse`; `docs/workspace-sse.md` specifies the wire. There is no session; streams last.
 *
 * 1. A request's response goes to the open GET of the same caller and workspace (202), else to the POST's own body:
 *    as an event where it takes server-sent events, else as JSON. Where it goes is decided once, before the call is
 *    started, and by nothing that is in the message: so equal ids of two clients cannot meet.
 * 2. The caller is the principal; an anonymous one is identified by address, forwarded address, and `User-Agent`.
 *    With more than one open GET of a caller only a POST that names its stream (`Mcp-Stream-Id`) is tied to one.
 * 3. An id of a GET's stream is random; its records stand under a digest of it with principal and workspace, so
 *    nobody else's can be followed. Every process may append to it, so the call runs where the POST came in.
 * 4. Open GETs are in memory, and in four slots of the store for each caller and workspace, inserted if absent and
 *    renewed once a lease: a hint, whose loss costs a response on the POST's own body.
 * 5. Ids that were used on a GET's stream are inserted beside it, and refused again for as long as it lives. Without
 *    one an id is its POST's alone.
 * 6. A POST's own body becomes a stream with the first message before its response, read from the call's log; until then
 *    its client has no id to resume with, and a disconnect cancels the call.
 * 7. Asks are events `notification` with the call's id and the ask's key for an id; answers are received as in 2025.
 * 8. The calls of a stream are named in it. The process that has its connection reads their logs, and takes over calls
 *    whose process is silent for a lease.
 * 9. Capabilities come from the option until an `initialize` that is tied to a GET's stream; its record is kept
 *    beside that.
 * 10. One instance for each call.
 */
import { Quota, type Shares } from '../../src/base/quota.ts';
import { CANCEL, deferred, invalidParams, type JsonObject } from '../../src/base/values.ts';
import { type Begun, newCallId } from '../../src/call/engine.ts';
import type { Client } from '../../src/call/journal/entries.ts';
import { DisconnectSignal } from '../../src/doors/http/disconnect-signal.ts';
import type { GuardedWriter, Inbound, Reply } from '../../src/doors/http/exchange.ts';
import type { Place } from '../../src/doors/http/paths.ts';
import { empty, idOf, isRequestId, json, rpcError } from '../../src/doors/http/reply.ts';
import type { Services } from '../../src/handler/services.ts';
import { SPOKEN } from '../../src/host/spoken.ts';
import type { Sink } from '../../src/stream/tail.ts';
import { undelivered } from '../failure.ts';
import { quotaKeyOf } from '../quota-key.ts';
import type { Edges } from '../revision.ts';
import { connect, finish, replyTo } from '../session/call-reply.ts';
import { Held } from '../session/held.ts';
import { clientOf, NO_CLIENT } from '../session/initialize.ts';
import { LastingCall } from '../session/lasting.ts';
import { loggedWay, messageOf } from '../session/start.ts';
import { sinkOf } from '../sink.ts';
import { Calls, senderOf, unknownClient, type WorkspaceCaller } from './calls.ts';
import { Channels, type StreamOwner, type WorkspaceChannel } from './channels.ts';
import { listen, type WorkspaceParts, whoIs } from './connection.ts';
import { Listeners } from './listeners.ts';
import { readMessage, type WorkspaceRequest } from './message.ts';
import { eventOf, eventText, FRAMING, HEADERS, STREAM } from './wire.ts';

/**
 * A POST's own body, for a client without an open GET. A response without earlier messages is the whole body, and is
 * not stored. Earlier messages make it a stream, read from the call's log, with ids for resuming.
 */

interface Connection {
  readonly writer: GuardedWriter;
  readonly sink: Sink;
}

class OwnBody {
  readonly reply: Reply;
  readonly #calls: Calls;
  readonly #asker: WorkspaceCaller;
  /** Fires when the client goes away and has nothing to come back with. */
  readonly #gone = new DisconnectSignal();
  /** Undefined if its client left before. */
  readonly #connection = deferred<Connection | undefined>();
  /** Whether its client has an id to come back with. */
  #hasId = false;

  constructor(calls: Calls, asker: WorkspaceCaller) {
    const { signal } = asker.inbound;
    this.#calls = calls;
    this.#asker = asker;
    this.reply = { status: 200, headers: HEADERS, body: (writer) => this.#connect(writer) };
    const onAbort = (): void => {
      if (!this.#hasId) this.#gone.fire();
      this.#connection.resolve(undefined);
    };
    signal.addEventListener('abort', onAbort, { once: true });
  }

  /** Runs a request whose reply it is. */
  start(request: WorkspaceRequest): Begun {
    const exchange = this.#calls.exchange(this.#asker);
    const { services, session } = exchange;
    const callId = newCallId(services.now() + services.settings.ttl);
    const reply = replyTo(request, callId, this.#calls.dialect(this.#asker));
    const held = new Held(services, async () => {
      const connection = connect(exchange, reply);
      try {
        if (!(await started.keep())) return;
        held.release();
        const { sink } = (await this.#connection.promise) ?? {};
        if (sink !== undefined) connection.attach(sink);
      } finally {
        connection.unattached();
      }
    });
    const direct = (message: JsonObject): void => services.replies.get(callId)?.pass(eventOf(message));
    const way = { ...loggedWay(direct, () => undefined), signal: this.#gone };
    const how = { callId, session: session.name, onDurable: () => held.keep() };
    const started: Begun = this.#calls.start(request, this.#asker, way, how);
    void started.outcome.then(async (outcome) => {
      await held.settled();
      if (held.isHeld) this.respond(messageOf(request, outcome));
      else finish(exchange, reply, outcome);
    });
    return started;
  }

  /** The whole of it. @param message undefined where there is nothing to say */
  respond(message: JsonObject | undefined): void {
    void this.#connection.promise.then((connection) => {
      if (connection === undefined) return;
      if (message !== undefined) connection.writer.write(eventText(eventOf(message, true)));
      connection.sink.end('finished');
    });
  }

  #connect(writer: GuardedWriter): void {
    const { services } = this.#calls;
    services.counters.postStreams += 1;
    const sink = sinkOf(services, writer, { framing: FRAMING });
    const send: Sink['send'] = (event, id) => {
      this.#hasId ||= id !== undefined;
      return sink.send(event, id);
    };
    this.#connection.resolve({ writer, sink: { ...sink, send } });
  }
}

// --- requests ---

export function createEdge(services: Services): Edges {
  const { sessions: all, callerSessions: caller, anonymousSessions: anonymous } = services.settings.limits;
  const shares: Shares = { all, caller, anonymous };
  const parts: WorkspaceParts = {
    services,
    calls: new Calls(services),
    channels: new Channels(services, new Quota(shares)),
    listeners: new Listeners(services),
    room: new Quota(shares),
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

function ownerOf(services: Services, inbound: Inbound, place: Place): StreamOwner {
  const workspace = place.wire === 'workspace' ? place.workspace : '';
  return { ...quotaKeyOf(services, inbound), workspace };
}

async function post(
  parts: WorkspaceParts,
  inbound: Inbound,
  body: unknown,
  owner: StreamOwner,
): Promise<Reply> {
  const posted = readMessage(body);
  switch (posted.kind) {
    case 'invalid':
      return refuse(parts, inbound, owner, idOf(body), posted);
    case 'response':
      if ((await parts.calls.live.answer(senderOf(owner), posted.message)) === undefined) {
        parts.services.settings.logger.warn('an answer came to an ask that is not open here', {
          id: posted.message.id,
        });
        return undelivered(parts.services, posted.message.id);
      }
      return empty(202);
    case 'notification':
      if (posted.method === CANCEL) await cancel(parts, inbound, owner, posted.params);
      if (posted.method === 'notifications/progress')
        await parts.calls.live.report(senderOf(owner), posted.params);
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
  parts: WorkspaceParts,
  inbound: Inbound,
  owner: StreamOwner,
  id: string | number | null,
  { code, message }: { readonly code: number; readonly message: string },
): Promise<Reply> {
  const reply = rpcError(400, code, message, id);
  if (!isRequestId(id)) return reply;
  const channel = await channelOf(parts, inbound, owner);
  if (channel === undefined || !(await channel.reserve(id))) return reply;
  const told = channel.respond({ jsonrpc: '2.0', id, error: { code, message } });
  written(
    parts.services,
    told.then(() => {}),
  );
  return empty(202);
}

async function serve(
  parts: WorkspaceParts,
  inbound: Inbound,
  owner: StreamOwner,
  request: WorkspaceRequest,
): Promise<Reply> {
  const isFirst = request.method === 'initialize';
  /** Of an `initialize`. */
  const said = isFirst ? clientOf(request.params, SPOKEN) : undefined;
  if (isFirst && said === undefined) {
    return refuse(parts, inbound, owner, request.id, invalidParams(NO_CLIENT));
  }
  const channel = await channelOf(parts, inbound, owner);
  if (channel !== undefined) return serveOn(parts, inbound, channel, request, said);
  const accept = inbound.header('accept') ?? '*/*';
  const takesEvents = /text\/(event-stream|\*)/.test(accept);
  if (!takesEvents && !/application\/json|application\/\*|\*\/\*/.test(accept)) {
    const message = 'Not Acceptable: Client must accept text/event-stream or application/json';
    return rpcError(406, -32000, message, request.id);
  }
  return takesEvents
    ? serveEvents(parts, inbound, owner, request, said)
    : serveJson(parts, inbound, owner, request, said);
}

/** The response goes over the stream of a GET, in whichever process that is. */
async function serveOn(
  { services, calls }: WorkspaceParts,
  inbound: Inbound,
  channel: WorkspaceChannel,
  request: WorkspaceRequest,
  said: Client | undefined,
): Promise<Reply> {
  if (!(await channel.reserve(request.id))) {
    const message = 'Invalid Request: a request with this id was sent on this stream before';
    return rpcError(400, -32600, message, request.id);
  }
  const { owner } = channel;
  if (said !== undefined) {
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
  const call = new LastingCall(
    calls.exchange(asker, channel),
    request,
    calls.dialect(asker, channel),
    channel,
  );
  const { log } = call.stream;
  const started = calls.start(
    request,
    asker,
    loggedWay(log.direct, () => undefined),
    log.how,
  );
  log.add(started);
  channel.keep(request.id, started);
  await call.begun(started.outcome);
  return empty(202);
}

/** The response is an event of the POST's own body. */
function serveEvents(
  { services, calls, channels }: WorkspaceParts,
  inbound: Inbound,
  owner: StreamOwner,
  request: WorkspaceRequest,
  said: Client | undefined,
): Reply {
  const body = new OwnBody(calls, { owner, inbound, client: anyClient(services) });
  if (said !== undefined) {
    const initialized = calls.initialize(request, { owner, inbound, client: said });
    void initialized.then((message) => body.respond(message));
  } else {
    channels.keepOwn({ owner, requestId: request.id, started: body.start(request), signal: inbound.signal });
  }
  return body.reply;
}

/** One JSON body: no message can go before it, so the client counts as one that cannot be asked. */
async function serveJson(
  { calls, channels }: WorkspaceParts,
  inbound: Inbound,
  owner: StreamOwner,
  request: WorkspaceRequest,
  said: Client | undefined,
): Promise<Reply> {
  if (said !== undefined) {
    return json(await calls.initialize(request, { owner, inbound, client: said }));
  }
  const asker = { owner, inbound, client: unknownClient({}) };
  const { signal } = inbound;
  const started = calls.start(request, asker, { live: true, notify: () => {}, signal });
  channels.keepOwn({ owner, requestId: request.id, started, signal });
  const outcome = await started.outcome;
  const message = messageOf(request, outcome);
  return message === undefined ? empty(499) : json(message);
}

/** The stream that a request was sent on, if any. */
async function channelOf(
  { channels, listeners }: WorkspaceParts,
  inbound: Inbound,
  owner: StreamOwner,
): Promise<WorkspaceChannel | undefined> {
  const stream = await listeners.find(whoIs(owner, inbound), inbound.header(STREAM));
  return stream === undefined ? undefined : channels.of(owner, stream);
}

/** By the stream that the request was sent on; without one, where the caller has one request of this id here. */
async function cancel(
  parts: WorkspaceParts,
  inbound: Inbound,
  owner: StreamOwner,
  { requestId, reason }: JsonObject,
): Promise<void> {
  if (typeof requestId !== 'string' && typeof requestId !== 'number') return;
  const channel = await channelOf(parts, inbound, owner);
  const onStream = channel?.calls.get(requestId);
  const inWork = owner.principal === undefined ? [] : parts.channels.inWork(owner, requestId);
  const call = onStream ?? (inWork.length === 1 ? inWork[0] : undefined);
  if (call === undefined) channel?.cancelElsewhere(requestId);
  else call.cancel(typeof reason === 'string' ? reason : undefined);
}

/** A client without `initialize` has the capabilities of the option. */
function anyClient({ settings }: Services): Client {
  return unknownClient(settings.workspaceCapabilities);
}

/** A handler that closes waits for outcomes that are being sent. */
function written(services: Services, telling: Promise<void>): void {
  // If it cannot be shared with other processes, it stays in this one, and its client is served all the same.
  const settled = telling.catch((error: unknown) => {
    services.settings.logger.warn('a record of a stream could not be stored', { error });
  });
  services.writing.add(settled);
  void settled.then(() => services.writing.delete(settled));
}
