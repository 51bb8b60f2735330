/** Runs steps, and records each before its tool continues (invariant 11). */
import { AwaitError, hasCode } from '../../base/values.ts';
import type { StepCompletion } from '../journal/entries.ts';
import type { FrameCore } from './core.ts';
import { type Drawn, isOnce } from './drawn.ts';
import { release, type StepAttempt } from './recording.ts';
import type { RunningSteps } from './steps.ts';

export class StepRunner {
  readonly #core: FrameCore;
  readonly #steps: RunningSteps;
  readonly #drawn: Drawn;
  /** Steps that were started and do not run yet: their call is being stored. */
  #starting = 0;
  /** Finished steps whose entries are being written. */
  #writing = 0;

  constructor(core: FrameCore, steps: RunningSteps, drawn: Drawn) {
    this.#core = core;
    this.#steps = steps;
    this.#drawn = drawn;
  }

  /** Whether a step that is done waits for its entry to be written. */
  get isWriting(): boolean {
    return this.#writing > 0;
  }

  /** Whether a step was started and does not run yet. */
  get isStarting(): boolean {
    return this.#starting > 0;
  }

  /** Whether a step runs, or is done and not yet in the journal. */
  get isBusy(): boolean {
    return this.#steps.running.length > 0 || this.isWriting;
  }

  /** Whether a path is that of a step inside of one that runs. */
  isInsideRunning(path: string): boolean {
    return this.#steps.running.some((outer) => path.startsWith(`${outer}/`));
  }

  /** Starts the fresh steps that are part of a running one, whatever else waits. */
  startInside(): void {
    const { fresh } = this.#core;
    for (const attempt of fresh) {
      if (attempt.kind === 'step' && this.isInsideRunning(attempt.path)) this.start(attempt);
    }
  }

  /**
   * Runs on a step behind the gate to its end, with the steps inside it.
   * @returns whether there may be more to do
   */
  goOnInside(): boolean {
    const { fresh, recording } = this.#core;
    for (const attempt of fresh) {
      if (attempt.kind !== 'step' || !this.isInsideRunning(attempt.path)) continue;
      if (recording.claimExactly(attempt) === undefined) this.start(attempt);
      else fresh.delete(attempt);
    }
    const next = recording.nextInside((path) => this.isInsideRunning(path));
    if (next !== undefined) release(next);
    return next !== undefined;
  }

  start(step: StepAttempt): void {
    this.#core.fresh.delete(step);
    this.#core.recording.unmute();
    this.#steps.begin(step.path);
    this.#starting += 1;
    void this.#run(step).catch((error: unknown) => {
      this.#steps.done(step.path);
      this.#core.end({ kind: 'broken', error: AwaitError.from(error, 'store') });
    });
  }

  async #run(step: StepAttempt): Promise<void> {
    const { journal, gate, options } = this.#core;
    try {
      const begun = journal.store?.();
      if (begun !== undefined) await begun;
      // Values that a step acts on are in the journal before it runs, once another process could run it again.
      const { drawn } = this.#core.turns > 0 && !gate.isEnded ? this.#drawn.takeUnwritten() : {};
      if (drawn !== undefined) await journal.append({ type: 'drawn', drawn });
      // A process that slept may have lost its turn: nothing is done before that is certain (invariant 10).
      while (journal.lapsed && !gate.isEnded) await journal.append({ type: 'held' });
    } finally {
      this.#starting -= 1;
    }
    // Behind a tool that is done, its remaining branches run unrecorded.
    const mayRun = gate.isFinished
      ? isOnce(step.path)
      : !gate.isEnded && (gate.turn !== undefined || this.isInsideRunning(step.path));
    if (!mayRun) {
      // Behind the gate meanwhile.
      this.#steps.done(step.path);
      this.#core.attempt(step);
      return;
    }
    const outcome = await step.run();
    if (gate.isLost) options.doneTwice(step.path);
    await this.#record(step, { kind: 'step', path: step.path, outcome });
    this.#steps.done(step.path);
    if (gate.isFinished && isOnce(step.path)) step.settle(outcome);
    if (!gate.isEnded) this.#core.stir();
  }

  /** Recorded before the tool continues, also while the frame is parked: the step is done. */
  async #record(step: StepAttempt, completion: StepCompletion): Promise<void> {
    const { journal, gate, options } = this.#core;
    if (gate.isEnded) return;
    this.#writing += 1;
    try {
      await journal.append({ type: 'completed', completion }, () => this.#onRecorded(step, completion));
    } catch (error) {
      if (hasCode(error, 'fenced')) options.doneTwice(step.path);
      throw error;
    } finally {
      this.#writing -= 1;
    }
  }

  /**
   * The tool gets the outcome in the order of the journal, as a replay would (invariant 7), except inside of a running
   * step, which waits for it.
   */
  #onRecorded(step: StepAttempt, completion: StepCompletion): void {
    const { gate, recording } = this.#core;
    if (gate.isEnded) return;
    gate.countStep();
    const isInside = this.isInsideRunning(step.path);
    recording.addDone(completion, isInside ? undefined : step);
    if (isInside) step.settle(completion.outcome);
  }
}
