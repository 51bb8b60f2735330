/**
 * A frame: one attempt to run a call's tool, from the first leg or led through the journal.
 *
 * It owns the attempts of its tool (asks and steps) and matches them with what the journal records. It acts
 * only while a turn is entered: that is the gate (invariant 2). In between, attempts, notifications and the
 * result wait; once the turn is claimed elsewhere they wait for ever. Invariants 1, 2, 5 to 9 and 13 live here;
 * who may enter a turn, and what is written when it ends, is the engine's business.
 */
import { AwaitError } from '../error.ts';
import { type CallContext, runInContext, type StepFunction } from './context.ts';
import {
  type AnswerCompletion,
  type CallRecord,
  type Checkpoint,
  type Completion,
  FORMAT,
  type Journal,
  type OpenAsk,
  type Response,
  type StepCompletion,
  type StepOutcome,
} from './journal.ts';
import type { JsonObject } from './json.ts';
import { type Question, questionOf, wireKey } from './place.ts';
import { idempotencyKey, keepError, keepResult, releaseOutcome } from './step.ts';

/** Event-loop turns without any activity after which a tool counts as waiting for its asks. */
const QUIET_TURNS = 2;
/** How the places of asks begin that stand for a thrown -32042. */
export const RERUN = 'rerun:';
/** Node's longest timer. */
const LONGEST_TIMER = 2 ** 31 - 1;

export interface FrameOptions {
  readonly drift: 'ask' | 'reuse' | 'fail';
  readonly unknownStep: 'fail' | 'run';
  /** How long an ask waits for a running step before it goes out beside it, in milliseconds. */
  readonly askDelay: number;
  /** Asks a call may make in all. */
  readonly maxAsks: number;
  /** Notifications kept for a parked frame. */
  readonly maxHeldNotifications: number;
  readonly now: () => number;
  readonly warn: (message: string, detail: JsonObject) => void;
}

/** What a frame sees of the turn it is in. */
export interface Turn {
  /** Live revisions send each ask at once and stay in the turn; the others end it with all that are open. */
  readonly live: boolean;
  /** The client capability that this ask needs and the current leg does not declare. */
  missing(method: string, params: JsonObject): JsonObject | undefined;
  /** The answer a client sent along before it was asked, when it fits. */
  given(ask: OpenAsk): Response | undefined;
  ask(ask: OpenAsk): void;
  /** The tool gave up on an ask that is out. */
  withdraw(ask: OpenAsk): void;
  notify(notification: JsonObject): void;
  end(ending: Ending): void;
}

export type Ending =
  | { readonly kind: 'finished'; readonly response: Response }
  | { readonly kind: 'suspended'; readonly checkpoint: Checkpoint }
  | { readonly kind: 'refused'; readonly required: JsonObject; readonly method: string }
  | { readonly kind: 'broken'; readonly error: AwaitError };

export interface AskOptions {
  /** Whether the ask was made in the call's own flow, not by a timer or a listener of the server. */
  readonly inContext: boolean;
  /** The `timeout` that the tool passed, in milliseconds. */
  readonly timeout?: number;
  readonly signal?: AbortSignal;
}

/** A checkpoint with what came since. */
export interface ReplayFrom extends Pick<Checkpoint, 'completions' | 'open' | 'asked' | 'turn'> {
  /** How many of the last completions came with the turn that is entered now: nobody has seen what they lead to. */
  readonly fresh: number;
}

interface AskAttempt {
  readonly kind: 'ask';
  readonly question: Question;
  readonly options: AskOptions;
  readonly settle: (response: Response) => void;
  open?: OpenAsk;
}

interface StepAttempt {
  readonly kind: 'step';
  readonly path: string;
  readonly run: () => Promise<StepOutcome>;
  readonly settle: (outcome: StepOutcome) => void;
}

interface Recorded {
  readonly completion: Completion;
  /** `waiting` to be released in its order; `skipped` ones are released whenever somebody asks for them. */
  state: 'waiting' | 'skipped' | 'released';
  attempt?: AskAttempt | StepAttempt;
}

export class Frame {
  readonly call: CallRecord;
  readonly context: CallContext;
  readonly journal: Journal;
  readonly #options: FrameOptions;
  readonly #recorded: Recorded[] = [];
  /** Index of the first completion that may still be waiting. */
  #cursor = 0;
  /** What is said before the cursor gets here was said in an earlier turn. */
  readonly #mutedUntil: number;
  /** Attempts that are matched with nothing yet. */
  readonly #fresh = new Set<AskAttempt | StepAttempt>();
  /** Asks that are out, by key. */
  readonly #open = new Map<string, AskAttempt>();
  /** Asks of the checkpoint that nobody has made again yet. */
  #unclaimed: OpenAsk[];
  readonly #places = new Map<string, number>();
  readonly #stepCounts = new Map<string, number>();
  readonly #openSteps = new Set<string>();
  readonly #running = new Set<string>();
  readonly #whenSettled: (() => void)[] = [];
  #asked: number;
  #turns: number;
  #turn: Turn | undefined;
  #ended = false;
  #held: { response?: Response; notifications: JsonObject[] } = { notifications: [] };
  #scheduled = false;
  #quiet = 0;
  #delay: NodeJS.Timeout | undefined;

  constructor(call: CallRecord, journal: Journal, options: FrameOptions, from?: ReplayFrom) {
    this.call = call;
    this.journal = journal;
    this.#options = options;
    this.#asked = from?.asked ?? 0;
    this.#turns = from?.turn ?? 0;
    this.#unclaimed = [...(from?.open ?? [])];
    for (const completion of from?.completions ?? []) {
      this.#recorded.push({ completion, state: 'waiting' });
      if (completion.kind === 'answer') this.#notePlace(completion.place);
    }
    for (const recorded of this.#recorded) if (!this.#isAwaited(recorded)) recorded.state = 'skipped';
    const known = this.#recorded.length - (from?.fresh ?? 0);
    this.#mutedUntil = known < this.#recorded.length ? known + 1 : known;
    for (const ask of this.#unclaimed) this.#notePlace(ask.place);
    this.context = { call: this, step: (name, fn) => this.#step(undefined, name, fn) };
  }

  /** Whether a turn is entered: the gate is open. */
  get entered(): boolean {
    return this.#turn !== undefined;
  }

  /** Opens the gate: the turn is claimed here. `answers` are released in the order given. */
  enter(turn: Turn, answers: readonly AnswerCompletion[] = []): void {
    if (this.#ended) throw new AwaitError('internal', 'this frame was dropped; replay the call instead');
    this.#turn = turn;
    const { notifications, response } = this.#held;
    this.#held = { notifications: [] };
    for (const notification of notifications) turn.notify(notification);
    for (const answer of answers) this.#take(answer);
    if (response !== undefined) this.finish(response);
    this.#stir();
  }

  /** Closes the gate without an ending: nobody waits for this turn any longer. */
  leave(): void {
    this.#turn = undefined;
    clearTimeout(this.#delay);
    this.#delay = undefined;
  }

  /** Severs the frame from everything; what its tool awaits never settles. */
  drop(): void {
    this.leave();
    this.#ended = true;
    this.#fresh.clear();
    this.#open.clear();
    this.#recorded.length = 0;
    this.#held = { notifications: [] };
  }

  /** As `drop`, and then rejects what the tool awaits, for tools whose `finally` must run. */
  unwind(error: { code: number; message: string }): void {
    const asks = [...this.#open.values(), ...this.#fresh].filter((attempt) => attempt.kind === 'ask');
    this.drop();
    for (const ask of asks) ask.settle({ error });
  }

  /** An answer of a live revision, already in the journal. */
  answer(answer: AnswerCompletion): void {
    this.#take(answer);
    this.#stir();
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
      if (attempt === undefined) continue;
      attempt.open = ask;
      this.#open.set(ask.key, attempt);
    }
  }

  /** Resolves once no step is running. */
  settled(): Promise<void> {
    return this.#running.size === 0
      ? Promise.resolve()
      : new Promise((resolve) => this.#whenSettled.push(resolve));
  }

  /** The tool asks. The promise settles when the answer is released, and never when the frame is dropped. */
  ask(method: string, params: unknown, options: AskOptions, stepPath?: string): Promise<Response> {
    if (stepPath !== undefined) {
      return Promise.reject(
        new AwaitError(
          'ask-in-step',
          `step '${stepPath}' asks its user (${method}) inside of itself: a step is done in one go and never waits. Ask before the step, and hand it the answer.`,
        ),
      );
    }
    return new Promise((settle) => {
      if (this.#ended) return;
      const attempt: AskAttempt = { kind: 'ask', question: questionOf(method, params), options, settle };
      options.signal?.addEventListener('abort', () => this.#abandon(attempt), { once: true });
      this.#fresh.add(attempt);
      this.#stir();
    });
  }

  notify(notification: JsonObject): void {
    if (this.#ended || this.#muted()) return;
    if (this.#turn !== undefined) {
      this.#turn.notify(notification);
    } else if (this.#held.notifications.push(notification) > this.#options.maxHeldNotifications) {
      this.#held.notifications.shift();
    }
  }

  /** The host answered the call's request. */
  finish(response: Response): void {
    if (this.#ended) return;
    if (this.#turn === undefined) {
      this.#held = { ...this.#held, response };
      return;
    }
    const left = this.#recorded.filter(
      ({ completion, state }) => completion.kind === 'step' && state !== 'released',
    );
    if (left.length > 0) {
      this.#options.warn('the tool finished without the steps its journal records', {
        call: this.call.id,
        left: left.map(({ completion }) => nameOf(completion)),
      });
    }
    this.#end({ kind: 'finished', response });
  }

  /** Takes a result back behind the gate: it could not be written, and is the next turn's outcome. */
  hold(response: Response): void {
    this.#ended = false;
    this.#held = { notifications: [], response };
  }

  // --- steps -----------------------------------------------------------------------------------------

  #step<T>(parent: string | undefined, name: string, fn: StepFunction<T>): Promise<T> {
    if (typeof name !== 'string' || name === '' || /[/#]/.test(name)) {
      return Promise.reject(
        new AwaitError(
          'bad-option',
          `step(${JSON.stringify(name)}): name a step with a non-empty string without '/' and '#'.`,
        ),
      );
    }
    const base = parent === undefined ? name : `${parent}/${name}`;
    if (this.#openSteps.has(base)) {
      return Promise.reject(
        new AwaitError(
          'duplicate-step',
          `two steps named '${base}' are open at once, so a replay could not tell them apart. Give parallel steps names of their own, such as step(\`${name}-\${item.id}\`, …).`,
        ),
      );
    }
    const count = (this.#stepCounts.get(base) ?? 0) + 1;
    this.#stepCounts.set(base, count);
    this.#openSteps.add(base);
    const path = count === 1 ? base : `${base}#${count}`;
    return new Promise<T>((resolve, reject) => {
      if (this.#ended) return;
      const settle = (outcome: StepOutcome): void => {
        this.#openSteps.delete(base);
        try {
          resolve(releaseOutcome(path, outcome) as T);
        } catch (error) {
          reject(error);
        }
      };
      this.#fresh.add({ kind: 'step', path, run: () => this.#runStep(path, fn), settle });
      this.#stir();
    });
  }

  async #runStep<T>(path: string, fn: StepFunction<T>): Promise<StepOutcome> {
    const inside: CallContext = {
      call: this,
      stepPath: path,
      step: (name, inner) => this.#step(path, name, inner),
    };
    try {
      const handle = { idempotencyKey: idempotencyKey(this.call.id, path) };
      return keepResult(await runInContext(inside, () => fn(handle)));
    } catch (error) {
      return keepError(error);
    }
  }

  #startStep(attempt: StepAttempt): void {
    this.#fresh.delete(attempt);
    this.#running.add(attempt.path);
    void attempt.run().then(async (outcome) => {
      const completion: StepCompletion = { kind: 'step', path: attempt.path, outcome };
      try {
        // In the journal before the tool goes on (invariant 11), also while the frame is parked: it is done.
        if (!this.#ended) await this.journal.append({ type: 'completed', completion });
      } catch (error) {
        this.#stepDone(attempt.path);
        this.#end({ kind: 'broken', error: AwaitError.from(error, 'store') });
        return;
      }
      this.#stepDone(attempt.path);
      if (this.#ended) return;
      this.#recorded.push({ completion, state: 'released' });
      attempt.settle(outcome);
      this.#stir();
    });
  }

  #stepDone(path: string): void {
    this.#running.delete(path);
    if (this.#running.size > 0) return;
    for (const resolve of this.#whenSettled.splice(0)) resolve();
  }

  // --- asks ------------------------------------------------------------------------------------------

  /** Gives a fresh ask its place and key, and sends it where the revision is live. */
  #openAsk(attempt: AskAttempt, turn: Turn, instead?: { place: string; drift: number }): void {
    const { question, options } = attempt;
    this.#fresh.delete(attempt);
    const required = turn.missing(question.method, question.params);
    if (required !== undefined) {
      this.#refuse(attempt, turn, required);
      return;
    }
    if (this.#asked >= this.#options.maxAsks) {
      this.#end({
        kind: 'broken',
        error: new AwaitError(
          'limit',
          `this call asked ${this.#asked} times; raise limits.asks if that is meant`,
        ),
      });
      return;
    }
    this.#asked += 1;
    const nth = instead === undefined ? this.#nextPlace(question.class) : nthOf(instead.place);
    const ask: OpenAsk = {
      place: `${question.class}#${nth}`,
      key: wireKey(question, nth, this.#asked, instead !== undefined),
      method: question.method,
      params: question.params,
      ...(options.timeout !== undefined && {
        deadline: { at: this.#options.now() + options.timeout, timeout: options.timeout },
      }),
      ...(instead !== undefined && { drift: instead.drift }),
    };
    attempt.open = ask;
    this.#open.set(ask.key, attempt);
    const given = question.explicitKey === ask.key ? turn.given(ask) : undefined;
    if (given !== undefined && this.#turn === turn) {
      this.#take(answerTo(ask, given));
      this.#stir();
      return;
    }
    if (!turn.live || this.#turn !== turn) return;
    void this.journal.append({ type: 'asked', ask }).then(
      () => {
        if (this.#open.has(ask.key)) turn.ask(ask);
      },
      (error: unknown) => this.#end({ kind: 'broken', error: AwaitError.from(error, 'store') }),
    );
    if (ask.deadline !== undefined) this.#armDeadline(ask, ask.deadline);
  }

  /** Only where asks are live; elsewhere a deadline is looked at when an answer comes (invariant 3). */
  #armDeadline(ask: OpenAsk, deadline: { at: number; timeout: number }): void {
    const timer = setTimeout(
      () => {
        const turn = this.#turn;
        if (!this.#open.has(ask.key) || turn === undefined) return;
        turn.withdraw(ask);
        const late = timedOut(ask, deadline.timeout);
        void this.journal.append({ type: 'completed', completion: late }).then(
          () => this.answer(late),
          (error: unknown) => this.#end({ kind: 'broken', error: AwaitError.from(error, 'store') }),
        );
      },
      Math.min(Math.max(deadline.at - this.#options.now(), 0), LONGEST_TIMER),
    );
    timer.unref();
  }

  #refuse(attempt: AskAttempt, turn: Turn, required: JsonObject): void {
    const { method } = attempt.question;
    if (!attempt.options.inContext) return;
    if (turn.live) {
      const message = `Client does not support ${Object.keys(required).join(', ')} (required for ${method})`;
      attempt.settle({ error: { code: -32601, message } });
    } else {
      this.#end({ kind: 'refused', required, method });
    }
  }

  #abandon(attempt: AskAttempt): void {
    this.#fresh.delete(attempt);
    if (attempt.open === undefined || !this.#open.delete(attempt.open.key)) return;
    this.#turn?.withdraw(attempt.open);
    this.#stir();
  }

  /** Puts an answer where replay and release find it. */
  #take(answer: AnswerCompletion): void {
    const attempt = this.#open.get(answer.key);
    this.#open.delete(answer.key);
    this.#unclaimed = this.#unclaimed.filter((ask) => ask.key !== answer.key);
    // The answer to an ask the tool gave up on stays in the journal, and is nobody's to release.
    if (attempt === undefined) this.#recorded.push({ completion: answer, state: 'skipped' });
    else this.#recorded.push({ completion: answer, state: 'waiting', attempt });
  }

  // --- the pump: one thing an event-loop turn --------------------------------------------------------

  #stir(): void {
    this.#quiet = 0;
    this.#poke();
  }

  #poke(): void {
    if (this.#scheduled || this.#turn === undefined) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      if (this.#turn !== undefined) this.#pump(this.#turn);
    });
  }

  /** True once nothing has happened for a while; until then it looks again. */
  #idle(): boolean {
    this.#quiet += 1;
    if (this.#quiet > QUIET_TURNS) return true;
    this.#poke();
    return false;
  }

  #pump(turn: Turn): void {
    this.#matchExactly();
    const head = this.#head();
    const next = head?.attempt === undefined ? this.#lateClaim() : head;
    if (next !== undefined) {
      this.#release(next);
      this.#stir();
    } else if (head !== undefined) {
      this.#passOver(head);
    } else {
      this.#goOn(turn);
    }
  }

  #head(): Recorded | undefined {
    while (this.#recorded[this.#cursor] !== undefined && this.#recorded[this.#cursor]?.state !== 'waiting') {
      this.#cursor += 1;
    }
    return this.#recorded[this.#cursor];
  }

  /** Whether the tool is being led through what it did before (invariant 9). */
  #muted(): boolean {
    this.#head();
    return this.#cursor < this.#mutedUntil;
  }

  #lateClaim(): Recorded | undefined {
    return this.#recorded.find(({ state, attempt }) => state === 'skipped' && attempt !== undefined);
  }

  #release(recorded: Recorded): void {
    const { completion, attempt } = recorded;
    recorded.state = 'released';
    delete recorded.attempt;
    if (completion.kind === 'step') {
      if (attempt?.kind === 'step') attempt.settle(completion.outcome);
    } else if (attempt?.kind === 'ask') {
      attempt.settle(completion.response);
    }
  }

  /** The steps inside of a step that is not run again will not be attempted: they are part of its result. */
  #subsume(path: string): void {
    for (const recorded of this.#recorded) {
      if (recorded.completion.kind === 'step' && recorded.completion.path.startsWith(`${path}/`)) {
        recorded.state = 'released';
      }
    }
  }

  /** The next recorded completion is one that nobody attempts. */
  #passOver(head: Recorded): void {
    // With no attempt open the tool is busy with something that is not journaled: it may get there yet.
    const waits =
      this.#fresh.size > 0 || this.#open.size > 0 || this.#recorded.some(({ attempt }) => attempt);
    if (!waits || !this.#idle()) return;
    if (this.#matchChanged()) return;
    const step = [...this.#fresh].find((attempt) => attempt.kind === 'step');
    if (head.completion.kind === 'step' && step !== undefined && this.#options.unknownStep === 'fail') {
      this.#diverge(`the tool attempts step '${step.path}'`);
      return;
    }
    head.state = 'skipped';
    this.#stir();
  }

  /** Nothing recorded is left to release: new steps start, new asks go out, the turn may suspend. */
  #goOn(turn: Turn): void {
    const steps = [...this.#fresh].filter((attempt) => attempt.kind === 'step');
    if (steps.length > 0 && this.#options.unknownStep === 'fail' && this.#unconsumedSteps().length > 0) {
      if (this.#idle()) this.#diverge(`the tool attempts step '${steps[0]?.path}'`);
      return;
    }
    for (const step of steps) this.#startStep(step);
    const asks = [...this.#fresh].filter((attempt) => attempt.kind === 'ask');
    if (asks.some((ask) => this.#mayStandFor(ask))) {
      if (!this.#idle() || this.#matchChanged()) return;
    }
    for (const ask of asks) {
      if (this.#turn === turn && this.#fresh.has(ask)) this.#openAsk(ask, turn);
    }
    if (this.#turn === turn && !turn.live) this.#maySuspend();
  }

  #maySuspend(): void {
    const waits = [...this.#open.values()].some((ask) => ask.options.inContext);
    if (!waits) return;
    if (this.#running.size > 0) {
      const { askDelay } = this.#options;
      if (askDelay <= LONGEST_TIMER) this.#delay ??= setTimeout(() => this.#suspend(), askDelay);
      return;
    }
    if (this.#idle()) this.#suspend();
  }

  #suspend(): void {
    if (this.#turn === undefined) return;
    this.#turns += 1;
    this.#end({ kind: 'suspended', checkpoint: this.fold() });
  }

  /** The journal so far, as one record. */
  fold(): Checkpoint {
    const open = [...this.#open.values()].flatMap(({ open: ask }) => (ask === undefined ? [] : [ask]));
    return {
      format: FORMAT,
      call: this.call,
      turn: this.#turns,
      completions: this.#recorded.map(({ completion }) => completion),
      open,
      asked: this.#asked,
      ...(this.#running.size > 0 && { running: [...this.#running] }),
    };
  }

  #end(ending: Ending): void {
    const turn = this.#turn;
    if (ending.kind !== 'suspended') this.#ended = true;
    this.leave();
    turn?.end(ending);
  }

  // --- matching --------------------------------------------------------------------------------------

  /** Fresh attempts take the completions and open asks that are theirs beyond doubt. */
  #matchExactly(): void {
    for (const attempt of this.#fresh) {
      const recorded = this.#recorded.find(
        (candidate) => free(candidate) && isExactly(candidate.completion, attempt),
      );
      if (recorded !== undefined) {
        recorded.attempt = attempt;
        this.#fresh.delete(attempt);
        if (attempt.kind === 'step') this.#subsume(attempt.path);
      } else if (attempt.kind === 'ask') {
        const { question } = attempt;
        const open = this.#unclaimed.find(
          (ask) =>
            classOf(ask.place) === question.class &&
            questionOf(ask.method, ask.params).digest === question.digest,
        );
        if (open !== undefined) this.#reopen(attempt, open);
      }
    }
  }

  /** An ask that is out already keeps its key: the client may be about to answer it. */
  #reopen(attempt: AskAttempt, ask: OpenAsk): void {
    this.#fresh.delete(attempt);
    this.#unclaimed = this.#unclaimed.filter((other) => other !== ask);
    attempt.open = ask;
    this.#open.set(ask.key, attempt);
  }

  /** Whether something recorded has this ask's class, so that it may be the same question in other words. */
  #mayStandFor(attempt: AskAttempt): boolean {
    const { class: wanted } = attempt.question;
    return (
      this.#unclaimed.some((ask) => classOf(ask.place) === wanted) ||
      this.#recorded.some((recorded) => this.#mayChange(recorded, wanted))
    );
  }

  /** At idle: asks in other words take the place of what was asked there before (invariant 5). */
  #matchChanged(): boolean {
    const turn = this.#turn;
    for (const attempt of this.#fresh) {
      if (attempt.kind !== 'ask' || turn === undefined) continue;
      const { question } = attempt;
      const recorded = this.#recorded.find((candidate) => this.#mayChange(candidate, question.class));
      if (recorded?.completion.kind === 'answer') {
        this.#change(attempt, recorded, recorded.completion, turn);
        this.#stir();
        return true;
      }
      const open = this.#unclaimed.find((ask) => classOf(ask.place) === question.class);
      if (open !== undefined) {
        this.#unclaimed = this.#unclaimed.filter((other) => other !== open);
        this.#openAsk(attempt, turn, { place: open.place, drift: open.drift ?? 0 });
        this.#stir();
        return true;
      }
    }
    return false;
  }

  #change(attempt: AskAttempt, recorded: Recorded, answer: AnswerCompletion, turn: Turn): void {
    const { question } = attempt;
    if (answer.method !== question.method) {
      this.#diverge(
        `the tool asks ${question.method} under the key '${question.explicitKey}', which ${answer.method} was asked under`,
      );
      return;
    }
    if (this.#options.drift === 'reuse') {
      this.#fresh.delete(attempt);
      recorded.attempt = attempt;
      return;
    }
    const drift = (answer.drift ?? 0) + 1;
    if (drift > 1 || this.#options.drift === 'fail') {
      this.#end({
        kind: 'broken',
        error: new AwaitError(
          'question-drift',
          `the question at '${answer.place}' reads otherwise each time the tool is run again (a date, a random number?). Give the ask a key (_meta: { 'mcp-await/key': … }) and set drift: 'reuse', or put what varies into a step.`,
        ),
      });
      return;
    }
    recorded.state = 'released';
    this.#openAsk(attempt, turn, { place: answer.place, drift });
  }

  /** Whether a recorded answer may be to a question of this class in other words. */
  #mayChange(recorded: Recorded, group: string): boolean {
    return free(recorded) && hasClass(recorded.completion, group) && this.#isAwaited(recorded);
  }

  /**
   * Whether somebody will ask for a recorded completion: not for the answer to a thrown -32042, which is what
   * lets the tool run again, nor for one whose question was asked again in other words.
   */
  #isAwaited({ completion }: Recorded): boolean {
    if (completion.kind === 'step') return true;
    if (completion.place.startsWith(RERUN)) return false;
    const ofPlace = this.#recorded.filter(
      (other) => other.completion.kind === 'answer' && other.completion.place === completion.place,
    );
    return (
      ofPlace.at(-1)?.completion === completion &&
      !this.#unclaimed.some(({ place }) => place === completion.place)
    );
  }

  #unconsumedSteps(): Recorded[] {
    return this.#recorded.filter(
      ({ completion, state, attempt }) =>
        completion.kind === 'step' && state !== 'released' && attempt === undefined,
    );
  }

  #diverge(attempted: string): void {
    const consumed = this.#recorded.filter(({ state }) => state === 'released').at(-1);
    const left = this.#recorded
      .filter(({ state }) => state !== 'released')
      .map(({ completion }) => nameOf(completion));
    this.#end({
      kind: 'broken',
      error: new AwaitError(
        'divergence',
        `${attempted}, where the journal of call ${this.call.id} (format ${FORMAT}) has ${left.join(', ') || 'nothing'} left; last consumed: ${consumed === undefined ? 'nothing' : nameOf(consumed.completion)}. Was the tool changed while the call was suspended? Keep the names and the order of its steps, or set unknownStep: 'run'.`,
      ),
    });
  }

  #notePlace(place: string): void {
    const group = classOf(place);
    this.#places.set(group, Math.max(this.#places.get(group) ?? 0, nthOf(place)));
  }

  #nextPlace(group: string): number {
    const nth = (this.#places.get(group) ?? 0) + 1;
    this.#places.set(group, nth);
    return nth;
  }
}

/** What an ask gets whose answer came after the `timeout` its author set: the SDK's own time-out error. */
export function timedOut(ask: OpenAsk, timeout: number): AnswerCompletion {
  return answerTo(ask, { error: { code: -32001, message: 'Request timed out', data: { timeout } } });
}

export function answerTo(ask: OpenAsk, response: Response): AnswerCompletion {
  return {
    kind: 'answer',
    place: ask.place,
    key: ask.key,
    method: ask.method,
    question: questionOf(ask.method, ask.params).digest,
    response,
    ...(ask.drift !== undefined && { drift: ask.drift }),
  };
}

function free(recorded: Recorded): boolean {
  return recorded.state !== 'released' && recorded.attempt === undefined;
}

function isExactly(completion: Completion, attempt: AskAttempt | StepAttempt): boolean {
  if (completion.kind === 'step') return attempt.kind === 'step' && completion.path === attempt.path;
  if (attempt.kind === 'step') return false;
  return (
    classOf(completion.place) === attempt.question.class && completion.question === attempt.question.digest
  );
}

function hasClass(completion: Completion, wanted: string): boolean {
  return completion.kind === 'answer' && classOf(completion.place) === wanted;
}

function classOf(place: string): string {
  return place.slice(0, place.lastIndexOf('#'));
}

function nthOf(place: string): number {
  return Number(place.slice(place.lastIndexOf('#') + 1));
}

function nameOf(completion: Completion): string {
  return completion.kind === 'step' ? `step '${completion.path}'` : `the answer to '${completion.key}'`;
}
