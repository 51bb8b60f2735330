/**
 * SEP-1858, the server's side: a call ends its turn at its asks. They go out between `buffer_input` and
 * `input_required`, the connection ends, and the POST of an array of responses with the id of `input_required`
 * goes on with the same stream, in whichever process gets it.
 *
 * Beside `input_required`, in the same entry of the stream, stands what the next turn needs: so it is in the
 * store before the client is told, and the call's own state was before that.
 */
import type { ErrorAnswers } from '../../src/call/answer.ts';
import type { Started } from '../../src/call/engine.ts';
import { digest, isObject, type JsonObject } from '../../src/call/json.ts';
import type { Binding, Leg, OpenAskOutcome, Outcome } from '../../src/call/ports.ts';
import { goesOnElsewhere, isBadToken } from '../../src/call/wire-error.ts';
import { AwaitError } from '../../src/error.ts';
import type { HostInstance } from '../../src/host/instance.ts';
import { responseOf } from '../../src/host/transport.ts';
import type { Inbound, Reply } from '../../src/http/exchange.ts';
import { empty, isRequestId, json, rpcError } from '../../src/http/reply.ts';
import { parseEventId } from '../../src/stream/event-id.ts';
import type { Sink } from '../../src/stream/tail.ts';
import { isLeft, pause, rememberCalls } from '../2025/calls.ts';
import { SESSION, sourceOf, sse } from '../2025/connection.ts';
import { accepts } from '../2025/messages.ts';
import type { RpcRequest, Session } from '../2025/session.ts';
import { SessionStream } from '../2025/stream.ts';
import { cancelElsewhere } from '../cancellation.ts';
import { shuttingDown, unknownEventId } from '../failure.ts';
import type { Services } from '../services.ts';
import { REVISION } from './wire.ts';

const EVENTS = 'text/event-stream';

/** What stands beside `input_required`. */
interface Note {
  readonly token: string;
  readonly callId: string;
  readonly requestId: string | number;
  readonly binding: Binding;
  /** The keys of the asks that went out, by their ids on the wire. */
  readonly keys: Readonly<Record<string, string>>;
  readonly progressToken?: string | number;
}

export interface Call {
  readonly services: Services;
  readonly session: Session;
  readonly inbound: Inbound;
  /** The session's instance, where a session has one. */
  readonly home?: () => Promise<HostInstance>;
}

/** The first turn of a call, on a stream of its own. */
export async function begin(
  call: Call,
  request: RpcRequest,
  instance: HostInstance | undefined,
): Promise<Reply> {
  const { services, session } = call;
  const stream = session.newStream();
  const found = await services.streams.find(stream.id, 0, session.id);
  const { method, params, id: requestId } = request;
  const { client } = session;
  const binding = session.binding(request, REVISION);
  const progress = progressOf(params);
  const leg: Leg = { ...legOf(call, (message) => stream.send(message)), ...progress };
  const resumable = leg.goesOn === true;
  const started = services.engine.start(
    { method, params, requestId, client, binding, resumable },
    leg,
    instance,
  );
  session.keepCall(requestId, started);
  const note = { callId: started.callId, requestId, binding, ...progress };
  void started.outcome.then(async (outcome) => {
    session.release(requestId);
    await session.settled();
    if (!isLeft(services, request, stream, outcome)) tell(services, session.id, stream, outcome, note);
  });
  await started.kept;
  await rememberCalls(services, session, stream.id, [{ request, started }]);
  return sse(services, session, found, 'postStreams');
}

/** The next turn: an array of responses, with the id of the `input_required` that they answer. */
export async function goOn(call: Call, last: string, messages: readonly JsonObject[]): Promise<Reply> {
  const { services, session, inbound } = call;
  if (messages.length === 0 || messages.some((message) => typeof message.method === 'string')) {
    return rpcError(400, -32600, 'Invalid Request: with Last-Event-ID the body is an array of responses');
  }
  const note = await noteOf(call, last);
  if (note === undefined) return unknownEventId(services, inbound);
  const { results, errors, missing } = sortByKey(call, note, messages);
  const accept = inbound.header('accept') ?? '';
  const takesStream = accepts(accept, EVENTS);
  // What is missing is asked again, and that takes a stream.
  if (missing && !takesStream) return notAcceptable();
  const found = await services.streams.resume(last, session.id);
  const { stream: streamId } = parseEventId(last, services.settings.limits.eventIdBytes) ?? { stream: '' };
  const takeOver = takingOver(services, session, streamId);
  /** Resolves with the first thing that comes of the turn before its outcome. */
  let onSaid = (): void => {};
  const said = new Promise<undefined>((resolve) => {
    onSaid = () => resolve(undefined);
  });
  const leg: Leg = {
    ...legOf(call, (message) => {
      void takeOver().then(
        (taken) => taken.send(message),
        (error: unknown) => failed(services, error),
      );
      onSaid();
    }),
    ...(note.progressToken !== undefined && { progressToken: note.progressToken }),
    begun: (cancel) => {
      onCancel = cancel;
    },
  };
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
    // For as long as it is in work its client may cancel it, at any process, and its session stays.
    session.keepCall(requestId, {
      callId,
      outcome: resumed,
      answer: async () => false,
      cancel: (reason) => {
        if (onCancel !== undefined) onCancel(reason);
        else cancelElsewhere(services, session.name, requestId, session.principal);
      },
    });
    const outcome = await resumed;
    await session.settled();
    if (outcome.kind === 'gone') await finishIn(services, takeOver);
    else if (outcome.kind !== 'task' && !isRefused(outcome) && !isOthers(outcome))
      await toldBy(call, last, outcome, note, takeOver);
    return outcome;
  });
  const release = session.hold();
  const outcome = await Promise.race([turn, takesStream ? said : new Promise<never>(() => {})]).finally(
    release,
  );
  if (outcome === undefined) return sse(services, session, found, 'postStreams');
  if (isRefused(outcome)) return unknownEventId(services, inbound);
  // Its client has cancelled it, or left: there is no response.
  if (outcome.kind === 'gone') return empty(202);
  if (isOthers(outcome)) return shuttingDown();
  if (outcome.kind === 'responded') {
    const takesJson = accepts(accept, 'application/json');
    const isStream = takesStream && (!takesJson || (await saysMore(services, session, last)));
    const message = { jsonrpc: '2.0', id: note.requestId, ...outcome.response };
    if (!isStream) return json(message, 200, { [SESSION]: session.id });
  }
  return takesStream ? sse(services, session, found, 'postStreams') : notAcceptable();
}

/** Whether something comes before the response that a stream has after an event: then it is told as a stream. */
async function saysMore({ streams }: Services, session: Session, last: string): Promise<boolean> {
  const next = await streams.next(last, session.id);
  return next !== undefined && !next.isLast;
}

/** A client that comes back for its stream: what became of its call meanwhile is told there. */
export function follow(call: Call, streamId: string, sink: Sink): void {
  void followCall(call, streamId, sink).catch((error: unknown) => failed(call.services, error));
}

async function followCall(call: Call, streamId: string, sink: Sink): Promise<void> {
  const { services, session, home } = call;
  const { store, streams, engine, settings } = services;
  if (store?.isShared !== true) return;
  const calls = await store.get(`${streamId}:calls`);
  const callId = Array.isArray(calls) ? String(calls[0]) : undefined;
  if (callId === undefined || session.runs(callId)) return;
  const first = await store.read(callId, 0);
  if (first?.type !== 'called') return;
  const { method, params, requestId } = first.call;
  const binding = session.binding({ id: requestId, method, params }, REVISION);
  const note = { callId, requestId, binding, ...progressOf(params) };
  const takeOver = takingOver(services, session, streamId);
  let isThere = true;
  let stream: SessionStream | undefined;
  const leg: Leg = { ...legOf(call, (message) => stream?.send(message)), ...progressOf(params) };
  const started: Started = engine.takeUp(callId, binding, leg, async () => {
    stream = await takeOver();
    session.keepCall(requestId, started);
    return home?.();
  });
  sink.onClose(() => {
    isThere = false;
    if (stream === undefined) started.cancel();
  });
  const outcome = await started.outcome;
  await session.settled();
  if (isOthers(outcome) || outcome.kind === 'task' || (!isThere && stream === undefined)) return;
  if (stream === undefined) {
    // Its process tells it, unless it died in between.
    await pause(settings.limits.lease);
    const isAsked = (await streams.lastOf(streamId, session.id))?.event === 'input_required';
    if (!isThere || (outcome.kind === 'suspended' && isAsked)) return;
  }
  if (outcome.kind === 'gone') await finishIn(services, takeOver);
  else tell(services, session.id, await takeOver(), outcome, note);
}

/** The stream, from when this process has something to say on it. */
function takingOver(services: Services, { id }: Session, streamId: string): () => Promise<SessionStream> {
  let stream: Promise<SessionStream> | undefined;
  return () => {
    stream ??= services.streams
      .takeOver(streamId, id)
      .then((appender) => new SessionStream(appender, services));
    return stream;
  };
}

async function finishIn(services: Services, takeOver: () => Promise<SessionStream>): Promise<void> {
  try {
    (await takeOver()).finish();
  } catch (error) {
    failed(services, error);
  }
}

/** Whether another process goes on with the call, or is to. */
function isOthers(outcome: Outcome): boolean {
  return outcome.kind === 'responded' && goesOnElsewhere(outcome.response);
}

/** Whoever ran the turn tells its outcome; who only read of it does so when that process went silent before. */
async function toldBy(
  call: Call,
  last: string,
  outcome: Exclude<Outcome, { kind: 'gone' | 'task' }>,
  note: Note,
  takeOver: () => Promise<SessionStream>,
): Promise<void> {
  const { services, session } = call;
  const finish = async (): Promise<void> => {
    try {
      const stream = await takeOver();
      // The turn was run where its frame is, and may have been asked for there, too.
      if (!(await isTold(services, session, last))) tell(services, session.id, stream, outcome, note);
    } catch (error) {
      failed(services, error);
    }
  };
  if (!outcome.elsewhere) return finish();
  const { lease } = services.settings.limits;
  const late = async (): Promise<void> => {
    if (!(await services.streams.goesOn(last, session.id))) await finish();
  };
  setTimeout(() => void late().catch((error: unknown) => failed(services, error)), lease).unref();
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
    stream.end({ jsonrpc: '2.0', id: note.requestId, ...outcome.response });
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

async function noteOf({ services, session }: Call, last: string): Promise<Note | undefined> {
  try {
    const { event, note } = await services.streams.event(last, session.id);
    return event === 'input_required' ? (note as unknown as Note | undefined) : undefined;
  } catch (error) {
    const failure = AwaitError.from(error);
    if (failure.code !== 'bad-token') throw error;
    services.settings.logger.warn(failure.message, { cause: String(failure.cause ?? '') });
    return undefined;
  }
}

function sortByKey(
  { services }: Call,
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

function legOf({ services, inbound, session, home }: Call, send: (message: JsonObject) => void): Leg {
  return {
    ...sourceOf(inbound),
    live: false,
    goesOn: services.store?.isShared === true,
    ...(home !== undefined && { home }),
    capabilities: session.client.capabilities,
    notify: (notification) => send({ jsonrpc: '2.0', ...notification }),
  };
}

function isRefused(outcome: Outcome): boolean {
  return outcome.kind === 'responded' && isBadToken(outcome.response);
}

function notAcceptable(): Reply {
  return rpcError(
    406,
    -32000,
    'Not Acceptable: the call asks again, so the client must accept text/event-stream; send the same request again',
  );
}

function failed(services: Services, error: unknown): void {
  const { code, message } = AwaitError.from(error);
  if (code === 'closed' || code === 'fenced') return;
  services.settings.logger.warn('a turn could not be told on its stream', { error: message });
}
