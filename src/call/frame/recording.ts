/**
 * A call's recorded completions as replay uses them: which is next, which attempt gets it, and which are left over
 * (invariants 5, 7 and 9). It decides, and has no effects.
 */

import { memoryOf } from '../../base/values.ts';
import type { AnswerCompletion, Completion, OpenAsk, Response, StepOutcome } from '../journal/entries.ts';
import { isOnce } from './drawn.ts';
import { classOf, nthOf, type Question } from './place.ts';
import type { AskProgress } from './turn.ts';

/** The prefix of places of asks that come from a thrown -32042. */
export const RERUN = 'rerun:';

/** An ask of the tool that is not settled. */
export interface AskAttempt {
  readonly kind: 'ask';
  readonly question: Question;
  /** How many asks in these very words the tool has made, with this one. */
  readonly nth: number;
  /** Whether it was made in the call's own flow, not by a timer or a listener of the server. */
  readonly inContext: boolean;
  readonly timeout?: number;
  readonly progress?: AskProgress;
  /** Whether the tool gets its answer unchecked, and checks it itself. */
  readonly raw?: true;
  readonly settle: (response: Response, answer?: AnswerCompletion) => void;
  readonly sent?: () => void;
  open?: OpenAsk;
}

/** A step of the tool that is not settled. */
export interface StepAttempt {
  readonly kind: 'step';
  readonly path: string;
  readonly run: () => Promise<StepOutcome>;
  readonly settle: (outcome: StepOutcome) => void;
}

export type Attempt = AskAttempt | StepAttempt;

export interface Recorded {
  readonly completion: Completion;
  /** `waiting` to be released in its order; `skipped` ones are released when they are attempted. */
  state: 'waiting' | 'skipped' | 'released';
  attempt?: Attempt;
}

type RecordedAnswer = Recorded & { readonly completion: AnswerCompletion };

export class Recording {
  readonly #all: Recorded[] = [];
  /** Index of the first completion that may still be waiting. */
  #cursor = 0;
  /** Notifications before the cursor reaches this went out in an earlier turn. */
  readonly #mutedUntil: number;
  /** Whether notifications before the open asks are made again went out already. */
  #mutedByOpen: boolean;
  /** Asks that went out and that the tool has not made again yet. */
  #unclaimed: OpenAsk[];
  /** The highest ordinal of each class. */
  readonly #places = new Map<string, number>();
  /** Asks that the tool has made, by class and words. */
  readonly #made = new Map<string, number>();
  /** Whether the tool has attempted anything. */
  #isReached = false;
  /** The memory of what was cleared. */
  #cleared = 0;

  /** @param fresh how many of the last completions came with the turn that is entered now */
  constructor(completions: readonly Completion[], open: readonly OpenAsk[], fresh: number) {
    this.#unclaimed = [...open];
    for (const completion of completions) {
      this.#all.push({ completion, state: 'waiting' });
      if (completion.kind === 'answer') this.#notePlace(completion.place);
    }
    for (const recorded of this.#all) if (!this.#isAwaited(recorded)) recorded.state = 'skipped';
    for (const { place } of open) this.#notePlace(place);
    // Only notifications after the first fresh completion are new.
    const known = completions.length - fresh;
    this.#mutedUntil = fresh > 0 ? known + 1 : known;
    this.#mutedByOpen = fresh === 0;
  }

  /** Whether notifications are muted: the tool repeats an earlier turn. */
  get muted(): boolean {
    this.head();
    return this.#cursor < this.#mutedUntil || (this.#mutedByOpen && this.#unclaimed.length > 0);
  }

  /** The tool does something new, whatever became of the asks that were out. */
  unmute(): void {
    this.#mutedByOpen = false;
  }

  get completions(): readonly Completion[] {
    return this.#all.map(({ completion }) => completion);
  }

  /** The next completion in the recorded order. */
  head(): Recorded | undefined {
    while (this.#all[this.#cursor] !== undefined && this.#all[this.#cursor]?.state !== 'waiting') {
      this.#cursor += 1;
    }
    return this.#all[this.#cursor];
  }

  /** The completion to release now: the next one, if it is attempted, or a skipped one that is attempted now. */
  next(): Recorded | undefined {
    const head = this.head();
    if (head?.attempt !== undefined) return head;
    return this.#all.find(({ state, attempt }) => state === 'skipped' && attempt !== undefined);
  }

  /** A recorded step that is attempted, and whose path may be released now. */
  nextInside(isInside: (path: string) => boolean): Recorded | undefined {
    return this.#all.find(
      ({ completion, state, attempt }) =>
        state !== 'released' &&
        attempt !== undefined &&
        completion.kind === 'step' &&
        isInside(completion.path),
    );
  }

  /** Whether there is something for the tool to attempt, and it has attempted nothing at all. */
  get isUnreached(): boolean {
    return !this.#isReached && (this.head() !== undefined || this.#unclaimed.length > 0);
  }

  /** Whether some attempt waits for its turn in the recorded order. */
  get awaited(): boolean {
    return this.#all.some(({ attempt }) => attempt !== undefined);
  }

  /** Attempts that wait for their turn in the recorded order. */
  get attempts(): readonly Attempt[] {
    return this.#all.flatMap(({ attempt }) => (attempt === undefined ? [] : [attempt]));
  }

  /** Whether an answer was recorded under this key, or an ask is out under it. */
  hasKey(key: string): boolean {
    return this.isAnswered(key) || this.#unclaimed.some((ask) => ask.key === key);
  }

  isAnswered(key: string): boolean {
    return this.#all.some(({ completion }) => completion.kind === 'answer' && completion.key === key);
  }

  /** Asks that went out, and that the tool has not made again. */
  get unmade(): readonly OpenAsk[] {
    return this.#unclaimed;
  }

  /** The answer to one of them broke its schema: it is asked anew once the tool makes it. */
  refuse(key: string): void {
    this.#unclaimed = this.#unclaimed.map((ask) => (ask.key === key ? { ...ask, refused: true } : ask));
  }

  /** Withdraws them until the tool makes them after all. @returns those that were out */
  withdrawUnmade(): readonly OpenAsk[] {
    const out = this.#unclaimed.filter(({ withdrawn }) => !withdrawn);
    this.#unclaimed = this.#unclaimed.map((ask) => ({ ...ask, withdrawn: true }));
    this.#mutedByOpen = false;
    return out;
  }

  /** Skips the first `count` completions. */
  pass(count: number): void {
    for (const recorded of this.#all.slice(0, count)) {
      recorded.state = 'released';
      const { completion } = recorded;
      if (completion.kind !== 'answer') continue;
      const { question, nth = 0 } = completion;
      const words = wordsOf(classOf(completion.place), question);
      this.#made.set(words, Math.max(this.#made.get(words) ?? 0, nth));
    }
  }

  /** Counts an ask that the tool makes. @returns how many it has made in these very words */
  made({ class: group, digest }: Question): number {
    this.#isReached = true;
    const words = wordsOf(group, digest);
    const nth = (this.#made.get(words) ?? 0) + 1;
    this.#made.set(words, nth);
    return nth;
  }

  /**
   * A step that was run just now.
   * @param attempt is given it in its order, behind answers that came before it; without one it has it already
   */
  addDone(completion: Completion, attempt?: StepAttempt): void {
    this.#all.push(
      attempt === undefined ? { completion, state: 'released' } : { completion, state: 'waiting', attempt },
    );
  }

  /** Adds an answer; without an attempt if the tool gave its ask up. */
  addAnswer(completion: AnswerCompletion, attempt: AskAttempt | undefined): void {
    this.#unclaimed = this.#unclaimed.filter(({ key }) => key !== completion.key);
    this.#all.push(
      attempt === undefined ? { completion, state: 'skipped' } : { completion, state: 'waiting', attempt },
    );
  }

  /** Gives an attempt the completion or the open ask that is its own beyond doubt. */
  claimExactly(attempt: Attempt): 'recorded' | OpenAsk | undefined {
    this.#isReached = true;
    return attempt.kind === 'step' ? this.#claimStep(attempt) : this.#claimAsk(attempt);
  }

  #claimStep(attempt: StepAttempt): 'recorded' | undefined {
    const recorded = this.#all.find(
      (candidate) =>
        isFree(candidate) &&
        candidate.completion.kind === 'step' &&
        candidate.completion.path === attempt.path,
    );
    if (recorded === undefined) return undefined;
    recorded.attempt = attempt;
    // The steps inside of a step that is not run again will not be attempted: they are part of its result.
    for (const inside of this.#all) {
      const { completion } = inside;
      if (completion.kind === 'step' && completion.path.startsWith(`${attempt.path}/`))
        inside.state = 'released';
    }
    return 'recorded';
  }

  /** Matches asks in the same words by their order, also if the tool gave up on an earlier one. */
  #claimAsk(attempt: AskAttempt): 'recorded' | OpenAsk | undefined {
    const { question, nth } = attempt;
    const isIts = (ask: Pick<OpenAsk, 'place' | 'question' | 'nth'>): boolean =>
      classOf(ask.place) === question.class &&
      ask.question === question.digest &&
      (ask.nth === undefined || ask.nth === nth);
    const recorded = this.#all.find(
      (candidate) =>
        isFree(candidate) && candidate.completion.kind === 'answer' && isIts(candidate.completion),
    );
    if (recorded !== undefined) {
      recorded.attempt = attempt;
      return 'recorded';
    }
    return this.#takeOpen(isIts);
  }

  /** Whether something recorded may be the same question in other words. */
  mayStandFor(attempt: AskAttempt): boolean {
    const { question } = attempt;
    return (
      this.changedAnswer(question) !== undefined || this.#unclaimed.some((ask) => isReworded(ask, question))
    );
  }

  /** A recorded answer of this class whose question the tool no longer asks in its words. */
  changedAnswer(question: Question): RecordedAnswer | undefined {
    return this.#all.find(
      (candidate): candidate is RecordedAnswer =>
        isFree(candidate) &&
        candidate.completion.kind === 'answer' &&
        isReworded(candidate.completion, question) &&
        this.#isAwaited(candidate),
    );
  }

  /** Claims the open ask of this class that the tool no longer makes in its words. */
  takeChangedAsk(question: Question): OpenAsk | undefined {
    return this.#takeOpen((ask) => isReworded(ask, question));
  }

  #takeOpen(isIts: (ask: OpenAsk) => boolean): OpenAsk | undefined {
    const open = this.#unclaimed.find(isIts);
    this.#unclaimed = this.#unclaimed.filter((other) => other !== open);
    return open;
  }

  /** Recorded steps without an attempt; a recorded `fetch` without one is not a divergence. */
  unconsumedSteps(): readonly Recorded[] {
    return this.#all.filter((recorded) => isStep(recorded) && isFree(recorded));
  }

  nextPlace(group: string): number {
    const nth = (this.#places.get(group) ?? 0) + 1;
    this.#places.set(group, nth);
    return nth;
  }

  /** For the logger: the completion consumed last, and those left. */
  describe(): { last: string; left: string[] } {
    const last = this.#all.filter(({ state }) => state === 'released').at(-1);
    const left = this.#all
      .filter(({ state }) => state !== 'released')
      .map(({ completion }) => nameOf(completion));
    return { last: last === undefined ? 'nothing' : nameOf(last.completion), left };
  }

  /** Bytes of memory of the answers and step results that the call has recorded. */
  get memory(): number {
    return this.#cleared + memoryOf(this.completions);
  }

  clear(): void {
    this.#cleared = this.memory;
    this.#all.length = 0;
    this.#unclaimed = [];
  }

  /**
   * Whether the tool will attempt a completion: not the answer to a thrown -32042, which lets the tool run again, nor
   * one whose question was asked again in other words.
   */
  #isAwaited({ completion }: Recorded): boolean {
    if (completion.kind === 'step') return true;
    const { place } = completion;
    if (place.startsWith(RERUN) || this.#unclaimed.some((ask) => ask.place === place)) return false;
    const ofPlace = this.#all.filter(
      (other) => other.completion.kind === 'answer' && other.completion.place === place,
    );
    return ofPlace.at(-1)?.completion === completion;
  }

  #notePlace(place: string): void {
    const group = classOf(place);
    this.#places.set(group, Math.max(this.#places.get(group) ?? 0, nthOf(place)));
  }
}

/** Whether it is a step that the tool's author named. */
export function isStep({ completion }: Recorded): boolean {
  return completion.kind === 'step' && !isOnce(completion.path);
}

function isFree(recorded: Recorded): boolean {
  return recorded.state !== 'released' && recorded.attempt === undefined;
}

/** Whether something recorded is of a question's class, in other words. */
function isReworded(
  recorded: Pick<OpenAsk, 'place' | 'question'>,
  { class: group, digest }: Question,
): boolean {
  return classOf(recorded.place) === group && recorded.question !== digest;
}

function wordsOf(group: string, digest: string): string {
  return `${group} ${digest}`;
}

function nameOf(completion: Completion): string {
  return completion.kind === 'step' ? `step '${completion.path}'` : `the answer to '${completion.key}'`;
}

/** Whether it is part of the step of this path. */
export function isInside({ completion }: Recorded, path: string): boolean {
  return completion.kind === 'step' && completion.path.startsWith(`${path}/`);
}

/** Gives an attempt its recorded completion. */
export function release(recorded: Recorded): void {
  const { completion, attempt } = recorded;
  recorded.state = 'released';
  delete recorded.attempt;
  if (completion.kind === 'step') {
    if (attempt?.kind === 'step') attempt.settle(completion.outcome);
  } else if (attempt?.kind === 'ask') {
    attempt.settle(completion.response, completion);
  }
}
