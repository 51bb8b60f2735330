/** What the model reads of a call that waits for a person, and of one that is done already. */
import { type JsonObject, objectOf, textOf } from '../base/values.ts';
import type { OpenAsk, Response } from '../call/journal/entries.ts';
import { expiryOf } from './waiting-calls.ts';

/** In `_meta` of a result: the call waits, and for whom. */
const WAITING = 'mcp-await/waiting';
/** In `_meta` of a result that was sent before. */
const AGAIN = 'mcp-await/again';

const HOW =
  'Tell the user to open it. When they say that they have answered, call the tool again with exactly the same arguments. Do not open the link, do not answer for the user, do not try another way.';
const SENT_BEFORE = 'This call was already done; this is its result again. Nothing was done a second time.';

/** @param expires of the call, in milliseconds since the epoch */
export function notDoneYet(
  tool: string,
  url: string,
  asks: readonly OpenAsk[],
  expires: number,
): { readonly result: JsonObject } {
  const until = new Date(expiryOf(expires, asks)).toISOString();
  const questions = asks.map(({ params }) => textOf(params.message ?? ''));
  const lines = [
    `NOT DONE YET: ${tool} waits for a person.`,
    ...questions.map((question) => `Question: ${question}`),
    `Link: ${url}`,
    HOW,
    `The question expires at ${until}.`,
  ];
  return {
    result: {
      content: [{ type: 'text', text: lines.join('\n') }],
      isError: true,
      _meta: { [WAITING]: { tool, url, questions, expires: until } },
    },
  };
}

/** The same outcome for a client that may not have got it. */
export function sentBefore(response: Response): Response {
  if ('error' in response) return response;
  const { result } = response;
  const content = Array.isArray(result.content) ? result.content : [];
  const meta = objectOf(result._meta);
  return {
    result: {
      ...result,
      content: [{ type: 'text', text: SENT_BEFORE }, ...content],
      _meta: { ...meta, [AGAIN]: true },
    },
  };
}
