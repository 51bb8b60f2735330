/**
 * Amounts that callers share: sessions, tasks, calls in work, bytes (invariant 14). Each known caller has a limit;
 * anonymous callers share one limit, and within it each address has one, if it is known. So strangers cannot use up the
 * amounts of known callers.
 */

/** The caller, or the address, whose share an amount counts against. */
export interface QuotaKey {
  /** The caller's stable name; absent for an anonymous one. */
  readonly principal?: string | undefined;
  /** The address that an anonymous caller comes from, where it is known. */
  readonly address?: string | undefined;
}

export interface Shares {
  readonly all: number;
  /** Of these, places of one known caller, or of one address; if absent, all of them. */
  readonly caller?: number;
  /** Of these, places of all anonymous callers together; if absent, as many as one known caller's. */
  readonly anonymous?: number;
}

interface Holding {
  amount: number;
  readonly isAnonymous: boolean;
  readonly name: string | undefined;
}

export class Quota<Holder extends object = object> {
  readonly #shares: Required<Shares>;
  /** The one that has held something for longest is first. */
  readonly #held = new Map<Holder, Holding>();
  readonly #byName = new Map<string, number>();
  #anonymous = 0;
  #all = 0;

  constructor({ all, caller = all, anonymous = caller }: Shares) {
    this.#shares = { all, caller, anonymous };
  }

  /** The sum of what all hold. */
  get amount(): number {
    return this.#all;
  }

  /** Whether there is room for `more` places of this caller's. */
  has(quotaKey: QuotaKey, more = 1): boolean {
    return this.lacks(quotaKey, more) === undefined;
  }

  /** Which share is used up; undefined when there is room. */
  lacks(quotaKey: QuotaKey, more = 1): keyof Shares | undefined {
    const { all, caller, anonymous } = this.#shares;
    const { isAnonymous, name } = placeOf(quotaKey);
    if (name !== undefined && (this.#byName.get(name) ?? 0) + more > caller) return 'caller';
    if (isAnonymous && this.#anonymous + more > anonymous) return 'anonymous';
    return this.#all + more > all ? 'all' : undefined;
  }

  /** Takes a place, or so many, whether there is room or not. */
  hold(holder: Holder, quotaKey: QuotaKey, amount = 1): void {
    if (!this.#held.has(holder)) this.change(holder, quotaKey, amount);
  }

  /** Sets what a holder holds, whether there is room or not; with 0 it leaves. */
  change(holder: Holder, quotaKey: QuotaKey, amount: number): void {
    const place = this.#held.get(holder) ?? { ...placeOf(quotaKey), amount: 0 };
    this.#count(place, amount - place.amount);
    place.amount = amount;
    if (amount > 0) this.#held.set(holder, place);
    else this.#held.delete(holder);
  }

  leave(holder: Holder): void {
    this.change(holder, {}, 0);
  }

  /**
   * Has those leave that have held something for longest, until there is room for `more` places of this caller's.
   * @param left called for each of them
   * @param may whether one may be let go
   * @returns the share that is used up all the same; undefined when there is room
   */
  makeRoom(
    quotaKey: QuotaKey,
    more: number,
    left: (holder: Holder) => void,
    may: (holder: Holder) => boolean = () => true,
  ): keyof Shares | undefined {
    for (;;) {
      const lack = this.lacks(quotaKey, more);
      const oldest = lack && this.#oldest(lack, quotaKey, may);
      if (oldest === undefined) return lack;
      this.leave(oldest);
      left(oldest);
    }
  }

  /**
   * The one that has held something for longest in a share. Where all is used up that is an anonymous one if there is
   * any, so a stranger never costs a known caller anything; else, for a known caller, one of the known caller that holds
   * most.
   */
  #oldest(share: keyof Shares, quotaKey: QuotaKey, may: (holder: Holder) => boolean): Holder | undefined {
    const { isAnonymous, name } = placeOf(quotaKey);
    let found: Holder | undefined;
    let most = 0;
    for (const [holder, place] of this.#held) {
      if (!may(holder)) continue;
      if (share === 'caller' ? place.name === name : place.isAnonymous) return holder;
      const amount = (share === 'all' && !isAnonymous && this.#byName.get(place.name ?? '')) || 0;
      if (amount <= most) continue;
      most = amount;
      found = holder;
    }
    return found;
  }

  #count({ isAnonymous, name }: Holding, by: number): void {
    this.#all += by;
    if (isAnonymous) this.#anonymous += by;
    if (name === undefined) return;
    const count = (this.#byName.get(name) ?? 0) + by;
    if (count > 0) this.#byName.set(name, count);
    else this.#byName.delete(name);
  }
}

function placeOf({ principal, address }: QuotaKey): Omit<Holding, 'amount'> {
  if (principal !== undefined) return { isAnonymous: false, name: `caller ${principal}` };
  return { isAnonymous: true, name: address === undefined ? undefined : `address ${address}` };
}
