/**
 * The one place that tries a failing store again. Journals, streams and the records beside them all write through it.
 * 1. A failed operation is repeated with growing pauses, so a store that is away for a moment costs nobody a call.
 * 2. A failed insert may have been written: the next attempt reads the value that it finds, and counts its own as
 *    inserted. Equal values of two writers are interchangeable, since an entry that decides anything names its writer.
 */
import { type AwaitError, type Clock, canonical, hasCode } from '../base/values.ts';

/** Between two attempts, in milliseconds; never more than a quarter of a lease, so that an owner is back in time. */
const PAUSE = { first: 20, most: 2_000 };
/** Leases that an operation is tried for, where nothing depends on it but the request that waits for it. */
const LEASES = 3;

export interface RetryParts {
  readonly clock: Clock;
  /** How long the owner of a call may be silent, in milliseconds. */
  readonly lease: number;
  /** Called when the store fails, at most once a lease, and with `undefined` once it answers again. */
  readonly report?: (error: AwaitError | undefined) => void;
}

export class Retry {
  readonly #parts: RetryParts;
  #failures = 0;
  /** When the outage that is going on was last reported. */
  #reported: number | undefined;

  constructor(parts: RetryParts) {
    this.#parts = parts;
  }

  /** Reads, and tries to write, that failed so far: an observer of a silent owner begins anew when this grows. */
  get failures(): number {
    return this.#failures;
  }

  /**
   * Inserts a value if absent.
   * @param until when to give up, in milliseconds since the epoch; default: after three leases
   * @returns whether the value is there; false means that another value is
   * @throws AwaitError `store` when it gives up: the value may or may not be there; another error of `insert` at once
   */
  insert(
    insert: () => Promise<boolean>,
    read: () => Promise<unknown>,
    value: unknown,
    until?: number,
  ): Promise<boolean> {
    const again = async (): Promise<boolean> =>
      (await insert()) || canonical(await read()) === canonical(value);
    return insert().catch((error: unknown) => this.#again(again, error, until));
  }

  /**
   * Reads; or writes what shows whether the store takes writes, and nothing else.
   * @param until as in `insert`
   * @throws AwaitError `store` when it gives up
   */
  read<T>(read: () => Promise<T>, until?: number): Promise<T> {
    return read().catch((error: unknown) => this.#again(read, error, until, true));
  }

  /** For what may be written twice. @param until as in `insert` @throws AwaitError `store` when it gives up */
  write<T>(write: () => Promise<T>, until?: number): Promise<T> {
    return write().catch((error: unknown) => this.#again(write, error, until));
  }

  /** @param counts whether its failures say that others cannot write: those of a large record, say, do not */
  async #again<T>(
    attempt: () => Promise<T>,
    first: unknown,
    until: number | undefined,
    counts = false,
  ): Promise<T> {
    const { clock, lease, report } = this.#parts;
    const since = clock.elapsed();
    const isOver = (): boolean =>
      until === undefined ? clock.elapsed() - since >= LEASES * lease : clock.now() >= until;
    let error = first;
    for (let pause = PAUSE.first; ; pause = Math.min(pause * 2, PAUSE.most, lease / 4)) {
      if (!hasCode(error, 'store')) throw error;
      if (counts) this.#failures += 1;
      const now = clock.elapsed();
      if (this.#reported === undefined || now - this.#reported >= lease) {
        this.#reported = now;
        report?.(error);
      }
      if (isOver()) throw error;
      // Does not keep the process alive.
      await new Promise<void>((resolve) => void clock.after(pause, resolve).unref());
      try {
        const result = await attempt();
        if (this.#reported !== undefined) report?.(undefined);
        this.#reported = undefined;
        return result;
      } catch (again) {
        error = again;
      }
    }
  }
}
