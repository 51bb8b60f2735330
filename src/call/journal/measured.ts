/**
 * The journal of a call, whose size is counted once it is a task: it has no suspension at which it would be measured.
 */
import { AwaitError } from '../../base/error.ts';
import type { Entry } from './entries.ts';
import type { OpenJournal } from './store.ts';

/** Entries that make the folded journal longer. Others, which end a call, are always written. */
const GROWING: ReadonlySet<Entry['type']> = new Set(['asked', 'completed', 'drawn']);

export class TaskJournal implements OpenJournal {
  readonly #journal: OpenJournal;
  readonly #callId: string;
  readonly #most: number;
  #bytes: number | undefined;

  /** @param most bytes of the folded journal, as JSON */
  constructor(journal: OpenJournal, callId: string, most: number) {
    this.#journal = journal;
    this.#callId = callId;
    this.#most = most;
  }

  get position(): number {
    return this.#journal.position;
  }

  get lapsed(): boolean {
    return this.#journal.lapsed;
  }

  begin(): Promise<void> | undefined {
    return this.#journal.begin?.();
  }

  /** @param folded the folded journal so far */
  count(folded: unknown): void {
    this.#bytes = JSON.stringify(folded).length;
  }

  append(entry: Entry, onWritten?: () => void): Promise<void> {
    if (this.#bytes !== undefined && GROWING.has(entry.type)) {
      this.#bytes += JSON.stringify(entry).length;
      if (this.#bytes > this.#most) {
        const message = `the journal of task ${this.#callId} takes more than ${this.#most} bytes; return less from its steps, or raise limits.journalBytes`;
        return Promise.reject(new AwaitError('limit', message));
      }
    }
    return this.#journal.append(entry, onWritten);
  }

  beat(sign: string): Promise<void> {
    return this.#journal.beat(sign);
  }
}
