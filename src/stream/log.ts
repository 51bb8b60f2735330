/**
 * One stream in the store: entry n under `<name>:<n>`, from 1, inserted if absent and never changed. Everything that
 * happens to a stream is an entry (an event, its end, another appender, another connection), so all processes see one
 * order, and a process that loses a position reads there why.
 * Every entry names the appender (`writer`) and the connection (`reader`), so the last entry alone says which process
 * to wake.
 */

import { AwaitError } from '../base/error.ts';
import { isObject, type JsonObject } from '../base/json.ts';
import { expiryOf, recordsName } from './event-id.ts';
import type { StreamRecords } from './records.ts';
import type { SseEvent } from './sse.ts';

/** Its data must hold no line ends: JSON has none. */
export interface StreamEvent extends Omit<SseEvent, 'id'> {
  /** Stored with the event and never sent: data for a process that continues from here. */
  readonly note?: JsonObject;
}

export type EntryBody =
  /** With `last` nothing follows: one entry less than an `end`. */
  | { readonly kind: 'event'; readonly event: StreamEvent; readonly last?: true }
  | { readonly kind: 'end' }
  /** Another appender continues the stream. */
  | { readonly kind: 'taken' }
  /** Another process has the connection. */
  | { readonly kind: 'claim' };

export type StreamEntry = EntryBody & {
  /** The position of the last event before this one, 0 for none: shows a reader whether pruning took one from it. */
  readonly prev: number;
  readonly writer: string;
  readonly reader: string;
};

/** How far a stream is pruned. Written before anything is deleted. */
export interface Mark {
  /** The position of the oldest entry that is kept for sure. */
  readonly oldest: number;
  /** Older ones that stay, since a former appender would take their absence for its next position. */
  readonly kept: readonly number[];
}

export interface End {
  /** 0 for a stream that has nothing in it. */
  readonly at: number;
  readonly entry?: StreamEntry;
}

const KINDS: ReadonlySet<unknown> = new Set<EntryBody['kind']>(['event', 'end', 'taken', 'claim']);

export class StreamLog {
  readonly id: string;
  readonly name: string;
  /** Milliseconds since the epoch. */
  readonly expires: number;
  readonly #records: StreamRecords;

  constructor(records: StreamRecords, id: string, scope: string) {
    this.#records = records;
    this.id = id;
    this.name = recordsName(id, scope);
    this.expires = expiryOf(id);
  }

  insert(at: number, entry: StreamEntry): Promise<boolean> {
    return this.#records.insert(`${this.name}:${at}`, entry, this.expires);
  }

  async read(at: number): Promise<StreamEntry | undefined> {
    const found = await this.#records.get(`${this.name}:${at}`);
    if (found === undefined || found === null) return undefined;
    if (!isObject(found) || !KINDS.has(found.kind) || typeof found.prev !== 'number') {
      throw new AwaitError('format', `entry ${at} of stream ${this.name} is not an entry of a stream`);
    }
    return found as unknown as StreamEntry;
  }

  remove(at: number): Promise<void> {
    return this.#records.remove(`${this.name}:${at}`);
  }

  async mark(): Promise<Mark> {
    const found = await this.#records.get(`${this.name}:mark`);
    return isObject(found) ? (found as unknown as Mark) : { oldest: 1, kept: [] };
  }

  writeMark(mark: Mark): Promise<void> {
    return this.#records.replace(`${this.name}:mark`, mark, this.expires);
  }

  /** How far connections have read, for the next one that does not say it. */
  async had(): Promise<{ readonly at: number; readonly live: boolean } | undefined> {
    const found = await this.#records.get(`${this.name}:had`);
    return isObject(found) ? { at: Number(found.at), live: found.live === true } : undefined;
  }

  writeHad(at: number, live: boolean): Promise<void> {
    return this.#records.replace(`${this.name}:had`, { at, live }, this.expires);
  }

  /** Deletes all that there is up to a position. */
  async removeAll(upTo: number): Promise<void> {
    const { oldest, kept } = await this.mark();
    for (const at of kept) if (at < oldest) await this.remove(at);
    for (let at = oldest; at <= upTo; at += 1) await this.remove(at);
    for (const name of ['mark', 'had']) await this.#records.remove(`${this.name}:${name}`);
  }

  /**
   * Where to read on after `sequence`.
   * @returns the position before the first to read; undefined when an event between was deleted, or never existed
   */
  async after(sequence: number): Promise<number | undefined> {
    const next = await this.read(sequence + 1);
    if (next?.kind === 'event' || next?.kind === 'end') return sequence;
    if (next === undefined && sequence > 0 && (await this.read(sequence)) !== undefined) return sequence;
    const { oldest } = await this.mark();
    // Entries of other kinds may outlive the events around them.
    if (sequence + 1 >= oldest) return next === undefined ? undefined : sequence;
    const first = await this.read(oldest);
    return first !== undefined && first.prev <= sequence ? oldest - 1 : undefined;
  }

  /**
   * The last entry.
   * @param known a position that was there
   * @throws AwaitError `store` when the oldest entry that must be kept is not there
   */
  async end(known = 0): Promise<End> {
    let entry = known > 0 ? await this.read(known) : undefined;
    let at = known;
    for (let oldest = 0; entry === undefined; ) {
      const mark = await this.mark();
      // Pruned again while we looked: look once more.
      if (mark.oldest === oldest && oldest > 1)
        throw new AwaitError('store', `stream ${this.name} has lost its entry ${oldest}`);
      if (mark.oldest === oldest) return { at: 0 };
      oldest = mark.oldest;
      at = oldest;
      entry = await this.read(at);
    }
    // A client that returns soon finds the end with the first of these reads.
    let step = 1;
    for (let next = await this.read(at + step); next !== undefined; next = await this.read(at + step)) {
      entry = next;
      at += step;
      step *= 2;
    }
    for (let missing = at + step; missing - at > 1; ) {
      const middle = Math.floor((at + missing) / 2);
      const found = await this.read(middle);
      if (found === undefined) missing = middle;
      else {
        at = middle;
        entry = found;
      }
    }
    return { at, entry };
  }
}

export function isLast(entry: StreamEntry | undefined): boolean {
  return entry?.kind === 'end' || (entry?.kind === 'event' && entry.last === true);
}

/** The value of `prev` for the entry after this one. */
export function prevAfter({ at, entry }: End): number {
  if (entry === undefined) return 0;
  return entry.kind === 'event' ? at : entry.prev;
}
