/**
 * The life of a call: started by a first leg, put down when it asks, picked up by whoever gets the next leg.
 *
 * It owns the runs of this process (a frame, the server instance it lives in, its journal), decides who may
 * enter a turn (one winner, by the journal), and writes what came of it before anybody is told (invariants
 * 10 and 11). What happens inside of a turn is the frame's business; what it looks like on a wire, compat's.
 */
import { randomUUID } from 'node:crypto';
import { AwaitError } from '../error.ts';
import { checkGiven, type SchemaCheck, sortAnswers } from './answer.ts';
import { missingCapability } from './capability.ts';
import { type Found, readOn } from './contested.ts';
import { countActiveTurns } from './context.ts';
import { answerTo, type Ending, Frame, type FrameOptions, type Turn } from './frame.ts';
import type {
  AnswerCompletion,
  CallRecord,
  Checkpoint,
  Client,
  Completion,
  OpenAsk,
  Response,
} from './journal.ts';
import { digest, isObject, type JsonObject } from './json.ts';
import type { Limits } from './limits.ts';
import { Parked } from './parked.ts';
import type { Binding, CallStore, Instance, Leg, OpenJournal, Outcome, State, StateTokens } from './ports.ts';
import { RERUN } from './recording.ts';
import { wireError } from './wire-error.ts';

export interface EngineParts {
  readonly store?: CallStore;
  readonly tokens: StateTokens;
  /** Whether tokens carry the checkpoint. */
  readonly carry: boolean;
  readonly check: SchemaCheck;
  readonly frame: FrameOptions;
  readonly limits: Limits;
  /** Lifetime of a call, in milliseconds. */
  readonly ttl: number;
  readonly replay: (call: CallRecord) => 'allow' | 'never';
  readonly onDrop: 'forget' | 'unwind';
  readonly now: () => number;
  readonly log: (level: 'debug' | 'warn' | 'error', message: string, detail: JsonObject) => void;
  /** A fresh instance of the user's server for one call. */
  readonly openInstance: (call: CallRecord, leg: Leg) => Promise<Instance>;
}

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

interface Run {
  readonly call: CallRecord;
  readonly binding: Binding;
  readonly frame: Frame;
  readonly instance: Instance;
  readonly journal: OpenJournal;
  /** The checkpoint it is parked at. */
  checkpoint?: Checkpoint;
  /** Digest of what the client sent whose turn ended without an outcome: only that may go on with it. */
  left?: string;
  /** Set once the call is over for this process. */
  over?: true;
  /** Set while a turn is entered. */
  entered?: true;
}

interface Active {
  readonly sent: string;
  readonly outcome: Promise<Outcome>;
  waiters: number;
  leave?: () => void;
}

const GONE: Outcome = { kind: 'gone' };

export class Engine {
  readonly #parts: EngineParts;
  /** This process, in the journals' claims. */
  readonly #id = randomUUID();
  readonly #parked: Parked<Run>;
  /** Resumed turns that are being run here, by the token's position. */
  readonly #active = new Map<string, Active>();
  /** Turns whose client went away and that are being put down. */
  readonly #leaving = new Map<string, Promise<void>>();
  /** Outcomes of turns that no journal keeps, the newest last. */
  readonly #recent = new Map<string, Active>();
  #closed = false;

  constructor(parts: EngineParts) {
    this.#parts = parts;
    const { limits, now } = parts;
    // A step that is running is recorded before its frame goes.
    const dropped = (run: Run) => void run.frame.settled().then(() => this.#drop(run));
    this.#parked = new Parked(limits.frames, limits.frameIdle, now, dropped);
  }

  /** Frames parked in this process. */
  get parked(): number {
    return this.#parked.size;
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
      if (run !== undefined) this.#cancel(run, reason);
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
        this.#cancel(run);
        return GONE;
      }
      return this.#turn(run, leg, [], true, { responses: request.responses });
    };
    const { signal } = leg;
    const onAbort = (): void => cancel('the client went away');
    signal?.addEventListener('abort', onAbort, { once: true });
    void begin()
      .catch((error: unknown) => this.#failed(call.id, AwaitError.from(error)))
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
      if (this.#closed) throw new AwaitError('closed', 'this handler was closed');
      const state = await this.#parts.tokens.open(token, binding);
      return await this.#join(state, token, binding, responses, leg);
    } catch (error) {
      return this.#failed(undefined, AwaitError.from(error));
    }
  }

  /** Drops what is parked; running turns come to their end. */
  close(): void {
    this.#closed = true;
    this.#parked.dropAll();
  }

  // --- who may enter a turn --------------------------------------------------------------------------

  /** The same token with the same answers shares one turn; with others it is refused. */
  async #join(state: State, token: string, binding: Binding, responses: unknown, leg: Leg): Promise<Outcome> {
    const key = keyOf(state);
    const sent = digest(responses ?? null);
    const known = this.#active.get(key) ?? this.#recent.get(key);
    if (known !== undefined && known.sent !== sent) {
      throw new AwaitError('bad-token', `call ${state.callId}: this turn was taken with other answers`);
    }
    if (known !== undefined) return this.#wait(known, leg);
    let leave: (() => void) | undefined;
    const active: Active = {
      sent,
      waiters: 0,
      leave: () => leave?.(),
      outcome: Promise.resolve()
        .then(() =>
          this.#resume({ state, token, binding, responses, sent, leg, onRun: (fn) => (leave = fn) }),
        )
        .catch((error: unknown) => this.#failed(state.callId, AwaitError.from(error)))
        .finally(() => this.#active.delete(key)),
    };
    this.#active.set(key, active);
    return this.#wait(active, leg);
  }

  /** A client that goes away ends the turn when nobody else waits for it; the token stays good. */
  #wait(active: Active, leg: Leg): Promise<Outcome> {
    const { signal } = leg;
    if (signal === undefined) return active.outcome;
    active.waiters += 1;
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

  async #resume(request: Resume): Promise<Outcome> {
    const { state, sent, leg } = request;
    const key = keyOf(state);
    await this.#leaving.get(key);
    const parked = this.#parked.get(key);
    if (parked?.left !== undefined) return this.#goOnWithLeft(parked, request);
    const checkpoint = parked?.checkpoint ?? state.checkpoint ?? (await this.#readCheckpoint(state));
    const { limits, now, check, store } = this.#parts;
    const sorted = sortAnswers(checkpoint.open, request.responses, now(), check);
    for (const ask of [...sorted.missing, ...sorted.bad]) {
      const required = missingCapability(leg.capabilities, ask.method, ask.params);
      if (required !== undefined) return refused(required, ask.method);
    }
    const nothingNew = sorted.accepted.length === 0 && checkpoint.open.length > 0;
    if (nothingNew && sorted.bad.length === 0)
      return { kind: 'suspended', asks: checkpoint.open, token: request.token };
    if (checkpoint.turn >= limits.rounds)
      throw new AwaitError(
        'limit',
        `call ${state.callId} took ${checkpoint.turn} rounds; raise limits.rounds if that is meant`,
      );
    if (parked === undefined && this.#parts.replay(checkpoint.call) === 'never') {
      throw new AwaitError(
        'divergence',
        `call ${state.callId} is not parked here, and the option replay says never`,
      );
    }

    // The claim: from here on the turn is this process's, or somebody else's.
    const journal = parked?.journal ?? store?.open(checkpoint.call, state.at) ?? volatileJournal(state.at);
    const claim = { type: 'claimed', answers: sorted.accepted, sent, by: this.#id } as const;
    let since: readonly Completion[] = sorted.accepted;
    const mustRead = parked === undefined && checkpoint.running !== undefined && store !== undefined;
    try {
      if (mustRead) throw new AwaitError('fenced', 'a step was running when the asks went out');
      await journal.append(claim);
    } catch (error) {
      if (!(error instanceof AwaitError) || error.code !== 'fenced' || store === undefined) throw error;
      if (parked !== undefined) this.#drop(this.#parked.take(key) ?? parked);
      const found = await this.#readOn(request, checkpoint);
      if (found.kind !== 'free') return this.#told(found, request);
      const later = store.open(checkpoint.call, found.at);
      await later.append(claim);
      since = found.claimed ? found.since : [...found.since, ...sorted.accepted];
      return this.#replay(request, checkpoint, later, since, sorted);
    }
    if (parked === undefined) return this.#replay(request, checkpoint, journal, since, sorted);
    this.#parked.take(key);
    const again = reask(sorted.bad, checkpoint.asked);
    parked.frame.rekey(again.byOldKey, again.asked);
    if (nothingNew)
      return this.#suspend(parked, {
        ...checkpoint,
        turn: checkpoint.turn + 1,
        open: parked.frame.fold().open,
        asked: again.asked,
      });
    request.onRun(() => this.#leave(parked, request));
    return this.#turn(parked, leg, sorted.accepted, false, { request });
  }

  /** Leads a new frame through the journal. */
  async #replay(
    request: Resume,
    checkpoint: Checkpoint,
    journal: OpenJournal,
    since: readonly Completion[],
    sorted: { missing: readonly OpenAsk[]; bad: readonly OpenAsk[]; accepted: readonly AnswerCompletion[] },
  ): Promise<Outcome> {
    const { call } = checkpoint;
    const again = reask(sorted.bad, checkpoint.asked);
    const from: Checkpoint = {
      ...checkpoint,
      completions: [...checkpoint.completions, ...since],
      open: [...sorted.missing, ...again.byOldKey.values()],
      asked: again.asked,
    };
    const declined = since.find((completion) => completion.kind === 'answer' && isDeclinedRerun(completion));
    if (declined !== undefined) return this.#endWith(journal, declinedResponse(call));
    if (sorted.accepted.length === 0 && from.open.length > 0) {
      const next = { ...from, turn: checkpoint.turn + 1 };
      await journal.append({ type: 'suspended', checkpoint: next });
      return this.#suspended(next, journal, request.binding);
    }
    const instance = await this.#parts.openInstance(call, request.leg);
    const fresh = since === sorted.accepted ? since.length : 0;
    const frame = new Frame(call, journal, this.#parts.frame, { ...from, fresh });
    const run: Run = { call, binding: request.binding, frame, instance, journal };
    request.onRun(() => this.#leave(run, request));
    return this.#turn(run, request.leg, [], true, { request });
  }

  /** The turn was left by its client, or its end could not be written; the same client is back. */
  async #goOnWithLeft(run: Run, request: Resume): Promise<Outcome> {
    if (run.left !== request.sent) {
      throw new AwaitError('bad-token', `call ${run.call.id}: this turn was taken with other answers`);
    }
    this.#parked.take(keyOf(request.state));
    try {
      await run.journal.append({ type: 'claimed', answers: [], sent: request.sent, by: this.#id });
    } catch (error) {
      if (!(error instanceof AwaitError) || error.code !== 'fenced') {
        this.#parked.park(keyOf(request.state), run);
        throw error;
      }
      this.#drop(run);
      return this.#resume(request);
    }
    delete run.left;
    request.onRun(() => this.#leave(run, request));
    return this.#turn(run, request.leg, [], false, { request });
  }

  #readOn(request: Resume, checkpoint: Checkpoint): Promise<Found> {
    const { store, limits } = this.#parts;
    if (store === undefined) throw new AwaitError('internal', 'only a store can be read on');
    return readOn({
      store,
      callId: request.state.callId,
      at: request.state.at,
      sent: request.sent,
      abandoned: (by) => by === this.#id,
      running: checkpoint.running?.length ?? 0,
      wait: limits.turnWait,
      signal: request.leg.signal,
    });
  }

  async #told(found: Exclude<Found, { kind: 'free' }>, request: Resume): Promise<Outcome> {
    if (found.kind === 'ended') return { kind: 'responded', response: found.response };
    return this.#tokenFor(found.checkpoint, found.at, request.binding);
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

  // --- a turn ----------------------------------------------------------------------------------------

  #turn(
    run: Run,
    leg: Leg,
    answers: readonly AnswerCompletion[],
    begin: boolean,
    extra: { responses?: unknown; request?: Resume },
  ): Promise<Outcome> {
    return new Promise((resolve) => {
      run.entered = true;
      countActiveTurns(1);
      const end = (ending: Ending): void => {
        this.#turnOver(run);
        this.#ended(run, ending, leg, extra.request).then(resolve, (error: unknown) =>
          resolve(this.#failed(run.call.id, AwaitError.from(error))),
        );
      };
      const turn: Turn = {
        live: leg.live,
        missing: (method, params) => missingCapability(leg.capabilities, method, params),
        given: (ask) => this.#given(ask, extra.responses, end),
        ask: (ask) => leg.ask?.(ask),
        withdraw: (ask) => leg.withdraw?.(ask),
        notify: (notification) => leg.notify(notification),
        end,
      };
      if (!begin) run.instance.refresh(run.frame, leg);
      run.frame.enter(turn, answers);
      if (begin) {
        const { method, params, requestId } = run.call;
        run.instance.call(run.frame, { method, params, id: requestId }, leg);
      }
    });
  }

  #given(ask: OpenAsk, responses: unknown, end: (ending: Ending) => void): Response | undefined {
    if (!isObject(responses) || !Object.hasOwn(responses, ask.key)) return undefined;
    try {
      return checkGiven(ask, responses[ask.key], this.#parts.check);
    } catch (error) {
      end({ kind: 'broken', error: AwaitError.from(error) });
      return undefined;
    }
  }

  async #ended(run: Run, ending: Ending, leg: Leg, request: Resume | undefined): Promise<Outcome> {
    switch (ending.kind) {
      case 'finished': {
        const urls = leg.live ? undefined : urlsNeeded(ending.response);
        if (urls !== undefined) return this.#rerunAfter(run, urls, leg);
        return this.#finished(run, ending.response, request);
      }
      case 'suspended':
        return this.#orLeft(run, request, async () => {
          const outcome = await this.#suspend(run, ending.checkpoint);
          if (request !== undefined) this.#remember(request, outcome);
          return outcome;
        });
      case 'refused':
        this.#over(run, true);
        return refused(ending.required, ending.method);
      case 'broken':
        this.#over(run, true);
        // What a store failed to keep may be tried again from what it kept; all else is the end of the call.
        if (ending.error.code !== 'store' && ending.error.code !== 'fenced' && run.journal.position >= 0) {
          await run.journal.append({ type: 'ended', response: { error: wireError(ending.error) } });
        }
        throw ending.error;
    }
  }

  async #finished(run: Run, response: Response, request: Resume | undefined): Promise<Outcome> {
    if (request === undefined) {
      // Nobody holds a token for this call yet, so nobody can ask for its outcome.
      this.#over(run, false);
      return { kind: 'responded', response };
    }
    return this.#orLeft(
      run,
      request,
      async () => {
        await run.journal.append({ type: 'ended', response });
        this.#over(run, false);
        const outcome: Outcome = { kind: 'responded', response };
        this.#remember(request, outcome);
        return outcome;
      },
      response,
    );
  }

  /** When the end of a turn cannot be written, the run waits here for the same request to come again. */
  async #orLeft(
    run: Run,
    request: Resume | undefined,
    write: () => Promise<Outcome>,
    response?: Response,
  ): Promise<Outcome> {
    try {
      return await write();
    } catch (error) {
      const failure = AwaitError.from(error, 'store');
      if (failure.code === 'store' && request !== undefined) {
        if (response !== undefined) run.frame.hold(response);
        run.left = request.sent;
        this.#parked.park(keyOf(request.state), run);
      } else {
        this.#over(run, response === undefined);
      }
      throw failure;
    }
  }

  async #suspend(run: Run, checkpoint: Checkpoint): Promise<Outcome> {
    const size = JSON.stringify(checkpoint).length;
    if (size > this.#parts.limits.journalBytes) {
      throw new AwaitError(
        'limit',
        `the journal of call ${run.call.id} takes ${size} bytes; return less from its steps, or raise limits.journalBytes`,
      );
    }
    await run.journal.append({ type: 'suspended', checkpoint });
    const outcome = await this.#suspended(checkpoint, run.journal, run.binding);
    if (!this.#closed && !run.over) {
      run.checkpoint = checkpoint;
      this.#parked.park(keyOf({ callId: run.call.id, at: run.journal.position }), run);
    }
    return outcome;
  }

  #suspended(checkpoint: Checkpoint, journal: OpenJournal, binding: Binding): Promise<Outcome> {
    return this.#tokenFor(checkpoint, journal.position, binding);
  }

  async #tokenFor(checkpoint: Checkpoint, at: number, binding: Binding): Promise<Outcome> {
    const { call } = checkpoint;
    const state: State = { callId: call.id, at, ...(this.#parts.carry && { checkpoint }) };
    const token = await this.#parts.tokens.seal(state, binding, call.expires);
    return { kind: 'suspended', asks: checkpoint.open, token };
  }

  async #endWith(journal: OpenJournal, response: Response): Promise<Outcome> {
    await journal.append({ type: 'ended', response });
    return { kind: 'responded', response };
  }

  /** A thrown -32042 becomes the URL asks that it names; the tool is run again when they are answered. */
  async #rerunAfter(run: Run, urls: readonly JsonObject[], leg: Leg): Promise<Outcome> {
    this.#over(run, false);
    const before = run.frame.fold();
    const earlier = before.completions.filter(
      (completion) => completion.kind === 'answer' && completion.place.startsWith(RERUN),
    );
    if (earlier.length >= this.#parts.limits.reruns * urls.length)
      return this.#endWith(run.journal, stillNeeded(run.call, urls));
    const required = missingCapability(leg.capabilities, 'elicitation/create', { mode: 'url' });
    if (required !== undefined) return refused(required, 'elicitation/create');
    const open = urls.map((params, index): OpenAsk => {
      const count = before.asked + index + 1;
      return {
        place: `${RERUN}${digest(params)}#${count}`,
        key: `url-${count}`,
        method: 'elicitation/create',
        params: { ...params, mode: 'url' },
      };
    });
    const checkpoint: Checkpoint = {
      ...before,
      turn: before.turn + 1,
      open,
      asked: before.asked + open.length,
    };
    await run.journal.append({ type: 'suspended', checkpoint });
    return this.#suspended(checkpoint, run.journal, run.binding);
  }

  // --- the ends of a run -----------------------------------------------------------------------------

  #leave(run: Run, request: Resume): void {
    if (run.over || !run.frame.entered) return;
    const key = keyOf(request.state);
    run.frame.leave();
    this.#turnOver(run);
    this.#active.delete(key);
    const leaving = this.#putDown(run, request).finally(() => this.#leaving.delete(key));
    this.#leaving.set(key, leaving);
  }

  /** What is running comes to its end and into the journal; then anybody may go on. */
  async #putDown(run: Run, request: Resume): Promise<void> {
    run.left = request.sent;
    await run.frame.settled();
    try {
      await run.journal.append({ type: 'left' });
      this.#parked.park(keyOf(request.state), run);
    } catch (error) {
      this.#parts.log('warn', 'a turn that its client left could not be put down', {
        call: run.call.id,
        error: String(error),
      });
      this.#drop(run);
    }
  }

  #cancel(run: Run, reason?: string): void {
    if (run.over) return;
    run.instance.cancel(run.frame, reason);
    this.#over(run, true);
  }

  #turnOver(run: Run): void {
    if (run.entered) countActiveTurns(-1);
    delete run.entered;
  }

  #drop(run: Run): void {
    if (run.over) return;
    run.over = true;
    this.#turnOver(run);
    if (this.#parts.onDrop === 'unwind') {
      run.frame.unwind({
        code: -32000,
        message: 'This call goes on elsewhere, or is over; nothing that happens here counts any more.',
      });
    } else {
      run.frame.drop();
    }
    run.instance.release(true);
  }

  #over(run: Run, unfinished: boolean): void {
    if (run.over) return;
    run.over = true;
    this.#turnOver(run);
    if (unfinished) run.frame.drop();
    run.instance.release(unfinished);
  }

  #remember(request: Resume, outcome: Outcome): void {
    if (this.#parts.store !== undefined) return;
    this.#recent.set(keyOf(request.state), {
      sent: request.sent,
      outcome: Promise.resolve(outcome),
      waiters: 0,
    });
    for (const oldest of this.#recent.keys()) {
      if (this.#recent.size <= this.#parts.limits.frames) break;
      this.#recent.delete(oldest);
    }
  }

  #failed(callId: string | undefined, error: AwaitError): Outcome {
    const level = error.code === 'bad-token' || error.code === 'bad-answer' ? 'warn' : 'error';
    this.#parts.log(level, error.message, {
      code: error.code,
      ...(callId !== undefined && { call: callId }),
      ...(error.cause !== undefined && { cause: String(error.cause) }),
    });
    return { kind: 'responded', response: { error: wireError(error) } };
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

interface Resume {
  readonly state: State;
  readonly token: string;
  readonly binding: Binding;
  readonly responses: unknown;
  readonly sent: string;
  readonly leg: Leg;
  /** Tells how to end the turn early, once there is one. */
  readonly onRun: (leave: () => void) => void;
}

function keyOf(state: State): string {
  return `${state.callId}@${state.at}`;
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

function refused(required: JsonObject, method: string): Outcome {
  return {
    kind: 'responded',
    response: {
      error: {
        code: -32021,
        message: `Client does not support ${Object.keys(required).join(', ')} (required for ${method})`,
        data: { requiredCapabilities: required },
      },
    },
  };
}

/** The URLs that a thrown UrlElicitationRequiredError names. */
function urlsNeeded(response: Response): JsonObject[] | undefined {
  if (!('error' in response) || response.error.code !== -32042 || !isObject(response.error.data))
    return undefined;
  const { elicitations } = response.error.data;
  if (!Array.isArray(elicitations)) return undefined;
  const urls = elicitations.filter(
    (item): item is JsonObject => isObject(item) && typeof item.url === 'string',
  );
  return urls.length > 0 ? urls : undefined;
}

function isDeclinedRerun(answer: AnswerCompletion): boolean {
  return (
    answer.place.startsWith(RERUN) &&
    'result' in answer.response &&
    answer.response.result.action !== 'accept'
  );
}

function declinedResponse(call: CallRecord): Response {
  return toolError(call, 'The URL that this needs was not opened: the request was declined.');
}

function stillNeeded(call: CallRecord, urls: readonly JsonObject[]): Response {
  return toolError(
    call,
    `This still needs what is done at: ${urls.map((params) => String(params.url)).join(', ')}`,
  );
}

function toolError(call: CallRecord, text: string): Response {
  if (call.method === 'tools/call') return { result: { content: [{ type: 'text', text }], isError: true } };
  return { error: { code: -32603, message: text } };
}
