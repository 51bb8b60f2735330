/**
 * One stream in the store: entry n under `<name>:<n>`, from 1, inserted if absent and never changed. Everything that
 * happens to a stream is an entry (an event, its end, another connection), so all processes see one
 * order, and a process that loses a position reads there why.
 * Every entry names the appender (`writer`) and the connection (`reader`), so the last entry alone says which process
 * to wake.
 * A lasting stream has its events' contents in records of their own, which expire before it does: the messages of a call
 * are deleted in time even if every process that served the stream is. Positions stay, so none is used twice. So have large
 * events in this process's memory, whose contents are bounded.
 */

import { AwaitError, isObject, memoryOf, readFor } from '../base/values.ts';
import type { ContentBytes } from './content-bytes.ts';
import { expiryOf, isStandingId, newStreamId, recordsName } from './event-id.ts';
import type { StreamRecords } from './records.ts';
import type { SseEvent } from './sse.ts';

/** Its data must hold no line ends: JSON has none. */
export type StreamEvent = Omit<SseEvent, 'id'>;

export type EntryBody =
  /** With `last` nothing follows: one entry less than an `end`. */
  | { readonly kind: 'event'; readonly event: StreamEvent; readonly last?: true }
  /** An event whose content is the record of that name; `read` gives it where the content has expired. */
  | { readonly kind: 'apart'; readonly content: string; readonly last?: true }
  | { readonly kind: 'end' }
  /** A call, whose log has the rest. */
  | { readonly kind: 'call'; readonly callId: string; readonly requestId: string | number }
  /** Another process has the connection. */
  | { readonly kind: 'claim' };

export type StreamEntry = EntryBody & {
  /** The position of the last event or call before this one, 0 for none: shows a reader whether pruning took one from it. */
  readonly prev: number;
  readonly writer: string;
  readonly reader: string;
};

/** How far a stream is pruned. Written before anything is deleted. */
export interface PruneMark {
  /** The position of the oldest entry that is kept for sure. */
  readonly oldest: number;
}

export interface StreamEnd {
  /** 0 for a stream that has nothing in it. */
  readonly at: number;
  readonly entry?: StreamEntry;
}

const KINDS: ReadonlySet<unknown> = new Set<EntryBody['kind']>(['event', 'apart', 'end', 'call', 'claim']);

/** Entries that are deleted at once. */
const REMOVED = 500;

export class StreamLog {
  readonly id: string;
  readonly name: string;
  /** Milliseconds since the epoch. */
  readonly expires: number;
  readonly #records: StreamRecords;
  readonly #contents: ContentBytes | undefined;
  readonly #owner: string | undefined;

  /**
   * @param owner the known caller that it belongs to
   * @param contents bounds what events take
   */
  constructor(records: StreamRecords, id: string, scope: string, owner?: string, contents?: ContentBytes) {
    this.#records = records;
    this.#owner = owner;
    this.#contents = contents;
    this.id = id;
    this.name = recordsName(id, scope);
    this.expires = expiryOf(id);
  }

  /**
   * @param until when an event's content may be deleted, in milliseconds since the epoch; without it, with the stream
   * @param owner the known caller that the stream belongs to
   * @returns false when the position is in use
   */
  insert(at: number, entry: StreamEntry, until = this.expires, owner?: string): Promise<boolean> {
    if (
      entry.kind === 'event' &&
      (until < this.expires || this.#contents?.isLarge((entry.event.data ?? '').length))
    )
      return this.#insertApart(at, entry, until, owner);
    return this.#records.insert(`${this.name}:${at}`, entry, this.expires, { until: this.expires });
  }

  /** The entry, with its content; one of kind `apart` had a content that has expired. */
  async read(at: number): Promise<StreamEntry | undefined> {
    const entry = await this.#entry(at);
    if (entry?.kind !== 'apart') return entry;
    const { content, ...rest } = entry;
    const event = await this.#get(content);
    return isObject(event) ? { ...rest, kind: 'event', event: event as unknown as StreamEvent } : entry;
  }

  async #insertApart(
    at: number,
    { event, ...rest }: Extract<StreamEntry, { kind: 'event' }>,
    until: number,
    owner: string | undefined,
  ): Promise<boolean> {
    const content = newStreamId(until);
    await this.#records.insert(content, event, until, { until });
    this.#contents?.add(owner, content, memoryOf(event.data ?? ''));
    return this.insert(at, { ...rest, kind: 'apart', content });
  }

  /** For records that may be long. */
  #get(name: string): Promise<unknown> {
    return readFor(this.#owner, () => this.#records.get(name));
  }

  async #entry(at: number): Promise<StreamEntry | undefined> {
    const found = await this.#get(`${this.name}:${at}`);
    if (found === undefined || found === null) return undefined;
    if (!isObject(found) || !KINDS.has(found.kind) || typeof found.prev !== 'number') {
      throw new AwaitError('format', `entry ${at} of stream ${this.name} is not an entry of a stream`);
    }
    return found as unknown as StreamEntry;
  }

  /** Deletes entries, and the contents that are apart from them. */
  async remove(positions: readonly number[]): Promise<void> {
    const mayBeApart = this.#contents !== undefined || isStandingId(this.id);
    for (let from = 0; from < positions.length; from += REMOVED) {
      const some = positions.slice(from, from + REMOVED);
      const apart = mayBeApart ? await this.#contentsOf(some) : [];
      await this.#records.remove(...apart, ...some.map((at) => `${this.name}:${at}`));
    }
  }

  async #contentsOf(positions: readonly number[]): Promise<readonly string[]> {
    const entries = await Promise.all(positions.map((at) => this.#entry(at)));
    const contents = entries.flatMap((entry) => (entry?.kind === 'apart' ? [entry.content] : []));
    for (const content of contents) this.#contents?.drop(content);
    return contents;
  }

  async mark(): Promise<PruneMark> {
    const found = await this.#records.get(`${this.name}:mark`);
    return isObject(found) ? (found as unknown as PruneMark) : { oldest: 1 };
  }

  writeMark(mark: PruneMark): Promise<void> {
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
    const { oldest } = await this.mark();
    await this.remove(Array.from({ length: Math.max(upTo - oldest + 1, 0) }, (_, nth) => oldest + nth));
    await this.#records.remove(`${this.name}:mark`, `${this.name}:had`);
  }

  /**
   * Where to read on after `sequence`.
   * @returns the position before the first to read; undefined when an event between was deleted, or never existed
   */
  async after(sequence: number): Promise<number | undefined> {
    const next = await this.read(sequence + 1);
    if (next !== undefined && next.kind !== 'apart' && next.kind !== 'claim') return sequence;
    if (next === undefined && sequence > 0 && (await this.#entry(sequence)) !== undefined) return sequence;
    const { oldest } = await this.mark();
    // Entries of other kinds may outlive the events around them.
    if (sequence + 1 < oldest) {
      const first = await this.#entry(oldest);
      if (first === undefined || first.prev > sequence) return undefined;
    } else if (next === undefined) return undefined;
    const from = Math.max(sequence, oldest - 1);
    return (await this.unexpired(from)) > from ? undefined : from;
  }

  /** The position after which no content has expired: `from`, or one behind it. */
  async unexpired(from: number): Promise<number> {
    let kept = from;
    for (let at = from + 1; ; at += 1) {
      const entry = await this.read(at);
      if (entry?.kind === 'apart') kept = at;
      else if (entry?.kind !== 'claim') return kept;
    }
  }

  /**
   * The last entry.
   * @param known a position that was there
   * @throws AwaitError `store` when the oldest entry that must be kept is not there
   */
  async end(known = 0): Promise<StreamEnd> {
    let entry = known > 0 ? await this.#entry(known) : undefined;
    let at = known;
    for (let oldest = 0; entry === undefined; ) {
      const mark = await this.mark();
      // Pruned again while we looked: look once more.
      if (mark.oldest === oldest && oldest > 1)
        throw new AwaitError('store', `stream ${this.name} has lost its entry ${oldest}`);
      if (mark.oldest === oldest) return { at: 0 };
      oldest = mark.oldest;
      at = oldest;
      entry = await this.#entry(at);
    }
    // A client that returns soon finds the end with the first of these reads.
    let step = 1;
    for (let next = await this.#entry(at + step); next !== undefined; next = await this.#entry(at + step)) {
      entry = next;
      at += step;
      step *= 2;
    }
    for (let missing = at + step; missing - at > 1; ) {
      const middle = Math.floor((at + missing) / 2);
      const found = await this.#entry(middle);
      if (found === undefined) missing = middle;
      else {
        at = middle;
        entry = found;
      }
    }
    return { at, entry };
  }
}

function isEvent(entry: StreamEntry | undefined): entry is Extract<StreamEntry, { kind: 'event' | 'apart' }> {
  return entry?.kind === 'event' || entry?.kind === 'apart';
}

export function isLast(entry: StreamEntry | undefined): boolean {
  return entry?.kind === 'end' || (isEvent(entry) && entry.last === true);
}

/** The value of `prev` for the entry after this one. */
export function prevAfter({ at, entry }: StreamEnd): number {
  if (entry === undefined) return 0;
  return isEvent(entry) || entry.kind === 'call' ? at : entry.prev;
}
