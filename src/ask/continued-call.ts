/**
 * A call that outlasts its request, since its client cannot be asked, or named it by an idempotency key. The request is a
 * call of its own, with a log like any other, and what runs in it in a tool's place is this: it begins the continued call,
 * or continues the one that it is equal to, and responds with its outcome, or says that a person has to answer first.
 * 1. The continued call ends its turns at its asks, on every revision, and goes on only here: with its client's next equal
 *    call, under that request's credentials.
 * 2. What the client declares it is asked itself, in the request's own way; the rest is for the page.
 * 3. Its id follows from the first request's, so that a process that takes that request over finds it; no client can
 *    tell it, or it could answer for the person.
 * 4. A client that has not proven that it asks its user may answer by itself, or show nothing: such an answer, or none,
 *    ends the request, and the page asks. What its user answers later counts.
 * 5. A key is taken before the tool runs, by a record that is inserted if absent.
 */
import {
  AwaitError,
  type Clock,
  defined,
  hasCode,
  invalidParams,
  type JsonObject,
  objectOf,
  sleep,
  textOf,
} from '../base/values.ts';
import type { AnswerCheck } from '../call/ask/answer.ts';
import { needsUrls } from '../call/ask/url-elicitation.ts';
import type { Engine } from '../call/engine.ts';
import type { Frame } from '../call/frame/frame.ts';
import { CANCELLED, type CallRecord, type OpenAsk, type Response } from '../call/journal/entries.ts';
import type { Instance, InstanceContext, Outcome, RequestContext } from '../call/ports.ts';
import { bindingOf } from '../call/run/binding.ts';
import type { Responded } from '../call/run/outcome.ts';
import { isBadToken, isToMakeAgain } from '../call/run/wire-error.ts';
import { REPEATED } from '../checkpoint/page-records.ts';
import { AskedAnswers, LOOK, offered } from './asked.ts';
import { type AtAsks, expiryOf, type Standing, type WaitingCalls, type WaitsFor } from './waiting-calls.ts';

/** How often a call may be found claimed by another request before this one gives up. */
const TRIES = 5;
/** Longest idempotency key, in characters. */
const KEY_LENGTH = 256;
/** What an instance is told of a turn's request. */
const PASSED = [
  'isRehearsal',
  'authInfo',
  'request',
  'logLevel',
  'workspace',
  'progressToken',
  'isLocal',
  'closeStream',
  'closeStanding',
] as const satisfies readonly (keyof InstanceContext)[];
const UNKNOWN: Standing = { kind: 'unknown' };
const OTHER_ARGUMENTS = invalid('this idempotency key names a call of another tool, or with other arguments');
const NOT_KEPT = invalid('the call of this idempotency key is done, and its outcome was not kept so long');
const BAD_KEY = invalid(`an idempotency key is a text of 1 to ${KEY_LENGTH} characters`);

export interface ContinuedCallParts {
  readonly engine: Engine;
  readonly calls: WaitingCalls;
  readonly clock: Clock;
  readonly check: AnswerCheck;
  /** Whether another process may take a call over. */
  readonly isShared: boolean;
  /** Whether its tools run in servers elsewhere, which know no steps: nothing of a turn is given up to another process. */
  readonly holdsServers: boolean;
  /** How long the owner of a turn may be silent, in milliseconds. */
  readonly lease: number;
  /** An ask waits for its person from now on, on a page. */
  opened(call: CallRecord, waiting: WaitsFor, asks: readonly OpenAsk[]): void;
  /** The call has its outcome. */
  ended(callId: string): void;
}

/** The facts of the request. */
export interface ContinuedRequest {
  readonly call: CallRecord;
  readonly context: RequestContext;
  /** Who answers what its client cannot be asked, if anybody does. */
  readonly person: string | undefined;
  /** Its idempotency key. */
  readonly key: string | undefined;
  /** The instance that it was to run in; `isKept`: others use it, too. */
  readonly home: Instance;
  readonly isKept: boolean;
  /** Whether it is continued in a frame of its own, and the waiting call may have begun. */
  readonly isAgain: boolean;
}

/** A call that a person was asked for, and that a request's own is equal to. */
interface EqualCall {
  readonly id: string;
  /** Where it waits. */
  readonly standing?: AtAsks;
  /** What it came to, as this request's client gets it. */
  readonly outcome?: Response;
}

export class ContinuedCall implements Instance {
  readonly #parts: ContinuedCallParts;
  readonly #request: ContinuedRequest;
  /** The call that waits, if it begins here. */
  #own: CallRecord;
  /** Fires when the client cancels the request, or goes away. */
  readonly #gone = new AbortController();
  /** Fires when no request waits for the call here. */
  readonly #over = new AbortController();
  readonly #ended = new Promise<undefined>((resolve) => {
    this.#over.signal.addEventListener('abort', () => resolve(undefined));
  });
  #facts: InstanceContext;
  /** Whether the waiting call has the instance, and ends it. */
  #isGiven = false;
  /** Whether the client cancelled the request, and so its user the call. */
  #isCancelled = false;
  readonly #asked: AskedAnswers;

  constructor(parts: ContinuedCallParts, request: ContinuedRequest) {
    const calls = patient(parts.calls, (error) => this.#retries(error));
    this.#parts = { ...parts, calls };
    this.#request = request;
    this.#facts = request.context;
    this.#asked = new AskedAnswers({
      ...this.#parts,
      request,
      over: this.#over.signal,
      ended: this.#ended,
    });
    const { task, session, outlasted, ...call } = request.call;
    const { capabilities: declared } = call.client;
    const capabilities = request.person === undefined ? declared : withForms(declared);
    this.#own = { ...call, id: parts.calls.idsFor(call)[0], client: { ...call.client, capabilities } };
  }

  call(frame: Frame, _request: unknown, facts: InstanceContext): void {
    this.#facts = facts;
    this.#run(frame).then(
      (response) => response !== undefined && frame.finish(response),
      (error: unknown) => frame.break(AwaitError.from(error)),
    );
  }

  /**
   * Whether to call a member of `calls` again, after a pause: once the call has begun here, a failure of the store must
   * not end its request, or the client would begin the call a second time.
   */
  async #retries(error: unknown): Promise<boolean> {
    if (!this.#isGiven || !hasCode(error, 'store')) return false;
    await sleep(this.#parts.clock, LOOK);
    return !this.#over.signal.aborted && this.#own.expires > this.#parts.clock.now();
  }

  refresh(_frame: Frame, facts: InstanceContext): void {
    this.#facts = facts;
  }

  cancel(): void {
    this.#gone.abort();
    this.#over.abort();
    this.#isCancelled = !this.#asked.cancel();
  }

  release(isUnfinished: boolean, frame?: Frame, why?: string): void {
    this.#over.abort();
    if (!this.#isGiven) this.#request.home.release(isUnfinished, frame, why);
  }

  /** @returns undefined where nobody waits for the response any more */
  async #run(frame: Frame): Promise<Response | undefined> {
    const { key } = this.#request;
    if (key !== undefined) return this.#named(frame, key);
    // The call that it began goes before an equal one.
    const begun = this.#request.isAgain ? await this.#begun() : UNKNOWN;
    if (begun.kind !== 'unknown') return this.#from(frame, begun);
    const equal = await this.#equal();
    return equal?.outcome ?? this.#from(frame, equal?.standing ?? UNKNOWN);
  }

  /**
   * Of the calls that this one is equal to: one that waits and was answered; else one whose outcome was not sent, or a
   * short time ago; else one that waits.
   */
  async #equal(): Promise<EqualCall | undefined> {
    const { calls, clock } = this.#parts;
    const ids = await calls.equal(this.#request.call, this.#workspace);
    const ended: [string, Response][] = [];
    let waiting: EqualCall | undefined;
    for (const id of ids) {
      const standing = await calls.standing(id);
      // Where a call's client asks its own user, only requests with that call's key get the outcome.
      if (this.#isNamed && !(await calls.isForOthers(id, standing))) continue;
      // The records of one that is over stay for a while.
      if (standing.kind === 'asks' && standing.checkpoint.call.expires > clock.now()) {
        // Of those that began at one moment, the one that was answered goes on.
        if (ids.length > 1 && (await calls.isAnswered(standing))) return { id, standing };
        waiting ??= { id, standing };
      } else if (standing.kind === 'ended') {
        this.#parts.ended(id);
        const { response } = standing;
        // Once its user has opened the URL, the tool may succeed: that outcome is not repeated, nor an error that says to
        // make the call again.
        if (response !== undefined && !needsUrls(response) && !isToMakeAgain(response))
          ended.push([id, response]);
      }
    }
    for (const [id, response] of ended) {
      const { at, isFirst } = await calls.sent({ id, expires: this.#own.expires });
      if (isFirst) return { id, outcome: response };
      if (clock.now() - at <= REPEATED) return { id, outcome: sentBefore(response) };
    }
    return waiting;
  }

  /** The call that the request began elsewhere, perhaps under another secret. */
  async #begun(): Promise<Standing> {
    const { calls } = this.#parts;
    for (const id of calls.idsFor(this.#request.call)) {
      const standing = await calls.standing(id);
      if (standing.kind === 'unknown') continue;
      this.#own = { ...this.#own, id };
      return standing;
    }
    return UNKNOWN;
  }

  /** The call of an idempotency key: this one, or that of an earlier request. */
  async #named(frame: Frame, key: string): Promise<Response | undefined> {
    const { calls, clock, lease } = this.#parts;
    if (key.length === 0 || key.length > KEY_LENGTH) return BAD_KEY;
    // A host may give each of its model's calls a key of its own: an equal call that the page asks has one more key then.
    const equal = this.#request.person === undefined ? undefined : await this.#equal();
    const named = await calls.named(this.#own, key, this.#workspace, equal?.id);
    if (named === undefined) return OTHER_ARGUMENTS;
    const { id, isNew } = named;
    if (id === '') return NOT_KEPT;
    if (isNew && id === equal?.id && equal.outcome) return equal.outcome;
    const isOwn = id === this.#own.id;
    this.#own = { ...this.#own, id };
    if (isOwn && !this.#request.isAgain) return this.#after(frame, await this.#begin(frame));
    const until = clock.elapsed() + lease;
    let standing = await calls.standing(id);
    // The process that took the key writes the call down next, or has ended.
    for (; standing.kind === 'unknown' && clock.elapsed() < until; standing = await calls.standing(id))
      await sleep(clock, LOOK);
    return this.#from(frame, standing);
  }

  /** Continues the call from where it stands. */
  async #from(frame: Frame, standing: Standing): Promise<Response | undefined> {
    switch (standing.kind) {
      case 'ended':
        this.#parts.ended(this.#own.id);
        await this.#parts.calls.sent(this.#own);
        return standing.response ?? (standing.isKept ? CANCELLED : NOT_KEPT);
      case 'asks':
        return this.#goOn(frame, standing, true);
      case 'runs': {
        // Another process began it, in a request that this process has taken over.
        const { home, isKept } = this.#request;
        const take = isKept ? async () => home : undefined;
        const { id } = this.#own;
        const taken = this.#parts.engine.takeUp(id, this.#own, this.#context(frame), take);
        const outcome = await taken.outcome;
        if (outcome.kind === 'responded' && outcome.failure === undefined)
          await this.#parts.calls.sent(this.#own);
        if (!isBadToken(outcome)) return this.#after(frame, outcome);
        // One that was followed until it asked is not taken up.
        const standing = await this.#parts.calls.standing(this.#own.id);
        if (standing.kind === 'asks') return this.#goOn(frame, standing, true);
        // Its log has made room.
        return this.#isNamed && standing.kind === 'unknown' ? NOT_KEPT : this.#after(frame, outcome);
      }
      case 'unknown':
        return this.#after(frame, await this.#begin(frame));
    }
  }

  #begin(frame: Frame): Promise<Outcome> {
    const { engine, isShared } = this.#parts;
    const { id, method, params, requestId, client, expires, created } = this.#own;
    this.#isGiven = true;
    return engine.start(
      {
        callId: id,
        method,
        params,
        requestId,
        client,
        binding: bindingOf(this.#own),
        ttl: expires - created,
        resumable: isShared || this.#isNamed,
        // The request is found first: who takes it over looks for this call. One with a key is looked for at once.
        ...(!this.#isNamed && { onDurable: async () => frame.journal.begin?.() }),
      },
      this.#context(frame),
      this.#request.home,
    ).outcome;
  }

  async #after(frame: Frame, outcome: Outcome): Promise<Response | undefined> {
    const now = (): Promise<Standing> => this.#parts.calls.standing(this.#own.id);
    if (outcome.kind === 'suspended') return this.#goOn(frame, await now(), false);
    const isElsewhere = outcome.kind === 'responded' ? outcome.failure === 'fenced' : 'elsewhere' in outcome;
    const from = isElsewhere && !this.#over.signal.aborted ? await now() : UNKNOWN;
    if (from.kind !== 'unknown') return this.#from(frame, from);
    if (outcome.kind === 'responded') return this.#orShed(frame, outcome);
    // Where its client did not leave, somebody else has ended it.
    await this.#left(this.#own);
    return this.#over.signal.aborted ? undefined : CANCELLED;
  }

  /**
   * The response; but where this process is closing, the request ends without an outcome (`shed`), if its client can send
   * it again: the next process then goes on with the call.
   */
  async #orShed(frame: Frame, { response, failure }: Responded): Promise<Response | undefined> {
    if (failure === 'closed') await Promise.race([frame.context.shed?.(), this.#ended]);
    return this.#over.signal.aborted ? undefined : response;
  }

  /** Gets answers and continues, until the call is over or waits for its person. @param isTold whether its client knows */
  async #goOn(frame: Frame, from: Standing, isTold: boolean): Promise<Response | undefined> {
    const { engine, calls } = this.#parts;
    let known = isTold && from.kind === 'asks' ? from.at : -1;
    // If the request becomes a task, `tasks/get` finds by this what the call waits for.
    if (from.kind === 'asks' && this.#request.context.takesTasks)
      await calls.continues(this.#request.call, from.checkpoint.call);
    let standing = from;
    let hasResumed = false;
    for (let tries = 0; tries < TRIES; ) {
      if (standing.kind === 'ended') {
        // An earlier request's cancellation may come late: what its client calls again since is a new call,
        // unless this request has run a part of the old one.
        const isAnew =
          !hasResumed &&
          !this.#over.signal.aborted &&
          standing.isKept &&
          from.kind === 'asks' &&
          from.checkpoint.call.id !== this.#own.id;
        return standing.response ?? (isAnew ? this.#from(frame, UNKNOWN) : CANCELLED);
      }
      if (standing.kind !== 'asks') throw new AwaitError('internal', 'a waiting call has no checkpoint');
      const { at, checkpoint, by, claim } = standing;
      const { call } = checkpoint;
      // Where a request has claimed the turn, any request of the call goes on with the answers in that claim.
      const answers = claim
        ? offered(claim.answers.map(({ key, response }) => [key, response]))
        : await this.#asked.answers(frame, standing, at === known);
      if (this.#over.signal.aborted) return this.#left(call);
      if (answers === undefined) {
        if (call.expires <= this.#parts.clock.now()) throw new AwaitError('expired', 'its call has expired');
        const { url } = await this.#asked.opened(call);
        const { text, _meta } = notDoneYet(call, url, this.#asked.page);
        return { result: { content: [{ type: 'text', text }], isError: true, _meta } };
      }
      if (answers === 'moved') {
        standing = await calls.standing(call.id);
        tries += 1;
        continue;
      }
      // While it waited for the page, another process may have cancelled it: this one hears of that later.
      const hasWaited = this.#asked.page.length > 0;
      if (hasWaited && (await calls.standing(this.#request.call.id)).kind === 'ended')
        return this.#left(call);
      hasResumed = true;
      // If this process ends in a step, the client comes back.
      if (!this.#isNamed) await frame.journal.begin?.();
      const worksOn = this.#parts.holdsServers && (await calls.waitsFor(call.id)) !== undefined;
      const state = { callId: call.id, at, ...defined({ owner: by }) };
      const outcome = await engine.resumeAt(
        state,
        { binding: bindingOf(call), ...answers, ...defined({ sent: claim?.sent }) },
        this.#context(frame, worksOn),
      );
      if (outcome.kind === 'responded' && outcome.failure === undefined) {
        this.#parts.ended(call.id);
        if (!this.#over.signal.aborted) await calls.sent(call);
        return outcome.response;
      }
      if (outcome.kind !== 'suspended' && outcome.kind !== 'responded') return this.#left(call);
      // Another request may have claimed the turn with fewer answers, or more.
      standing = await calls.standing(call.id);
      if (standing.kind === 'asks' && standing.at === at) {
        // One that was claimed with other answers goes on with those of the claim.
        if (outcome.kind === 'responded' && (standing.claim === undefined || !isBadToken(outcome)))
          return this.#orShed(frame, outcome);
        tries += 1;
        known = at;
      } else if (standing.kind === 'asks') tries = 0;
    }
    throw new AwaitError('busy', 'a waiting call was claimed by others again and again');
  }

  /**
   * The request is over. If its client cancelled it, the call ends where it had the question alone; else the page takes
   * no answers until the client calls again.
   */
  async #left(call: CallRecord): Promise<undefined> {
    const { calls, engine } = this.#parts;
    if (!this.#isCancelled || this.#isNamed) return;
    const standing = await calls.standing(call.id);
    if (standing.kind !== 'asks') return;
    if ((await calls.waitsFor(call.id)) === undefined)
      await engine.cancelAt({ callId: call.id, at: standing.at }, call.principal);
    else await calls.stop(call);
  }

  get #workspace(): string | undefined {
    return this.#request.context.workspace;
  }

  get #isNamed(): boolean {
    return this.#request.key !== undefined;
  }

  /** @param worksOn whether the tool does, where the request is cancelled */
  #context(frame: Frame, worksOn = false): RequestContext {
    const { refuses, address } = this.#request.context;
    const { home, isKept } = this.#request;
    return {
      live: false,
      knowsUrls: this.#request.context.live,
      goesOn: this.#parts.isShared || this.#isNamed,
      capabilities: this.#own.client.capabilities,
      hasPerson: this.#request.person !== undefined,
      // With a key its request may come again after a time-out, which cancels no more than the request.
      ...(!this.#isNamed && !worksOn && { signal: this.#gone.signal }),
      notify: (notification) => frame.notify(notification),
      ...(isKept && { home: async () => home }),
      ...defined({
        refuses,
        address,
        ...Object.fromEntries(PASSED.map((name) => [name, this.#facts[name]])),
      }),
    };
  }
}

function invalid(why: string): Response {
  return { error: invalidParams(why) };
}

/** An object with the same members; where a promise of one rejects, the member is called again if `retries` says so. */
function patient<T extends object>(whole: T, retries: (error: unknown) => Promise<boolean>): T {
  return new Proxy(whole, {
    get(target, name) {
      const member = (target as Record<PropertyKey, unknown>)[name];
      if (typeof member !== 'function') return member;
      const call = (...args: unknown[]): unknown => {
        const made: unknown = member.apply(target, args);
        if (!(made instanceof Promise)) return made;
        return made.catch(async (error: unknown) => {
          if (!(await retries(error))) throw error;
          return call(...args);
        });
      };
      return call;
    },
  });
}

/** Client capabilities that a server can ask by forms with. */
export function withForms(capabilities: JsonObject): JsonObject {
  const elicitation = objectOf(capabilities.elicitation);
  return { ...capabilities, elicitation: { ...elicitation, form: {} } };
}

// --- what the model reads of a call that waits, and of one that is done already ---

/** In `_meta` of a result: the call waits, and for whom. */
const WAITING = 'mcp-await/waiting';
/** In `_meta` of a result that was sent before. */
const AGAIN = 'mcp-await/again';

const CALL_AGAIN =
  'When they say that they have answered, call the tool again with exactly the same arguments.';
const SENT_BEFORE = 'This call was already done; this is its result again. Nothing was done a second time.';

/** @param how the call goes on once it is answered */
export function notDoneYet(
  { params, expires }: CallRecord,
  url: string,
  asks: readonly OpenAsk[],
  how = CALL_AGAIN,
): { readonly text: string; readonly _meta: JsonObject } {
  const until = new Date(expiryOf(expires, asks)).toISOString();
  const questions = asks.map(({ params }) => textOf(params.message ?? ''));
  const tool = String(params.name);
  const lines = [
    `NOT DONE YET: ${inLine(tool)} waits for a person.`,
    ...questions.map((question) => `Question: ${inLine(question)}`),
    `Link: ${url}`,
    `Tell the user to open it. ${how} Do not open the link, do not answer for the user, do not try another way.`,
    `The question expires at ${until}.`,
  ];
  return { text: lines.join('\n'), _meta: { [WAITING]: { tool, url, questions, expires: until } } };
}

/** In one line: a name or a question must not look like what comes after it. */
function inLine(text: string): string {
  return text.replaceAll(/[\n\v\f\r\u0085\u2028\u2029]+/g, ' ');
}

/** The same outcome for a client that may not have got it. */
function sentBefore(response: Response): Response {
  if ('error' in response) {
    const { error } = response;
    return { error: { ...error, message: `${SENT_BEFORE} ${error.message}` } };
  }
  const { result } = response;
  const content = Array.isArray(result.content) ? result.content : [];
  const meta = objectOf(result._meta);
  return {
    result: {
      ...result,
      content: [{ type: 'text', text: SENT_BEFORE }, ...content],
      _meta: { ...meta, [AGAIN]: true },
    },
  };
}
