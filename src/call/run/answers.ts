/**
 * What clients send to the asks of a call that is run here: answers, progress, answers that break their schema. Each is
 * in the log before the tool gets it (invariant 11). What another process received is read from there: the relay wakes
 * this one, which also looks now and then while an ask is out.
 */
import { defined } from '../../base/values.ts';
import { answerTo, type OpenAsk, type Response } from '../journal/entries.ts';
import { unlessFenced } from '../journal/writer.ts';
import { Lookout, type Naps } from './lookout.ts';
import type { Ownership } from './ownership.ts';
import type { Runs } from './registry.ts';
import { type EngineParts, isUnattached, type Run } from './run.ts';

export class Answers {
  readonly #parts: EngineParts;
  readonly #runs: Runs;
  readonly #ownership: Ownership;
  readonly lookout: Lookout;
  readonly #naps: Naps;

  constructor(parts: EngineParts, runs: Runs, ownership: Ownership, naps: Naps) {
    this.#parts = parts;
    this.#runs = runs;
    this.#ownership = ownership;
    this.#naps = naps;
    this.lookout = new Lookout(naps, parts.handoff !== undefined);
  }

  /** A response that comes now, as the entry that answers an ask. */
  given(response: Response) {
    const { clock, time } = this.#parts;
    const [when, times] = [clock.now(), defined({ answeredAt: time?.() })];
    return (ask: OpenAsk) =>
      ({ type: 'completed', completion: { ...answerTo(ask, response), ...times }, when }) as const;
  }

  /**
   * Takes an answer to an ask that went out live.
   * @returns false when none of this key waits
   * @throws AwaitError `store`, `fenced`
   */
  async take(run: Run, key: string, response: Response): Promise<boolean> {
    const given = this.given(response);
    const made = () => {
      const ask = run.frame.openAsk(key);
      return ask && given(ask);
    };
    const entry = made();
    if (entry === undefined) return false;
    try {
      return await run.journal.decide(
        () => made() && entry,
        () => run.frame.answer(entry.completion),
      );
    } catch (error) {
      this.#ownership.lost(run, error);
      throw error;
    }
  }

  /** As `take`; false also when the call is another process's by now. */
  taken(run: Run, key: string, response: Response): Promise<boolean> {
    return unlessFenced(this.take(run, key, response));
  }

  /** The answer to an ask broke its schema. @returns false if the next owner must ask anew */
  async refuse(run: Run, key: string): Promise<boolean> {
    if (run.frame.openAsk(key) === undefined) return false;
    return unlessFenced(run.frame.reask(key));
  }

  /**
   * Acts on what other processes receive for a call from now on. Its journal outlives its turn, and must hold nothing of
   * that: not the response.
   */
  receive(run: Run): void {
    run.journal.onReceived = (entry, at) => {
      const { frame, call } = run;
      this.#parts.received?.(call.id, at, entry);
      if (entry.type === 'completed') frame.answer(entry.completion);
      else if (entry.type === 'reported') frame.report(entry.key, entry.params);
      else if (entry.type === 'refused') void frame.reask(entry.key).catch(() => {});
    };
  }

  /** Looks for what other processes receive, while an ask of the run is out. */
  expect(run: Run): void {
    if (!isUnattached(run) || this.#parts.store?.isShared !== true) return;
    this.lookout.expect({
      callId: run.call.id,
      waits: () => run.state.at !== 'over' && run.frame.hasAsks,
      look: () => this.#ownership.look(run),
    });
  }

  /** Something happened to a call at another process: an answer came in, or it was cancelled. */
  wake(callId: string): void {
    if (this.#naps.wake(callId)) return;
    const run = this.#runs.unattached(callId);
    if (run !== undefined) void this.#ownership.look(run);
  }
}
