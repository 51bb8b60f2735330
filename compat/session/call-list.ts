/**
 * The calls of a lasting stream, for the process that has its connection: their ids are appended with the store's
 * insert-if-absent, so that no call depends on the process that began it.
 * 1. A call is in the list before its POST is accepted.
 * 2. A delivered outcome is recorded after it is in the stream: without that record it may be sent twice, but never be
 *    lost.
 */
import type { KeyvCallStore } from '../../src/checkpoint/call-store.ts';
import type { Services } from '../services.ts';

export class CallList {
  readonly #services: Services;
  readonly #store: KeyvCallStore;
  readonly #name: string;
  readonly #expires: number;
  /** A position in use; all before it are in use too. */
  #known = 0;
  /** The next position to read. */
  #next = 0;
  /** The position up to which all outcomes were sent, by the store. */
  #done = 0;
  /** Calls in the list without a sent outcome, by position, in order. */
  readonly #untold = new Map<number, string>();

  /**
   * @param name prefix of its records
   * @param expires milliseconds since the epoch
   * @returns undefined where processes share no store
   */
  static of(services: Services, name: string, expires: number): CallList | undefined {
    const { store } = services;
    return store?.isShared === true ? new CallList(services, store, name, expires) : undefined;
  }

  private constructor(services: Services, store: KeyvCallStore, name: string, expires: number) {
    this.#services = services;
    this.#store = store;
    this.#name = name;
    this.#expires = expires;
  }

  async add(callId: string): Promise<void> {
    // Where this process appended last, the next position is most often free.
    for (let last = this.#known || (await this.#last()); ; last = await this.#last()) {
      const inserted = await this.#store.insert(this.#key(last + 1), callId, this.#expires);
      this.#known = Math.max(this.#known, last + 1);
      if (inserted) return;
    }
  }

  /**
   * The calls whose outcomes were not sent, in order.
   * @param isBusy whether this process is about to send a call's outcome; such a call is left out
   */
  async untold(isBusy: (callId: string) => boolean): Promise<string[]> {
    if (this.#next === 0) {
      this.#done = await this.#readDone();
      this.#next = this.#done + 1;
    }
    for (;;) {
      const at = this.#next;
      const callId = await this.#at(at);
      if (callId === undefined) break;
      this.#untold.set(at, callId);
      this.#next = Math.max(this.#next, at + 1);
    }
    const untold: string[] = [];
    for (const [position, callId] of this.#untold) {
      if (isBusy(callId)) continue;
      if (await this.isTold(callId)) this.#untold.delete(position);
      else untold.push(callId);
    }
    const [first = this.#next] = this.#untold.keys();
    if (first - 1 > this.#done) {
      this.#done = first - 1;
      await this.#store.replace(this.#key('done'), this.#done, this.#expires);
    }
    return untold;
  }

  /** @param write puts a call's outcome into the stream; false when it could not */
  tell(callId: string, write: () => Promise<boolean>): Promise<void> {
    return this.#noting(async () => {
      if (await write()) await this.#noteTold(callId);
    });
  }

  /** A call without an outcome to send: its client cancelled it, or it has expired. */
  dismiss(callId: string): Promise<void> {
    return this.#noting(() => this.#noteTold(callId));
  }

  async isTold(callId: string): Promise<boolean> {
    return (await this.#store.get(`${callId}:told`)) !== undefined;
  }

  async #noteTold(callId: string): Promise<void> {
    await this.#store.insert(`${callId}:told`, true, this.#expires);
  }

  /** Runs a write that a closing handler waits for; if it fails, the outcome may be sent once more. */
  async #noting(note: () => Promise<void>): Promise<void> {
    const { writing, settings } = this.#services;
    const done = note().catch((error: unknown) =>
      settings.logger.warn('could not record a delivered outcome; the client may receive it twice', {
        error: String(error),
      }),
    );
    writing.add(done);
    await done;
    writing.delete(done);
  }

  async #at(position: number): Promise<string | undefined> {
    const callId = await this.#store.get(this.#key(position));
    return typeof callId === 'string' ? callId : undefined;
  }

  async #readDone(): Promise<number> {
    return Number((await this.#store.get(this.#key('done'))) ?? 0);
  }

  /**
   * The last position in use: a process that appended before finds it at once, a new one by steps that double, then
   * halve.
   */
  async #last(): Promise<number> {
    if (this.#known === 0) this.#known = await this.#readDone();
    const isTaken = async (position: number): Promise<boolean> => (await this.#at(position)) !== undefined;
    let step = 1;
    for (; await isTaken(this.#known + step); step *= 2) this.#known += step;
    for (let missing = this.#known + step; missing - this.#known > 1; ) {
      const middle = Math.floor((this.#known + missing) / 2);
      if (await isTaken(middle)) this.#known = middle;
      else missing = middle;
    }
    return this.#known;
  }

  #key(position: number | 'done'): string {
    return `${this.#name}:calls:${position}`;
  }
}
