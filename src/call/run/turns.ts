/**
 * Turns: the inputs of a frame as one is entered, and its outcome as it ends. The outcome is in the journal before a
 * client gets it (invariant 11).
 */

import type { Quota } from '../../base/quota.ts';
import {
  AwaitError,
  callAt,
  defined,
  ELICIT,
  inPlace,
  isObject,
  isUnpassed,
  type JsonObject,
  type Repeating,
  type Timer,
} from '../../base/values.ts';
import { checkGiven, uncheckable } from '../ask/answer.ts';
import { lackOf, missingCapability } from '../ask/capability.ts';
import { askUrls, rerunsOf, stillNeeded, urlsNeeded, withoutUrls } from '../ask/url-elicitation.ts';
import { Frame } from '../frame/frame.ts';
import { isRound, progressOf } from '../frame/rounds.ts';
import type { Detach, Ending, Lack, Turn } from '../frame/turn.ts';
import { CANCELLED, type Checkpoint, isContinued, type OpenAsk, type Response } from '../journal/entries.ts';
import type { Answers } from './answers.ts';
import type { Checkpoints } from './checkpoints.ts';
import type { Handoff } from './handoff.ts';
import type { Naps } from './lookout.ts';
import type { Outcome } from './outcome.ts';
import { interrupted, type Ownership } from './ownership.ts';
import { replayRefused, stepsDone } from './refusal.ts';
import type { Runs } from './registry.ts';
import type { InstanceContext, RequestContext } from './request-context.ts';
import {
  becomingTask,
  type EngineParts,
  isTask,
  isUnattached,
  keyOf,
  quotaKeyOf,
  type Resume,
  type Run,
  wishOf,
} from './run.ts';
import { after, afterTask } from './url-asks.ts';
import { failedWith, INTERNAL, refused, reported, wireError } from './wire-error.ts';

/** What the parts of an engine share. */
export interface Rooms {
  readonly runs: Runs;
  readonly ownership: Ownership;
  readonly naps: Naps;
  readonly answers: Answers;
  readonly checkpoints: Checkpoints;
  readonly handoff: Handoff | undefined;
  /** This process, in the journals' claims. */
  readonly id: string;
}

/** How a turn begins. */
export interface Begins {
  /** Whether its tool is started; else it continues at its asks. */
  readonly begin: boolean;
  /** The client's answers to asks that are not made yet, by their keys. */
  readonly responses?: unknown;
  /** The request that continues the call; absent for its first turn. */
  readonly request?: Resume | undefined;
  /** How long until its tool is started, in milliseconds. */
  readonly pause?: number;
}

/** A turn that was entered, for the code that ends it. */
interface Entered {
  readonly run: Run;
  readonly context: RequestContext;
  readonly request: Resume | undefined;
}

const GONE: Outcome = { kind: 'gone' };
/** Of a call that somebody else ended. */
const ERASED: Outcome = { kind: 'responded', response: CANCELLED };

/** How long before its expiry a live call ends, in milliseconds: its response must be in the store by then. */
export const LAST_WORDS = 1_000;

/** How much longer each pause before a lost call is run again, after the first, and the longest; in milliseconds. */
const [PAUSE, LONGEST] = [2_500, 30_000];

/** Entries of a turn that is refused again and again, after which its call ends: each refusal writes two. */
const MOST_REFUSED = 100;

/** Errors after which the call may go on, here or elsewhere. */
const isPassing = ({ code }: AwaitError): boolean =>
  code === 'store' || code === 'fenced' || code === 'closed';

/** Whether the same request, or an equal call, may go on with a call that was refused. */
const isLeft = ({ run, request }: Entered): boolean => request !== undefined || isContinued(run.call.id);

export class Turns {
  readonly #parts: EngineParts;
  readonly #runs: Runs;
  readonly #ownership: Ownership;
  readonly #turn: RunTurnParts;
  readonly #checkpoints: Checkpoints;

  constructor(parts: EngineParts, { runs, ownership, answers, checkpoints }: Rooms) {
    this.#parts = parts;
    this.#runs = runs;
    this.#ownership = ownership;
    this.#checkpoints = checkpoints;
    this.#turn = { check: parts.check, room: runs.room, answers };
  }

  /** Enters a turn. Rejects when its end could not be written. */
  enter(
    run: Run,
    context: RequestContext,
    { begin, responses, request, pause = 0 }: Begins,
  ): Promise<Outcome> {
    const { room } = this.#runs;
    this.#turn.answers.receive(run);
    return new Promise((resolve, reject) => {
      context.begun?.((reason) => void this.#ownership.cancel(run, reason).catch(() => {}));
      this.#runs.enter(run, {
        at: 'turn',
        live: context.live,
        resolveGone: (isErased) => resolve(isErased ? ERASED : GONE),
        stop: () => this.#stop(run, request, resolve),
        expiry: context.live ? this.#atExpiry(run) : undefined,
      });
      if (request !== undefined || isUnattached(run)) this.#ownership.beat(run);
      if (isTask(run)) room.hold(run, quotaKeyOf(run.call, context));
      let late: Timer | undefined;
      const end = (ending: Ending): void => {
        late?.cancel();
        const ended = this.#left({ run, context, request }, ending);
        this.#runs.ending(run.call.id, ended);
        ended.then(resolve, (error: unknown) => {
          // A task's turn has no waiting request, so its failure is reported here.
          if (isTask(run)) reported(this.#parts, run.call.id, AwaitError.from(error));
          reject(error);
        });
      };
      const onTask = (): void => resolve({ kind: 'task', taskId: run.call.id });
      const detach = this.#detachOf(run, context, onTask);
      if (!begin) run.instance.refresh(run.frame, factsOf(context));
      run.frame.enter(new RunTurn(this.#turn, run, context, responses, end, detach));
      const { frame } = run;
      const start = (): void => {
        delete run.starts;
        const { method, params, requestId } = run.call;
        if (frame.entered) run.instance.call(frame, { method, params, id: requestId }, factsOf(context));
      };
      const wait = (): void => {
        const { clock } = this.#parts;
        // If another process may have taken the call over, an entry decides.
        const due = (): unknown =>
          run.journal.lapsed ? this.#ownership.holds(run).then(start, wait) : start();
        if (frame.entered) run.starts = clock.after(pause, due).unref();
      };
      if (pause > 0) wait();
      else if (begin) start();
      if (isTask(run)) onTask();
      else if (detach !== undefined) {
        late = this.#parts.clock.after(run.call.task?.after ?? 0, () => run.frame.detach()).unref();
      }
    });
  }

  /** The process leaves. Resolves once another process may continue the call. */
  async #stop(run: Run, request: Resume | undefined, resolve: (outcome: Outcome) => void): Promise<void> {
    const error = new AwaitError('closed', 'this handler was closed');
    const closing = (): void => resolve(failedWith(error));
    // Its outcome is about to be written.
    if (run.frame.over) return;
    const becoming = becomingTask(run);
    if (isTask(run) || becoming !== undefined) {
      // Its client gets the task, if it becomes one.
      void becoming?.catch(closing);
      await this.#ownership.abandon(run);
      return;
    }
    if (request !== undefined) this.#ownership.disconnect(run, request);
    else if (isUnattached(run)) {
      // Its client comes back for the rest: so it has an id to come back with first, and others can find the call.
      await run.journal.begin()?.catch(() => {});
      if (run.state.at === 'turn') await this.#ownership.abandon(run);
    } else {
      // No client can continue it: one that sends its request again begins a call anew.
      const { completions, running = [] } = run.frame.fold();
      error.steps = [...stepsDone(completions), ...running.map((path) => `${path} (begun)`)];
      this.#runs.drop(run);
    }
    closing();
  }

  /** Ends a call whose client waits on a stream, while the stream can still have the response. */
  #atExpiry(run: Run): Repeating {
    const { id, created, expires } = run.call;
    const until = expires - Math.min(LAST_WORDS, (expires - created) / 10);
    return callAt(this.#parts.clock, until, () =>
      run.frame.break(new AwaitError('expired', `call ${id} was not over before its time to live was`)),
    );
  }

  // --- becoming a task ---

  #detachOf(run: Run, context: RequestContext, onTask: () => void): Detach | undefined {
    const task = wishOf(run, context);
    if (task === undefined || this.#parts.store === undefined) return undefined;
    return {
      atStep: task.when === 'after-asks',
      lastTurn: task.rounds,
      run: () => this.#becomeTask(run, context).then(onTask),
    };
  }

  /** Resolves once the entry is written. A turn that ends meanwhile waits for that. */
  #becomeTask(run: Run, context: RequestContext): Promise<void> {
    const { held } = run;
    if (held.by === 'task') return Promise.resolve();
    if ('becomesTask' in held) return held.becomesTask;
    this.#runs.room.hold(run, quotaKeyOf(run.call, context));
    const written = this.#writeTask(run).then(
      () => {
        run.held = { by: 'task' };
      },
      (error: unknown) => {
        run.held = held;
        this.#runs.room.leave(run);
        throw error;
      },
    );
    run.held = { by: held.by, becomesTask: written };
    return written;
  }

  async #writeTask(run: Run): Promise<void> {
    const when = this.#parts.clock.now();
    await run.journal.append({ type: 'detached', when, ...defined({ by: this.#checkpoints.self }) });
    if (run.state.at === 'over') return;
    run.journal.count(run.frame.fold());
    this.#runs.goesOn(run);
    this.#ownership.beat(run);
    await this.#parts.began?.(run.call);
  }

  // --- the end of a turn ---

  /** A long outcome waits for a place: what tools return in one moment is unbounded. */
  #left(entered: Entered, ending: Ending): Promise<Outcome> {
    const { call, journal } = entered.run;
    if (ending.kind !== 'finished' || urlsNeeded(ending.response)) return this.#ended(entered, ending);
    const isStored = (): boolean => !journal.end();
    return inPlace(ending.response, call.principal, isStored, (response) =>
      this.#ended(entered, { kind: 'finished', response }),
    );
  }

  #ended(entered: Entered, ending: Ending): Promise<Outcome> {
    const { run, request } = entered;
    this.#runs.leaveTurn(run);
    switch (ending.kind) {
      case 'finished':
        return this.#finished(entered, ending.response);
      case 'suspended':
        return this.#orInterrupted(run, request, async () => {
          const { isShed, checkpoint } = ending;
          const outcome = await (isShed
            ? this.#checkpoints.suspendWithout(run.journal, checkpoint, run.binding)
            : this.#suspend(run, checkpoint));
          // Given up to the process that gets its client's next request.
          if (isShed) {
            this.#runs.end(run, true, true);
            this.#parts.count('shed');
          }
          if (request !== undefined) this.#runs.remember(request, outcome);
          return outcome;
        });
      case 'refused':
        this.#runs.end(run, true);
        return Promise.resolve(refused(ending.required, ending.method));
      case 'lost':
        return this.#runAgain(entered, ending);
      case 'broken':
        return this.#broken(entered, ending.error);
    }
  }

  /** @throws AwaitError the one that ended the turn */
  async #broken({ run, request }: Entered, error: AwaitError): Promise<Outcome> {
    // A request with a token continues the call where a failure of the store does not end it.
    if (request === undefined || !isPassing(error)) error.steps = stepsDone(run.frame.fold().completions);
    this.#runs.end(run, true, isPassing(error) || error.code === 'fenced');
    // After a failure of the store the turn may be tried again from the journal; other failures end the call.
    if (!isPassing(error)) await this.#endFailed(run, error);
    const cancelled = error.code === 'fenced' ? await this.#ownership.cancellation(run) : undefined;
    if (cancelled !== undefined) return cancelled.isErased ? ERASED : GONE;
    throw error;
  }

  /** The server that ran the tool has ended: replays the call in a new frame, if it may be replayed. */
  async #runAgain(
    entered: Entered,
    { error, isMeant }: Omit<Extract<Ending, { kind: 'lost' }>, 'kind'>,
    isUntaken = false,
  ): Promise<Outcome> {
    const { run, context, request } = entered;
    if (run.state.at === 'over') return GONE;
    const { replay, limits, frame: options, log } = this.#parts;
    const before = after(run.frame);
    const recorded = progressOf(before.completions);
    const times = run.lost?.recorded === recorded ? run.lost.times : 0;
    if (replay(run.call, before.completions) === 'never') return this.#broken(entered, replayRefused(before));
    // A task that its server did not get waits for it for as long as it lives.
    if (!isMeant && times >= limits.reruns && !(isUntaken && isTask(run))) {
      // Its request, or an equal call, goes on with it, once there is a server.
      const stays = isLeft(entered) && this.#hasRoom(entered);
      return stays ? this.#leave(run, { error: wireError(error) }) : this.#broken(entered, error);
    }
    log('debug', 'a call is run again, since its server is gone', {
      call: run.call.id,
      reason: error.message,
    });
    run.lost = { times: isMeant ? times : times + 1, recorded };
    this.#parts.count('replayed');
    run.frame = new Frame(run.call, run.journal, options, before);
    const pause = isMeant ? 0 : Math.min(times * PAUSE, LONGEST);
    const outcome = this.enter(run, context, { begin: true, request, pause });
    if (pause > 0 && isTask(run) && this.#runs.isLeaving) void this.#ownership.abandon(run);
    return outcome;
  }

  /**
   * The server here does not have the tool, or does not accept the call's arguments. The client gets its error, and the
   * call stays open for a process whose version of the server accepts it.
   */
  async #leave(run: Run, response: Response): Promise<Outcome> {
    const { id: call } = run.call;
    this.#parts.log('warn', 'the server refused to continue a call, which stays open', { call });
    this.#runs.end(run, false);
    await this.#ownership.abandon(run);
    return { kind: 'responded', response, failure: 'divergence' };
  }

  async #finished(entered: Entered, given: Response): Promise<Outcome> {
    const { run, context, request } = entered;
    // Its client may have the task already.
    const becoming = becomingTask(run);
    if (becoming !== undefined) await becoming.catch(() => {});
    if (run.state.at === 'over') return GONE;
    const stays = isLeft(entered);
    // No client calls a task again, and one that called the tool again would run its earlier rounds a second time.
    if (isUnpassed(given) && (isTask(run) || (!stays && run.frame.fold().completions.some(isRound)))) {
      const error = new AwaitError('host-gone', 'the server that runs this call cannot be reached');
      return this.#runAgain(entered, { error, isMeant: false }, true);
    }
    if (isTask(run)) return this.#finishTask(run, given, context);
    // A request that came again for a call that outlasts it says only what that call was refused with.
    // One that was not passed on to its server is no outcome of a call that the same request continues, or an equal one.
    const isRefused = isUnpassed(given)
      ? stays
      : (run.frame.isUnreached || (request && run.call.outlasted)) && this.#parts.isRefusal(given);
    if (isRefused && this.#hasRoom(entered)) return this.#leave(run, given);
    if (wishOf(run, context)?.always) return this.#finishAsTask({ run, context, request }, given);
    if (request !== undefined && !isWritable(given)) {
      this.#runs.end(run, false);
      return this.#checkpoints.endWith(run.journal, { error: INTERNAL });
    }
    const urls = knowsUrls(context) ? undefined : urlsNeeded(given);
    if (urls !== undefined) return this.#suspendForUrls(run, urls, context);
    const response = knowsUrls(context) ? given : withoutUrls(given);
    if (request === undefined) {
      this.#runs.end(run, false);
      // No client has a token for this call yet, so only a reader of its log can ask for its outcome.
      if (isUnattached(run) || run.isLogged) {
        await context.beforeEnd?.(response);
        return this.#checkpoints
          .endWith(run.journal, response)
          .catch((error) => this.#broken(entered, AwaitError.from(error)));
      }
      this.#runs.forget(run);
      return { kind: 'responded', response };
    }
    const write = async (): Promise<Outcome> => {
      await context.beforeEnd?.(response);
      const outcome = await this.#checkpoints.endWith(run.journal, response);
      this.#runs.end(run, false);
      this.#runs.remember(request, outcome);
      return outcome;
    };
    return this.#orInterrupted(run, request, write, response);
  }

  /** Whether a call whose request was refused may stay open. */
  #hasRoom({ run, context, request }: Entered): boolean {
    const from = request?.state.at ?? (context.live ? -Infinity : 0);
    return run.journal.position - from < MOST_REFUSED;
  }

  /** The call ends with an error, if others can know of it. */
  async #endFailed(run: Run, error: AwaitError): Promise<void> {
    if (run.journal.position >= 0) await this.#checkpoints.endWith(run.journal, { error: wireError(error) });
  }

  /** Its client is to have a task, although the call is over. */
  async #finishAsTask({ run, context, request }: Entered, response: Response): Promise<Outcome> {
    const become = async (): Promise<Outcome> => {
      await this.#becomeTask(run, context);
      return { kind: 'task', taskId: run.call.id };
    };
    const outcome = await this.#orInterrupted(run, request, become, response);
    // If its end cannot be written, another process takes it over like any task.
    await this.#finishTask(run, response, context).catch((error: unknown) =>
      reported(this.#parts, run.call.id, AwaitError.from(error)),
    );
    return outcome;
  }

  async #finishTask(run: Run, response: Response, context: RequestContext): Promise<Outcome> {
    const next = afterTask(this.#parts, run, response, context);
    this.#runs.end(run, false);
    if ('frame' in next) {
      const outcome = this.enter(next, context, { begin: true });
      if (this.#runs.isDue) void this.#ownership.abandon(next);
      return outcome;
    }
    return this.#checkpoints.endWith(run.journal, isWritable(next) ? next : { error: INTERNAL });
  }

  /** When the end of a turn cannot be written, the run waits here for the same request to come again. */
  async #orInterrupted(
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
        this.#runs.park(keyOf(request.state), run, interrupted(run, request));
      } else {
        this.#runs.end(run, response === undefined);
        // A call whose journal is full has ended: running its tool again would end the same way.
        if (failure.code === 'limit') await this.#endFailed(run, failure);
      }
      throw failure;
    }
  }

  async #suspend(run: Run, checkpoint: Checkpoint): Promise<Outcome> {
    const { outcome, key, waiting } = await this.#checkpoints.suspend(run, checkpoint, !this.#runs.isLeaving);
    // Its turn is over, and a step of it may run on for longer than a lease.
    if (run.frame.busy) this.#ownership.beat(run);
    if (!this.#runs.isClosed && run.state.at !== 'over') this.#runs.park(key, run, waiting);
    return outcome;
  }

  /** A thrown -32042 becomes the URL asks that it names; the tool is run again when they are answered. */
  async #suspendForUrls(run: Run, urls: readonly JsonObject[], context: RequestContext): Promise<Outcome> {
    this.#runs.end(run, false);
    const before = run.frame.fold();
    if (rerunsOf(before) >= this.#parts.limits.reruns * urls.length) {
      return this.#checkpoints.endWith(run.journal, stillNeeded(run.call, urls));
    }
    const required = missingCapability(context.capabilities, ELICIT, { mode: 'url' });
    if (required !== undefined) return refused(required, ELICIT);
    return this.#checkpoints.suspendWithout(run.journal, askUrls(before, urls), run.binding);
  }
}

// --- what the frame does in a turn ---

/** A turn of a run as its frame sees it: the client's capabilities, its answers so far, and the way to send to it. */
interface RunTurnParts {
  readonly check: EngineParts['check'];
  /** The tasks that run here. */
  readonly room: Quota;
  readonly answers: Answers;
}

class RunTurn implements Turn {
  readonly sheds: boolean;
  readonly mustRefuse: boolean;
  readonly end: (ending: Ending) => void;
  readonly #parts: RunTurnParts;
  readonly #run: Run;
  readonly #context: RequestContext;
  readonly #responses: unknown;
  readonly #detach: Detach | undefined;

  /** @param responses the client's answers to asks that are not made yet, by their keys */
  constructor(
    parts: RunTurnParts,
    run: Run,
    context: RequestContext,
    responses: unknown,
    end: (ending: Ending) => void,
    detach: Detach | undefined,
  ) {
    this.sheds = context.sheds === true;
    this.mustRefuse = context.refuses === true;
    this.end = end;
    this.#parts = parts;
    this.#run = run;
    this.#context = context;
    this.#responses = responses;
    this.#detach = detach;
  }

  get live(): boolean {
    return this.#context.live || isTask(this.#run);
  }

  get detach(): Detach | undefined {
    const hasRoom = !isTask(this.#run) && this.#parts.room.has(quotaKeyOf(this.#run.call, this.#context));
    return hasRoom ? this.#detach : undefined;
  }

  get isDetaching(): boolean {
    return becomingTask(this.#run) !== undefined;
  }

  missing(method: string, params: JsonObject): Lack | undefined {
    const { capabilities, hasPerson } = this.#context;
    return lackOf(capabilities, method, params, hasPerson === true);
  }

  unfit(method: string, params: JsonObject, isRaw: boolean): Response | undefined {
    return uncheckable(method, params, this.#parts.check, isRaw);
  }

  given(ask: OpenAsk): Response | undefined {
    const responses = this.#responses;
    if (!isObject(responses) || !Object.hasOwn(responses, ask.key)) return undefined;
    try {
      return checkGiven(ask, responses[ask.key], this.#parts.check);
    } catch (error) {
      this.end({ kind: 'broken', error: AwaitError.from(error) });
      return undefined;
    }
  }

  asksAgain(key: string): boolean {
    const isRead = this.#context.isLogged === true || isTask(this.#run);
    return isRead && !this.#run.asked.includes(key);
  }

  ask(ask: OpenAsk): void {
    const { asked } = this.#run;
    if (!asked.includes(ask.key)) {
      this.#context.ask?.(ask);
      asked.push(ask.key);
    }
    this.#parts.answers.expect(this.#run);
  }

  withdraw(ask: OpenAsk): void {
    this.#context.withdraw?.(ask);
  }

  notify(notification: JsonObject): void {
    const { journal } = this.#run;
    if (this.#context.isLogged !== true) this.#context.notify(notification);
    else journal.notify({ jsonrpc: '2.0', ...notification }, (message) => this.#context.notify(message));
  }

  isInterim(response: Response): boolean {
    return !knowsUrls(this.#context) && urlsNeeded(response) !== undefined;
  }
}

function knowsUrls({ knowsUrls, live }: RequestContext): boolean {
  return knowsUrls ?? live;
}

/** What a server keeps of a request for as long as its call lasts: the rest holds the request's reply. */
function factsOf(context: RequestContext): InstanceContext {
  const { signal, isRefused, notify, begun, ask, withdraw, beforeEnd, home, memory, ...facts } = context;
  return facts;
}

/**
 * Whether a tool's result can be written as JSON at all (a BigInt or a cycle cannot): stores and wires take nothing
 * else.
 */
function isWritable(value: unknown): boolean {
  try {
    return JSON.stringify(value) !== undefined;
  } catch {
    return false;
  }
}
