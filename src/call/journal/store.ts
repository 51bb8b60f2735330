/** Where journals are kept, as the engine sees it: entries inserted if absent, and the owner's sign of life. */
import type { CallRecord, Entry, Journal, Kept, Received } from './entries.ts';

/** The sign of an owner that gave its call up: its lease need not be waited for. */
export const LEFT_SIGN = 'left';

/** A journal that knows how far it is. */
export interface OpenJournal extends Journal {
  /** The position of the last entry that was appended or read; -1 before the first. */
  readonly position: number;
  /** Whether nothing of the call is written, nor about to be. */
  readonly isUnwritten?: boolean;
  /** Its outcome is there. @returns whether nothing of the call is in the log, nor will be */
  end?(): boolean;
  /**
   * Called, in the order of positions, with the entries that other processes appended for this one to act on. Set
   * before the first append.
   */
  onReceived: (entry: Received, position: number) => void;
  /**
   * Reads and passes on what others appended for this process.
   * @returns the entry that ends this process's part in the call, if there is one
   * @throws AwaitError `store`
   */
  readOn(): Promise<Entry | undefined>;
  /** Overwrites the sign of life of this call's owner. */
  beat(sign: string): Promise<void>;
}

export interface CallStore {
  /** A journal whose next entry goes to the position after `after`. */
  open(call: CallRecord, after: number): OpenJournal;
  /**
   * @param owner the known caller that it is read for: reads for strangers wait for one another
   * @throws AwaitError `store` when it cannot be read; `undefined` is a sure miss
   */
  read(callId: string, position: number, owner?: string): Promise<Entry | undefined>;
  /** All entries from a position on, several in one read where the store can. @throws as `read` */
  readOn(callId: string, position: number, owner?: string): AsyncIterable<Entry>;
  /** Stores that are this process's memory: drops a call's entries up to a position. */
  forget?(call: Kept, upTo: number): void;
  /**
   * The owner's last sign of life.
   * @param silence how long it seems to be silent, in milliseconds: after half a lease it is tried whether the store,
   * which is read, takes writes as well, without which there are no signs
   */
  heard(callId: string, silence: number): Promise<unknown>;
  /**
   * Inserts an entry if its position is free. The caller has read the one before it.
   * @returns false when the position is taken
   * @throws AwaitError `store` once the call has expired
   */
  insertEntry(call: CallRecord, position: number, entry: Entry): Promise<boolean>;
  /** Reads, and tries to write (`heard`), that failed so far, whether or not a later attempt succeeded. */
  readonly failures: number;
  /** Whether other processes may see it. */
  readonly isShared: boolean;
}
