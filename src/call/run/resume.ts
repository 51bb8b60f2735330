/**
 * Continues a suspended call: live where its frame is, by handoff, or by replay; and decides which request has the turn
 * (invariant 10: one winner, by the journal).
 */

import { AwaitError, badToken, defined, hasCode, memoryOf, sleep } from '../../base/values.ts';
import { type Answered, sortAnswers } from '../ask/answer.ts';
import { missingCapability } from '../ask/capability.ts';
import { declinedResponse, isDeclinedRerun } from '../ask/url-elicitation.ts';
import { authorsKeyOf, nextKey } from '../frame/place.ts';
import { addDrawn, type DrawnValues } from '../journal/drawn.ts';
import {
  type CallRecord,
  type Checkpoint,
  type Completion,
  type Entry,
  isContinued,
  type OpenAsk,
} from '../journal/entries.ts';
import { type FoundTurn, readOn } from '../journal/follow.ts';
import { RunJournal } from '../journal/run-journal.ts';
import type { CallStore, OpenJournal } from '../journal/store.ts';
import { isAppended, volatileJournal } from '../journal/writer.ts';
import type { Accepted } from './handoff.ts';
import type { Outcome } from './outcome.ts';
import { replayRefused } from './refusal.ts';
import type { Runs } from './registry.ts';
import type { RequestContext } from './request-context.ts';
import { noRoomForCalls } from './room.ts';
import {
  type AtCheckpoint,
  type EngineParts,
  type Interrupted,
  keyOf,
  type Resume,
  type Run,
  runIn,
  tookOver,
} from './run.ts';
import type { Rooms, Turns } from './turns.ts';
import { refused, wireError } from './wire-error.ts';

/** A turn that may begin: its claim, and the state from which the tool continues. */
interface PreparedTurn {
  readonly kind: 'prepared';
  readonly checkpoint: Checkpoint;
  readonly sorted: Answered;
  readonly claim: Extract<Entry, { type: 'claimed' }>;
}

const GONE: Outcome = { kind: 'gone' };
/** How often a request may lose its turn to others before its client is asked to send it again. */
const FENCED_OFTEN = 5;

export class Resumption {
  readonly #parts: EngineParts;
  readonly #runs: Runs;
  readonly #rooms: Rooms;
  readonly #turns: Turns;

  constructor(parts: EngineParts, rooms: Rooms, turns: Turns) {
    this.#parts = parts;
    this.#runs = rooms.runs;
    this.#rooms = rooms;
    this.#turns = turns;
  }

  /**
   * A request that loses a position reads the journal on: to the outcome, or to where the turn is free again. While the
   * store is away it waits with its client, or for as long as the call lives, as one that had its claim written would; a
   * claim that was written is found. A turn that may not be replayed is offered again to the process that has its frame:
   * for a lease, and for as long as that accepts it, since its claim may wait for the store there.
   */
  async resume(request: Resume): Promise<Outcome> {
    const { active } = request;
    const { clock } = this.#parts;
    for (let lost = 0; ; ) {
      try {
        return await this.#tryToResume(request, lost === 0);
      } catch (error) {
        lost += Number(hasCode(error, 'fenced'));
        const isThere = lost === 0 && active.mayBeTaken > clock.elapsed();
        const waits =
          (hasCode(error, 'store') || (isThere && hasCode(error, 'replay-refused'))) &&
          active.isAwaited &&
          !this.#runs.isDue &&
          Number.parseInt(request.state.callId, 36) > clock.now();
        if (!waits && (!hasCode(error, 'fenced') || lost > FENCED_OFTEN)) throw error;
        active.owns = false;
        if (hasCode(error, 'replay-refused')) await sleep(clock, this.#parts.limits.handoffWait);
      }
    }
  }

  /** Live first, handoff second, replay last. */
  async #tryToResume(request: Resume, mayOffer: boolean): Promise<Outcome> {
    const { state, active } = request;
    const { clock, limits } = this.#parts;
    const key = keyOf(state);
    await this.#runs.settled(key);
    const parked = this.#runs.takeParked(key);
    if (parked?.waiting.at === 'interrupted')
      return this.#goOnInterrupted(parked.run, parked.waiting, request);
    if (parked?.waiting.at === 'checkpoint') return this.#goOnParked(parked.run, parked.waiting, request);
    const { owner } = state;
    const { handoff } = this.#rooms;
    if (mayOffer && owner && handoff && owner !== handoff.name && !request.accepted) {
      const accepted = await handoff.offer(owner, request, request.context);
      if (accepted === 'late')
        active.mayBeTaken = Math.min(active.mayBeTaken || Infinity, clock.elapsed() + limits.lease);
      else active.mayBeTaken = accepted ? Infinity : 0;
      if (typeof accepted === 'object') return this.#follow(accepted, request);
    }
    return this.#withCheckpoint(request, (checkpoint) => this.#goOnFromCheckpoint(request, checkpoint));
  }

  /** The start of a turn, or its outcome if the tool need not run. */
  #prepare(request: Resume, checkpoint: Checkpoint): Outcome | PreparedTurn {
    const { state, sent, context } = request;
    const { limits, clock, check } = this.#parts;
    const unfit = refusedAsNoTask(checkpoint.call, context);
    if (unfit !== undefined) return unfit;
    const { responses, errors } = request;
    const isRecorded = isContinued(state.callId);
    const found = sortAnswers(checkpoint.open, responses, clock.now(), check, errors, isRecorded);
    const times = defined({ askedAt: state.askedAt, answeredAt: state.answeredAt });
    const accepted = found.accepted.map((answer) => ({ ...answer, ...times }));
    const sorted = { ...found, accepted };
    // Another request of a call that outlasts its requests may have a client that can be asked.
    for (const ask of isRecorded ? [] : [...sorted.missing, ...sorted.bad]) {
      const required = missingCapability(context.capabilities, ask.method, ask.params);
      if (required !== undefined) return refused(required, ask.method);
    }
    const nothingNew = sorted.accepted.length === 0 && checkpoint.open.length > 0;
    // A call that outlasts its requests goes on also without answers, if its tool did.
    if (nothingNew && sorted.bad.length === 0 && !isRecorded) {
      return { kind: 'suspended', asks: checkpoint.open, token: request.token };
    }
    if (checkpoint.turn >= limits.rounds && !isRecorded) {
      const message = `call ${state.callId} took ${checkpoint.turn} rounds; raise limits.rounds if that is meant`;
      throw new AwaitError('limit', message);
    }
    const claim = { type: 'claimed', answers: sorted.accepted, sent, by: this.#rooms.id } as const;
    return { kind: 'prepared', checkpoint, sorted, claim };
  }

  /** The frame is here. */
  async #goOnParked(run: Run, waiting: AtCheckpoint, request: Resume): Promise<Outcome> {
    // Removed from its place while the claim is written, so that it cannot be dropped; put back unless it is claimed.
    let unclaimed: Run | undefined = run;
    const key = keyOf(request.state);
    const settle = this.#runs.unsettle(key);
    try {
      const prepared = this.#prepare(request, waiting.checkpoint);
      if (prepared.kind !== 'prepared') return prepared;
      request.active.owns = true;
      const isClaimed = await isAppended(run.journal, prepared.claim, () => {
        for (const answer of prepared.claim.answers) run.frame.answer(answer);
      });
      unclaimed = undefined;
      settle();
      // A step that ran on may have failed to be recorded, which ends the frame.
      if (isClaimed && !run.frame.over) {
        const again = reask(prepared.sorted.bad, prepared.checkpoint.asked);
        run.frame.rekey(again.byOldKey, again.asked);
        this.#parts.count('live');
        return await this.#enter(run, request, false);
      }
      this.#runs.drop(run);
      return await this.#contend(request, prepared);
    } finally {
      if (unclaimed !== undefined) this.#runs.park(key, unclaimed, waiting);
      settle();
    }
  }

  /** No frame can be reached. The checkpoint counts with the arguments of running calls until the turn is entered. */
  async #withCheckpoint(
    request: Resume,
    goOn: (checkpoint: Checkpoint) => Promise<Outcome>,
  ): Promise<Outcome> {
    const { heap } = this.#runs;
    const checkpoint = request.state.checkpoint ?? (await this.#readCheckpoint(request));
    const bytes = memoryOf(checkpoint);
    if (!heap.has(request.binding, bytes)) throw noRoomForCalls();
    heap.hold(checkpoint, request.binding, bytes);
    return goOn(checkpoint).finally(() => heap.leave(checkpoint));
  }

  /** Claims the turn and replays the call, or reads on where another process may have the turn. */
  async #goOnFromCheckpoint(request: Resume, from: Checkpoint): Promise<Outcome> {
    const { state } = request;
    const store = this.#storeOf(request);
    const prepared = this.#prepare(request, from);
    if (prepared.kind !== 'prepared') return prepared;
    const { checkpoint, sorted, claim } = prepared;
    const never = this.#parts.replay(checkpoint.call, checkpoint.completions) === 'never';
    if (never && store === undefined) throw replayRefused(checkpoint);
    const mustRead = store !== undefined && (checkpoint.running !== undefined || never);
    const journal = store?.open(checkpoint.call, state.at) ?? volatileJournal(state.at);
    request.active.owns = !mustRead;
    // The claim: from here on the turn belongs to this process, or to another one.
    if (mustRead || !(await isAppended(journal, claim))) return this.#contend(request, prepared);
    const { accepted } = sorted;
    return this.#replay(request, prepared, journal, { since: accepted, fresh: accepted.length });
  }

  /**
   * The turn was accepted where its frame is. Its outcome comes by message or, whatever becomes of that and of
   * its owner, by the journal.
   */
  async #follow(accepted: Accepted, request: Resume): Promise<Outcome> {
    const { clock, limits } = this.#parts;
    const store = this.#storeOf(request);
    let over = false;
    this.#parts.count('handedOff');
    this.#begun(request, () => {
      over = true;
      accepted.leave();
    });
    try {
      const told = accepted.outcome.then((outcome) => ({ kind: 'told', outcome }) as const);
      if (store === undefined) {
        const late = sleep(clock, limits.turnWait).then(() => ({ kind: 'late' }) as const);
        const first = await Promise.race([told, late]);
        if (first.kind === 'told') return first.outcome;
        throw new AwaitError(
          'busy',
          `call ${request.state.callId}: the process that keeps its frame still runs it`,
        );
      }
      // The claim is certain to be there, so steps that run beside the asks do not matter.
      const read = this.#readOn(store, request, undefined, () => over);
      let first = await Promise.race([told, read]);
      if (first.kind === 'ended' || first.kind === 'suspended' || first.kind === 'task') {
        // Notifications come by message alone, and the message with the outcome follows them.
        const late = sleep(clock, limits.handoffWait).then(() => first);
        first = await Promise.race([told, late]);
      }
      if (first.kind === 'told')
        return 'isLogged' in first.outcome ? { ...first.outcome, elsewhere: true } : first.outcome;
      if (over) return GONE;
      return await this.#withCheckpoint(request, async (checkpoint) => {
        const prepared = this.#prepare(request, checkpoint);
        return prepared.kind === 'prepared' ? this.#goOnFrom(store, first, request, prepared) : prepared;
      });
    } finally {
      over = true;
      accepted.forget();
      request.active.release();
    }
  }

  /** The next position is taken, or may be: reads the entries since to decide. */
  async #contend(request: Resume, prepared: PreparedTurn): Promise<Outcome> {
    const store = this.#storeOf(request);
    request.active.owns = false;
    if (store === undefined) throw new AwaitError('internal', 'only a store can have a contested turn');
    const { running = [] } = prepared.checkpoint;
    const found = await this.#readOn(store, request, running, () => false);
    return this.#goOnFrom(store, found, request, prepared);
  }

  /** Continues from the turn's entries in the journal. */
  async #goOnFrom(
    store: CallStore,
    found: FoundTurn,
    request: Resume,
    prepared: PreparedTurn,
  ): Promise<Outcome> {
    const { checkpoint, sorted, claim } = prepared;
    if (found.kind === 'ended') return { kind: 'responded', response: found.response, elsewhere: true };
    if (found.kind === 'task') return { kind: 'task', taskId: checkpoint.call.id };
    if (found.kind === 'suspended') {
      const outcome = await this.#rooms.checkpoints.tokenFor(
        found.checkpoint,
        found.at,
        request.binding,
        found.by,
      );
      return { ...outcome, elsewhere: true };
    }
    const journal = store.open(checkpoint.call, found.at);
    if (this.#parts.replay(checkpoint.call, [...checkpoint.completions, ...found.since]) === 'never') {
      const error = replayRefused(checkpoint, found.since);
      // Its owner died with the frame, and no other process may continue the call.
      if (found.claimed) await journal.append({ type: 'ended', response: { error: wireError(error) } });
      throw error;
    }
    request.active.owns = true;
    await journal.append(claim);
    if (found.claimed) tookOver(this.#parts, checkpoint.call);
    const since = found.claimed ? found.since : [...found.since, ...sorted.accepted];
    const fresh = found.claimed ? 0 : sorted.accepted.length;
    const { drawn } = found;
    return this.#replay(request, prepared, journal, { since, fresh, drawn });
  }

  /** Replays the call in a new frame. */
  async #replay(
    request: Resume,
    { checkpoint, sorted }: PreparedTurn,
    journal: OpenJournal,
    { since, fresh, drawn }: { since: readonly Completion[]; fresh: number; drawn?: DrawnValues | undefined },
  ): Promise<Outcome> {
    // Another try would claim the turn again.
    request.active.begun(() => {});
    // The turn belongs to this process: steps that ran elsewhere beside the asks are recorded by now, or never.
    const { running, ...before } = checkpoint;
    const { call } = before;
    const again = reask(sorted.bad, checkpoint.asked);
    // The claim says which asks are answered: another process may have made it when those that are late now were in time.
    const answered = since.flatMap((done) => (done.kind === 'answer' ? done.key : []));
    const open = checkpoint.open.filter(({ key }) => !answered.includes(key));
    const from: Checkpoint = {
      ...before,
      completions: [...checkpoint.completions, ...since],
      ...addDrawn(checkpoint.drawn, drawn),
      open: open.map((ask) => again.byOldKey.get(ask.key) ?? ask),
      asked: again.asked,
    };
    const declined = since.find(isDeclinedRerun);
    if (declined !== undefined) return this.#rooms.checkpoints.endWith(journal, declinedResponse(call));
    // A tool that raced its asks may have gone on with the steps since.
    if (since.length === 0 && sorted.bad.length > 0) {
      const next = { ...from, turn: checkpoint.turn + 1 };
      return this.#rooms.checkpoints.suspendWithout(journal, next, request.binding);
    }
    this.#parts.count('replayed');
    this.#runs.heap.leave(checkpoint);
    const { context } = request;
    const home = await (context.home?.() ?? this.#parts.openInstance(call, context));
    const { binding } = request;
    const own = new RunJournal(journal, call, this.#parts);
    const made = {
      call,
      binding,
      journal: own,
      held: { by: context.goesOn === true ? 'journal' : 'request' },
    } as const;
    const where = { home, isKept: context.home !== undefined };
    return this.#enter(runIn(this.#parts, made, context, where, { ...from, fresh }), request, true);
  }

  /** Its last turn ended without an outcome; the same client is back. */
  async #goOnInterrupted(run: Run, waiting: Interrupted, request: Resume): Promise<Outcome> {
    const key = keyOf(request.state);
    const unfit = refusedAsNoTask(run.call, request.context);
    if (unfit !== undefined) {
      this.#runs.park(key, run, waiting);
      return unfit;
    }
    if (waiting.sent !== request.sent) {
      this.#runs.park(key, run, waiting);
      throw badToken(`call ${run.call.id}: this turn was claimed with other answers`);
    }
    const claim = { type: 'claimed', answers: [], sent: request.sent, by: this.#rooms.id } as const;
    const settle = this.#runs.unsettle(key);
    let isClaimed = false;
    request.active.owns = true;
    try {
      isClaimed = await isAppended(run.journal, claim);
    } catch (error) {
      this.#runs.park(key, run, waiting);
      throw error;
    } finally {
      settle();
    }
    if (isClaimed && !run.frame.over) return this.#enter(run, request, false);
    request.active.owns = false;
    this.#runs.drop(run);
    return this.resume(request);
  }

  /** Enters a turn whose client can end it early by disconnecting. */
  #enter(run: Run, request: Resume, begin: boolean): Promise<Outcome> {
    this.#begun(request, () => this.#rooms.ownership.disconnect(run, request));
    return this.#turns.enter(run, request.context, { begin, request });
  }

  #begun({ accepted, active }: Resume, disconnect: () => void): void {
    accepted?.();
    active.begun(disconnect);
  }

  #readOn(
    store: CallStore,
    request: Resume,
    running: readonly string[] | undefined,
    stopped: () => boolean,
  ): Promise<FoundTurn> {
    const { limits, clock } = this.#parts;
    const { callId, at } = request.state;
    return readOn({
      store,
      clock,
      callId,
      principal: request.binding.principal,
      at,
      sent: request.sent,
      // A claim of this process that nothing here acts on: its append was said to have failed.
      owns: (by) => (by === this.#rooms.id ? this.#runs.owns(keyOf(request.state), callId) : undefined),
      running,
      lease: limits.lease,
      wait: limits.turnWait,
      stopped,
      seen: (at, entry) => request.context.isLogged && this.#parts.received?.(callId, at, entry),
    });
  }

  /** Where its journal is, if it is anywhere. */
  #storeOf({ context }: Resume): CallStore | undefined {
    const { store, local } = this.#parts;
    return store ?? (context.isLogged ? local : undefined);
  }

  async #readCheckpoint(request: Resume): Promise<Checkpoint> {
    const { state, binding } = request;
    const entry = await this.#storeOf(request)?.read(state.callId, state.at, binding.principal);
    if (entry?.type !== 'suspended') {
      throw badToken(
        `call ${state.callId} has no checkpoint at ${state.at}; it expired, or is in another store`,
      );
    }
    return entry.checkpoint;
  }
}

/** Whether a call that must be a task is refused; its record says so, also in a process that has not seen its tool. */
function refusedAsNoTask(
  { task }: CallRecord,
  { takesTasks, taskRefusal }: RequestContext,
): Outcome | undefined {
  if (task?.always !== true || takesTasks === true || taskRefusal === undefined) return undefined;
  return { kind: 'responded', response: taskRefusal };
}

/** A bad answer is asked again under a new key, so that a repeated bad answer is not taken for the new one. */
function reask(bad: readonly OpenAsk[], asked: number): { byOldKey: Map<string, OpenAsk>; asked: number } {
  const byOldKey = new Map<string, OpenAsk>();
  let count = asked;
  for (const ask of bad) {
    count += 1;
    // Where asks go out together, one that its author named keeps that name.
    const name = ask.name ?? authorsKeyOf(ask.place);
    const key = nextKey(ask.key, count);
    byOldKey.set(ask.key, { ...ask, key, ...defined({ name }) });
  }
  return { byOldKey, asked: count };
}
