/**
 * The running calls of this process whose asks are live, and the delivery of their answers: an answer to a call of
 * another process is in the store before it is accepted.
 */
import { keepNewest } from '../../src/base/bounded.ts';
import { AwaitError } from '../../src/base/error.ts';
import type { JsonObject } from '../../src/base/json.ts';
import type { Begun, Started } from '../../src/call/engine.ts';
import type { Response } from '../../src/call/journal/entries.ts';
import { responseOf } from '../../src/host/transport.ts';
import type { Services } from '../services.ts';

/** Answered asks that are remembered. */
const ANSWERED_KEPT = 1_000;

type Answered = (id: string, response: Response) => Promise<boolean>;

export class LiveCalls {
  readonly #services: Services;
  /** By the call's id. */
  readonly #running = new Map<
    string,
    { readonly started: Started; readonly principal: string | undefined }
  >();
  /** Asks whose answers were accepted here, with the caller. */
  readonly #answered = new Set<string>();
  readonly #outside: Answered;

  /** @param outside takes the answers to asks that are of no call */
  constructor(services: Services, outside: Answered = async () => false) {
    this.#services = services;
    this.#outside = outside;
  }

  /** Until it is over, its answers are given to this call. */
  keep<S extends Begun | Started>(started: S, principal: string | undefined): S {
    this.#running.set(started.callId, { started, principal });
    void started.outcome.finally(() => this.#running.delete(started.callId));
    return started;
  }

  runs(callId: string): boolean {
    return this.#running.has(callId);
  }

  /**
   * Delivers a client's response to an ask. It may come again, if its first POST got no reply.
   * @returns false if this caller has no such ask, or its answer is no longer waited for
   */
  async answer(principal: string | undefined, message: JsonObject): Promise<boolean> {
    const name = JSON.stringify([principal ?? null, message.id]);
    if (this.#answered.has(name)) return true;
    const isTaken = await this.#take(principal, String(message.id), responseOf(message));
    if (isTaken) this.#answered.add(name);
    keepNewest(this.#answered, ANSWERED_KEPT);
    return isTaken;
  }

  async #take(principal: string | undefined, id: string, response: Response): Promise<boolean> {
    const slash = id.indexOf('/');
    if (slash < 0) return this.#outside(id, response);
    const [callId, key] = [id.slice(0, slash), id.slice(slash + 1)];
    const here = this.#running.get(callId);
    if (here !== undefined) return here.principal === principal && here.started.answer(key, response);
    try {
      await this.#services.engine.deliver(callId, principal, key, response);
      return true;
    } catch (error) {
      if (error instanceof AwaitError && error.code === 'bad-token') return false;
      throw error;
    }
  }
}
