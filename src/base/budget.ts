/**
 * Bytes of one kind in transit (received and not whole yet, or sent and not read yet), over all wires and connections.
 * Half of them are all anonymous callers', and half are one caller's at most. Where a share is exceeded, the account in
 * it that has held bytes for longest is broken off: on a network that works that is never an honest client's. So a
 * stranger's bytes cost strangers' accounts alone, and a known caller's cost its own, as long as strangers hold any bytes.
 * When none does, the known caller that holds most loses its oldest account.
 */
import { Quota, type QuotaKey } from './quota.ts';

export class Budget {
  readonly #held: Quota<Account>;
  readonly #free: number;

  /**
   * @param most bytes of all accounts
   * @param free bytes of one account that do not count: what always holds a little is not the oldest
   */
  constructor(most: number, free = 0) {
    this.#free = free;
    this.#held = new Quota({ all: most, caller: most / 2 });
  }

  /** Bytes of all accounts. */
  get bytes(): number {
    return this.#held.amount;
  }

  /** @param breakOff called to free the bytes; at most once, and not after `close` */
  open(quotaKey: QuotaKey, breakOff: () => void): Account {
    return new Account(this.#held, this.#free, quotaKey, breakOff);
  }
}

/** Opens an account of a budget for one caller, with what is called to free its bytes. */
export type OpenAccount = (breakOff: () => void) => Account;

/** What one connection, body, reply or server holds of a budget. */
export class Account {
  readonly #held: Quota<Account>;
  readonly #free: number;
  readonly #quotaKey: QuotaKey;
  readonly #breakOff: () => void;
  #isClosed = false;

  constructor(held: Quota<Account>, free: number, quotaKey: QuotaKey, breakOff: () => void) {
    this.#held = held;
    this.#free = free;
    this.#quotaKey = quotaKey;
    this.#breakOff = breakOff;
  }

  /** Sets the bytes that it holds. May break off others, and itself. */
  set(bytes: number): void {
    if (this.#isClosed) return;
    this.#held.change(this, this.#quotaKey, bytes > this.#free ? bytes : 0);
    this.#held.makeRoom(this.#quotaKey, 0, (oldest) => {
      oldest.close();
      oldest.#breakOff();
    });
  }

  /** It holds nothing from now on. */
  close(): void {
    this.#isClosed = true;
    this.#held.leave(this);
  }
}
