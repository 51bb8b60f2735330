/**
 * The bytes of events that this process put into the store, of all callers and of each. Above a limit the oldest events lose
 * their contents: for a client that comes back they have expired. Anonymous callers count as one, so that they cannot
 * displace what known callers come back for.
 */

export interface ContentLimits {
  readonly all: number;
  readonly caller: number;
  /** Characters of an event from which on its content is a record of its own, which can go before its stream. */
  readonly large: number;
}

/** Bytes that a record costs besides its content. */
const RECORD = 500;

interface CallerContents {
  /** The oldest first. */
  readonly sizes: Map<string, number>;
  sum: number;
}

export class ContentBytes {
  readonly #limits: ContentLimits;
  readonly #remove: (name: string) => void;
  /** By caller; undefined for all anonymous ones. */
  readonly #byOwner = new Map<string | undefined, CallerContents>();
  readonly #owners = new Map<string, string | undefined>();
  #all = 0;

  /** @param remove deletes a record, which may be gone already */
  constructor(limits: ContentLimits, remove: (name: string) => void) {
    this.#limits = limits;
    this.#remove = remove;
  }

  add(owner: string | undefined, name: string, bytes: number): void {
    const size = bytes + RECORD;
    const held = this.#byOwner.get(owner) ?? { sizes: new Map<string, number>(), sum: 0 };
    this.#byOwner.set(owner, held);
    this.#owners.set(name, owner);
    held.sizes.set(name, size);
    held.sum += size;
    this.#all += size;
    while (held.sum > this.#limits.caller && held.sizes.size > 1) this.#evict(held);
    while (this.#all > this.#limits.all && this.#owners.size > 1) {
      const all = [...this.#byOwner.values()];
      this.#evict(all.reduce((most, held) => (held.sum > most.sum ? held : most)));
    }
  }

  /** Whether an event of so many characters is bounded here. */
  isLarge(characters: number): boolean {
    return characters > this.#limits.large;
  }

  /** It was deleted. */
  drop(name: string): void {
    const owner = this.#owners.get(name);
    const held = this.#byOwner.get(owner);
    const size = held?.sizes.get(name);
    if (held === undefined || size === undefined) return;
    held.sizes.delete(name);
    held.sum -= size;
    this.#all -= size;
    this.#owners.delete(name);
    if (held.sizes.size === 0) this.#byOwner.delete(owner);
  }

  #evict({ sizes }: CallerContents): void {
    const [oldest] = sizes.keys();
    if (oldest === undefined) return;
    this.drop(oldest);
    this.#remove(oldest);
  }
}
