/**
 * The runs of one process: a frame, the server instance it lives in, and its journal. A run is in a turn,
 * parked between two, or over. What a turn comes to is written here before anybody is told (invariant 11).
 */
import { randomUUID } from 'node:crypto';
import type { Allowance } from '../../base/allowance.ts';
import { keepNewest } from '../../base/bounded.ts';
import { every, type Timer, within } from '../../base/clock.ts';
import { AwaitError } from '../../base/error.ts';
import { isObject, isWritable, type JsonObject } from '../../base/json.ts';
import { checkGiven, uncheckable } from '../ask/answer.ts';
import { missingCapability } from '../ask/capability.ts';
import { askUrls, rerunsOf, stillNeeded, urlsNeeded, withoutUrls } from '../ask/url-elicitation.ts';
import { countActiveTurns } from '../frame/context.ts';
import { Frame } from '../frame/frame.ts';
import type { Detach, Ending, Turn } from '../frame/turn.ts';
import type { CallRecord, Checkpoint, Delivered, OpenAsk, Response } from '../journal/entries.ts';
import type { OpenJournal } from '../journal/store.ts';
import { unlessFenced } from '../journal/writer.ts';
import { takeAnswer } from './answering.ts';
import type { Binding } from './binding.ts';
import { Inbox } from './inbox.ts';
import type { Leg } from './leg.ts';
import type { OpenAskOutcome, Outcome } from './outcome.ts';
import { Parked } from './parked.ts';
import { replayRefused } from './refusal.ts';
import { taskRoom } from './room.ts';
import { type Active, type EngineParts, keyOf, type Resume, type Run, takerOf, wishOf } from './run.ts';
import type { State } from './state.ts';
import { after, afterTask } from './url-asks.ts';
import { failedWith, INTERNAL, refused, wireError } from './wire-error.ts';

/** What a tool is told, by its signal. */
const WAS_CANCELLED = 'the request was cancelled';

export class Runs {
  readonly #parts: EngineParts;
  readonly #handoff: { readonly name: string; readonly listening: boolean } | undefined;
  readonly inbox: Inbox | undefined;
  readonly parked: Parked<Run>;
  /** Which tasks run here. */
  readonly room: Allowance;
  /** Resumed turns that are being run here, by the token's position, and by what was sent with it. */
  readonly #active = new Map<string, Map<string, Active>>();
  /** Frames that are being put down or claimed: whoever wants one meanwhile waits, since it may be back. */
  readonly #unsettled = new Map<string, Promise<void>>();
  /** Outcomes of turns that no journal keeps, the newest last. */
  readonly #recent = new Map<string, Active>();
  /** Calls that ended, the oldest first, as far as memory alone keeps them. */
  readonly #finishedCalls: { call: CallRecord; at: number }[] = [];
  #closed = false;
  /** How to end the turns that are being run without an outcome. */
  readonly #stops = new Map<Run, () => void>();
  /** What goes on without its request, by the call's id. */
  readonly #loose = new Map<string, Run>();
  #onQuiet: (() => void) | undefined;
  /** What waits for its running steps before it is put down. */
  readonly #puttingDown = new Set<Run>();

  constructor(parts: EngineParts, handoff?: { readonly name: string; readonly listening: boolean }) {
    this.#parts = parts;
    this.#handoff = handoff;
    const { limits, clock, store, log } = parts;
    if (store?.isShared) {
      this.inbox = new Inbox(store, clock, (call, error) =>
        log('warn', 'answers that came in elsewhere could not be fetched', { call, error: String(error) }),
      );
    }
    // A step that is running is recorded before its frame goes.
    const dropped = (run: Run) => void run.frame.settled().then(() => this.drop(run));
    this.room = taskRoom(limits);
    this.parked = new Parked(limits, clock, dropped);
  }

  /** A turn that somebody asked for already; with other answers only where no journal decides between them. */
  known(key: string, sent: string): Active | undefined {
    const active = this.#active.get(key);
    const other = this.#parts.store === undefined ? active?.values().next().value : undefined;
    return active?.get(sent) ?? this.#recent.get(key) ?? other;
  }

  begin(key: string, active: Active): void {
    const turns = this.#active.get(key) ?? new Map<string, Active>();
    this.#active.set(key, turns.set(active.sent, active));
  }

  over(key: string, sent: string): void {
    const turns = this.#active.get(key);
    turns?.delete(sent);
    if (turns?.size === 0) this.#active.delete(key);
  }

  /** Whether a turn with this token would find its frame here. */
  has(key: string): boolean {
    const isParked = this.parked.get(key)?.frame.over === false;
    return isParked || this.#active.has(key) || this.#unsettled.has(key);
  }

  async settled(key: string): Promise<void> {
    for (let wait = this.#unsettled.get(key); wait !== undefined; wait = this.#unsettled.get(key)) await wait;
  }

  /** @returns how to let in whoever waits for this frame */
  unsettle(key: string): () => void {
    let settle = (): void => {};
    const wait = new Promise<void>((resolve) => {
      settle = resolve;
    });
    this.#unsettled.set(key, wait);
    return () => {
      if (this.#unsettled.get(key) === wait) this.#unsettled.delete(key);
      settle();
    };
  }

  /** The run that waits for this token; one whose frame can be entered no more makes room for a replay. */
  takeParked(key: string): Run | undefined {
    const run = this.parked.take(key);
    if (run === undefined || !run.frame.over) return run;
    this.drop(run);
    return undefined;
  }

  park(key: string, run: Run): void {
    const { principal } = run.call;
    this.parked.park(key, run, {
      ...(principal !== undefined && { caller: principal }),
      bytes: run.bytes ?? 0,
    });
  }

  get closed(): boolean {
    return this.#closed;
  }

  /**
   * Takes nothing new on, gives what is running some time, and puts down what is not done then: its clients are
   * told to send the same request again, and whoever gets it need not wait for a lease.
   *
   * @param wait milliseconds
   */
  async close(wait: number): Promise<void> {
    this.#closed = true;
    const { clock } = this.#parts;
    if (this.#stops.size > 0) {
      await within(
        clock,
        wait,
        new Promise((resolve) => {
          this.#onQuiet = () => resolve(undefined);
        }),
      );
    }
    for (const stop of [...this.#stops.values()]) stop();
    await within(clock, wait, Promise.all(this.#unsettled.values()));
    // A step that outlasts this is recorded still, if the process lives to; its server is cleaned up now.
    for (const run of this.#puttingDown) run.instance.release(true);
    this.parked.dropAll();
  }

  // --- a turn ----------------------------------------------------------------------------------------

  turn(
    run: Run,
    leg: Leg,
    begin: boolean,
    extra: { responses?: unknown; request?: Resume },
  ): Promise<Outcome> {
    const { request } = extra;
    const { room } = this;
    return new Promise((resolve, reject) => {
      run.entered = true;
      leg.begun?.((reason) => this.cancel(run, reason));
      run.gone = () => resolve({ kind: 'gone' });
      if (request !== undefined || run.isResumable || run.detached) this.#keepAlive(run);
      if (run.isResumable || run.detached) this.#loose.set(run.call.id, run);
      if (run.detached) this.room.hold(run, takerOf(run, leg));
      countActiveTurns(1);
      const stop = (): void => {
        const closing = (): void => resolve(failedWith(new AwaitError('closed', 'this handler was closed')));
        if (run.detached || run.detaching !== undefined) {
          this.#putDownLoose(run);
          // Its client is told of the task, if it becomes one.
          void run.detaching?.catch(closing);
          return;
        }
        if (request !== undefined) this.leave(run, request);
        else if (run.isResumable) this.#putDownLoose(run);
        else this.drop(run);
        closing();
      };
      this.#stops.set(run, stop);
      let late: Timer | undefined;
      const end = (ending: Ending): void => {
        late?.cancel();
        this.#turnOver(run);
        this.#ended(run, ending, leg, request).then(resolve, (error: unknown) => {
          // Nobody waits for a task's turn.
          if (run.detached) this.failed(run.call.id, AwaitError.from(error));
          reject(error);
        });
      };
      const isTask = (): void => resolve({ kind: 'task', taskId: run.call.id });
      const detach = this.#detachOf(run, leg, isTask);
      const turn: Turn = {
        get live() {
          return leg.live || run.detached === true;
        },
        get detach() {
          return run.detached || !room.has(takerOf(run, leg)) ? undefined : detach;
        },
        ...(leg.sheds !== undefined && { sheds: leg.sheds }),
        ...(leg.refuses !== undefined && { mustRefuse: leg.refuses }),
        missing: (method, params) => missingCapability(leg.capabilities, method, params),
        unfit: (method, params) => uncheckable(method, params, this.#parts.check),
        given: (ask) => this.#given(ask, extra.responses, end),
        ask: (ask) => {
          run.asked ??= new Set();
          if (!run.asked.has(ask.key)) leg.ask?.(ask);
          run.asked.add(ask.key);
          if (run.isResumable || run.detached) this.#expect(run, ask.key);
        },
        withdraw: (ask) => leg.withdraw?.(ask),
        notify: (notification) => leg.notify(notification),
        isInterim: (response) => !leg.live && urlsNeeded(response) !== undefined,
        end,
      };
      if (!begin) run.instance.refresh(run.frame, leg);
      run.frame.enter(turn);
      if (begin) {
        const { method, params, requestId } = run.call;
        run.instance.call(run.frame, { method, params, id: requestId }, leg);
      }
      if (run.detached) isTask();
      else if (detach !== undefined) {
        late = this.#parts.clock.after(run.call.task?.after ?? 0, () => run.frame.detach()).unref();
      }
    });
  }

  #detachOf(run: Run, leg: Leg, isTask: () => void): Detach | undefined {
    const task = wishOf(run, leg);
    if (task === undefined || this.#parts.store === undefined) return undefined;
    return {
      atStep: task.when === 'after-asks',
      lastTurn: task.rounds,
      run: async () => {
        await this.#detach(run, leg);
        isTask();
      },
    };
  }

  /** Whatever ends the turn meanwhile waits for what comes of it. */
  #detach(run: Run, leg: Leg): Promise<void> {
    if (run.detaching !== undefined) return run.detaching;
    this.room.hold(run, takerOf(run, leg));
    run.detaching = this.#writeDetached(run).catch((error: unknown) => {
      delete run.detaching;
      this.room.leave(run);
      throw error;
    });
    return run.detaching;
  }

  async #writeDetached(run: Run): Promise<void> {
    const by = this.#handoff?.listening ? { by: this.#handoff.name } : {};
    await run.journal.append({ type: 'detached', when: this.#parts.clock.now(), ...by });
    run.detached = true;
    if (run.over) return;
    run.journal.count(run.frame.fold());
    this.#loose.set(run.call.id, run);
    this.#keepAlive(run);
    await this.#parts.began?.(run.call);
  }

  #given(ask: OpenAsk, responses: unknown, end: (ending: Ending) => void): Response | undefined {
    if (!isObject(responses) || !Object.hasOwn(responses, ask.key)) return undefined;
    try {
      return checkGiven(ask, responses[ask.key], this.#parts.check);
    } catch (error) {
      end({ kind: 'broken', error: AwaitError.from(error) });
      return undefined;
    }
  }

  async #ended(run: Run, ending: Ending, leg: Leg, request: Resume | undefined): Promise<Outcome> {
    switch (ending.kind) {
      case 'finished': {
        // Its client may be told of a task already.
        if (!run.detached) await run.detaching?.catch(() => {});
        if (run.over) return { kind: 'gone' };
        if (!run.detached && wishOf(run, leg)?.always) return this.#finishedAsTask(run, ending, request, leg);
        if (run.detached) return this.#finishTask(run, ending.response, leg);
        if (request !== undefined && !isWritable(ending.response)) {
          this.#endRun(run, false);
          return this.endWith(run.journal, { error: INTERNAL });
        }
        const urls = leg.live ? undefined : urlsNeeded(ending.response);
        if (urls !== undefined) return this.#rerunAfter(run, urls, leg);
        return this.#finished(run, leg.live ? ending.response : withoutUrls(ending.response), request);
      }
      case 'suspended':
        return this.#orLeft(run, request, async () => {
          const outcome = ending.isShed
            ? await this.#giveUp(run, ending.checkpoint)
            : await this.#suspend(run, ending.checkpoint);
          if (request !== undefined) this.#remember(request, outcome);
          return outcome;
        });
      case 'refused':
        this.#endRun(run, true);
        return refused(ending.required, ending.method);
      case 'lost':
        return this.#runAgain(run, ending, leg, request);
      case 'broken':
        this.#endRun(run, true);
        // What a store failed to keep may be tried again from what it kept; all else is the end of the call.
        if (ending.error.code !== 'store' && ending.error.code !== 'fenced') {
          await this.#endFailed(run, ending.error);
        }
        if (ending.error.code === 'fenced' && (await this.#wasCancelled(run))) return { kind: 'gone' };
        throw ending.error;
    }
  }

  /** The server that ran the tool is gone: a new frame is led through what is recorded, where that may be. */
  #runAgain(
    run: Run,
    { error, isMeant }: Extract<Ending, { kind: 'lost' }>,
    leg: Leg,
    request: Resume | undefined,
  ): Promise<Outcome> {
    if (run.over) return Promise.resolve({ kind: 'gone' });
    const { replay, limits, frame: options, log } = this.#parts;
    const before = after(run.frame);
    const recorded = before.completions.length;
    const times = run.lost?.recorded === recorded ? run.lost.times : 0;
    const refusal =
      replay(run.call, before.completions) === 'never'
        ? replayRefused(before)
        : !isMeant && times >= limits.reruns
          ? error
          : undefined;
    if (refusal !== undefined) return this.#ended(run, { kind: 'broken', error: refusal }, leg, request);
    log('debug', 'a call is run again, since its server is gone', {
      call: run.call.id,
      reason: error.message,
    });
    run.lost = { times: isMeant ? times : times + 1, recorded };
    this.#parts.count('replayed');
    run.frame = new Frame(run.call, run.journal, options, before);
    return this.turn(run, leg, true, { ...(request !== undefined && { request }) });
  }

  /** The call ends with an error, if others can know of it. */
  async #endFailed(run: Run, error: AwaitError): Promise<void> {
    if (run.journal.position >= 0) await this.endWith(run.journal, { error: wireError(error) });
  }

  /** Its client is to have a task, although the call is over. */
  async #finishedAsTask(
    run: Run,
    { response }: Extract<Ending, { kind: 'finished' }>,
    request: Resume | undefined,
    leg: Leg,
  ): Promise<Outcome> {
    const become = async (): Promise<Outcome> => {
      await this.#detach(run, leg);
      return { kind: 'task', taskId: run.call.id };
    };
    const outcome = await this.#orLeft(run, request, become, response);
    // If its end cannot be written it is taken up, as any task is.
    await this.#finishTask(run, response, leg).catch((error: unknown) =>
      this.failed(run.call.id, AwaitError.from(error)),
    );
    return outcome;
  }

  async #finishTask(run: Run, response: Response, leg: Leg): Promise<Outcome> {
    const after = afterTask(this.#parts, run, response, leg);
    this.#endRun(run, false);
    if ('frame' in after) {
      const outcome = this.turn(after, leg, true, {});
      if (this.#closed) this.#putDownLoose(after);
      return outcome;
    }
    const outcome = await this.endWith(run.journal, isWritable(after) ? after : { error: INTERNAL });
    this.#retire(run);
    return outcome;
  }

  async #finished(run: Run, response: Response, request: Resume | undefined): Promise<Outcome> {
    if (request === undefined) {
      this.#endRun(run, false);
      // Nobody holds a token for this call yet, so nobody can ask for its outcome but who follows it.
      return run.isResumable ? this.endWith(run.journal, response) : { kind: 'responded', response };
    }
    return this.#orLeft(
      run,
      request,
      async () => {
        const outcome = await this.endWith(run.journal, response);
        this.#endRun(run, false);
        this.#remember(request, outcome);
        this.#retire(run);
        return outcome;
      },
      response,
    );
  }

  /** When the end of a turn cannot be written, the run waits here for the same request to come again. */
  async #orLeft(
    run: Run,
    request: Resume | undefined,
    write: () => Promise<Outcome>,
    response?: Response,
  ): Promise<Outcome> {
    try {
      return await write();
    } catch (error) {
      const failure = AwaitError.from(error, 'store');
      if (failure.code === 'store' && request !== undefined) {
        if (response !== undefined) run.frame.hold(response);
        run.left = request.sent;
        this.park(keyOf(request.state), run);
      } else {
        this.#endRun(run, response === undefined);
        // A call that has become too large is over: its tool would only be run again, and come to the same.
        if (failure.code === 'limit') await this.#endFailed(run, failure);
      }
      throw failure;
    }
  }

  /** The answers that came were of no use: the asks go out again, with what the frame did meanwhile. */
  askAgain(run: Run, request: Resume): Promise<Outcome> {
    return this.#orLeft(run, request, async () => {
      await run.frame.written();
      return this.#suspend(run, run.frame.refold());
    });
  }

  async #suspend(run: Run, checkpoint: Checkpoint): Promise<Outcome> {
    const size = JSON.stringify(checkpoint).length;
    if (size > this.#parts.limits.journalBytes) {
      throw new AwaitError(
        'limit',
        `the journal of call ${run.call.id} takes ${size} bytes; return less from its steps, or raise limits.journalBytes`,
      );
    }
    const by = !this.#closed && this.#handoff?.listening ? this.#handoff.name : undefined;
    await run.journal.append({ type: 'suspended', checkpoint, ...(by !== undefined && { by }) });
    // Its turn is over, and a step of it may run on for longer than a lease.
    if (run.frame.busy) this.#keepAlive(run);
    const state = this.#stateOf(checkpoint, run.journal.position, by);
    const outcome = await this.#seal(state, checkpoint, run.binding);
    if (!this.#closed && !run.over) {
      run.checkpoint = checkpoint;
      run.bytes = size;
      this.park(keyOf(state), run);
    }
    return outcome;
  }

  async #giveUp(run: Run, checkpoint: Checkpoint): Promise<Outcome> {
    const outcome = await this.suspendWithout(run.journal, checkpoint, run.binding);
    this.#endRun(run, true);
    this.#parts.count('shed');
    return outcome;
  }

  /** Writes a checkpoint that no frame waits at. */
  async suspendWithout(journal: OpenJournal, checkpoint: Checkpoint, binding: Binding): Promise<Outcome> {
    await journal.append({ type: 'suspended', checkpoint });
    return this.tokenFor(checkpoint, journal.position, binding);
  }

  /** @param by the process that keeps the frame */
  tokenFor(checkpoint: Checkpoint, at: number, binding: Binding, by?: string): Promise<OpenAskOutcome> {
    return this.#seal(this.#stateOf(checkpoint, at, by), checkpoint, binding);
  }

  #stateOf(checkpoint: Checkpoint, at: number, by: string | undefined): State {
    return {
      callId: checkpoint.call.id,
      at,
      ...(this.#parts.carry && { checkpoint, mark: randomUUID() }),
      ...(by !== undefined && { owner: by }),
    };
  }

  async #seal(state: State, checkpoint: Checkpoint, binding: Binding): Promise<OpenAskOutcome> {
    const token = await this.#parts.tokens.seal(state, binding, checkpoint.call.expires);
    return { kind: 'suspended', asks: checkpoint.open, token };
  }

  async endWith(journal: OpenJournal, response: Response): Promise<Outcome> {
    await journal.append({ type: 'ended', response, when: this.#parts.clock.now() });
    return { kind: 'responded', response };
  }

  /** A thrown -32042 becomes the URL asks that it names; the tool is run again when they are answered. */
  async #rerunAfter(run: Run, urls: readonly JsonObject[], leg: Leg): Promise<Outcome> {
    this.#endRun(run, false);
    const before = run.frame.fold();
    if (rerunsOf(before) >= this.#parts.limits.reruns * urls.length) {
      return this.endWith(run.journal, stillNeeded(run.call, urls));
    }
    const required = missingCapability(leg.capabilities, 'elicitation/create', { mode: 'url' });
    if (required !== undefined) return refused(required, 'elicitation/create');
    return this.suspendWithout(run.journal, askUrls(before, urls), run.binding);
  }

  // --- answers ---------------------------------------------------------------------------------------

  /** An answer to an ask that went out live; false when none of this key waits. */
  async answer(run: Run, key: string, response: Delivered): Promise<boolean> {
    try {
      return await takeAnswer(run, key, response, this.#parts.clock.now());
    } catch (error) {
      this.#lose(run, error);
      throw error;
    }
  }

  /** As `answer`; false also when the call is another process's by now. */
  answered(run: Run, key: string, response: Delivered): Promise<boolean> {
    return unlessFenced(this.answer(run, key, response));
  }

  /** Something happened at another process: an answer came in, or it was cancelled. */
  wake(callId: string): void {
    this.inbox?.wake(callId);
    const run = this.#loose.get(callId);
    if (run !== undefined) void this.#look(run);
  }

  /** What goes on here without its request. */
  loose(callId: string): Run | undefined {
    return this.#loose.get(callId);
  }

  #expect(run: Run, key: string): void {
    this.inbox?.expect(
      {
        callId: run.call.id,
        waits: (waiting) => !run.over && run.frame.openAsk(waiting) !== undefined,
        answer: async (answered, response) => void (await this.answer(run, answered, response)),
      },
      key,
    );
  }

  // --- the ends of a run -----------------------------------------------------------------------------

  leave(run: Run, request: Resume): void {
    if (run.over || !run.frame.entered || run.detached || run.detaching !== undefined) return;
    const key = keyOf(request.state);
    run.frame.leave();
    this.#turnOver(run);
    this.over(key, request.sent);
    void this.#putDown(run, request).finally(this.unsettle(key));
  }

  /** What is running comes to its end and into the journal; then anybody may go on. */
  async #putDown(run: Run, request: Resume): Promise<void> {
    run.left = request.sent;
    this.#puttingDown.add(run);
    await run.frame.settled();
    try {
      await run.journal.append({ type: 'left' });
      if (run.frame.over || this.#closed) this.drop(run);
      else this.park(keyOf(request.state), run);
    } catch (error) {
      this.#parts.log('warn', 'a turn that its client left could not be put down', {
        call: run.call.id,
        error: String(error),
      });
      this.drop(run);
    } finally {
      this.#puttingDown.delete(run);
    }
  }

  cancel(run: Run, reason?: string): void {
    void this.cancelled(run, reason).catch(() => {});
  }

  /** Resolves once nobody can take up what its client does not want. */
  async cancelled(run: Run, reason?: string): Promise<void> {
    if (run.over) return;
    run.instance.cancel(run.frame, reason);
    run.frame.drop('over');
    this.#endRun(run, true);
    run.gone?.();
    await run.detaching?.catch(() => {});
    if (run.isResumable || run.detached)
      await run.journal.append({ type: 'cancelled', when: this.#parts.clock.now() });
  }

  /** As `cancelled`; false when the call is another process's by now, or was over before. */
  isCancelled(run: Run, reason: string): Promise<boolean> {
    return unlessFenced(this.cancelled(run, reason).then(() => true));
  }

  /** Whether the next entry of its journal is another process's: then its tool is told, if it was cancelled. */
  async #look(run: Run): Promise<void> {
    const { store, log } = this.#parts;
    try {
      const next = run.over ? undefined : await store?.read(run.call.id, run.journal.position + 1);
      if (next?.type === 'cancelled') this.#stop(run);
    } catch (error) {
      log('warn', 'a journal could not be looked at', { call: run.call.id, error: String(error) });
    }
  }

  /** It lost its place to somebody: a cancel is told to the tool, by its signal. */
  async #wasCancelled(run: Run): Promise<boolean> {
    const next = await this.#parts.store?.read(run.call.id, run.journal.position + 1);
    if (next?.type !== 'cancelled') return false;
    run.instance.cancel(run.frame, WAS_CANCELLED);
    return true;
  }

  #stop(run: Run): void {
    run.instance.cancel(run.frame, WAS_CANCELLED);
    run.frame.drop('over');
    this.#endRun(run, true);
    run.gone?.();
  }

  /** This process goes away: others need not wait for its lease. */
  #putDownLoose(run: Run): void {
    const { id } = run.call;
    run.frame.leave();
    this.#puttingDown.add(run);
    // What is running comes to its end and into the journal; then anybody may go on.
    const settled = run.frame.settled().then(() => run.journal.append({ type: 'left' }));
    const left = settled.catch((error: unknown) => {
      this.#parts.log('warn', 'a call could not be put down', { call: id, error: String(error) });
    });
    this.#unsettled.set(id, left);
    void left.then(() => {
      this.#unsettled.delete(id);
      this.#puttingDown.delete(run);
      this.drop(run);
    });
  }

  /**
   * The owner of a turn shows that it is alive, also while a step runs beside the asks that are out. A turn
   * that is short writes nothing.
   */
  #keepAlive(run: Run): void {
    const { store, clock, limits, log } = this.#parts;
    if (store === undefined || run.beating !== undefined) return;
    let count = 0;
    run.beating = every(clock, limits.lease / 3, () => {
      if (run.entered === undefined && !run.frame.busy) {
        run.beating?.cancel();
        delete run.beating;
        return;
      }
      count += 1;
      if (run.detached && clock.now() > run.call.expires) {
        this.#stop(run);
        return;
      }
      if (run.detached || run.isResumable) void this.#look(run);
      if (run.entered && run.journal.lapsed) {
        void this.#hold(run);
        return;
      }
      run.journal.beat(`${run.journal.position}.${count}`).catch((error: unknown) => {
        log('warn', 'a sign of life could not be written', { call: run.call.id, error: String(error) });
      });
    });
  }

  /** It was silent for so long that somebody may have taken it up: that is settled before it is heard again. */
  async #hold(run: Run): Promise<void> {
    if (run.holding) return;
    run.holding = true;
    try {
      await run.journal.append({ type: 'held' });
    } catch (error) {
      this.#lose(run, error);
    } finally {
      delete run.holding;
    }
  }

  /** Ends its turn here where it is another process's, or too large. */
  #lose(run: Run, error: unknown): void {
    const failure = AwaitError.from(error, 'store');
    if (failure.code === 'fenced' || failure.code === 'limit') run.frame.break(failure);
  }

  #turnOver(run: Run): void {
    if (run.entered) countActiveTurns(-1);
    delete run.entered;
    if (this.#loose.get(run.call.id) === run) this.#loose.delete(run.call.id);
    this.room.leave(run);
    this.#stops.delete(run);
    if (this.#stops.size === 0) this.#onQuiet?.();
  }

  drop(run: Run): void {
    if (run.over) return;
    run.over = true;
    this.#turnOver(run);
    if (this.#parts.onDrop === 'unwind') {
      run.frame.unwind({
        code: -32000,
        message: 'This call goes on elsewhere, or is over; nothing that happens here counts any more.',
      });
    } else {
      run.frame.drop();
    }
    run.instance.release(true);
  }

  #endRun(run: Run, unfinished: boolean): void {
    if (run.over) return;
    run.over = true;
    this.#turnOver(run);
    if (unfinished) run.frame.drop();
    run.instance.release(unfinished);
  }

  /** In memory the outcomes of finished calls would pile up for as long as calls live. */
  #retire(run: Run): void {
    const { store, limits } = this.#parts;
    if (store?.forget === undefined) return;
    this.#finishedCalls.push({ call: run.call, at: run.journal.position });
    if (this.#finishedCalls.length <= limits.outcomes) return;
    const oldest = this.#finishedCalls.shift();
    if (oldest !== undefined) store.forget(oldest.call, oldest.at);
  }

  #remember(request: Resume, outcome: Outcome): void {
    if (this.#parts.store !== undefined) return;
    this.#recent.set(keyOf(request.state), {
      sent: request.sent,
      outcome: Promise.resolve(outcome),
      waiters: 0,
    });
    keepNewest(this.#recent, this.#parts.limits.outcomes);
  }

  /** Says what is wrong: to the logger all of it, to the client a frozen sentence. */
  failed(callId: string | undefined, error: AwaitError): Outcome {
    const level = error.code === 'bad-token' || error.code === 'bad-answer' ? 'warn' : 'error';
    this.#parts.log(level, error.message, {
      code: error.code,
      ...(callId !== undefined && { call: callId }),
      ...(error.cause !== undefined && { cause: String(error.cause) }),
    });
    return failedWith(error);
  }
}
