/**
 * Which calls of a server behind a link may be run again from their start after it ended: those not yet sent to it,
 * `prompts/get`, `resources/read`, and tools that declared `readOnlyHint` or `idempotentHint` when the call was sent.
 * That fact goes into the call's journal at that time, as a step does.
 */
import { isObject, type JsonObject } from '../base/json.ts';
import type { DrawPlace } from '../call/frame/drawn.ts';
import type { CallRecord, Completion, Response } from '../call/journal/entries.ts';

/** Where it is recorded: no step of a tool has such a name. */
export const SENT: DrawPlace = { site: 'sent-to-server', branch: '[]' };
const PATH = `/${SENT.site}${SENT.branch}`;

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

/** Of a call that was sent, of a tool that may not be called twice. */
const SENT_ONCE: Completion = { kind: 'step', path: `${PATH}#1`, outcome: { value: { repeatable: false } } };

/** Whether every call of a server may wait for longer than that server lives. */
export function replaysAll(mayReplay: ReturnType<typeof replayRule>): boolean {
  return mayReplay({ method: 'tools/call' } as CallRecord, [SENT_ONCE]) === 'allow';
}

/** Pages of a list of tools that are read. */
const PAGES = 50;

/** The names of the tools that may be called twice, of all pages of a server's list. */
export async function repeatableTools(
  list: (params: JsonObject) => Promise<Response>,
): Promise<ReadonlySet<string>> {
  const names = new Set<string>();
  let cursor: unknown;
  for (let page = 0; page < PAGES; page += 1) {
    const response = await list(cursor === undefined ? {} : { cursor });
    if (!('result' in response)) break;
    const { tools, nextCursor } = response.result;
    for (const tool of Array.isArray(tools) ? tools : []) {
      const { readOnlyHint, idempotentHint } =
        isObject(tool) && isObject(tool.annotations) ? tool.annotations : {};
      if (isObject(tool) && (readOnlyHint === true || idempotentHint === true)) names.add(String(tool.name));
    }
    if (typeof nextCursor !== 'string') break;
    cursor = nextCursor;
  }
  return names;
}
