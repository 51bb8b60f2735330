/**
 * Tools that return their asks (`inputRequired`, SDK v2) instead of awaiting them. The asks go out as written, under
 * the tool's own keys; the tool's `requestState` stays in the call's journal, inside of this package's own state; and
 * each round is one attempt in the same frame as any `await` beside it.
 */
import { isObject, type JsonObject } from '../base/values.ts';
import type { Frame } from '../call/frame/frame.ts';
import { KEY_META } from '../call/frame/place.ts';
import type { Response } from '../call/journal/entries.ts';

/** Before a tool that asked nothing is run again in the same process, in milliseconds, as the SDKs' clients wait. */
const PAUSE = 250;

/** The result of a round that asks. */
interface Needs extends JsonObject {
  readonly inputRequests: JsonObject;
  readonly requestState?: string;
}

/** The params with which a round is run. */
export interface RoundParams extends JsonObject {
  readonly inputResponses?: JsonObject;
  readonly requestState?: string;
}

/** The asks of a response; undefined if it is the outcome. */
export function needsOf(response: Response): Needs | undefined {
  if (!('result' in response) || response.result.resultType !== 'input_required') return undefined;
  return readNeeds(response.result);
}

/** The recorded params of the next round of a replayed call; undefined if none are left. */
export function recordedRound(frame: Frame): Promise<RoundParams> | undefined {
  return frame.lastRound === undefined ? undefined : askFor(frame, readNeeds(frame.lastRound));
}

/** Resolves with the params of the next round; never settles if the call continues elsewhere. */
export async function nextRound(frame: Frame, needs: Needs): Promise<RoundParams> {
  const params = await askFor(frame, readNeeds(await frame.endRound(needs)));
  if (params.inputResponses === undefined) await new Promise((resolve) => setTimeout(resolve, PAUSE));
  return params;
}

function readNeeds({ inputRequests, requestState }: JsonObject): Needs {
  return {
    inputRequests: isObject(inputRequests) ? inputRequests : {},
    ...(typeof requestState === 'string' && { requestState }),
  };
}

async function askFor(frame: Frame, { inputRequests, requestState }: Needs): Promise<RoundParams> {
  const state = requestState === undefined ? {} : { requestState };
  const entries = Object.entries(inputRequests);
  if (entries.length === 0) {
    // Its client brings the call back without an answer.
    await frame.context.shed?.();
    return state;
  }
  const asked = entries.map(async ([key, entry]) => {
    const { method, params } = isObject(entry) ? entry : {};
    const given = isObject(params) ? params : {};
    const meta = isObject(given._meta) ? given._meta : {};
    const named = { ...given, _meta: { ...meta, [KEY_META]: key } };
    return [key, await frame.ask(String(method), named, { inContext: true, raw: true })] as const;
  });
  const answered = await Promise.all(asked);
  const inputResponses = Object.fromEntries(
    // A client that answers by an error (of a task) gave no response to this one.
    answered.flatMap(([key, response]) => ('result' in response ? [[key, response.result]] : [])),
  );
  return { ...state, inputResponses };
}
