/**
 * The documents about authorization that a remote server's origin has (RFC 9728, RFC 8414, OpenID Connect Discovery),
 * for clients of a proxy that serves the server's own public URL. They are read anew for each client; status and JSON
 * alone are passed on.
 */
import { boundedText } from '../base/bounded-response.ts';
import { Quota } from '../base/quota.ts';
import { drainBody } from '../client/event-stream.ts';
import { fetchWithinOrigin } from '../client/redirect.ts';
import type { Reply } from '../doors/http/exchange.ts';
import { LATER } from '../doors/http/refused.ts';
import type { RemoteOptions } from './remote.ts';

const PATH =
  /^\/\.well-known\/(?:oauth-protected-resource|oauth-authorization-server|openid-configuration)(?:\/[^?#]*)?$/;
/** Requests to the server at once; half of them from one address. */
const AT_ONCE = { all: 32, caller: 16, anonymous: 32 };
/** How long the server may take, in milliseconds. */
const TIME = 10_000;
/** Bytes of one document. */
const MOST = 262_144;
const JSON_TYPE = /^application\/(?:[\w.-]+\+)?json\b/i;

const NONE: Reply = { status: 404, headers: {} };

/** Whether a path is that of such a document. */
export function isMetadata(path: string): boolean {
  return PATH.test(path);
}

export class ServerMetadata {
  readonly #remote: RemoteOptions;
  readonly #room = new Quota({ ...AT_ONCE });
  readonly #reading = new Map<string, Promise<Reply>>();

  constructor(remote: RemoteOptions) {
    this.#remote = remote;
  }

  /**
   * @param path one for which `isMetadata` is true
   * @param address where the request comes from, if that is known
   */
  get(path: string, address?: string): Promise<Reply> {
    const url = new URL(path, this.#remote.url);
    // Dots in a path lead elsewhere.
    if (url.pathname !== path) return Promise.resolve(NONE);
    const known = this.#reading.get(path);
    if (known !== undefined) return known;
    if (!this.#room.has({ address })) return Promise.resolve(LATER);
    const reading = this.#read(url)
      .catch(() => LATER)
      .finally(() => {
        this.#reading.delete(path);
        this.#room.leave(reading);
      });
    this.#room.hold(reading, { address });
    this.#reading.set(path, reading);
    return reading;
  }

  async #read(url: URL): Promise<Reply> {
    const headers = { ...this.#remote.headers, accept: 'application/json' };
    const response = await fetchWithinOrigin(fetch, url, { headers, signal: AbortSignal.timeout(TIME) });
    const { status } = response;
    const type = response.headers.get('content-type') ?? '';
    const isJson = JSON_TYPE.test(type);
    const body = isJson ? await boundedText(response, MOST) : await drainBody(response.body);
    if (status >= 300 && status < 400) return { status: 502, headers: {} };
    if (body !== undefined)
      return { status, headers: { 'content-type': type, 'cache-control': 'no-store' }, body };
    // Some servers have a page for every path.
    return response.ok ? NONE : { status, headers: {} };
  }
}
