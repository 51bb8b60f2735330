/**
 * The operator's view of calls: lists them from the store's keys or from a known caller's index, reports what happened
 * to each, ends and erases them. Safe beside running servers: it writes journal entries as they do, and the process
 * that runs the call reads them.
 * A call is shown by its label, the digest in its records' names. Its id stays secret, because an anonymous caller's
 * task belongs to anyone who holds its id.
 */
import { AwaitError, type Clock, counted, optionError } from '../base/values.ts';
import type { CallRecord, Entry } from '../call/journal/entries.ts';
import { Folding } from '../call/journal/fold.ts';
import type { TaskIndex } from '../call/task/index.ts';
import type { KeyvCallStore } from './call-store.ts';
import type { Names } from './names.ts';
import { pageRecords } from './page-records.ts';

type CallStatus = 'running' | 'waiting' | 'completed' | 'failed' | 'cancelled';

/** The state of a call, with its history. */
export interface Story {
  readonly label: string;
  readonly call: CallRecord;
  readonly status: CallStatus;
  readonly isTask: boolean;
  readonly entries: readonly Entry[];
  readonly folded: Folding;
}

type RemoveStream = (id: string, scope: string) => Promise<void>;

/** A stream's item in an index is its id and its scope; the ids of calls have no space. */
function streamOf(item: string): [string, string] | undefined {
  const space = item.indexOf(' ');
  return space < 0 ? undefined : [item.slice(0, space), item.slice(space + 1)];
}

/** Ids in a page of an index. */
const PAGE = 200;
/** The owner of the operator's reads. */
const BOOK = 'book';

export class CallBook {
  readonly #store: KeyvCallStore;
  readonly #names: Names;
  readonly #clock: Clock;
  readonly #index: TaskIndex | undefined;
  readonly #removeStream: RemoveStream | undefined;

  /** @param index of the calls and streams of known callers; without, calls are found by listing keys */
  constructor(
    store: KeyvCallStore,
    names: Names,
    clock: Clock,
    index?: TaskIndex,
    removeStream?: RemoveStream,
  ) {
    this.#removeStream = removeStream;
    this.#store = store;
    this.#names = names;
    this.#clock = clock;
    this.#index = index;
  }

  /**
   * This service's calls; those of others on the store, and expired ones, are left out.
   * @param caller only this one's
   * @param refused called for each call that cannot be opened: another service's, under another secret, or damaged
   * @throws AwaitError `store`, also where an adapter cannot list its keys
   */
  async *stories(caller?: string, refused: (error: unknown) => void = () => {}): AsyncGenerator<Story> {
    for await (const id of this.#ids(caller, refused)) {
      const story = await this.#story(id).catch((error: unknown) => {
        // A damaged record, or another service's, hides no other call.
        if (!['bad-token', 'format'].includes(AwaitError.from(error).code)) throw error;
        refused(error);
      });
      if (story !== undefined && (caller === undefined || story.call.principal === caller)) yield story;
    }
  }

  /** @param label whole, or its beginning where that is one call's alone */
  async find(label: string): Promise<Story> {
    const found: Story[] = [];
    const refusals: unknown[] = [];
    const stories = this.stories(undefined, (error) => refusals.push(error));
    for await (const story of stories) if (story.label.startsWith(label)) found.push(story);
    const [story] = found;
    if (story === undefined)
      throw optionError([`there is no call ${label}`, ...unopened(refusals)].join('; '));
    if (found.length > 1) throw optionError(`${found.length} calls begin with ${label}`);
    return story;
  }

  /** How many calls wait for their caller. */
  async suspended(caller?: string): Promise<number> {
    let waiting = 0;
    for await (const { status } of this.stories(caller)) if (status === 'waiting') waiting += 1;
    return waiting;
  }

  /**
   * Ends a call and deletes its records. Until its `ttl` is over entries stay which say that it was cancelled: the
   * process that runs it reads the last one, and no process that still has a part of it goes on.
   */
  async erase({ call }: Story): Promise<void> {
    for (;;) {
      const folding = await this.#folded(call.id);
      const isOver = folding.folded.response !== undefined;
      const entry = { type: 'cancelled', when: this.#clock.now(), isErased: true } as const;
      if (!isOver && !(await this.#store.insertEntry(call, folding.folded.at + 1, entry))) continue;
      const entries = isOver ? folding.entries : [...folding.entries, entry];
      await this.#store.erase(call, entries, pageRecords(call.id, folding.entries));
      return;
    }
  }

  /** Erases all calls of a known caller, and the events of its streams. @returns the number of calls */
  async forget(caller: string, erased: (call: CallRecord) => void = () => {}): Promise<number> {
    let count = 0;
    for await (const story of this.stories(caller)) {
      await this.erase(story);
      erased(story.call);
      count += 1;
    }
    for await (const item of this.#listed(caller)) {
      const stream = streamOf(item);
      if (stream !== undefined) await this.#removeStream?.(...stream);
    }
    return count;
  }

  async *#ids(caller: string | undefined, refused: (error: unknown) => void): AsyncGenerator<string> {
    const here = this.#store.heldCalls;
    if (here !== undefined) {
      for (const { id } of here) yield id;
      return;
    }
    if (caller === undefined || this.#index === undefined) {
      yield* this.#store.callIds(refused);
      return;
    }
    for await (const item of this.#listed(caller)) if (streamOf(item) === undefined) yield item;
  }

  async *#listed(caller: string): AsyncGenerator<string> {
    let cursor: string | undefined;
    do {
      const page = await this.#index?.list(caller, cursor, PAGE);
      yield* page?.ids ?? [];
      cursor = page?.next;
    } while (cursor !== undefined);
  }

  async #story(id: string): Promise<Story | undefined> {
    const { folded, entries } = await this.#folded(id);
    const { call, response, cancelled, open, suspended, detached } = folded;
    if (call === undefined || call.expires < this.#clock.now()) return undefined;
    const waits = suspended || [...open.values()].some(({ withdrawn }) => withdrawn === undefined);
    const ended = response !== undefined && ('error' in response ? 'failed' : 'completed');
    const status = cancelled ? 'cancelled' : ended || (waits ? 'waiting' : 'running');
    return { label: this.#names.label(id), call, status, isTask: detached !== undefined, entries, folded };
  }

  async #folded(id: string): Promise<{ folded: Folding; entries: Entry[] }> {
    const folded = new Folding(true);
    const entries: Entry[] = [];
    for await (const entry of this.#store.readOn(id, 0, BOOK)) {
      folded.take(entry);
      entries.push(entry);
    }
    return { folded, entries };
  }
}

/** How many calls cannot be opened, and why the first of them cannot. */
export function unopened(refusals: readonly unknown[]): string[] {
  if (refusals.length === 0) return [];
  return [
    `${counted(refusals.length, 'call')} in this store cannot be opened, such as: ${AwaitError.from(refusals[0]).message}`,
  ];
}
