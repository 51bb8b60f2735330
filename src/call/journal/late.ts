/**
 * The journal of a live call that writes nothing until it is durable: at an ask, a step, an event that its client could
 * resume from, or after a moment. A call that ends before that leaves no entry.
 * 1. `called` is its first entry, whichever event made it durable: from it other processes know a call that they follow.
 * 2. Once its end was left out, nothing of it is written, so that no process can find an ended call and run it.
 */
import { type Entry, isEndOrLeft } from './entries.ts';
import { JournalOver } from './run-journal.ts';
import type { OpenJournal } from './store.ts';

export class LateJournal extends JournalOver {
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
  /** Entries that wait for the first one. */
  #waiting = 0;

  /**
   * @param called the first entry; undefined if no other process can find the call
   * @param onBegin gives the call's client an id to resume with; runs beside the first entry
   */
  constructor(journal: OpenJournal, called: Entry | undefined, onBegin: () => Promise<void>) {
    super(journal);
    this.#called = called;
    this.#onBegin = onBegin;
  }

  /**
   * Resolves once others can find the call, or it is over.
   * @throws AwaitError `store`: it is tried again with the next call of this
   */
  keep(): Promise<void> {
    if (this.#isOver || this.#called === undefined) return Promise.resolve();
    // A call that has ended is not begun in the store after all.
    if (this.#hasEnded) return this.#kept ?? Promise.resolve();
    this.#kept ??= this.journal.append(this.#called).catch((error: unknown) => {
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
        this.#onBegin = undefined;
      },
      (error: unknown) => {
        this.#begun = undefined;
        throw error;
      },
    );
    return this.#begun;
  }

  /** Whether nothing of the call is in its log, nor will be. */
  get isLeftOut(): boolean {
    return this.#isOver;
  }

  /** Also while its first entry is on its way: its client has no id to come back with. */
  get isUnwritten(): boolean {
    return !this.#hasMore && this.position < 0;
  }

  /** Nothing of a call that is over is written any more, unless something was, or is on its way: others may find that. */
  end(): boolean {
    this.#hasEnded = true;
    this.#isOver ||= this.isUnwritten && this.#kept === undefined;
    // It holds the reply.
    if (this.#isOver) this.#onBegin = undefined;
    return this.#isOver;
  }

  append(entry: Entry, onWritten?: () => void): Promise<void> {
    return this.#written(entry, onWritten, () => this.journal.append(entry, onWritten)).then(() => {});
  }

  /** What is first made says what kind of entry it is. */
  async decide(make: () => Entry | undefined, onWritten?: () => void): Promise<boolean> {
    const first = make();
    if (first === undefined) return false;
    return this.#written(first, onWritten, () => this.journal.decide(make, onWritten));
  }

  #written<T>(entry: Entry, onWritten: (() => void) | undefined, write: () => Promise<T>): Promise<T | true> {
    if (isEndOrLeft(entry)) this.end();
    if (this.#isOver) {
      onWritten?.();
      return Promise.resolve(true);
    }
    this.#hasMore = true;
    // If its client gets no id to resume with, the next attempt reports that.
    if (!isEndOrLeft(entry)) this.begin()?.catch(() => {});
    // Others know the call by its first entry, which is no other than this one, whatever became of it.
    const waits = this.#called !== undefined && (this.position < 0 || this.#waiting > 0);
    if (!waits) return write();
    this.#waiting += 1;
    const next = (): Promise<T> => {
      this.#waiting -= 1;
      return write();
    };
    const failed = (error: unknown): true => {
      this.#waiting -= 1;
      if (!isEndOrLeft(entry)) throw error;
      // It was the only one, and nobody is told where it would be found.
      this.#isOver = true;
      onWritten?.();
      return true;
    };
    return this.keep().then(next, failed);
  }

  override async readOn(): Promise<Entry | undefined> {
    return this.isUnwritten ? undefined : super.readOn();
  }

  override async beat(sign: string): Promise<void> {
    if (!this.isUnwritten) await super.beat(sign);
  }
}
