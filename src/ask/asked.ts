/**
 * The answers to the asks of a call that waits. What its client declares goes to the client, the rest to the page. A client
 * that has not proven that it asks its user may answer by itself, or show nothing: such an answer, none for a while, or a
 * call that is cancelled meanwhile, leaves the ask to the page. An ask that may be on the page has one outcome, whichever
 * comes first: the page's answer, the client's, its error, or the end of the ask's own time. Each is inserted if absent.
 * The call goes on with the answers that are there; its other asks stay where they are, at the client or on the page.
 */
import {
  type Clock,
  deferred,
  defined,
  ELICIT,
  invalidParams,
  type JsonObject,
  objectOf,
  type Timer,
  textOf,
} from '../base/values.ts';
import { type AnswerCheck, checkGiven, type ErrorAnswers, isLate } from '../call/ask/answer.ts';
import { missingCapability } from '../call/ask/capability.ts';
import type { Engine } from '../call/engine.ts';
import { isShed } from '../call/frame/drawn.ts';
import type { Frame } from '../call/frame/frame.ts';
import { askedFor, isForPerson, KEY_META, type Question, questionOf, roleOf } from '../call/frame/place.ts';
import type { AskOptions } from '../call/frame/turn.ts';
import {
  type AnswerCompletion,
  type CallRecord,
  type OpenAsk,
  type Response,
  timedOut,
} from '../call/journal/entries.ts';
import type { RequestContext } from '../call/ports.ts';
import { type AtAsks, expiryOf, isForm, SHOWN, type WaitingCalls, type WaitsFor } from './waiting-calls.ts';

/** How long a request waits for the person, in milliseconds: clients give up after a minute, some after half of one. */
const WAIT = 25_000;
/** Rounds without an ask in which a client that opened the page waits for it. */
const ROUNDS = 5;
/** How often answers of other processes are looked for, and how long one waits for others, in milliseconds. */
export const LOOK = 500;
/** How long a tool that went on beside its ask waits for its next turn at most, in milliseconds. */
const MOST_SELDOM = 30_000;
const URL_MODE: JsonObject = { mode: 'url' };

interface AskedParts {
  readonly engine: Pick<Engine, 'isReady'>;
  readonly calls: WaitingCalls;
  readonly clock: Clock;
  readonly check: AnswerCheck;
  readonly request: {
    readonly call: CallRecord;
    readonly context: Pick<RequestContext, 'live' | 'workspace'>;
    /** Who answers on the page, if anybody does. */
    readonly person: string | undefined;
    /** Its idempotency key: other requests of it may be open. */
    readonly key: string | undefined;
  };
  /** Fires when no request waits for the call here. */
  readonly over: AbortSignal;
  /** Resolves then. */
  readonly ended: Promise<undefined>;
  /** An ask waits for its person from now on, on a page. */
  opened(call: CallRecord, waiting: WaitsFor, asks: readonly OpenAsk[]): void;
}

export interface OfferedAnswers {
  readonly responses: JsonObject;
  readonly errors?: ErrorAnswers;
}

type GivenByAsk = Map<OpenAsk, Response>;

/** An ask at the request's client. */
interface Sent {
  readonly ask: OpenAsk;
  readonly call: CallRecord;
  /** Whether it may be on the page, too. */
  readonly isShared: boolean;
  /** Of a client that is not proven: when it was asked first, and how long it may show nothing (`until`). */
  readonly doubtful: { readonly asked: number; readonly until: number } | undefined;
  /** Takes it back. */
  readonly stop: AbortController;
  given?: Given | undefined;
}

/** What a client responded, and how long it had the question, in milliseconds. */
interface Given {
  readonly response: Response;
  readonly had: number;
}

/** The page's URL at a client that takes URLs alone. */
interface SentUrl {
  readonly first: OpenAsk;
  /** How long it may show nothing, in milliseconds since the epoch. */
  readonly until: number;
  /** What became of it. */
  is: 'sent' | 'opened' | 'refused';
  given?: Given | undefined;
}

export class AskedAnswers {
  readonly #parts: AskedParts;
  /** By the keys of the asks. */
  readonly #sent = new Map<string, Sent>();
  /** The keys of asks for the page; of those, which the client was told of, and which this request has opened. */
  readonly #forPage = new Set<string>();
  readonly #told = new Set<string>();
  readonly #opened = new Set<string>();
  #offer: SentUrl | undefined;
  /** The call is opened once, although its asks begin side by side; and once more on the page. */
  #waitsFor: Promise<WaitsFor> | undefined;
  #isOnPage = false;
  /** Until when the request waits for the page alone, by the monotonic clock. */
  #end = Infinity;
  /** When the request began; and from when on its tool may have it go on, by that clock. */
  readonly #begun: number;
  #next = 0;
  /** Of the request. */
  #frame: Frame | undefined;
  /** Whether the client cancelled the request. */
  #isCancelled = false;
  /** Has `answers` look again. */
  #wake = (): void => {};
  /** The asks of the call that are on the page and have no answer. */
  page: readonly OpenAsk[] = [];

  constructor(parts: AskedParts) {
    this.#parts = parts;
    this.#begun = parts.clock.elapsed();
    void parts.ended.then(() => this.#wake());
  }

  /** Whether its client is asked while the request waits, as that of a task is, too. */
  get #isLive(): boolean {
    return this.#frame?.isLive === true;
  }

  /** Asks that are at a client that is not given up. */
  get #out(): Sent[] {
    return [...this.#sent.values()].filter(({ ask }) => !this.#forPage.has(ask.key));
  }

  /** What the client has not answered, or what was not looked at yet. */
  get #waits(): Pick<Sent, 'given'>[] {
    return [...this.#out, ...(this.#offer?.is === 'sent' ? [this.#offer] : [])];
  }

  /** The client cancelled the request. @returns whether that says nothing of its user */
  cancel(): boolean {
    this.#isCancelled = true;
    const shown = this.#out.filter(({ doubtful }) => doubtful !== undefined);
    for (const { call, ask } of shown) void this.#doubt(call, ask).catch(() => {});
    return shown.length > 0;
  }

  /** @param isPage whether the page asks; else its client does */
  opened(call: CallRecord, isPage = true): Promise<WaitsFor> {
    const { calls, request } = this.#parts;
    const { person = '' } = request;
    const { workspace } = request.context;
    const open = (): Promise<WaitsFor> => calls.opened(call, { person, workspace, isPage });
    if (isPage && !this.#isOnPage) this.#waitsFor = this.#waitsFor?.then(open);
    this.#isOnPage ||= isPage;
    this.#waitsFor ??= open();
    return this.#waitsFor;
  }

  /**
   * The answers to all of its asks, or those that are there while others are waited for: none where the tool went on
   * beside its asks.
   * @param isTold whether the client knows that the call waits
   * @returns undefined where the person has not answered, `moved` where another request had the call go on
   */
  async answers(
    frame: Frame,
    standing: AtAsks,
    isTold: boolean,
  ): Promise<OfferedAnswers | 'moved' | undefined> {
    const { calls, engine, clock, request, over, ended } = this.#parts;
    const { call, open } = standing.checkpoint;
    const given: GivenByAsk = new Map();
    this.#frame = frame;
    // Those that the tool gave up are not waited for.
    const keys = new Set(open.map(({ key }) => key));
    for (const [key, { stop }] of this.#sent) if (!keys.has(key) && this.#sent.delete(key)) stop.abort();
    // The URL is that of all of them on the page.
    if (!open.some(({ key }) => this.#opened.has(key))) this.#offer = undefined;
    // One that is on the page, or at the client of another request of its key, may be answered there at any time.
    const isOpen =
      request.key !== undefined ||
      open.some((ask) => this.#isForPage(ask)) ||
      (request.person !== undefined && (await calls.waitsFor(call.id)) !== undefined);
    await Promise.all(open.map((ask) => this.#begin(frame, call, ask, { isOpen, isTold, given })));
    // Rounds that are over are not waited for again.
    let round = frame.past.filter((done) => done.kind === 'step' && isShed(done.path)).length;
    let group = Infinity;
    for (;;) {
      const { promise: woken, resolve: wake } = deferred();
      this.#wake = wake;
      const unheard = calls.listen(call.id, wake);
      let timer: Timer | undefined;
      try {
        await this.#heed(call);
        const waiting = open.filter((ask) => !given.has(ask));
        // Where its asks end its turn, the client's answers come first, and all at once.
        if (frame.isLive || this.#waits.every(({ given }) => given !== undefined))
          await Promise.all(waiting.map((ask) => this.#settle(call, ask, isOpen, given)));
        const left = waiting.filter((ask) => !given.has(ask));
        if (over.aborted || clock.now() >= call.expires) return undefined;
        if (left.length === 0) break;
        this.page = left.filter(({ key }) => this.#forPage.has(key));
        await this.#open(frame, call);
        const isOut = this.#waits.length > 0;
        const now = clock.elapsed();
        // A request that was cancelled, perhaps in another process, has stopped the page.
        if (isOpen || this.page.length > 0) await calls.resume(call);
        if (frame.isLive || !isOut) {
          if (given.size > 0) group = Math.min(group, now + LOOK);
          const patience = this.#patience;
          if (!isOut) this.#end = Math.min(patience === Infinity ? patience : this.#end, now + patience);
          const rest = Math.min(group, isOut ? Infinity : this.#end) - now;
          if (rest <= 0) {
            if (given.size > 0) break;
            if (this.#offer?.is !== 'opened' || frame.isLive || round >= ROUNDS) return undefined;
            await Promise.race([frame.context.shed?.(), ended]);
            round += 1;
            this.#end = Infinity;
            continue;
          }
          if (given.size === 0) {
            if (now >= this.#next && (await engine.isReady(standing))) {
              // A tool that polls goes on ever less often: next when the request has lasted twice as long.
              this.#next = Math.min(2 * now - this.#begun, now + MOST_SELDOM);
              return offered([]);
            }
            if (await calls.hasGoneOn(standing)) return 'moved';
          }
          const until = this.#out.map(({ doubtful }) => doubtful?.until ?? Infinity);
          const due = Math.min(expiryOf(call.expires, left), ...until) + 1 - clock.now();
          timer = clock.after(Math.min(LOOK, due, rest), wake).unref();
        }
        await woken;
      } finally {
        unheard();
        timer?.cancel();
      }
    }
    this.#end = Infinity;
    return offered([...given].map(([{ key }, response]) => [key, response]));
  }

  /** How long only the page is waited for, in milliseconds. */
  get #patience(): number {
    const { context, call } = this.#parts.request;
    // A task waits as long as it lives; a client that was not told yet is told at once.
    if (call.task?.when === 'now' || (call.task !== undefined && this.#isLive)) return Infinity;
    if (this.#offer?.is === 'opened') return context.live ? Infinity : WAIT;
    // What its client cannot be asked, another request of its key can.
    if (this.page.length === 0) return Infinity;
    return this.page.every(({ key }) => this.#told.has(key)) ? WAIT : 0;
  }

  #isForPage(ask: OpenAsk): boolean {
    return (
      this.#parts.request.person !== undefined &&
      isForm(ask) &&
      (isForPerson(ask.params) || this.#lacks(ask.params))
    );
  }

  /** Whether the client cannot be asked so. */
  #lacks(params: JsonObject, method = ELICIT): boolean {
    return missingCapability(this.#parts.request.call.client.capabilities, method, params) !== undefined;
  }

  /** The outcome of an ask whose own time is over. */
  #late(ask: OpenAsk): Response | undefined {
    return isLate(ask, this.#parts.clock.now()) ? timedOut(ask, ask.deadline.timeout).response : undefined;
  }

  /** The outcome of an ask that may be on the page: this one, unless there is one already. */
  async #first(call: CallRecord, ask: OpenAsk, response: Response): Promise<Response> {
    const { calls, clock } = this.#parts;
    if (await calls.answer(call, ask, { response, by: '', route: 'client', time: clock.now() }))
      return response;
    return (await calls.answerTo(call.id, ask.key))?.response ?? response;
  }

  /** Looks for the outcome of an ask. */
  async #settle(call: CallRecord, ask: OpenAsk, isOpen: boolean, given: GivenByAsk): Promise<void> {
    const { calls, clock } = this.#parts;
    const { key } = ask;
    const sent = this.#sent.get(key);
    const isForPage = this.#forPage.has(key);
    const isShared = isOpen || isForPage || sent?.isShared === true;
    let outcome = isShared ? (await calls.answerTo(call.id, key))?.response : undefined;
    const isKept = outcome !== undefined;
    if (isKept) sent?.stop.abort();
    else if (sent?.given !== undefined) {
      this.#sent.delete(key);
      const { response, had } = sent.given;
      const isMeant =
        sent.doubtful === undefined ||
        ('error' in response ? !isForPage : await calls.believes(call, response.result, had));
      if (isMeant) outcome = response;
      else if (!isForPage) await this.#doubt(call, ask);
    } else if (this.#isLive && !isForPage && (sent?.doubtful?.until ?? Infinity) <= clock.now())
      await this.#doubt(call, ask);
    outcome ??= this.#late(ask);
    if (outcome === undefined) return;
    given.set(ask, isShared && !isKept ? await this.#first(call, ask, outcome) : outcome);
    this.#sent.delete(key);
    this.#forPage.delete(key);
  }

  // --- the client ---

  /** Sends an ask to its client or leaves it to the page, if that is not done. */
  async #begin(
    frame: Frame,
    call: CallRecord,
    ask: OpenAsk,
    { isOpen, isTold, given }: { isOpen: boolean; isTold: boolean; given: GivenByAsk },
  ): Promise<void> {
    const { calls, clock, request } = this.#parts;
    const { key, deadline } = ask;
    const toPage = (): void => {
      this.#forPage.add(key);
      if (isTold) this.#told.add(key);
    };
    if (this.#sent.has(key) || this.#forPage.has(key)) return;
    if (this.#isForPage(ask)) return toPage();
    if (request.key !== undefined && this.#lacks(ask.params, ask.method)) return;
    // Its client may deceive: it declares what the ask needs, and has not proven that it asks its user.
    const isDoubtful = request.person !== undefined && isForm(ask) && !(await calls.isProven(request.call));
    const isShared = isOpen || isDoubtful;
    const kept = isShared ? (await calls.answerTo(call.id, key))?.response : undefined;
    if (kept !== undefined) return void given.set(ask, kept);
    const question = questionFor(call.id, ask);
    const past = pastAnswer(frame, question)?.response;
    const isNew = past === undefined;
    // An ask whose own time is over is not sent to the client.
    if (isNew && this.#late(ask) !== undefined) return;
    let doubtful: Sent['doubtful'];
    if (isDoubtful) {
      // From here on an equal call continues it, whatever becomes of this request.
      await this.opened(call, false);
      await calls.continues(request.call, call);
      const isAccepted = !isNew && !('error' in past) && past.result.action === 'accept';
      if (!isAccepted && (await calls.doubtOf(call, ask)) !== undefined) return toPage();
      const asked = await calls.asked(call, ask);
      const rest = asked + SHOWN - calls.time();
      if (isNew && rest <= 0) return this.#doubt(call, ask);
      doubtful = { asked, until: clock.now() + rest };
    }
    const sent: Sent = { ask, call, isShared, doubtful, stop: new AbortController() };
    this.#sent.set(key, sent);
    const timeout = deadline && Math.max(1, deadline.at - clock.now());
    const signal = frame.isLive ? sent.stop.signal : undefined;
    void this.#put(frame, question, doubtful?.asked, defined({ timeout, signal })).then((given) => {
      sent.given = given && { ...given, response: this.#checked(ask, given.response) };
      this.#wake();
    });
  }

  /**
   * Asks the request's client, under the key of the call that waits; the answer that was recorded before is it.
   * @param first when the question was asked first; this client may have got it later
   */
  async #put(
    frame: Frame,
    question: Question,
    first = 0,
    options: Pick<AskOptions, 'timeout' | 'signal'> = {},
  ): Promise<Given | undefined> {
    const { calls, ended } = this.#parts;
    let [answer, asked] = [pastAnswer(frame, question), first];
    const response =
      answer?.response ??
      (await Promise.race([
        frame.askAs(question, {
          inContext: true,
          ...options,
          sent: () => {
            asked = calls.time();
          },
          answered: (by) => {
            answer = by;
          },
        }),
        ended,
      ]));
    return response && { response, had: (answer?.answeredAt ?? calls.time()) - (answer?.askedAt ?? asked) };
  }

  /** Where its client is asked live, an answer that the SDK would refuse is the tool's error, and not asked again. */
  #checked(ask: OpenAsk, response: Response): Response {
    const { check, request } = this.#parts;
    if ('error' in response || !request.context.live) return response;
    try {
      const good = checkGiven(ask, response.result, check);
      if (good !== undefined) return good;
    } catch {
      // It is no result of such a question.
    }
    return { error: invalidParams('the answer does not fit its question') };
  }

  /** The page asks. */
  async #doubt(call: CallRecord, ask: OpenAsk): Promise<void> {
    this.#forPage.add(ask.key);
    const isNews = await this.#parts.calls.doubt(call, ask, true);
    // The request was cancelled, so its client gets no response.
    if (isNews && this.#isCancelled) this.#parts.opened(call, await this.opened(call), [ask]);
  }

  // --- the page ---

  /** Opens the asks that are on the page from now on. */
  async #open(frame: Frame, call: CallRecord): Promise<void> {
    const fresh = this.page.filter(({ key }) => !this.#opened.has(key));
    const [first] = fresh;
    if (first === undefined) return;
    const { calls } = this.#parts;
    const waits = await this.opened(call);
    for (const { key, params } of fresh) {
      this.#opened.add(key);
      await calls.openedTo(call, roleOf(params));
    }
    if (!this.#isCancelled && fresh.some(({ key }) => !this.#told.has(key)))
      this.#parts.opened(call, waits, fresh);
    if (this.#offer?.is === 'sent' || !this.#lacks({}) || this.#lacks(URL_MODE)) return;
    if ((await calls.doubtOf(call, first)) !== undefined) return;
    const asked = await calls.asked(call, first);
    const { key, method } = first;
    const params = { ...URL_MODE, url: waits.url, message: textOf(first.params.message ?? '') };
    const offer: SentUrl = { first, until: this.#parts.clock.now() + SHOWN, is: 'sent' };
    this.#offer = offer;
    void this.#put(frame, questionFor(call.id, { key, method, params }), asked).then((given) => {
      offer.given = given;
      this.#wake();
    });
  }

  /** Takes what the client responded to the page's URL. */
  async #heed(call: CallRecord): Promise<void> {
    const offer = this.#offer;
    if (offer?.is !== 'sent') return;
    const { given } = offer;
    // A client that shows nothing has not asked its user either.
    if (given === undefined && this.#parts.clock.now() < offer.until) return;
    const action =
      given === undefined || 'error' in given.response ? undefined : given.response.result.action;
    // Its `accept` says that the page was opened.
    offer.is = action === 'accept' ? 'opened' : 'refused';
    if (offer.is === 'opened') return;
    const { calls } = this.#parts;
    // A client that declines within a second has not asked its user, and an error is no answer.
    if (action === undefined || !(await calls.believes(call, { action }, given?.had ?? 0)))
      await calls.doubt(call, offer.first, false);
    else
      for (const ask of this.page)
        if (!isForPerson(ask.params)) await this.#first(call, ask, { result: { action } });
  }
}

/** Answers as a turn is claimed with them. */
export function offered(given: readonly (readonly [string, Response])[]): OfferedAnswers {
  const responses: Record<string, JsonObject> = {};
  const errors: Record<string, ErrorAnswers[string]> = {};
  for (const [key, response] of given)
    if ('error' in response) errors[key] = response.error;
    else responses[key] = response.result;
  return { responses, errors };
}

type AskOf = Pick<OpenAsk, 'key' | 'method' | 'params'>;

function questionFor(callId: string, { key, method, params }: AskOf): Question {
  return askedFor(
    callId,
    questionOf(method, { ...params, _meta: { ...objectOf(params._meta), [KEY_META]: key } }),
  );
}

function pastAnswer(frame: Frame, question: Question): AnswerCompletion | undefined {
  const place = `${question.class}#1`;
  const past = frame.past.findLast((done) => done.kind === 'answer' && done.place === place);
  return past?.kind === 'answer' ? past : undefined;
}
