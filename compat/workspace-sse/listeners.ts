/**
 * Who listens: the open GETs of each caller in each workspace, for POSTs to find, in whichever process they
 * come in. In the store that is a few slots for each caller and workspace, inserted if absent and renewed once
 * a lease. It is a hint: where it is lost, or the store fails, a response goes over its POST's own body.
 */
import { sha256 } from '../../src/base/digest.ts';
import { every, isObject, systemClock } from '../../src/base/values.ts';
import type { Services } from '../../src/handler/services.ts';

/** Open GETs of one caller in one workspace that other processes know of. */
const SLOTS = 4;
/** Leases after which a slot that was not renewed is free: clocks may differ by as much. */
const STALE = 3;
/** A slot's name begins with the end of its time, for the sweeper; in milliseconds. */
const DAY = 86_400_000;

interface Slot {
  readonly name: string;
  readonly expires: number;
}

interface Listing {
  readonly stream: string;
  /** Identifies one of a stream's connections. */
  readonly by: string;
}

export class Listeners {
  readonly #services: Services;
  /** Streams by who listens, and how many connections of each are open: a new one may come before the old one goes. */
  readonly #here = new Map<string, Map<string, number>>();
  /** How to give up the slots that are held from here, until they are. */
  readonly #held = new Set<() => Promise<void>>();

  constructor(services: Services) {
    this.#services = services;
  }

  /**
   * A GET is open here; POSTs to other processes find it once this resolves.
   * @param who the caller and the workspace, as a digest
   * @returns a function to call once, when it closes
   */
  async open(who: string, stream: string): Promise<() => void> {
    const streams = this.#here.get(who) ?? new Map<string, number>();
    this.#here.set(who, streams.set(stream, (streams.get(stream) ?? 0) + 1));
    const unlist = await this.#list(who, stream);
    return () => {
      const left = (streams.get(stream) ?? 1) - 1;
      if (left > 0) streams.set(stream, left);
      else streams.delete(stream);
      if (streams.size === 0 && this.#here.get(who) === streams) this.#here.delete(who);
      void unlist();
    };
  }

  /** The last listener here has left. */
  async close(): Promise<void> {
    this.#here.clear();
    await Promise.all([...this.#held].map((unlist) => unlist()));
  }

  /**
   * The stream that a POST's response goes to.
   * @param named the stream that the client names
   * @returns undefined if none is open, or several are and none is named
   */
  async find(who: string, named: string | undefined): Promise<string | undefined> {
    const streams = new Set(this.#here.get(who)?.keys());
    if (named !== undefined && streams.has(named)) return named;
    try {
      for (const stream of await this.#listed(who)) streams.add(stream);
    } catch (error) {
      this.#failed(error);
      return undefined;
    }
    if (named !== undefined) return streams.has(named) ? named : undefined;
    return streams.size === 1 ? [...streams][0] : undefined;
  }

  async #listed(who: string): Promise<string[]> {
    const { store } = this.#services;
    if (store?.isShared !== true) return [];
    const rows = this.#services.names.guessable('listens', who).map((row) => this.#slots(row));
    const slots = await store.getAll(rows.flat().map(({ name }) => name));
    return slots.filter((slot) => this.#isFresh(slot)).map(({ stream }) => stream);
  }

  /** Takes a slot in the store, and renews it. */
  async #list(who: string, stream: string): Promise<() => Promise<void>> {
    const { store, settings } = this.#services;
    if (store?.isShared !== true) return async () => {};
    // A newer connection of the same stream takes its slot over.
    const listing: Listing = { stream, by: crypto.randomUUID() };
    const [row] = this.#services.names.guessable('listens', who);
    const isOurs = async (slot: Slot): Promise<boolean> => isOf(await store.get(slot.name), 'by', listing.by);
    let slot = await this.#claim(row, listing);
    let last: Promise<void> = Promise.resolve();
    const then = (work: () => Promise<void>): Promise<void> => {
      last = last.then(work).catch((error: unknown) => this.#failed(error));
      return last;
    };
    const renew = async (): Promise<void> => {
      const isCurrent = this.#slots(row).some(({ name }) => name === slot?.name);
      if (slot !== undefined && isCurrent && (await isOurs(slot))) await this.#write(slot, listing);
      else slot = await this.#claim(row, listing);
    };
    const beating = every(systemClock, settings.limits.lease, () => void then(renew));
    let given: Promise<void> | undefined;
    const unlist = (): Promise<void> => {
      beating.cancel();
      given ??= then(async () => {
        if (slot !== undefined && (await isOurs(slot))) await store.remove(slot.name);
      }).finally(() => this.#held.delete(unlist));
      return given;
    };
    this.#held.add(unlist);
    return unlist;
  }

  async #claim(row: string, listing: Listing): Promise<Slot | undefined> {
    const { store, now } = this.#services;
    try {
      for (const slot of this.#slots(row)) {
        if (await store?.insert(slot.name, { ...listing, at: now() }, slot.expires)) return slot;
        const there = await store?.get(slot.name);
        if (this.#isFresh(there) && !isOf(there, 'stream', listing.stream)) continue;
        await this.#write(slot, listing);
        return slot;
      }
    } catch (error) {
      this.#failed(error);
    }
    return undefined;
  }

  async #write(slot: Slot, listing: Listing): Promise<void> {
    const { store, now } = this.#services;
    await store?.replace(slot.name, { ...listing, at: now() }, slot.expires);
  }

  /** @param row the store's name of a caller in a workspace */
  #slots(row: string): Slot[] {
    const expires = (Math.floor(this.#services.now() / DAY) + 2) * DAY;
    return Array.from({ length: SLOTS }, (_, nth) => ({
      name: `${expires.toString(36)}.${row}:listens:${nth}`,
      expires,
    }));
  }

  #isFresh(slot: unknown): slot is { readonly stream: string } {
    const { now, settings } = this.#services;
    if (!isObject(slot) || typeof slot.stream !== 'string' || typeof slot.at !== 'number') return false;
    return now() - slot.at < STALE * settings.limits.lease;
  }

  #failed(error: unknown): void {
    this.#services.settings.logger.warn(
      'the listeners of a workspace could not be stored for other processes',
      {
        error,
      },
    );
  }
}

function isOf(slot: unknown, what: keyof Listing, value: string): boolean {
  return isObject(slot) && slot[what] === value;
}

/** A digest for a caller in a workspace, or for a stream of theirs, which does not show who that is. */
export function nameOf(...parts: readonly (string | undefined)[]): string {
  return sha256(JSON.stringify(parts.map((part) => part ?? null)));
}
