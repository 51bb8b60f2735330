/** The open asks of a frame: their places and keys, their recipients, and the attempts that get their answers. */
import { AwaitError, type JsonObject } from '../../base/values.ts';
import { type AnswerCompletion, answerTo, type Entry, type OpenAsk, timedOut } from '../journal/entries.ts';
import { openAskOf } from './asks.ts';
import type { FrameCore } from './core.ts';
import { diverged, driftOf } from './drift.ts';
import { nextKey, nthOf, wireKey } from './place.ts';
import type { AskAttempt, Attempt, Recorded } from './recording.ts';
import type { Lack, Turn } from './turn.ts';
import { Deadlines } from './waits.ts';

/** The recorded ask that a fresh one replaces: the same place, in other words. */
interface Instead {
  readonly place: string;
  readonly drift: number;
}

export class OpenAsks {
  readonly #core: FrameCore;
  readonly #isBusy: () => boolean;
  readonly #deadlines: Deadlines;
  readonly #open = new Map<string, AskAttempt>();
  #asked: number;

  /**
   * @param asked how many asks the call made so far
   * @param isBusy whether a step runs, or is not in the journal yet
   */
  constructor(core: FrameCore, asked: number, isBusy: () => boolean) {
    this.#core = core;
    this.#asked = asked;
    this.#isBusy = isBusy;
    this.#deadlines = new Deadlines(core.options.clock);
  }

  /** How many asks the call made. */
  get asked(): number {
    return this.#asked;
  }

  get size(): number {
    return this.#open.size;
  }

  get attempts(): readonly AskAttempt[] {
    return [...this.#open.values()];
  }

  /** The open asks, for a checkpoint. */
  get asks(): readonly OpenAsk[] {
    return this.attempts.flatMap(({ open }) => (open === undefined ? [] : [open]));
  }

  get(key: string): OpenAsk | undefined {
    return this.#open.get(key)?.open;
  }

  clear(): void {
    this.#deadlines.clear();
    this.#open.clear();
  }

  // --- going out ---

  /** Gives a fresh ask its place and key, and sends it where the revision is live. */
  open(attempt: AskAttempt, turn: Turn, instead?: Instead): void {
    const { question } = attempt;
    const { fresh, recording, options, gate } = this.#core;
    if (this.#isBusy() && this.isRefused(attempt, turn)) return;
    fresh.delete(attempt);
    recording.unmute();
    const lack = turn.missing(question.method, question.params);
    if (lack !== undefined) {
      this.#refuse(attempt, turn, lack);
      return;
    }
    const unfit = turn.unfit(question.method, question.params, attempt.raw === true);
    if (unfit !== undefined) {
      attempt.settle(unfit);
      return;
    }
    if (this.#endsTooMany()) return;
    this.#asked += 1;
    const ordinal = instead === undefined ? recording.nextPlace(question.class) : nthOf(instead.place);
    const key = this.#freeKey(wireKey(question, ordinal, this.#asked, instead !== undefined));
    const others = this.asks.map((open) => open.name ?? open.key);
    const { explicitKey = key } = question;
    // An earlier round's key is a tool's to use again, once in a round.
    const isNamed = attempt.raw && explicitKey !== key && !others.includes(explicitKey);
    const named = { key, ...(isNamed && { name: explicitKey }) };
    const ask = openAskOf(attempt, ordinal, named, options.clock.now(), instead?.drift);
    this.#add(attempt, ask);
    const given = question.explicitKey === ask.key ? turn.given(ask) : undefined;
    if (gate.turn !== turn) return;
    if (given !== undefined) {
      this.take(answerTo(ask, given));
      this.#core.stir();
    } else if (turn.live) this.#send(ask, turn);
  }

  /** Sends an earlier ask again: a process that takes a call over cannot know whether the last owner sent it live. */
  openAgain(attempt: AskAttempt, known: OpenAsk, turn: Turn): void {
    const { withdrawn, refused, ...ask } = known;
    this.#add(attempt, ask);
    if (!turn.live) return;
    if (refused) {
      void this.reask(ask.key).catch(() => {});
      return;
    }
    if (withdrawn || turn.asksAgain(ask.key)) this.#send(ask, turn);
    else turn.ask(ask);
    if (withdrawn) return;
    // Reports to the last owner began its time anew, and are not in the journal.
    if (ask.progress?.resets) this.#renew(attempt, ask);
    else this.#armDeadline(ask);
  }

  /** The turn is live from now on. */
  sendAll(turn: Turn): void {
    for (const ask of this.asks) this.#send(ask, turn);
  }

  /** Asks that go out again under a new key, because their answer could not be used. */
  rekey(asks: ReadonlyMap<string, OpenAsk>, asked: number): void {
    this.#asked = asked;
    for (const [old, ask] of asks) {
      const attempt = this.#open.get(old);
      this.#open.delete(old);
      if (attempt !== undefined) this.#add(attempt, ask);
    }
  }

  /**
   * Where asks are live: sends an ask whose answer breaks its schema under a new key (invariant 5). Resolves once that
   * is written; false if the next owner must do it.
   */
  async reask(key: string): Promise<boolean> {
    const { turn } = this.#core.gate;
    const attempt = this.#open.get(key);
    if (attempt === undefined) this.#core.recording.refuse(key);
    if (turn === undefined || attempt?.open === undefined) return false;
    if (this.#endsTooMany()) return true;
    this.#asked += 1;
    const ask = { ...attempt.open, key: this.#freeKey(nextKey(key, this.#asked)) };
    this.#open.delete(key);
    this.#deadlines.disarm(key);
    this.#add(attempt, ask);
    await this.#send(ask, turn);
    return true;
  }

  #add(attempt: AskAttempt, ask: OpenAsk): void {
    attempt.open = ask;
    this.#open.set(ask.key, attempt);
  }

  /** Ends the turn where the call asks too often. @returns whether it did */
  #endsTooMany(): boolean {
    if (this.#asked < this.#core.options.maxAsks) return false;
    const message = `this call asked ${this.#asked} times; raise limits.asks if that is meant`;
    this.#core.end({ kind: 'broken', error: new AwaitError('limit', message) });
    return true;
  }

  /** A tool may give a key that looks like a generated one. */
  #freeKey(key: string): string {
    const isTaken = this.#open.has(key) || this.#core.recording.hasKey(key);
    return isTaken ? `${key}~${this.#asked}` : key;
  }

  /** Once its entry is written (invariant 6). */
  #send(ask: OpenAsk, turn: Turn): Promise<unknown> {
    const when = this.#core.options.clock.now();
    // Its answer may come in first, where the last owner sent it.
    const written = this.#write(this.#unlessAnswered(ask.key, { type: 'asked', ask, when }), () => {
      const attempt = this.#open.get(ask.key);
      if (attempt === undefined) return;
      turn.ask(ask);
      attempt.sent?.();
    });
    this.#armDeadline(ask);
    return written;
  }

  #armDeadline(ask: OpenAsk): void {
    this.#deadlines.arm(ask, (timeout) => this.#isLate(ask, timedOut(ask, timeout)));
  }

  /** Its tool gets a time-out instead of an answer. */
  #isLate(ask: OpenAsk, late: AnswerCompletion): void {
    const { gate, stir } = this.#core;
    if (!this.#open.has(ask.key) || gate.turn === undefined) return;
    gate.turn.withdraw(ask);
    const entry = { type: 'completed', completion: late, isLate: true } as const;
    this.#write(this.#unlessAnswered(ask.key, entry), () => {
      if (gate.isEnded) return;
      this.take(late);
      stir();
    });
  }

  /**
   * The client reports progress on an ask.
   * @returns whether the ask is open, and its tool listens
   */
  report(key: string, params: JsonObject): boolean {
    const attempt = this.#open.get(key);
    if (attempt?.open === undefined || attempt.progress === undefined) return false;
    const { open, progress } = attempt;
    const now = this.#core.options.clock.now();
    const last = open.progress?.last;
    if (last !== undefined && now >= last.at) {
      // Its client reported progress until the time that its author set for all of it.
      const data = { maxTotalTimeout: last.timeout, totalElapsed: now - last.at + last.timeout };
      const error = { code: -32001, message: 'Maximum total timeout exceeded', data };
      this.#isLate(open, answerTo(open, { error }));
      return true;
    }
    if (progress.resets) this.#renew(attempt, open);
    progress.report(params);
    return true;
  }

  /** The time that its author set for an ask begins anew. */
  #renew(attempt: AskAttempt, open: OpenAsk): void {
    const { deadline } = open;
    if (deadline === undefined) return;
    const at = this.#core.options.clock.now() + deadline.timeout;
    attempt.open = { ...open, deadline: { ...deadline, at } };
    this.#deadlines.disarm(open.key);
    this.#armDeadline(attempt.open);
  }

  #unlessAnswered(key: string, entry: Entry): () => Entry | undefined {
    return () => (this.#core.recording.isAnswered(key) ? undefined : entry);
  }

  /** Writes an entry, unless it is settled meanwhile. A failure ends the turn, so callers may ignore it. */
  #write(make: () => Entry | undefined, then: () => void): Promise<unknown> {
    const fail = (error: unknown): void =>
      this.#core.end({ kind: 'broken', error: AwaitError.from(error, 'store') });
    const written = this.#core.journal.decide(make);
    void written.then((isWritten) => isWritten && then(), fail);
    return written;
  }

  // --- not going out ---

  /** Whether an ask ends its turn, since its client cannot be asked. */
  isRefused({ inContext, question }: AskAttempt, turn: Turn): boolean {
    const { method, params } = question;
    return (
      inContext &&
      !turn.live &&
      turn.mustRefuse === true &&
      turn.missing(method, params)?.required !== undefined
    );
  }

  /** In a replay: what the first run refused at once is refused before what is recorded behind, which may follow from it. */
  refuseAgain(attempt: Attempt, turn: Turn): void {
    const { fresh, recording, stir } = this.#core;
    if (attempt.kind !== 'ask' || !attempt.inContext || recording.head() === undefined) return;
    if (this.isRefused(attempt, turn) || recording.mayStandFor(attempt)) return;
    const { method, params } = attempt.question;
    const response =
      turn.missing(method, params)?.response ?? turn.unfit(method, params, attempt.raw === true);
    if (response === undefined) return;
    fresh.delete(attempt);
    attempt.settle(response);
    stir();
  }

  #refuse(attempt: AskAttempt, turn: Turn, { required, response }: Lack): void {
    const { method } = attempt.question;
    if (!attempt.inContext) return;
    if (required !== undefined && this.isRefused(attempt, turn))
      this.#core.end({ kind: 'refused', required, method });
    else attempt.settle(response);
  }

  /** Its tool gives an ask up. @returns whether it was out */
  abandon(attempt: AskAttempt): boolean {
    if (attempt.open === undefined || !this.#open.delete(attempt.open.key)) return false;
    const { turn } = this.#core.gate;
    if (turn !== undefined) this.withdraw(attempt.open, turn);
    return true;
  }

  withdraw(ask: OpenAsk, turn: Turn): void {
    const { key } = ask;
    turn.withdraw(ask);
    if (!turn.live) return;
    const when = this.#core.options.clock.now();
    this.#write(this.#unlessAnswered(key, { type: 'withdrawn', key, when }), () => {});
  }

  // --- answered ---

  /** Puts an answer where it is released from in its order. */
  take(answer: AnswerCompletion): void {
    const attempt = this.#open.get(answer.key);
    this.#open.delete(answer.key);
    this.#deadlines.disarm(answer.key);
    this.#core.recording.addAnswer(answer, attempt);
  }

  /**
   * Matches asks in other words to the recorded asks of their place (invariant 5).
   * @returns whether one was matched
   */
  matchChanged(turn: Turn): boolean {
    const { fresh, recording } = this.#core;
    for (const attempt of fresh) {
      if (attempt.kind !== 'ask') continue;
      const { question } = attempt;
      const answered = recording.changedAnswer(question);
      const open = answered === undefined ? recording.takeChangedAsk(question) : undefined;
      if (answered !== undefined) this.#drift(attempt, answered, answered.completion, turn);
      else if (open !== undefined) this.open(attempt, turn, { place: open.place, drift: open.drift ?? 0 });
      else continue;
      this.#core.stir();
      return true;
    }
    return false;
  }

  #drift(attempt: AskAttempt, recorded: Recorded, answer: AnswerCompletion, turn: Turn): void {
    const { call, options, fresh, recording, end } = this.#core;
    const verdict = driftOf(attempt.question, answer, options.drift);
    if (verdict.kind === 'diverged')
      end({ kind: 'broken', error: diverged(call.id, verdict.attempted, recording.describe()) });
    else if (verdict.kind === 'drifted') end({ kind: 'broken', error: verdict.error });
    else if (verdict.kind === 'reused') {
      fresh.delete(attempt);
      recorded.attempt = attempt;
    } else {
      recorded.state = 'released';
      this.open(attempt, turn, { place: answer.place, drift: verdict.drift });
    }
  }
}
