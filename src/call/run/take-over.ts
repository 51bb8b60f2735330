/**
 * Takes over a call that continues without its request, once its owner gave no sign of life for a lease; until then it
 * is followed, and its outcome comes from the owner.
 */
import { sleep } from '../../base/clock.ts';
import { AwaitError } from '../../base/error.ts';
import { declinedResponse, isDeclinedRerun } from '../ask/url-elicitation.ts';
import { Frame } from '../frame/frame.ts';
import { type AnswerCompletion, answerTo, type CallRecord, type OpenAsk } from '../journal/entries.ts';
import type { Folding } from '../journal/fold.ts';
import { follow } from '../journal/follow.ts';
import { TaskJournal } from '../journal/measured.ts';
import type { CallStore, OpenJournal } from '../journal/store.ts';
import { isAppended } from '../journal/writer.ts';
import type { Binding } from './binding.ts';
import type { Checkpoints } from './checkpoints.ts';
import type { Instance, Leg } from './leg.ts';
import type { Outcome } from './outcome.ts';
import { replayRefused } from './refusal.ts';
import type { Runs } from './registry.ts';
import { type EngineParts, newRun, type Run } from './run.ts';
import { wireError } from './wire-error.ts';

export interface TakesOver {
  readonly callId: string;
  readonly binding: Binding;
  readonly leg: Leg;
  /** Called when the call belongs to this process, before its first message: opens an instance. */
  readonly take: ((call: CallRecord) => Promise<Instance | undefined>) | undefined;
  /** Longest pause between two reads, in milliseconds. */
  readonly pace: number | undefined;
  /** The position at which its owner was already silent for a lease; the call is left alone if it has moved since. */
  readonly silentAt: number | undefined;
  readonly stopped: () => boolean;
}

const GONE: Outcome = { kind: 'gone' };
/** How many leases a request waits for another one of its process that takes the same call over. */
const PATIENCE = 3;

export class TakeOver {
  readonly #parts: EngineParts;
  readonly #runs: Runs;
  readonly #checkpoints: Checkpoints;
  /** This process, in the journals' claims. */
  readonly #id: string;
  /** Calls from before their claim until their turn is entered, each with when that began. */
  readonly #taking = new Map<string, number>();

  constructor(parts: EngineParts, runs: Runs, checkpoints: Checkpoints, id: string) {
    this.#parts = parts;
    this.#runs = runs;
    this.#checkpoints = checkpoints;
    this.#id = id;
  }

  /** Resolves with the run that continues the call here, or with its outcome. */
  async prepare(request: TakesOver): Promise<{ run: Run } | { outcome: Outcome }> {
    const { callId, binding, leg, pace, silentAt, stopped } = request;
    const { store, clock, limits } = this.#parts;
    if (store === undefined) throw new AwaitError('bad-token', 'without a store no call can be taken over');
    for (;;) {
      const { principal } = binding;
      const lease = silentAt === undefined ? limits.lease : 0;
      const found = await follow({ store, clock, callId, principal, lease, pace, stopped });
      if (found.kind === 'stopped') return { outcome: GONE };
      if (found.kind === 'cancelled') return { outcome: { kind: 'gone', elsewhere: true } };
      if (found.kind === 'ended') {
        return { outcome: { kind: 'responded', response: found.response, elsewhere: true } };
      }
      if (found.kind === 'suspended') return { outcome: await this.#tokenAt(callId, found.at, binding, leg) };
      const { call, known } = found;
      // It would have to be given up at once.
      if (this.#runs.isDue || (silentAt !== undefined && known.at !== silentAt)) return { outcome: GONE };
      const since = this.#taking.get(callId);
      if (since !== undefined && clock.elapsed() - since < PATIENCE * limits.lease) {
        // For another request of this process.
        await sleep(clock, limits.lease / 4);
        continue;
      }
      const now = clock.elapsed();
      this.#taking.set(callId, now);
      try {
        const ready = await this.#claim(request, store, call, known);
        // Another process took it over, or its owner was only slow: read again.
        if (ready !== undefined) return ready;
      } finally {
        // By then its turn is entered.
        clock.soon(() => {
          if (this.#taking.get(callId) === now) this.#taking.delete(callId);
        });
      }
    }
  }

  /** @returns undefined when another process has the turn */
  async #claim(
    { callId, binding, leg, take }: TakesOver,
    store: CallStore,
    call: CallRecord,
    known: Folding,
  ): Promise<{ run: Run } | { outcome: Outcome } | undefined> {
    const { limits, frame: options, replay, count } = this.#parts;
    const { at, completions, sent } = known;
    const journal = new TaskJournal(store.open(call, at), callId, limits.journalBytes);
    const response = completions.some(isDeclinedRerun)
      ? declinedResponse(call)
      : replay(call, completions) === 'never' && {
          error: wireError(replayRefused({ completions, open: [...known.open.values()] })),
        };
    const claim = { type: 'claimed', answers: [], sent, by: this.#id } as const;
    if (!(await isAppended(journal, response ? { type: 'ended', response } : claim))) return undefined;
    if (response) return { outcome: { kind: 'responded', response } };
    count('takenOver');
    const instance = (await take?.(call)) ?? (await this.#parts.openInstance(call, leg));
    const answers = await this.#takeDelivered(store, call, journal, [...known.open.values()]);
    const isAnswered = new Set(answers.map(({ key }) => key));
    const { asked, turn, drawn } = known;
    const from = {
      completions: [...completions, ...answers],
      open: [...known.open.values()].filter(({ key }) => !isAnswered.has(key)),
      asked,
      turn,
      fresh: answers.length,
      ...drawn,
    };
    const frame = new Frame(call, journal, options, from);
    const isTask = known.detached !== undefined;
    if (isTask) journal.count({ ...frame.fold(), open: from.open });
    const held = { by: isTask ? 'task' : 'journal' } as const;
    return { run: newRun({ call, binding, frame, instance, journal, held }) };
  }

  /** Answers that were accepted for a call whose owner died before it fetched them: their asks do not go out again. */
  async #takeDelivered(
    store: CallStore,
    { id }: CallRecord,
    journal: OpenJournal,
    open: readonly OpenAsk[],
  ): Promise<readonly AnswerCompletion[]> {
    const found = await Promise.all(
      open.map(async (ask) => ({ ask, response: await store.delivered(id, ask.key) })),
    );
    const answers = found.flatMap(({ ask, response }) =>
      response === undefined || response.isBad ? [] : [answerTo(ask, response)],
    );
    const when = this.#parts.clock.now();
    for (const completion of answers) await journal.append({ type: 'completed', completion, when });
    return answers;
  }

  /** The outcome of a turn that another process suspended; undefined where asks are live. */
  async #tokenAt(callId: string, at: number, binding: Binding, leg: Leg): Promise<Outcome> {
    const entry = await this.#parts.store?.read(callId, at);
    if (leg.live || entry?.type !== 'suspended')
      throw new AwaitError('bad-token', `call ${callId} suspends at its asks: its token continues it`);
    return {
      ...(await this.#checkpoints.tokenFor(entry.checkpoint, at, binding, entry.by)),
      elsewhere: true,
    };
  }
}
