/** All that is in transit between a handler and its clients, whatever the wire: connections, and bytes either way. */
import { Budget } from '../../base/budget.ts';
import { Quota } from '../../base/quota.ts';
import { systemClock } from '../../base/values.ts';
import type { Limits } from '../../call/limits.ts';
import type { Counters } from '../../observe/counters.ts';
import { Backlog } from './backlog.ts';

/** The open connections of known callers, on every wire, so that all of a caller's can be closed at once. */

class Connections {
  readonly #open = new Map<string, Set<() => void>>();

  /**
   * @param caller undefined for an anonymous one, whose connections nobody can name
   * @param close closes the connection
   * @returns a function to call when it has ended
   */
  add(caller: string | undefined, close: () => void): () => void {
    if (caller === undefined) return () => {};
    const own = this.#open.get(caller) ?? new Set();
    this.#open.set(caller, own);
    own.add(close);
    return () => {
      own.delete(close);
      if (own.size === 0 && this.#open.get(caller) === own) this.#open.delete(caller);
    };
  }

  /** Closes a caller's connections. @returns how many there were */
  close(caller: string): number {
    const own = [...(this.#open.get(caller) ?? [])];
    this.#open.delete(caller);
    for (const close of own) close();
    return own.length;
  }
}

// --- connections ---

export class Traffic {
  readonly connections = new Connections();
  /** Bytes of bodies and messages that are not whole yet. */
  readonly received: Budget;
  /** Bytes that wait for clients to read. */
  readonly unread: Backlog;
  /**
   * Memory that requests take until their replies begin: half of what the arguments of running calls may take, which
   * count apart. It is refused, not taken back: a request that waits for the store keeps its body.
   */
  readonly memory: Quota;
  /** Values that a message may hold. */
  readonly mostValues: number;
  /** How long requests may take once the process leaves, in milliseconds. */
  readonly drain: number;

  constructor({ receivedBytes, unreadBytes, stalled, ...limits }: Limits, counters: Counters) {
    this.mostValues = limits.bodyValues;
    this.drain = limits.drain;
    const caller = limits.callerArgumentBytes / 2;
    this.memory = new Quota({ all: limits.argumentBytes / 2, caller });
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
