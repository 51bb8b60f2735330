/**
 * The journal of a run. It keeps the notifications of a call whose reply is read from its log: those that wait are one
 * entry, before whatever is written next. And it counts the size of a task, which has no suspension at which it would be
 * measured.
 */

import { Quota } from '../../base/quota.ts';
import { AwaitError, type Clock, type JsonObject, memoryOf, type Timer } from '../../base/values.ts';
import { type CallRecord, type Entry, isEndOrLeft } from './entries.ts';
import type { OpenJournal } from './store.ts';

/** Entries that make the folded journal longer. Others, which end a call, are always written. */
const GROWING: ReadonlySet<Entry['type']> = new Set(['asked', 'completed', 'drawn']);

/** Between two entries of notifications, in milliseconds. */
const GAP = 25;
/** Bytes that wait for an entry: a connection that falls behind in one reads it again. */
const MOST_WAITING = 65_536;
/** Notifications of a call that are written; the rest go to its connection alone. */
const MOST_NOTIFIED = 500;

interface QueuedNotification {
  readonly message: JsonObject;
  /** Its way to the connection. */
  readonly direct: (message: JsonObject) => void;
}

/** Memory of all that are not written yet, in bytes: a store may be silent. */
const MOST_UNWRITTEN = 67_108_864;
const unwritten = new Quota<QueuedNotification>({
  all: MOST_UNWRITTEN,
  caller: MOST_UNWRITTEN / 2,
});

interface RunJournalParts {
  readonly clock: Clock;
  /** `journalBytes`: most bytes of the folded journal of a task, as JSON. */
  readonly limits: { readonly journalBytes: number };
}

/** @throws AwaitError `limit` for a folded journal of more than `most` bytes, as JSON */
export function checkSize(callId: string, bytes: number, most: number): void {
  if (bytes <= most) return;
  const message = `the journal of call ${callId} takes more than ${most} bytes; return less from its steps, or raise limits.journalBytes`;
  throw new AwaitError('limit', message);
}

/** A journal over another, whose members it has but for its own. */
export abstract class JournalOver implements OpenJournal {
  protected readonly journal: OpenJournal;

  constructor(journal: OpenJournal) {
    this.journal = journal;
  }

  abstract append(entry: Entry, onWritten?: () => void): Promise<void>;
  abstract decide(make: () => Entry | undefined, onWritten?: () => void): Promise<boolean>;

  get position(): number {
    return this.journal.position;
  }

  get lapsed(): boolean {
    return this.journal.lapsed;
  }

  readOn(): Promise<Entry | undefined> {
    return this.journal.readOn();
  }

  get onReceived(): OpenJournal['onReceived'] {
    return this.journal.onReceived;
  }

  set onReceived(onReceived: OpenJournal['onReceived']) {
    this.journal.onReceived = onReceived;
  }

  beat(sign: string): Promise<void> {
    return this.journal.beat(sign);
  }
}

export class RunJournal extends JournalOver {
  readonly #call: Pick<CallRecord, 'id' | 'principal'>;
  readonly #parts: RunJournalParts;
  #bytes: number | undefined;
  /** Notifications that wait for their entry. */
  readonly #waiting: QueuedNotification[] = [];
  #bytesWaiting = 0;
  #notified = 0;
  #wroteAt = -Infinity;
  #timer: Timer | undefined;

  constructor(journal: OpenJournal, call: Pick<CallRecord, 'id' | 'principal'>, parts: RunJournalParts) {
    super(journal);
    this.#call = call;
    this.#parts = parts;
  }

  begin(): Promise<void> | undefined {
    return this.journal.begin?.();
  }

  end(): boolean {
    return this.journal.end?.() ?? this.position < 0;
  }

  store(): Promise<void> | undefined {
    const { journal } = this;
    return journal.begin === undefined ? journal.store?.() : journal.begin();
  }

  /** @param folded the folded journal so far */
  count(folded: unknown): void {
    this.#bytes = JSON.stringify(folded).length;
  }

  append(entry: Entry, onWritten?: () => void): Promise<void> {
    return this.decide(() => entry, onWritten).then(() => {});
  }

  decide(make: () => Entry | undefined, onWritten?: () => void): Promise<boolean> {
    if (this.#waiting.length > 0) this.#flush(make);
    let counted = 0;
    const measured = (): Entry | undefined => {
      const entry = make();
      if (this.#bytes === undefined) return entry;
      const bytes = entry !== undefined && GROWING.has(entry.type) ? JSON.stringify(entry).length : 0;
      this.#bytes += bytes - counted;
      counted = bytes;
      if (bytes > 0) checkSize(this.#call.id, this.#bytes, this.#parts.limits.journalBytes);
      return entry;
    };
    return this.journal.decide(measured, onWritten);
  }

  /**
   * A message for the call's client.
   * @param direct sends it to the connection that is there, unwritten
   */
  notify(message: JsonObject, direct: (message: JsonObject) => void): void {
    const memory = this.#notified < MOST_NOTIFIED ? memoryOf(message) : Infinity;
    const quotaKey = { principal: this.#call.principal };
    if (!unwritten.has(quotaKey, memory)) {
      direct(message);
      return;
    }
    this.#notified += 1;
    const queued = { message, direct };
    unwritten.hold(queued, quotaKey, memory);
    this.#waiting.push(queued);
    this.#bytesWaiting += memory;
    const { clock } = this.#parts;
    const wait = Math.max(this.#wroteAt + GAP - clock.elapsed(), 0);
    const flush = (): void => this.#flush(() => undefined);
    if (this.#bytesWaiting > MOST_WAITING) flush();
    // Those that a tool sends in one go are one entry.
    else this.#timer ??= clock.after(wait, flush).unref();
  }

  /** @param next what is written behind the notifications that wait */
  #flush(next: () => Entry | undefined): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#bytesWaiting = 0;
    const waiting = this.#waiting.splice(0);
    if (waiting.length === 0) return;
    const over = (): void => {
      for (const queued of waiting) unwritten.leave(queued);
    };
    const last = this.journal.isUnwritten ? next() : undefined;
    const pass = (): void => {
      for (const { message, direct } of waiting) direct(message);
    };
    // The response takes them along, and nothing is written of the call.
    if (last !== undefined && isEndOrLeft(last)) {
      pass();
      over();
    } else {
      this.#wroteAt = this.#parts.clock.elapsed();
      this.journal
        .append({ type: 'notified', messages: waiting.map(({ message }) => message) })
        // What ended the call reports it; one whose caller has no room goes on, and its reply is held back.
        .catch(pass)
        .finally(over);
    }
  }
}
