/** OAuth by the SDK, loaded only where a provider is given: other users need no SDK at run time. */

import type { OAuthClientProvider } from '@modelcontextprotocol/sdk/client/auth.js';
import type { FetchLike } from '@modelcontextprotocol/sdk/shared/transport.js';
import { defined } from '../base/values.ts';
import { drainBody } from './event-stream.ts';

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
    this.#scope = union(...granted, scope) ?? this.#scope;
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

/** A step up keeps what was granted before: scopes in the order in which they were asked for (SEP-2350). */
function union(...scopes: readonly (string | undefined)[]): string | undefined {
  const names = scopes.flatMap((scope) => scope?.split(' ') ?? []);
  return names.length === 0 ? undefined : [...new Set(names)].join(' ');
}

const load = () => import('@modelcontextprotocol/sdk/client/auth.js');
