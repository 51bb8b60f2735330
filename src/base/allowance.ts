/**
 * Places that callers share: sessions, tasks, calls in work (invariant 14). Each known caller has a limit; anonymous
 * callers share one limit, and within it each address has one, if it is known. So strangers cannot use up the places of
 * known callers.
 */

/** Who takes a place. */
export interface Taker {
  /** The caller's stable name; absent for an anonymous one. */
  readonly principal?: string | undefined;
  /** The address that an anonymous caller comes from, where it is known. */
  readonly address?: string | undefined;
}

export interface Shares {
  readonly all: number;
  /** Of these, places of one known caller, or of one address. */
  readonly caller: number;
  /** Of these, places of all anonymous callers together. */
  readonly anonymous: number;
}

interface Place {
  readonly amount: number;
  readonly isAnonymous: boolean;
  readonly name: string | undefined;
}

export class Allowance {
  readonly #shares: Shares;
  readonly #held = new Map<object, Place>();
  readonly #byName = new Map<string, number>();
  #anonymous = 0;
  #all = 0;

  constructor(shares: Shares) {
    this.#shares = shares;
  }

  get size(): number {
    return this.#held.size;
  }

  /** Whether there is room for `more` places of this caller's. */
  has(taker: Taker, more = 1): boolean {
    return this.lacks(taker, more) === undefined;
  }

  /** Which share is used up; undefined when there is room. */
  lacks(taker: Taker, more = 1): keyof Shares | undefined {
    const { all, caller, anonymous } = this.#shares;
    const { isAnonymous, name } = placeOf(taker);
    if (name !== undefined && (this.#byName.get(name) ?? 0) + more > caller) return 'caller';
    if (isAnonymous && this.#anonymous + more > anonymous) return 'anonymous';
    return this.#all + more > all ? 'all' : undefined;
  }

  /** Takes a place, or so many, whether there is room or not. */
  hold(holder: object, taker: Taker, amount = 1): void {
    if (this.#held.has(holder)) return;
    const place = { ...placeOf(taker), amount };
    this.#held.set(holder, place);
    this.#count(place, amount);
  }

  leave(holder: object): void {
    const place = this.#held.get(holder);
    if (place === undefined) return;
    this.#held.delete(holder);
    this.#count(place, -place.amount);
  }

  #count({ isAnonymous, name }: Place, by: number): void {
    this.#all += by;
    if (isAnonymous) this.#anonymous += by;
    if (name === undefined) return;
    const count = (this.#byName.get(name) ?? 0) + by;
    if (count > 0) this.#byName.set(name, count);
    else this.#byName.delete(name);
  }
}

function placeOf({ principal, address }: Taker): Omit<Place, 'amount'> {
  if (principal !== undefined) return { isAnonymous: false, name: `caller ${principal}` };
  return { isAnonymous: true, name: address === undefined ? undefined : `address ${address}` };
}
