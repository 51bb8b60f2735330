/**
 * Follows a stream's calls, in the process that has its connection: takes over a call whose process was silent for a
 * lease, and sends an outcome unless the process that ran the call does.
 * 1. A process that ended a call has a lease to send the outcome. After that it counts as dead.
 * 2. A call that was given up has no outcome: the process that takes it over sends one.
 * 3. A call that cannot be read is read again later. One that was deleted has no outcome.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { AwaitError } from '../../src/base/error.ts';
import type { Started, TakingUp } from '../../src/call/engine.ts';
import type { CallRecord, Response } from '../../src/call/journal/entries.ts';
import type { Instance, Outcome } from '../../src/call/ports.ts';
import { goesOnElsewhere, isBadToken, isKept } from '../../src/call/run/wire-error.ts';
import type { Sink } from '../../src/stream/tail.ts';
import type { Services } from '../services.ts';
import type { CallList } from './call-list.ts';
import { boundTo, type Caller, legOf, type Source, type Way } from './start.ts';

/** A stream whose calls are followed, with its revision's functions. */
export interface Followed {
  readonly services: Services;
  readonly source: Source;
  /** Fires when the connection closes. */
  readonly gone: AbortSignal;
  readonly caller: () => Caller | Promise<Caller>;
  /** Whether a call runs here; then the code that started it sends its outcome. */
  readonly runs: (callId: string) => boolean;
  readonly way: (callId: () => string) => Way;
  /** The call is this process's from now on. @returns the instance for it; undefined for one of its own */
  readonly take: (call: CallRecord, started: Started) => Promise<Instance | undefined>;
  /** Whether the process that ran the call sent its outcome. */
  readonly isTold: (callId: string, outcome: Outcome) => Promise<boolean>;
  readonly tell: (call: CallRecord, outcome: Outcome) => Promise<void>;
}

/** Fires when the sink's connection closes. */
export function goneWith(sink: Pick<Sink, 'onClose'>): AbortSignal {
  const gone = new AbortController();
  sink.onClose(() => gone.abort());
  return gone.signal;
}

/** Follows all calls of a stream; resolves when the outcome of each was sent, or comes from elsewhere. */
export async function followAll(
  followed: Followed,
  callIds: readonly string[],
): Promise<{ readonly isOver: boolean }> {
  const came = await Promise.all(callIds.map((callId) => followCall(followed, callId)));
  return { isOver: !came.includes('elsewhere') };
}

/**
 * Follows the calls that are appended to a list, until the connection closes. Reads the list twice a lease; a call that
 * ended before costs one read.
 */
export async function followList(followed: Followed, list: CallList): Promise<void> {
  const { services, gone, runs } = followed;
  const { lease } = services.settings.limits;
  const inWork = new Set<string>();
  const follow = async (callId: string): Promise<void> => {
    inWork.add(callId);
    try {
      if ((await followCall(followed, callId, lease)) === 'expired') await list.dismiss(callId);
    } catch (error) {
      cannotFollow(services, error);
    } finally {
      inWork.delete(callId);
    }
  };
  while (!gone.aborted) {
    try {
      const untold = await list.untold((callId) => runs(callId) || inWork.has(callId));
      for (const callId of untold) void follow(callId);
    } catch (error) {
      cannotFollow(services, error);
    }
    await pause(lease / 2, gone);
  }
}

export function cannotFollow({ settings }: Services, error: unknown): void {
  const { code, message } = AwaitError.from(error);
  // Another process ended the stream, or appends to it now.
  if (code === 'closed' || code === 'fenced') return;
  settings.logger.warn('the calls of a stream cannot be followed', { error: message });
}

/** `elsewhere`: another process sends its outcome. */
type Came = 'told' | 'elsewhere' | 'expired';

/** @param pace longest pause between two looks at it, in milliseconds */
async function followCall(followed: Followed, callId: string, pace?: number): Promise<Came> {
  const { services, gone, runs, source, take, way } = followed;
  const { lease } = services.settings.limits;
  while (!gone.aborted && !runs(callId)) {
    const first = await services.store?.read(callId, 0);
    if (first?.type !== 'called') return 'expired';
    const { call } = first;
    const caller = await followed.caller();
    let isTaken = false;
    const started: TakingUp = services.engine.takeUp(
      callId,
      boundTo(caller, call),
      legOf(
        caller,
        source,
        call.params,
        way(() => callId),
      ),
      (taken) => {
        isTaken = true;
        return take(taken, started);
      },
      { pace },
    );
    gone.addEventListener('abort', started.stop, { once: true });
    if (gone.aborted) started.stop();
    const outcome = await started.outcome;
    gone.removeEventListener('abort', started.stop);
    if (isBadToken(outcome)) return 'expired';
    if (isKept(outcome) && !goesOnElsewhere(outcome) && (isTaken || isElsewhere(outcome)))
      return tellOnce(followed, call, outcome, isTaken);
    // The store failed, or another process has the call: it is followed again.
    await pause(lease / 2, gone);
  }
  return 'elsewhere';
}

async function tellOnce(
  followed: Followed,
  call: CallRecord,
  outcome: Outcome,
  isOurs: boolean,
): Promise<Came> {
  const { services, gone, isTold, tell } = followed;
  if (outcome.kind === 'task') return 'elsewhere';
  const told = (): Promise<boolean> => isTold(call.id, outcome);
  if (!isOurs && (await isToldMeanwhile(services, told, gone))) return 'elsewhere';
  await tell(call, outcome);
  return 'told';
}

/** Gives the process that ran a turn a lease to send its outcome. @returns whether it did, or the connection closed */
export async function isToldMeanwhile(
  { settings }: Services,
  isTold: () => Promise<boolean>,
  gone?: AbortSignal,
): Promise<boolean> {
  await pause(settings.limits.lease, gone);
  return gone?.aborted === true || (await isTold());
}

/**
 * Writes an outcome into its stream, unless the call was given up to other processes.
 * @param listed the call's id, if it is in the list of a stream that does not end with it
 * @param write returns false if the response is not in the stream
 */
export async function tellListed(
  list: CallList | undefined,
  listed: string | undefined,
  outcome: Outcome,
  write: (response: Response) => Promise<boolean>,
): Promise<void> {
  if (list === undefined || listed === undefined) {
    if (outcome.kind === 'responded') await write(outcome.response);
  } else if (outcome.kind !== 'responded') await list.dismiss(listed);
  else if (!goesOnElsewhere(outcome)) await list.tell(listed, () => write(outcome.response));
}

function isElsewhere(outcome: Outcome): boolean {
  return outcome.kind !== 'task' && outcome.elsewhere === true;
}

/** Does not keep the process alive; ends at once when the connection closes. */
function pause(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return sleep(milliseconds, undefined, { ref: false, ...(signal !== undefined && { signal }) }).catch(
    () => {},
  );
}
