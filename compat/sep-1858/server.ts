/**
 * SEP-1858, the server's side: a call ends its turn at its asks. They go out between `buffer_input` and
 * `input_required`, the connection ends, and the POST of an array of responses with the id of `input_required`
 * continues the same stream, in whichever process gets it.
 * The stream is read from the call's log, where the three are one entry, `suspended`. So the id of `input_required` names
 * the checkpoint that the next POST continues from.
 *
 * The same sessions, and replies that are read from the log; a turn ends at its asks, as on 2026-07-28, in every
 * request in which the server asks (`ping` and `logging/setLevel` are the SDK's own). Its checkpoint is the entry
 * that the client sees as `buffer_input`, the asks and `input_required`, so the id of `input_required` names the
 * checkpoint: there is no token, and nothing beside the stream. The next POST may reach any process, which reads
 * that entry and claims the next position. Where no answer of a POST is usable the same entry is sent again, under
 * ids of their own.
 *
 * With a store that processes share, a turn continues without its POST, as calls of 2025 do. A GET with the id of
 * `input_required` gets an empty stream: what follows is the reply of the POST of the answers. A client that resumes
 * the stream by GET makes that process follow the turn, and take it over if its owner was silent for a lease or gave
 * it up: the claim in the log has the answers, so the client need not send them again. If it does, to any process,
 * that is the same turn. A turn given up at a shutdown sends nothing on its stream; its POST gets 503, and the same
 * array is valid elsewhere.
 *
 * A running turn is cancelled as calls of 2025 are, and ends with its session. While a call is suspended no process
 * runs it, and a client that no longer wants it sends no answers.
 *
 * An answer that is a JSON-RPC error rejects the tool's `await`; `inputResponses` of 2026-07-28 has no errors, so
 * the engine accepts errors beside results.
 */
import { digest } from '../../src/base/digest.ts';
import { defined, type JsonObject } from '../../src/base/values.ts';
import type { ErrorAnswers } from '../../src/call/ask/answer.ts';
import { CANCELLED, type Entry, isEnd } from '../../src/call/journal/entries.ts';
import type { RequestContext } from '../../src/call/ports.ts';
import { goesOnElsewhere, isBadToken } from '../../src/call/run/wire-error.ts';
import type { Reply } from '../../src/doors/http/exchange.ts';
import { empty, json, rpcError } from '../../src/doors/http/reply.ts';
import type { HostInstance } from '../../src/host/instance.ts';
import { responseOf } from '../../src/host/transport.ts';
import { callIdOf, type EventPlace, parseEventId } from '../../src/stream/event-id.ts';
import type { StreamEvent } from '../../src/stream/log.ts';
import type { Sink } from '../../src/stream/tail.ts';
import { cancelElsewhere } from '../cancellation.ts';
import { later, unknownEventId } from '../failure.ts';
import {
  callAt,
  connect,
  eventsReply,
  finish,
  logOf,
  messageEvent,
  type ReplyDialect,
  type ReplyExchange,
  responseEvent,
  SESSION,
  type Suspended,
  sourceIn,
} from '../session/call-reply.ts';
import { CallsReply } from '../session/calls-reply.ts';
import type { Exchange } from '../session/exchange.ts';
import { introduced, refuseOneKind, serveLive, serveMessages } from '../session/live.ts';
import { accepts, refuseMessages } from '../session/requests.ts';
import type { Session } from '../session/session.ts';
import {
  askMessage,
  boundTo,
  type Caller,
  type RpcRequest,
  requestContextOf,
  type Say,
  sourceOf,
  startCall,
  type Way,
} from '../session/start.ts';
import type { SessionWire } from '../session/wire.ts';

/** The facts of SEP-1858's wire that both sides of a session need. */

const REVISION = 'DRAFT-SEP-1858';

/** The server disconnects after `input_required`. */
function untilInput(sink: Sink): Sink {
  return {
    ...sink,
    send: (event, id) => {
      const keepsUp = sink.send(event, id);
      if (event.event === 'input_required') sink.end('finished');
      return keepsUp;
    },
  };
}

// --- POSTs ---

const EVENTS = 'text/event-stream';
const LAST = 'last-event-id';

/** Requests that the SDKs answer by themselves. In any other, a server may ask ("one or more requests to the client"). */
const NEVER_ASK: ReadonlySet<string> = new Set(['ping', 'logging/setLevel']);

/** The turn that an `input_required` ended. */
interface SuspendedAt {
  readonly entry: Suspended;
  /** The position of the entry. */
  readonly at: number;
}

const DIALECT: ReplyDialect = {
  isEnd: isLastOf,
  project: ({ services }, { id, requestId }) => {
    const noData = services.settings.literal ? {} : { data: '' };
    return (entry) => {
      return { kind: 'events', events: eventsOf(id, requestId, entry, noData), last: isEnd(entry) };
    };
  },
  event: (message) => messageEvent(message),
  wrap: untilInput,
  caller: callerOf,
  source: sourceIn,
  way: wayOf,
};

function eventsOf(
  callId: string,
  requestId: string | number,
  entry: Entry,
  noData: { data?: string },
): StreamEvent[] {
  switch (entry.type) {
    case 'notified':
      return entry.messages.map(messageEvent);
    case 'suspended':
      return [
        { event: 'buffer_input', ...noData },
        ...entry.checkpoint.open.map((ask) => messageEvent(askMessage(callId, ask))),
        { event: 'input_required', ...noData },
      ];
    case 'ended':
      return [responseEvent(requestId, entry.response)];
    case 'cancelled':
      return entry.isErased ? [responseEvent(requestId, CANCELLED)] : [];
    default:
      return [];
  }
}

export const MULTI_TURN: SessionWire = {
  isDraft: true,
  reply: DIALECT,
  refuse(inbound, body) {
    const isTurn = inbound.header(LAST) !== undefined;
    // The POST that continues a turn may accept either kind of reply.
    const mayTakeOne = isTurn && (inbound.header('accept') ?? '') !== '';
    const isEmpty = isTurn && Array.isArray(body) && body.length === 0;
    return (
      (mayTakeOne ? undefined : refuseOneKind(inbound, body)) ?? (isEmpty ? undefined : refuseMessages(body))
    );
  },
  begun: (exchange, instance) => ({
    result: { ...introduced(exchange, instance), protocolVersion: REVISION },
  }),
  async post(exchange, body) {
    const last = exchange.inbound.header(LAST);
    if (last !== undefined && Array.isArray(body)) return goOn(exchange, last, body as JsonObject[]);
    if (last === undefined && !Array.isArray(body)) return serveMessages(exchange, body, start, DIALECT);
    return rpcError(400, -32600, 'Invalid Request: an array of responses goes with Last-Event-ID');
  },
  // Its streams are read from the logs of calls.
  follow: (_exchange, _stream, _last, sink) => sink,
};

async function start(exchange: Exchange, requests: readonly RpcRequest[], own?: string): Promise<Reply> {
  const [request] = requests;
  if (request === undefined || NEVER_ASK.has(request.method)) return serveLive(exchange, requests, own);
  return begin(exchange, request, await exchange.instance(), own);
}

/** The first turn of a call: its reply is held back until there is something to lose, and then is a stream. */
function begin(
  exchange: Exchange,
  request: RpcRequest,
  shared: HostInstance,
  own: string | undefined,
): Promise<Reply> {
  const { services, session, inbound, home } = exchange;
  const reply = new CallsReply(exchange, [request], own, DIALECT);
  const { log } = reply.of(request);
  const { store } = services;
  const started = startCall(
    services,
    {
      request,
      caller: callerOf(session),
      source: sourceOf(inbound),
      resumable: store?.isShared === true,
      ...log.how,
    },
    () => wayOf(exchange, log.direct, (response) => session.beforeEnd(request, response)),
    home && shared,
  );
  log.add(started);
  session.keepCall(request.id, started);
  void started.outcome.then((outcome) => {
    session.release(request.id);
    reply.respond(request, outcome);
  });
  reply.started();
  return reply.reply;
}

/** The next turn: an array of responses, with the id of the `input_required` that they answer. */
async function goOn(exchange: Exchange, last: string, messages: readonly JsonObject[]): Promise<Reply> {
  const { services, session, inbound } = exchange;
  if (messages.length === 0 || messages.some((message) => typeof message.method === 'string')) {
    return rpcError(400, -32600, 'Invalid Request: with Last-Event-ID the body is an array of responses');
  }
  const place = await placeOf(exchange, last);
  if (place === undefined) return unknownEventId(services, inbound);
  const { at, entry } = place;
  const { call } = entry.checkpoint;
  const { results, errors, missing } = sortByKey(exchange, entry, messages);
  const accept = inbound.header('accept') ?? '';
  const takesStream = accepts(accept, EVENTS);
  // Missing answers are asked for again, which takes a stream.
  if (missing && !takesStream) return notAcceptable();
  const reply = logOf(call, DIALECT);
  const connection = connect(exchange, reply, { sequence: at + 1 });
  let hasSaid = false;
  /** Resolves with the first thing that comes of the turn before its outcome. */
  const said = new Promise<undefined>((resolve) => {
    connection.onSaid(() => {
      hasSaid = true;
      resolve(undefined);
    });
  });
  let onCancel: ((reason?: string) => void) | undefined;
  const way = wayOf(
    exchange,
    (message) => connection.pass(messageEvent(message)),
    (response) => session.beforeEnd(call, response),
  );
  const begun: RequestContext['begun'] = (cancel) => {
    onCancel = cancel;
  };
  const context = requestContextOf(callerOf(session), sourceOf(inbound), call.params, { ...way, begun });
  const binding = boundTo(callerOf(session), call);
  const state = { callId: call.id, at, ...defined({ owner: entry.by }) };
  const turn = session.once(`${last} ${digest([results, errors])}`, async () => {
    const hasErrors = Object.keys(errors).length > 0;
    const offer = { binding, responses: results, ...(hasErrors && { errors }) };
    const resumed = services.engine.resumeAt(state, offer, context);
    // While it runs its client may cancel it, at any process, and its session stays.
    session.keepCall(call.requestId, {
      callId: call.id,
      outcome: resumed,
      answer: async () => false,
      report: () => false,
      cancel: (reason) => {
        if (onCancel !== undefined) onCancel(reason);
        else cancelElsewhere(services, session.name, call.requestId, session.principal);
      },
    });
    return resumed;
  });
  const release = session.hold();
  const outcome = await Promise.race([turn, takesStream ? said : new Promise<never>(() => {})]).finally(
    release,
  );
  const stream = (from = connection): Reply =>
    eventsReply(services, session, 'postStreams', (sink) => {
      from.attach(untilInput(sink));
      void turn.then((ended) => finish(exchange, reply, ended));
    });
  const without = (refused: Reply): Reply => {
    connection.end('closed');
    return refused;
  };
  if (outcome === undefined) return stream();
  if (isBadToken(outcome)) return without(await unknownEventId(services, inbound));
  // Its client has cancelled it, or disconnected, and gets no response.
  if (outcome.kind === 'gone') return without(empty(202));
  if (goesOnElsewhere(outcome)) return without(later('closed'));
  if (outcome.kind === 'responded') {
    const message = { jsonrpc: '2.0', id: call.requestId, ...outcome.response };
    const isAlone = async (): Promise<boolean> =>
      accepts(accept, 'application/json') &&
      !hasSaid &&
      !(outcome.elsewhere && (await hasMore(exchange, place)));
    if (!takesStream || (await isAlone())) return without(json(message, 200, { [SESSION]: session.id }));
  }
  if (!takesStream) return without(notAcceptable());
  // No answer was new: the entry comes again.
  const keysOf = (asks: readonly { key: string }[]): string => digest(asks.map(({ key }) => key));
  const isSame =
    outcome.kind === 'suspended' &&
    !connection.hasTurn &&
    keysOf(outcome.asks) === keysOf(entry.checkpoint.open);
  return stream(isSame ? connect(exchange, reply, { sequence: at + 1, nth: 0 }) : connection);
}

/** Whether the stream has more of a turn than its response. */
async function hasMore({ services: { logs } }: Exchange, { entry, at }: SuspendedAt): Promise<boolean> {
  const { id, principal } = entry.checkpoint.call;
  for (let next = at + 1; ; next += 1) {
    const found = await logs.read(id, next, principal);
    if (found === undefined || found.type === 'ended') return false;
    if (found.type === 'notified' || found.type === 'suspended') return true;
  }
}

/** Where a turn goes on; undefined if the id is not that of an `input_required`. */
async function placeOf(exchange: Exchange, last: string): Promise<SuspendedAt | undefined> {
  const event: EventPlace | undefined = parseEventId(last, exchange.services.settings.limits.eventIdBytes);
  const found = event && (await callAt(exchange, callIdOf(event.stream), event.sequence));
  const entry = found?.suspended;
  if (event === undefined || entry === undefined || !isLastOf(entry, event)) return undefined;
  return { entry, at: event.sequence - 1 };
}

/** Whether an event is the `input_required` of its entry. */
function isLastOf({ checkpoint }: Suspended, { nth }: EventPlace): boolean {
  return nth === undefined || nth === checkpoint.open.length + 2;
}

function sortByKey(
  { services }: Exchange,
  { checkpoint }: Suspended,
  messages: readonly JsonObject[],
): { results: JsonObject; errors: ErrorAnswers; missing: boolean } {
  const results: JsonObject = {};
  const errors: Record<string, ErrorAnswers[string]> = {};
  const keys = new Map(checkpoint.open.map(({ key }) => [`${checkpoint.call.id}/${key}`, key]));
  for (const message of messages) {
    const key = keys.get(String(message.id));
    if (key === undefined) {
      services.settings.logger.warn('an answer came to an ask that is not open', { id: message.id });
      continue;
    }
    const response = responseOf(message);
    if ('error' in response) errors[key] = response.error;
    else results[key] = response.result;
  }
  const missing = [...keys.values()].some(
    (key) => !Object.hasOwn(results, key) && !Object.hasOwn(errors, key),
  );
  return { results, errors, missing };
}

function callerOf({ caller }: Session): Caller {
  return { ...caller, revision: REVISION };
}

/** A turn ends at its asks, and continues without its POST where processes share a store. */
function wayOf(
  { services, home }: ReplyExchange,
  direct: Say,
  beforeEnd: NonNullable<RequestContext['beforeEnd']>,
): Way {
  return {
    live: false,
    isLogged: true,
    goesOn: services.store?.isShared === true,
    ...defined({ home }),
    notify: direct,
    beforeEnd,
  };
}

function notAcceptable(): Reply {
  return rpcError(
    406,
    -32000,
    'Not Acceptable: the call asks again, so the client must accept text/event-stream; send the same request again',
  );
}
