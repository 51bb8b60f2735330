/**
 * For as long as a process has a session's stream: follows the calls that others run, takes up those whose
 * process has been silent for a lease, and tells what ended and was not told.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Leg } from '../../src/call/ports.ts';
import { isBadToken } from '../../src/call/wire-error.ts';
import { AwaitError } from '../../src/error.ts';
import type { HostInstance } from '../../src/host/instance.ts';
import type { Sink } from '../../src/stream/tail.ts';
import type { Session } from '../2025/session.ts';
import type { SessionStream } from '../2025/stream.ts';
import type { Services } from '../services.ts';
import type { Calls } from './calls.ts';
import { recallClient } from './identity.ts';

export interface Following {
  readonly services: Services;
  readonly session: Session;
  readonly calls: Calls;
  readonly source: Pick<Leg, 'authInfo' | 'request'>;
  /** The session's instance here. */
  readonly instance: () => Promise<HostInstance>;
}

/** Until the connection is gone. */
export function followCalls(following: Following, sink: Sink): void {
  const follower = new Follower(following);
  sink.onClose(() => follower.stop());
  void follower.run();
}

class Follower {
  readonly #following: Following;
  readonly #lease: number;
  /** Calls that were not told, by position, in order. */
  readonly #open = new Map<number, string>();
  /** How to leave those that are followed. */
  readonly #stops = new Map<string, () => void>();
  /** Fires when the connection is gone. */
  readonly #gone = new AbortController();
  #next = 0;
  #done = 0;

  constructor(following: Following) {
    this.#following = following;
    this.#lease = following.services.settings.limits.lease;
  }

  stop(): void {
    this.#gone.abort();
    for (const stop of this.#stops.values()) stop();
  }

  async run(): Promise<void> {
    while (!this.#gone.signal.aborted) {
      await this.#look().catch((error: unknown) => this.#failed(error));
      await this.#pause(this.#lease / 2);
    }
  }

  async #look(): Promise<void> {
    const { calls, session } = this.#following;
    if (this.#next === 0) {
      this.#done = await calls.done();
      this.#next = this.#done + 1;
    }
    for (let callId = await calls.at(this.#next); callId !== undefined; callId = await calls.at(this.#next)) {
      this.#open.set(this.#next, callId);
      this.#next += 1;
    }
    for (const [position, callId] of this.#open) {
      if (this.#gone.signal.aborted) return;
      if (session.runs(callId) || this.#stops.has(callId)) continue;
      if (await calls.isTold(callId)) this.#open.delete(position);
      else void this.#follow(callId).catch((error: unknown) => this.#failed(error));
    }
    const [first = this.#next] = this.#open.keys();
    if (first - 1 === this.#done) return;
    this.#done = first - 1;
    await calls.writeDone(this.#done);
  }

  async #follow(callId: string): Promise<void> {
    const { services, session, calls, source, instance } = this.#following;
    this.#stops.set(callId, () => {});
    try {
      await recallClient(services, session);
      const take = async (): Promise<{ instance: HostInstance | undefined; stream: SessionStream }> => ({
        instance: services.settings.instance === 'call' ? undefined : await instance(),
        stream: session.standing,
      });
      const followed = session.follow(callId, source, take, this.#lease);
      this.#stops.set(callId, followed.stop);
      if (this.#gone.signal.aborted) followed.stop();
      const outcome = await followed.outcome;
      if (outcome.kind === 'gone' && outcome.elsewhere) await calls.dismiss(callId);
      if (outcome.kind !== 'responded') return;
      if (outcome.elsewhere) {
        // Its process wrote the outcome down, and tells it, unless it died in between.
        await this.#pause(this.#lease);
        if (this.#gone.signal.aborted || (await calls.isTold(callId))) return;
      } else if (!followed.taken()) {
        // Its journal is gone, or could not be read: that is looked at again.
        if (isBadToken(outcome.response)) await calls.dismiss(callId);
        return;
      }
      const first = await services.store?.read(callId, 0);
      if (first?.type === 'called') await calls.tell(callId, first.call.requestId, outcome.response);
    } finally {
      this.#stops.delete(callId);
    }
  }

  #failed(error: unknown): void {
    const { message } = AwaitError.from(error);
    this.#following.services.settings.logger.warn('the calls of a session cannot be followed', {
      error: message,
    });
  }

  async #pause(milliseconds: number): Promise<void> {
    const { signal } = this.#gone;
    await sleep(milliseconds, undefined, { signal, ref: false }).catch(() => {});
  }
}
