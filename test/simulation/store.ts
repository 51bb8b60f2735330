/**
 * The store's contract under simulated latency and failure: an operation reaches the store some time after it
 * was asked for, and its answer the process some time after that. In between the process may die (what it
 * asked for may happen all the same), and the store may fail before or after it wrote.
 */
import { AwaitError, type Clock } from '../../src/base/values.ts';
import type { CallRecord, Entry } from '../../src/call/journal/entries.ts';
import { type Entries, JournalWriter } from '../../src/call/journal/writer.ts';
import type { CallStore } from '../../src/call/ports.ts';
import { Retry } from '../../src/log/retry.ts';
import type { Life, World } from './world.ts';

export interface Written {
  readonly entry: Entry;
  readonly by: Life;
  readonly at: number;
}

/** Inserted if absent, or overwritten; nothing of it expires. */
export interface BesideRecords {
  get(name: string): Promise<unknown>;
  insert(name: string, value: unknown): Promise<boolean>;
  replace(name: string, value: unknown): Promise<void>;
}

/** A fault of the store, for a while. */
export interface Outage {
  readonly from: number;
  readonly to: number;
  /** `after`: it writes, and says that it did not. */
  readonly mode: 'before' | 'after' | 'slow';
}

/** How long the store may be away, in milliseconds, before another process may take a call over: half a lease. */
const HARMLESS = 500;

export class SimulatedStore {
  readonly journals = new Map<string, Written[]>();
  /** Records beside the journals, as JSON. */
  readonly records = new Map<string, string>();
  /** What the connections of a process hear of its logs. */
  readonly hooks = new Map<
    Life,
    {
      readonly written: (call: CallRecord, position: number, entry: Entry) => void;
      readonly received: (callId: string, position: number, entry: Entry) => void;
    }
  >();
  /** Called for each operation, as it leaves its process. */
  onAsked: (life: Life) => void = () => {};
  readonly #beats = new Map<string, string>();
  readonly #world: World;
  readonly #outages: readonly Outage[];
  readonly #pace: number;

  /** @param pace how slow it is where nothing is wrong: 0 for one that answers at once */
  constructor(world: World, outages: readonly Outage[], pace = 1) {
    this.#pace = pace;
    this.#world = world;
    this.#outages = outages;
  }

  of(callId: string): readonly Written[] {
    return this.journals.get(callId) ?? [];
  }

  /** Another world with the same journals, as if every call had stopped right before its outcome was written. */
  upToOutcome(world: World): SimulatedStore {
    const copy = new SimulatedStore(world, []);
    for (const [callId, journal] of this.journals) {
      const end = journal.findIndex(({ entry }) => entry.type === 'ended');
      copy.journals.set(callId, end < 0 ? [...journal] : journal.slice(0, end));
    }
    return copy;
  }

  /** The store, as one process sees it. */
  for(life: Life, clock: Clock, lease: number): CallStore {
    const retry = new Retry({ clock, lease });
    const read = (callId: string, position: number): Promise<Entry | undefined> =>
      this.#operate(life, () => {
        const found = this.journals.get(callId)?.[position];
        return found === undefined ? undefined : (JSON.parse(JSON.stringify(found.entry)) as Entry);
      });
    const readOn = (callId: string, position: number): Promise<Entry[]> =>
      this.#operate(life, () => {
        const found = this.journals.get(callId)?.slice(position) ?? [];
        return found.map(({ entry }) => JSON.parse(JSON.stringify(entry)) as Entry);
      });
    const insert = async (
      call: CallRecord,
      position: number,
      entry: Entry,
      until?: number,
    ): Promise<boolean> => {
      const isInserted = await retry.insert(
        () => this.#insert(life, call.id, position, entry),
        () => read(call.id, position),
        entry,
        until,
      );
      if (isInserted) this.hooks.get(life)?.written(call, position, entry);
      return isInserted;
    };
    return {
      read: (callId, position) => retry.read(() => read(callId, position)),
      readOn: async function* (callId, position) {
        yield* await retry.read(() => readOn(callId, position));
      },
      open: (call, after) => {
        const entries: Entries = {
          insert: (position, entry, until) => insert(call, position, entry, until),
          read: (position) => retry.read(() => read(call.id, position)),
          readOn: async function* (position) {
            yield* await retry.read(() => readOn(call.id, position));
          },
          beat: (sign) => this.#operate(life, () => void this.#beats.set(call.id, sign)),
        };
        return new JournalWriter(entries, call, after, clock, lease);
      },
      insertEntry: (call, position, entry) => insert(call, position, entry, call.expires),
      get failures() {
        return retry.failures;
      },
      isShared: true,
      heard: async (callId, silence) => {
        if (silence >= lease / 2) await retry.read(() => this.#operate(life, () => undefined));
        return retry.read(() => this.#operate(life, () => this.#beats.get(callId)));
      },
    };
  }

  /** The records beside the journals, as one process sees them. */
  recordsFor(life: Life, clock: Clock, lease: number): BesideRecords {
    const retry = new Retry({ clock, lease });
    const read = (name: string): Promise<unknown> =>
      this.#operate(life, () => {
        const found = this.records.get(name);
        return found === undefined ? undefined : JSON.parse(found);
      });
    const insert = (name: string, text: string): Promise<boolean> =>
      this.#operate(life, () => {
        if (this.records.has(name)) return false;
        this.records.set(name, text);
        return true;
      });
    return {
      get: (name) => retry.read(() => read(name)),
      insert: (name, value) =>
        retry.insert(
          () => insert(name, JSON.stringify(value)),
          () => read(name),
          value,
        ),
      replace: (name, value) =>
        retry.write(() => this.#operate(life, () => void this.records.set(name, JSON.stringify(value)))),
    };
  }

  #operate<T>(life: Life, act: () => T): Promise<T> {
    const world = this.#world;
    this.onAsked(life);
    const outage = this.#outages.find(({ from, to }) => world.time >= from && world.time < to);
    const slow = outage?.mode === 'slow' ? world.between(100, 2_000) : 0;
    // From when it is asked for: a sign of life on its way may come too late.
    if (slow > 0) life.disturbed = true;
    return new Promise((resolve, reject) => {
      // Whether it reaches the store does not depend on whether its process still lives.
      world.after(world.between(0.1, 2) * this.#pace + slow, () => {
        const fails = outage !== undefined && outage.mode !== 'slow' && world.chance(0.7);
        const happens = !fails || outage.mode === 'after';
        const result = happens ? act() : undefined;
        // A shorter one costs nobody a step: its owner writes again before its lease is over.
        if (fails && outage.to - outage.from > HARMLESS) life.disturbed = true;
        world.after(
          world.between(0.1, 2) * this.#pace + slow,
          () => {
            if (fails) reject(new AwaitError('store', 'the store failed'));
            else resolve(result as T);
          },
          life,
        );
      });
    });
  }

  /** Resolves to false if the position is taken. */
  #insert(life: Life, callId: string, position: number, entry: Entry): Promise<boolean> {
    const text = JSON.stringify(entry);
    return this.#operate(life, () => {
      const journal = this.journals.get(callId) ?? [];
      this.journals.set(callId, journal);
      if (journal[position] !== undefined) return false;
      if (position !== journal.length) this.#world.violated(`entry ${position} of ${journal.length} written`);
      journal[position] = { entry: JSON.parse(text) as Entry, by: life, at: this.#world.time };
      return true;
    });
  }
}
