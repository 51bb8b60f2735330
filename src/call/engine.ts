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
import { type Found, readOn } from './contested.ts';
import { addDrawn, type DrawnValues } from './drawn.ts';
import { answerTo, Frame } from './frame.ts';
import type { CallRecord, Checkpoint, Client, Completion, Entry, OpenAsk, Response } from './journal.ts';
import { digest, isObject, type JsonObject } from './json.ts';
import type { Binding, CallStore, Instance, Leg, OpenJournal, Outcome, State } from './ports.ts';
import { declinedResponse, isDeclinedRerun } from './rerun.ts';
import { type Active, type EngineParts, keyOf, type Resume, type Run, Runs, refused } from './runs.ts';

export type { EngineParts } from './runs.ts';

export interface NewCall {
  readonly method: string;
  readonly params: JsonObject;
  readonly requestId: string | number;
  readonly client: Client;
  readonly binding: Binding;
  /** `inputResponses` of a request without `requestState`: used where an ask's explicit key matches. */
  readonly responses?: unknown;
}

/** A call that is being run for a client that may still talk to it. */
export interface Started {
  readonly outcome: Promise<Outcome>;
  /** Live revisions: the client's response to an ask; false when no ask of this key is open. */
  answer(key: string, response: Response): Promise<boolean>;
  /** Ends the call, also while it is suspended. */
  cancel(reason?: string): void;
}

const GONE: Outcome = { kind: 'gone' };
/** How often a request may lose its turn to others before it is told to come again. */
const FENCED_OFTEN = 5;

export class Engine {
  readonly #parts: EngineParts;
  /** This process, in the journals' claims. */
  readonly #id = randomUUID();
  readonly #runs: Runs;

  constructor(parts: EngineParts) {
    this.#parts = parts;
    this.#runs = new Runs(parts);
  }

  /** Frames parked in this process. */
  get parked(): number {
    return this.#runs.parked.size;
  }

  /** Runs a first leg, in `instance` or in one of its own. */
  start(request: NewCall, leg: Leg, instance?: Instance): Started {
    const call = this.#record(request);
    const { store } = this.#parts;
    const journal = store?.open(call, -1) ?? volatileJournal(-1);
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
      if (request.responses !== undefined && !isObject(request.responses)) {
        throw new AwaitError('bad-answer', 'inputResponses must be an object of results by key');
      }
      const home = instance ?? (await this.#parts.openInstance(call, leg));
      const frame = new Frame(call, journal, this.#parts.frame);
      run = { call, binding: request.binding, frame, instance: home, journal };
      if (cancelled) {
        this.#runs.cancel(run);
        return GONE;
      }
      return this.#runs.turn(run, leg, [], true, { responses: request.responses });
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
      answer: async (key, response) => {
        const ask = run?.frame.openAsk(key);
        if (run === undefined || ask === undefined) return false;
        const completion = answerTo(ask, response);
        await run.journal.append({ type: 'completed', completion });
        run.frame.answer(completion);
        return true;
      },
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
      if (this.#runs.closed) throw new AwaitError('closed', 'this handler was closed');
      const state = await this.#parts.tokens.open(token, binding);
      return await this.#join(state, token, binding, responses, leg);
    } catch (error) {
      return this.#runs.failed(undefined, AwaitError.from(error));
    }
  }

  /** Drops what is parked; running turns come to their end. */
  close(): void {
    this.#runs.close();
  }

  // --- who may enter a turn --------------------------------------------------------------------------

  /** The same token with the same answers shares one turn; with others it is refused. */
  async #join(state: State, token: string, binding: Binding, responses: unknown, leg: Leg): Promise<Outcome> {
    const key = keyOf(state);
    const sent = digest(responses ?? null);
    const known = this.#runs.known(key);
    if (known !== undefined && known.sent !== sent) {
      throw new AwaitError('bad-token', `call ${state.callId}: this turn was taken with other answers`);
    }
    if (known !== undefined) return this.#wait(known, leg);
    let leave: (() => void) | undefined;
    let left = false;
    const onRun = (fn: () => void): void => {
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
        .then(() => this.#resume({ state, token, binding, responses, sent, leg, onRun }))
        .catch((error: unknown) => this.#runs.failed(state.callId, AwaitError.from(error)))
        .finally(() => this.#runs.active.delete(key)),
    };
    this.#runs.active.set(key, active);
    return this.#wait(active, leg);
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
        return await this.#tryToResume(request);
      } catch (error) {
        if (!(error instanceof AwaitError) || error.code !== 'fenced' || lost >= FENCED_OFTEN) throw error;
      }
    }
  }

  async #tryToResume(request: Resume): Promise<Outcome> {
    const { state, sent, leg } = request;
    const key = keyOf(state);
    await this.#runs.leaving.get(key);
    const parked = this.#runs.takeParked(key);
    if (parked?.left !== undefined) return this.#goOnWithLeft(parked, request);
    // Out of its place while the claim is written, so that nobody drops it; back there unless it is claimed.
    let unclaimed = parked;
    try {
      const checkpoint = parked?.checkpoint ?? state.checkpoint ?? (await this.#readCheckpoint(state));
      const { limits, now, check, store } = this.#parts;
      const sorted = sortAnswers(checkpoint.open, request.responses, now(), check);
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
      const journal = parked?.journal ?? store?.open(checkpoint.call, state.at) ?? volatileJournal(state.at);
      const never = parked === undefined && this.#parts.replay(checkpoint.call) === 'never';
      if (never && store === undefined) throw replayRefused(checkpoint);
      const mustRead =
        parked === undefined && store !== undefined && (checkpoint.running !== undefined || never);
      // The claim: from here on the turn is this process's, or somebody else's.
      const claim = { type: 'claimed', answers: sorted.accepted, sent, by: this.#id } as const;
      if (mustRead || !(await isAppended(journal, claim))) {
        unclaimed = undefined;
        if (parked !== undefined) this.#runs.drop(parked);
        return await this.#contend(request, checkpoint, claim, sorted, never);
      }
      unclaimed = undefined;
      if (parked !== undefined) return this.#goOnLive(parked, request, checkpoint, sorted);
      const { accepted } = sorted;
      return this.#replay(request, checkpoint, journal, { since: accepted, fresh: accepted.length }, sorted);
    } finally {
      if (unclaimed !== undefined) this.#runs.parked.park(key, unclaimed);
    }
  }

  /** The frame is here, and the turn is claimed. */
  #goOnLive(run: Run, request: Resume, checkpoint: Checkpoint, sorted: Answered): Promise<Outcome> {
    const again = reask(sorted.bad, checkpoint.asked);
    run.frame.rekey(again.byOldKey, again.asked);
    if (sorted.accepted.length === 0 && checkpoint.open.length > 0) {
      const { open } = run.frame.fold();
      return this.#runs.suspend(run, { ...checkpoint, turn: checkpoint.turn + 1, open, asked: again.asked });
    }
    request.onRun(() => this.#runs.leave(run, request));
    return this.#runs.turn(run, request.leg, sorted.accepted, false, { request });
  }

  /** The next position is taken, or may be: what came since decides. */
  async #contend(
    request: Resume,
    checkpoint: Checkpoint,
    claim: Extract<Entry, { type: 'claimed' }>,
    sorted: Answered,
    never: boolean,
  ): Promise<Outcome> {
    const { store } = this.#parts;
    if (store === undefined) throw new AwaitError('internal', 'only a store can be contended for');
    const found = await this.#readOn(store, request, checkpoint);
    if (found.kind === 'ended') return { kind: 'responded', response: found.response };
    if (found.kind === 'suspended') return this.#runs.tokenFor(found.checkpoint, found.at, request.binding);
    if (never) throw replayRefused(checkpoint);
    const journal = store.open(checkpoint.call, found.at);
    await journal.append(claim);
    const since = found.claimed ? found.since : [...found.since, ...sorted.accepted];
    const fresh = found.claimed ? 0 : sorted.accepted.length;
    const { drawn } = found;
    return this.#replay(request, checkpoint, journal, { since, fresh, drawn }, sorted);
  }

  /** Leads a new frame through the journal. */
  async #replay(
    request: Resume,
    checkpoint: Checkpoint,
    journal: OpenJournal,
    { since, fresh, drawn }: { since: readonly Completion[]; fresh: number; drawn?: DrawnValues | undefined },
    sorted: Answered,
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
      this.#runs.parked.park(key, run);
      throw new AwaitError('bad-token', `call ${run.call.id}: this turn was taken with other answers`);
    }
    const claim = { type: 'claimed', answers: [], sent: request.sent, by: this.#id } as const;
    try {
      if (!(await isAppended(run.journal, claim))) {
        this.#runs.drop(run);
        return await this.#resume(request);
      }
    } catch (error) {
      if (run.over === undefined) this.#runs.parked.park(key, run);
      throw error;
    }
    delete run.left;
    request.onRun(() => this.#runs.leave(run, request));
    return this.#runs.turn(run, request.leg, [], false, { request });
  }

  #readOn(store: CallStore, request: Resume, checkpoint: Checkpoint): Promise<Found> {
    const { limits } = this.#parts;
    return readOn({
      store,
      callId: request.state.callId,
      at: request.state.at,
      sent: request.sent,
      abandoned: (by) => by === this.#id,
      running: checkpoint.running?.length ?? 0,
      lease: limits.lease,
      wait: limits.turnWait,
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
    const created = this.#parts.now();
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

function replayRefused({ call, completions }: Checkpoint): AwaitError {
  const done = completions.flatMap((item) => (item.kind === 'step' ? [item.path] : []));
  return new AwaitError(
    'replay-refused',
    `call ${call.id} is not parked here, and the option replay says never; its completed steps: ${done.join(', ') || 'none'}`,
  );
}

/** Where no store is: positions count, nothing is written. */
function volatileJournal(after: number): OpenJournal {
  let position = after;
  return {
    get position() {
      return position;
    },
    append() {
      position += 1;
      return Promise.resolve();
    },
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
