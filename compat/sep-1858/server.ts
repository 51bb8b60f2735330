/**
 * SEP-1858, the server's side: a call ends its turn at its asks. They go out between `buffer_input` and
 * `input_required`, the connection ends, and the POST of an array of responses with the id of `input_required`
 * continues the same stream, in whichever process gets it.
 * The state of the next turn is in the same stream entry as `input_required`, so it is in the store before the client
 * can answer; the call's own state was stored before that.
 */

import { AwaitError } from '../../src/base/error.ts';
import { digest, isObject, type JsonObject } from '../../src/base/json.ts';
import type { ErrorAnswers } from '../../src/call/ask/answer.ts';
import type { Binding, OpenAskOutcome, Outcome } from '../../src/call/ports.ts';
import { goesOnElsewhere, isBadToken, isKept } from '../../src/call/run/wire-error.ts';
import type { HostInstance } from '../../src/host/instance.ts';
import { responseOf } from '../../src/host/transport.ts';
import type { Reply } from '../../src/http/exchange.ts';
import { empty, isRequestId, json, rpcError } from '../../src/http/reply.ts';
import { type EventPlace, parseEventId } from '../../src/stream/event-id.ts';
import type { Found } from '../../src/stream/event-streams.ts';
import type { Sink } from '../../src/stream/tail.ts';
import { cancelElsewhere } from '../cancellation.ts';
import { failure, shuttingDown, unknownEventId } from '../failure.ts';
import type { Services } from '../services.ts';
import { SESSION, sse } from '../session/connection.ts';
import { cannotFollow, isToldMeanwhile } from '../session/follow.ts';
import { HeldReply } from '../session/held-reply.ts';
import { introduced, refuseOneKind, serveLive, serveMessages } from '../session/live.ts';
import { accepts, refuseMessages } from '../session/messages.ts';
import { followPost, isLeft } from '../session/post-calls.ts';
import { remembered } from '../session/requests.ts';
import type { Session } from '../session/session.ts';
import {
  boundTo,
  type Caller,
  isResumable,
  legOf,
  notifying,
  type RpcRequest,
  type Say,
  sourceOf,
  startCall,
  type Way,
} from '../session/start.ts';
import { type SessionStream, takingOver } from '../session/stream.ts';
import type { Exchange, SessionWire } from '../session/wire.ts';
import { REVISION, untilInput } from './wire.ts';

const EVENTS = 'text/event-stream';
const LAST = 'last-event-id';

/** Requests that the SDKs answer by themselves. In any other, a server may ask ("one or more requests to the client"). */
const NEVER_ASK: ReadonlySet<string> = new Set(['ping', 'logging/setLevel']);

/** The state stored beside `input_required`. */
interface Note {
  readonly token: string;
  readonly callId: string;
  readonly requestId: string | number;
  readonly binding: Binding;
  /** The keys of the asks that went out, by their ids on the wire. */
  readonly keys: Readonly<Record<string, string>>;
  readonly progressToken?: string | number;
}

/** An `input_required` event. */
interface Place extends EventPlace {
  readonly found: Found;
  readonly note: Note;
}

export const MULTI_TURN: SessionWire = {
  isDraft: true,
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
    if (last === undefined && !Array.isArray(body)) return serveMessages(exchange, body, start);
    return rpcError(400, -32600, 'Invalid Request: an array of responses goes with Last-Event-ID');
  },
  async isOver({ services, session }, last) {
    const { event } = await services.streams.event(last, session.id);
    return event === 'input_required';
  },
  follow(exchange, stream, _last, sink) {
    follow(exchange, stream, sink);
    return untilInput(sink);
  },
};

async function start(
  exchange: Exchange,
  requests: readonly RpcRequest[],
  own?: SessionStream,
): Promise<Reply> {
  const [request] = requests;
  if (request === undefined || NEVER_ASK.has(request.method)) return serveLive(exchange, requests, own);
  return begin(exchange, request, await exchange.instance(), own);
}

/** The first turn of a call: its reply is held back until there is something to lose, and then is a stream. */
function begin(
  call: Exchange,
  request: RpcRequest,
  shared: HostInstance,
  own: SessionStream | undefined,
): Promise<Reply> {
  const { services, session, inbound } = call;
  const stream = new HeldReply({ services, session, inbound, count: 1, own, wrap: untilInput });
  const { id: requestId, method, params } = request;
  const caller = callerOf(session);
  const resumable = isResumable(services, request);
  const started = startCall(
    services,
    { request, caller, source: sourceOf(inbound), resumable, ...stream.held.how },
    () => wayOf(call, (message) => stream.send(message), resumable),
    call.home && shared,
  );
  if (resumable) stream.held.add(started);
  session.keepCall(requestId, started);
  const binding = boundTo(caller, request);
  const note = { callId: started.callId, requestId, binding, ...progressOf(params) };
  void started.outcome.then(async (outcome) => {
    session.release(requestId);
    const isDone = outcome.kind === 'responded' && 'result' in outcome.response;
    if (isDone) await remembered(services, session.state.record(shared, method, params));
    await session.settled();
    if (isLeft(services, request, stream, outcome)) stream.handOver();
    else if (outcome.kind !== 'suspended') stream.respond(request, outcome);
    else {
      const asked = stream.opened().then(
        (opened) => askOn(services, session.id, opened, outcome, note),
        (error: unknown) => stream.respond(request, failure(services)(error)),
      );
      // A handler that closes waits for it.
      services.writing.add(asked);
      void asked.finally(() => services.writing.delete(asked));
    }
  });
  stream.started();
  return stream.reply;
}

/** The next turn: an array of responses, with the id of the `input_required` that they answer. */
async function goOn(call: Exchange, last: string, messages: readonly JsonObject[]): Promise<Reply> {
  const { services, session, inbound } = call;
  if (messages.length === 0 || messages.some((message) => typeof message.method === 'string')) {
    return rpcError(400, -32600, 'Invalid Request: with Last-Event-ID the body is an array of responses');
  }
  const place = await placeOf(call, last);
  if (place === undefined) return unknownEventId(services, inbound);
  const { found, note, stream: streamId } = place;
  const { results, errors, missing } = sortByKey(call, note, messages);
  const accept = inbound.header('accept') ?? '';
  const takesStream = accepts(accept, EVENTS);
  // Missing answers are asked for again, which takes a stream.
  if (missing && !takesStream) return notAcceptable();
  const takeOver = takingOver(services, streamId, session.id, found.end);
  /** Whether this process knows that nothing else came of the turn. */
  let isAlone = false;
  let hasSaid = false;
  /** Resolves with the first thing that comes of the turn before its outcome. */
  let onSaid = (): void => {};
  const said = new Promise<undefined>((resolve) => {
    onSaid = () => resolve(undefined);
  });
  const say = (message: JsonObject): void => {
    void takeOver().then(
      (taken) => taken.send(message),
      (error: unknown) => cannotFollow(services, error),
    );
    hasSaid = true;
    onSaid();
  };
  const begun = (cancel: (reason?: string) => void): void => {
    onCancel = cancel;
  };
  const { progressToken } = note;
  const params = progressToken === undefined ? {} : { _meta: { progressToken } };
  const leg = legOf(callerOf(session), sourceOf(inbound), params, { ...wayOf(call, say), begun });
  let onCancel: ((reason?: string) => void) | undefined;
  const hasErrors = Object.keys(errors).length > 0;
  const turn = session.once(`${last} ${digest([results, errors])}`, async () => {
    const resumed = services.engine.resume(
      note.token,
      note.binding,
      results,
      leg,
      hasErrors ? errors : undefined,
    );
    const { callId, requestId } = note;
    // While it runs its client may cancel it, at any process, and its session stays.
    session.keepCall(requestId, {
      callId,
      outcome: resumed,
      answer: async () => false,
      report: () => false,
      cancel: (reason) => {
        if (onCancel !== undefined) onCancel(reason);
        else cancelElsewhere(services, session.name, requestId, session.principal);
      },
    });
    const outcome = await resumed;
    await session.settled();
    if (outcome.kind === 'gone') await finishIn(services, takeOver);
    else if (outcome.kind !== 'task' && !isBadToken(outcome) && !goesOnElsewhere(outcome))
      isAlone = (await toldBy(call, last, place, outcome, takeOver)) && !hasSaid;
    return outcome;
  });
  const release = session.hold();
  const outcome = await Promise.race([turn, takesStream ? said : new Promise<never>(() => {})]).finally(
    release,
  );
  if (outcome === undefined) return sse(services, session, found, 'postStreams', untilInput);
  if (isBadToken(outcome)) return unknownEventId(services, inbound);
  // Its client has cancelled it, or disconnected, and gets no response.
  if (outcome.kind === 'gone') return empty(202);
  if (goesOnElsewhere(outcome)) return shuttingDown();
  if (outcome.kind === 'responded') {
    const takesJson = accepts(accept, 'application/json');
    const isAll = async (): Promise<boolean> =>
      isAlone || (await services.streams.next(last, session.id))?.isLast !== false;
    const isStream = takesStream && !(takesJson && (await isAll()));
    const message = { jsonrpc: '2.0', id: note.requestId, ...outcome.response };
    if (!isStream) return json(message, 200, { [SESSION]: session.id });
  }
  return takesStream ? sse(services, session, found, 'postStreams', untilInput) : notAcceptable();
}

/** A client that returns for its stream: sends its call's events since then. */
function follow(call: Exchange, stream: string, sink: Sink): void {
  const { services, session, inbound, home } = call;
  followPost({ services, session, stream, source: sourceOf(inbound), home, sink }, (takeOver, taken) => ({
    caller: () => callerOf(session),
    way: () => wayOf(call, (message) => void taken()?.send(message)),
    isTold: async (_callId, outcome) => {
      const last = await services.streams.lastOf(stream, session.id);
      return outcome.kind === 'suspended' && last?.event === 'input_required';
    },
    tell: async ({ id: callId, requestId, method, params }, outcome) => {
      await session.settled();
      const binding = boundTo(callerOf(session), { method, params });
      const note = { callId, requestId, binding, ...progressOf(params) };
      tell(services, session.id, await takeOver(), outcome, note);
    },
  }));
}

async function finishIn(services: Services, takeOver: () => Promise<SessionStream>): Promise<void> {
  try {
    (await takeOver()).finish();
  } catch (error) {
    cannotFollow(services, error);
  }
}

/**
 * Sends a turn's outcome: by the process that ran it, or by one that read it from the journal if that process went
 * silent before.
 * @param place of the event that the turn began after
 * @returns whether it was sent here, by an appender that had the stream from that event on
 */
async function toldBy(
  call: Exchange,
  last: string,
  { sequence, note }: Place,
  outcome: Exclude<Outcome, { kind: 'gone' | 'task' }>,
  takeOver: () => Promise<SessionStream>,
): Promise<boolean> {
  const { services, session } = call;
  const finish = async (): Promise<boolean> => {
    try {
      const stream = await takeOver();
      const isFirst = stream.follows(sequence);
      // The turn was run where its frame is, and may have been asked for there, too.
      const isDone = !isFirst && (await isTold(services, session, last));
      if (!isDone) tell(services, session.id, stream, outcome, note);
      return isFirst;
    } catch (error) {
      cannotFollow(services, error);
      return false;
    }
  };
  if (!outcome.elsewhere) return finish();
  const goesOn = (): Promise<boolean> => services.streams.goesOn(last, session.id);
  isToldMeanwhile(services, goesOn)
    .then((isTold) => (isTold ? undefined : finish()))
    .catch((error: unknown) => cannotFollow(services, error));
  return false;
}

/** Whether a turn that began after an event has its end in the stream. */
async function isTold({ store, streams }: Services, session: Session, last: string): Promise<boolean> {
  if (store?.isShared !== true) return false;
  for (let id: string | undefined = last; id !== undefined; ) {
    const next = await streams.next(id, session.id);
    if (next?.isLast || next?.event.event === 'input_required') return true;
    id = next?.id;
  }
  return false;
}

/** The end of a turn, as events of its stream. */
function tell(
  services: Services,
  scope: string,
  stream: SessionStream,
  outcome: Outcome,
  note: Omit<Note, 'token' | 'keys'>,
): void {
  if (outcome.kind === 'responded') {
    stream.end({ jsonrpc: '2.0', id: note.requestId, ...outcome.response }, isKept(outcome));
  } else if (outcome.kind === 'suspended') {
    askOn(services, scope, stream, outcome, note);
  } else stream.finish();
}

function askOn(
  { settings, streams }: Services,
  scope: string,
  stream: SessionStream,
  { asks, token }: OpenAskOutcome,
  note: Omit<Note, 'token' | 'keys'>,
): void {
  const idOf = (key: string): string => `${stream.id}/${key}`;
  const noData = settings.literal ? {} : { data: '' };
  stream.event({ event: 'buffer_input', ...noData });
  for (const { key, method, params } of asks) {
    stream.send({
      jsonrpc: '2.0',
      id: idOf(key),
      method,
      ...(Object.keys(params).length > 0 && { params }),
    });
  }
  const keys = Object.fromEntries(asks.map(({ key }) => [idOf(key), key]));
  const { callId, requestId, binding, progressToken } = note;
  const progress = progressToken === undefined ? {} : { progressToken };
  const kept: Note = { token, callId, requestId, binding, keys, ...progress };
  const written = stream.event({ event: 'input_required', ...noData, note: kept as unknown as JsonObject });
  // The next turn may be another process's, and this one would not hear of the stream's end.
  void written.then(() => streams.rest(stream.id, scope));
}

/** Where a turn goes on; undefined if the id is not that of an `input_required`. */
async function placeOf({ services, session }: Exchange, last: string): Promise<Place | undefined> {
  const { streams, settings } = services;
  try {
    const found = await streams.resume(last, session.id);
    const { entry } = found.end ?? {};
    const { event, note } = entry?.kind === 'event' ? entry.event : await streams.event(last, session.id);
    const place = parseEventId(last, settings.limits.eventIdBytes);
    if (event !== 'input_required' || note === undefined || place === undefined) return undefined;
    return { ...place, found, note: note as unknown as Note };
  } catch (error) {
    const failure = AwaitError.from(error);
    if (failure.code !== 'bad-token') throw error;
    settings.logger.warn(failure.message, { cause: String(failure.cause ?? '') });
    return undefined;
  }
}

function sortByKey(
  { services }: Exchange,
  note: Note,
  messages: readonly JsonObject[],
): { results: JsonObject; errors: ErrorAnswers; missing: boolean } {
  const results: JsonObject = {};
  const errors: Record<string, ErrorAnswers[string]> = {};
  for (const message of messages) {
    const id = String(message.id);
    const key = Object.hasOwn(note.keys, id) ? note.keys[id] : undefined;
    if (key === undefined) {
      services.settings.logger.warn('an answer came to an ask that is not open', { id: message.id });
      continue;
    }
    const response = responseOf(message);
    if ('error' in response) errors[key] = response.error;
    else results[key] = response.result;
  }
  const missing = Object.values(note.keys).some(
    (key) => !Object.hasOwn(results, key) && !Object.hasOwn(errors, key),
  );
  return { results, errors, missing };
}

function progressOf({ _meta }: JsonObject): { readonly progressToken?: string | number } {
  const { progressToken } = isObject(_meta) ? _meta : {};
  return isRequestId(progressToken) ? { progressToken } : {};
}

function callerOf({ caller }: Session): Caller {
  return { ...caller, revision: REVISION };
}

/** A turn ends at its asks, and continues without its POST where processes share a store. */
function wayOf({ services, home }: Exchange, say: Say, goesOn = services.store?.isShared === true): Way {
  return {
    live: false,
    goesOn,
    ...(home !== undefined && { home }),
    notify: notifying(say),
  };
}

function notAcceptable(): Reply {
  return rpcError(
    406,
    -32000,
    'Not Acceptable: the call asks again, so the client must accept text/event-stream; send the same request again',
  );
}
