/** One request body that is being received: pieces are copied into one buffer, since a piece of one byte costs a hundred. */

import type { Account, Budget } from '../../base/budget.ts';
import type { QuotaKey } from '../../base/quota.ts';
import { AwaitError } from '../../base/values.ts';

/** Smallest room that is made for a body that comes in pieces, in bytes. */
const FIRST_ROOM = 4_096;

/** Begins to count a body. @param breakOff called to stop receiving it; at most once, and not after `over` */
export type BeginBody = (breakOff: (error: AwaitError) => void) => Body;

/** @param maxBytes of one body */
export function bodiesOf(budget: Budget, quotaKey: QuotaKey, maxBytes: number): BeginBody {
  return (breakOff) => {
    const account = budget.open(quotaKey, () =>
      breakOff(
        new AwaitError('no-room', 'a slow body was broken off: a share of limits.receivedBytes is reached'),
      ),
    );
    return new Body(maxBytes, account);
  };
}

class Body {
  readonly #maxBytes: number;
  readonly #account: Account;
  #buffer: Uint8Array = new Uint8Array(0);
  #length = 0;

  constructor(maxBytes: number, account: Account) {
    this.#maxBytes = maxBytes;
    this.#account = account;
  }

  /** @throws AwaitError `limit` when it is longer than it may be */
  add(piece: Uint8Array): void {
    const length = this.#length + piece.byteLength;
    if (length > this.#maxBytes) throw tooLarge(this.#maxBytes);
    if (this.#length === 0) this.#buffer = piece;
    else {
      if (length > this.#buffer.byteLength) {
        const room = Buffer.allocUnsafe(Math.min(Math.max(2 * length, FIRST_ROOM), this.#maxBytes));
        room.set(this.#buffer.subarray(0, this.#length));
        this.#buffer = room;
      }
      this.#buffer.set(piece, this.#length);
    }
    this.#length = length;
    this.#account.set(this.#buffer.byteLength);
  }

  /** All of it, once: a request that waits for its reply must not keep its bytes. */
  text(): string {
    const text = Buffer.from(this.#buffer.buffer, this.#buffer.byteOffset, this.#length).toString('utf8');
    this.over();
    return text;
  }

  /** Nothing more is received of it. */
  over(): void {
    this.#buffer = new Uint8Array(0);
    this.#length = 0;
    this.#account.close();
  }
}

export function tooLarge(maxBytes: number): AwaitError {
  return new AwaitError(
    'limit',
    `the body is longer than ${maxBytes} bytes; raise limits.bodyBytes if that is intended`,
  );
}
