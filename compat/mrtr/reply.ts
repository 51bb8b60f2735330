/**
 * The reply to a request: JSON, unless notifications come before the response. Then it is a stream of the session,
 * whose events have ids, so a client whose connection broke gets the rest by GET.
 */
import { digest } from '../../src/base/digest.ts';
import { isObject, type JsonObject } from '../../src/base/values.ts';
import type { Reply } from '../../src/doors/http/exchange.ts';
import { empty, isRequestId, json } from '../../src/doors/http/reply.ts';
import type { StreamPlace } from '../../src/stream/event-streams.ts';
import { SESSION, sse } from '../session/call-reply.ts';
import type { Exchange } from '../session/exchange.ts';
import type { SessionStream } from '../session/stream.ts';
import type { Dialect } from './dialect.ts';
import { type Rider, stateOf } from './rider.ts';
import type { Responding } from './served.ts';

type Notify = (notification: JsonObject) => void;

export type Serve = (notify: Notify) => Promise<Responding>;

interface Replying {
  readonly exchange: Exchange;
  readonly dialect: Dialect;
  readonly id: string | number;
  /** Whether the response is JSON even after notifications. */
  readonly alone: boolean;
}

/** SEP-2322: a stream from the first notification on, whose last message is the response, incomplete or not. */
export async function streamed(replying: Replying, work: Serve): Promise<Reply> {
  const { exchange, id, alone } = replying;
  const { services, session } = exchange;
  const rider: Rider = { id, session: digest(session.name) };
  let stream: { readonly to: SessionStream; readonly found: Promise<StreamPlace> } | undefined;
  let isOver = false;
  let begin = (): void => {};
  const begun = new Promise<undefined>((resolve) => {
    begin = () => resolve(undefined);
  });
  const notify: Notify = (notification) => {
    if (alone || isOver) return tellStanding(exchange, notification);
    stream ??= newStream(exchange);
    stream.to.send({ jsonrpc: '2.0', ...notification });
    begin();
  };
  const ended = work(notify).then((told) => {
    isOver = true;
    if (told.kind === 'gone') stream?.to.finish();
    else stream?.to.end(responseOf(replying, told, rider));
    return told;
  });
  const told = await Promise.race([ended, begun]);
  if (stream !== undefined) return sse(services, session, await stream.found, 'postStreams');
  return told === undefined ? empty(202) : inJson(replying, told, rider);
}

/**
 * The first draft: notifications wait for the outcome. An incomplete one carries them in its state, for the next turn,
 * in any process.
 * @param before the notifications in the state of this request
 */
export async function held(
  {
    before,
    progressToken,
    ...replying
  }: Replying & { readonly before: readonly JsonObject[]; readonly progressToken: unknown },
  work: Serve,
): Promise<Reply> {
  const { exchange, alone } = replying;
  const { services, session } = exchange;
  const { heldNotifications } = services.settings.limits;
  const said = alone ? [] : [...before];
  if (alone) for (const notification of before) tellStanding(exchange, notification);
  let isOver = false;
  const told = await work((notification) => {
    if (alone || isOver) tellStanding(exchange, notification);
    else if (said.push(notification) > heldNotifications) said.shift();
  });
  isOver = true;
  if (told.kind !== 'final') return inJson(replying, told, { said });
  const token = isRequestId(progressToken) ? progressToken : undefined;
  const all = said.flatMap((one) => renamed(one, token));
  if (all.length === 0) return inJson(replying, told, {});
  const stream = newStream(exchange);
  for (const notification of all) stream.to.send({ jsonrpc: '2.0', ...notification });
  stream.to.end(responseOf(replying, told, {}));
  return sse(services, session, await stream.found, 'postStreams');
}

/** Progress carries the token of the request that gets it. */
function renamed(notification: JsonObject, progressToken: string | number | undefined): JsonObject[] {
  const { method, params } = notification;
  if (method !== 'notifications/progress') return [notification];
  if (progressToken === undefined) return [];
  return [{ method, params: { ...(isObject(params) && params), progressToken } }];
}

function newStream({ services, session }: Exchange): { to: SessionStream; found: Promise<StreamPlace> } {
  const to = session.newStream();
  return { to, found: services.streams.find(to.id, 0, session.id) };
}

/**
 * Sends notifications of a task on the session's stream: after its request has its response, or beside a response that
 * is JSON alone.
 */
function tellStanding({ session }: Exchange, notification: JsonObject): void {
  session.standing.send({ jsonrpc: '2.0', ...notification });
}

function inJson(replying: Replying, told: Responding, rider: Rider): Reply {
  if (told.kind === 'gone') return empty(202);
  return json(responseOf(replying, told, rider), 200, { [SESSION]: replying.exchange.session.id });
}

/** @param rider data that goes into the state of an incomplete outcome */
function responseOf(
  { exchange, dialect, id }: Replying,
  told: Exclude<Responding, { kind: 'gone' }>,
  rider: Rider,
): JsonObject {
  const fields =
    told.kind === 'incomplete'
      ? dialect.incomplete(told.asks, stateOf(exchange.services, told.token, rider))
      : told.fields;
  return { jsonrpc: '2.0', id, ...fields };
}
