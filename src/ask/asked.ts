/**
 * The answers to the asks of a call that waits. What its client declares goes to the client, the rest to the page. A client
 * that has not proven that it asks its user may answer by itself, or show nothing: such an answer, none for a while, or a
 * call that is cancelled meanwhile, leaves the ask to the page. An ask that may be on the page has one outcome, whichever
 * comes first: the page's answer, the client's, its error, or the end of the ask's own time. Each is inserted if absent.
 */
import {
  type Clock,
  deferred,
  defined,
  type JsonObject,
  objectOf,
  type Timer,
  textOf,
} from '../base/values.ts';
import { type AnswerCheck, checkGiven, type ErrorAnswers, isLate } from '../call/ask/answer.ts';
import { missingCapability } from '../call/ask/capability.ts';
import { isShed } from '../call/frame/drawn.ts';
import type { Frame } from '../call/frame/frame.ts';
import { askedFor, isForPerson, KEY_META, type Question, questionOf, roleOf } from '../call/frame/place.ts';
import {
  type CallRecord,
  type Checkpoint,
  type OpenAsk,
  type Response,
  timedOut,
} from '../call/journal/entries.ts';
import type { RequestContext } from '../call/ports.ts';
import { expiryOf, isForm, type WaitingCalls, type WaitsFor } from './waiting-calls.ts';

/** How long a client that is not proven may show a question, in milliseconds: some end calls after a minute. */
const SHOWN = 45_000;
/** How long a request waits for the person, in milliseconds: clients give up after a minute, some after half of one. */
const WAIT = 25_000;
/** Rounds without an ask in which a client that opened the page waits for it. */
const ROUNDS = 5;
/** How often answers of other processes are looked for, in milliseconds. */
export const LOOK = 500;
const URL_MODE: JsonObject = { mode: 'url' };

interface AskedParts {
  readonly calls: WaitingCalls;
  readonly clock: Clock;
  readonly check: AnswerCheck;
  readonly request: {
    readonly call: CallRecord;
    readonly context: Pick<RequestContext, 'live' | 'workspace'>;
    /** Who answers on the page, if anybody does. */
    readonly person: string | undefined;
  };
  /** Fires when no request waits for the call here. */
  readonly over: AbortSignal;
  /** Resolves then. */
  readonly ended: Promise<undefined>;
  /** An ask waits for its person from now on, on a page. */
  opened(call: CallRecord, waiting: WaitsFor): void;
}

export interface OfferedAnswers {
  readonly responses: JsonObject;
  readonly errors?: ErrorAnswers;
}

type ByAsk = Map<OpenAsk, Response>;

export class AskedAnswers {
  readonly #parts: AskedParts;
  /** Asks that the client shows, or not: it is not proven. */
  readonly #shown = new Map<OpenAsk, CallRecord>();
  /** Asks that were sent to the client and are not on the page: only the client can answer them. */
  readonly alone = new Set<OpenAsk>();
  /** Whether the client cancelled the request. */
  #isCancelled = false;
  /** The asks of the call that are on the page. */
  page: readonly OpenAsk[] = [];

  constructor(parts: AskedParts) {
    this.#parts = parts;
  }

  /** The client cancelled the request. @returns whether that says nothing of its user */
  cancel(): boolean {
    this.#isCancelled = true;
    for (const [ask, call] of this.#shown) void this.#doubt(call, ask).catch(() => {});
    return this.#shown.size > 0;
  }

  opened(call: CallRecord): Promise<WaitsFor> {
    const { calls, request } = this.#parts;
    return calls.opened(call, request.person ?? '', request.context.workspace);
  }

  /**
   * The answers to all of its asks, or to some where the time of others is over.
   * @param isTold whether the client knows that the call waits
   * @returns undefined where the person has not answered
   */
  async answers(
    frame: Frame,
    { call, open }: Checkpoint,
    isTold: boolean,
  ): Promise<OfferedAnswers | undefined> {
    const { calls, request } = this.#parts;
    const given: ByAsk = new Map();
    const page = new Set<OpenAsk>();
    // One that is on the page may be answered there at any time.
    const isOpen =
      open.some((ask) => this.#isForPage(ask)) ||
      (request.person !== undefined && (await calls.waitsFor(call.id)) !== undefined);
    let isNews = false;
    const get = async (ask: OpenAsk): Promise<void> => {
      const isDue = this.#late(ask) !== undefined;
      const isForPage = this.#isForPage(ask);
      if (isForPage && !isDue) return void page.add(ask);
      const isDoubtful = await this.#isUnproven(ask);
      const isShared = isOpen || isDoubtful;
      const kept = isShared ? (await calls.answerTo(call.id, ask.key))?.response : undefined;
      if (kept !== undefined) given.set(ask, kept);
      // An ask whose own time is over is not sent to the client.
      const past = pastAnswer(frame, questionFor(call.id, ask));
      if (kept !== undefined || isForPage || (past === undefined && isDue)) return;
      const itself = (): Promise<Response | undefined> => this.#ask(frame, call, ask, isShared);
      const response = await (isDoubtful
        ? this.#show(frame, call, ask, past, given)
        : isShared
          ? this.#orPage(call, [ask], given, Infinity, itself())
          : itself());
      if (typeof response === 'boolean') {
        if (this.#late(ask) !== undefined) return;
        page.add(ask);
        isNews ||= response;
      } else if (response !== undefined)
        given.set(ask, isShared ? await this.#first(call, ask, response) : response);
    };
    await Promise.all(open.map(get));
    this.page = [...page];
    if (page.size > 0) await this.#fromPage(frame, call, isTold && !isNews, given);
    let isDue = false;
    for (const ask of open) {
      const late = given.has(ask) ? undefined : this.#late(ask);
      if (late === undefined) continue;
      isDue = true;
      given.set(ask, await this.#first(call, ask, late));
    }
    if (!isDue && this.page.some((ask) => !given.has(ask))) return undefined;
    return offered([...given].map(([{ key }, response]) => [key, response]));
  }

  #isForPage(ask: OpenAsk): boolean {
    const { person } = this.#parts.request;
    return person !== undefined && isForm(ask) && (isForPerson(ask.params) || this.#lacks(ask.params));
  }

  /** Whether the client cannot be asked so. */
  #lacks(params: JsonObject): boolean {
    const { capabilities } = this.#parts.request.call.client;
    return missingCapability(capabilities, 'elicitation/create', params) !== undefined;
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

  // --- the client ---

  /** Whether its client may deceive: it declares what the ask needs, and has not proven that it asks. */
  async #isUnproven(ask: OpenAsk): Promise<boolean> {
    const { person, call } = this.#parts.request;
    return person !== undefined && isForm(ask) && !(await this.#parts.calls.isProven(call));
  }

  /** Asks a client that is believed, within what is left of the tool's own time. */
  async #ask(
    frame: Frame,
    { id }: CallRecord,
    ask: OpenAsk,
    isShared: boolean,
  ): Promise<Response | undefined> {
    const { deadline } = ask;
    const left = deadline && Math.max(1, deadline.at - this.#parts.clock.now());
    if (!isShared) this.alone.add(ask);
    const response = await this.#put(frame, id, ask, left);
    if (response === undefined) return undefined;
    this.alone.delete(ask);
    return this.#checked(ask, response);
  }

  /** Asks the request's client, under the key of the call that waits; the answer that was recorded before is it. */
  async #put(frame: Frame, callId: string, ask: AskOf, timeout?: number): Promise<Response | undefined> {
    const question = questionFor(callId, ask);
    const options = { inContext: true, ...defined({ timeout }) };
    const past = pastAnswer(frame, question);
    return past ?? Promise.race([frame.askAs(question, options), this.#parts.ended]);
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
    return { error: { code: -32602, message: 'Invalid params: the answer does not fit its question' } };
  }

  /**
   * Asks a client that is not proven.
   * @returns the response of the client or of the page; where the page has to ask instead, true if it did not before, else
   * false; undefined where the request is over
   */
  async #show(
    frame: Frame,
    call: CallRecord,
    ask: OpenAsk,
    past: Response | undefined,
    given: ByAsk,
  ): Promise<Response | boolean | undefined> {
    const { calls, clock } = this.#parts;
    // From here on an equal call continues it, whatever becomes of this request.
    await this.opened(call);
    if ((await calls.doubtOf(call, ask)) !== undefined) {
      if (past === undefined || 'error' in past || past.result.action !== 'accept') return false;
      await calls.believes(call, past.result, await calls.asked(call, ask));
      return past;
    }
    const at = await calls.asked(call, ask);
    const left = at + SHOWN - clock.now();
    if (left <= 0 && past === undefined) return this.#doubt(call, ask);
    this.#shown.set(ask, call);
    const asked = this.#ask(frame, call, ask, true);
    const response = (await this.#orPage(call, [ask], given, left, asked)) ?? given.get(ask);
    this.#shown.delete(ask);
    if (this.#parts.over.aborted) return undefined;
    if (response === undefined) {
      // A task waits on, and so does the question at its client.
      const late = async (found: Response | undefined): Promise<void> => {
        if (found !== undefined && !('error' in found) && (await calls.believes(call, found.result, at)))
          await this.#first(call, ask, found);
      };
      asked.then(late).catch(() => {});
      return this.#doubt(call, ask);
    }
    // An answer from the page proves nothing about the client.
    if ('error' in response || (await calls.answerTo(call.id, ask.key)) !== undefined) return response;
    return (await calls.believes(call, response.result, at)) ? response : this.#doubt(call, ask);
  }

  /** A client's response. Where it is asked live it is undefined after so many milliseconds, or once the page is done. */
  #orPage(
    call: CallRecord,
    asks: readonly OpenAsk[],
    given: ByAsk,
    wait: number,
    asked: Promise<Response | undefined>,
  ): Promise<Response | undefined> {
    if (!this.#parts.request.context.live) return asked;
    const heard = new AbortController();
    const page = this.#await(call, asks, given, wait, heard.signal).then(() => undefined);
    return Promise.race([asked, page]).finally(() => heard.abort());
  }

  /** @returns whether that is new */
  async #doubt(call: CallRecord, ask: OpenAsk): Promise<boolean> {
    const isNews = await this.#parts.calls.doubt(call, ask, true);
    // The request was cancelled, so its client gets no response; the page asks.
    if (isNews && this.#isCancelled) this.#parts.opened(call, await this.opened(call));
    return isNews;
  }

  // --- the page ---

  /** Adds the page's answers, as far as they come. */
  async #fromPage(frame: Frame, call: CallRecord, isTold: boolean, given: ByAsk): Promise<void> {
    const { calls, request, over } = this.#parts;
    const { page: asks } = this;
    const waits = await this.opened(call);
    for (const { params } of asks) await calls.openedTo(call, roleOf(params));
    if (!isTold && !this.#isCancelled) this.#parts.opened(call, waits);
    // A task waits as long as it lives; a client that was not told yet is told at once.
    const isTask = request.call.task?.when === 'now';
    const patience = isTask ? Infinity : isTold ? WAIT : 0;
    const [first] = asks;
    const isOffered = first !== undefined && this.#lacks({}) && !this.#lacks(URL_MODE);
    // A question that is answered is not sent to the page again.
    if (
      isOffered &&
      (await calls.doubtOf(call, first)) === undefined &&
      !(await this.#read(call, asks, given))
    ) {
      const isOpened = await this.#offer(frame, call, first, waits, given);
      const { live } = request.context;
      // Rounds that are over are not waited for again.
      const past = frame.past.filter((done) => done.kind === 'step' && isShed(done.path)).length;
      for (let round = past; isOpened; round += 1) {
        const isDone = await this.#await(call, asks, given, live ? Infinity : WAIT);
        if (isDone || live || round >= ROUNDS || over.aborted) return;
        await Promise.race([frame.context.shed?.(), this.#parts.ended]);
      }
    }
    await this.#await(call, asks, given, patience);
  }

  /** Has its client open the page. @returns whether it did */
  async #offer(
    frame: Frame,
    call: CallRecord,
    first: OpenAsk,
    { url }: WaitsFor,
    given: ByAsk,
  ): Promise<boolean> {
    const { calls } = this.#parts;
    const at = await calls.asked(call, first);
    const { key, method } = first;
    const params = { ...URL_MODE, url, message: textOf(first.params.message ?? '') };
    const opening = this.#put(frame, call.id, { key, method, params });
    const response = await this.#orPage(call, this.page, given, Infinity, opening);
    if (response === undefined) return true;
    const action = 'error' in response ? undefined : response.result.action;
    // Its `accept` says that the page was opened.
    if (action === 'accept') return true;
    // A client that declines within a second has not asked its user, and an error is no answer.
    if (action === undefined || !(await calls.believes(call, { action }, at)))
      await calls.doubt(call, first, false);
    else
      for (const ask of this.page)
        if (!isForPerson(ask.params)) await this.#first(call, ask, { result: { action } });
    return false;
  }

  /** @returns whether all are answered */
  async #read(call: CallRecord, asks: readonly OpenAsk[], given: ByAsk): Promise<boolean> {
    const read = async (ask: OpenAsk): Promise<void> => {
      const found = await this.#parts.calls.answerTo(call.id, ask.key);
      if (found !== undefined) given.set(ask, found.response);
    };
    await Promise.all(asks.map(read));
    return asks.every((ask) => given.has(ask));
  }

  /** Waits for the person so many milliseconds, or until a question's own time is over. @returns whether that is it */
  async #await(
    call: CallRecord,
    asks: readonly OpenAsk[],
    given: ByAsk,
    wait: number,
    stop?: AbortSignal,
  ): Promise<boolean> {
    const { calls, clock, over } = this.#parts;
    const signal = stop === undefined ? over : AbortSignal.any([over, stop]);
    const end = clock.elapsed() + wait;
    for (;;) {
      const { promise: woken, resolve: wake } = deferred();
      const unheard = calls.listen(call.id, wake);
      signal.addEventListener('abort', wake, { once: true });
      let timer: Timer | undefined;
      try {
        // A task waits on where another process's request was cancelled, which stopped the page.
        if (wait > WAIT) await calls.resume(call);
        const isAll = await this.#read(call, asks, given);
        const left = asks.filter((ask) => !given.has(ask));
        const due = expiryOf(call.expires, left) + 1 - clock.now();
        const rest = end - clock.elapsed();
        if (isAll || due <= 0 || rest <= 0 || signal.aborted) return isAll || due <= 0;
        timer = clock.after(Math.min(LOOK, due, rest), wake).unref();
        await woken;
      } finally {
        unheard();
        timer?.cancel();
        signal.removeEventListener('abort', wake);
      }
    }
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
  const meta = objectOf(params._meta);
  return askedFor(callId, questionOf(method, { ...params, _meta: { ...meta, [KEY_META]: key } }));
}

function pastAnswer(frame: Frame, question: Question): Response | undefined {
  const place = `${question.class}#1`;
  const past = frame.past.findLast((done) => done.kind === 'answer' && done.place === place);
  return past?.kind === 'answer' ? past.response : undefined;
}
