/**
 * Bytes of one kind in transit (received and not whole yet, or sent and not read yet), over all wires and connections.
 * Half of them are all anonymous callers', and half are one caller's at most. Where a share is exceeded, the account in
 * it that has held bytes for longest is broken off: on a network that works that is never an honest client's. So a
 * stranger breaks off strangers, and a known caller nobody but itself, as long as there are strangers' bytes to free.
 */
import { Quota, type QuotaKey } from './quota.ts';

export class Budget {
  readonly #held: Quota<Account>;

  /** @param most bytes of all accounts */
  constructor(most: number) {
    this.#held = new Quota({ all: most, caller: most / 2, anonymous: most / 2 });
  }

  /** Bytes of all accounts. */
  get bytes(): number {
    return this.#held.amount;
  }

  /** @param breakOff called to free the bytes; at most once, and not after `close` */
  open(quotaKey: QuotaKey, breakOff: () => void): Account {
    return new Account(this.#held, quotaKey, breakOff);
  }
}

/** What one connection, body or reply holds of a budget. */
export class Account {
  readonly #held: Quota<Account>;
  readonly #quotaKey: QuotaKey;
  readonly #breakOff: () => void;
  #isClosed = false;

  constructor(held: Quota<Account>, quotaKey: QuotaKey, breakOff: () => void) {
    this.#held = held;
    this.#quotaKey = quotaKey;
    this.#breakOff = breakOff;
  }

  /** Sets the bytes that it holds. May break off others, and itself. */
  set(bytes: number): void {
    if (this.#isClosed) return;
    this.#held.change(this, this.#quotaKey, bytes);
    for (;;) {
      const share = this.#held.lacks(this.#quotaKey, 0);
      const oldest = share && this.#held.oldest(share, this.#quotaKey);
      if (oldest === undefined) return;
      oldest.close();
      oldest.#breakOff();
    }
  }

  /** It holds nothing from now on. */
  close(): void {
    this.#isClosed = true;
    this.#held.leave(this);
  }
}
