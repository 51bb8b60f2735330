/**
 * Replies that wait for clients which read slowly, or not at all. One that takes nothing for `stalled` is broken off;
 * where they exceed a share of the budget, the one that has waited longest is: forty unread results of 4 MB held 415 MB.
 * Every reply of every wire is counted here, a response that is queued behind another one of its connection too.
 */

import type { Account, Budget } from '../../base/budget.ts';
import type { QuotaKey } from '../../base/quota.ts';
import type { Clock, Timer } from '../../base/values.ts';
import type { GuardedWriter, Reply, SentReply, Writer } from './exchange.ts';

export interface BacklogOptions {
  readonly clock: Clock;
  /** How long a client may read nothing while bytes wait for it, in milliseconds. */
  readonly stalled: number;
  /** Bytes that may wait for clients. */
  readonly budget: Budget;
  /** Called when a connection is broken off by this process. */
  readonly broken?: () => void;
}

/** A connection whose client reads, or does not. */
interface CountedOutlet {
  /** Bytes that wait for the client. */
  readonly unsent: number;
  /** Whether it cannot be read yet: another response of its connection is before it. */
  readonly isQueued?: boolean;
  /** Breaks the connection off, and drops the bytes that wait. */
  destroy(): void;
}

export class Backlog {
  readonly #options: BacklogOptions;

  constructor(options: BacklogOptions) {
    this.#options = options;
  }

  /** Bytes that wait for all clients. */
  get bytes(): number {
    return this.#options.budget.bytes;
  }

  guard(writer: Writer, quotaKey: QuotaKey): GuardedWriter {
    return new Guard(writer, this.watch(writer, quotaKey));
  }

  watch(outlet: CountedOutlet, quotaKey: QuotaKey): Waiting {
    return new Waiting(outlet, quotaKey, this.#options);
  }

  /** A reply whose client is limited. */
  bounded(reply: Reply, quotaKey: QuotaKey): SentReply {
    const { body, ...head } = reply;
    if (typeof body === 'function') return { ...head, body: (writer) => body(this.guard(writer, quotaKey)) };
    return body === undefined ? head : { ...head, body, waits: (writer) => this.#count(writer, quotaKey) };
  }

  /** A function of its own: a listener keeps all that its scope holds, and the body is on its way. */
  #count(writer: Writer, quotaKey: QuotaKey): void {
    const waiting = this.watch(writer, quotaKey);
    writer.onClose(() => waiting.end());
    waiting.note();
  }
}

/** The bytes that wait for one client. */
export class Waiting {
  readonly #outlet: CountedOutlet;
  readonly #options: BacklogOptions;
  readonly #account: Account;
  #patience: Timer | undefined;
  #isOver = false;

  constructor(outlet: CountedOutlet, quotaKey: QuotaKey, options: BacklogOptions) {
    this.#outlet = outlet;
    this.#options = options;
    this.#account = options.budget.open(quotaKey, () => this.breakOff());
  }

  /** Counts what waits now. */
  note(): void {
    if (this.#isOver) return;
    const { unsent } = this.#outlet;
    if (unsent === 0) {
      this.#patience?.cancel();
      this.#patience = undefined;
    } else if (this.#patience === undefined) this.#watch(unsent);
    this.#account.set(unsent);
  }

  breakOff(): void {
    this.end();
    this.#options.broken?.();
    this.#outlet.destroy();
  }

  /** Nothing waits any more. */
  end(): void {
    this.#isOver = true;
    this.#patience?.cancel();
    this.#account.close();
  }

  /** A client that is only slow takes some of it. */
  #watch(before: number): void {
    this.#patience = this.#options.clock
      .after(this.#options.stalled, () => {
        const { unsent, isQueued = false } = this.#outlet;
        if (unsent >= before && !isQueued) return this.breakOff();
        this.#patience = undefined;
        this.note();
      })
      .unref();
  }
}

class Guard implements GuardedWriter {
  readonly #writer: Writer;
  readonly #waiting: Waiting;
  readonly #drained: (() => void)[] = [];
  readonly #closed: (() => void)[] = [];
  #isBehind = false;
  #isClosed = false;

  constructor(writer: Writer, waiting: Waiting) {
    this.#writer = writer;
    this.#waiting = waiting;
    writer.onDrain(() => {
      this.#isBehind = false;
      waiting.note();
      for (const fn of this.#drained) fn();
    });
    writer.onClose(() => {
      this.#isClosed = true;
      this.#isBehind = false;
      waiting.end();
      for (const fn of this.#closed.splice(0)) fn();
    });
  }

  get behind(): boolean {
    return this.#isBehind;
  }

  get unsent(): number {
    return this.#writer.unsent;
  }

  write(text: string): boolean {
    const keepsUp = this.#writer.write(text);
    if (!keepsUp) this.#wait();
    return keepsUp;
  }

  end(isUnfinished?: boolean): void {
    // The rest still waits for a client that may never read it.
    if (this.#writer.unsent > 0) this.#wait();
    this.#writer.end(isUnfinished);
  }

  destroy(): void {
    this.#writer.destroy();
  }

  breakOff(): void {
    this.#isBehind = false;
    this.#waiting.breakOff();
  }

  onDrain(fn: () => void): void {
    this.#drained.push(fn);
  }

  onClose(fn: () => void): void {
    if (this.#isClosed) fn();
    else this.#closed.push(fn);
  }

  #wait(): void {
    if (this.#isClosed) return;
    this.#isBehind = true;
    if (!this.#writer.limitsItself) this.#waiting.note();
  }
}
