/**
 * A frame: one attempt to run a call's tool, from the first request or by replay.
 * It owns its tool's attempts, and acts only while a turn is entered: that is the gate (invariant 2). Between turns,
 * attempts, notifications and the result wait; once the turn is claimed elsewhere they wait for ever. Invariants 1, 2,
 * 3, 6, 8 and 11 are kept here. `recording.ts` matches attempts to records; the engine decides who enters a turn, and
 * writes its end.
 */
import { AwaitError, type JsonObject } from '../../base/values.ts';
import {
  type AnswerCompletion,
  type CallRecord,
  type Checkpoint,
  type Completion,
  FORMAT,
  type Journal,
  type OpenAsk,
  type Response,
} from '../journal/entries.ts';
import { LIMITS } from '../limits.ts';
import { askAttempt } from './asks.ts';
import { type CallContext, runOutsideContext } from './context.ts';
import type { FrameCore } from './core.ts';
import { Drawn, isOnce, isShed } from './drawn.ts';
import { diverged } from './drift.ts';
import { Gate } from './gate.ts';
import { OpenAsks } from './open-asks.ts';
import { type Question, questionOf } from './place.ts';
import {
  type Attempt,
  isInside,
  isStep,
  type Recorded,
  Recording,
  release,
  type StepAttempt,
} from './recording.ts';
import { Rounds } from './rounds.ts';
import { StepRunner } from './step-runner.ts';
import { RunningSteps, stepAfterEnd } from './steps.ts';
import {
  type AskOptions,
  CLIENT_ROUNDS,
  type Ending,
  type FrameOptions,
  type ReplayFrom,
  type Turn,
} from './turn.ts';
import { AskDelay, Patience, type Unsent, UnsentAsks } from './waits.ts';

export class Frame {
  readonly call: CallRecord;
  readonly context: CallContext;
  readonly journal: Journal;
  readonly options: FrameOptions;
  readonly #core: FrameCore;
  readonly #gate: Gate;
  readonly #recording: Recording;
  readonly #steps: RunningSteps;
  readonly #runner: StepRunner;
  readonly #asks: OpenAsks;
  readonly #drawn: Drawn;
  readonly #rounds: Rounds;
  /** Attempts that are matched with nothing yet. */
  readonly #fresh = new Set<Attempt>();
  readonly #unsent: UnsentAsks;
  readonly #delay: AskDelay;
  readonly #patience: Patience;
  /** Whether the frame looks in the next turn of the event loop. */
  #scheduled = false;
  /** What the call has recorded before this frame. */
  readonly past: readonly Completion[];
  /** See `Recording`. */
  readonly memory = (): number => this.#recording.memory;

  constructor(call: CallRecord, journal: Journal, options: FrameOptions, from?: ReplayFrom) {
    const completions = from?.completions ?? [];
    this.call = call;
    this.past = completions;
    this.journal = journal;
    this.options = options;
    this.#gate = new Gate(options.maxHeldNotifications);
    this.#unsent = new UnsentAsks(options, () => this.#unsentAsks());
    this.#delay = new AskDelay(options.clock, options.askDelay, () => this.#poke());
    this.#patience = new Patience(options.clock, options.replayGrace, () => this.#poke());
    this.#recording = new Recording(completions, from?.open ?? [], from?.fresh ?? 0);
    this.#rounds = new Rounds(completions, from?.isPast);
    this.#recording.pass(from?.isPast ? Infinity : this.#rounds.past);
    this.#steps = new RunningSteps(call.id, this.#rounds.names, (name) =>
      this.#gate.isOver ? stepAfterEnd(name, call) : undefined,
    );
    this.#drawn = new Drawn(from?.drawn ?? {}, completions, options.maxDrawnBytes ?? LIMITS.journalBytes);
    const attempt = (made: Attempt): void => this.#attempt(made);
    this.#core = {
      call,
      journal,
      options,
      recording: this.#recording,
      gate: this.#gate,
      fresh: this.#fresh,
      turns: from?.turn ?? 0,
      attempt,
      end: (ending) => this.#end(ending),
      stir: () => this.#stir(),
    };
    this.#runner = new StepRunner(this.#core, this.#steps, this.#drawn);
    this.#asks = new OpenAsks(this.#core, from?.asked ?? 0, () => this.#runner.isBusy);
    this.context = {
      ...this.#steps.context(this, undefined, attempt),
      shed: async () =>
        this.#gate.isOver
          ? undefined
          : this.#steps.once(this, this.#rounds.nextShed(), async () => {}, attempt),
      draw: (place, fresh) => (this.over ? fresh() : this.#drawn.draw(this.#rounds.placeOf(place), fresh)),
      once: (place, fn) =>
        this.#gate.isFinished
          ? fn()
          : this.#steps.once(this, this.#drawn.pathOf(this.#rounds.placeOf(place)), fn, attempt),
    };
  }

  /** The asks that the tool's last round returned, if the call continues from there. */
  get lastRound(): JsonObject | undefined {
    return this.#rounds.last;
  }

  /**
   * The tool returned its asks instead of awaiting them. Resolves once that is in the journal: a replay begins here,
   * and runs no earlier round again.
   */
  endRound(needs: JsonObject): Promise<JsonObject> {
    return this.#steps.once(this, this.#rounds.next(), async () => needs, this.#core.attempt);
  }

  /** Whether this frame can be entered no more. */
  get over(): boolean {
    return this.#gate.isEnded;
  }

  /** Whether a turn is entered. */
  get entered(): boolean {
    return this.#gate.turn !== undefined;
  }

  /** Whether its asks go out at once, and its turn stays. */
  get isLive(): boolean {
    return this.#gate.turn?.live === true;
  }

  /** Opens the gate: the turn is claimed here. */
  enter(turn: Turn): void {
    const { notifications, response } = this.#gate.enter(turn);
    for (const notification of notifications) turn.notify(notification);
    if (response !== undefined) this.finish(response);
    this.#stir();
  }

  /** Closes the gate without an ending: no request waits for this turn any longer. */
  leave(): void {
    this.#gate.close();
    if (this.#fresh.size === 0) this.#unsent.stop();
    this.#delay.stop();
    this.#patience.stop();
  }

  /** Cuts the frame off; its tool's awaits never settle. */
  drop(why: 'over' | 'elsewhere' = 'elsewhere'): void {
    this.leave();
    this.#gate.end(why, this.busy);
    this.#unsent.stop();
    this.#steps.abandon();
    this.#fresh.clear();
    this.#asks.clear();
    this.#recording.clear();
  }

  /** As `drop`, and then rejects the tool's awaits, for tools whose `finally` must run. */
  unwind(error: { code: number; message: string }): void {
    const attempts = [...this.#asks.attempts, ...this.#fresh, ...this.#recording.attempts];
    this.drop();
    for (const attempt of attempts) {
      if (attempt.kind === 'ask') attempt.settle({ error });
      else attempt.settle({ error: { name: 'Error', message: error.message } });
    }
  }

  /** Makes the call continue without its request, if it may: from here on its asks are live. */
  detach(): void {
    const { turn } = this.#gate;
    if (turn?.detach === undefined || turn.isDetaching) return;
    const isLive = (): void => {
      if (this.#gate.turn !== turn) return;
      this.#asks.sendAll(turn);
      this.#stir();
    };
    const fail = (error: unknown): void =>
      this.#end({ kind: 'broken', error: AwaitError.from(error, 'store') });
    void turn.detach.run().then(isLive, fail);
  }

  /** Ends the turn that is entered for a reason from outside of it. */
  break(error: AwaitError): void {
    if (this.#gate.turn !== undefined) this.#end({ kind: 'broken', error });
  }

  /** The server that ran the tool has ended; a parked frame is dropped, and its call replayed. */
  lose(error: AwaitError, isMeant: boolean): void {
    if (this.#gate.turn !== undefined) this.#end({ kind: 'lost', error, isMeant });
    else if (!this.over) this.drop();
  }

  /** Whether more than an answer waits for the next turn: what its tool, or a step, did since the last one. */
  get isReady(): boolean {
    return this.#fresh.size > 0 || this.#gate.isHolding || this.#recording.next() !== undefined;
  }

  /** See `Recording`. */
  get isUnreached(): boolean {
    return this.#recording.isUnreached;
  }

  /** Whether a step is running. */
  get busy(): boolean {
    return this.#steps.running.length > 0;
  }

  /** Resolves once no step is running. */
  settled(): Promise<void> {
    return this.#steps.settled();
  }

  /** An answer that is in the journal; it is released in its order there. */
  answer(answer: AnswerCompletion): void {
    if (this.over) return;
    this.#asks.take(answer);
    this.#stir();
  }

  /** Asks that went out before this frame and that it did not make. */
  get unmade(): readonly OpenAsk[] {
    return this.#recording.unmade;
  }

  /** Whether an ask is out. */
  get hasAsks(): boolean {
    return this.#asks.size > 0 || this.unmade.length > 0;
  }

  /** The open ask that a key names, for checking its answer. */
  openAsk(key: string): OpenAsk | undefined {
    return this.#asks.get(key);
  }

  /** See `OpenAsks`, here and below. */
  report(key: string, params: JsonObject): boolean {
    return !this.over && this.#asks.report(key, params);
  }

  rekey(asks: ReadonlyMap<string, OpenAsk>, asked: number): void {
    this.#asks.rekey(asks, asked);
  }

  reask(key: string): Promise<boolean> {
    return this.#asks.reask(key);
  }

  /** The tool asks. The promise settles when the answer is released, and never when the frame is dropped. */
  ask(method: string, params: unknown, options: AskOptions, stepPath?: string): Promise<Response> {
    if (stepPath !== undefined) {
      const why = `step '${stepPath}' asks its user (${method}): a step cannot wait for an answer. Ask before it.`;
      return Promise.reject(new AwaitError('ask-in-step', why));
    }
    if (options.inContext) this.options.asked?.(this, this.call);
    return this.askAs(questionOf(method, params), options);
  }

  /** As `ask`, under a place that the engine chooses. */
  askAs(question: Question, options: AskOptions): Promise<Response> {
    return new Promise((settle) => {
      const attempt = askAttempt(question, this.#recording.made(question), options, settle, () => {
        this.#fresh.delete(attempt);
        if (this.#asks.abandon(attempt)) this.#stir();
      });
      this.#attempt(attempt);
    });
  }

  notify(notification: JsonObject): void {
    if (!this.over && !this.#recording.muted) this.#gate.notify(notification);
  }

  /** The host answered the call's request. */
  finish(response: Response): void {
    if (this.over || this.#gate.interim !== undefined) return;
    const { turn } = this.#gate;
    if (turn === undefined) {
      this.#gate.hold(response);
      return;
    }
    // A step that the tool began and did not await is run and recorded before its call ends.
    const isStarting = this.#lastSteps().length > 0 || this.#runner.isStarting;
    if (isStarting || (this.#runner.isBusy && turn.isInterim(response))) {
      this.#gate.waitWith(response);
      this.#poke();
      return;
    }
    this.#finish(response);
  }

  #finish(response: Response): void {
    if (this.#recording.unconsumedSteps().length > 0) {
      const { left } = this.#recording.describe();
      this.options.warn('the tool finished without the steps its journal records', {
        call: this.call.id,
        left,
      });
    }
    this.#end({ kind: 'finished', response });
    for (const attempt of this.#fresh) {
      if (attempt.kind === 'step' && isOnce(attempt.path)) this.#runner.start(attempt);
    }
  }

  /** Takes a result back behind the gate: it could not be written, and is the next turn's outcome. */
  hold(response: Response): void {
    this.#gate.hold(response);
  }

  /** The journal so far, as one record. */
  fold(): Checkpoint {
    const { running } = this.#steps;
    return {
      format: FORMAT,
      call: this.call,
      turn: this.#core.turns,
      completions: this.#recording.completions,
      open: this.#asks.asks,
      asked: this.#asks.asked,
      ...(running.length > 0 && { running }),
      ...this.#drawn.all(),
    };
  }

  // --- the pump: one thing an event-loop turn ---

  #attempt(attempt: Attempt): void {
    if (this.over) {
      // It waits for ever (invariant 10).
      const what = attempt.kind === 'step' ? { step: attempt.path } : { method: attempt.question.method };
      const message = 'an attempt of a call that is over, or goes on in another process, stays pending';
      this.options.warn(message, { call: this.call.id, ...what });
      return;
    }
    this.#fresh.add(attempt);
    if (this.#gate.turn === undefined) this.#watchUnsent();
    this.#stir();
  }

  /** An ask that goes out in the next turn of the event loop, as most do, needs no timer. */
  #watchUnsent(): void {
    const { turn } = this.#gate;
    const isWaiting = this.#fresh.size > 0 || (turn !== undefined && this.#asks.size > 0);
    if (!this.over && !turn?.live && isWaiting) this.#unsent.watch();
  }

  /** Asks that did not go out within a second. */
  *#unsentAsks(): Generator<Unsent> {
    const { turn } = this.#gate;
    if (turn?.live) return;
    const opened = turn === undefined ? [] : this.#asks.attempts;
    for (const attempt of [...this.#fresh, ...opened]) {
      if (attempt.kind !== 'ask') continue;
      const { inContext, question } = attempt;
      const why =
        turn === undefined ? 'gate' : this.#runner.isBusy ? 'step' : inContext ? 'replay' : 'outside';
      yield { attempt, call: this.call.id, method: question.method, why };
    }
  }

  #stir(): void {
    this.#patience.stir();
    this.#poke();
  }

  #poke(): void {
    if (this.#scheduled || (this.#gate.turn === undefined && !this.busy)) return;
    this.#scheduled = true;
    // From here on this package writes and sends, not the tool.
    runOutsideContext(() =>
      this.options.clock.soon(() => {
        this.#scheduled = false;
        const { turn } = this.#gate;
        if (turn !== undefined) this.#pump(turn);
        else if (this.#runner.goOnInside()) this.#poke();
        this.#watchUnsent();
      }),
    );
  }

  #pump(turn: Turn): void {
    this.#match(turn);
    const next = this.#recording.next();
    const { interim } = this.#gate;
    // The tool is done: its call ends once no step of it is left.
    if (
      interim !== undefined &&
      next === undefined &&
      this.#lastSteps().length === 0 &&
      !this.#runner.isBusy
    ) {
      this.#finish(interim);
      return;
    }
    const head = this.#recording.head();
    if (next !== undefined) {
      release(next);
      this.#stir();
    } else if (head !== undefined) {
      this.#passOver(head, turn);
    } else {
      this.#goOn(turn);
    }
  }

  /** Gives attempts their records. */
  #match(turn: Turn): void {
    for (const attempt of this.#fresh) {
      const claimed = this.#recording.claimExactly(attempt);
      if (claimed === undefined) this.#asks.refuseAgain(attempt, turn);
      if (claimed === undefined) continue;
      this.#fresh.delete(attempt);
      // An ask that is out already keeps its key: the client may be about to answer it.
      if (claimed !== 'recorded' && attempt.kind === 'ask') this.#asks.openAgain(attempt, claimed, turn);
    }
  }

  /** Steps that were begun and not started. */
  #lastSteps(): readonly StepAttempt[] {
    return [...this.#fresh].filter((attempt) => attempt.kind === 'step').filter(({ path }) => !isOnce(path));
  }

  /** The next recorded completion has no attempt. */
  #passOver(head: Recorded, turn: Turn): void {
    const steps = [...this.#fresh].filter((attempt) => attempt.kind === 'step');
    // A step that was cut off is run again, and attempts the steps recorded inside it.
    const outer = steps.find(({ path }) => isInside(head, path));
    if (outer !== undefined) this.#runner.start(outer);
    if (outer !== undefined || this.#isRunningAround(head)) return;
    // With no attempt open the tool is busy with something that is not journaled: it may get there yet.
    const waits = this.#fresh.size > 0 || this.#asks.size > 0 || this.#recording.awaited;
    if (!waits || !this.#patience.gaveUp() || this.#asks.matchChanged(turn)) return;
    const step = steps.find(({ path }) => !isOnce(path));
    if (isStep(head) && step !== undefined) {
      if (this.#patience.gaveUpForGood()) this.#diverge(`the tool attempts step '${step.path}'`);
      return;
    }
    head.state = 'skipped';
    this.#patience.goOn();
    this.#poke();
  }

  #isRunningAround({ completion }: Recorded): boolean {
    return completion.kind === 'step' && this.#runner.isInsideRunning(completion.path);
  }

  /** Nothing recorded is left to release: new steps start, new asks go out, the turn may suspend. */
  #goOn(turn: Turn): void {
    // Steps inside of a running step belong to it, and do not wait.
    this.#runner.startInside();
    const steps = [...this.#fresh].filter((attempt) => attempt.kind === 'step');
    const left = this.#recording.unconsumedSteps().filter((recorded) => !this.#isRunningAround(recorded));
    const named = steps.find(({ path }) => !isOnce(path));
    if (named !== undefined && left.length > 0) {
      if (this.#patience.gaveUpForGood()) this.#diverge(`the tool attempts step '${named.path}'`);
      return;
    }
    if (this.#gate.interim !== undefined) {
      for (const step of steps) this.#runner.start(step);
      return;
    }
    if (turn.isDetaching) return;
    if (named !== undefined && turn.detach?.atStep) {
      this.detach();
      return;
    }
    const asks = [...this.#fresh].filter((attempt) => attempt.kind === 'ask');
    // The turn ends with these, and its steps are in the journal before it does.
    if (this.#runner.isBusy && asks.some((ask) => this.#asks.isRefused(ask, turn))) return;
    const given = steps.filter(({ path }) => isShed(path));
    const { leaving, overloaded } = this.options;
    // A process with too much to do still does one step of each turn, so that the call gets on.
    const mustShed =
      named !== undefined &&
      (leaving?.() === true || (this.#gate.stepsInTurn > 0 && overloaded?.() === true));
    if ((given.length > 0 || mustShed) && this.giveUp(given)) return;
    for (const step of steps) if (!given.includes(step)) this.#runner.start(step);
    if (asks.some((ask) => this.#recording.mayStandFor(ask))) {
      if (!this.#patience.gaveUp() || this.#asks.matchChanged(turn)) return;
    }
    for (const ask of asks) {
      if (this.#gate.turn === turn && this.#fresh.has(ask)) this.#asks.open(ask, turn);
    }
    if (this.#gate.turn !== turn) return;
    if (turn.live) this.#withdrawUnmade(turn);
    else this.#maySuspend();
  }

  /** Withdraws asks that went out before a takeover and that the tool no longer makes (after an upgrade). */
  #withdrawUnmade(turn: Turn): void {
    if (!this.#recording.unmade.some(({ withdrawn }) => !withdrawn)) return;
    // With nothing open the tool waits for something unrecorded, and may still make its asks.
    if ((this.#asks.size === 0 && !this.busy) || !this.#patience.gaveUp()) return;
    for (const ask of this.#recording.withdrawUnmade()) this.#asks.withdraw(ask, turn);
  }

  /** Ends the turn without an ask, so that the call continues elsewhere; false if its client cannot bring it there. */
  giveUp(given: readonly StepAttempt[] = []): boolean {
    const { turn } = this.#gate;
    if (turn === undefined || turn.isDetaching) return false;
    const mayDetach = this.#isLastTurn(turn);
    // Its client gives up after ten rounds, so a call is not shed in its last ones: they are left for asks.
    const isKept = turn.live || !turn.sheds || (!mayDetach && this.#core.turns + 1 >= CLIENT_ROUNDS);
    // A running step ends first, and calls this again.
    if (!isKept && this.#runner.isBusy) return true;
    // The call continues as a task instead, so nothing is given up.
    if (!isKept && mayDetach) {
      this.detach();
      return true;
    }
    for (const step of given) {
      this.#fresh.delete(step);
      if (!turn.live) this.#recording.addDone({ kind: 'step', path: step.path, outcome: {} });
      if (isKept) step.settle({});
    }
    if (!isKept) this.#suspend(true);
    return !isKept;
  }

  /** Whether the call continues as a task instead of ending this turn without an outcome. */
  #isLastTurn({ detach }: Turn): boolean {
    return detach !== undefined && this.#core.turns + 1 >= detach.lastTurn;
  }

  #maySuspend(): void {
    if (!this.#asks.attempts.some(({ inContext }) => inContext)) return;
    // A step's entry that is being written comes before the checkpoint, so it must be in it.
    if (this.#runner.isWriting) return;
    if (this.busy) {
      if (this.#delay.isOver()) this.#suspend();
    } else if (this.#patience.idle()) {
      this.#suspend();
    }
  }

  #suspend(isShed = false): void {
    const { turn } = this.#gate;
    if (turn === undefined) return;
    if (this.#drawn.isFull) {
      const why = `call ${this.call.id} drew more from Date, Math.random and randomUUID than its journal may hold; draw less, or inside of a step, or raise limits.journalBytes`;
      this.#end({ kind: 'broken', error: new AwaitError('limit', why) });
      return;
    }
    if (this.#isLastTurn(turn)) {
      this.detach();
      return;
    }
    this.#core.turns += 1;
    this.#drawn.takeUnwritten();
    this.#end({ kind: 'suspended', checkpoint: this.fold(), ...(isShed && { isShed }) });
  }

  #end(ending: Ending): void {
    const { turn } = this.#gate;
    if (ending.kind !== 'suspended') {
      const code = ending.kind === 'broken' && ending.error.code;
      const isLost = code === 'fenced';
      // After the others the call continues elsewhere, or may be tried again.
      const isOver = code && !isLost && code !== 'store';
      this.#gate.end(ending.kind === 'finished' ? 'finished' : isOver ? 'over' : 'elsewhere', isLost);
      this.#steps.abandon();
    }
    this.leave();
    turn?.end(ending);
  }

  #diverge(attempted: string): void {
    this.#end({ kind: 'broken', error: diverged(this.call.id, attempted, this.#recording.describe()) });
  }
}
