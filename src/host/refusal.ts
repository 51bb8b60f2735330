/**
 * How servers say that they have not what is called, or not with these arguments, before any code of its author runs.
 * No revision has a code that only they use; these are the words of SDK v1 and v2, and of Python's.
 */
import { objectOf } from '../base/values.ts';
import type { Response } from '../call/journal/entries.ts';

const REFUSAL =
  /^(MCP error -3260[12]: )*((Tool|Prompt|Resource) .* (not found|disabled)$|Unknown (tool|prompt)|Method not found|Input validation error|Invalid arguments for )/s;

export function isRefusal(response: Response): boolean {
  if ('error' in response) return REFUSAL.test(response.error.message);
  const { isError, content } = response.result;
  return isError === true && Array.isArray(content) && REFUSAL.test(objectOf(content[0]).text as string);
}
