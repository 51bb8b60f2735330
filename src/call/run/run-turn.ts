/** A turn of a run as its frame sees it: the client's capabilities, its answers so far, and the way to send to it. */

import type { Quota } from '../../base/quota.ts';
import { AwaitError, isObject, type JsonObject } from '../../base/values.ts';
import { checkGiven, uncheckable } from '../ask/answer.ts';
import { lackOf, NO_PERSON } from '../ask/capability.ts';
import { urlsNeeded } from '../ask/url-elicitation.ts';
import { isForPerson } from '../frame/place.ts';
import type { Detach, Ending, Lack, Turn } from '../frame/turn.ts';
import type { OpenAsk, Response } from '../journal/entries.ts';
import type { Answers } from './answers.ts';
import type { RequestContext } from './request-context.ts';
import { becomingTask, type EngineParts, isTask, quotaKeyOf, type Run } from './run.ts';

export interface RunTurnParts {
  readonly check: EngineParts['check'];
  /** The tasks that run here. */
  readonly room: Quota;
  readonly answers: Answers;
}

export class RunTurn implements Turn {
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
    return isForPerson(params) && hasPerson !== true ? NO_PERSON : lackOf(capabilities, method, params);
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
    return this.#context.isLogged === true && !this.#run.asked.includes(key);
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
    return !this.#context.live && urlsNeeded(response) !== undefined;
  }
}
