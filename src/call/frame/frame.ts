/**
 * A frame: one attempt to run a call's tool, from the first leg or led through the journal.
 *
 * It owns what its tool attempts, and acts only while a turn is entered: that is the gate (invariant 2). In
 * between, attempts, notifications and the result wait; once the turn is claimed elsewhere they wait for
 * ever. Invariants 1, 2, 3, 6, 8 and 11 live here; what is recorded, and whose it is, in `recording.ts`; who
 * may enter a turn, and what is written when it ends, is the engine's business.
 */
import { AwaitError } from '../../base/error.ts';
import type { JsonObject } from '../../base/json.ts';
import {
  type AnswerCompletion,
  answerTo,
  type CallRecord,
  type Checkpoint,
  FORMAT,
  type Journal,
  type OpenAsk,
  type Response,
  type StepCompletion,
  timedOut,
} from '../journal/entries.ts';
import { isFenced } from '../journal/writer.ts';
import { DEFAULT_LIMITS } from '../limits.ts';
import { askAttempt, askInStep, openAskOf } from './asks.ts';
import { type CallContext, runOutsideContext } from './context.ts';
import { Drawn, drewTooMuch, isOnce, isShed, SHED } from './drawn.ts';
import { diverged, driftOf } from './drift.ts';
import { nextKey, nthOf, type Question, questionOf, wireKey } from './place.ts';
import {
  type AskAttempt,
  type Attempt,
  isInside,
  isStep,
  type Recorded,
  Recording,
  release,
  type StepAttempt,
} from './recording.ts';
import { Rounds } from './rounds.ts';
import { RunningSteps, stepAfterEnd } from './steps.ts';
import {
  type AskOptions,
  CLIENT_ROUNDS,
  type Ending,
  type FrameOptions,
  type ReplayFrom,
  type Turn,
} from './turn.ts';
import { AskDelay, Deadlines, Patience, type Unsent, UnsentAsks } from './waits.ts';

/** Errors after which the call goes on elsewhere, or may be tried again; all others are its end. */
const isFinal = ({ code }: AwaitError): boolean => code !== 'store' && code !== 'fenced';

export class Frame {
  readonly call: CallRecord;
  readonly context: CallContext;
  readonly journal: Journal;
  readonly #options: FrameOptions;
  readonly #recording: Recording;
  readonly #steps: RunningSteps;
  readonly #drawn: Drawn;
  readonly #rounds: Rounds;
  /** Attempts that are matched with nothing yet. */
  readonly #fresh = new Set<Attempt>();
  /** Asks that are out, by key. */
  readonly #open = new Map<string, AskAttempt>();
  #asked: number;
  #turns: number;
  #turn: Turn | undefined;
  /** Set once it can be entered no more: the call came to its end, or goes on in another frame. */
  #ended: 'over' | 'elsewhere' | undefined;
  /** Whether another process goes on with the call. */
  #lost = false;
  /** Whether it ended with its tool's result: what the tool left running goes on by itself. */
  #finished = false;
  /** What waits behind the gate. */
  #held: { response?: Response; notifications: JsonObject[] } = { notifications: [] };
  #scheduled = false;
  readonly #unsent: UnsentAsks;
  readonly #delay: AskDelay;
  /** Steps that are done and whose entries are being written. */
  #writing = 0;
  readonly #whenWritten: (() => void)[] = [];
  /** What the tool came to and is to be run again after: it waits until no step runs. */
  #finishing: Response | undefined;
  readonly #patience: Patience;
  readonly #deadlines: Deadlines;
  #sheds = 0;
  /** Steps that were done in the turn that is entered. */
  #doneInTurn = 0;

  constructor(call: CallRecord, journal: Journal, options: FrameOptions, from?: ReplayFrom) {
    this.call = call;
    this.journal = journal;
    this.#options = options;
    this.#asked = from?.asked ?? 0;
    this.#turns = from?.turn ?? 0;
    this.#deadlines = new Deadlines(options.clock);
    this.#unsent = new UnsentAsks(options, () => this.#unsentAsks());
    this.#delay = new AskDelay(options.clock, options.askDelay, () => this.#poke());
    this.#patience = new Patience(options.clock, options.replayGrace, () => this.#poke());
    this.#recording = new Recording(from?.completions ?? [], from?.open ?? [], from?.fresh ?? 0);
    this.#rounds = new Rounds(from?.completions ?? []);
    this.#sheds = this.#rounds.sheds;
    this.#recording.pass(from?.isPast ? Number.POSITIVE_INFINITY : this.#rounds.past);
    this.#steps = new RunningSteps(call.id, this.#rounds.names, (name) => this.#closed(name));
    const paths = (from?.completions ?? []).flatMap((done) => (done.kind === 'step' ? [done.path] : []));
    this.#drawn = new Drawn(from?.drawn ?? {}, paths, options.maxDrawnBytes ?? DEFAULT_LIMITS.journalBytes);
    const attempt = (step: StepAttempt): void => this.#attempt(step);
    this.context = {
      ...this.#steps.context(this, undefined, attempt),
      shed: async () =>
        this.#ended === 'over'
          ? undefined
          : this.#steps.once(this, `${SHED}#${++this.#sheds}`, async () => {}, attempt),
      draw: (place, fresh) => (this.#ended ? fresh() : this.#drawn.draw(this.#rounds.placeOf(place), fresh)),
      once: (place, fn) =>
        this.#finished
          ? fn()
          : this.#steps.once(this, this.#drawn.pathOf(this.#rounds.placeOf(place)), fn, attempt),
    };
  }

  /** What the tool's last attempt returned that it needs, where the call goes on from there. */
  get lastRound(): JsonObject | undefined {
    return this.#rounds.last;
  }

  /**
   * The tool returned what it needs instead of awaiting it. Resolves once that is in the journal: whoever leads
   * the call through it begins here, and runs nothing of what came before again.
   */
  endRound(needs: JsonObject): Promise<JsonObject> {
    const attempt = (step: StepAttempt): void => this.#attempt(step);
    return this.#steps.once(this, this.#rounds.next(), async () => needs, attempt);
  }

  /** Whether this frame can be entered no more. */
  get over(): boolean {
    return this.#ended !== undefined;
  }

  /** Whether a turn is entered: the gate is open. */
  get entered(): boolean {
    return this.#turn !== undefined;
  }

  /** Opens the gate: the turn is claimed here. */
  enter(turn: Turn): void {
    if (this.#ended) throw new AwaitError('internal', 'this frame was dropped; replay the call instead');
    this.#turn = turn;
    this.#doneInTurn = 0;
    const { notifications, response } = this.#held;
    this.#held = { notifications: [] };
    for (const notification of notifications) turn.notify(notification);
    if (response !== undefined) this.finish(response);
    this.#stir();
  }

  /** Closes the gate without an ending: nobody waits for this turn any longer. */
  leave(): void {
    this.#turn = undefined;
    if (this.#finishing !== undefined) this.#held = { ...this.#held, response: this.#finishing };
    this.#finishing = undefined;
    if (this.#fresh.size === 0) this.#unsent.stop();
    this.#delay.stop();
    this.#patience.stop();
  }

  /** Severs the frame from everything; what its tool awaits never settles. */
  drop(why: 'over' | 'elsewhere' = 'elsewhere'): void {
    this.leave();
    this.#ended ??= why;
    this.#unsent.stop();
    this.#lost = this.busy;
    this.#steps.abandon();
    this.#deadlines.clear();
    this.#fresh.clear();
    this.#open.clear();
    this.#recording.clear();
    this.#held = { notifications: [] };
  }

  /** As `drop`, and then rejects what the tool awaits, for tools whose `finally` must run. */
  unwind(error: { code: number; message: string }): void {
    const attempts = [...this.#open.values(), ...this.#fresh, ...this.#recording.attempts];
    this.drop();
    for (const attempt of attempts) {
      if (attempt.kind === 'ask') attempt.settle({ error });
      else attempt.settle({ error: { name: 'Error', message: error.message } });
    }
  }

  /** The call goes on without its request, where it may: from here on its asks go out live. */
  detach(): void {
    const turn = this.#turn;
    if (turn?.detach === undefined || turn.isDetaching) return;
    const isLive = (): void => {
      if (this.#turn !== turn) return;
      for (const { open } of this.#open.values()) if (open !== undefined) this.#sendAsk(open, turn);
      this.#stir();
    };
    const fail = (error: unknown): void =>
      this.#end({ kind: 'broken', error: AwaitError.from(error, 'store') });
    void turn.detach.run().then(isLive, fail);
  }

  /** Ends the turn that is entered for a reason from outside of it. */
  break(error: AwaitError): void {
    if (this.#turn !== undefined) this.#end({ kind: 'broken', error });
  }

  /** The server that ran the tool is gone; a frame that is parked is dropped, and its call replayed. */
  lose(error: AwaitError, isMeant: boolean): void {
    if (this.#turn !== undefined) this.#end({ kind: 'lost', error, isMeant });
    else if (!this.#ended) this.drop();
  }

  /** Whether a step is running. */
  get busy(): boolean {
    return this.#steps.running.length > 0;
  }

  /** Resolves once no step is running. */
  settled(): Promise<void> {
    return this.#steps.settled();
  }

  /** Resolves once no step that is done waits for its entry to be written: then `fold` has what the journal has. */
  written(): Promise<void> {
    if (this.#writing === 0) return Promise.resolve();
    return new Promise((resolve) => this.#whenWritten.push(resolve));
  }

  /** An answer that is in the journal; it is released in its order there. */
  answer(answer: AnswerCompletion): void {
    if (this.#ended) return;
    this.#take(answer);
    this.#stir();
  }

  /** Asks that went out before this frame and that it did not come to. */
  get unmade(): readonly OpenAsk[] {
    return this.#recording.unmade;
  }

  /** The open ask that a key names, for checking its answer. */
  openAsk(key: string): OpenAsk | undefined {
    return this.#open.get(key)?.open;
  }

  /** Asks that go out again under a new key, because their answer could not be used. */
  rekey(asks: ReadonlyMap<string, OpenAsk>, asked: number): void {
    this.#asked = asked;
    for (const [old, ask] of asks) {
      const attempt = this.#open.get(old);
      this.#open.delete(old);
      if (attempt !== undefined) this.#reopen(attempt, ask);
    }
  }

  /**
   * Where asks are live: an ask whose answer breaks its schema goes out under a new key (invariant 5). Resolves once
   * that is written; false where it is for whoever goes on with the call.
   */
  async reask(key: string): Promise<boolean> {
    const turn = this.#turn;
    const attempt = this.#open.get(key);
    if (turn === undefined || attempt?.open === undefined) return false;
    if (this.#hasAskedTooOften()) return true;
    this.#asked += 1;
    const ask = { ...attempt.open, key: this.#freeKey(nextKey(key, this.#asked)) };
    this.#open.delete(key);
    this.#deadlines.disarm(key);
    this.#reopen(attempt, ask);
    await this.#sendAsk(ask, turn);
    return true;
  }

  /** The tool asks. The promise settles when the answer is released, and never when the frame is dropped. */
  ask(method: string, params: unknown, options: AskOptions, stepPath?: string): Promise<Response> {
    if (stepPath !== undefined) return Promise.reject(askInStep(method, stepPath));
    if (options.inContext) this.#options.asked?.(this, this.call);
    return this.askAs(questionOf(method, params), options);
  }

  /** As `ask`, for who asks under a place of its own. */
  askAs(question: Question, options: AskOptions): Promise<Response> {
    return new Promise((settle) => {
      const attempt = askAttempt(question, options, settle, () => this.#abandon(attempt));
      this.#attempt(attempt);
    });
  }

  notify(notification: JsonObject): void {
    if (this.#ended || this.#recording.muted) return;
    if (this.#turn !== undefined) {
      const turn = this.#turn;
      runOutsideContext(() => turn.notify(notification));
    } else if (this.#held.notifications.push(notification) > this.#options.maxHeldNotifications) {
      this.#held.notifications.shift();
    }
  }

  /** The host answered the call's request. */
  finish(response: Response): void {
    if (this.#ended || this.#finishing !== undefined) return;
    const turn = this.#turn;
    if (turn === undefined) {
      this.#held = { ...this.#held, response };
      return;
    }
    if (this.#isRecording && turn.isInterim(response)) {
      this.#finishing = response;
      return;
    }
    if (this.#recording.unconsumedSteps().length > 0) {
      const { left } = this.#recording.describe();
      this.#options.warn('the tool finished without the steps its journal records', {
        call: this.call.id,
        left,
      });
    }
    this.#end({ kind: 'finished', response });
    this.#finished = true;
    for (const attempt of this.#fresh) {
      if (attempt.kind === 'step' && isOnce(attempt.path)) this.#startStep(attempt);
    }
  }

  /** Takes a result back behind the gate: it could not be written, and is the next turn's outcome. */
  hold(response: Response): void {
    this.#ended = undefined;
    this.#finished = false;
    this.#held = { notifications: [], response };
  }

  /** A checkpoint of a parked frame: its asks go out again, and steps may have been done since it was parked. */
  refold(): Checkpoint {
    this.#turns += 1;
    this.#drawn.takeUnwritten();
    return this.fold();
  }

  /** The journal so far, as one record. */
  fold(): Checkpoint {
    const { running } = this.#steps;
    return {
      format: FORMAT,
      call: this.call,
      turn: this.#turns,
      completions: this.#recording.completions,
      open: [...this.#open.values()].flatMap(({ open }) => (open === undefined ? [] : [open])),
      asked: this.#asked,
      ...(running.length > 0 && { running }),
      ...this.#drawn.all(),
    };
  }

  // --- the pump: one thing an event-loop turn ---

  #attempt(attempt: Attempt): void {
    if (this.#ended) {
      this.#warnOfLost(attempt);
      return;
    }
    this.#fresh.add(attempt);
    if (attempt.kind === 'ask') this.#unsent.watch();
    this.#stir();
  }

  /** What a stale frame attempts waits for ever (invariant 10), and nobody should wonder why. */
  #warnOfLost(attempt: Attempt): void {
    const what = attempt.kind === 'step' ? { step: attempt.path } : { method: attempt.question.method };
    const message = 'an attempt of a call that is over, or goes on in another process, stays pending';
    this.#options.warn(message, { call: this.call.id, ...what });
  }

  /** Why no step begins any more. */
  #closed(name: string): AwaitError | undefined {
    return this.#ended === 'over' ? stepAfterEnd(name, this.call) : undefined;
  }

  /** Asks that did not go out within a second. */
  *#unsentAsks(): Generator<Unsent> {
    const turn = this.#turn;
    if (turn?.live) return;
    const opened = turn === undefined ? [] : [...this.#open.values()];
    for (const attempt of [...this.#fresh, ...opened]) {
      if (attempt.kind !== 'ask') continue;
      const { inContext, question } = attempt;
      const why = turn === undefined ? 'gate' : this.#isRecording ? 'step' : inContext ? 'replay' : 'outside';
      yield { attempt, call: this.call.id, method: question.method, why };
    }
  }

  #stir(): void {
    this.#patience.stir();
    this.#poke();
  }

  #poke(): void {
    if (this.#scheduled || (this.#turn === undefined && !this.busy)) return;
    this.#scheduled = true;
    // What is written and sent from here on is this package's doing, not the tool's.
    runOutsideContext(() =>
      this.#options.clock.soon(() => {
        this.#scheduled = false;
        if (this.#turn !== undefined) this.#pump(this.#turn);
        else this.#pumpInside();
      }),
    );
  }

  /** A step that runs on behind the gate is done to its end, so what is inside of it is too. */
  #pumpInside(): void {
    for (const attempt of this.#fresh) {
      if (attempt.kind !== 'step' || !this.#isInsideRunning(attempt.path)) continue;
      if (this.#recording.claimExactly(attempt) === undefined) this.#startStep(attempt);
      else this.#fresh.delete(attempt);
    }
    const next = this.#recording.nextInside((path) => this.#isInsideRunning(path));
    if (next === undefined) return;
    release(next);
    this.#poke();
  }

  #isInsideRunning(path: string): boolean {
    return this.#steps.running.some((outer) => path.startsWith(`${outer}/`));
  }

  /** Whether a step runs, or is done and not yet in the journal. */
  get #isRecording(): boolean {
    return this.busy || this.#writing > 0;
  }

  #pump(turn: Turn): void {
    if (this.#finishing !== undefined) {
      this.#pumpInside();
      if (!this.#isRecording) this.#end({ kind: 'finished', response: this.#finishing });
      return;
    }
    for (const attempt of this.#fresh) {
      const claimed = this.#recording.claimExactly(attempt);
      if (claimed === undefined) continue;
      this.#fresh.delete(attempt);
      // An ask that is out already keeps its key: the client may be about to answer it.
      if (claimed !== 'recorded' && attempt.kind === 'ask') this.#askAgain(attempt, claimed, turn);
    }
    const next = this.#recording.next();
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

  /** The next recorded completion is one that nobody attempts. */
  #passOver(head: Recorded, turn: Turn): void {
    const steps = [...this.#fresh].filter((attempt) => attempt.kind === 'step');
    // A step that was cut off is run again, and attempts what is recorded of its inside.
    const outer = steps.find(({ path }) => isInside(head, path));
    if (outer !== undefined) this.#startStep(outer);
    if (outer !== undefined || this.#isRunningAround(head)) return;
    // With no attempt open the tool is busy with something that is not journaled: it may get there yet.
    const waits = this.#fresh.size > 0 || this.#open.size > 0 || this.#recording.awaited;
    if (!waits || !this.#patience.gaveUp() || this.#matchChanged(turn)) return;
    const step = steps.find(({ path }) => !isOnce(path));
    if (isStep(head) && step !== undefined && this.#options.unknownStep === 'fail') {
      if (this.#patience.gaveUpForGood()) this.#diverge(`the tool attempts step '${step.path}'`);
      return;
    }
    head.state = 'skipped';
    this.#patience.goOn();
    this.#poke();
  }

  #isRunningAround({ completion }: Recorded): boolean {
    return completion.kind === 'step' && this.#isInsideRunning(completion.path);
  }

  /** Nothing recorded is left to release: new steps start, new asks go out, the turn may suspend. */
  #goOn(turn: Turn): void {
    // What is inside of a running step is part of it, whatever else waits.
    for (const attempt of this.#fresh) {
      if (attempt.kind === 'step' && this.#isInsideRunning(attempt.path)) this.#startStep(attempt);
    }
    const steps = [...this.#fresh].filter((attempt) => attempt.kind === 'step');
    const left = this.#recording.unconsumedSteps().filter((recorded) => !this.#isRunningAround(recorded));
    const named = steps.find(({ path }) => !isOnce(path));
    if (named !== undefined && left.length > 0 && this.#options.unknownStep === 'fail') {
      if (this.#patience.gaveUpForGood()) this.#diverge(`the tool attempts step '${named.path}'`);
      return;
    }
    if (turn.isDetaching) return;
    if (named !== undefined && turn.detach?.atStep) {
      this.detach();
      return;
    }
    const asks = [...this.#fresh].filter((attempt) => attempt.kind === 'ask');
    // The turn ends with these, and its steps are in the journal before it does.
    if (this.#isRecording && asks.some((ask) => this.#isRefused(ask, turn))) return;
    const given = steps.filter(({ path }) => isShed(path));
    if (given.length > 0 || (named !== undefined && this.#doneInTurn > 0 && this.#options.overloaded?.())) {
      if (this.#giveUp(turn, given)) return;
    }
    for (const step of steps) if (!given.includes(step)) this.#startStep(step);
    if (asks.some((ask) => this.#recording.mayStandFor(ask))) {
      if (!this.#patience.gaveUp() || this.#matchChanged(turn)) return;
    }
    for (const ask of asks) {
      if (this.#turn === turn && this.#fresh.has(ask)) this.#openAsk(ask, turn);
    }
    if (this.#turn !== turn) return;
    if (turn.live) this.#withdrawUnmade(turn);
    else this.#maySuspend();
  }

  /** What went out before the call was taken up, and is asked no more (after an upgrade): nobody need answer it. */
  #withdrawUnmade(turn: Turn): void {
    if (!this.#recording.unmade.some(({ withdrawn }) => !withdrawn)) return;
    // With nothing open the tool is busy with something that is not journaled: it may come to its asks yet.
    if ((this.#open.size === 0 && !this.busy) || !this.#patience.gaveUp()) return;
    for (const ask of this.#recording.withdrawUnmade()) this.#withdraw(ask, turn);
  }

  /** Ends the turn without an ask, so that the call goes on elsewhere; false where its client cannot bring it there. */
  #giveUp(turn: Turn, given: readonly StepAttempt[]): boolean {
    const mayDetach = this.#isLastTurn(turn);
    // Its client would give up on a call that is put down in its last turns: what is left of them is for asks.
    if (turn.live || !turn.sheds || (!mayDetach && this.#turns + 1 >= CLIENT_ROUNDS)) {
      for (const step of given) {
        this.#fresh.delete(step);
        if (!turn.live) this.#recording.addDone({ kind: 'step', path: step.path, outcome: {} });
        step.settle({});
      }
      return false;
    }
    // What is running comes to its end first, and stirs this.
    if (this.#isRecording) return true;
    // It does not end here where the call goes on as a task, so nothing is given up.
    if (mayDetach) this.detach();
    else {
      for (const step of given) {
        this.#fresh.delete(step);
        this.#recording.addDone({ kind: 'step', path: step.path, outcome: {} });
      }
      this.#suspend(true);
    }
    return true;
  }

  /** Whether the call goes on as a task, rather than end this turn without an outcome. */
  #isLastTurn({ detach }: Turn): boolean {
    return detach !== undefined && this.#turns + 1 >= detach.lastTurn;
  }

  #maySuspend(): void {
    if (![...this.#open.values()].some(({ inContext }) => inContext)) return;
    // A step's entry that is being written comes before the checkpoint, so it must be in it.
    if (this.#writing > 0) return;
    if (this.#steps.running.length > 0) {
      if (this.#delay.isOver()) this.#suspend();
    } else if (this.#patience.idle()) {
      this.#suspend();
    }
  }

  #suspend(isShed = false): void {
    if (this.#turn === undefined) return;
    if (this.#drawn.isFull) {
      this.#end({ kind: 'broken', error: drewTooMuch(this.call.id) });
      return;
    }
    if (this.#isLastTurn(this.#turn)) {
      this.detach();
      return;
    }
    this.#turns += 1;
    this.#drawn.takeUnwritten();
    this.#end({ kind: 'suspended', checkpoint: this.fold(), ...(isShed && { isShed }) });
  }

  #end(ending: Ending): void {
    const turn = this.#turn;
    if (ending.kind !== 'suspended') {
      const isOver = ending.kind === 'finished' || (ending.kind === 'broken' && isFinal(ending.error));
      this.#ended = isOver ? 'over' : 'elsewhere';
      this.#lost = ending.kind === 'broken' && isFenced(ending.error);
      this.#steps.abandon();
    }
    this.leave();
    turn?.end(ending);
  }

  // --- steps ---

  #startStep(step: StepAttempt): void {
    this.#fresh.delete(step);
    this.#recording.unmute();
    this.#steps.begin(step.path);
    void this.#runStep(step).catch((error: unknown) => {
      this.#steps.done(step.path);
      this.#end({ kind: 'broken', error: AwaitError.from(error, 'store') });
    });
  }

  async #runStep(step: StepAttempt): Promise<void> {
    // What a step acts on is in the journal before it acts, once anybody else could run it again.
    const { drawn } = this.#turns > 0 && !this.#ended ? this.#drawn.takeUnwritten() : {};
    if (drawn !== undefined) await this.journal.append({ type: 'drawn', drawn });
    // A process that slept may have lost its turn: nothing is done before that is certain (invariant 10).
    while (this.journal.lapsed && !this.#ended) await this.journal.append({ type: 'held' });
    const isOpen = this.#turn !== undefined || this.#isInsideRunning(step.path);
    // What is left of a tool that is done goes on by itself.
    if (this.#finished ? !isOnce(step.path) : this.#ended || !isOpen) {
      // Behind the gate meanwhile.
      this.#steps.done(step.path);
      this.#attempt(step);
      return;
    }
    const outcome = await step.run();
    if (this.#lost) this.#options.doneTwice(step.path);
    const completion: StepCompletion = { kind: 'step', path: step.path, outcome };
    // In the journal before the tool goes on (invariant 11), also while the frame is parked: it is done.
    this.#writing += 1;
    try {
      if (!this.#ended)
        await this.journal.append({ type: 'completed', completion }, () => this.#onDone(step, completion));
    } catch (error) {
      if (isFenced(error)) this.#options.doneTwice(step.path);
      throw error;
    } finally {
      this.#writing -= 1;
      if (this.#writing === 0) for (const resolve of this.#whenWritten.splice(0)) resolve();
    }
    this.#steps.done(step.path);
    if (this.#finished && isOnce(step.path)) step.settle(outcome);
    if (!this.#ended) this.#stir();
  }

  /**
   * A step is in the journal. The tool gets it in the order of the journal, as a replay would (invariant 7); but what
   * is inside of a running step is part of that one, which waits for it.
   */
  #onDone(step: StepAttempt, completion: StepCompletion): void {
    if (this.#ended) return;
    this.#doneInTurn += 1;
    const isInside = this.#isInsideRunning(step.path);
    this.#recording.addDone(completion, isInside ? undefined : step);
    if (isInside) step.settle(completion.outcome);
  }

  // --- asks ---

  /** Gives a fresh ask its place and key, and sends it where the revision is live. */
  #openAsk(attempt: AskAttempt, turn: Turn, instead?: { place: string; drift: number }): void {
    const { question } = attempt;
    if (this.#isRecording && this.#isRefused(attempt, turn)) return;
    this.#fresh.delete(attempt);
    this.#recording.unmute();
    const required = turn.missing(question.method, question.params);
    if (required !== undefined) {
      this.#refuse(attempt, turn, required);
      return;
    }
    const unfit = attempt.raw ? undefined : turn.unfit(question.method, question.params);
    if (unfit !== undefined) {
      attempt.settle(unfit);
      return;
    }
    if (this.#hasAskedTooOften()) return;
    this.#asked += 1;
    const nth = instead === undefined ? this.#recording.nextPlace(question.class) : nthOf(instead.place);
    const key = this.#freeKey(wireKey(question, nth, this.#asked, instead !== undefined));
    const name = this.#nameFor(attempt, key);
    const ask = openAskOf(attempt, nth, { key, ...name }, this.#options.clock.now(), instead?.drift);
    this.#reopen(attempt, ask);
    const given = question.explicitKey === ask.key ? turn.given(ask) : undefined;
    if (given !== undefined && this.#turn === turn) this.answer(answerTo(ask, given));
    else if (turn.live && this.#turn === turn) this.#sendAsk(ask, turn);
  }

  /** Ends the turn if so. */
  #hasAskedTooOften(): boolean {
    if (this.#asked < this.#options.maxAsks) return false;
    const message = `this call asked ${this.#asked} times; raise limits.asks if that is meant`;
    this.#end({ kind: 'broken', error: new AwaitError('limit', message) });
    return true;
  }

  /** A tool may give a key that looks like a generated one. */
  #freeKey(key: string): string {
    const isTaken = this.#open.has(key) || this.#recording.hasKey(key);
    return isTaken ? `${key}~${this.#asked}` : key;
  }

  /** An earlier round's key is a tool's to use again, once in a round. */
  #nameFor({ question: { explicitKey }, raw }: AskAttempt, key: string): { readonly name?: string } {
    const others = [...this.#open.values()].map(({ open }) => open?.name ?? open?.key);
    const isFree = raw && explicitKey !== undefined && explicitKey !== key && !others.includes(explicitKey);
    return isFree ? { name: explicitKey } : {};
  }

  #reopen(attempt: AskAttempt, ask: OpenAsk): void {
    attempt.open = ask;
    this.#open.set(ask.key, attempt);
  }

  /** Where asks are live, whoever took the call up cannot know whether the last owner sent it. */
  #askAgain(attempt: AskAttempt, known: OpenAsk, turn: Turn): void {
    const { withdrawn, ...ask } = known;
    this.#reopen(attempt, ask);
    if (!turn.live) return;
    if (withdrawn) {
      this.#sendAsk(ask, turn);
      return;
    }
    turn.ask(ask);
    this.#armDeadline(ask);
  }

  /** Once its entry is written (invariant 6). */
  #sendAsk(ask: OpenAsk, turn: Turn): Promise<void> {
    const written = this.#write({ type: 'asked', ask, when: this.#options.clock.now() }, () => {
      if (this.#open.has(ask.key)) turn.ask(ask);
    });
    this.#armDeadline(ask);
    return written;
  }

  #armDeadline(ask: OpenAsk): void {
    this.#deadlines.arm(ask, (timeout) => {
      if (!this.#open.has(ask.key) || this.#turn === undefined) return;
      this.#turn.withdraw(ask);
      const late = timedOut(ask, timeout);
      this.#write({ type: 'completed', completion: late }, () => this.answer(late));
    });
  }

  /** A failure ends the turn, so whoever has no use for it need not look. */
  #write(entry: Parameters<Journal['append']>[0], then: () => void): Promise<void> {
    const fail = (error: unknown): void =>
      this.#end({ kind: 'broken', error: AwaitError.from(error, 'store') });
    const written = this.journal.append(entry);
    void written.then(then, fail);
    return written;
  }

  /** Whether an ask ends its turn, since its client cannot be asked. */
  #isRefused({ inContext, question }: AskAttempt, turn: Turn): boolean {
    const { method, params } = question;
    return inContext && !turn.live && turn.mustRefuse === true && turn.missing(method, params) !== undefined;
  }

  #refuse(attempt: AskAttempt, turn: Turn, required: JsonObject): void {
    const { method } = attempt.question;
    if (!attempt.inContext) return;
    if (!this.#isRefused(attempt, turn)) {
      const message = `Client does not support ${Object.keys(required).join(', ')} (required for ${method})`;
      attempt.settle({ error: { code: -32601, message } });
    } else {
      this.#end({ kind: 'refused', required, method });
    }
  }

  #abandon(attempt: AskAttempt): void {
    this.#fresh.delete(attempt);
    if (attempt.open === undefined || !this.#open.delete(attempt.open.key)) return;
    if (this.#turn !== undefined) this.#withdraw(attempt.open, this.#turn);
    this.#stir();
  }

  #withdraw(ask: OpenAsk, turn: Turn): void {
    const { key } = ask;
    turn.withdraw(ask);
    if (turn.live) this.#write({ type: 'withdrawn', key, when: this.#options.clock.now() }, () => {});
  }

  /** Puts an answer where it is released from in its order. */
  #take(answer: AnswerCompletion): void {
    const attempt = this.#open.get(answer.key);
    this.#open.delete(answer.key);
    this.#deadlines.disarm(answer.key);
    this.#recording.addAnswer(answer, attempt);
  }

  /** At idle: asks in other words take the place of what was asked there before (invariant 5). */
  #matchChanged(turn: Turn): boolean {
    for (const attempt of this.#fresh) {
      if (attempt.kind !== 'ask') continue;
      const answered = this.#recording.changedAnswer(attempt.question.class);
      const open =
        answered === undefined ? this.#recording.takeChangedAsk(attempt.question.class) : undefined;
      if (answered !== undefined) this.#drift(attempt, answered, answered.completion, turn);
      else if (open !== undefined)
        this.#openAsk(attempt, turn, { place: open.place, drift: open.drift ?? 0 });
      else continue;
      this.#stir();
      return true;
    }
    return false;
  }

  #drift(attempt: AskAttempt, recorded: Recorded, answer: AnswerCompletion, turn: Turn): void {
    const verdict = driftOf(attempt.question, answer, this.#options.drift);
    if (verdict.kind === 'diverged') this.#diverge(verdict.attempted);
    else if (verdict.kind === 'drifted') this.#end({ kind: 'broken', error: verdict.error });
    else if (verdict.kind === 'reused') {
      this.#fresh.delete(attempt);
      recorded.attempt = attempt;
    } else {
      recorded.state = 'released';
      this.#openAsk(attempt, turn, { place: answer.place, drift: verdict.drift });
    }
  }

  #diverge(attempted: string): void {
    this.#end({ kind: 'broken', error: diverged(this.call.id, attempted, this.#recording.describe()) });
  }
}
