/** A server's list of tools, page by page. */
import type { JsonObject } from '../base/json.ts';

/** Pages that are read: a server's list may have no end. */
const PAGES = 50;

/** @param list sends `tools/list` with a page's cursor; an error ends the list */
export async function* toolPages(list: (params: JsonObject) => Promise<JsonObject>) {
  let params: JsonObject = {};
  for (let page = 0; page < PAGES; page += 1) {
    const { result } = await list(params);
    if (typeof result !== 'object' || result === null) return;
    yield result as JsonObject;
    const { nextCursor: cursor } = result as JsonObject;
    if (typeof cursor !== 'string') return;
    params = { cursor };
  }
}
