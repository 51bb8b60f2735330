/**
 * The life of a call: begun by a first request, suspended when it asks, resumed by the process that gets the next request. It
 * decides which process may enter a turn (invariant 10: one winner, by the journal) and from which state a frame
 * continues.
 * The runs and their records are in `run/registry.ts`, the inside of a turn in `frame/`, the wire in `compat/`.
 */
import { digest } from '../base/digest.ts';
import { Quota, type QuotaKey } from '../base/quota.ts';
import {
  AwaitError,
  badToken,
  deferred,
  defined,
  type JsonObject,
  LoopTurns,
  memoryOf,
  type Repeating,
  SHARE,
} from '../base/values.ts';
import { checkResponses, type ErrorAnswers } from './ask/answer.ts';
import { type CallRecord, type Checkpoint, type Entry, FORMAT, type Response } from './journal/entries.ts';
import { LateJournal } from './journal/late.ts';
import { RunJournal } from './journal/run-journal.ts';
import { silenceOf } from './journal/silence.ts';
import type { OpenJournal } from './journal/store.ts';
import { isAppended, volatileJournal } from './journal/writer.ts';
import { Active } from './run/active.ts';
import { Answers } from './run/answers.ts';
import type { Binding } from './run/binding.ts';
import { Checkpoints } from './run/checkpoints.ts';
import { Handoff, type Offer } from './run/handoff.ts';
import { Naps } from './run/lookout.ts';
import type { Outcome } from './run/outcome.ts';
import { askOutside, OUTSIDE, type OutsideAsk } from './run/outside.ts';
import { Ownership, WAS_CANCELLED } from './run/ownership.ts';
import { Runs } from './run/registry.ts';
import { type Rehearsal, rehearse } from './run/rehearsal.ts';
import type { Instance, RequestContext } from './run/request-context.ts';
import { Resumption } from './run/resume.ts';
import { noRoom, noRoomForCalls } from './run/room.ts';
import { type EngineParts, isUnattached, keyOf, quotaKeyOf, type Run, runIn } from './run/run.ts';
import type { TokenState } from './run/state.ts';
import { TakeOver, type TakesOver } from './run/take-over.ts';
import { type Rooms, Turns } from './run/turns.ts';
import { reported } from './run/wire-error.ts';
import type { Begun, NewCall, Says, TakingUp } from './started.ts';
import { type CallerOf, Tasks } from './task/tasks.ts';

export type { EngineParts } from './run/run.ts';
export type { Begun, NewCall, Started, TakingUp } from './started.ts';

/** @param expires of the call, in milliseconds since the epoch: a sweeper need not read a record to delete it */
export function newCallId(expires: number): string {
  return `${Math.ceil(expires).toString(36)}.${crypto.randomUUID()}`;
}

const GONE: Outcome = { kind: 'gone' };
/** How long the replay of a changed list may take, in milliseconds: a session's requests wait for it. */
const REHEARSAL = 5_000;
/** Memory of a tool that runs, with its share of a server, beside what it was given; in bytes. */
const HANDLER = 32_768;

export class Engine {
  readonly #parts: EngineParts;
  readonly #runs: Runs;
  readonly #rooms: Rooms;
  readonly #turns: Turns;
  readonly #resumption: Resumption;
  readonly #takeOver: TakeOver;
  readonly #begins = new LoopTurns();
  readonly #handoff: Handoff | undefined;
  readonly #looking: Repeating | undefined;
  /** Requests that were let go of, and that their servers still hold. */
  readonly #collected = new FinalizationRegistry<object>((holder) => this.#runs.heap.leave(holder));
  /** Turns that a request began here, a call's first or a later one, without an outcome; requests that wait for tasks. */
  readonly inWork: Quota;
  /** The calls that continue without their request; undefined without a store. */
  readonly tasks: Tasks | undefined;

  constructor(parts: EngineParts) {
    this.#parts = parts;
    const { handoff, clock, limits, log } = parts;
    const { calls: all, callerCalls: caller, anonymousCalls: anonymous } = limits;
    this.inWork = new Quota({ all, caller, anonymous });
    this.#handoff =
      handoff &&
      new Handoff(handoff, {
        clock,
        wait: limits.handoffWait,
        log,
        // Another process offers a POST whose call's frame may be here.
        accept: (offer, context, onAccepted) =>
          this.#runs.isLeaving ||
          !this.#runs.has(keyOf(offer.state)) ||
          !this.inWork.has(quotaKeyOf(offer.binding, context))
            ? undefined
            : this.#join(offer, context, onAccepted).catch((error: unknown) =>
                reported(parts, offer.state.callId, AwaitError.from(error)),
              ),
        woken: (callId) => this.#rooms.answers.wake(callId),
      });
    const runs = new Runs(parts);
    const id = crypto.randomUUID();
    const ownership = new Ownership(parts, runs, id);
    const naps = new Naps(clock);
    const answers = new Answers(parts, runs, ownership, naps);
    const checkpoints = new Checkpoints(parts, this.#handoff);
    this.#rooms = { runs, ownership, naps, answers, checkpoints, handoff: this.#handoff, id };
    this.#runs = runs;
    this.#looking = ownership.lookAtParked();
    this.#turns = new Turns(parts, this.#rooms);
    this.#resumption = new Resumption(parts, this.#rooms, this.#turns);
    this.#takeOver = new TakeOver(parts, this.#rooms);
    const { store } = parts;
    this.tasks =
      store &&
      new Tasks({
        store,
        clock,
        check: parts.check,
        ...this.#rooms,
        lease: limits.lease,
        watch: (id) => parts.watch?.(id),
        wake: (callId, by) => this.wake(callId, by),
      });
  }

  /**
   * Counts a request that is in work here, and the memory that it takes.
   * @throws AwaitError `no-room`
   */
  hold(holder: object, quotaKey: QuotaKey, bytes = 0): void {
    if (!this.fits(quotaKey, 1, bytes)) throw noRoomForCalls();
    this.inWork.hold(holder, quotaKey);
    this.#runs.heap.change(holder, quotaKey, bytes);
  }

  /** Whether there is room for so many requests, of so many bytes together. */
  fits(quotaKey: QuotaKey, requests: number, bytes: number): boolean {
    return this.inWork.has(quotaKey, requests) && this.#runs.heap.has(quotaKey, bytes);
  }

  /** A request that `hold` counted is over. */
  release(holder: object): void {
    this.inWork.leave(holder);
    this.#runs.heap.leave(holder);
  }

  /** A request that was let go of counts until its server lets go of it: its handler may run on. */
  countOn(handler: object, principal: string | undefined, bytes: number): void {
    const holder = {};
    this.#runs.heap.hold(holder, { principal }, HANDLER + bytes);
    this.#collected.register(handler, holder);
  }

  /** Frees memory: the frames go that a replay continues. */
  letGo(): void {
    this.#runs.parked.letGo(
      ({ call, state }) =>
        state.at === 'checkpoint' && this.#parts.replay(call, state.checkpoint.completions) === 'allow',
    );
  }

  /** Frames parked in this process. */
  get parked(): number {
    return this.#runs.parked.size;
  }

  /**
   * Drops the parked frames of a caller whose calls are erased, and ends its calls that no journal has yet.
   * @returns how many of these there were
   */
  forget(principal: string): number {
    this.#runs.parked.dropOf(principal);
    const unwritten = this.#runs.unwrittenOf(principal);
    for (const run of unwritten)
      void this.#rooms.ownership.cancel(run, 'the call was erased').catch(() => {});
    return unwritten.length;
  }

  /** Runs a first request, in `instance` or in one of its own. */
  start(request: NewCall, context: RequestContext, instance?: Instance): Begun {
    const { promise: kept, resolve: onKept } = deferred();
    const record = this.#record(request, context);
    const { binding, responses, resumable = false } = request;
    const { room } = this.#runs;
    const { onDurable } = request;
    let late: LateJournal | undefined;
    let journalOf: OpenJournal | undefined;
    const { promise: ready, resolve: onReady } = deferred();
    const quotaKey = quotaKeyOf(record, context);
    this.#parts.count('calls');
    this.#parts.called?.(record);
    const bytes = context.memory ?? memoryOf(record.params);
    const started = this.#run(record, context, async () => {
      this.hold(record, quotaKey, bytes);
      if (responses !== undefined) checkResponses(responses);
      // Those that one reply of the store lets begin together would hold all their results at once.
      await this.#begins.next(SHARE, record.principal);
      const { local } = this.#parts;
      const isLogged = context.isLogged === true;
      const store = this.#parts.store ?? (isLogged ? local : undefined);
      const home = instance ?? (await this.#parts.openInstance(record, context));
      const asked = this.#parts.admit?.(home, record, context);
      const refusal = asked && (await asked);
      const task = refusal ?? (request.choose && (await request.choose(home))) ?? request.task;
      if (task !== undefined && !('when' in task)) {
        home.release(false);
        return { outcome: { kind: 'responded', response: task } };
      }
      const mark = context.live ? {} : ({ asksUrls: true } as const);
      const call = task === undefined ? record : { ...record, task: { ...task, ...mark } };
      const opened = store?.open(call, -1) ?? volatileJournal(-1);
      journalOf = opened;
      const isTask = task?.when === 'now' && context.takesTasks === true;
      const isFound = (resumable || isLogged) && store !== undefined;
      const called = isFound ? this.#calledEntry(call) : undefined;
      if (onDurable && !isTask) late = new LateJournal(opened, called, onDurable);
      const journal = new RunJournal(late ?? opened, call, this.#parts);
      try {
        if (isTask) {
          if (!room.has(quotaKey)) throw noRoom(call.id);
          // Until its run begins.
          room.hold(record, quotaKey);
          journal.count(call);
        }
        // Written now, so that a process that takes it over finds it, whatever fails from here on.
        if ((isFound || isTask) && store !== undefined && late === undefined)
          await this.#keep(call, journal, isTask);
      } catch (error) {
        if (instance === undefined) home.release(false);
        throw error;
      }
      if (late === undefined) onKept();
      onReady();
      const by = isTask ? 'task' : resumable ? 'journal' : 'request';
      const made = { call, binding, journal, held: { by } } as const;
      const where = { home, isKept: instance !== undefined };
      return { run: runIn(this.#parts, made, context, where, undefined, bytes), responses };
    });
    void started.outcome.then((outcome) => {
      this.release(record);
      // Its journal's entries were sent to the client as they were written.
      if ((journalOf?.position ?? -1) < 0) this.#parts.ended?.(record, outcome);
      room.leave(record);
      late?.end();
      onKept();
      onReady();
    });
    const keep = async (): Promise<boolean> => {
      // Its journal is opened once it has its instance.
      await ready;
      await (late === undefined ? kept : late.keep());
      onKept();
      return late?.isLeftOut !== true;
    };
    return { ...started, kept, keep };
  }

  /** Writes the first entry of a call that continues without its request. */
  async #keep(call: CallRecord, journal: OpenJournal, isTask: boolean): Promise<void> {
    await journal.append({ ...this.#calledEntry(call), ...(isTask && { isTask }) });
    if (!isTask) return;
    try {
      await this.#parts.began?.(call);
    } catch (error) {
      // Its client gets an error, so no process may find the call and run it after all.
      await journal.append({ type: 'cancelled', when: this.#parts.clock.now() }).catch(() => {});
      throw error;
    }
  }

  #calledEntry(call: CallRecord): Extract<Entry, { type: 'called' }> {
    return { type: 'called', format: FORMAT, call, ...defined({ by: this.#rooms.checkpoints.self }) };
  }

  /**
   * Takes over a resumable call whose owner gave no sign of life for a lease; before that, its outcome comes from the
   * owner. Open asks go out again, under their keys.
   * @param take called when the call belongs to this process, before its first message: opens an instance
   * @param how `pace`: longest pause between two reads, in milliseconds, by default 500; `silentAt`: a position
   * after which its owner wrote nothing for a lease; the call is left alone if it has since; `seen` is called with each
   * entry that is read; `reading` is appended once the end is reached
   */
  takeUp(
    callId: string,
    caller: QuotaKey,
    context: RequestContext,
    take?: (call: CallRecord) => Promise<Instance | undefined>,
    how: Pick<Partial<TakesOver>, 'pace' | 'silentAt' | 'seen' | 'reading'> = {},
  ): TakingUp {
    let isStopped = false;
    const started = this.#run({ id: callId }, context, (isCancelled) => {
      const stopped = (): boolean => isStopped || isCancelled();
      return this.#takeOver.prepare({ ...how, callId, caller, context, take, stopped });
    });
    const stop = (): void => {
      isStopped = true;
    };
    return { ...started, stop };
  }

  /**
   * Takes in an answer to an ask of a resumable call: see `Tasks.answer`.
   * @throws AwaitError `bad-token` when this caller has no such call
   */
  async deliver(callId: string, caller: CallerOf, key: string, response: Response): Promise<void> {
    if (this.tasks === undefined) throw badToken('without a store no call is found');
    await this.tasks.answer(callId, caller, key, response).catch(async (error: unknown) => {
      if (!(await this.#parts.late?.(callId, caller.principal, key, response))) throw error;
    });
  }

  /** Passes a client's progress on to an ask of a resumable call: see `Tasks.report`. */
  async report(callId: string, caller: CallerOf, key: string, params: JsonObject): Promise<boolean> {
    return (await this.tasks?.report(callId, caller, key, params)) ?? false;
  }

  /**
   * Takes over a task whose owner gave no sign of life for a lease. Resolves when it runs here, or cannot: another
   * process has it after all, or this one is full.
   * @param at the last position of its journal then
   */
  takeUpTask(call: CallRecord, at: number): Promise<Outcome> {
    const { client, principal } = call;
    const context: RequestContext = { live: true, capabilities: client.capabilities, notify: () => {} };
    const { room } = this.#runs;
    if (!room.has({ principal })) return Promise.resolve(GONE);
    // Until its run begins; a call that is read twice is two objects.
    room.hold(call, { principal });
    const { outcome } = this.takeUp(call.id, call, context, undefined, { silentAt: at });
    return outcome.finally(() => room.leave(call));
  }

  /** Replays an ended call in another instance, as far as it may be replayed. */
  rehearse(checkpoint: Checkpoint, instance: Instance): Rehearsal | undefined {
    const { frame, limits, replay } = this.#parts;
    if (replay(checkpoint.call, checkpoint.completions) === 'never') return undefined;
    return rehearse(checkpoint, instance, frame, Math.min(limits.turnWait, REHEARSAL));
  }

  /** Whether a call that continues without its request runs here. */
  runs = (callId: string): boolean => this.#runs.unattached(callId) !== undefined;

  /** A connection reads the reply of a call that runs here. @returns false if it is another process's by now */
  async read(callId: string, entry: Extract<Entry, { type: 'reading' }>): Promise<boolean> {
    const run = this.#runs.unattached(callId);
    return run !== undefined && isAppended(run.journal, entry);
  }

  /** The name under which other processes can wake this one, if they can. */
  get name(): string | undefined {
    return this.#handoff?.listening ? this.#handoff.name : undefined;
  }

  /**
   * A server asks outside of any call. Resolves once other processes can receive the answer.
   * @returns ends it
   * @throws AwaitError `store`, `limit`
   */
  async askOutside(
    asked: Omit<OutsideAsk, 'call' | 'by'> & {
      readonly call: Omit<CallRecord, 'method' | 'params' | 'requestId'>;
    },
  ): Promise<() => void> {
    const { store } = this.#parts;
    if (store === undefined) throw new AwaitError('internal', 'without a store no other process has answers');
    const call = { ...asked.call, method: OUTSIDE, params: {}, requestId: 0 };
    return askOutside(store, this.#rooms.answers.lookout, { ...asked, call, by: this.name });
  }

  /** Something was appended to a call's log for its owner, which may be another process. */
  wake(callId: string, by: string | undefined): void {
    this.#rooms.answers.wake(callId);
    if (by !== undefined && by !== this.name) this.#handoff?.wake(by, callId);
  }

  /**
   * Runs the call that `prepare` returns, or passes on the outcome that it found; either can be cancelled at any time.
   */
  #run(
    call: { readonly id: string },
    context: RequestContext,
    prepare: (
      isCancelled: () => boolean,
    ) => Promise<{ run: Run; responses?: unknown } | { outcome: Outcome }>,
  ): Says {
    let run: Run | undefined;
    let cancelled = false;
    const { promise: outcome, resolve: tell } = deferred<Outcome>();
    const cancel = (reason?: string): void => {
      cancelled = true;
      if (run !== undefined) void this.#rooms.ownership.cancel(run, reason).catch(() => {});
      tell(GONE);
    };
    const begin = async (): Promise<Outcome> => {
      const ready = await prepare(() => cancelled);
      if ('outcome' in ready) return ready.outcome;
      run = ready.run;
      if (!cancelled)
        return await this.#turns.enter(run, context, { begin: true, responses: ready.responses });
      void this.#rooms.ownership.cancel(run).catch(() => {});
      return GONE;
    };
    const { signal } = context;
    const onAbort = (): void => cancel('the client went away');
    signal?.addEventListener('abort', onAbort, { once: true });
    const end = (ended: Outcome): void => {
      // A signal that fires later is about a request that has had its reply.
      signal?.removeEventListener('abort', onAbort);
      this.#countError(ended);
      tell(ended);
    };
    const fail = (thrown: unknown): void => {
      const error = AwaitError.from(thrown);
      // A failure of the store does not end a call that the store has: it continues where its client comes back.
      const isOpen = error.code === 'store' && run && isUnattached(run) && run.journal.position >= 0;
      end(reported(this.#parts, call.id, isOpen ? new AwaitError('closed', error.message, error) : error));
    };
    begin().then(end, fail);
    if (signal?.aborted) onAbort();
    return {
      callId: call.id,
      outcome,
      cancel,
      answer: async (key, response) => run !== undefined && this.#rooms.answers.take(run, key, response),
      report: (key, params) => run?.frame.report(key, params) ?? false,
      say: (message) => run?.journal.notify(message, (direct) => context.notify(direct)),
    };
  }

  /**
   * Continues a suspended call.
   * @param responses the client's `inputResponses`, unchecked
   * @param errors asks that the client answered by a JSON-RPC error, by key
   * @throws nothing: an error becomes an outcome with a fixed sentence
   */
  resume(
    token: string,
    binding: Binding,
    responses: unknown,
    context: RequestContext,
    errors?: ErrorAnswers,
  ): Promise<Outcome> {
    const open = (): Promise<TokenState> => this.#parts.tokens.open(token, binding);
    return this.#resume(open, { token, binding, responses, ...defined({ errors }) }, context);
  }

  /** As `resume`, from a checkpoint that the caller has read from the log, and found to be its client's. */
  resumeAt(
    state: Pick<TokenState, 'callId' | 'at' | 'owner'>,
    offer: Omit<Offer, 'state' | 'token'>,
    context: RequestContext,
  ): Promise<Outcome> {
    return this.#resume(async () => state, { ...offer, token: '' }, context);
  }

  /**
   * Whether a call that waits at a checkpoint may go on without an answer: its tool did, as far as that is known here, or
   * the process of the steps beside its asks is silent.
   */
  async isReady({ at, checkpoint }: { at: number; checkpoint: Checkpoint }): Promise<boolean> {
    const { store, clock, limits } = this.#parts;
    const { call, running } = checkpoint;
    const parked = this.#runs.parked.get(keyOf({ callId: call.id, at }));
    if (parked !== undefined) return parked.frame.isReady;
    if (store === undefined || running === undefined) return false;
    return (await silenceOf(clock, store, call.id).lasts()) >= limits.lease;
  }

  async #resume(
    open: () => Promise<TokenState>,
    offer: Omit<Offer, 'state'>,
    context: RequestContext,
  ): Promise<Outcome> {
    try {
      this.#parts.count('resumes');
      if (this.#runs.isClosed) throw new AwaitError('closed', 'this handler was closed');
      return await this.#join({ ...offer, state: await this.#runs.opening(open()) }, context);
    } catch (error) {
      return reported(this.#parts, undefined, AwaitError.from(error));
    }
  }

  /** Cancels a suspended call: its tool's signal fires, if its frame is here. */
  async cancelAt(state: Pick<TokenState, 'callId' | 'at'>, principal: string | undefined): Promise<void> {
    const parked = this.#runs.takeParked(keyOf(state));
    if (parked === undefined) {
      await this.tasks?.cancelCall(state.callId, principal);
      return;
    }
    parked.run.held = { by: 'journal' };
    await this.#rooms.ownership.cancel(parked.run, WAS_CANCELLED);
  }

  /** Whether this process is about to end. */
  get isLeaving(): boolean {
    return this.#runs.isLeaving;
  }

  /** Whether running turns had `limits.drain` since this process began to leave: each ends at its next step. */
  get isDue(): boolean {
    return this.#runs.isDue;
  }

  /**
   * Waits for running turns; after `limits.drain` it gives up those that other processes can take over. New calls are
   * run. Other processes continue suspended calls themselves.
   */
  async leave(): Promise<void> {
    await this.#runs.leave(this.#parts.limits.drain);
  }

  /**
   * After `leave`: refuses new calls, and gives up the turns that are left. Parked frames are dropped: their calls
   * continue elsewhere, from the journal.
   */
  async close(): Promise<void> {
    this.#looking?.cancel();
    await this.#runs.close(this.#parts.limits.drain);
    await this.#handoff?.close();
  }

  // --- entering a turn -----------------------------------------------------------------------------

  /** The same token with the same answers shares one turn; with others it is refused. */
  async #join(offer: Offer, context: RequestContext, onAccepted?: () => void): Promise<Outcome> {
    const { state } = offer;
    const key = keyOf(state);
    const { responses = null, errors } = offer;
    const { sent = digest(errors === undefined ? responses : [responses, errors]) } = offer;
    const known = this.#runs.known(key, sent);
    if (known !== undefined && known.sent !== sent) {
      throw badToken(`call ${state.callId}: this turn was claimed with other answers`);
    }
    if (known !== undefined) {
      onAccepted?.();
      return known.wait(context.signal);
    }
    const quotaKey = quotaKeyOf(offer.binding, context);
    const place = {};
    // Before anything is claimed: the same token is good again once there is room.
    this.hold(place, quotaKey, context.memory);
    const active = new Active(sent, async (turn) => {
      const outcome = await this.#resumption
        .resume({ ...offer, sent, context, active: turn, ...defined({ accepted: onAccepted }) })
        .catch((error: unknown) => reported(this.#parts, state.callId, AwaitError.from(error)));
      this.release(place);
      this.#runs.over(key, turn);
      this.#countError(outcome);
      return outcome;
    });
    this.#runs.begin(key, active);
    return active.wait(context.signal);
  }

  #countError(outcome: Outcome): void {
    if (outcome.kind === 'responded' && 'error' in outcome.response) this.#parts.count('errors');
  }

  #record(request: NewCall, context: RequestContext): CallRecord {
    const { method, params, requestId, client, binding, ttl = this.#parts.ttl } = request;
    const created = this.#parts.clock.now();
    const expires = created + Math.min(ttl, this.#parts.ttl);
    const record: CallRecord = {
      id: request.callId ?? newCallId(expires),
      method,
      params,
      requestId,
      revision: binding.revision,
      client,
      ...defined({ principal: binding.principal, session: request.session }),
      created,
      expires,
    };
    const outlasted = this.#parts.outlasts?.(record, context);
    return outlasted === undefined ? record : { ...record, outlasted };
  }
}
