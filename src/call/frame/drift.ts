/** The messages for the logger when a tool departs from its journal (invariant 8), with all details. */
import { AwaitError } from '../../base/values.ts';
import { type AnswerCompletion, FORMAT } from '../journal/entries.ts';
import type { Question } from './place.ts';
import type { FrameOptions } from './turn.ts';

export function diverged(
  callId: string,
  attempted: string,
  { last, left }: { readonly last: string; readonly left: readonly string[] },
): AwaitError {
  const message = `${attempted}, where the journal of call ${callId} (format ${FORMAT}) has ${left.join(', ') || 'nothing'} left; last consumed: ${last}. Was the tool changed? Keep names and order of its steps while calls of the old version are open. Or did it go another way by something that no journal has? Put that into a step: docs/steps.md.`;
  return new AwaitError('divergence', message);
}

/** How an ask in other words than those answered at its place is treated (invariant 5). */
export type Drift =
  | { readonly kind: 'diverged'; readonly attempted: string }
  | { readonly kind: 'drifted'; readonly error: AwaitError }
  /** It has the answer. */
  | { readonly kind: 'reused' }
  /** It goes out once more. */
  | { readonly kind: 'asked'; readonly drift: number };

export function driftOf(question: Question, answer: AnswerCompletion, policy: FrameOptions['drift']): Drift {
  const drift = (answer.drift ?? 0) + 1;
  if (answer.method !== question.method) {
    const key = question.explicitKey ?? question.class;
    const attempted = `the tool asks ${question.method} under the key '${key}', which ${answer.method} was asked under`;
    return { kind: 'diverged', attempted };
  }
  if (policy === 'reuse') return { kind: 'reused' };
  if (policy === 'ask' && drift <= 1) return { kind: 'asked', drift };
  const message = `the question at '${answer.place}' reads otherwise each time the tool is run again. Give the ask a key (_meta: { 'mcp-await/key': … }) and set drift: 'reuse', or put what varies into a step.`;
  return { kind: 'drifted', error: new AwaitError('question-drift', message) };
}
