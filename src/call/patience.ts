/** How long a frame waits before it takes its tool to be waiting, or to have taken another way than before. */
import type { Clock, Timer } from './clock.ts';

/** Event-loop turns without any activity after which a tool counts as waiting for its asks. */
const QUIET_TURNS = 1;

export class Patience {
  readonly #clock: Clock;
  readonly #grace: number;
  readonly #look: () => void;
  #quiet = 0;
  /** Runs while a recorded completion is waited for. */
  #timer: Timer | undefined;
  #isOver = false;

  /**
   * @param grace how long a replayed tool may take to get where it was, in milliseconds
   * @param look has the frame look again
   */
  constructor(clock: Clock, grace: number, look: () => void) {
    this.#clock = clock;
    this.#grace = grace;
    this.#look = look;
  }

  /** The tool does something. */
  stir(): void {
    this.#quiet = 0;
    this.#isOver = false;
    this.stop();
  }

  /** A completion was passed over: the next one may be attempted already. */
  goOn(): void {
    this.#quiet = 0;
  }

  stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  /** True once nothing has happened for a while; until then the frame looks again. */
  idle(): boolean {
    this.#quiet += 1;
    if (this.#quiet > QUIET_TURNS) return true;
    this.#look();
    return false;
  }

  /** True once nothing has happened for so long that what is recorded will not be attempted any more. */
  gaveUp(): boolean {
    if (this.#isOver) return true;
    if (!this.idle()) return false;
    this.#timer ??= this.#clock.after(this.#grace, () => {
      this.#timer = undefined;
      this.#isOver = true;
      this.#look();
    });
    return false;
  }
}
