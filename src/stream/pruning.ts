/**
 * Deletes a stream's oldest entries, in batches, without delaying its appender. A mark is written first, so a reader
 * that misses an entry can tell "deleted" from "not there yet". Keys are computed by counting; nothing is listed.
 */
import type { StreamLog } from './log.ts';

/** Share of the kept entries that one batch deletes: a mark for each event would double the writes. */
const BATCH = 1 / 16;
/** Factor on the limit of kept entries while a connection is still reading them: it soon catches up with a burst. */
const BURST = 8;

export class Pruning {
  readonly #log: StreamLog;
  readonly #most: number;
  readonly #batch: number;
  readonly #needed: () => number | undefined;
  readonly #failed: (error: unknown) => void;
  #oldest = 1;
  #end = 0;
  #running = false;

  /**
   * @param most entries that are kept
   * @param needed the oldest position that a connection is still to be given, if there is one
   */
  constructor(
    log: StreamLog,
    most: number,
    needed: () => number | undefined,
    failed: (error: unknown) => void,
  ) {
    this.#needed = needed;
    this.#log = log;
    this.#most = most;
    this.#batch = Math.max(1, Math.floor(most * BATCH));
    this.#failed = failed;
  }

  get oldest(): number {
    return this.#oldest;
  }

  /** Reads how far other processes have pruned. */
  async load(): Promise<void> {
    const { oldest } = await this.#log.mark();
    this.#oldest = Math.max(oldest, this.#oldest);
  }

  upTo(end: number): void {
    this.#end = end;
    if (this.#running || !this.#isDue()) return;
    this.#running = true;
    this.#prune()
      .catch(this.#failed)
      .finally(() => {
        this.#running = false;
      });
  }

  #isDue(): boolean {
    return this.#end - this.#oldest >= this.#most && this.#upTo() > this.#oldest;
  }

  /** The oldest position that stays. */
  #upTo(): number {
    const usual = this.#end - this.#most + this.#batch;
    const needed = this.#needed() ?? usual;
    return Math.max(Math.min(usual, needed), usual - this.#most * (BURST - 1));
  }

  async #prune(): Promise<void> {
    // More may have been appended in the meantime.
    while (this.#isDue()) {
      const from = this.#oldest;
      const oldest = this.#upTo();
      await this.#log.writeMark({ oldest });
      this.#oldest = oldest;
      const gone = Array.from({ length: oldest - from }, (_, nth) => from + nth);
      await this.#log.remove(gone);
    }
  }
}
