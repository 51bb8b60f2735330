/** All that is in transit between a handler and its clients, whatever the wire: connections, and bytes either way. */

import { Budget } from '../base/budget.ts';
import { systemClock } from '../base/clock.ts';
import type { Limits } from '../call/limits.ts';
import type { Counters } from '../observe/counters.ts';
import { Backlog } from './backlog.ts';
import { Connections } from './connections.ts';

export class Traffic {
  readonly connections = new Connections();
  /** Bytes of bodies and messages that are not whole yet. */
  readonly received: Budget;
  /** Bytes that wait for clients to read. */
  readonly unread: Backlog;

  constructor({ receivedBytes, unreadBytes, stalled }: Limits, counters: Counters) {
    this.received = new Budget(receivedBytes);
    this.unread = new Backlog({
      clock: systemClock,
      stalled,
      budget: new Budget(unreadBytes),
      broken: () => {
        counters.brokenStreams += 1;
      },
    });
  }
}
