/**
 * The records of calls, in a Keyv or in this process's memory (`Backing`): the entries of journals, inserted if absent
 * and never changed, and the records beside them. A process that loses a position is fenced. Expiry is ours (a record's
 * name holds it), with a margin for clocks that differ; Keyv's own would let a reader whose clock is ahead delete a live
 * record.
 */
import type Keyv from 'keyv';
import {
  AwaitError,
  type Clock,
  given,
  isObject,
  LONG,
  memoryOf,
  placeFor,
  readFor,
} from '../base/values.ts';
import {
  type CallRecord,
  DELETED,
  type Entry,
  isContinued,
  isEnd,
  isReceived,
  type Kept,
  readCheckpoint,
} from '../call/journal/entries.ts';
import { type Entries, JournalWriter } from '../call/journal/writer.ts';
import type { CallStore, OpenJournal } from '../call/ports.ts';
import { told } from '../call/run/wire-error.ts';
import { Retry } from '../log/retry.ts';
import { type Backing, KeyvBacking, MemoryBacking } from './backing.ts';
import { type ByteLimits, type BytesHolder, HeldBytes } from './held-bytes.ts';
import type { Primitive } from './insert.ts';
import { Names } from './names.ts';
import { ANSWER, ROW } from './page-records.ts';
import { plainRecords, type RecordCipher } from './records.ts';

/** How far clocks may differ before a record that is still wanted is deleted. */
const MARGIN = 300_000;
/** Leases after which no process follows an ended call any more. */
const LEASES = 6;
/** How long an answer of the store counts for health checks, in milliseconds. */
const PROBE = 1_000;
/** Between two looks at the store's clock, in milliseconds. */
const LOOK = 60_000;
/** How long a look may take that says what time it is, in milliseconds; a slow one is better than none. */
const QUICK = 500;
/** Entries that are read together. */
const AT_ONCE = 4;
/** Expired records that are deleted at once. */
const SWEPT = 500;

/** Entries that may be refused for lack of room, and those after which a call takes no more of it. */
const PUTS_DOWN: ReadonlySet<Entry['type']> = new Set(['called', 'suspended']);

/** Whether a client's answers are in it. */
function hasAnswers(entry: Entry): boolean {
  return entry.type === 'claimed'
    ? entry.answers.length > 0
    : entry.type === 'completed' && entry.completion.kind === 'answer';
}

/** Largest record of a call, besides its entries, that is not refused for lack of room, in bytes: a decline. */
const SMALL = 500;
/** What a record's name and its places take beside it. */
const NAME = 200;

interface InsertHow {
  readonly until?: number;
  readonly holder?: Kept;
}

interface StoreParts {
  readonly names: Names;
  readonly cipher: RecordCipher;
  /** Limits of the bytes that this process writes for callers. */
  readonly bytes?: ByteLimits;
  /** How a failing store is tried again. */
  readonly retry?: Retry;
  /** An entry of a call's journal is written, with its messages if `isKept`. */
  readonly written?: (call: CallRecord, entry: Entry, position: number, isKept: boolean) => void;
  /** Lists a call under its known caller, where other processes may have to find it. */
  readonly list?: (callId: string, caller: string) => Promise<void>;
}

export class KeyvCallStore implements CallStore {
  readonly #backing: ClosableBacking;
  readonly #clock: Clock;
  readonly #lease: number;
  readonly #held: HeldBytes | undefined;
  readonly #parts: StoreParts;
  readonly #retry: Retry;
  /** The callers whose calls are being looked after. */
  readonly #looking = new Set<string | undefined>();
  /** How far the store's clock, if it has one, is ahead of this process's monotonic one, and when it was looked at. */
  #ahead: number | undefined;
  #looked = -Infinity;
  /** When the store was last seen to take writes. */
  #tried = -Infinity;
  #probe: { readonly at: number; readonly answers: Promise<boolean> } | undefined;
  /** Since when health checks got no answer of the store. */
  #silent = -Infinity;

  /**
   * @param keyv undefined: the records stay in this process's memory
   * @param lease how long the owner of a turn may be silent, in milliseconds
   */
  constructor(keyv: Keyv | undefined, clock: Clock, lease: number, parts: StoreParts = UNKEYED) {
    const { names, cipher, bytes, retry = new Retry({ clock, lease }) } = parts;
    this.#parts = parts;
    this.#retry = retry;
    const backing: Backing =
      keyv === undefined ? new MemoryBacking() : new KeyvBacking(keyv, names, cipher, lease / 4);
    this.#backing = closable(backing);
    this.#clock = clock;
    this.#lease = lease;
    // A process that follows a call of a shared store takes it over after a lease of silence.
    const quiet = this.isShared ? LEASES * lease : 0;
    const evict = (held: BytesHolder): void => this.#evict(held);
    // What all callers together take of a shared store is its operator's to bound.
    const most = bytes && this.isShared ? { ...bytes, all: Infinity, outcomes: Infinity } : bytes;
    if (most) this.#held = new HeldBytes(most, evict, () => clock.elapsed(), quiet);
  }

  get primitive(): Primitive {
    return this.#backing.primitive;
  }

  open(call: CallRecord, after: number): OpenJournal {
    const entries: Entries = {
      insert: (at, entry, until) => this.#insertEntry(call, at, entry, until),
      read: (at, until) => this.read(call.id, at, call.principal, until),
      readOn: (at) => this.readOn(call.id, at, call.principal),
      beat: (sign) => this.#backing.replace(`${call.id}:beat`, sign, this.#lifetime(call.expires)),
    };
    return new JournalWriter(entries, call, after, this.#clock, this.#lease);
  }

  insertEntry(call: CallRecord, position: number, entry: Entry): Promise<boolean> {
    return this.#insertEntry(call, position, entry, call.expires);
  }

  async read(callId: string, position: number, owner?: string, until?: number): Promise<Entry | undefined> {
    const value = await readFor(owner, () => this.get(`${callId}:${position}`, until));
    return (value && readEntry(value, `${position} of call ${callId}`)) as Entry | undefined;
  }

  async *readOn(callId: string, position: number, owner?: string): AsyncGenerator<Entry> {
    const end = await placeFor(owner);
    try {
      for (let at = position; ; ) {
        const names = Array.from({ length: AT_ONCE }, (_, nth) => `${callId}:${at + nth}`);
        for (const value of await given(await this.getAll(names), owner)) {
          if (value === undefined) return;
          yield readEntry(value, `${at} of call ${callId}`);
          at += 1;
        }
      }
    } finally {
      end();
    }
  }

  async heard(callId: string, silence: number): Promise<unknown> {
    const now = this.#clock.elapsed();
    if (silence >= this.#lease / 2 && now >= this.#tried + this.#lease / 4) {
      await this.#retry.read(() => this.#backing.replace('look', 0, MARGIN));
      this.#tried = now;
    }
    return this.get(`${callId}:beat`);
  }

  get failures(): number {
    return this.#retry.failures;
  }

  get isShared(): boolean {
    return this.primitive !== 'map';
  }

  /** Frees memory where the store is this process's own map; in other stores records stay until they expire. */
  forget(call: Kept, upTo: number): void {
    if (this.isShared) return;
    this.#held?.drop(call.id);
    void this.remove(...positionsOf(call.id, upTo)).catch(() => {});
  }

  /**
   * Inserts a record of another kind, such as a session's.
   * @param how `until`: as in `Retry.insert`; `holder`: whose bytes it counts with
   * @throws AwaitError `limit` where its caller has no room for it; one of a call that outlasts its request has a quarter more
   */
  insert(name: string, value: unknown, expires: number, { until, holder }: InsertHow = {}): Promise<boolean> {
    if (holder !== undefined) return this.#insertFor(holder, name, value, expires, until);
    return this.#insert(name, value, this.#lifetime(expires), until);
  }

  #insert(
    name: string,
    value: unknown,
    lifetime: number,
    until: number | undefined,
    sized?: (bytes: number) => void,
  ): Promise<boolean> {
    return this.#retry.insert(
      () => this.#backing.insert(name, value, lifetime, sized),
      () => this.#backing.get(name),
      value,
      until,
    );
  }

  async #insertFor(
    holder: Kept,
    name: string,
    value: unknown,
    expires: number,
    until: number | undefined,
  ): Promise<boolean> {
    let bytes = 0;
    const sized = (size: number): void => {
      bytes = size + NAME;
      // What stands beside a call that outlasts its request (`CONTINUED`), such as an answer, continues or ends it.
      const isBeside = name.includes('~:');
      if (size > SMALL || !isBeside) this.#makeRoom(holder, bytes, isBeside);
    };
    const inserted = await this.#insert(name, value, this.#lifetime(expires), until, sized);
    if (inserted) this.#held?.add(holder, name, bytes);
    return inserted;
  }

  /** A session is not used here any more: its records are deleted once their room is needed. */
  release(id: string): void {
    this.#held?.finish(id);
  }

  /** Deletes the records of a session that has ended, those that other processes wrote among them. */
  async removeAll(id: string, ...others: readonly string[]): Promise<void> {
    const own = this.#held?.drop(id)?.beside ?? [];
    const names = new Set([...own, ...others]);
    if (names.size > 0) await this.remove(...names);
  }

  async #insertEntry(
    call: CallRecord,
    at: number,
    entry: Entry,
    until: number | undefined,
  ): Promise<boolean> {
    const { written, list } = this.#parts;
    const held = this.#held;
    let bytes = 0;
    const sized =
      held &&
      ((size: number): void => {
        bytes = size;
        // Other entries continue or end a call, and are written even if there is no room.
        if (PUTS_DOWN.has(entry.type) || isReceived(entry))
          this.#makeRoom(call, size, entry.type === 'reading');
        else if (hasAnswers(entry)) this.#makeRoom(call, size, true);
      });
    // A call goes on without room for its notifications, and a stranger's for its long result: its connection has them.
    const isSpared =
      entry.type === 'ended' &&
      call.principal === undefined &&
      this.isShared &&
      memoryOf(entry.response) > LONG;
    const spare = isSpared ? entry.response : entry.type === 'notified' && entry.messages;
    const isKept = !spare || held?.spares(call, memoryOf(spare)) !== false;
    const without = isSpared ? { response: { error: told('limit') } } : { messages: [] };
    const record = isKept ? entry : { ...entry, ...without };
    const lifetime = this.#lifetime(call.expires);
    const inserted = await this.#insert(`${call.id}:${at}`, record, lifetime, until, sized);
    if (inserted) this.#count(call, at, bytes, entry);
    // Indexed before the call is announced to anyone: a call that cannot be found cannot be erased.
    if (inserted && at === 0 && call.principal !== undefined && this.isShared)
      await list?.(call.id, call.principal);
    if (inserted) written?.(call, entry, at, isKept);
    return inserted;
  }

  #count(call: CallRecord, at: number, bytes: number, entry: Entry): void {
    const held = this.#held;
    held?.add(call, at, bytes);
    if (isEnd(entry)) held?.finish(call.id);
    else if (this.isShared && PUTS_DOWN.has(entry.type) && held?.isTight(call)) void this.#lookAfter(call);
  }

  /** @throws AwaitError `limit`; calls that ended in other processes make room for a later attempt */
  #makeRoom(holder: Kept, bytes: number, isAnswer = false): void {
    try {
      this.#held?.makeRoom(holder, bytes, isAnswer);
    } catch (error) {
      if (this.isShared) void this.#lookAfter(holder);
      throw error;
    }
  }

  /** Looks which calls of a caller ended in other processes, so that they make room. */
  async #lookAfter({ principal }: Kept): Promise<void> {
    if (this.#looking.has(principal)) return;
    this.#looking.add(principal);
    try {
      // Of a call that another process began, this one may have an answer alone.
      for (const { call, upTo } of this.#held?.unfinished(principal) ?? []) {
        let at = upTo;
        for await (const entry of this.readOn(call.id, upTo + 1, principal)) {
          at += 1;
          if (isEnd(entry)) this.#held?.finish(call.id, at);
        }
      }
    } catch {
      // The store cannot say; the next write asks again.
    } finally {
      this.#looking.delete(principal);
    }
  }

  /** Deletes a log that makes room. A process that then writes into it finds its first entry missing (`journal/writer.ts`). */
  #evict({ call, upTo }: BytesHolder): void {
    const beside = this.#held?.drop(call.id)?.beside ?? [];
    const all = [...positionsOf(call.id, upTo), ...beside];
    // A request that comes again, at another process, begins it no more: nor does one that an idempotency key names.
    const first = this.isShared && isContinued(call.id) ? `${call.id}:0` : undefined;
    const gone = this.isShared ? all.filter((name) => name !== first && !ROW.test(name)) : all;
    const marked = first === undefined ? Promise.resolve() : this.replace(first, DELETED, call.expires);
    // Records that cannot be deleted stay until they expire.
    void marked.then(() => this.remove(...gone)).catch(() => {});
  }

  /**
   * Deletes what the records of a call that has ended hold. A process that is killed meanwhile leaves a log that says
   * that it is over, and that can be found to be erased again.
   * @param beside names of its other records
   */
  async erase(
    { id, expires }: CallRecord,
    entries: readonly Entry[],
    beside: readonly string[],
  ): Promise<void> {
    if (beside.length > 0) await this.remove(...beside.filter((name) => !ANSWER.test(name)));
    // An answer that is being written finds its place taken.
    for (const name of beside.filter((one) => ANSWER.test(one))) await this.replace(name, DELETED, expires);
    const names = positionsOf(id, entries.length - 1).filter((_, at) => entries[at]?.type !== 'cancelled');
    // The first one last: it is found by that.
    for (const name of names.reverse()) await this.replace(name, { ...DELETED, isErased: true }, expires);
  }

  /** The calls that are kept in this process's memory; undefined where a store is shared. */
  get heldCalls(): Kept[] | undefined {
    const held = this.isShared ? undefined : this.#held;
    return held && [...held.calls].filter(({ upTo }) => upTo >= 0).map(({ call }) => call);
  }

  /**
   * The ids of this service's calls, found by their first entries.
   * @param refused called for each entry that cannot be opened
   * @throws AwaitError `store` where the adapter cannot list its keys
   */
  async *callIds(refused: (error: unknown) => void): AsyncGenerator<string> {
    for await (const found of this.#backing.firstEntries(refused)) {
      const { call } = found.type === 'suspended' && isObject(found.checkpoint) ? found.checkpoint : found;
      if (isObject(call) && typeof call.id === 'string') yield call.id;
    }
  }

  /** @param until as in `Retry.insert` */
  get(name: string, until?: number): Promise<unknown> {
    return this.#retry.read(() => this.#backing.get(name), until);
  }

  /** Milliseconds since the epoch by the store's own clock, once that was looked at, or by this process's. */
  time(): number {
    const now = this.#clock.elapsed();
    if (now > this.#looked + LOOK) void this.#look().catch(() => {});
    return this.#ahead === undefined ? this.#clock.now() : Math.round(now + this.#ahead);
  }

  /** Looks at the store's clock before it is needed. */
  async look(): Promise<void> {
    await this.#retry.read(() => this.#look()).catch(() => {});
  }

  async #look(): Promise<void> {
    const began = this.#clock.elapsed();
    // Again in a second, where it fails or is slow.
    this.#looked = began + 1_000 - LOOK;
    const time = await this.#backing.time();
    const trip = this.#clock.elapsed() - began;
    if (trip < QUICK) this.#looked = began;
    if (trip < QUICK || this.#ahead === undefined) this.#ahead = time && time - began - trip / 2;
  }

  /** Several records, in one read where the store can. */
  getAll(names: readonly string[]): Promise<unknown[]> {
    return this.#retry.read(() => this.#backing.getAll(names));
  }

  /**
   * Overwrites a record. Only for hints that help to find other records.
   * @param holder whose bytes it counts with
   * @throws AwaitError `limit` where its caller has no room for it
   */
  async replace(name: string, value: unknown, expires: number, holder?: Kept): Promise<void> {
    const bytes = holder === undefined ? 0 : memoryOf(JSON.stringify(value));
    if (holder !== undefined) this.#makeRoom(holder, bytes);
    await this.#retry.write(() => this.#backing.replace(name, value, this.#lifetime(expires)));
    if (holder !== undefined) this.#held?.add(holder, name, bytes);
  }

  remove(...names: readonly string[]): Promise<void> {
    return this.#retry.write(() => this.#backing.remove(names));
  }

  /**
   * Deletes expired records, if the store can list its keys and does not expire them by itself.
   * @returns how many records were deleted
   */
  async sweep(): Promise<number> {
    for (const held of this.#held?.calls ?? [])
      if (held.call.expires + MARGIN >= this.time()) continue;
      else if (this.isShared) this.#held?.drop(held.call.id);
      else this.#evict(held);
    if (this.primitive === 'redis' || !this.#backing.canList) return 0;
    const gone: string[] = [];
    for await (const { key, expires } of this.#backing.keys())
      if (expires + MARGIN < this.time()) gone.push(key);
    for (let from = 0; from < gone.length; from += SWEPT)
      await this.#backing.removeKeys(gone.slice(from, from + SWEPT));
    return gone.length;
  }

  /**
   * Whether the store reads, for a health check: asked once for all that ask within a second. Half a lease of silence
   * does not count: it costs no call, while a balancer that finds no process ready refuses all.
   */
  answers(): true | Promise<boolean> {
    const now = this.#clock.elapsed();
    if (this.#probe === undefined || now - this.#probe.at >= PROBE) {
      const answers = this.#backing.get('health').then(
        () => true,
        () => false,
      );
      void answers.then((isThere) => {
        this.#silent = isThere ? Infinity : Math.min(this.#silent, now);
      });
      this.#probe = { at: now, answers };
    }
    return now - this.#silent < this.#lease / 2 || this.#probe.answers;
  }

  /** Resolves once nothing is read or written any more: from now on each operation fails with `closed`. */
  close(): Promise<void> {
    return this.#backing.close();
  }

  #lifetime(expires: number): number {
    return Math.max(expires - this.time(), 0) + MARGIN;
  }
}

/** For tests: no secret, and the default audience. */
const UNKEYED: StoreParts = { names: new Names('mcp-await'), cipher: plainRecords('mcp-await') };

function positionsOf(callId: string, upTo: number): string[] {
  return Array.from({ length: upTo + 1 }, (_, position) => `${callId}:${position}`);
}

/** @throws AwaitError `format` */
function readEntry(value: unknown, which: string): Entry {
  if (!isObject(value) || typeof value.type !== 'string')
    throw new AwaitError('format', `entry ${which} is not an entry of a journal`);
  if (value.type === 'suspended') readCheckpoint(value.checkpoint);
  return value as unknown as Entry;
}

// --- closing the store ---

/**
 * A store that stops: what was begun is waited for, and nothing is begun after that. A client of Redis that gets a
 * command after it was disconnected connects again, and keeps its process running.
 */
export function closable(backing: Backing): ClosableBacking {
  const running = new Set<Promise<unknown>>();
  let isClosed = false;
  const run =
    <A extends unknown[], T>(operation: (...args: A) => Promise<T>) =>
    (...args: A): Promise<T> => {
      if (isClosed) return Promise.reject(new AwaitError('closed', 'this process has closed its store'));
      const begun = operation.apply(backing, args);
      running.add(begun);
      const over = (): void => void running.delete(begun);
      begun.then(over, over);
      return begun;
    };
  /** A list is read page by page: each is an operation of its own. */
  async function* each<T>(items: AsyncIterable<T>): AsyncGenerator<T> {
    const iterator = items[Symbol.asyncIterator]();
    const next = run(() => iterator.next());
    try {
      for (let item = await next(); !item.done; item = await next()) yield item.value;
    } finally {
      await iterator.return?.();
    }
  }
  const { primitive, insert, replace, get, getAll, remove, removeKeys, time } = backing;
  return {
    primitive,
    get canList() {
      return backing.canList;
    },
    insert: run(insert),
    replace: run(replace),
    get: run(get),
    getAll: run(getAll),
    remove: run(remove),
    removeKeys: run(removeKeys),
    time: run(time),
    keys: () => each(backing.keys()),
    firstEntries: (refused) => each(backing.firstEntries(refused)),
    async close() {
      isClosed = true;
      await Promise.allSettled(running);
    },
  };
}

interface ClosableBacking extends Backing {
  close(): Promise<void>;
}
