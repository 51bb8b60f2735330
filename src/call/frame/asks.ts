/** A tool's ask, and the form in which it goes out. */
import { defined } from '../../base/values.ts';
import type { OpenAsk, Response } from '../journal/entries.ts';
import type { Question } from './place.ts';
import type { AskAttempt } from './recording.ts';
import type { AskOptions } from './turn.ts';

/** @param abandoned called if the tool gives it up before it is settled */
export function askAttempt(
  question: Question,
  nth: number,
  { inContext, timeout, signal, progress, raw, sent, answered }: AskOptions,
  settle: (response: Response) => void,
  abandoned: () => void,
): AskAttempt {
  signal?.addEventListener('abort', abandoned, { once: true });
  return {
    kind: 'ask',
    question,
    nth,
    inContext,
    ...defined({ timeout, progress, sent }),
    ...(raw && { raw }),
    settle: (response, answer) => {
      signal?.removeEventListener('abort', abandoned);
      if (answer !== undefined) answered?.(answer);
      settle(response);
    },
  };
}

/**
 * @param ordinal its ordinal in its class
 * @param wire its key, and its author's name for it on the wire if that is another
 * @param now milliseconds since the epoch
 * @param drift how often the text at its place changed
 */
export function openAskOf(
  { question, nth, timeout, progress, raw }: AskAttempt,
  ordinal: number,
  wire: { readonly key: string; readonly name?: string },
  now: number,
  drift: number | undefined,
): OpenAsk {
  const total = progress?.total;
  const last = total !== undefined && { last: { at: now + total, timeout: total } };
  return {
    place: `${question.class}#${ordinal}`,
    ...wire,
    method: question.method,
    params: question.params,
    question: question.digest,
    nth,
    ...(timeout !== undefined && { deadline: { at: now + timeout, timeout } }),
    ...(progress !== undefined && { progress: progress.resets ? { resets: true, ...last } : {} }),
    ...defined({ drift }),
    ...(raw && { raw }),
  };
}
