/** The outcome of a call that would have to be run again from its start, and may not be. */

import { AwaitError } from '../../base/values.ts';
import { isOnce } from '../frame/drawn.ts';
import type { Checkpoint, Completion } from '../journal/entries.ts';

/** The names of the steps that are done. */
export function stepsDone(completions: readonly Completion[]): readonly string[] {
  return completions.flatMap((item) => (item.kind === 'step' && !isOnce(item.path) ? [item.path] : []));
}

/** Characters of a question that an error repeats. */
const QUOTED = 200;

/** Names completed steps and questions, not the answers. */
export function replayRefused(
  { completions, open }: Pick<Checkpoint, 'completions' | 'open'>,
  since: readonly Completion[] = [],
): AwaitError {
  const all = [...completions, ...since];
  const done = stepsDone(all);
  const asked = all.flatMap((item) => (item.kind === 'answer' ? [`${item.method} (${item.key})`] : []));
  const answered = asked.length === 0 ? '' : ` Answered asks: ${asked.join(', ')}.`;
  const quoted = open.map(({ method, key, params: { message } }) =>
    typeof message === 'string' ? JSON.stringify(message.slice(0, QUOTED)) : `${method} (${key})`,
  );
  const waiting = quoted.length === 0 ? '' : ` Open questions: ${quoted.join(', ')}.`;
  return new AwaitError(
    'replay-refused',
    `this call could not be continued: the process that ran it cannot be reached, and it may not be run again from its start.${answered}${waiting} Completed steps: ${done.join(', ') || 'none'}`,
  );
}
