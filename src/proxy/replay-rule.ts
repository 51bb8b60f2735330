/**
 * Which calls of a server behind a link may be run again from their start after it ended: those not yet sent to it,
 * `prompts/get`, `resources/read`, and tools that declared `readOnlyHint` or `idempotentHint` when the call was sent.
 * That fact goes into the call's journal at that time, as a step does.
 */
import { isObject, type JsonObject, keepFitting, objectOf } from '../base/values.ts';
import type { DrawPlace } from '../call/frame/drawn.ts';
import { isRound } from '../call/frame/rounds.ts';
import type { CallRecord, Completion, Response } from '../call/journal/entries.ts';
import { toolPages } from '../host/tool-pages.ts';

/** Where it is recorded: no step of a tool has such a name. */
export const SENT: DrawPlace = { site: 'sent-to-server', branch: '[]' };
/** In a round after the first, too (`Rounds.placeOf`). */
const IS_SENT = /^\/(\d+:)?sent-to-server\[\]/;

/** Recorded at the same place: what was sent before was certainly not taken. */
export const NOT_TAKEN = null;

export interface SentCall {
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
    // What was sent before a server returned its asks has ended with them.
    const facts = done
      .slice(done.findLastIndex(isRound) + 1)
      .flatMap((completion) =>
        completion.kind === 'step' && IS_SENT.test(completion.path) && 'value' in completion.outcome
          ? [completion.outcome.value]
          : [],
      );
    const sent = facts.slice(facts.lastIndexOf(NOT_TAKEN) + 1);
    if (sent.length === 0) return 'allow';
    if (replay === 'never') return 'never';
    const isRepeatable = sent.every((fact) => objectOf(fact).repeatable === true);
    return call.method !== 'tools/call' || isRepeatable ? 'allow' : 'never';
  };
}

/** The names of the tools that may be called twice, of all pages of a server's list, as many as fit. */
export async function repeatableTools(
  list: (params: JsonObject) => Promise<Response>,
): Promise<ReadonlyMap<unknown, true>> {
  const names = new Map<unknown, true>();
  for await (const { tools } of toolPages(list)) {
    for (const tool of Array.isArray(tools) ? tools : []) {
      const { readOnlyHint, idempotentHint } = objectOf(objectOf(tool).annotations);
      if (isObject(tool) && (readOnlyHint === true || idempotentHint === true)) names.set(tool.name, true);
    }
    keepFitting(names);
  }
  return names;
}
