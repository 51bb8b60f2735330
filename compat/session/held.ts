/**
 * A reply that is held back until something of it is to be kept, or for `limits.heldReply` at most. While the store
 * fails it stays held.
 */
import { AwaitError, systemClock, type Timer } from '../../src/base/values.ts';
import type { Services } from '../../src/handler/services.ts';

/** How long a store that failed is left alone, in milliseconds. */
const AGAIN = 1_000;

export class Held {
  readonly #services: Services;
  readonly #keep: () => Promise<void>;
  #isHeld = true;
  #keeping: Promise<void> | undefined;
  #timer: Timer | undefined;

  /** @param keep stores what other processes need; calls `release` once that is done */
  constructor(services: Services, keep: () => Promise<void>) {
    this.#services = services;
    this.#keep = keep;
  }

  get isHeld(): boolean {
    return this.#isHeld;
  }

  /** Resolves once it is kept, or was released without. @throws AwaitError `store`, `closed`: it is still held */
  async keep(): Promise<void> {
    if (this.#isHeld)
      this.#keeping ??= this.#keep().finally(() => {
        if (this.#isHeld) this.#keeping = undefined;
      });
    await this.#keeping;
  }

  /** Its request runs. @param isNow whether it is kept at once; then a failure of the store is the request's error */
  begin(isNow: boolean, failed: (error: unknown) => void): void {
    if (!this.#isHeld) return;
    if (isNow) this.keep().catch(failed);
    else this.arm();
  }

  /** Resolves once nothing of it is on its way into the store. */
  async settled(): Promise<void> {
    await this.#keeping?.catch(() => {});
  }

  /** Keeps it after a moment at the latest. */
  arm(wait = this.#services.settings.limits.heldReply): void {
    const failed = (error: unknown): void =>
      this.#services.settings.logger.warn('a reply could not be stored yet, and is held back', {
        error: AwaitError.from(error).message,
      });
    const again = (): void => {
      if (this.#isHeld) this.arm(AGAIN);
    };
    if (this.#isHeld) this.#timer = systemClock.after(wait, () => void this.keep().catch(failed).then(again));
    this.#timer?.unref();
  }

  /** It is held back no more. */
  release(): void {
    this.#isHeld = false;
    this.#timer?.cancel();
  }
}
