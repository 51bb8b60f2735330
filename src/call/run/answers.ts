/** Answers to asks that are out: into the journal of their call, and then to its frame (invariant 11). */
import { answerTo, type Delivered } from '../journal/entries.ts';
import { unlessFenced } from '../journal/writer.ts';
import { Inbox } from './inbox.ts';
import type { Ownership } from './ownership.ts';
import type { Runs } from './registry.ts';
import type { EngineParts, Run } from './run.ts';

export class Answers {
  readonly #parts: EngineParts;
  readonly #runs: Runs;
  readonly #ownership: Ownership;
  /** Answers that other processes received for the calls of this one; undefined without a shared store. */
  readonly inbox: Inbox | undefined;

  constructor(parts: EngineParts, runs: Runs, ownership: Ownership) {
    this.#parts = parts;
    this.#runs = runs;
    this.#ownership = ownership;
    const { store, clock, log } = parts;
    if (store?.isShared) {
      this.inbox = new Inbox(store, clock, (call, error) =>
        log('warn', 'answers that came in elsewhere could not be fetched', { call, error: String(error) }),
      );
    }
  }

  /**
   * Takes an answer to an ask that went out live.
   * @returns false when none of this key waits
   * @throws AwaitError `store`, `fenced`
   */
  async take(run: Run, key: string, response: Delivered): Promise<boolean> {
    try {
      const ask = run.frame.openAsk(key);
      if (ask === undefined || run.answers.has(key)) return false;
      if (response.isBad) return await run.frame.reask(key);
      const when = this.#parts.clock.now();
      await run.answers.write(
        key,
        () => ({ type: 'completed', completion: answerTo(ask, response), when }),
        (entry) => run.journal.append(entry, () => run.frame.answer(entry.completion)),
      );
      return true;
    } catch (error) {
      this.#ownership.lost(run, error);
      throw error;
    }
  }

  /** As `take`; false also when the call is another process's by now. */
  taken(run: Run, key: string, response: Delivered): Promise<boolean> {
    return unlessFenced(this.take(run, key, response));
  }

  /** Looks for an answer that another process takes in. */
  expect(run: Run, key: string): void {
    this.inbox?.expect(
      {
        callId: run.call.id,
        waits: (waiting) => run.state.at !== 'over' && run.frame.openAsk(waiting) !== undefined,
        answer: async (answered, response) => void (await this.take(run, answered, response)),
        listens: (waiting) => run.frame.openAsk(waiting)?.progress !== undefined,
        report: (waiting, params) => void run.frame.report(waiting, params),
      },
      key,
    );
  }

  /** Something happened to a call at another process: an answer came in, or it was cancelled. */
  wake(callId: string): void {
    this.inbox?.wake(callId);
    const run = this.#runs.unattached(callId);
    if (run !== undefined) void this.#ownership.look(run);
  }
}
