/**
 * The server's URL: adds session, version and credentials to each request, and sends nothing once it is closed. Only
 * the status of a reply is checked; its body is the caller's, to be read to its end.
 */

import type { OAuthClientProvider } from '@modelcontextprotocol/sdk/client/auth.js';
import type { FetchLike } from '@modelcontextprotocol/sdk/shared/transport.js';
import { boundedResponse } from '../base/bounded-response.ts';
import { defined } from '../base/values.ts';
import { drainBody } from './event-stream.ts';
import { fetchWithinOrigin } from './redirect.ts';

/** OAuth by the SDK, loaded only where a provider is given: other users need no SDK at run time. */

export type { OAuthClientProvider };

export class Authorization {
  readonly #provider: OAuthClientProvider;
  readonly #url: URL;
  readonly #fetch: FetchLike;
  #resourceMetadataUrl: URL | undefined;
  #scope: string | undefined;

  constructor(provider: OAuthClientProvider, url: URL, fetch: FetchLike) {
    this.#provider = provider;
    this.#url = url;
    this.#fetch = fetch;
  }

  async header(): Promise<Record<string, string>> {
    const tokens = await this.#provider.tokens();
    return tokens === undefined ? {} : { authorization: `Bearer ${tokens.access_token}` };
  }

  /** Whether to send the request once more: the server required credentials, and now there are some. */
  async renew(response: Response): Promise<boolean> {
    if (response.status !== 401 && response.status !== 403) return false;
    const { extractWWWAuthenticateParams } = await load();
    const { resourceMetadataUrl, scope, error } = extractWWWAuthenticateParams(response);
    if (response.status === 403 && error !== 'insufficient_scope') return false;
    await drainBody(response.body);
    this.#resourceMetadataUrl = resourceMetadataUrl ?? this.#resourceMetadataUrl;
    const stepsUp = response.status === 403;
    const granted = stepsUp ? [(await this.#provider.tokens())?.scope, this.#scope] : [];
    // A step up keeps what was granted before: scopes in the order in which they were asked for (SEP-2350).
    const names = [...granted, scope].flatMap((one) => one?.split(' ') ?? []);
    if (names.length > 0) this.#scope = [...new Set(names)].join(' ');
    await this.#authorize();
    return true;
  }

  /** With the code that the user's browser brought back. */
  finish(authorizationCode: string): Promise<void> {
    return this.#authorize(authorizationCode);
  }

  /** Throws the SDK's `UnauthorizedError` where the user has to go to a browser first. */
  async #authorize(authorizationCode?: string): Promise<void> {
    const { auth, UnauthorizedError } = await load();
    const result = await auth(this.#provider, {
      serverUrl: this.#url,
      fetchFn: this.#fetch,
      ...defined({ resourceMetadataUrl: this.#resourceMetadataUrl, scope: this.#scope, authorizationCode }),
    });
    if (result !== 'AUTHORIZED') throw new UnauthorizedError();
  }
}

const load = () => import('@modelcontextprotocol/sdk/client/auth.js');

// --- requests ---

export interface EndpointOptions {
  /** The function that sends requests; by default the global `fetch`, which keeps connections alive. */
  readonly fetch?: FetchLike | undefined;
  /** Goes with each POST and DELETE; its headers with each GET too, as with the SDK's transport. */
  readonly requestInit?: RequestInit | undefined;
  /** More headers for every request, over those of `requestInit`. */
  readonly headers?: HeadersInit | undefined;
  /** The SDK's OAuth, which needs `@modelcontextprotocol/sdk` at run time. */
  readonly authProvider?: OAuthClientProvider | undefined;
  /** A session to continue; the client then does not initialize one. */
  readonly sessionId?: string | undefined;
}

/**
 * The server refused a request. `code` is the HTTP status, or -1 if the reply's content type is unknown.
 *
 * @example
 * import type { Client } from '@modelcontextprotocol/sdk/client/index.js';
 * import { AwaitClientTransport, EndpointError } from 'mcp-await/client';
 *
 * export async function connect(client: Client, url: string) {
 *   try {
 *     await client.connect(new AwaitClientTransport(url, { revision: '2026-07-28' }));
 *   } catch (error) {
 *     if (error instanceof EndpointError && error.code === 401) console.error('sign in first');
 *     throw error;
 *   }
 * }
 */
export class EndpointError extends Error {
  readonly code: number;
  /** The reply's body, as far as it was text. */
  readonly body: string;

  constructor(code: number, message: string, body = '') {
    super(`Streamable HTTP error: ${message}`);
    this.name = 'EndpointError';
    this.code = code;
    this.body = body;
  }
}

export class Endpoint {
  sessionId: string | undefined;
  /** The value of `MCP-Protocol-Version`, once it is known. */
  protocolVersion: string | undefined;
  readonly #url: URL;
  readonly #fetch: FetchLike;
  readonly #init: RequestInit;
  /** By names in lower case: `Headers` are slow to merge. */
  readonly #headers: Readonly<Record<string, string>>;
  readonly #authorization: Authorization | undefined;
  readonly #closed = new AbortController();
  readonly #bound: (response: Response) => Response;

  /** @param bound limits what is collected of a response */
  constructor(
    url: URL,
    { fetch, requestInit = {}, headers, authProvider, sessionId }: EndpointOptions,
    bound: (response: Response) => Response = (response) => boundedResponse(response),
  ) {
    this.#url = url;
    this.#bound = bound;
    this.#fetch = fetch ?? ((input, init) => globalThis.fetch(input, init));
    this.#init = requestInit;
    this.#headers = Object.fromEntries(merged(requestInit.headers, headers));
    this.sessionId = sessionId;
    const plain: FetchLike = (input, init) =>
      this.#fetch(input, { ...requestInit, ...init, headers: merged(requestInit.headers, init?.headers) });
    this.#authorization = authProvider && new Authorization(authProvider, url, plain);
  }

  get signal(): AbortSignal {
    return this.#closed.signal;
  }

  /**
   * Throws an EndpointError unless the status is 2xx.
   * @param signal of a request that can be abandoned by itself; aborted when this is closed, too
   */
  async post(
    body: string,
    headers: Readonly<Record<string, string>> = {},
    signal: AbortSignal = this.signal,
  ): Promise<Response> {
    const response = await this.#send(
      'POST',
      {
        ...headers,
        accept: 'application/json, text/event-stream',
        'content-type': 'application/json',
      },
      { body, signal },
    );
    this.sessionId = response.headers.get('mcp-session-id') ?? this.sessionId;
    if (response.ok) return response;
    const text = await response.text().catch(() => '');
    throw new EndpointError(response.status, `Error POSTing to endpoint: ${this.#why(response, text)}`, text);
  }

  /** A stream, or nothing where the server has none (405). */
  async get(lastEventId?: string): Promise<Response | undefined> {
    const response = await this.#send('GET', {
      accept: 'text/event-stream',
      ...defined({ 'last-event-id': lastEventId }),
    });
    if (response.ok) return response;
    await drainBody(response.body);
    if (response.status === 405) return undefined;
    throw new EndpointError(response.status, `Failed to open SSE stream: ${this.#why(response)}`);
  }

  /** Ends the session; a server that does not let clients do that (405) keeps it until it expires. */
  async delete(): Promise<void> {
    if (this.sessionId === undefined) return;
    const response = await this.#send('DELETE', {});
    await drainBody(response.body);
    if (!response.ok && response.status !== 405) {
      throw new EndpointError(response.status, `Failed to terminate session: ${this.#why(response)}`);
    }
    this.sessionId = undefined;
  }

  async finishAuth(authorizationCode: string): Promise<void> {
    if (this.#authorization === undefined) {
      throw new Error('No auth provider: give the transport an `authProvider`.');
    }
    await this.#authorization.finish(authorizationCode);
  }

  close(): void {
    this.#closed.abort();
  }

  async #send(
    method: string,
    headers: Readonly<Record<string, string>>,
    own: { readonly body?: string; readonly signal?: AbortSignal } = {},
  ): Promise<Response> {
    const once = async (): Promise<Response> =>
      this.#bound(
        await fetchWithinOrigin(this.#fetch, this.#url, {
          ...(method !== 'GET' && this.#init),
          method,
          headers: await this.#headersOf(headers),
          signal: this.signal,
          ...own,
        }),
      );
    const response = await once();
    // Once only: a server that refuses fresh credentials would be asked for ever.
    return (await this.#authorization?.renew(response)) ? once() : response;
  }

  /** @param own headers of the request, their names in lower case */
  async #headersOf(own: Readonly<Record<string, string>>): Promise<Headers> {
    return new Headers({
      ...(await this.#authorization?.header()),
      ...defined({ 'mcp-session-id': this.sessionId, 'mcp-protocol-version': this.protocolVersion }),
      ...this.#headers,
      ...own,
    });
  }

  #why({ status, statusText, headers }: Response, text = statusText): string {
    const location = status >= 300 && status < 400 ? headers.get('location') : null;
    if (location !== null && URL.canParse(location, this.#url)) {
      // Without its query, which may hold a secret.
      const { origin, pathname } = new URL(location, this.#url);
      return `Redirect to ${origin}${pathname} not followed; give the transport that URL if you trust it`;
    }
    if (status === 404 && this.sessionId !== undefined) {
      return `${text} (the session is gone: connect with a new transport, without \`sessionId\`)`;
    }
    return text;
  }
}

function merged(first: HeadersInit | undefined, second: HeadersInit | undefined): Headers {
  const headers = new Headers(first);
  for (const [name, value] of new Headers(second)) headers.set(name, value);
  return headers;
}
