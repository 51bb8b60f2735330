/** A server's list of tools, page by page. */
import { isObject, type JsonObject } from '../base/values.ts';

/** Pages that are read: a server's list may have no end. */
const PAGES = 50;

/** @param list sends `tools/list` with a page's cursor; an error ends the list */
export async function* toolPages(list: (params: JsonObject) => Promise<JsonObject>) {
  let params: JsonObject = {};
  for (let page = 0; page < PAGES; page += 1) {
    const { result } = await list(params);
    if (!isObject(result)) return;
    yield result;
    const { nextCursor: cursor } = result;
    if (typeof cursor !== 'string') return;
    params = { cursor };
  }
}
