/**
 * Secrets that are fetched (from a KMS, a vault): before the first request, every five minutes, and when a token names
 * an unknown secret, at most every ten seconds. While fetching fails, the last ones stay in use; before the first ones
 * requests are refused with 503, and the next one fetches again.
 */
import { AwaitError } from '../base/values.ts';
import { inTime } from './in-time.ts';
import type { KeyRing } from './key-ring.ts';

export type AskSecrets = () => Promise<readonly string[]>;

/** How long secrets count before they are asked for again, in milliseconds. */
const FRESH = 300_000;
/** Least time between two times that they are asked for, in milliseconds. */
const PAUSE = 10_000;
/** How long asking may take, in milliseconds. */
const PATIENCE = 10_000;

export class SecretSource {
  readonly #ask: AskSecrets;
  readonly #ring: KeyRing;
  readonly #warn: (message: string, detail: { error: string }) => void;
  readonly #now: () => number;
  #asking: Promise<void> | undefined;
  #asked = -Infinity;
  #isKnown = false;

  /** @param now monotonic, in milliseconds */
  constructor(
    ask: AskSecrets,
    ring: KeyRing,
    warn: (message: string, detail: { error: string }) => void,
    now: () => number = () => performance.now(),
  ) {
    this.#ask = ask;
    this.#ring = ring;
    this.#warn = warn;
    this.#now = now;
  }

  /**
   * Resolves once there are secrets. Older ones serve while they are fetched again.
   * @returns false if there are none yet and fetching failed
   */
  async ready(): Promise<boolean> {
    if (!this.#isKnown) await this.#refresh(0);
    else if (this.#now() - this.#asked >= FRESH) void this.#refresh(PAUSE);
    return this.#isKnown;
  }

  /** A token names a secret that is not known: it may be new. */
  async unknown(): Promise<void> {
    await this.#refresh(PAUSE);
  }

  #refresh(pause: number): Promise<void> {
    if (this.#asking !== undefined) return this.#asking;
    if (this.#now() - this.#asked < pause) return Promise.resolve();
    this.#asked = this.#now();
    this.#asking = this.#told().finally(() => {
      this.#asking = undefined;
    });
    return this.#asking;
  }

  async #told(): Promise<void> {
    try {
      this.#ring.change(await inTime(this.#ask(), PATIENCE));
      this.#isKnown = true;
    } catch (error) {
      const goesOn = this.#isKnown
        ? 'those from before count until it is asked again'
        : 'requests are refused';
      this.#warn(`the function secrets failed: ${goesOn}`, { error: AwaitError.from(error).message });
    }
  }
}
