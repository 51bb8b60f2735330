/**
 * Takes over a call that continues without its request, once its owner gave no sign of life for a lease; until then it
 * is followed, and its outcome comes from the owner.
 */
import type { QuotaKey } from '../../base/quota.ts';
import { badToken, memoryOf, sleep } from '../../base/values.ts';
import { declinedResponse, isDeclinedRerun } from '../ask/url-elicitation.ts';
import type { CallRecord, Entry } from '../journal/entries.ts';
import type { Folding } from '../journal/fold.ts';
import { follow, wholeOf } from '../journal/follow.ts';
import { RunJournal } from '../journal/run-journal.ts';
import type { CallStore } from '../journal/store.ts';
import { isAppended } from '../journal/writer.ts';
import { bindingOf } from './binding.ts';
import type { Outcome } from './outcome.ts';
import { OUTSIDE } from './outside.ts';
import { replayRefused } from './refusal.ts';
import type { Runs } from './registry.ts';
import type { Instance, RequestContext } from './request-context.ts';
import { type EngineParts, isTask, type Run, runIn, tookOver } from './run.ts';
import type { Rooms } from './turns.ts';
import { wireError } from './wire-error.ts';

export interface TakesOver {
  readonly callId: string;
  /** Whose call it is. */
  readonly caller: QuotaKey;
  readonly context: RequestContext;
  /** Called when the call belongs to this process, before its first message: opens an instance. */
  readonly take: ((call: CallRecord) => Promise<Instance | undefined>) | undefined;
  /** Longest pause between two reads, in milliseconds. */
  readonly pace?: number | undefined;
  /** A position after which its owner wrote nothing for a lease; the call is left alone if it has since. */
  readonly silentAt?: number | undefined;
  /** Called with each entry that is read, in order. */
  readonly seen?: ((at: number, entry: Entry) => void) | undefined;
  /** Appended once the end of the log is reached: a connection that reads the call's reply from there on. */
  readonly reading?: Extract<Entry, { type: 'reading' }> | undefined;
  readonly stopped: () => boolean;
}

type Ready = { readonly run: Run } | { readonly outcome: Outcome };

const GONE: Outcome = { kind: 'gone' };
/** How many leases a request waits for another one of its process that takes the same call over. */
const PATIENCE = 3;

export class TakeOver {
  readonly #parts: EngineParts;
  readonly #runs: Runs;
  readonly #rooms: Rooms;

  constructor(parts: EngineParts, rooms: Rooms) {
    this.#parts = parts;
    this.#runs = rooms.runs;
    this.#rooms = rooms;
  }

  /** Resolves with the run that continues the call here, or with its outcome. */
  async prepare(request: TakesOver): Promise<Ready> {
    const { callId, caller, context, pace, silentAt, stopped, seen } = request;
    const { principal } = caller;
    const { heap } = this.#runs;
    let { reading } = request;
    const pause = (milliseconds: number): Promise<void> => this.#rooms.naps.sleep(callId, milliseconds);
    const { store, clock, limits } = this.#parts;
    if (store === undefined) throw badToken('without a store no call can be taken over');
    for (;;) {
      const lease = silentAt === undefined ? limits.lease : 0;
      const atEnd = async (call: CallRecord, at: number): Promise<boolean> => {
        if (reading === undefined) return false;
        const isRead = await store.insertEntry(call, at + 1, reading);
        if (isRead) reading = undefined;
        return true;
      };
      const found = await follow({
        store,
        clock,
        callId,
        principal,
        lease,
        pace,
        stopped,
        seen,
        atEnd,
        pause,
      });
      if (found.kind === 'stopped') return { outcome: GONE };
      if (found.kind === 'cancelled') return { outcome: { kind: 'gone', elsewhere: true } };
      if (found.kind === 'ended') {
        return { outcome: { kind: 'responded', response: found.response, elsewhere: true } };
      }
      if (found.kind === 'suspended')
        return { outcome: await this.#tokenAt(callId, found.at, caller, context) };
      const { call, at, moved } = found;
      if (call.method === OUTSIDE) throw badToken(`call ${callId} is an ask, which ends with its server`);
      // It would have to be given up at once.
      if (this.#runs.isDue || (silentAt !== undefined && moved > silentAt)) return { outcome: GONE };
      const since = this.#runs.taking.get(callId);
      if (since !== undefined && clock.elapsed() - since < PATIENCE * limits.lease) {
        // For another request of this process.
        await sleep(clock, limits.lease / 4);
        continue;
      }
      const now = clock.elapsed();
      this.#runs.taking.set(callId, now);
      let held = call;
      try {
        const known = await wholeOf(store, call, at);
        const whole = known.call;
        const bytes = memoryOf(whole?.params);
        if (whole !== undefined && heap.has(caller, bytes)) {
          held = whole;
          heap.hold(held, caller, bytes);
          const ready = await this.#claim(request, store, held, known);
          // Otherwise another process took it over, or its owner was only slow: read again.
          if (ready !== undefined) {
            // Its turn holds it from now on.
            if ('run' in ready) held = call;
            return ready;
          }
        } else await sleep(clock, limits.lease / 4);
      } finally {
        heap.leave(held);
        // By then its turn is entered.
        clock.soon(() => {
          if (this.#runs.taking.get(callId) === now) this.#runs.taking.delete(callId);
        });
      }
    }
  }

  /** @returns undefined when another process has the turn */
  async #claim(
    { context, take, seen }: TakesOver,
    store: CallStore,
    call: CallRecord,
    known: Folding,
  ): Promise<Ready | undefined> {
    const { completions, sent } = known;
    const journal = new RunJournal(store.open(call, known.at), call, this.#parts);
    journal.onReceived = (entry) => {
      known.take(entry);
      seen?.(known.at, entry);
    };
    const response = completions.some(isDeclinedRerun)
      ? declinedResponse(call)
      : this.#parts.replay(call, completions) === 'never' && {
          error: wireError(replayRefused({ completions, open: [...known.open.values()] })),
        };
    const claim = { type: 'claimed', answers: [], sent, by: this.#rooms.id } as const;
    if (!(await isAppended(journal, response ? { type: 'ended', response } : claim))) return undefined;
    if (response) return { outcome: { kind: 'responded', response } };
    tookOver(this.#parts, call);
    const kept = await take?.(call);
    const home = kept ?? (await this.#parts.openInstance(call, context));
    const { asked, turn, drawn } = known;
    const from = {
      completions: [...completions],
      open: [...known.open.values()],
      asked,
      turn,
      fresh: known.fresh,
      ...drawn,
    };
    const held = { by: known.detached === undefined ? 'journal' : 'task' } as const;
    const made = { call, binding: bindingOf(call), journal, held };
    const run = runIn(this.#parts, made, context, { home, isKept: kept !== undefined }, from);
    if (isTask(run)) journal.count({ ...run.frame.fold(), open: from.open });
    this.#runs.took(run);
    return { run };
  }

  /** The outcome of a turn that another process suspended; undefined where asks are live. */
  async #tokenAt(
    callId: string,
    at: number,
    { principal }: QuotaKey,
    context: RequestContext,
  ): Promise<Outcome> {
    const entry = await this.#parts.store?.read(callId, at, principal);
    if (context.live || entry?.type !== 'suspended')
      throw badToken(`call ${callId} suspends at its asks: its token continues it`);
    return {
      ...(await this.#rooms.checkpoints.tokenFor(
        entry.checkpoint,
        at,
        bindingOf(entry.checkpoint.call),
        entry.by,
      )),
      elsewhere: true,
    };
  }
}
