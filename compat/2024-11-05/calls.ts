/**
 * The calls of a session, for whichever process has its stream: their ids are appended beside the session on
 * the store's one primitive, so that nothing of a call needs the process that began it.
 *
 * 1. A call is in the list before its POST is accepted.
 * 2. That a client was told an outcome is noted once it is in the stream: whoever finds no note may tell it
 *    once more, and nobody leaves it out.
 */
import type { Response } from '../../src/call/journal.ts';
import { goesOnElsewhere } from '../../src/call/wire-error.ts';
import type { KeyvCallStore } from '../../src/checkpoint/call-store.ts';
import type { Session } from '../2025/session.ts';
import type { Services } from '../services.ts';

export class Calls {
  readonly #services: Services;
  readonly #store: KeyvCallStore;
  readonly #session: Session;
  /** A position that is taken, with all before it. */
  #known = 0;

  /** @param store one that processes share */
  constructor(services: Services, store: KeyvCallStore, session: Session) {
    this.#services = services;
    this.#store = store;
    this.#session = session;
  }

  /** Appends a call. */
  async add(callId: string): Promise<void> {
    for (let at = (await this.#last()) + 1; ; at += 1) {
      const inserted = await this.#store.insert(this.#key(at), callId, this.#session.expires);
      this.#known = Math.max(this.#known, at);
      if (inserted) return;
    }
  }

  /** The call at a position, from 1. */
  async at(position: number): Promise<string | undefined> {
    const callId = await this.#store.get(this.#key(position));
    return typeof callId === 'string' ? callId : undefined;
  }

  /** Up to where clients were told the outcomes of all calls: a hint, which may be behind. */
  async done(): Promise<number> {
    return Number((await this.#store.get(this.#key('done'))) ?? 0);
  }

  async writeDone(position: number): Promise<void> {
    await this.#store.replace(this.#key('done'), position, this.#session.expires);
  }

  /** Puts a call's outcome into the stream, unless it is none: the call was put down for other processes. */
  tell(callId: string, requestId: string | number, response: Response): Promise<void> {
    if (goesOnElsewhere(response)) return Promise.resolve();
    return this.#written(async () => {
      const message = { jsonrpc: '2.0', id: requestId, ...response };
      if (await this.#session.standing.send(message)) await this.#noteTold(callId);
    });
  }

  /** There is nothing to tell of a call: its client cancelled it, or it has expired. */
  dismiss(callId: string): Promise<void> {
    return this.#written(() => this.#noteTold(callId));
  }

  async isTold(callId: string): Promise<boolean> {
    return (await this.#store.get(`${callId}:told`)) !== undefined;
  }

  async #noteTold(callId: string): Promise<void> {
    await this.#store.insert(`${callId}:told`, true, this.#session.expires);
  }

  /** A handler that closes waits for it; what is not noted is told once more. */
  async #written(write: () => Promise<void>): Promise<void> {
    const { writing, settings } = this.#services;
    const done = write().catch((error: unknown) =>
      settings.logger.warn('that a client was told an outcome could not be noted', { error: String(error) }),
    );
    writing.add(done);
    await done;
    writing.delete(done);
  }

  /** The last position: who appended before finds it at once, who comes new by steps that double, then by halves. */
  async #last(): Promise<number> {
    if (this.#known === 0) this.#known = await this.done();
    const isTaken = async (position: number): Promise<boolean> => (await this.at(position)) !== undefined;
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
    return `${this.#session.name}:calls:${position}`;
  }
}
