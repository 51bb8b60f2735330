/**
 * A journal as its writer has it: its position, the entry that is in doubt, and until when its turn surely belongs to
 * this process. Entries are inserted if absent; a writer that loses a position is fenced (invariant 10).
 */

import type { Clock } from '../../base/clock.ts';
import { AwaitError } from '../../base/error.ts';
import { canonical } from '../../base/json.ts';
import { type CallRecord, type Entry, FORMAT } from './entries.ts';
import type { OpenJournal } from './store.ts';

/** The store of one call's journal. */
export interface Entries {
  /** False when there is an entry already. */
  insert(position: number, entry: Entry): Promise<boolean>;
  read(position: number): Promise<Entry | undefined>;
  /** Overwrites the sign of life. */
  beat(sign: string): Promise<void>;
}

interface Moment {
  readonly elapsed: number;
  readonly now: number;
}

const BOUNDS: ReadonlySet<Entry['type']> = new Set(['claimed', 'suspended', 'ended']);

/** Part of a lease after which it is not counted on any more: clocks may run at different speeds. */
const SURE = 0.8;

/** @param lease how long an owner may be silent before others take its turn up, in milliseconds */
export function openJournal(
  entries: Entries,
  call: CallRecord,
  after: number,
  clock: Clock,
  lease: number,
): OpenJournal {
  let position = after;
  /** The last append, while it is being written. */
  let last: Promise<void> | undefined;
  /** The entry whose insert failed: the store may have written it all the same. */
  let doubtful: { readonly entry: Entry; readonly onWritten: () => void } | undefined;
  /** When the last entry that other processes could see was sent off. */
  let heard: Moment | undefined;
  const moment = (): Moment => ({ elapsed: clock.elapsed(), now: clock.now() });
  // A machine that was suspended may have a monotonic clock that stood still.
  const isSure = ({ elapsed, now }: Moment): boolean =>
    Math.max(clock.elapsed() - elapsed, clock.now() - now) < lease * SURE;

  const put = async (entry: Entry, onWritten: () => void): Promise<void> => {
    const sent = moment();
    let inserted: boolean;
    try {
      inserted = await entries.insert(position + 1, entry);
    } catch (error) {
      doubtful = { entry, onWritten };
      throw error;
    }
    if (inserted) {
      position += 1;
      doubtful = undefined;
      heard = sent;
      onWritten();
      return;
    }
    const stood = doubtful;
    const found = stood && (await entries.read(position + 1));
    const isOurs = stood !== undefined && canonical(found) === canonical(stood.entry);
    const isSame = isOurs && canonical(found) === canonical(entry);
    // An entry that begins or ends a turn, and was written although the store reported a failure, stands, and others
    // may have read it: a different second attempt comes too late.
    if (!isOurs || (!isSame && BOUNDS.has(stood.entry.type))) {
      throw new AwaitError(
        'fenced',
        `entry ${position + 1} of call ${call.id} exists already: another process continues it`,
      );
    }
    position += 1;
    doubtful = undefined;
    if (isSame) {
      onWritten();
      return;
    }
    stood.onWritten();
    await put(entry, onWritten);
  };

  return {
    get position() {
      return position;
    },
    get lapsed() {
      // A call without entries is unknown to other processes, so none takes it over.
      return position >= 0 && (heard === undefined || !isSure(heard));
    },
    append(entry, onWritten = () => {}) {
      const write = async (): Promise<void> => {
        // A checkpoint holds the call; any other first entry has it before it.
        const isFirst = entry.type === 'suspended' || entry.type === 'called';
        if (position < 0 && !isFirst) await put({ type: 'called', format: FORMAT, call }, () => {});
        await put(entry, onWritten);
      };
      const done = last === undefined ? write() : last.then(write);
      const over = (): void => {
        if (last === settled) last = undefined;
      };
      const settled = done.then(over, over);
      last = settled;
      return done;
    },
    async beat(sign) {
      const sent = moment();
      await entries.beat(sign);
      // A sign of life after the lease ran out is too late: the turn may have been taken over.
      if (heard !== undefined && isSure(heard)) heard = sent;
    },
  };
}

/** False when another process has the position. */
export function isAppended(journal: OpenJournal, entry: Entry, onWritten?: () => void): Promise<boolean> {
  return unlessFenced(journal.append(entry, onWritten).then(() => true));
}

/** The result of `work`; false if another process has the position that it writes to. */
export async function unlessFenced(work: Promise<boolean>): Promise<boolean> {
  try {
    return await work;
  } catch (error) {
    if (isFenced(error)) return false;
    throw error;
  }
}

export function isFenced(error: unknown): boolean {
  return error instanceof AwaitError && error.code === 'fenced';
}

/** Where no store is: positions count, nothing is written. */
export function volatileJournal(after: number): OpenJournal {
  let position = after;
  return {
    get position() {
      return position;
    },
    lapsed: false,
    append(_entry, onWritten) {
      position += 1;
      onWritten?.();
      return Promise.resolve();
    },
    beat: () => Promise.resolve(),
  };
}
