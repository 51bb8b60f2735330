/**
 * A tool that throws UrlElicitationRequiredError (-32042) cannot continue: on revisions without that code the error
 * becomes the URL asks it names, and the tool is run again once they are answered.
 */

import { digest } from '../../base/digest.ts';
import { ELICIT, isObject, type JsonObject, objectOf } from '../../base/values.ts';
import { RERUN } from '../frame/recording.ts';
import type { CallRecord, Checkpoint, Completion, OpenAsk, Response, RpcError } from '../journal/entries.ts';

/** In `_meta` of a result: the tool threw -32042 again after its user had opened the URLs. */
const STILL_NEEDED = 'mcp-await/urls-needed';

/** The URLs that a thrown UrlElicitationRequiredError names. */
export function urlsNeeded(response: Response): JsonObject[] | undefined {
  if (!('error' in response) || response.error.code !== -32042 || !isObject(response.error.data))
    return undefined;
  const { elicitations } = response.error.data;
  if (!Array.isArray(elicitations)) return undefined;
  const urls = elicitations.filter(
    (item): item is JsonObject => isObject(item) && typeof item.url === 'string',
  );
  return urls.length > 0 ? urls : undefined;
}

/** Whether a call ended because its user has to open a URL first: the same call may succeed after that. */
export function needsUrls(response: Response): boolean {
  const stillNeeded = 'result' in response && objectOf(response.result._meta)[STILL_NEEDED] === true;
  return stillNeeded || urlsNeeded(response) !== undefined;
}

/** Whether a completion is a refusal to open a URL that the tool threw. */
export function isDeclinedRerun(done: Completion): boolean {
  return done.kind === 'answer' && done.place.startsWith(RERUN) && isDeclined(done.response);
}

export function isDeclined(response: Response): boolean {
  return 'result' in response && response.result.action !== 'accept';
}

/** The response in place of a -32042 that names no URL to ask for, or whose client cannot be asked. */
export const URLS_NEEDED: RpcError = {
  code: -32603,
  message: 'This needs something to be done at a URL first, which cannot be asked for here',
};

/** The response on revisions that do not have the code -32042. */
export function withoutUrls(response: Response): Response {
  if (!('error' in response) || response.error.code !== -32042) return response;
  return { error: URLS_NEEDED };
}

export function declinedResponse(call: CallRecord): Response {
  return toolError(call, 'The URL that this needs was not opened: the request was declined.');
}

export function stillNeeded(call: CallRecord, urls: readonly JsonObject[]): Response {
  const text = `This still needs what is done at: ${urls.map((params) => String(params.url)).join(', ')}`;
  return toolError(call, text, { _meta: { [STILL_NEEDED]: true } });
}

function toolError(call: CallRecord, text: string, more: JsonObject = {}): Response {
  if (call.method === 'tools/call')
    return { result: { content: [{ type: 'text', text }], isError: true, ...more } };
  return { error: { code: -32603, message: text } };
}

/** How often the tool was run again already, for each URL. */
export function rerunsOf({ completions }: Checkpoint): number {
  return completions.filter(
    (completion) => completion.kind === 'answer' && completion.place.startsWith(RERUN),
  ).length;
}

/** The checkpoint at which the URLs are asked for. */
export function askUrls(before: Checkpoint, urls: readonly JsonObject[]): Checkpoint {
  const open = urls.map((params, index): OpenAsk => {
    const count = before.asked + index + 1;
    return {
      place: `${RERUN}${digest(params)}#${count}`,
      key: `url-${count}`,
      method: ELICIT,
      params: { ...params, mode: 'url' },
      question: digest(params),
    };
  });
  return { ...before, turn: before.turn + 1, open, asked: before.asked + open.length };
}
