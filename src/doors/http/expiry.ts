/** When credentials expire: `authInfo.expiresAt` in seconds since the epoch, as the SDKs' bearer middleware sets it. */
import { callAt, type JsonObject, type Repeating, systemClock } from '../../base/values.ts';

/** Calls once the credentials have expired; never, where they do not say when. */
export function onExpiry(authInfo: JsonObject | undefined, fn: () => void): Repeating | undefined {
  const { expiresAt } = authInfo ?? {};
  return typeof expiresAt === 'number' ? callAt(systemClock, expiresAt * 1_000, fn) : undefined;
}
