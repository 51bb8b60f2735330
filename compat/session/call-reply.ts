/**
 * The reply to a live call as a cursor over the call's log: connections that read it, those that come back, and taking
 * the call over for them once its owner is silent.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { defined, hasCode, type JsonObject } from '../../src/base/values.ts';
import type { Started, TakingUp } from '../../src/call/engine.ts';
import {
  CANCELLED,
  type CallRecord,
  type Entry,
  isEnd,
  type Response,
  withoutArguments,
} from '../../src/call/journal/entries.ts';
import type { Outcome, RequestContext } from '../../src/call/ports.ts';
import { goesOnElsewhere, isBadToken, told } from '../../src/call/run/wire-error.ts';
import type { Inbound, Reply, Writer } from '../../src/doors/http/exchange.ts';
import { messageText, SSE_HEADERS } from '../../src/doors/http/reply.ts';
import type { Services } from '../../src/handler/services.ts';
import type { CallConnection, Projection } from '../../src/stream/call-connections.ts';
import { type EventPlace, expiryOf, streamIdOf } from '../../src/stream/event-id.ts';
import type { StreamPlace } from '../../src/stream/event-streams.ts';
import type { StreamEvent } from '../../src/stream/log.ts';
import { sseEvent } from '../../src/stream/sse.ts';
import { RETRY_LATER } from '../../src/stream/sse-sink.ts';
import type { Sink } from '../../src/stream/tail.ts';
import { sinkOf } from '../sink.ts';
import type { Exchange } from './exchange.ts';
import type { Session } from './session.ts';
import {
  askMessage,
  type Caller,
  type Closing,
  loggedWay,
  messageOf,
  type RpcRequest,
  requestContextOf,
  type Say,
  type Source,
  sourceOf,
  type Way,
  withdrawal,
} from './start.ts';
import { RETRY } from './stream.ts';

/** Between two looks for the first entry of a call that runs here, in milliseconds. */
export const SOON = 100;

/** Whose calls they are. */
interface CallsOwner {
  /** In the calls' logs. */
  readonly name: string;
  readonly principal: string | undefined;
  /** Whether a call runs here; then the code that started it ends its reply. */
  runs(callId: string): boolean;
  /** A call is this process's from now on. */
  keepCall(requestId: string | number, started: Started): void;
  /** Called before the response to a call is in its log. */
  beforeEnd(request: Pick<RpcRequest, 'method' | 'params'>, response: Response): Promise<unknown> | undefined;
}

/** A request, for the replies of its owner's calls. */
export type ReplyExchange = Pick<Exchange, 'services' | 'inbound' | 'home'> & {
  readonly session: CallsOwner;
};

/** How a revision writes the reply to a call. */
export interface ReplyDialect {
  /** @param events which entries of the log are for its client */
  project(exchange: ReplyExchange, call: ReplyCall): Projection;
  /** A message that is in no log. */
  event(message: JsonObject, isResponse?: boolean): StreamEvent;
  /** Whether nothing follows an event until its client answers. */
  isEnd(entry: Suspended, place: EventPlace): boolean;
  /** What its connection gets of the events. */
  wrap(sink: Sink): Sink;
  /** The client of a call that is taken over, */
  caller(session: CallsOwner): Caller | Promise<Caller>;
  /** its request, */
  source(exchange: ReplyExchange, callId: string): Source;
  /** and how it goes on. */
  way(exchange: ReplyExchange, direct: Say, beforeEnd: NonNullable<RequestContext['beforeEnd']>): Way;
}

type ReplyCall = Pick<CallRecord, 'id' | 'method' | 'params' | 'requestId'>;

/** Asks go out while the call runs (2025). */
export const LIVE_REPLY: ReplyDialect = {
  isEnd: () => false,
  project: ({ session }: Exchange, call) => liveProjection(call, session.can('primes')),
  event: (message) => messageEvent(message),
  wrap: (sink) => sink,
  caller: (session: Session) => session.caller,
  source: sourceIn,
  way: (_exchange, direct, beforeEnd) => loggedWay(direct, beforeEnd),
};

/** A reply that is read from a call's log. */
export interface ReplyOf {
  readonly callId: string;
  /** Of the call, in milliseconds since the epoch. */
  readonly expires: number;
  readonly call: ReplyCall;
  readonly dialect: ReplyDialect;
}

export function logOf(call: ReplyCall, dialect: ReplyDialect = LIVE_REPLY): ReplyOf {
  return { callId: call.id, expires: expiryOf(streamIdOf(call.id)), call, dialect };
}

/** The reply to a request that runs as that call. */
export function replyTo(
  { id: requestId, method, params }: RpcRequest,
  callId: string,
  dialect?: ReplyDialect,
): ReplyOf {
  return logOf({ id: callId, method, params, requestId }, dialect);
}

/** The response to a request whose call's log is gone. */
export function expiredEvent(dialect: ReplyDialect, requestId: string | number): StreamEvent {
  return dialect.event({ jsonrpc: '2.0', id: requestId, error: told('expired') }, true);
}

/** @param after the event that its client had last; absent for a new reply */
export function connect(
  exchange: ReplyExchange,
  { callId, expires, call, dialect }: ReplyOf,
  after?: Pick<EventPlace, 'sequence' | 'nth'>,
): CallConnection {
  return exchange.services.replies.open({
    callId,
    owner: exchange.session.principal,
    expires,
    project: dialect.project(exchange, call),
    expired: () => expiredEvent(dialect, call.requestId),
    connection: crypto.randomUUID(),
    ...defined({ after }),
  });
}

/** A call, without its arguments, and how far its client has it. */
export interface FoundCall {
  readonly call: CallRecord;
  /** Whether it has the end of the log. */
  readonly isOver?: boolean;
  /** The checkpoint that it has last. */
  readonly suspended?: Suspended | undefined;
}

export type Suspended = Extract<Entry, { type: 'suspended' }>;

/** Whether a client that is at this place has all of it. */
export function hasAll(
  { isOver }: FoundCall,
  { sequence, nth }: Pick<EventPlace, 'sequence' | 'nth'>,
): boolean {
  return sequence > 0 && nth === undefined && isOver === true;
}

/**
 * The call whose reply an event id is of, and the entry that the event is; undefined if it is of no call of this session.
 * @throws AwaitError `store`
 */
export async function callAt(
  exchange: Pick<ReplyExchange, 'services' | 'session'>,
  callId: string,
  sequence: number,
): Promise<FoundCall | undefined> {
  const call = await callOf(exchange, callId);
  if (call === undefined || sequence <= 1) return call && { call };
  const last = await exchange.services.logs.read(callId, sequence - 1, call.principal);
  return last && { call, isOver: isEnd(last), suspended: last.type === 'suspended' ? last : undefined };
}

/** The call without its arguments, which may be long: a request may look for many calls at once. */
async function callOf(
  { services: { logs, now }, session }: Pick<ReplyExchange, 'services' | 'session'>,
  callId: string,
): Promise<CallRecord | undefined> {
  const first = await logs.read(callId, 0, session.principal);
  if (first?.type !== 'called') return undefined;
  const { call } = first;
  const isOwn = call.session === session.name && call.principal === session.principal && call.expires > now();
  return isOwn ? withoutArguments(call) : undefined;
}

/** A client that came back for a call's reply. @param last the id that it had last, if it had one */
export function resumed(
  exchange: Exchange,
  reply: ReplyOf,
  after: Pick<EventPlace, 'sequence' | 'nth'>,
  last: string | undefined,
): Reply {
  const { services, session } = exchange;
  return eventsReply(services, session, 'resumedStreams', (sink) => {
    const connection = connect(exchange, reply, after);
    const own = reply.dialect.wrap(sink);
    connection.attach(last === undefined ? own : primed(session, last, own));
    void follow(exchange, reply, connection);
  });
}

/** Reads a call's log for a connection, and takes the call over once its owner is silent for a lease. */
export async function follow(
  exchange: ReplyExchange,
  reply: ReplyOf,
  connection: CallConnection,
): Promise<void> {
  const { logger, limits } = exchange.services.settings;
  for (let isOver = false; !isOver; ) {
    try {
      await readLog(exchange, reply, connection);
      isOver = true;
    } catch (error) {
      logger.warn('the log of a call cannot be followed', { error });
      // As long as the store is away and the client is there.
      isOver = !hasCode(error, 'store') || connection.gone.aborted;
      if (isOver) connection.end('failed');
      else await pause(limits.lease / 2, connection.gone);
    }
  }
}

async function readLog(exchange: ReplyExchange, reply: ReplyOf, connection: CallConnection): Promise<void> {
  const { services, session, home } = exchange;
  const { gone } = connection;
  const { engine, store, settings } = services;
  const { callId, dialect } = reply;
  const { lease, streamPoll } = settings.limits;
  const reading = connection.entry(engine.name);
  if (store?.isShared !== true) {
    connection.catchUp();
    return;
  }
  for (let isNamed = false; !gone.aborted; ) {
    if (session.runs(callId)) {
      // The code that runs it ends the reply.
      if (isNamed || (await engine.read(callId, reading))) {
        connection.catchUp();
        return;
      }
    }
    const call = await callOf(exchange, callId);
    if (gone.aborted) return;
    if (call === undefined) {
      if (!session.runs(callId)) return connection.end('expired');
      // It runs here, and is not written yet.
      await pause(SOON, gone);
      continue;
    }
    const caller = await dialect.caller(session);
    const source = dialect.source(exchange, callId);
    const direct = (message: JsonObject): void => services.replies.get(callId)?.pass(dialect.event(message));
    let isTaken = false;
    const started = engine.takeUp(
      callId,
      call,
      requestContextOf(
        caller,
        source,
        call.params,
        dialect.way(exchange, direct, (response) => session.beforeEnd(call, response)),
      ),
      async (taken) => {
        isTaken = true;
        session.keepCall(taken.requestId, started);
        return home?.();
      },
      {
        pace: engine.name === undefined ? streamPoll : undefined,
        seen: (at, entry) => connection.offer(at, entry),
        ...(!isNamed && { reading }),
      },
    );
    const outcome = await outcomeUnlessGone(started, gone);
    // What the store has, a failure of the store does not end.
    if (isTaken && !(outcome.kind === 'responded' && outcome.failure === 'store')) {
      finish(exchange, reply, outcome);
      return;
    }
    if (isBadToken(outcome)) connection.end('expired');
    // The client answers, with the next POST.
    if (connection.hasEnd || outcome.kind === 'suspended') return;
    // The store failed, or another process has the call: it is followed again.
    await pause(lease / 2, gone);
    isNamed = true;
  }
}

/** The turn here has its outcome, which most often is in the log. */
export function finish(exchange: ReplyExchange, reply: ReplyOf, outcome: Outcome): void {
  const { services } = exchange;
  const { callId, call } = reply;
  const connection = services.replies.get(callId);
  if (connection === undefined || connection.hasEnd) return;
  const isInLog = 'isLogged' in outcome || ('elsewhere' in outcome && outcome.elsewhere === true);
  if (outcome.kind === 'suspended' || isInLog) {
    if (!connection.hasTurn) connection.catchUp();
    return;
  }
  const message = messageOf({ id: call.requestId }, outcome);
  if (goesOnElsewhere(outcome) && services.store?.isShared === true) {
    if (services.engine.isLeaving) connection.end('leaving');
    else void follow(exchange, reply, connection);
    return;
  }
  if (message !== undefined) connection.pass(reply.dialect.event(message, true));
  connection.end('finished');
}

/** Of a call whose tool may end the connection that reads it. */
export function sourceIn({ services, session, inbound }: Exchange, callId: string): Source {
  return sourceOf(
    inbound,
    closing(session, inbound, () => services.replies.get(callId)?.disconnect('closed')),
  );
}

/** Stops taking a call up once the connection closes. */
async function outcomeUnlessGone(started: TakingUp, gone: AbortSignal): Promise<Outcome> {
  gone.addEventListener('abort', started.stop, { once: true });
  if (gone.aborted) started.stop();
  try {
    return await started.outcome;
  } finally {
    gone.removeEventListener('abort', started.stop);
  }
}

/** Does not keep the process alive; ends at once when the connection closes. */
export function pause(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return sleep(milliseconds, undefined, { ref: false, ...defined({ signal }) }).catch(() => {});
}

// --- connections ---

export const SESSION = 'mcp-session-id';

/** The kind of a connection, for the counters. */
type StreamPurpose = 'postStreams' | 'getStreams' | 'resumedStreams';

/** A stream, from where its connection begins. */
export function sse(
  services: Services,
  session: Session,
  found: StreamPlace,
  purpose: StreamPurpose,
  wrap: (sink: Sink) => Sink = (sink) => sink,
): Reply {
  return eventsReply(services, session, purpose, (sink) => void found.follow(wrap(sink)));
}

/** A reply in server-sent events. @param attach gets its connection, once the head is out */
export function eventsReply(
  services: Services,
  session: Session,
  purpose: StreamPurpose,
  attach: (sink: Sink) => void,
): Reply {
  services.counters[purpose] += 1;
  // A transport keeps the last pause that it was told, and that may be one of a process that left.
  const retry = purpose === 'postStreams' ? undefined : RETRY;
  return {
    status: 200,
    headers: { ...SSE_HEADERS, [SESSION]: session.id },
    body: (writer) => attach(session.connect(sinkOf(services, writer, { retry }))),
  };
}

/** The stream of a process that leaves: its client keeps the id it came with, and comes back to another process. */
export function comeBack(session: Session, last: string | undefined): Reply {
  const id = last !== undefined && session.can('primes') ? sseEvent({ id: last, data: '' }) : '';
  return {
    status: 200,
    headers: { ...SSE_HEADERS, [SESSION]: session.id },
    body: sseEvent({ retry: RETRY_LATER }) + id,
  };
}

/** As an SDK offers it: to clients whose streams begin with an event, so that they can come back. A pipe has none. */
export function closing(session: Session, { piped }: Inbound, closeStream: () => void): Closing {
  return session.can('primes') && !piped ? { closeStream, closeStanding: () => session.closeStanding() } : {};
}

/** Clients of the SDKs only know an id that came on this very connection, should it break as well. */
export function primed(session: Session, last: string, sink: Sink): Sink {
  if (session.can('primes')) sink.send({ data: '' }, last);
  return sink;
}

/** A whole reply, in events without ids. */
export function atOnce(
  services: Services,
  session: Session,
  inbound: Inbound,
  messages: readonly JsonObject[],
): Reply {
  services.counters.postStreams += 1;
  const texts = messages.map((message) => sseEvent({ event: 'message', data: messageText(message) }));
  const [only = ''] = texts;
  // One by one, since a text of them all may be longer than a string can be; at once, so that they are counted until the
  // client has read them. A pipe takes a stream alone.
  const written = (writer: Writer): void => {
    for (const text of texts) writer.write(text);
    writer.end();
  };
  const body = inbound.piped || texts.length > 1 ? written : only;
  return { status: 200, headers: { ...SSE_HEADERS, [SESSION]: session.id }, body };
}

// --- which events an entry is ---

/** How a message is written. @param isResponse whether it is the response to the request */
type EventOf = (message: JsonObject, isResponse?: boolean) => StreamEvent;

/** @param primes whether the reply begins with an event without content, so that its client has an id (2025-11-25) */
export function liveProjection(
  call: Pick<CallRecord, 'id' | 'requestId'>,
  primes: boolean,
  eventOf: EventOf = messageEvent,
): Projection {
  return (entry) => ({
    kind: 'events',
    events: eventsOf(call, entry, primes, eventOf),
    last: isEnd(entry),
  });
}

function eventsOf(
  { id, requestId }: Pick<CallRecord, 'id' | 'requestId'>,
  entry: Entry,
  primes: boolean,
  eventOf: EventOf,
): StreamEvent[] {
  switch (entry.type) {
    case 'called':
      return primes ? [{ data: '', retry: RETRY }] : [];
    case 'asked':
      return [{ ...eventOf(askMessage(id, entry.ask)), ...(primes && { retry: RETRY_LATER }) }];
    case 'withdrawn':
      return [eventOf(withdrawal(id, entry.key))];
    case 'completed':
      return entry.isLate && entry.completion.kind === 'answer'
        ? [eventOf(withdrawal(id, entry.completion.key))]
        : [];
    case 'notified':
      return entry.messages.map((message) => eventOf(message));
    case 'ended':
      return [eventOf({ jsonrpc: '2.0', id: requestId, ...entry.response }, true)];
    case 'cancelled':
      return entry.isErased ? [eventOf({ jsonrpc: '2.0', id: requestId, ...CANCELLED }, true)] : [];
    default:
      return [];
  }
}

export function responseEvent(requestId: string | number, response: Response): StreamEvent {
  return messageEvent({ jsonrpc: '2.0', id: requestId, ...response });
}

export function messageEvent(message: JsonObject): StreamEvent {
  return { event: 'message', data: messageText(message) };
}
