/**
 * `fetch` inside of a call, recorded as a step is: its response is in the journal before the tool continues, and a
 * replay reads it there. The live response passes through the journal's form too, so a tool sees the same bytes live
 * and replayed.
 */

import { AwaitError } from '../base/values.ts';
import { type CallContext, currentContext } from '../call/frame/context.ts';
import { branchOf, short } from './place.ts';
import { type KeptFetch, keepFailure, keepResponse, reviveFailure, reviveResponse } from './response.ts';

/** Methods that change nothing: sent again where the response was not kept. */
const SAFE: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS']);

export function patchFetch(): void {
  const real = globalThis.fetch;

  globalThis.fetch = function fetch(input, init): Promise<Response> {
    const once = currentContext()?.once;
    if (once === undefined) return real(input, init);
    const method = (init?.method ?? (input instanceof Request ? input.method : 'GET')).toUpperCase();
    const url = input instanceof Request ? input.url : String(input);
    const place = { site: siteOf(method, url, init?.body), branch: branchOf(fetch) };
    return recorded(once, place, method, () => real(input, init));
  };
}

async function recorded(
  once: NonNullable<CallContext['once']>,
  place: { site: string; branch: string },
  method: string,
  send: () => Promise<Response>,
): Promise<Response> {
  let live: Response | undefined;
  const kept = await once<KeptFetch>(place, async () => {
    try {
      const { kept, response } = await keepResponse(await send());
      live = response;
      return kept;
    } catch (error) {
      return keepFailure(error);
    }
  });
  if ('error' in kept) throw reviveFailure(kept.error);
  if (kept.body !== undefined) return reviveResponse(kept, kept.body);
  if (live !== undefined) return live;
  if (SAFE.has(method)) return send();
  throw new AwaitError(
    'fetch-not-kept',
    `the response to ${place.site} was a stream, or too long for the journal, so it cannot be given again. Put it into a step that returns what the tool needs of it.`,
  );
}

/** The identity of a request: a digest, for its secrets, of all parts that can be read without consuming them. */
function siteOf(method: string, url: string, body: unknown): string {
  const text = typeof body === 'string' || body instanceof URLSearchParams ? String(body) : bytesOf(body);
  const host = URL.canParse(url) ? new URL(url).host : '';
  return `fetch ${method} ${host} ~${short(`${method}\n${url}\n${text}`)}`;
}

function bytesOf(body: unknown): string {
  if (body instanceof ArrayBuffer) return Buffer.from(body).toString('base64');
  if (ArrayBuffer.isView(body)) {
    return Buffer.from(body.buffer, body.byteOffset, body.byteLength).toString('base64');
  }
  return '';
}
