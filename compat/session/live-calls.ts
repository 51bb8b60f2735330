/**
 * The running calls of this process whose asks are live, and the delivery of their answers: an answer to a call of
 * another process is in the store before it is accepted.
 */
import { hasCode, isObject, type JsonObject, keepNewest } from '../../src/base/values.ts';
import type { Begun, Started } from '../../src/call/engine.ts';
import type { Response } from '../../src/call/journal/entries.ts';
import type { CallerOf } from '../../src/call/task/tasks.ts';
import type { Services } from '../../src/handler/services.ts';
import { responseOf } from '../../src/host/transport.ts';

/** Answered asks that are remembered. */
const ANSWERED_KEPT = 1_000;

/** The asks of this process that are of no call. */
export interface OtherAsks {
  /** @returns false when there is none of this id */
  answer(id: string, response: Response): boolean;
  /** @returns undefined when there is none of this id, false when its server does not listen */
  report(id: string, params: JsonObject): boolean | undefined;
}

const NO_OTHERS: OtherAsks = { answer: () => false, report: () => undefined };

export class LiveCalls {
  readonly #services: Services;
  /** By the call's id. */
  readonly #running = new Map<string, { readonly started: Started; readonly caller: CallerOf }>();
  /** Asks whose answers were accepted here, with the caller. */
  readonly #answered = new Set<string>();
  /** Answers on their way into the store: the same one again waits for the first. */
  readonly #underWay = new Map<string, Promise<boolean>>();
  readonly #outside: OtherAsks;

  /** @param outside takes the answers to asks that belong to no call */
  constructor(services: Services, outside: OtherAsks = NO_OTHERS) {
    this.#services = services;
    this.#outside = outside;
  }

  /** Until it is over, its answers are given to this call. */
  keep<S extends Begun | Started>(started: S, caller: CallerOf): S {
    this.#running.set(started.callId, { started, caller });
    void started.outcome.then(() => this.#running.delete(started.callId));
    return started;
  }

  runs(callId: string): boolean {
    return this.#running.has(callId);
  }

  /**
   * Delivers a client's response to an ask. It may come again, if its first POST got no reply.
   * @returns undefined if this caller has no such ask, or its answer is no longer waited for
   */
  async answer(caller: CallerOf, message: JsonObject): Promise<'new' | 'again' | undefined> {
    const name = JSON.stringify([caller.principal ?? null, caller.session ?? null, message.id]);
    if (this.#answered.has(name)) return 'again';
    const first = this.#underWay.get(name);
    if (first !== undefined) return (await first) ? 'again' : undefined;
    const taking = this.#take(caller, String(message.id), responseOf(message));
    const settled = taking.finally(() => this.#underWay.delete(name));
    this.#underWay.set(name, settled);
    const isTaken = await settled;
    if (isTaken) this.#answered.add(name);
    keepNewest(this.#answered, ANSWERED_KEPT);
    return isTaken ? 'new' : undefined;
  }

  /**
   * Passes a client's notification of progress on, if its token is an ask's.
   * @returns false if this caller has no such ask, or its tool does not listen
   */
  async report(caller: CallerOf, params: unknown): Promise<boolean> {
    if (!isObject(params) || typeof params.progressToken !== 'string') return false;
    const id = params.progressToken;
    const outside = this.#outside.report(id, params);
    if (outside !== undefined) return outside;
    const [callId, key] = askOf(id);
    const here = this.#running.get(callId);
    if (here === undefined) return this.#services.engine.report(callId, caller, key, params);
    return isSame(here.caller, caller) && here.started.report(key, params);
  }

  async #take(caller: CallerOf, id: string, response: Response): Promise<boolean> {
    if (this.#outside.answer(id, response)) return true;
    const [callId, key] = askOf(id);
    const here = this.#running.get(callId);
    if (here !== undefined && !isSame(here.caller, caller)) return false;
    if (await here?.started.answer(key, response)) return true;
    // Of another process; or of this one since a moment ago, and its tool does not ask again yet.
    try {
      await this.#services.engine.deliver(callId, caller, key, response);
      return true;
    } catch (error) {
      if (hasCode(error, 'bad-token')) return false;
      throw error;
    }
  }
}

function isSame(one: CallerOf, other: CallerOf): boolean {
  return one.principal === other.principal && one.session === other.session;
}

/** The call of an ask, and its key there, by its id on the wire. */
function askOf(id: string): readonly [callId: string, key: string] {
  const slash = id.indexOf('/');
  return [id.slice(0, Math.max(slash, 0)), id.slice(slash + 1)];
}
