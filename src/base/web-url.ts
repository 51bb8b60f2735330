import { ELICIT, isObject } from './values.ts';

/** The message of a refused URL, the same at both ends. */
export const ODD_URL = 'the URL of an elicitation must begin with https:// or http://';

/** Whether a client may be sent to a URL: `javascript:`, `file:` and what else a browser opens are no such ones. */
function isWebUrl(url: unknown): url is string {
  return typeof url === 'string' && URL.canParse(url) && /^https?:$/.test(new URL(url).protocol);
}

/** Whether the params of an `elicitation/create` send a client to a URL that is none of the web's. */
export function isOddUrlAsk(method: unknown, params: unknown): boolean {
  return method === ELICIT && isObject(params) && params.mode === 'url' && !isWebUrl(params.url);
}

/** Whether an error is a UrlElicitationRequiredError (-32042) that names such a URL. */
export function namesOddUrl({ code, data }: { readonly code: number; readonly data?: unknown }): boolean {
  if (code !== -32042 || !isObject(data) || !Array.isArray(data.elicitations)) return false;
  return data.elicitations.some((item) => isObject(item) && 'url' in item && !isWebUrl(item.url));
}
