/**
 * Which calls of a server behind a link may be run again from their start after it ended: those not yet sent to it,
 * `prompts/get`, `resources/read`, and tools that declared `readOnlyHint` or `idempotentHint` when the call was sent.
 * That fact goes into the call's journal at that time, as a step does.
 */
import { isObject } from '../../base/json.ts';
import type { DrawPlace } from '../../call/frame/drawn.ts';
import type { CallRecord, Completion } from '../../call/journal/entries.ts';

/** Where it is recorded: no step of a tool has such a name. */
export const SENT: DrawPlace = { site: 'sent-to-server', branch: '[]' };
const PATH = `/${SENT.site}${SENT.branch}`;

export interface Sent {
  readonly repeatable: boolean;
}

export function replayRule(call: CallRecord, done: readonly Completion[]): 'allow' | 'never' {
  if (call.method !== 'tools/call') return 'allow';
  const sent = done.flatMap((completion) =>
    completion.kind === 'step' && completion.path.startsWith(PATH) ? [completion.outcome] : [],
  );
  const isRepeatable = sent.every(
    (outcome) => 'value' in outcome && isObject(outcome.value) && outcome.value.repeatable === true,
  );
  return isRepeatable ? 'allow' : 'never';
}
