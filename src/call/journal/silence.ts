/** How long the owner of a call has been silent, for those who would take it over (invariant 10). */

import { type Clock, keepNewest } from '../../base/values.ts';
import type { CallStore } from './store.ts';

/** The part of a store that shows whether an owner lives. */
export type Signs = Pick<CallStore, 'heard' | 'failures'>;

/** For so many calls a process remembers how long it has seen nothing of their owners, also while it follows none. */
const SILENCES = 1_000;
const silences = new WeakMap<CallStore, Map<string, Silence>>();

/** A client whose connections are short follows its call again and again: what was seen before counts. */
export function silenceOf(clock: Clock, store: CallStore, callId: string): Silence {
  const known = silences.get(store) ?? new Map<string, Silence>();
  silences.set(store, known);
  const kept = known.get(callId);
  const silence = kept?.clock === clock ? kept : new Silence(clock, store, callId);
  known.delete(callId);
  known.set(callId, silence);
  keepNewest(known, SILENCES);
  return silence;
}

/**
 * How long an owner has been silent: neither its heartbeat nor the journal moved. It is measured by the
 * observer's own monotonic clock between two looks, so no two clocks are ever compared.
 */
export class Silence {
  readonly clock: Clock;
  readonly #store: Signs;
  readonly #callId: string;
  #failures: number;
  /** The owner's last sign of life that `lasts` read. */
  sign: unknown;
  #heard: string | undefined;
  #at = -1;
  #since: number;

  constructor(clock: Clock, store: Signs, callId: string) {
    this.clock = clock;
    this.#store = store;
    this.#callId = callId;
    this.#failures = store.failures;
    this.#since = clock.elapsed();
  }

  /** This process read an entry of the journal: a position that it had not read before ends the silence. */
  saw(at: number): void {
    if (at <= this.#at) return;
    this.#at = at;
    this.end();
  }

  /** Measures the silence from now on. */
  end(): void {
    this.#since = this.clock.elapsed();
  }

  /**
   * Measures up to the moment of the question, not of the reply: this process may have been stopped in between while
   * the owner was not. A read, or a try to write, that failed ends the silence: the owner could not write either, and has
   * a whole lease once the store is back.
   * @returns milliseconds, at most 0 where it ends now
   */
  async lasts(): Promise<number> {
    const asked = this.clock.elapsed();
    this.sign = await this.#store.heard(this.#callId, asked - this.#since);
    const heard = JSON.stringify(this.sign) ?? '';
    const { failures } = this.#store;
    if (heard !== this.#heard || failures !== this.#failures) this.end();
    this.#heard = heard;
    this.#failures = failures;
    return asked - this.#since;
  }
}
