/**
 * The journal of a live call that writes nothing until it is durable: at an ask, a step, an event that its client could
 * resume from, or after a moment. A call that ends before that leaves no entry.
 * 1. `called` is its first entry, whichever event made it durable: from it other processes know a call that they follow.
 * 2. Once its end was left out, nothing of it is written, so that no process can find an ended call and run it.
 */
import type { Entry } from './entries.ts';
import type { OpenJournal } from './store.ts';

/** Entries that matter only to processes that have found the call. */
const LAST: ReadonlySet<Entry['type']> = new Set(['ended', 'cancelled', 'left']);

export class LateJournal implements OpenJournal {
  readonly #journal: OpenJournal;
  readonly #called: Entry | undefined;
  #onBegin: (() => Promise<void>) | undefined;
  /** Whether anything but the first entry was to be written. */
  #hasMore = false;
  #isOver = false;
  /** Its first turn came to an outcome. */
  #hasEnded = false;
  #isBegun = false;
  #kept: Promise<void> | undefined;
  #begun: Promise<void> | undefined;

  /**
   * @param called the first entry; undefined if no other process can find the call
   * @param onBegin gives the call's client an id to resume with; runs beside the first entry
   */
  constructor(journal: OpenJournal, called: Entry | undefined, onBegin: () => Promise<void>) {
    this.#journal = journal;
    this.#called = called;
    this.#onBegin = onBegin;
  }

  get position(): number {
    return this.#journal.position;
  }

  get lapsed(): boolean {
    return this.#journal.lapsed;
  }

  /**
   * Resolves once others can find the call, or it is over.
   * @throws AwaitError `store`: it is tried again with the next call of this
   */
  keep(): Promise<void> {
    if (this.#isOver || this.#called === undefined) return Promise.resolve();
    // A call that has ended is not begun in the store after all.
    if (this.#hasEnded) return this.#kept ?? Promise.resolve();
    this.#kept ??= this.#journal.append(this.#called).catch((error: unknown) => {
      this.#kept = undefined;
      throw error;
    });
    return this.#kept;
  }

  /** As `keep`, and its client has a way back; undefined where that is so already, or the call is over. */
  begin(): Promise<void> | undefined {
    if (this.#isBegun || this.#isOver) return undefined;
    this.#begun ??= Promise.all([this.keep(), this.#onBegin?.()]).then(
      () => {
        this.#isBegun = true;
        // It holds the reply.
        this.#onBegin = undefined;
      },
      (error: unknown) => {
        this.#begun = undefined;
        throw error;
      },
    );
    return this.#begun;
  }

  /** Also while its first entry is on its way: its client has no id to come back with. */
  get #isEmpty(): boolean {
    return !this.#hasMore && this.position < 0;
  }

  /** Nothing of a call that is over is written any more, unless something was. */
  end(): void {
    this.#hasEnded = true;
    this.#isOver ||= this.#isEmpty;
  }

  append(entry: Entry, onWritten?: () => void): Promise<void> {
    if (LAST.has(entry.type)) this.end();
    if (this.#isOver) {
      onWritten?.();
      return Promise.resolve();
    }
    this.#hasMore = true;
    // If its client gets no id to resume with, the next attempt reports that.
    if (!LAST.has(entry.type)) this.begin()?.catch(() => {});
    // Others know the call by its first entry, which a checkpoint must not be.
    const waits = entry.type === 'suspended' && this.#called !== undefined && this.position < 0;
    if (waits) return this.keep().then(() => this.#journal.append(entry, onWritten));
    return this.#journal.append(entry, onWritten);
  }

  async beat(sign: string): Promise<void> {
    if (!this.#isEmpty) await this.#journal.beat(sign);
  }
}
