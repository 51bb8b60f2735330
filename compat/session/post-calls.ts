/**
 * The calls behind a POST's stream, for the process to which the client returns: their ids are stored beside the
 * stream, and that process follows them, and takes over those whose process died.
 */

import type { Begun, Started } from '../../src/call/engine.ts';
import type { Outcome } from '../../src/call/ports.ts';
import { goesOnElsewhere, isKept } from '../../src/call/run/wire-error.ts';
import type { HostInstance } from '../../src/host/instance.ts';
import { callIdOf, expiryOf } from '../../src/stream/event-id.ts';
import type { Sink } from '../../src/stream/tail.ts';
import type { Services } from '../services.ts';
import { closing } from './connection.ts';
import { cannotFollow, type Followed, followAll, goneWith } from './follow.ts';
import type { Session } from './session.ts';
import { isResumable, liveWay, messageOf, type RpcRequest, type Source, sourceOf } from './start.ts';
import { type SessionStream, takingOver } from './stream.ts';
import type { Exchange } from './wire.ts';

/** Written before the client gets its stream. The id of a stream's only call follows from its own, without a record. */
export async function rememberPost(
  { store, listStream }: Services,
  { id: scope, principal }: Pick<Session, 'id' | 'principal'>,
  stream: string,
  calls: readonly Begun[],
): Promise<void> {
  if (store?.isShared !== true || calls.length === 0) return;
  const ids = calls.map(({ callId }) => callId);
  await Promise.all([
    ids[0] === callIdOf(stream) ? undefined : store.insert(`${stream}:calls`, ids, expiryOf(stream)),
    listStream(principal, stream, scope),
  ]);
}

/** Whether a call was given up here: the process to which its client returns continues it. */
export function isLeft(
  services: Services,
  request: RpcRequest,
  stream: Pick<SessionStream, 'begun'>,
  outcome: Outcome,
): boolean {
  return isResumable(services, request) && stream.begun && goesOnElsewhere(outcome);
}

/** A client that came back for the stream of a POST. */
export interface Returned {
  readonly services: Services;
  readonly session: Session;
  /** The stream's id. */
  readonly stream: string;
  readonly source: Source;
  /** The session's instance here; undefined where each call has one of its own. */
  readonly home?: (() => Promise<HostInstance>) | undefined;
  readonly sink: Sink;
}

/** The revision's own functions: the callers of its calls, its messages, its outcomes. */
interface Telling extends Pick<Followed, 'caller' | 'way' | 'isTold' | 'tell'> {
  /** Called when every outcome was sent; nothing follows on the stream. */
  readonly over?: () => Promise<void>;
}

/** @param taken the stream, once this process appends to it */
export type Tell = (
  takeOver: () => Promise<SessionStream>,
  taken: () => SessionStream | undefined,
) => Telling;

/** Follows the calls of a POST's stream for as long as its connection is there. */
export function followPost({ services, session, stream, source, home, sink }: Returned, telling: Tell): void {
  const { store } = services;
  if (store?.isShared !== true) return;
  const taking = takingOver(services, stream, session.id);
  const takeOver = async (): Promise<SessionStream> => Object.assign(await taking(), { calls });
  let taken: SessionStream | undefined;
  let calls: readonly string[] = [];
  const { over, ...own } = telling(takeOver, () => taken);
  const followed: Followed = {
    services,
    source,
    gone: goneWith(sink),
    runs: (callId) => session.runs(callId),
    take: async ({ requestId }, started: Started) => {
      taken = await takeOver();
      session.keepCall(requestId, started);
      return home?.();
    },
    ...own,
  };
  const follow = async (): Promise<void> => {
    const listed = await store.get(`${stream}:calls`);
    const only = callIdOf(stream);
    calls = Array.isArray(listed) ? listed.map(String) : [only];
    if (!Array.isArray(listed) && (await store.read(only, 0)) === undefined) return;
    const { isOver } = await followAll(followed, calls);
    if (isOver) await over?.();
    else if (services.engine.isLeaving) services.streams.handOver(stream, session.id);
  };
  follow().catch((error: unknown) => cannotFollow(services, error));
}

/** Follows the calls of a POST whose asks are live. */
export function followLive(exchange: Exchange, stream: string, sink: Sink): void {
  const { services, session, inbound } = exchange;
  const close = (): void => services.streams.disconnect(stream, session.id);
  const source = sourceOf(inbound, closing(session, inbound, close));
  followPost({ ...exchange, stream, source, sink }, liveTelling(session));
}

/** The outcomes of live calls: responses on the stream, which ends with the last of them. */
function liveTelling(session: Session): Tell {
  return (takeOver, taken) => ({
    caller: () => session.caller,
    way: (callId) => liveWay(callId, (message) => void taken()?.send(message)),
    // The process that sends the last outcome ends the stream, and its connection.
    isTold: async () => false,
    tell: async ({ requestId }, outcome) => {
      await session.settled();
      const stream = await takeOver();
      const message = messageOf({ id: requestId }, outcome);
      if (message === undefined) return;
      if (stream.calls?.length === 1) stream.end(message, isKept(outcome));
      else void stream.send(message);
    },
    over: async () => (await takeOver()).finish(),
  });
}
