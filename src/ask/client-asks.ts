/**
 * The asks that a request's client gets itself. One that has not proven that it asks its user may answer by itself, or
 * show nothing: such an answer, none for a while, or a call that is cancelled meanwhile, leaves the ask to the page. The
 * first answer counts, of whichever of both.
 */
import { type Clock, defined, isObject, type JsonObject } from '../base/values.ts';
import type { Frame } from '../call/frame/frame.ts';
import { askedFor, KEY_META, type Question, questionOf } from '../call/frame/place.ts';
import type { CallRecord, OpenAsk, Response } from '../call/journal/entries.ts';
import type { RequestContext } from '../call/ports.ts';
import { isForm, type WaitingCalls } from './waiting-calls.ts';

/** How long a client that is not proven may show a question, in milliseconds: some end calls after a minute. */
const SHOWN = 45_000;

interface ClientAsksParts {
  readonly calls: WaitingCalls;
  readonly clock: Clock;
  readonly request: {
    readonly call: CallRecord;
    readonly context: Pick<RequestContext, 'live'>;
    /** Who answers on the page, if anybody does. */
    readonly person: string | undefined;
  };
  /** Equal calls continue the call from here on. */
  opened(call: CallRecord): Promise<unknown>;
  /** The request was cancelled, so its client gets no response; the page asks. */
  doubted(call: CallRecord): Promise<void>;
  /** Waits so many milliseconds for the answers of the page, by their keys. */
  awaited(
    call: CallRecord,
    asks: readonly OpenAsk[],
    wait: number,
    stop: AbortSignal,
  ): Promise<Record<string, JsonObject> | undefined>;
}

export class ClientAsks {
  readonly #parts: ClientAsksParts;
  /** Asks that its client shows, or not: it is not proven. */
  readonly #shown = new Map<OpenAsk, CallRecord>();
  #isCancelled = false;

  constructor(parts: ClientAsksParts) {
    this.#parts = parts;
  }

  /** The client cancelled the request. @returns whether that says nothing of its user */
  cancel(): boolean {
    this.#isCancelled = true;
    for (const [ask, call] of this.#shown) void this.#doubt(call, ask).catch(() => {});
    return this.#shown.size > 0;
  }

  /** Whether its client may deceive: it declares what the ask needs, and has not proven that it asks. */
  async isUnproven(ask: OpenAsk): Promise<boolean> {
    const { person, call } = this.#parts.request;
    return person !== undefined && isForm(ask) && !(await this.#parts.calls.isProven(call));
  }

  /** Asks a client that is not proven. @returns no response where the page has to ask, and whether that is new */
  async shown(
    frame: Frame,
    call: CallRecord,
    ask: OpenAsk,
  ): Promise<{ readonly response: Response } | { readonly isNews: boolean }> {
    const { calls, clock } = this.#parts;
    // From here on an equal call continues it, whatever becomes of this request.
    await this.#parts.opened(call);
    const past = pastAnswer(frame, questionFor(call.id, ask));
    if ((await calls.doubtOf(call, ask)) !== undefined) {
      if (past === undefined || 'error' in past || past.result.action !== 'accept') return { isNews: false };
      await calls.believes(call, past.result, await calls.asked(call, ask));
      return { response: past };
    }
    const at = await calls.asked(call, ask);
    const left = at + SHOWN - clock.now();
    if (left <= 0 && past === undefined) return { isNews: await this.#doubt(call, ask) };
    this.#shown.set(ask, call);
    const asked = this.itself(frame, call.id, ask);
    const response = await (this.#parts.request.context.live ? this.#inTime(call, ask, asked, left) : asked);
    this.#shown.delete(ask);
    if (response === undefined) {
      // A task waits on, and so does the question at its client.
      const late = async (given: Response): Promise<void> => {
        if (!('error' in given) && (await calls.believes(call, given.result, at)))
          await this.count(call, ask, given);
      };
      asked.then(late).catch(() => {});
      return { isNews: await this.#doubt(call, ask) };
    }
    // An answer from the page proves nothing about the client.
    if ('error' in response || (await calls.answerTo(call.id, ask.key)) !== undefined) return { response };
    if (await calls.believes(call, response.result, at)) return { response };
    return { isNews: await this.#doubt(call, ask) };
  }

  /** Asks a client that is believed, within what is left of the tool's own time-out. */
  itself(frame: Frame, callId: string, ask: OpenAsk): Promise<Response> {
    const { deadline } = ask;
    const left = deadline && Math.max(1, deadline.at - this.#parts.clock.now());
    return askedBy(frame, callId, ask, left);
  }

  async #inTime(
    call: CallRecord,
    ask: OpenAsk,
    asked: Promise<Response>,
    wait: number,
  ): Promise<Response | undefined> {
    const heard = new AbortController();
    const page = this.#parts.awaited(call, [ask], wait, heard.signal).then((given) => {
      const result = given?.[ask.key];
      return result && { result };
    });
    return Promise.race([asked, page]).finally(() => heard.abort());
  }

  async #doubt(call: CallRecord, ask: OpenAsk): Promise<boolean> {
    const isNews = await this.#parts.calls.doubt(call, ask, true);
    if (isNews && this.#isCancelled) await this.#parts.doubted(call);
    return isNews;
  }

  /** An answer by the client counts, if it is the first. */
  count(call: CallRecord, ask: OpenAsk, response: { readonly result: JsonObject }): Promise<boolean> {
    const { calls, clock } = this.#parts;
    return calls.answer(call, ask, { response, by: '', route: 'client', time: clock.now() });
  }
}

/** Asks the request's client, under the key of the call that waits; the answer that was recorded before is it. */
export async function askedBy(frame: Frame, callId: string, ask: AskOf, timeout?: number): Promise<Response> {
  const question = questionFor(callId, ask);
  return pastAnswer(frame, question) ?? frame.askAs(question, { inContext: true, ...defined({ timeout }) });
}

type AskOf = Pick<OpenAsk, 'key' | 'method' | 'params'>;

function questionFor(callId: string, { key, method, params }: AskOf): Question {
  const meta = isObject(params._meta) ? params._meta : {};
  return askedFor(callId, questionOf(method, { ...params, _meta: { ...meta, [KEY_META]: key } }));
}

function pastAnswer(frame: Frame, question: Question): Response | undefined {
  const place = `${question.class}#1`;
  const past = frame.past.findLast((done) => done.kind === 'answer' && done.place === place);
  return past?.kind === 'answer' ? past.response : undefined;
}
