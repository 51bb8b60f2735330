/**
 * Calls that continue without their request. The process that is asked about one reads its journal, and takes it over
 * if its owner was silent for a lease; a cancel is an entry of that journal. So any process answers for any task.
 */

import {
  type AwaitError,
  badToken,
  type Clock,
  defined,
  hasCode,
  type JsonObject,
  memoryOf,
  sleep,
} from '../../base/values.ts';
import { type AnswerCheck, sortAnswers } from '../ask/answer.ts';
import {
  type CallRecord,
  isEnd,
  isReceived,
  type OpenAsk,
  type Received,
  type Response,
} from '../journal/entries.ts';
import { Folding } from '../journal/fold.ts';
import type { CallStore } from '../journal/store.ts';
import { KEPT } from '../journal/writer.ts';
import type { Answers } from '../run/answers.ts';
import type { Ownership } from '../run/ownership.ts';
import type { Runs } from '../run/registry.ts';
import type { AbortSignalLike } from '../run/request-context.ts';
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
  /** Its open asks, while it waits for them, and how often owners wrote each. */
  readonly asks: readonly (OpenAsk & { readonly times: number })[];
  /** The response to its request, once it has ended. */
  readonly response?: Response;
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
  readonly wake: (callId: string, by: string | undefined) => void;
}

/** Who sends something for a call, and in which session. */
export type CallerOf = {
  readonly principal: string | undefined;
  readonly session?: string | undefined;
};

/** Whether a call is this caller's; one of a session is that session's alone. */
function isCallers(call: CallRecord, { principal, session }: CallerOf): boolean {
  return call.principal === principal && (call.session === undefined || call.session === session);
}

/** The owner of reads by which a process looks whether tasks still move. */
const LOOKS = 'looks';
/** Journals of running tasks that are kept folded, so that a client that polls costs one read. */
const FOLDED = 500;
/** What all of these may take of memory, in bytes as they are estimated. */
const FOLDED_BYTES = 16_777_216;
/** Most reports of a client on one ask that pass from process to process: each is an entry. */
const REPORTS = 1_000;
const PAUSE = { first: 25, most: 500, growth: 1.6 };

interface Known {
  readonly folding: Folding;
  last: Promise<void>;
  bytes: number;
  /** When it was read last, by the monotonic clock. */
  read: number;
}

export class Tasks {
  readonly #parts: TaskParts;
  readonly #known = new Map<string, Known>();
  /** What the known ones take. */
  #bytes = 0;

  constructor(parts: TaskParts) {
    this.#parts = parts;
  }

  /** @throws AwaitError `bad-token` when this caller has no such task, or has it no more; `store` */
  async get(id: string, principal: string | undefined): Promise<TaskView> {
    const folding = await this.#fold(id, principal);
    // Another reader may read on while this one waits.
    const { call, detached, response, cancelled, updated } = folding;
    if (call === undefined || call.principal !== principal || detached === undefined)
      throw badToken(`task ${id} does not belong to this caller`);
    if (call.expires < this.#parts.clock.now()) throw badToken(`task ${id} has expired`);
    if (response === undefined && this.#here(id) === undefined) this.#parts.watch(id);
    // Those that its client can answer.
    const waiting = [...folding.open.values()].filter(({ withdrawn, refused }) => !withdrawn && !refused);
    const asks = waiting.map((ask) => ({ ...ask, times: folding.timesAsked(ask.key) }));
    return {
      id,
      call,
      status: statusOf(cancelled, response, asks),
      created: detached,
      updated,
      expires: call.expires,
      asks,
      ...defined({ response }),
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
    const { asks } = await this.get(id, principal);
    const { clock, check, answers } = this.#parts;
    const sorted = sortAnswers(asks, responses, clock.now(), check);
    for (const { key, response } of sorted.accepted) await this.answer(id, { principal }, key, response);
    for (const { key } of bad === 'again' ? sorted.bad : []) {
      const run = this.#here(id);
      if (run !== undefined && (await answers.refuse(run, key))) continue;
      await this.#receive(id, { principal }, ({ open }) =>
        open.has(key) ? { type: 'refused', key } : undefined,
      );
    }
  }

  /**
   * Takes in an answer to an ask, whichever process runs its call: it is in the log when this resolves. The first one
   * counts; later ones change nothing.
   * @throws AwaitError `bad-token` when this caller's call has no such ask, or is over; `store`
   */
  async answer(id: string, caller: CallerOf, key: string, response: Response): Promise<void> {
    const run = this.#here(id);
    if (run !== undefined && isCallers(run.call, caller)) {
      if (await this.#parts.answers.taken(run, key, response)) return;
    }
    const given = this.#parts.answers.given(response);
    await this.#receive(id, caller, (known) => {
      if (known.isAnswered(key)) return undefined;
      const ask = known.open.get(key);
      // The client of a suspended call answers with its token.
      if (ask === undefined || known.suspended) throw this.#unknownAsk(id);
      return { ...given(ask), isReceived: true };
    });
  }

  /**
   * Passes a client's progress on to an ask, whichever process runs its call.
   * @returns false when this caller has no such ask, or its tool does not listen
   */
  async report(id: string, caller: CallerOf, key: string, params: JsonObject): Promise<boolean> {
    const run = this.#here(id);
    if (run?.frame.openAsk(key) !== undefined)
      return isCallers(run.call, caller) && run.frame.report(key, params);
    let listens = false;
    await this.#receive(id, caller, (known) => {
      listens = known.open.get(key)?.progress !== undefined;
      return listens && known.reports(key) < REPORTS ? { type: 'reported', key, params } : undefined;
    }).catch((error: unknown) => {
      if (!hasCode(error, 'bad-token')) throw error;
    });
    return listens;
  }

  /** Appends what a client sent to its call's log, at the first position that is free, and wakes the call's owner. */
  async #receive(
    id: string,
    caller: CallerOf,
    decide: (known: Folding) => Received | undefined,
  ): Promise<void> {
    const { store, wake } = this.#parts;
    for (;;) {
      const known = await this.#fold(id, caller.principal);
      const { call, at, by } = known;
      if (call === undefined || !isCallers(call, caller)) throw this.#unknownAsk(id);
      const entry = decide(known);
      if (entry === undefined) return;
      if (!(await store.insertEntry(call, at + 1, entry))) continue;
      wake(id, by);
      return;
    }
  }

  #unknownAsk(id: string): AwaitError {
    return badToken(`call ${id} has no open ask of this key that this caller can answer`);
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
    const { call } = await this.#fold(id, principal);
    if (call === undefined || call.principal !== principal) return false;
    return this.#cancel(call, 'the request was cancelled');
  }

  async #cancel(call: CallRecord, reason: string): Promise<boolean> {
    const { id } = call;
    for (;;) {
      const folding = await this.#fold(id, call.principal);
      if (folding.response !== undefined) return false;
      const run = this.#here(id);
      if (run !== undefined) {
        if (await this.#parts.ownership.isCancelled(run, reason)) return true;
        continue;
      }
      const entry = { type: 'cancelled', when: this.#parts.clock.now() } as const;
      if (!(await this.#parts.store.insertEntry(call, folding.at + 1, entry))) continue;
      this.#parts.wake(id, folding.by);
      return true;
    }
  }

  /**
   * Waits until a task satisfies the condition.
   * @returns undefined when `gone` fires before
   * @throws AwaitError as `get` does; `store` at its first look alone
   */
  async until(
    id: string,
    principal: string | undefined,
    wanted: (view: TaskView) => boolean,
    gone?: AbortSignalLike,
  ): Promise<TaskView | undefined> {
    for (let pause = PAUSE.first; !gone?.aborted; pause = Math.min(pause * PAUSE.growth, PAUSE.most)) {
      // Who waits already outlasts a store that is away for longer than a request does.
      const view = await this.get(id, principal).catch((error: unknown) => {
        if (pause === PAUSE.first || !hasCode(error, 'store')) throw error;
      });
      if (view && wanted(view)) return view;
      await sleep(this.#parts.clock, pause);
    }
    return undefined;
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
    const first = this.#known.has(id) || from <= 0 ? undefined : await store.read(id, 0, LOOKS);
    if (first?.type !== 'called') {
      const { call, response, moved: at, left } = await this.#fold(id, LOOKS);
      if (call === undefined || response !== undefined || call.expires < clock.now()) return undefined;
      return { call, at, left };
    }
    const { call } = first;
    if (call.expires < clock.now()) return undefined;
    let [at, last, left] = [from, from, false];
    for await (const entry of store.readOn(id, from, LOOKS)) {
      if (isEnd(entry)) return undefined;
      if (!isReceived(entry)) [last, left] = [at, entry.type === 'left'];
      at += 1;
    }
    return { call, at: last, left };
  }

  /** Drops what this process keeps of a task. */
  forget(id: string): void {
    this.#drop(id);
  }

  #here(id: string): Run | undefined {
    const run = this.#parts.runs.unattached(id);
    return run?.state.at === 'over' ? undefined : run;
  }

  /** A task's journal; nothing is kept of one that has ended. */
  async #fold(id: string, owner: string | undefined): Promise<Folding> {
    const { clock, lease } = this.#parts;
    const read = clock.elapsed();
    const first = { folding: new Folding(), last: Promise.resolve(), bytes: 0, read };
    // One that has ended since may be deleted by now, and would seem to wait for ever.
    const kept = this.#known.get(id);
    const known: Known = kept !== undefined && read - kept.read < KEPT * lease ? kept : first;
    if (known === first) this.#drop(id);
    this.#known.delete(id);
    this.#known.set(id, known);
    const { folding } = known;
    const reading = known.last.then(async () => {
      if (folding.response !== undefined) return;
      for await (const entry of this.#parts.store.readOn(id, folding.at + 1, owner)) {
        folding.take(entry);
        this.#keep(id, known, memoryOf(entry));
        if (folding.response !== undefined) return;
      }
      known.read = read;
    });
    known.last = reading.catch(() => {});
    await reading;
    const { call, response } = folding;
    // Unknown ids must not evict real tasks from this cache.
    if (call === undefined || response !== undefined) this.#drop(id, known);
    return folding;
  }

  /** Counts an entry that was folded, and drops those that were asked for least lately. */
  #keep(id: string, known: Known, bytes: number): void {
    known.bytes += bytes;
    if (this.#known.get(id) === known) this.#bytes += bytes;
    for (const oldest of this.#known.keys()) {
      if (this.#known.size <= FOLDED && this.#bytes <= FOLDED_BYTES) return;
      this.#drop(oldest);
    }
  }

  #drop(id: string, known = this.#known.get(id)): void {
    if (known === undefined || this.#known.get(id) !== known) return;
    this.#known.delete(id);
    this.#bytes -= known.bytes;
  }
}

function statusOf(cancelled: boolean, response: Response | undefined, asks: readonly OpenAsk[]): TaskStatus {
  if (cancelled) return 'cancelled';
  if (response !== undefined) return 'result' in response ? 'completed' : 'failed';
  return asks.length > 0 ? 'input_required' : 'working';
}
