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
  /**
   * Tries a failing store again.
   * @param until when to give up, in milliseconds since the epoch; default: after a few leases
   * @returns false when there is another entry
   * @throws AwaitError `store` when it gives up: the entry may or may not be there
   */
  insert(position: number, entry: Entry, until?: number): Promise<boolean>;
  read(position: number): Promise<Entry | undefined>;
  /** Overwrites the sign of life. */
  beat(sign: string): Promise<void>;
}

interface Moment {
  readonly elapsed: number;
  readonly now: number;
}

/** Part of a lease after which it is not counted on any more: clocks may run at different speeds. */
const SURE = 0.8;

/** Claims of this process so far: each is an entry of its own. */
let claims = 0;

function numbered(entry: Entry): Entry {
  if (entry.type !== 'claimed') return entry;
  claims += 1;
  return { ...entry, nth: claims };
}

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
  /** The entry whose insert was given up: the store may have written it all the same. */
  let doubtful: Entry | undefined;
  /** Whether this process has a part in the call: until then it may give up, and loses nothing but a request. */
  let hasPart = false;
  /** When the last entry that other processes could see was sent off. */
  let heard: Moment | undefined;
  const moment = (): Moment => ({ elapsed: clock.elapsed(), now: clock.now() });
  // A machine that was suspended may have a monotonic clock that stood still.
  const isSure = ({ elapsed, now }: Moment): boolean =>
    Math.max(clock.elapsed() - elapsed, clock.now() - now) < lease * SURE;

  const put = async (entry: Entry, onWritten: () => void, until?: number): Promise<void> => {
    const begun = moment();
    const sent = numbered(entry);
    let isOurs: boolean;
    try {
      isOurs = await entries.insert(position + 1, sent, until);
      if (!isOurs && doubtful !== undefined && canonical(doubtful) === canonical(sent))
        isOurs = canonical(await entries.read(position + 1)) === canonical(sent);
    } catch (error) {
      doubtful = sent;
      throw error;
    }
    if (!isOurs) {
      throw new AwaitError(
        'fenced',
        `entry ${position + 1} of call ${call.id} exists already: another process continues it`,
      );
    }
    position += 1;
    hasPart = true;
    doubtful = undefined;
    heard = begun;
    onWritten();
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
        const until = hasPart || entry.type === 'completed' ? call.expires : undefined;
        if (position < 0 && !isFirst) await put({ type: 'called', format: FORMAT, call }, () => {}, until);
        await put(entry, onWritten, until);
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
