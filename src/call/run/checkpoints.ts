/** Writes the end of a turn, and makes the token that continues from there. */
import { defined } from '../../base/values.ts';
import type { Checkpoint, Response } from '../journal/entries.ts';
import { checkSize } from '../journal/run-journal.ts';
import type { OpenJournal } from '../journal/store.ts';
import type { Binding } from './binding.ts';
import type { Handoff } from './handoff.ts';
import type { OpenAskOutcome, Outcome } from './outcome.ts';
import { type AtCheckpoint, type EngineParts, keyOf, type Run } from './run.ts';
import type { TokenState } from './state.ts';

export class Checkpoints {
  readonly #parts: EngineParts;
  readonly #handoff: Handoff | undefined;

  constructor(parts: EngineParts, handoff: Handoff | undefined) {
    this.#parts = parts;
    this.#handoff = handoff;
  }

  /** This process's name, under which others reach its frames; undefined without a relay. */
  get self(): string | undefined {
    return this.#handoff?.listening ? this.#handoff.name : undefined;
  }

  /**
   * Writes a checkpoint at which this process keeps the frame.
   * @param isKept false where the process closes
   * @throws AwaitError `limit` when it is larger than a journal may be, `store`, `fenced`
   */
  async suspend(
    run: Run,
    checkpoint: Checkpoint,
    isKept: boolean,
  ): Promise<{ readonly outcome: Outcome; readonly key: string; readonly waiting: AtCheckpoint }> {
    const bytes = JSON.stringify(checkpoint).length;
    checkSize(run.call.id, bytes, this.#parts.limits.journalBytes);
    const by = isKept ? this.self : undefined;
    const when = this.#parts.clock.now();
    await run.journal.append({ type: 'suspended', checkpoint, when, ...defined({ by }) });
    const state = this.#stateOf(checkpoint, run.journal.position, by, run.isLogged);
    const outcome = await this.#seal(state, checkpoint, run.binding, run.isLogged);
    return { outcome, key: keyOf(state), waiting: { at: 'checkpoint', checkpoint, bytes } };
  }

  /** Writes a checkpoint that no frame waits at. */
  async suspendWithout(journal: OpenJournal, checkpoint: Checkpoint, binding: Binding): Promise<Outcome> {
    await journal.append({ type: 'suspended', checkpoint, when: this.#parts.clock.now() });
    return this.tokenFor(checkpoint, journal.position, binding);
  }

  /** Writes the call's outcome. */
  async endWith(journal: OpenJournal, response: Response): Promise<Outcome> {
    await journal.append({ type: 'ended', response, when: this.#parts.clock.now() });
    return { kind: 'responded', response, isLogged: true };
  }

  /** @param by the process that keeps the frame */
  tokenFor(checkpoint: Checkpoint, at: number, binding: Binding, by?: string): Promise<OpenAskOutcome> {
    return this.#seal(this.#stateOf(checkpoint, at, by), checkpoint, binding);
  }

  /** @param isLogged whether its client reads the log, so that no token is needed */
  #stateOf(checkpoint: Checkpoint, at: number, by: string | undefined, isLogged = false): TokenState {
    return {
      callId: checkpoint.call.id,
      at,
      ...(this.#parts.carry && !isLogged && { checkpoint, mark: crypto.randomUUID() }),
      ...defined({ owner: by }),
    };
  }

  async #seal(
    state: TokenState,
    checkpoint: Checkpoint,
    binding: Binding,
    isLogged = false,
  ): Promise<OpenAskOutcome> {
    if (isLogged) return { kind: 'suspended', asks: checkpoint.open, token: '' };
    const token = await this.#parts.tokens.seal(state, binding, checkpoint.call.expires);
    return { kind: 'suspended', asks: checkpoint.open, token };
  }
}
