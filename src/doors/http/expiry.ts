/** When credentials expire: `authInfo.expiresAt` in seconds since the epoch, as the SDKs' bearer middleware sets it. */
import { type JsonObject, systemClock, type Timer } from '../../base/values.ts';

/** Longest wait of one timer, in milliseconds: Node's overflow above 2^31. */
const LONGEST = 2_000_000_000;

/** Calls once the credentials have expired; never, where they do not say when. */
export function onExpiry(authInfo: JsonObject | undefined, fn: () => void): Pick<Timer, 'cancel'> {
  const { expiresAt } = authInfo ?? {};
  if (typeof expiresAt !== 'number') return { cancel: () => {} };
  let timer: Timer;
  const wait = (): void => {
    const left = expiresAt * 1_000 - Date.now();
    timer = systemClock.after(Math.min(Math.max(left, 0), LONGEST), () => (left > LONGEST ? wait() : fn()));
    timer.unref();
  };
  wait();
  return { cancel: () => timer.cancel() };
}
