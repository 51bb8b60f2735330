/** The process of a connection follows the calls that are told on its stream, and takes up those whose process is gone. */
import { systemClock } from '../../src/call/clock.ts';
import type { Response } from '../../src/call/journal.ts';
import { goesOnElsewhere } from '../../src/call/wire-error.ts';
import { AwaitError } from '../../src/error.ts';
import type { Services } from '../services.ts';
import type { Asker, Calls } from './calls.ts';
import type { Channel } from './channels.ts';

export interface GoingOn {
  readonly services: Services;
  readonly calls: Calls;
  readonly channel: Channel;
  readonly asker: Asker;
  /** Calls when the connection is gone. */
  readonly onClose: (fn: () => void) => void;
}

/** Tells what a call came to, unless it goes on elsewhere: then that process does so. */
export async function tell(
  services: Services,
  channel: Channel,
  call: { readonly callId: string; readonly requestId: string | number; readonly isListed: boolean },
  response: Response,
): Promise<void> {
  if (call.isListed && services.store?.isShared === true && goesOnElsewhere(response)) return;
  const isWritten = await channel.respond({ jsonrpc: '2.0', id: call.requestId, ...response });
  // A POST's own body ends with its response; a GET's stream goes on, and cannot tell by itself.
  if (isWritten && call.isListed && channel.kind === 'get') {
    await services.store?.insert(toldName(call.callId), true, channel.expires);
  }
}

/** Follows the calls of a stream for as long as its connection is there: short ones are told before it looks. */
export function followCalls(goingOn: GoingOn): void {
  const { settings, store } = goingOn.services;
  if (store?.isShared !== true) return;
  const failed = (error: unknown): void => {
    const { message } = AwaitError.from(error);
    settings.logger.warn('the calls of a stream cannot be followed', { error: message });
  };
  void followAll(goingOn, failed).catch(failed);
}

async function followAll(
  { services, calls, channel, asker, onClose }: GoingOn,
  failed: (error: unknown) => void,
): Promise<void> {
  const { lease } = services.settings.limits;
  const stops = new Set<() => void>();
  let isThere = true;
  onClose(() => {
    isThere = false;
    for (const stop of stops) stop();
  });
  const isTold = async (callId: string): Promise<boolean> =>
    (await services.store?.get(toldName(callId))) !== undefined;
  const follow = async (callId: string): Promise<void> => {
    let isTaken = false;
    // It may have said what it can do after it connected.
    const client = (await channel.client()) ?? asker.client;
    const started = calls.follow(
      callId,
      { ...asker, client },
      (message) => channel.say(message),
      (call, taken) => {
        isTaken = true;
        channel.keep(call.requestId, taken);
      },
    );
    const stop = (): void => {
      if (!isTaken) started.cancel();
    };
    stops.add(stop);
    const outcome = await started.outcome;
    stops.delete(stop);
    if (outcome.kind === 'gone' && outcome.elsewhere) {
      await services.store?.insert(toldName(callId), true, channel.expires);
    }
    if (outcome.kind !== 'responded') return;
    if (!isTaken) {
      // Its process wrote the outcome down, and tells it, unless it died in between.
      await pause(lease);
      if (!isThere || (await isTold(callId))) return;
    }
    const first = await services.store?.read(callId, 0);
    if (first?.type !== 'called') return;
    await tell(
      services,
      channel,
      { callId, requestId: first.call.requestId, isListed: true },
      outcome.response,
    );
  };
  for (let nth = 0; isThere; ) {
    const callId = await channel.listed(nth);
    if (callId === undefined) {
      await pause(lease);
      continue;
    }
    nth += 1;
    if (!calls.runs(callId) && !(await isTold(callId))) void follow(callId).catch(failed);
  }
}

/** It keeps no process alive. */
function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => void systemClock.after(milliseconds, resolve).unref());
}

function toldName(callId: string): string {
  return `${callId}:told`;
}
