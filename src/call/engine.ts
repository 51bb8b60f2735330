/**
 * The life of a call: started by a first leg, put down when it asks, picked up by whoever gets the next leg.
 *
 * It decides who may enter a turn (invariant 10: one winner, by the journal) and from what a frame goes on.
 * The runs themselves, and what is written of them, are in `runs.ts`; what happens inside of a turn is the
 * frame's business; what it looks like on a wire, compat's.
 */
import { randomUUID } from 'node:crypto';
import { AwaitError } from '../error.ts';
import { type Answered, sortAnswers } from './answer.ts';
import { missingCapability } from './capability.ts';
import { sleep } from './clock.ts';
import { type Found, readOn } from './contested.ts';
import { addDrawn, type DrawnValues } from './drawn.ts';
import { Frame } from './frame.ts';
import { type Accepted, Handoff, type Offer } from './handoff.ts';
import {
  type CallRecord,
  type Checkpoint,
  type Client,
  type Completion,
  type Entry,
  FORMAT,
  type OpenAsk,
  type Response,
} from './journal.ts';
import { digest, isObject, type JsonObject } from './json.ts';
import type { Binding, CallStore, Instance, Leg, OpenJournal, Outcome, State } from './ports.ts';
import { declinedResponse, isDeclinedRerun } from './rerun.ts';
import { type Active, type EngineParts, keyOf, type Resume, type Run, Runs, refused } from './runs.ts';
import { follow } from './take-up.ts';
import { wireError } from './wire-error.ts';

export type { EngineParts } from './runs.ts';

export interface NewCall {
  readonly method: string;
  readonly params: JsonObject;
  readonly requestId: string | number;
  readonly client: Client;
  readonly binding: Binding;
  /** `inputResponses` of a request without `requestState`: used where an ask's explicit key matches. */
  readonly responses?: unknown;
  /** Whether it goes on without its request: others may follow it, and take it up (`takeUp`). */
  readonly resumable?: boolean;
}

/** A call that is being run for a client that may still talk to it. */
export interface Started {
  readonly outcome: Promise<Outcome>;
  /** Live revisions: the client's response to an ask; false when no ask of this key is open. */
  answer(key: string, response: Response): Promise<boolean>;
  /** Ends the call, also while it is suspended. */
  cancel(reason?: string): void;
}

/** A turn that may begin: what is written first, and from what the tool goes on. */
interface Prepared {
  readonly kind: 'prepared';
  readonly checkpoint: Checkpoint;
  readonly sorted: Answered;
  readonly claim: Extract<Entry, { type: 'claimed' }>;
}

const GONE: Outcome = { kind: 'gone' };
/** How often a request may lose its turn to others before it is told to come again. */
const FENCED_OFTEN = 5;

export class Engine {
  readonly #parts: EngineParts;
  /** This process, in the journals' claims. */
  readonly #id = randomUUID();
  readonly #runs: Runs;
  readonly #handoff: Handoff | undefined;

  constructor(parts: EngineParts) {
    this.#parts = parts;
    const { handoff, clock, limits, log } = parts;
    this.#handoff =
      handoff &&
      new Handoff(handoff, {
        clock,
        wait: limits.handoffWait,
        log,
        accept: (offer, leg, onAccepted) => this.#accept(offer, leg, onAccepted),
        woken: (callId) => this.#runs.wake(callId),
      });
    this.#runs = new Runs(parts, this.#handoff);
  }

  /** Frames parked in this process. */
  get parked(): number {
    return this.#runs.parked.size;
  }

  /** Runs a first leg, in `instance` or in one of its own. */
  start(request: NewCall, leg: Leg, instance?: Instance): Started {
    const call = this.#record(request);
    const { binding, responses, resumable = false } = request;
    this.#parts.count('calls');
    return this.#run(call, leg, async () => {
      if (responses !== undefined && !isObject(responses)) {
        throw new AwaitError('bad-answer', 'inputResponses must be an object of results by key');
      }
      const { store } = this.#parts;
      const journal = store?.open(call, -1) ?? volatileJournal(-1);
      // Whoever takes it up must find it, whatever happens from here on.
      if (resumable && store !== undefined) {
        const by = this.#handoff?.listening ? { by: this.#handoff.name } : {};
        await journal.append({ type: 'called', format: FORMAT, call, ...by });
      }
      const home = instance ?? (await this.#parts.openInstance(call, leg));
      const frame = new Frame(call, journal, this.#parts.frame);
      return { run: { call, binding, frame, instance: home, journal, isResumable: resumable }, responses };
    });
  }

  /**
   * Goes on with a resumable call whose owner was not heard of for a lease; until then, and when it ends
   * before that, the outcome is that owner's. Asks that are open go out again, under their keys.
   *
   * @param open an instance of the user's server, when one is needed
   */
  takeUp(
    callId: string,
    binding: Binding,
    leg: Leg,
    open?: (call: CallRecord) => Promise<Instance>,
  ): Started {
    return this.#run({ id: callId }, leg, async (stopped) => {
      const { store, clock, limits, frame: options, replay, count } = this.#parts;
      if (store === undefined) throw new AwaitError('bad-token', 'without a store no call can be taken up');
      for (;;) {
        const { principal } = binding;
        const found = await follow({ store, clock, callId, principal, lease: limits.lease, stopped });
        if (found.kind === 'stopped') return { outcome: GONE };
        if (found.kind === 'ended') return { outcome: { kind: 'responded', response: found.response } };
        const { call, at, completions } = found;
        if (call.principal !== binding.principal)
          throw new AwaitError('bad-token', 'the call of another caller');
        const journal = store.open(call, at);
        const mayReplay = replay(call) === 'allow';
        const error = wireError(replayRefused({ completions }));
        const claim = { type: 'claimed', answers: [], sent: '', by: this.#id } as const;
        // Somebody else takes it up, or its owner was only slow: look again.
        if (!(await isAppended(journal, mayReplay ? claim : { type: 'ended', response: { error } })))
          continue;
        if (!mayReplay) return { outcome: { kind: 'responded', response: { error } } };
        count('takenOver');
        const instance = await (open?.(call) ?? this.#parts.openInstance(call, leg));
        const frame = new Frame(call, journal, options, { ...found, turn: 0, fresh: 0 });
        return { run: { call, binding, frame, instance, journal, isResumable: true } };
      }
    });
  }

  /**
   * Takes in an answer to an ask of a resumable call, whichever process runs it: it is in the store when this
   * resolves. The first one counts.
   *
   * @throws AwaitError `bad-token` when this caller has no such call
   */
  async deliver(
    callId: string,
    principal: string | undefined,
    key: string,
    response: Response,
  ): Promise<void> {
    const first = await this.#parts.store?.read(callId, 0);
    if (first?.type !== 'called' || first.call.principal !== principal) {
      throw new AwaitError('bad-token', `call ${callId} has no record of this caller's to answer`);
    }
    await this.#parts.store?.deliver(callId, key, response, first.call.expires);
    this.#runs.wake(callId);
    if (first.by !== undefined) await this.#handoff?.wake(first.by, callId);
  }

  /** Runs what `prepare` makes ready, or tells the outcome that it found; either can be cancelled at any time. */
  #run(
    call: { readonly id: string },
    leg: Leg,
    prepare: (stopped: () => boolean) => Promise<{ run: Run; responses?: unknown } | { outcome: Outcome }>,
  ): Started {
    let run: Run | undefined;
    let cancelled = false;
    let tell: (outcome: Outcome) => void = () => {};
    const outcome = new Promise<Outcome>((resolve) => {
      tell = resolve;
    });
    const cancel = (reason?: string): void => {
      cancelled = true;
      if (run !== undefined) this.#runs.cancel(run, reason);
      tell(GONE);
    };
    const begin = async (): Promise<Outcome> => {
      const ready = await prepare(() => cancelled);
      if ('outcome' in ready) return ready.outcome;
      run = ready.run;
      if (!cancelled) return this.#runs.turn(run, leg, [], true, { responses: ready.responses });
      this.#runs.cancel(run);
      return GONE;
    };
    const { signal } = leg;
    const onAbort = (): void => cancel('the client went away');
    signal?.addEventListener('abort', onAbort, { once: true });
    void begin()
      .catch((error: unknown) => this.#runs.failed(call.id, AwaitError.from(error)))
      .then((ended) => {
        // A signal that fires later is about a request that has had its reply.
        signal?.removeEventListener('abort', onAbort);
        tell(ended);
      });
    if (signal?.aborted) onAbort();
    return {
      outcome,
      cancel,
      answer: async (key, response) => run !== undefined && this.#runs.answer(run, key, response),
    };
  }

  /**
   * Goes on with a suspended call.
   *
   * @param responses the client's `inputResponses` as it came
   * @throws nothing: what is wrong is an outcome, in a frozen sentence
   */
  async resume(token: string, binding: Binding, responses: unknown, leg: Leg): Promise<Outcome> {
    try {
      this.#parts.count('resumes');
      if (this.#runs.closed) throw new AwaitError('closed', 'this handler was closed');
      const state = await this.#parts.tokens.open(token, binding);
      return await this.#join({ state, token, binding, responses }, leg);
    } catch (error) {
      return this.#runs.failed(undefined, AwaitError.from(error));
    }
  }

  /**
   * Takes nothing new on; turns that are being run come to their end, or are put down after `limits.drain` for
   * others to take up. What is parked is dropped: its calls go on elsewhere, from the journal.
   */
  async close(): Promise<void> {
    await this.#runs.close(this.#parts.limits.drain);
    await this.#handoff?.close();
  }

  // --- who may enter a turn --------------------------------------------------------------------------

  /** The same token with the same answers shares one turn; with others it is refused. */
  async #join(offer: Offer, leg: Leg, onAccepted?: () => void): Promise<Outcome> {
    const { state } = offer;
    const key = keyOf(state);
    const sent = digest(offer.responses ?? null);
    const known = this.#runs.known(key, sent);
    if (known !== undefined && known.sent !== sent) {
      throw new AwaitError('bad-token', `call ${state.callId}: this turn was taken with other answers`);
    }
    if (known !== undefined) {
      onAccepted?.();
      return this.#wait(known, leg);
    }
    let leave: (() => void) | undefined;
    let left = false;
    const onRun = (fn: () => void): void => {
      onAccepted?.();
      leave = fn;
      // The client may have gone while the turn was being prepared.
      if (left) queueMicrotask(() => active.waiters === 0 && fn());
    };
    const active: Active = {
      sent,
      waiters: 0,
      leave: () => {
        left = true;
        leave?.();
      },
      outcome: Promise.resolve()
        .then(() => this.#resume({ ...offer, sent, leg, onRun, isOffered: onAccepted !== undefined }))
        .catch((error: unknown) => this.#runs.failed(state.callId, AwaitError.from(error)))
        .finally(() => this.#runs.over(key, sent)),
    };
    this.#runs.begin(key, active);
    return this.#wait(active, leg);
  }

  /** Another process offers a POST whose call's frame may be here. */
  #accept(offer: Offer, leg: Leg, onAccepted: () => void): Promise<Outcome> | undefined {
    if (this.#runs.closed || !this.#runs.has(keyOf(offer.state))) return undefined;
    return this.#join(offer, leg, onAccepted).catch((error: unknown) =>
      this.#runs.failed(offer.state.callId, AwaitError.from(error)),
    );
  }

  /** A client that goes away ends the turn when nobody else waits for it; the token stays good. */
  #wait(active: Active, leg: Leg): Promise<Outcome> {
    const { signal } = leg;
    active.waiters += 1;
    if (signal === undefined) return active.outcome;
    return new Promise((resolve) => {
      const onAbort = (): void => {
        active.waiters -= 1;
        if (active.waiters === 0) active.leave?.();
        resolve(GONE);
      };
      if (signal.aborted) {
        onAbort();
        return;
      }
      signal.addEventListener('abort', onAbort, { once: true });
      void active.outcome.then((outcome) => {
        signal.removeEventListener('abort', onAbort);
        resolve(outcome);
      });
    });
  }

  /** Whoever loses a position reads on: to the outcome, or to where the turn is free again. */
  async #resume(request: Resume): Promise<Outcome> {
    for (let lost = 0; ; lost += 1) {
      try {
        return await this.#tryToResume(request, lost === 0);
      } catch (error) {
        if (!(error instanceof AwaitError) || error.code !== 'fenced' || lost >= FENCED_OFTEN) throw error;
      }
    }
  }

  /** Live first, handoff second, replay last. */
  async #tryToResume(request: Resume, mayOffer: boolean): Promise<Outcome> {
    const { state } = request;
    const key = keyOf(state);
    await this.#runs.settled(key);
    const parked = this.#runs.takeParked(key);
    if (parked?.left !== undefined) return this.#goOnWithLeft(parked, request);
    if (parked !== undefined) return this.#goOnParked(parked, request);
    const { owner } = state;
    if (mayOffer && owner !== undefined && !request.isOffered) {
      const accepted = await this.#handoff?.offer(owner, request, request.leg);
      if (accepted !== undefined) return this.#follow(accepted, request);
    }
    return this.#goOnFromJournal(request);
  }

  /** What a turn starts from, or its outcome where nothing of it needs the tool. */
  #prepare(request: Resume, checkpoint: Checkpoint): Outcome | Prepared {
    const { state, sent, leg } = request;
    const { limits, clock, check } = this.#parts;
    const sorted = sortAnswers(checkpoint.open, request.responses, clock.now(), check);
    for (const ask of [...sorted.missing, ...sorted.bad]) {
      const required = missingCapability(leg.capabilities, ask.method, ask.params);
      if (required !== undefined) return refused(required, ask.method);
    }
    const nothingNew = sorted.accepted.length === 0 && checkpoint.open.length > 0;
    if (nothingNew && sorted.bad.length === 0) {
      return { kind: 'suspended', asks: checkpoint.open, token: request.token };
    }
    if (checkpoint.turn >= limits.rounds) {
      const message = `call ${state.callId} took ${checkpoint.turn} rounds; raise limits.rounds if that is meant`;
      throw new AwaitError('limit', message);
    }
    const claim = { type: 'claimed', answers: sorted.accepted, sent, by: this.#id } as const;
    return { kind: 'prepared', checkpoint, sorted, claim };
  }

  /** The frame is here. */
  async #goOnParked(run: Run, request: Resume): Promise<Outcome> {
    const { checkpoint } = run;
    if (checkpoint === undefined) throw new AwaitError('internal', 'a frame is parked without a checkpoint');
    // Out of its place while the claim is written, so that nobody drops it; back there unless it is claimed.
    let unclaimed: Run | undefined = run;
    const key = keyOf(request.state);
    const settle = this.#runs.unsettle(key);
    try {
      const prepared = this.#prepare(request, checkpoint);
      if (prepared.kind !== 'prepared') return prepared;
      const isClaimed = await isAppended(run.journal, prepared.claim);
      unclaimed = undefined;
      settle();
      if (isClaimed) return await this.#goOnLive(run, request, prepared);
      this.#runs.drop(run);
      return await this.#contend(request, prepared);
    } finally {
      if (unclaimed !== undefined) this.#runs.park(key, unclaimed);
      settle();
    }
  }

  /** No frame can be reached: a new one is led through the journal. */
  async #goOnFromJournal(request: Resume): Promise<Outcome> {
    const { state } = request;
    const { store } = this.#parts;
    const prepared = this.#prepare(request, state.checkpoint ?? (await this.#readCheckpoint(state)));
    if (prepared.kind !== 'prepared') return prepared;
    const { checkpoint, sorted, claim } = prepared;
    const never = this.#parts.replay(checkpoint.call) === 'never';
    if (never && store === undefined) throw replayRefused(checkpoint);
    const mustRead = store !== undefined && (checkpoint.running !== undefined || never);
    const journal = store?.open(checkpoint.call, state.at) ?? volatileJournal(state.at);
    // The claim: from here on the turn is this process's, or somebody else's.
    if (mustRead || !(await isAppended(journal, claim))) return this.#contend(request, prepared);
    const { accepted } = sorted;
    return this.#replay(request, prepared, journal, { since: accepted, fresh: accepted.length });
  }

  /**
   * The turn was accepted where its frame is. Its outcome comes by message or, whatever becomes of that and of
   * its owner, by the journal.
   */
  async #follow(accepted: Accepted, request: Resume): Promise<Outcome> {
    const { store, clock, limits } = this.#parts;
    const { state } = request;
    let over = false;
    this.#parts.count('handedOff');
    request.onRun(() => {
      over = true;
      accepted.leave();
    });
    try {
      const told = accepted.outcome.then((outcome) => ({ kind: 'told', outcome }) as const);
      if (store === undefined) {
        const late = sleep(clock, limits.turnWait).then(() => ({ kind: 'late' }) as const);
        const first = await Promise.race([told, late]);
        if (first.kind === 'told') return first.outcome;
        throw new AwaitError('busy', `call ${state.callId}: the process that keeps its frame is still at it`);
      }
      // That a claim is there is certain, so what runs beside the asks does not matter.
      const read = this.#readOn(store, request, undefined, () => over);
      let first = await Promise.race([told, read]);
      if (first.kind === 'ended' || first.kind === 'suspended') {
        // What was said on the way comes by message alone, and the outcome's is behind it.
        const late = sleep(clock, limits.handoffWait).then(() => first);
        first = await Promise.race([told, late]);
      }
      if (first.kind === 'told') return first.outcome;
      if (over) return GONE;
      const prepared = this.#prepare(request, state.checkpoint ?? (await this.#readCheckpoint(state)));
      return prepared.kind === 'prepared' ? await this.#goOnFrom(first, request, prepared) : prepared;
    } finally {
      over = true;
      accepted.forget();
    }
  }

  /** The frame is here, and the turn is claimed. */
  #goOnLive(run: Run, request: Resume, { checkpoint, sorted }: Prepared): Promise<Outcome> {
    const again = reask(sorted.bad, checkpoint.asked);
    run.frame.rekey(again.byOldKey, again.asked);
    if (sorted.accepted.length === 0 && checkpoint.open.length > 0) {
      const { open } = run.frame.fold();
      return this.#runs.suspend(run, { ...checkpoint, turn: checkpoint.turn + 1, open, asked: again.asked });
    }
    request.onRun(() => this.#runs.leave(run, request));
    this.#parts.count('live');
    return this.#runs.turn(run, request.leg, sorted.accepted, false, { request });
  }

  /** The next position is taken, or may be: what came since decides. */
  async #contend(request: Resume, prepared: Prepared): Promise<Outcome> {
    const { store } = this.#parts;
    if (store === undefined) throw new AwaitError('internal', 'only a store can be contended for');
    const { running = [] } = prepared.checkpoint;
    return this.#goOnFrom(await this.#readOn(store, request, running, () => false), request, prepared);
  }

  /** Goes on from what the journal has of the turn. */
  async #goOnFrom(found: Found, request: Resume, prepared: Prepared): Promise<Outcome> {
    const { store, replay } = this.#parts;
    const { checkpoint, sorted, claim } = prepared;
    if (store === undefined) throw new AwaitError('internal', 'a journal was read without a store');
    if (found.kind === 'ended') return { kind: 'responded', response: found.response };
    if (found.kind === 'suspended') {
      return this.#runs.tokenFor(found.checkpoint, found.at, request.binding, found.by);
    }
    const journal = store.open(checkpoint.call, found.at);
    if (replay(checkpoint.call) === 'never') {
      const error = replayRefused(checkpoint, found.since);
      // Its owner is gone with the frame: nobody will ever go on with it.
      if (found.claimed) await journal.append({ type: 'ended', response: { error: wireError(error) } });
      throw error;
    }
    await journal.append(claim);
    if (found.claimed) this.#parts.count('takenOver');
    const since = found.claimed ? found.since : [...found.since, ...sorted.accepted];
    const fresh = found.claimed ? 0 : sorted.accepted.length;
    const { drawn } = found;
    return this.#replay(request, prepared, journal, { since, fresh, drawn });
  }

  /** Leads a new frame through the journal. */
  async #replay(
    request: Resume,
    { checkpoint, sorted }: Prepared,
    journal: OpenJournal,
    { since, fresh, drawn }: { since: readonly Completion[]; fresh: number; drawn?: DrawnValues | undefined },
  ): Promise<Outcome> {
    const { call } = checkpoint;
    const again = reask(sorted.bad, checkpoint.asked);
    const from: Checkpoint = {
      ...checkpoint,
      completions: [...checkpoint.completions, ...since],
      ...addDrawn(checkpoint.drawn, drawn),
      open: [...sorted.missing, ...again.byOldKey.values()],
      asked: again.asked,
    };
    const declined = since.find((completion) => completion.kind === 'answer' && isDeclinedRerun(completion));
    if (declined !== undefined) return this.#runs.endWith(journal, declinedResponse(call));
    if (sorted.accepted.length === 0 && from.open.length > 0) {
      const next = { ...from, turn: checkpoint.turn + 1 };
      return this.#runs.suspendWithout(journal, next, request.binding);
    }
    this.#parts.count('replayed');
    const instance = await this.#parts.openInstance(call, request.leg);
    const frame = new Frame(call, journal, this.#parts.frame, { ...from, fresh });
    const run: Run = { call, binding: request.binding, frame, instance, journal };
    request.onRun(() => this.#runs.leave(run, request));
    return this.#runs.turn(run, request.leg, [], true, { request });
  }

  /** The turn was left by its client, or its end could not be written; the same client is back. */
  async #goOnWithLeft(run: Run, request: Resume): Promise<Outcome> {
    const key = keyOf(request.state);
    if (run.left !== request.sent) {
      this.#runs.park(key, run);
      throw new AwaitError('bad-token', `call ${run.call.id}: this turn was taken with other answers`);
    }
    const claim = { type: 'claimed', answers: [], sent: request.sent, by: this.#id } as const;
    const settle = this.#runs.unsettle(key);
    let isClaimed = false;
    try {
      isClaimed = await isAppended(run.journal, claim);
    } catch (error) {
      this.#runs.park(key, run);
      throw error;
    } finally {
      settle();
    }
    if (!isClaimed) {
      this.#runs.drop(run);
      return this.#resume(request);
    }
    delete run.left;
    request.onRun(() => this.#runs.leave(run, request));
    return this.#runs.turn(run, request.leg, [], false, { request });
  }

  #readOn(
    store: CallStore,
    request: Resume,
    running: readonly string[] | undefined,
    stopped: () => boolean,
  ): Promise<Found> {
    const { limits, clock } = this.#parts;
    return readOn({
      store,
      clock,
      callId: request.state.callId,
      at: request.state.at,
      sent: request.sent,
      abandoned: (by) => by === this.#id,
      running,
      lease: limits.lease,
      wait: limits.turnWait,
      stopped,
    });
  }

  async #readCheckpoint(state: State): Promise<Checkpoint> {
    const entry = await this.#parts.store?.read(state.callId, state.at);
    if (entry?.type !== 'suspended') {
      throw new AwaitError(
        'bad-token',
        `call ${state.callId} has no checkpoint at ${state.at}; it expired, or the token is from another store`,
      );
    }
    return entry.checkpoint;
  }

  #record(request: NewCall): CallRecord {
    const { method, params, requestId, client, binding } = request;
    const created = this.#parts.clock.now();
    const expires = created + this.#parts.ttl;
    return {
      // The id tells when the call expires, so that a sweeper need not read what it deletes.
      id: `${Math.ceil(expires).toString(36)}.${randomUUID()}`,
      method,
      params,
      requestId,
      revision: binding.revision,
      client,
      ...(binding.principal !== undefined && { principal: binding.principal }),
      created,
      expires,
    };
  }
}

/** False when another process has the position. */
async function isAppended(journal: OpenJournal, entry: Entry): Promise<boolean> {
  try {
    await journal.append(entry);
    return true;
  } catch (error) {
    if (error instanceof AwaitError && error.code === 'fenced') return false;
    throw error;
  }
}

function replayRefused(
  { completions }: Pick<Checkpoint, 'completions'>,
  since: readonly Completion[] = [],
): AwaitError {
  const done = [...completions, ...since].flatMap((item) => (item.kind === 'step' ? [item.path] : []));
  return new AwaitError(
    'replay-refused',
    `this call could not be continued: the process that ran it cannot be reached, and it may not be run again from its start. Completed steps: ${done.join(', ') || 'none'}`,
  );
}

/** Where no store is: positions count, nothing is written. */
function volatileJournal(after: number): OpenJournal {
  let position = after;
  return {
    get position() {
      return position;
    },
    lapsed: false,
    append() {
      position += 1;
      return Promise.resolve();
    },
    beat: () => Promise.resolve(),
  };
}

/** A bad answer is asked again under a new key, so that a repeated bad answer is not taken for the new one. */
function reask(bad: readonly OpenAsk[], asked: number): { byOldKey: Map<string, OpenAsk>; asked: number } {
  const byOldKey = new Map<string, OpenAsk>();
  let count = asked;
  for (const ask of bad) {
    count += 1;
    byOldKey.set(ask.key, { ...ask, key: `${ask.key.replace(/~\d+$/, '')}~${count}` });
  }
  return { byOldKey, asked: count };
}
