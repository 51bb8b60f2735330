/**
 * SEP-1858, the server's side: a call ends its turn at its asks. They go out between `buffer_input` and
 * `input_required`, the connection ends, and the POST of an array of responses with the id of `input_required`
 * goes on with the same stream, in whichever process gets it.
 *
 * Beside `input_required`, in the same entry of the stream, stands what the next turn needs: so it is in the
 * store before the client is told, and the call's own state was before that.
 */
import type { ErrorAnswers } from '../../src/call/answer.ts';
import { digest, isObject, type JsonObject } from '../../src/call/json.ts';
import type { Binding, Leg, OpenAskOutcome, Outcome } from '../../src/call/ports.ts';
import { isBadToken } from '../../src/call/wire-error.ts';
import { AwaitError } from '../../src/error.ts';
import type { HostInstance } from '../../src/host/instance.ts';
import { responseOf } from '../../src/host/transport.ts';
import type { Inbound, Reply } from '../../src/http/exchange.ts';
import { isRequestId, json, rpcError } from '../../src/http/reply.ts';
import { parseEventId } from '../../src/stream/event-id.ts';
import { SESSION, sourceOf, sse } from '../2025/connection.ts';
import type { RpcRequest, Session } from '../2025/session.ts';
import { SessionStream } from '../2025/stream.ts';
import type { Services } from '../services.ts';
import { REVISION } from './wire.ts';

/** What stands beside `input_required`. */
interface Note {
  readonly token: string;
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
  const meta = isObject(params._meta) ? params._meta : {};
  const progress = isRequestId(meta.progressToken) ? { progressToken: meta.progressToken } : {};
  const binding = session.binding(request, REVISION);
  const leg: Leg = { ...legOf(call, (message) => stream.send(message)), ...progress };
  const { client } = session;
  const started = services.engine.start({ method, params, requestId, client, binding }, leg, instance);
  session.keep(requestId, started);
  void started.outcome.then(async (outcome) => {
    session.release(requestId);
    await session.settled();
    tell(services, session.id, stream, outcome, { requestId, binding, ...progress });
  });
  return sse(services, session, found, 'postStreams');
}

/** The next turn: an array of responses, with the id of the `input_required` that they answer. */
export async function goOn(call: Call, last: string, messages: readonly JsonObject[]): Promise<Reply> {
  const { services, session, inbound } = call;
  if (messages.length === 0 || messages.some((message) => typeof message.method === 'string')) {
    return rpcError(400, -32600, 'Invalid Request: with Last-Event-ID the body is an array of responses');
  }
  const note = await noteOf(call, last);
  if (note === undefined) {
    await services.rates?.badToken(inbound);
    return rpcError(400, -32602, 'Invalid or expired Last-Event-ID');
  }
  const { results, errors, missing } = sortByKey(call, note, messages);
  const accept = inbound.header('accept') ?? '';
  const takesStream = accept.includes('text/event-stream') || accept.includes('*/*');
  // What is missing is asked again, and that takes a stream.
  if (missing && !takesStream) return notAcceptable();
  const found = await services.streams.resume(last, session.id);
  const { stream: streamId } = parseEventId(last, services.settings.limits.eventIdBytes) ?? { stream: '' };
  let stream: Promise<SessionStream> | undefined;
  const takeOver = (): Promise<SessionStream> => {
    stream ??= services.streams
      .takeOver(streamId, session.id)
      .then((appender) => new SessionStream(appender, services));
    return stream;
  };
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
    ...(call.home !== undefined && { home: call.home }),
  };
  const hasErrors = Object.keys(errors).length > 0;
  const turn = session.once(`${last} ${digest([results, errors])}`, async () => {
    const outcome = await services.engine.resume(
      note.token,
      note.binding,
      results,
      leg,
      hasErrors ? errors : undefined,
    );
    await session.settled();
    if (!isRefused(outcome) && outcome.kind !== 'gone' && outcome.kind !== 'task')
      await toldBy(call, last, outcome, note, takeOver);
    return outcome;
  });
  const outcome = await Promise.race([turn, takesStream ? said : new Promise<never>(() => {})]);
  if (outcome === undefined) return sse(services, session, found, 'postStreams');
  if (isRefused(outcome)) {
    await services.rates?.badToken(inbound);
    return rpcError(400, -32602, 'Invalid or expired Last-Event-ID');
  }
  if (outcome.kind === 'responded' && (accept.includes('application/json') || !takesStream)) {
    return json({ jsonrpc: '2.0', id: note.requestId, ...outcome.response }, 200, { [SESSION]: session.id });
  }
  return takesStream ? sse(services, session, found, 'postStreams') : notAcceptable();
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
      tell(services, session.id, await takeOver(), outcome, note);
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
  const { requestId, binding, progressToken } = note;
  const kept: Note = {
    token,
    requestId,
    binding,
    keys,
    ...(progressToken !== undefined && { progressToken }),
  };
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

function legOf({ inbound, session }: Call, send: (message: JsonObject) => void): Leg {
  return {
    ...sourceOf(inbound),
    live: false,
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
