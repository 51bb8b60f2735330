/** Where journals are kept, as the engine sees it: entries inserted if absent, a sign of life, an inbox of answers. */
import type { CallRecord, Delivered, Entry, Journal, Kept } from './entries.ts';

/** The sign of an owner that gave its call up: its lease need not be waited for. */
export const LEFT_SIGN = 'left';

/** A journal that knows how far it is. */
export interface OpenJournal extends Journal {
  /** The position of the last entry appended; -1 before the first. */
  readonly position: number;
  /** Overwrites the sign of life of this call's owner. */
  beat(sign: string): Promise<void>;
}

export interface CallStore {
  /** A journal whose next entry goes to the position after `after`. */
  open(call: CallRecord, after: number): OpenJournal;
  /** @throws AwaitError `store` when it cannot be read; `undefined` is a sure miss. */
  read(callId: string, position: number): Promise<Entry | undefined>;
  /** Stores that are this process's memory: drops a call's entries up to a position. */
  forget?(call: Kept, upTo: number): void;
  /** The owner's last sign of life. */
  heard(callId: string): Promise<unknown>;
  /**
   * Takes in the answer to an ask; false when there was one.
   * @param expires of the call, in milliseconds since the epoch
   */
  deliver(callId: string, key: string, response: Delivered, expires: number): Promise<boolean>;
  delivered(callId: string, key: string): Promise<Delivered | undefined>;
  /** Reads that failed so far, whether or not a later attempt succeeded. */
  readonly failedReads: number;
  /** Whether other processes may see it. */
  readonly isShared: boolean;
}
