/**
 * The indexes of tasks: one for each caller, for its list, and one for all callers, for the sweeper. An index is a row
 * of records, inserted if absent at the first free position, for each hour in which tasks began; all of an hour expire
 * together, so a row has no holes. For tasks that live for days, a row is a day.
 */
import { keepNewest } from '../../base/values.ts';
import type { Kept } from '../journal/entries.ts';

/** The store operations of an index. */
export interface IndexRecords {
  /**
   * False when there is such a record.
   * @param expires milliseconds since the epoch
   * @param holder whose bytes it counts with
   */
  insert(name: string, value: unknown, expires: number, holder?: Kept): Promise<boolean>;
  /** Undefined if absent; not a string if another service wrote it. */
  get(name: string): Promise<unknown>;
}

const HOUR = 3_600_000;
const DAY = 24 * HOUR;
/** Whose calls a row's records are of, where they count. */
type RowsCaller = Pick<Kept, 'principal'>;

/**
 * What the rows of a caller count with: those that end together are one holder, which is not over before them. A call's
 * record in a row outlives the call, or the row would have a hole.
 */
export function rowsOf(caller: RowsCaller, expires: number): Kept {
  return { ...caller, id: `${expires.toString(36)}.rows ${caller.principal ?? ''}`, expires };
}

/** Rows that may still grow: clocks differ. */
const GROWING = 2;
/** Most entries of a row that are read at once. */
const AHEAD = 16;
/** Entries after which the rest is left for later, however many there are. */
const PART = 5_000;
/** Most rows whose ends are remembered. */
const ENDS = 1_000;
/**
 * The record names of a row: without a readable owner, one for each secret that it may have been written under, the one
 * to write under first. `null` stands for all owners, for the sweeper.
 */
export type RowNames = (owner: string | null) => readonly [string, ...string[]];

export interface Page {
  readonly ids: readonly string[];
  /** Where the next page begins; undefined on the last one. */
  readonly next?: string;
}

/** How far a row was read. */
interface Seen {
  readonly at: number;
  /** Up to its end. */
  readonly isWhole: boolean;
}

/** How far each row was read. */
export type SeenRows = Map<string, Seen>;

/** Positions of a row that are looked at one by one: most rows have fewer. */
const FEW = 4;

/** The last position of a row that is taken: searched in steps that double, and then halve. @param low is, or none */
export async function lastOf(low: number, isTaken: (at: number) => Promise<boolean>): Promise<number> {
  let last = low;
  let step = 1;
  for (; await isTaken(last + step); step *= last < FEW ? 1 : 2) last += step;
  for (let high = last + step; high - last > 1; ) {
    const middle = Math.floor((last + high) / 2);
    if (await isTaken(middle)) last = middle;
    else high = middle;
  }
  return last;
}

export class TaskIndex {
  readonly #records: IndexRecords;
  readonly #rowNames: RowNames;
  readonly #ttl: number;
  /** How long a row grows, in milliseconds. */
  readonly #unit: number;
  readonly #now: () => number;
  /** The last position of a row that is known to be taken. */
  readonly #ends = new Map<string, number>();
  /** Resolves when the last append to a row that was asked for is done. */
  readonly #appending = new Map<string, Promise<void>>();

  /** @param ttl longest life of a task, in milliseconds: the same in all processes */
  constructor(records: IndexRecords, rowNames: RowNames, ttl: number, now: () => number) {
    this.#records = records;
    this.#rowNames = rowNames;
    this.#ttl = ttl;
    this.#unit = ttl <= DAY ? HOUR : DAY;
    this.#now = now;
  }

  /** @param owner the owner of the list that it is in, if any */
  async add(id: string, owner: string | undefined): Promise<void> {
    const row = Math.floor(this.#now() / this.#unit);
    const own = owner !== undefined && this.addOwn(id, owner);
    await Promise.all([this.#append(this.#rowNames(null)[0], row, id), own]);
  }

  /** Lists something under an owner, and nowhere else. @param counted whose room it takes, if anybody's */
  addOwn(id: string, owner: string, counted?: RowsCaller): Promise<void> {
    return this.#append(this.#rowNames(owner)[0], Math.floor(this.#now() / this.#unit), id, counted);
  }

  /** A caller's tasks, the newest first. */
  async list(whose: string, cursor: string | undefined, size: number): Promise<Page> {
    // In an order that all processes agree in, whichever secret they write under.
    const names = [...this.#rowNames(whose)].sort();
    const [startRow, startAt, startNth] = this.#placeOf(cursor);
    const ids: string[] = [];
    for (let row = startRow; row >= this.#oldest; row -= 1) {
      for (const [nth, name] of names.entries()) {
        if (row === startRow && nth < startNth) continue;
        const last = await this.#endOf(name, row);
        const isStart = row === startRow && nth === startNth;
        for (let at = isStart ? Math.min(startAt, last) : last; at > 0; at -= 1) {
          if (ids.length === size) return { ids, next: [row, at, nth].map((n) => n.toString(36)).join('.') };
          const id = await this.#records.get(this.#name(name, row, at));
          if (typeof id === 'string') ids.push(id);
        }
      }
    }
    return { ids };
  }

  /** Where the rows end now: `added` with it returns what comes later. */
  async ends(): Promise<SeenRows> {
    const rows = this.#rows();
    const ends = await Promise.all(rows.map(({ name, row }) => this.#endOf(name, row)));
    return new Map(rows.map(({ known }, nth) => [known, { at: ends[nth] ?? 0, isWhole: true }]));
  }

  #rows(): { name: string; row: number; known: string }[] {
    return Array.from({ length: this.#newest - this.#oldest + 1 }, (_, nth) => this.#oldest + nth).flatMap(
      (row) => this.#rowNames(null).map((name) => ({ name, row, known: `${name} ${row}` })),
    );
  }

  /** All callers' tasks that were added since the last call with the same `seen`, or a part of them. */
  async added(seen: SeenRows): Promise<string[]> {
    for (const known of seen.keys()) if (Number(known.split(' ')[1]) < this.#oldest) seen.delete(known);
    const rows = this.#rows().filter(
      ({ row, known }) => row >= this.#newest - GROWING || !seen.get(known)?.isWhole,
    );
    // Where a read fails, nothing counts as seen: all of it is reported the next time.
    const room = { left: PART };
    const found = await Promise.all(
      rows.map(async ({ name, row, known }) => ({
        known,
        ...(await this.#readOn(name, row, seen.get(known)?.at ?? 0, room)),
      })),
    );
    for (const { known, at, isWhole } of found) seen.set(known, { at, isWhole });
    return found.flatMap(({ ids }) => ids);
  }

  /** Reads a row after a position, to its end or until `room` is used up; a row without new entries costs one read. */
  async #readOn(
    name: string,
    row: number,
    after: number,
    room: { left: number },
  ): Promise<{ at: number; ids: string[]; isWhole: boolean }> {
    const ids: string[] = [];
    let at = after;
    for (let ahead = 1; room.left > 0; ahead = Math.min(2 * ahead, AHEAD)) {
      const reads = Array.from({ length: ahead }, (_, nth) =>
        this.#records.get(this.#name(name, row, at + 1 + nth)),
      );
      for (const id of await Promise.all(reads)) {
        if (id === undefined) return { at, ids, isWhole: true };
        at += 1;
        room.left -= 1;
        if (typeof id === 'string') ids.push(id);
      }
    }
    return { at, ids, isWhole: false };
  }

  get #newest(): number {
    // A clock that is ahead of this one may have begun the next row.
    return Math.floor(this.#now() / this.#unit) + 1;
  }

  get #oldest(): number {
    return Math.floor((this.#now() - this.#ttl) / this.#unit) - 1;
  }

  /** One after the other: all at once would each try the positions of all others. */
  #append(owner: string, row: number, id: string, counted?: RowsCaller): Promise<void> {
    const key = `${owner} ${row}`;
    const before = this.#appending.get(key);
    const appended =
      before === undefined
        ? this.#appendNext(owner, row, id, counted)
        : before.then(() => this.#appendNext(owner, row, id, counted));
    const settled = appended
      .catch(() => {})
      .then(() => {
        if (this.#appending.get(key) === settled) this.#appending.delete(key);
      });
    this.#appending.set(key, settled);
    return appended;
  }

  async #appendNext(owner: string, row: number, id: string, counted?: RowsCaller): Promise<void> {
    const expires = this.#expiry(row);
    const holder = counted && rowsOf(counted, expires);
    const known = this.#ends.get(`${owner} ${row}`);
    for (let at = known ?? (await this.#endOf(owner, row)); ; at = await this.#endOf(owner, row)) {
      const isFree = await this.#records.insert(this.#name(owner, row, at + 1), id, expires, holder);
      this.#remember(owner, row, at + 1);
      if (isFree) return;
    }
  }

  /** The last position in use: searched in steps that double, and then halve. */
  async #endOf(owner: string, row: number): Promise<number> {
    const isTaken = async (at: number): Promise<boolean> =>
      (await this.#records.get(this.#name(owner, row, at))) !== undefined;
    const end = await lastOf(this.#ends.get(`${owner} ${row}`) ?? 0, isTaken);
    this.#remember(owner, row, end);
    return end;
  }

  #remember(owner: string, row: number, at: number): void {
    const name = `${owner} ${row}`;
    this.#ends.set(name, Math.max(at, this.#ends.get(name) ?? 0));
    keepNewest(this.#ends, ENDS);
  }

  /** Row, position in it, and which of the row's names. */
  #placeOf(cursor: string | undefined): [number, number, number] {
    const match = cursor === undefined ? null : /^([0-9a-z]+)\.([0-9a-z]+)\.([0-9a-z])$/.exec(cursor);
    if (match === null) return [this.#newest, Infinity, 0];
    const [row, at, nth] = match.slice(1).map((part) => Number.parseInt(part, 36));
    // A client may make one up: there is nothing in the rows to come.
    return [Math.min(row ?? 0, this.#newest), at ?? 0, nth ?? 0];
  }

  #expiry(row: number): number {
    return (row + 2) * this.#unit + this.#ttl;
  }

  /** The name begins with its record's expiry, as all names do. */
  #name(owner: string, row: number, at: number): string {
    return `${this.#expiry(row).toString(36)}.tasks.${owner}:${at}`;
  }
}
