/**
 * Follows redirects as the SDK's own transport does: only within the origin of the request (or from http to https on
 * one host), and only where the method stays. No other server gets credentials or session ids.
 */
import type { FetchLike } from '@modelcontextprotocol/sdk/shared/transport.js';

/** Redirects that are followed, and codings of one response that Node's `fetch` decodes. */
const MOST = 5;

/**
 * Drops the codings beyond `MOST` from a response's headers. Node's `fetch` rejects a response that has them, and when
 * the connection then breaks, an `error` event without a listener ends the process.
 */
globalThis.process
  ?.getBuiltinModule?.('node:diagnostics_channel')
  ?.subscribe('undici:request:headers', (message) => {
    const { headers } = (message as { response: { headers: unknown[] } }).response;
    let codings = 0;
    for (let at = headers.length - 2; at >= 0; at -= 2) {
      if (!/^content-encoding$/i.test(String(headers[at]))) continue;
      codings += String(headers[at + 1]).split(',').length;
      if (codings > MOST) headers.splice(at, 2);
    }
  });

export async function fetchWithinOrigin(fetch: FetchLike, url: URL, init: RequestInit): Promise<Response> {
  if (init.redirect === 'error' || init.redirect === 'manual') return fetch(url, init);
  let at = url;
  let response = await fetch(at, { ...init, redirect: 'manual' });
  for (let followed = 0; followed < MOST; followed += 1) {
    const target = targetOf(response, at, init.method ?? 'GET');
    if (target === undefined) break;
    await response.body?.cancel();
    at = target;
    response = await fetch(at, { ...init, redirect: 'manual' });
  }
  return response;
}

function targetOf({ status, headers }: Response, from: URL, method: string): URL | undefined {
  const location = headers.get('location');
  // 301, 302 and 303 turn a request with a body into a GET.
  const keepsMethod =
    status === 307 || status === 308 || ([301, 302, 303].includes(status) && method === 'GET');
  if (!keepsMethod || location === null || !URL.canParse(location, from)) return undefined;
  const to = new URL(location, from);
  const addsUser =
    (to.username || to.password) && (to.username !== from.username || to.password !== from.password);
  return addsUser || !isWithin(from, to) ? undefined : to;
}

function isWithin(from: URL, to: URL): boolean {
  if (from.origin === to.origin) return true;
  return (
    from.protocol === 'http:' &&
    to.protocol === 'https:' &&
    from.hostname === to.hostname &&
    from.port === '' &&
    to.port === ''
  );
}
