/** What is said where a tool does not do again what its journal records (invariant 8): the whole of it, for the logger. */
import { AwaitError } from '../error.ts';
import { FORMAT } from './journal.ts';

export function diverged(
  callId: string,
  attempted: string,
  { last, left }: { readonly last: string; readonly left: readonly string[] },
): AwaitError {
  const message = `${attempted}, where the journal of call ${callId} (format ${FORMAT}) has ${left.join(', ') || 'nothing'} left; last consumed: ${last}. Was the tool changed while the call was suspended? Keep the names and the order of its steps, or set unknownStep: 'run'.`;
  return new AwaitError('divergence', message);
}

/** @param place of the question whose text changes */
export function drifted(place: string): AwaitError {
  const message = `the question at '${place}' reads otherwise each time the tool is run again (a date, a random number?). Give the ask a key (_meta: { 'mcp-await/key': … }) and set drift: 'reuse', or put what varies into a step.`;
  return new AwaitError('question-drift', message);
}
