/**
 * Cancellations that reach another process than the one that runs their request. A client names its request by an
 * id that is its own affair, so a call that lasts is noted under it, and the cancel is an entry of that call's
 * journal: its owner is woken, or reads it with its next sign of life. A call that is over soon writes nothing.
 */

import { digest } from '../src/base/digest.ts';
import { systemClock } from '../src/base/values.ts';
import type { Begun, Started } from '../src/call/engine.ts';
import type { Services } from '../src/handler/services.ts';

/** How long a call runs before it is recorded for cancellation, in milliseconds. */
const LASTS = 100;
/** When a cancellation looks its call up, in milliseconds after it came: the call may not be recorded yet. */
const LOOKS = [0, 150, 500];

/**
 * @param scope within which the ids of requests are unique: a session, a stream
 * @param expires milliseconds since the epoch
 */
export function noteRequest(
  { store, settings }: Services,
  scope: string,
  requestId: string | number,
  { callId, outcome, kept }: Started & Partial<Pick<Begun, 'kept'>>,
  expires: number,
): void {
  if (store?.isShared !== true) return;
  let isOver = false;
  const note = async (): Promise<void> => {
    // A cancel is an entry of a journal that has the call.
    await kept;
    if (!isOver) await store.insert(nameOf(scope, requestId), callId, expires);
  };
  const begin = (): void => {
    note().catch((error: unknown) => {
      settings.logger.warn('a request could not be recorded; it can be cancelled at this process alone', {
        call: callId,
        error,
      });
    });
  };
  const timer = systemClock.after(LASTS, begin).unref();
  void outcome.then(() => {
    isOver = true;
    timer.cancel();
  });
}

/** Cancels a request that other processes may run; nothing happens where none of this id lasts. */
export function cancelElsewhere(
  { store, engine, settings }: Services,
  scope: string,
  requestId: string | number,
  principal: string | undefined,
): void {
  const { inWork } = engine;
  const place = {};
  // It takes a while: without room for one more request of its caller it is not looked for.
  if (store?.isShared !== true || !inWork.has({ principal })) return;
  inWork.hold(place, { principal });
  const cancel = async (): Promise<void> => {
    for (const wait of LOOKS) {
      await new Promise<void>((resolve) => void systemClock.after(wait, resolve).unref());
      const callId = await store.get(nameOf(scope, requestId));
      if (typeof callId !== 'string') continue;
      await engine.tasks?.cancelCall(callId, principal);
      return;
    }
  };
  cancel()
    .catch((error: unknown) => {
      settings.logger.warn('a cancellation could not be sent to the process that runs its request', {
        error,
      });
    })
    .finally(() => inWork.leave(place));
}

function nameOf(scope: string, requestId: string | number): string {
  return `${scope}:request:${digest(requestId)}`;
}
