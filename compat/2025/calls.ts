/**
 * The calls behind a POST's stream, for whichever process the client comes back to: their ids stand beside the
 * stream, and who follows it follows them, and takes up those whose process is gone.
 */
import type { Started } from '../../src/call/engine.ts';
import type { Leg, Outcome } from '../../src/call/ports.ts';
import { goesOnElsewhere } from '../../src/call/wire-error.ts';
import { AwaitError } from '../../src/error.ts';
import type { HostInstance, Outside } from '../../src/host/instance.ts';
import type { Sink } from '../../src/stream/tail.ts';
import type { Services } from '../services.ts';
import { CALLS, type RpcRequest, type Session } from './session.ts';
import { SessionStream } from './stream.ts';

/** Before the client is told of its stream. */
export async function rememberCalls(
  services: Services,
  session: Session,
  stream: string,
  work: readonly { readonly request: RpcRequest; readonly started?: Started }[],
): Promise<void> {
  const calls = work.flatMap(({ request, started }) =>
    started !== undefined && CALLS.has(request.method) ? [started.callId] : [],
  );
  if (calls.length === 0 || services.store?.isShared !== true) return;
  await services.store.insert(`${stream}:calls`, calls, session.expires);
}

/** Whether a call was put down here: its client comes back for its stream, and whoever it comes to goes on. */
export function isLeft(
  { store }: Services,
  { method }: RpcRequest,
  stream: SessionStream,
  outcome: Outcome,
): boolean {
  const goesOn = CALLS.has(method) && store?.isShared === true && stream.begun;
  return goesOn && outcome.kind === 'responded' && goesOnElsewhere(outcome.response);
}

export interface GoingOn {
  readonly services: Services;
  readonly session: Session;
  readonly stream: string;
  readonly source: Pick<Leg, 'authInfo' | 'request' | 'closeStream'>;
  readonly open: (outside: Outside) => Promise<HostInstance>;
  readonly sink: Sink;
}

/** Follows the calls of a stream for as long as its connection is there. */
export function goOnWithCalls(goingOn: GoingOn): void {
  void followAll(goingOn).catch((error: unknown) => {
    const { message } = AwaitError.from(error);
    goingOn.services.settings.logger.warn('the calls of a stream cannot be followed', { error: message });
  });
}

async function followAll({ services, session, stream, source, open, sink }: GoingOn): Promise<void> {
  const { store, streams, settings } = services;
  if (store?.isShared !== true) return;
  let isThere = true;
  let isPutDown = false;
  const stops: (() => void)[] = [];
  sink.onClose(() => {
    isThere = false;
    for (const stop of stops) stop();
  });
  const calls = await store.get(`${stream}:calls`);
  if (!Array.isArray(calls)) return;
  let taken: Promise<SessionStream> | undefined;
  const takeOver = (): Promise<SessionStream> => {
    taken ??= streams.takeOver(stream, session.id).then((appender) => new SessionStream(appender, services));
    return taken;
  };
  const take = async (): Promise<{ instance: HostInstance | undefined; stream: SessionStream }> => ({
    instance: settings.instance === 'call' ? undefined : await session.ready(open),
    stream: await takeOver(),
  });
  const follow = async (callId: string): Promise<void> => {
    if (session.runs(callId) || !isThere) return;
    const followed = session.follow(callId, source, take);
    stops.push(followed.stop);
    const outcome = await followed.outcome;
    await session.settled();
    if (outcome.kind === 'gone' && outcome.elsewhere) {
      // Its process ends the stream, unless it died in between.
      await pause(settings.limits.lease);
      if (isThere) await takeOver();
    }
    if (outcome.kind !== 'responded') return;
    if (goesOnElsewhere(outcome.response)) {
      isPutDown = true;
      return;
    }
    if (!followed.taken()) {
      // Its process wrote the outcome down, and tells it, unless it died in between.
      await pause(settings.limits.lease);
      if (!isThere) return;
    }
    (await takeOver()).send({ jsonrpc: '2.0', id: await requestIdOf(services, callId), ...outcome.response });
  };
  await Promise.all(calls.map((callId) => follow(String(callId))));
  if (!isPutDown) (await taken)?.finish();
}

/** It keeps no process alive. */
export function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => void setTimeout(resolve, milliseconds).unref());
}

async function requestIdOf(services: Services, callId: string): Promise<string | number | null> {
  const first = await services.store?.read(callId, 0);
  return first?.type === 'called' ? first.call.requestId : null;
}
