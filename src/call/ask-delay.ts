/** How long asks wait for a step that is running, before they go out beside it (invariant 6). */
import type { Clock, Timer } from './clock.ts';

export class AskDelay {
  readonly #clock: Clock;
  readonly #delay: number;
  readonly #look: () => void;
  #timer: Timer | undefined;
  #isOver = false;

  /**
   * @param delay milliseconds; without end, asks wait for the step however long it takes
   * @param look has the frame look again
   */
  constructor(clock: Clock, delay: number, look: () => void) {
    this.#clock = clock;
    this.#delay = delay;
    this.#look = look;
  }

  /** True once they waited long enough; the first look begins the time. */
  isOver(): boolean {
    if (this.#isOver) return true;
    if (Number.isFinite(this.#delay)) {
      this.#timer ??= this.#clock.after(this.#delay, () => {
        this.#isOver = true;
        this.#look();
      });
    }
    return false;
  }

  /** The turn is over. */
  stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#isOver = false;
  }
}
