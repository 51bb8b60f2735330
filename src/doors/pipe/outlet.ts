/**
 * The output to a client on stdout. It owns the bytes that are not written yet, and decides when the client is given
 * up: it has read nothing for `stalled` while more than `MAX_UNSENT` bytes wait, or more than `most` wait. A client
 * that is only slow is never given up; `onFull` stops its further requests until it has caught up.
 */
import type { Writable } from 'node:stream';
import type { Clock, Timer } from '../../base/values.ts';
import { MAX_UNSENT } from '../http/exchange.ts';

export interface OutletOptions {
  readonly clock: Clock;
  readonly write: Writable['write'];
  /** How long a client may read nothing, in milliseconds. */
  readonly stalled: number;
  /** Bytes that may wait for a client that reads. */
  readonly most: number;
  /** Called with `true` when more than `MAX_UNSENT` bytes wait, and with `false` once none does. */
  readonly onFull: (isFull: boolean) => void;
  /** The client is given up, for this reason. Called once. */
  readonly onStalled: (reason: string) => void;
}

/** Bytes of one write: a stream reports a write only once all its bytes are written. */
const PIECE = 65_536;

export class PipeOutlet {
  readonly #options: OutletOptions;
  #waiting: Buffer[] = [];
  #unsent = 0;
  #isWriting = false;
  /** `send` returned false, and something waits still. */
  #isBehind = false;
  #isFull = false;
  #isOver = false;
  #patience: Timer | undefined;
  readonly #drained = new Set<() => void>();

  constructor(options: OutletOptions) {
    this.#options = options;
  }

  /** Bytes that wait for the client. */
  get unsent(): number {
    return this.#unsent;
  }

  /** @returns false when the client is behind */
  send(text: string): boolean {
    if (this.#isOver) return false;
    const bytes = Buffer.from(text);
    this.#unsent += bytes.byteLength;
    for (let at = 0; at < bytes.byteLength; at += PIECE) this.#waiting.push(bytes.subarray(at, at + PIECE));
    this.#writeNext();
    if (this.#unsent > MAX_UNSENT) this.#full();
    this.#isBehind ||= this.#unsent >= PIECE;
    return !this.#isBehind;
  }

  /** Calls each time that nothing waits any more after a `send` that returned false. */
  onDrain(fn: () => void): void {
    this.#drained.add(fn);
  }

  /** Resolves once all is written, or after that time, in milliseconds; from then on nothing is. */
  async close(within: number): Promise<void> {
    const { clock } = this.#options;
    if (this.#unsent > 0 && !this.#isOver) {
      await new Promise<void>((resolve) => {
        this.#isBehind = true;
        this.onDrain(resolve);
        clock.after(within, resolve).unref();
      });
    }
    this.drop();
  }

  /** Drops the output that waits: its reader has ended. */
  drop(): void {
    this.#isOver = true;
    this.#patience?.cancel();
    this.#waiting = [];
    this.#unsent = 0;
  }

  #writeNext(): void {
    const piece = this.#isWriting ? undefined : this.#waiting.shift();
    if (piece === undefined) return;
    this.#isWriting = true;
    this.#options.write(piece, (error) => {
      this.#isWriting = false;
      if (this.#isOver || (error !== undefined && error !== null)) return;
      this.#unsent -= piece.byteLength;
      this.#patience?.cancel();
      this.#patience = undefined;
      if (this.#unsent > MAX_UNSENT) this.#watch();
      this.#writeNext();
      if (this.#unsent === 0) this.#caughtUp();
    });
  }

  #caughtUp(): void {
    if (this.#isFull) this.#options.onFull(false);
    this.#isFull = false;
    if (!this.#isBehind) return;
    this.#isBehind = false;
    for (const fn of this.#drained) fn();
  }

  #full(): void {
    const { most, onFull } = this.#options;
    if (!this.#isFull) onFull(true);
    this.#isFull = true;
    if (this.#unsent > most) this.#giveUp(`more than limits.unreadBytes (${most}) wait for it`);
    else if (this.#patience === undefined) this.#watch();
  }

  #watch(): void {
    const { clock, stalled } = this.#options;
    this.#patience = clock
      .after(stalled, () => this.#giveUp(`it has read nothing for ${stalled} ms`))
      .unref();
  }

  #giveUp(reason: string): void {
    if (this.#isOver) return;
    this.drop();
    this.#options.onStalled(reason);
  }
}
