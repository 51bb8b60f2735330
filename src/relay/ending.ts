/** Lets go of a relay in time: of a server that is silent, no reply comes, and its messages may be lost in any case. */
import { systemClock, within } from '../base/values.ts';
import type { Relay } from '../call/ports.ts';

/** How long a relay or a store may take to let go, in milliseconds. */
export const ENDING = 2_000;

export function endingInTime(relay: Relay): Relay {
  return {
    async listen(name, hear) {
      const stop = await relay.listen(name, hear);
      return () => within(systemClock, ENDING, stop());
    },
    send: (name, message) => relay.send(name, message),
    close: () => relay.close(),
  };
}
