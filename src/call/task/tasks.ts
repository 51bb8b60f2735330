/**
 * Calls that continue without their request. The process that is asked about one reads its journal, and takes it over
 * if its owner was silent for a lease; a cancel is an entry of that journal. So any process answers for any task.
 */

import { keepNewest } from '../../base/bounded.ts';
import { type Clock, sleep } from '../../base/clock.ts';
import { AwaitError } from '../../base/error.ts';
import { type AnswerCheck, sortAnswers } from '../ask/answer.ts';
import type { CallRecord, Delivered, Entry, OpenAsk, Response } from '../journal/entries.ts';
import { Folding } from '../journal/fold.ts';
import type { CallStore } from '../journal/store.ts';
import { isAppended } from '../journal/writer.ts';
import type { Answers } from '../run/answers.ts';
import type { Gone } from '../run/leg.ts';
import type { Ownership } from '../run/ownership.ts';
import type { Runs } from '../run/registry.ts';
import type { Run } from '../run/run.ts';

export type TaskStatus = 'working' | 'input_required' | 'completed' | 'failed' | 'cancelled';

/** A task as its client may see it. Times are milliseconds since the epoch. */
export interface TaskView {
  readonly id: string;
  readonly call: CallRecord;
  readonly status: TaskStatus;
  readonly created: number;
  readonly updated: number;
  readonly expires: number;
  /** Its open asks, while it waits for them. */
  readonly asks: readonly OpenAsk[];
  /** The response to its request, once it has ended. */
  readonly response?: Response;
}

/** An ask of a call that any process may run. */
interface Asked {
  readonly call: CallRecord;
  /** The process that runs it, where others can reach it. */
  readonly by: string | undefined;
  /** Undefined once it is answered. */
  readonly open: OpenAsk | undefined;
}

export interface TaskParts {
  readonly store: CallStore;
  readonly clock: Clock;
  readonly check: AnswerCheck;
  readonly runs: Runs;
  readonly answers: Answers;
  readonly ownership: Ownership;
  /** How long an owner may be silent, in milliseconds. */
  readonly lease: number;
  /** Looks from now on whether a task that others run still moves, and takes it up when it does not. */
  readonly watch: (id: string) => void;
  readonly wake: (callId: string, by: string | undefined) => Promise<void>;
}

/** Journals that are kept folded, so that a client that polls costs one read. */
const FOLDED = 500;
const PAUSE = { first: 25, most: 500, growth: 1.6 };

interface Known {
  readonly folding: Folding;
  last: Promise<void>;
}

export class Tasks {
  readonly #parts: TaskParts;
  readonly #known = new Map<string, Known>();

  constructor(parts: TaskParts) {
    this.#parts = parts;
  }

  /** @throws AwaitError `bad-token` when this caller has no such task, or has it no more; `store` */
  async get(id: string, principal: string | undefined): Promise<TaskView> {
    const folding = await this.#read(id);
    // Another reader may read on while this one waits.
    const { call, detached, response, cancelled, updated } = folding;
    const { clock } = this.#parts;
    if (call === undefined || call.principal !== principal || detached === undefined)
      throw new AwaitError('bad-token', `task ${id} does not belong to this caller`);
    if (call.expires < clock.now()) throw new AwaitError('bad-token', `task ${id} has expired`);
    if (response === undefined && this.#here(id) === undefined) this.#parts.watch(id);
    const asks = response === undefined ? await this.#unanswered(folding) : [];
    return {
      id,
      call,
      status: statusOf(cancelled, response, asks),
      created: detached,
      updated,
      expires: call.expires,
      asks,
      ...(response !== undefined && { response }),
    };
  }

  /**
   * Records a client's answers; they are in the store when this resolves. Unknown and answered keys change nothing; an
   * answer that breaks its schema sends its ask again under a new key, since a client may show no key to its user twice
   * (invariant 5).
   * @param responses results by the keys of asks
   * @param bad `kept`: the revision itself asks again for every open ask under its old key, so a bad answer changes
   * nothing
   * @throws AwaitError as `get` does; `bad-answer` when it is not an object, or a value cannot be a result of its ask's
   * kind
   */
  async update(
    id: string,
    principal: string | undefined,
    responses: unknown,
    bad: 'again' | 'kept' = 'again',
  ): Promise<void> {
    const { asks, call } = await this.get(id, principal);
    const { clock, check, store, wake } = this.#parts;
    const sorted = sortAnswers(asks, responses, clock.now(), check);
    const delivered: { readonly key: string; readonly response: Delivered }[] = [...sorted.accepted];
    for (const { key } of bad === 'again' ? sorted.bad : []) {
      // The content of a bad answer is not needed.
      delivered.push({ key, response: { result: {}, isBad: true } });
    }
    for (const { key, response } of delivered) {
      const run = this.#here(id);
      // A run that was taken over may not have reached its ask yet: the inbox keeps the answer until it does.
      if (run !== undefined && (await this.#parts.answers.taken(run, key, response))) continue;
      await store.deliver(id, key, response, call.expires);
    }
    if (delivered.length > 0) await wake(id, this.#known.get(id)?.folding.by);
  }

  /**
   * @returns false when it was over before
   * @throws AwaitError as `get` does
   */
  async cancel(id: string, principal: string | undefined): Promise<boolean> {
    const { call } = await this.get(id, principal);
    return this.#cancel(call, 'the task was cancelled');
  }

  /**
   * Cancels a call that continues without its connection and is not a task, whichever process runs it.
   * @returns false when this caller has no running call of this id
   * @throws AwaitError `store`
   */
  async cancelCall(id: string, principal: string | undefined): Promise<boolean> {
    const { call } = await this.#read(id);
    if (call === undefined || call.principal !== principal) return false;
    return this.#cancel(call, 'the request was cancelled');
  }

  async #cancel(call: CallRecord, reason: string): Promise<boolean> {
    const { id } = call;
    for (;;) {
      const folding = await this.#read(id);
      if (folding.response !== undefined) return false;
      const run = this.#here(id);
      if (run !== undefined) {
        if (await this.#parts.ownership.isCancelled(run, reason)) return true;
        continue;
      }
      const journal = this.#parts.store.open(call, folding.at);
      if (!(await isAppended(journal, { type: 'cancelled', when: this.#parts.clock.now() }))) continue;
      await this.#parts.wake(id, folding.by);
      return true;
    }
  }

  /**
   * Waits until a task satisfies the condition.
   * @returns undefined when `gone` fires before
   * @throws AwaitError as `get` does
   */
  async until(
    id: string,
    principal: string | undefined,
    wanted: (view: TaskView) => boolean,
    gone?: Gone,
  ): Promise<TaskView | undefined> {
    const { clock } = this.#parts;
    for (let pause = PAUSE.first; !gone?.aborted; pause = Math.min(pause * PAUSE.growth, PAUSE.most)) {
      const view = await this.get(id, principal);
      if (wanted(view)) return view;
      await sleep(clock, pause);
    }
    return undefined;
  }

  /**
   * The call of an ask, and the process that runs it; undefined where this caller's call of this id made none of this
   * key. One that is answered counts: its client may send the answer again.
   * @throws AwaitError `store`
   */
  async asked(id: string, principal: string | undefined, key: string): Promise<Asked | undefined> {
    const { call, by, open, completions, response, cancelled } = await this.#read(id);
    if (call === undefined || call.principal !== principal) return undefined;
    const isOpen = open.has(key) && response === undefined && !cancelled;
    const isAnswered = completions.some((done) => done.kind === 'answer' && done.key === key);
    return isOpen || isAnswered ? { call, by, open: open.get(key) } : undefined;
  }

  /** Whether a task of this caller may be taken over here. */
  hasRoom(principal: string | undefined): boolean {
    return this.#parts.runs.room.has({ principal });
  }

  /** Whether a call is run here. */
  runs(id: string): boolean {
    return this.#here(id) !== undefined;
  }

  /**
   * The position of a task's journal, to see whether it moves; undefined once it has ended.
   * @param from a position that it has reached, -1 where none is known; what is before it is not read again
   * @throws AwaitError `store`
   */
  async progress(
    id: string,
    from = -1,
  ): Promise<{ readonly call: CallRecord; readonly at: number; left: boolean } | undefined> {
    const { store, clock } = this.#parts;
    const first = this.#known.has(id) || from <= 0 ? undefined : await store.read(id, 0);
    if (first?.type !== 'called') {
      const { call, response, at, left } = await this.#read(id);
      if (call === undefined || response !== undefined || call.expires < clock.now()) return undefined;
      return { call, at, left };
    }
    const { call } = first;
    if (call.expires < clock.now()) return undefined;
    for (let at = from, last: Entry | undefined; ; at += 1) {
      const entry = await store.read(id, at);
      if (entry === undefined) return { call, at: at - 1, left: last?.type === 'left' };
      if (entry.type === 'ended' || entry.type === 'cancelled') return undefined;
      last = entry;
    }
  }

  /** Drops this process's cached journal of a task. */
  forget(id: string): void {
    this.#known.delete(id);
  }

  #here(id: string): Run | undefined {
    const run = this.#parts.runs.unattached(id);
    return run?.state.at === 'over' ? undefined : run;
  }

  async #read(id: string): Promise<Folding> {
    const known: Known = this.#known.get(id) ?? { folding: new Folding(), last: Promise.resolve() };
    this.#known.delete(id);
    this.#known.set(id, known);
    keepNewest(this.#known, FOLDED);
    const { folding } = known;
    const read = known.last.then(async () => {
      while (folding.response === undefined) {
        const entry = await this.#parts.store.read(id, folding.at + 1);
        if (entry === undefined) return;
        folding.take(entry);
      }
    });
    known.last = read.catch(() => {});
    await read;
    // Unknown ids must not evict real tasks from this cache.
    if (folding.call === undefined) this.#known.delete(id);
    return folding;
  }

  async #unanswered({ open, call }: Folding): Promise<OpenAsk[]> {
    const { store } = this.#parts;
    const asks = [...open.values()].filter(({ withdrawn }) => withdrawn === undefined);
    if (!store.isShared || call === undefined) return asks;
    const delivered = await Promise.all(asks.map(({ key }) => store.delivered(call.id, key)));
    return asks.filter((_, nth) => delivered[nth] === undefined);
  }
}

function statusOf(cancelled: boolean, response: Response | undefined, asks: readonly OpenAsk[]): TaskStatus {
  if (cancelled) return 'cancelled';
  if (response !== undefined) return 'result' in response ? 'completed' : 'failed';
  return asks.length > 0 ? 'input_required' : 'working';
}
