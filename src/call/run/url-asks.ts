/**
 * A task whose tool throws -32042: its URLs are asked for like other asks of a task, in a frame whose tool is the
 * engine, and its own tool is run again once they are answered. A process that takes the task over meanwhile runs the
 * tool, which throws again, and so makes the same asks under the same keys.
 */
import { digest } from '../../base/digest.ts';
import { AwaitError, defined, ELICIT, type JsonObject } from '../../base/values.ts';
import { missingCapability, refusal } from '../ask/capability.ts';
import {
  declinedResponse,
  isDeclined,
  rerunsOf,
  stillNeeded,
  urlsNeeded,
  withoutUrls,
} from '../ask/url-elicitation.ts';
import { Frame } from '../frame/frame.ts';
import { classOf, type Question } from '../frame/place.ts';
import { RERUN } from '../frame/recording.ts';
import type { ReplayFrom } from '../frame/turn.ts';
import type { CallRecord, Response } from '../journal/entries.ts';
import type { Instance, RequestContext } from './request-context.ts';
import { type EngineParts, newRun, type Run } from './run.ts';

/**
 * The next step of a task whose tool is done, or whose URLs are answered.
 * @returns the run that continues it, or its outcome
 */
export function afterTask(
  parts: EngineParts,
  run: Run,
  response: Response,
  context: RequestContext,
): Run | Response {
  const next = run.next?.();
  if (next !== undefined) return next;
  if (!run.call.task?.asksUrls) return response;
  const urls = urlsNeeded(response);
  return urls === undefined ? withoutUrls(response) : askForUrls(parts, run, urls, context);
}

function askForUrls(
  { frame: options, limits, openInstance }: EngineParts,
  { call, binding, journal, frame }: Run,
  urls: readonly JsonObject[],
  context: RequestContext,
): Run | Response {
  if (rerunsOf(frame.fold()) >= limits.reruns * urls.length) return stillNeeded(call, urls);
  const required = missingCapability(context.capabilities, ELICIT, { mode: 'url' });
  if (required !== undefined) return refusal(required, ELICIT);
  const asking = new Frame(call, journal, options, { ...after(frame), isPast: true });
  const all = urls.map(({ elicitationId, ...url }) => {
    // `elicitationId` is drawn anew each time the tool throws.
    const about = digest(url);
    const params = { ...url, mode: 'url', ...defined({ elicitationId }) };
    return { class: RERUN + about, method: ELICIT, params, digest: about };
  });
  const questions = unanswered(all, frame);
  const shared = { call, binding, journal, held: { by: 'task' } } as const;
  const instance = new Asking(call, questions, () => openInstance(call, context));
  const next = (): Run | undefined => {
    const opened = instance.takeOpened();
    const frame = (): Frame => new Frame(call, journal, options, after(asking));
    return opened && newRun({ ...shared, frame: frame(), instance: opened });
  };
  return newRun({ ...shared, frame: asking, instance, next });
}

/** Takes the place of the user's server while the user opens the URLs. */
class Asking implements Instance {
  readonly #call: CallRecord;
  readonly #questions: readonly Question[];
  readonly #open: () => Promise<Instance>;
  /** Where the tool is to run again. */
  #opened: Instance | undefined;

  constructor(call: CallRecord, questions: readonly Question[], open: () => Promise<Instance>) {
    this.#call = call;
    this.#questions = questions;
    this.#open = open;
  }

  call(frame: Frame): void {
    void this.#ask(frame).catch((error: unknown) => frame.break(AwaitError.from(error)));
  }

  refresh(): void {}

  cancel(): void {}

  release(): void {
    this.#opened?.release(false);
  }

  /** Undefined where the tool is not to run again. */
  takeOpened(): Instance | undefined {
    const opened = this.#opened;
    this.#opened = undefined;
    return opened;
  }

  async #ask(frame: Frame): Promise<void> {
    const answers = this.#questions.map(async (question) => {
      const response = await frame.askAs(question, { inContext: true });
      if (isDeclined(response)) frame.finish(declinedResponse(this.#call));
    });
    await Promise.all(answers);
    if (frame.over) return;
    const opened = await this.#open();
    if (frame.over) {
      opened.release(false);
      return;
    }
    this.#opened = opened;
    // The frame's end starts the tool again.
    frame.finish({ result: {} });
  }
}

/** The state that an ended frame leaves to the next one; asks that it did not make stay open. */
export function after(frame: Frame): ReplayFrom {
  const folded = frame.fold();
  return { ...folded, open: [...folded.open, ...frame.unmade], fresh: 0 };
}

/** The questions without those that were answered before a takeover, in a round that was not complete. */
function unanswered(questions: readonly Question[], frame: Frame): readonly Question[] {
  const open = new Set(frame.unmade.map(({ place }) => classOf(place)));
  if (!questions.some((question) => open.has(question.class))) return questions;
  const answered = new Set(
    frame.fold().completions.flatMap((done) => (done.kind === 'answer' ? [classOf(done.place)] : [])),
  );
  return questions.filter((question) => open.has(question.class) || !answered.has(question.class));
}
