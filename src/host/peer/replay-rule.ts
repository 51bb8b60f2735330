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

/** The option `replay` for calls that were sent: those whose tool declared it safe, all, or none. */
export type Replay = 'safe' | 'allow' | 'never';

/** @returns whether a call may run from its start; a call that was not sent always may */
export function replayRule(
  replay: Replay,
): (call: CallRecord, done: readonly Completion[]) => 'allow' | 'never' {
  if (replay === 'allow') return () => 'allow';
  return (call, done) => {
    const sent = done.flatMap((completion) =>
      completion.kind === 'step' && completion.path.startsWith(PATH) ? [completion.outcome] : [],
    );
    if (sent.length === 0) return 'allow';
    if (replay === 'never') return 'never';
    const isRepeatable = sent.every(
      (outcome) => 'value' in outcome && isObject(outcome.value) && outcome.value.repeatable === true,
    );
    return call.method !== 'tools/call' || isRepeatable ? 'allow' : 'never';
  };
}
