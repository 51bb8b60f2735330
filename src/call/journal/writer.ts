/**
 * A journal as a process writes it that runs the call: its position, the entry that is in doubt, and until when the turn
 * surely belongs to this process. Entries are inserted if absent. A writer that finds a claim or an end in its position
 * is fenced (invariant 10); what other processes received for the call it passes on, and writes behind it.
 */

import { AwaitError, badToken, type Clock, canonical, hasCode } from '../../base/values.ts';
import { type CallRecord, DELETED, type Entry, FORMAT, isReceived, type Received } from './entries.ts';
import type { OpenJournal } from './store.ts';

/** The store of one call's journal. */
export interface Entries {
  /**
   * Tries a failing store again.
   * @param until when to give up, in milliseconds since the epoch; default: after a few leases
   * @returns false when there is another entry
   * @throws AwaitError `store` when it gives up: the entry may or may not be there
   */
  insert(position: number, entry: Entry, until?: number): Promise<boolean>;
  /** @param until as in `insert` */
  read(position: number, until?: number): Promise<Entry | undefined>;
  /** All from a position on. */
  readOn(position: number): AsyncIterable<Entry>;
  /** Overwrites the sign of life. */
  beat(sign: string): Promise<void>;
}

interface Moment {
  readonly elapsed: number;
  readonly now: number;
}

/** Part of a lease after which it is not counted on any more: clocks may run at different speeds. */
const SURE = 0.8;
/** Leases after its end in which the log of a call is certain not to be deleted for room: one less than it is. */
export const KEPT = 5;

/** Claims of this process so far: each is an entry of its own. */
let claims = 0;

function numbered(make: () => Entry | undefined): () => Entry | undefined {
  claims += 1;
  const nth = claims;
  return () => {
    const entry = make();
    return entry?.type === 'claimed' ? { ...entry, nth } : entry;
  };
}

export class JournalWriter implements OpenJournal {
  onReceived: OpenJournal['onReceived'] = () => {};
  readonly #entries: Entries;
  readonly #call: CallRecord;
  readonly #clock: Clock;
  readonly #lease: number;
  #position: number;
  /** The operation that runs last: one after the other. */
  #last: Promise<unknown> | undefined;
  /** The entry whose insert was given up: the store may have written it all the same. */
  #doubtful: { readonly entry: Entry; readonly onWritten: () => void } | undefined;
  /** When this process last wrote an entry, or read the log and found the call not ended. */
  #found: Moment;
  /** Whether this process has a part in the call: until then it may give up, and loses nothing but a request. */
  #hasPart = false;
  /** When the last entry that other processes could see was sent off. */
  #heard: Moment | undefined;
  /** Read, and not passed on: this process may have lost the call since. */
  readonly #received: [entry: Received, position: number][] = [];

  /** @param lease how long an owner may be silent before others take its turn up, in milliseconds */
  constructor(entries: Entries, call: CallRecord, after: number, clock: Clock, lease: number) {
    this.#entries = entries;
    this.#call = call;
    this.#position = after;
    this.#clock = clock;
    this.#lease = lease;
    this.#found = this.#moment();
  }

  get position(): number {
    return this.#position;
  }

  get lapsed(): boolean {
    // A call without entries is unknown to other processes, so none takes it over.
    return this.#position >= 0 && (this.#heard === undefined || !this.#isSure(this.#heard));
  }

  append(entry: Entry, onWritten?: () => void): Promise<void> {
    return this.decide(() => entry, onWritten).then(() => {});
  }

  decide(make: () => Entry | undefined, onWritten: () => void = () => {}): Promise<boolean> {
    return this.#inOrder(async () => {
      const next = numbered(make);
      const first = next();
      if (first === undefined) return false;
      // A checkpoint holds the call; any other first entry has it before it.
      const isFirst = first.type === 'suspended' || first.type === 'called';
      if (!isFirst) await this.#putCalled();
      const until = this.#hasPart ? this.#call.expires : undefined;
      return this.#put(first, next, until, onWritten);
    });
  }

  /** Nothing is done of a call that cannot be stored. */
  store(): Promise<void> | undefined {
    return this.#position < 0 ? this.#inOrder(() => this.#putCalled()) : undefined;
  }

  async #putCalled(): Promise<void> {
    const called: Entry = { type: 'called', format: FORMAT, call: this.#call };
    if (this.#position < 0) await this.#put(called, () => called, undefined);
  }

  readOn(): Promise<Entry | undefined> {
    return this.#inOrder(async () => {
      // Other processes cannot know it yet.
      if (this.#position < 0) return undefined;
      const found = this.#moment();
      for await (const entry of this.#entries.readOn(this.#position + 1)) {
        if (!isReceived(entry)) return entry;
        this.#take(entry);
      }
      // A log that was deleted meanwhile has no more entries, either.
      if (this.#mayBeDeleted && (await this.#isDeleted())) return { ...DELETED, isErased: true };
      this.#found = found;
      if (this.#received.length > 0) await this.#passOn();
      return undefined;
    });
  }

  async beat(sign: string): Promise<void> {
    const sent = this.#moment();
    await this.#entries.beat(sign);
    // A sign of life after the lease ran out is too late: the turn may have been taken over.
    if (this.#heard !== undefined && this.#isSure(this.#heard)) this.#heard = sent;
  }

  #inOrder<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#last === undefined ? work() : this.#last.then(work);
    const over = (): void => {
      if (this.#last === settled) this.#last = undefined;
    };
    const settled = done.then(over, over);
    this.#last = settled;
    return done;
  }

  /**
   * @param make what to write instead, once others have appended
   * @param until as in `Entries.insert`
   */
  async #put(
    first: Entry,
    make: () => Entry | undefined,
    until: number | undefined,
    onWritten: () => void = () => {},
  ): Promise<boolean> {
    for (let entry: Entry | undefined = first; entry !== undefined; entry = make()) {
      const begun = this.#moment();
      if (await this.#isInserted(entry, until, onWritten)) {
        if (this.#position >= 0 && this.#mayBeDeleted && (await this.#isDeleted(until)))
          throw badToken(`call ${this.#call.id}: its log is deleted`);
        this.#position += 1;
        this.#hasPart = true;
        this.#doubtful = undefined;
        this.#heard = begun;
        this.#found = begun;
        this.#passOnNow();
        onWritten();
        return true;
      }
      // For as long as the insert: the process has what is to be written.
      const there = await this.#entries.read(this.#position + 1, until);
      if (this.#isAnswerInDoubt(there)) continue;
      if (there === undefined || !isReceived(there))
        throw new AwaitError(
          'fenced',
          `call ${this.#call.id}: entry ${this.#position + 1} exists already: another process continues it`,
        );
      this.#take(there);
      if (entry.type !== 'held') await this.#passOn();
    }
    return false;
  }

  /** Whether the call may have ended meanwhile, and its log have made room: then its positions are free. */
  get #mayBeDeleted(): boolean {
    return !this.#hasPart || !this.#isWithin(this.#found, KEPT * this.#lease);
  }

  async #isDeleted(until?: number): Promise<boolean> {
    try {
      const first = await this.#entries.read(0, until);
      return first === undefined || first.type === 'cancelled';
    } catch (error) {
      // It is there, under a secret that was taken out since.
      if (hasCode(error, 'bad-token')) return false;
      throw error;
    }
  }

  async #isInserted(entry: Entry, until: number | undefined, onWritten: () => void): Promise<boolean> {
    const { position } = this;
    try {
      if (await this.#entries.insert(position + 1, entry, until)) return true;
      const isInDoubt = canonical(this.#doubtful?.entry) === canonical(entry);
      return isInDoubt && canonical(await this.#entries.read(position + 1, until)) === canonical(entry);
    } catch (error) {
      this.#doubtful = { entry, onWritten };
      throw error;
    }
  }

  /** An answer whose write seemed to fail is there after all: it counts. */
  #isAnswerInDoubt(there: Entry | undefined): boolean {
    const { entry, onWritten } = this.#doubtful ?? {};
    if (entry?.type !== 'completed' || entry.completion.kind !== 'answer') return false;
    if (canonical(there) !== canonical(entry)) return false;
    this.#position += 1;
    this.#doubtful = undefined;
    onWritten?.();
    return true;
  }

  #take(entry: Received): void {
    this.#position += 1;
    this.#received.push([entry, this.#position]);
  }

  /** An owner that was silent acts on nothing before an entry of its own shows that the call is still its. */
  async #passOn(): Promise<void> {
    const held: Entry = { type: 'held' };
    while (this.#hasPart && this.lapsed) await this.#put(held, () => held, this.#call.expires);
    this.#passOnNow();
  }

  #passOnNow(): void {
    for (const [entry, at] of this.#received.splice(0)) this.onReceived(entry, at);
  }

  #moment(): Moment {
    return { elapsed: this.#clock.elapsed(), now: this.#clock.now() };
  }

  #isSure(moment: Moment): boolean {
    return this.#isWithin(moment, this.#lease * SURE);
  }

  /** A machine that was suspended may have a monotonic clock that stood still. */
  #isWithin({ elapsed, now }: Moment, milliseconds: number): boolean {
    return Math.max(this.#clock.elapsed() - elapsed, this.#clock.now() - now) < milliseconds;
  }
}

/** False when another process has the position. */
export function isAppended(journal: OpenJournal, entry: Entry, onWritten?: () => void): Promise<boolean> {
  return unlessFenced(journal.append(entry, onWritten).then(() => true));
}

/** The result of `work`; false if another process has the position that it writes to. */
export async function unlessFenced(work: Promise<boolean>): Promise<boolean> {
  try {
    return await work;
  } catch (error) {
    if (hasCode(error, 'fenced')) return false;
    throw error;
  }
}

/** Where no store is: positions count, nothing is written. */
export function volatileJournal(after: number): OpenJournal {
  let position = after;
  const decide: OpenJournal['decide'] = async (make, onWritten) => {
    if (make() === undefined) return false;
    position += 1;
    onWritten?.();
    return true;
  };
  return {
    get position() {
      return position;
    },
    lapsed: false,
    onReceived: () => {},
    append: async (entry, onWritten) => void (await decide(() => entry, onWritten)),
    decide,
    readOn: async () => undefined,
    beat: async () => {},
  };
}
