/** `proxy --url … --forward-authorization`: callers authenticate at the server behind the proxy. */
import { randomUUID } from 'node:crypto';
import {
  Client as ModernClient,
  StreamableHTTPClientTransport as ModernTransport,
} from '@modelcontextprotocol/client';
import type { OAuthClientProvider } from '@modelcontextprotocol/sdk/client/auth.js';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { remoteHost } from '../../src/index.ts';
import { some } from '../short.ts';
import { begin } from './anywhere.ts';
import { CAPABILITIES, legacyOver, modernOver, post, send, type TestClient, textOf } from './clients.ts';
import { authorityOfSuite, bearer, type Guarded, guarded, type Kind } from './guarded.ts';
import { type Served, serveHere } from './harness.ts';
import { failedProxy, type RunningProxy, startProxy } from './proxied.ts';

const { oauth, closing } = await authorityOfSuite();

interface Pair {
  readonly upstream: Guarded;
  readonly proxy: RunningProxy;
}

/** A proxy at the public URL of the server behind it. */
async function start(kind: Kind, options: readonly string[] = []): Promise<Pair> {
  const upstream = await guarded(kind, oauth);
  closing.push(() => upstream.close());
  const proxy = await startProxy([], ['--url', upstream.url, '--forward-authorization', ...options]);
  closing.push(() => proxy.stop('SIGKILL'));
  upstream.publish(proxy.url);
  upstream.seen.length = 0;
  return { upstream, proxy };
}

function legacyWith(url: string, token: string): Promise<TestClient> {
  const requestInit = { headers: bearer(token) };
  return legacyOver(new StreamableHTTPClientTransport(new URL(url), { requestInit }) as Transport);
}

function modernWith(url: string, token: string): Promise<TestClient> {
  return modernOver(new ModernTransport(new URL(url), { requestInit: { headers: bearer(token) } }));
}

const CONNECT = [
  ['2025-11-25', legacyWith],
  ['2026-07-28', modernWith],
] as const;
const KINDS: readonly Kind[] = ['2025-11-25', '2026-07-28'];

/** A client's part in OAuth, which keeps everything in memory. */
class Login implements OAuthClientProvider {
  readonly redirectUrl = 'http://localhost:9/callback';
  readonly clientMetadata = {
    client_name: 'e2e',
    redirect_uris: [this.redirectUrl],
    token_endpoint_auth_method: 'none',
    grant_types: ['authorization_code'],
    response_types: ['code'],
  };
  asked: URL | undefined;
  #client: never | undefined;
  #tokens: never | undefined;
  #verifier = '';
  #discovered: never | undefined;

  clientInformation = () => this.#client;
  tokens = () => this.#tokens;
  codeVerifier = () => this.#verifier;
  /** Of SDK v2 alone. */
  discoveryState = () => this.#discovered;

  saveDiscoveryState(state: unknown): void {
    this.#discovered = state as never;
  }

  saveClientInformation(client: unknown): void {
    this.#client = client as never;
  }

  saveTokens(tokens: unknown): void {
    this.#tokens = tokens as never;
  }

  saveCodeVerifier(verifier: string): void {
    this.#verifier = verifier;
  }

  redirectToAuthorization(url: URL): void {
    this.asked = url;
  }

  /** What the user's browser brings back. */
  async code(): Promise<string> {
    const { headers } = await fetch(this.asked ?? '', { redirect: 'manual' });
    return new URL(headers.get('location') ?? '').searchParams.get('code') ?? '';
  }
}

describe.each(KINDS)('before a server of %s that wants credentials, the proxy', (kind) => {
  it('passes a 401 on, with its challenge word for word', async () => {
    const { upstream, proxy } = await start(kind);
    for (const authorization of [undefined, `Bearer ${randomUUID()}`, 'Basic YW5uOnNlY3JldA==']) {
      const headers = authorization === undefined ? {} : { authorization };
      const init = {
        method: 'POST',
        body: '{}',
        headers: { 'content-type': 'application/json', ...headers },
      };
      const told = await fetch(proxy.url, init);
      const asked = await fetch(upstream.url, {
        ...init,
        headers: { ...init.headers, ...(authorization?.startsWith('Basic') && { authorization: '' }) },
      });
      expect(told.status).toBe(401);
      expect(told.headers.get('www-authenticate')).toBe(asked.headers.get('www-authenticate'));
      expect(told.headers.get('www-authenticate')).toContain(
        `resource_metadata="${new URL('/.well-known/oauth-protected-resource/mcp', proxy.url)}"`,
      );
      expect(await told.json()).toEqual(await asked.json());
    }
    expect(upstream.seen.filter(({ method }) => method !== 'ping' && method !== 'POST')).toEqual([]);
  });

  it.each(some(['SDK v1', 'SDK v2'] as const))('lets a client of %s authorize itself', async (sdk) => {
    const { upstream, proxy } = await start(kind);
    const authProvider = new Login();
    const url = new URL(proxy.url);
    const made = () =>
      sdk === 'SDK v1'
        ? new StreamableHTTPClientTransport(url, { authProvider })
        : new ModernTransport(url, { authProvider: authProvider as never });
    const clientOf = () =>
      sdk === 'SDK v1'
        ? new Client({ name: 'e2e', version: '1' })
        : new ModernClient(
            { name: 'e2e', version: '1' },
            { versionNegotiation: { mode: { pin: '2026-07-28' } } },
          );
    const first = made();
    await expect(clientOf().connect(first as never)).rejects.toThrow(/unauthorized/i);
    expect(authProvider.asked?.origin).toBe(oauth.url);
    expect(authProvider.asked?.searchParams.get('resource')).toBe(proxy.url);
    await first.finishAuth(await authProvider.code());
    const client = clientOf();
    await client.connect(made() as never);
    const { content } = await client.callTool({ name: 'who', arguments: {} });
    expect(content).toMatchObject([{ text: expect.stringMatching(/^[\w-]{36}$/) }]);
    await client.close();
    expect(
      new Set(upstream.seen.flatMap(({ method, token }) => (method === 'tools/call' ? [token] : []))).size,
    ).toBe(1);
  });

  it.each(some(CONNECT))(
    'gives each client of %s its own rights, on connections of its own',
    async (revision, connect) => {
      const { upstream, proxy } = await start(kind);
      const [ann, ben] = [oauth.issue('ann'), oauth.issue('ben')];
      const clients = await Promise.all([connect(proxy.url, ann), connect(proxy.url, ben)]);
      for (let round = 0; round < 2; round += 1)
        expect(await Promise.all(clients.map((client) => client.tool('who')))).toEqual(['ann', 'ben']);
      expect(await Promise.all(clients.map((client) => client.tool('ask')))).toEqual([
        'its name, says ann',
        'its name, says ben',
      ]);
      if (kind === '2026-07-28' && revision === '2025-11-25') {
        const listening = () => upstream.seen.filter(({ method }) => method === 'subscriptions/listen');
        await expect.poll(() => new Set(listening().map(({ token }) => token))).toEqual(new Set([ann, ben]));
      }
      for (const client of clients) await client.close();
      for (const tokens of upstream.sessions.values()) expect(tokens.size).toBe(1);
      expect(upstream.sessions.size > 0).toBe(kind === '2025-11-25');
    },
  );
});

describe('a caller', () => {
  it('is named by its whole token, whatever claims are in it', async () => {
    const { upstream, proxy } = await start('2026-07-28');
    const jwt = (signature: string) =>
      ['{"alg":"none"}', '{"iss":"https://login.example","sub":"ann"}', signature]
        .map((part) => Buffer.from(part).toString('base64url'))
        .join('.');
    // Both are accepted: a server that checks tokens at some methods alone would take the forged one.
    const [anns, forged] = [oauth.issue('ann', jwt('ann')), oauth.issue('mallory', jwt('mallory'))];
    const asked = await post(proxy.url, { tool: 'ask', headers: bearer(anns) });
    expect(asked.keys).toEqual(['name']);
    const responses = { name: { action: 'accept', content: { name: 'Ann' } } };
    const answer = { tool: 'ask', state: asked.state, responses };
    const stolen = await post(proxy.url, { ...answer, headers: bearer(forged) });
    expect(stolen.message.error?.code).toBe(-32602);
    expect(textOf(await post(proxy.url, { ...answer, headers: bearer(anns) }))).toBe('Ann, says ann');
    expect(upstream.seen.filter(({ method, token }) => method === 'tools/call' && token === forged)).toEqual(
      [],
    );
    const session = await begin([proxy], CAPABILITIES, anns);
    const message = { jsonrpc: '2.0', id: 1, method: 'tools/list' };
    const other = await send(proxy.url, JSON.stringify(message), {
      headers: { ...session.headers, ...bearer(forged) },
    });
    expect(other.status).toBe(404);
  });

  it('whose token is revoked gets the challenge with its next request', async () => {
    const { proxy } = await start('2025-11-25');
    const token = oauth.issue('ann');
    const call = () => post(proxy.url, { tool: 'who', headers: bearer(token) });
    expect(textOf(await call())).toBe('ann');
    oauth.revoke(token);
    const failed = await call();
    expect([failed.status, failed.message.error?.code]).toEqual([200, -32603]);
    const refused = await call();
    expect(refused.status).toBe(401);
    expect(refused.headers.get('www-authenticate')).toContain('error="invalid_token"');
    expect(proxy.stderr()).not.toContain(token);
  });

  it('on a WebSocket is asked for credentials at the upgrade', async () => {
    const { proxy } = await start('2025-11-25');
    const url = proxy.url.replace('http', 'ws');
    const opened = (headers: Record<string, string>) =>
      new Promise<string>((resolve) => {
        const socket = new WebSocket(url, ['mcp'], { headers });
        socket.on('error', () => {});
        socket.once('open', () => {
          resolve('open');
          socket.terminate();
        });
        socket.once(
          'unexpected-response',
          (request, { statusCode, headers: { 'www-authenticate': challenge } }) => {
            resolve(`${statusCode} ${challenge}`);
            request.destroy();
          },
        );
      });
    expect(await opened({})).toMatch(/^401 Bearer error="invalid_token".*resource_metadata=/);
    expect(await opened(bearer(randomUUID()))).toMatch(/^401 Bearer/);
    expect(await opened(bearer(oauth.issue('ann')))).toBe('open');
  });
});

describe('the proxy', () => {
  it('answers for the metadata of the server, and for nothing else of it', async () => {
    const { upstream, proxy } = await start('2025-11-25');
    const at = (path: string, init?: RequestInit) => fetch(new URL(path, proxy.url), init);
    const resource = await at('/.well-known/oauth-protected-resource/mcp');
    expect(resource.headers.get('content-type')).toMatch(/^application\/json/);
    expect(resource.headers.get('access-control-allow-origin')).toBe(null);
    expect(await resource.json()).toMatchObject({
      resource: proxy.url,
      authorization_servers: [`${oauth.url}/`],
    });
    const page = { headers: { origin: 'http://localhost:5173' } };
    const readable = await at('/.well-known/oauth-authorization-server', page);
    expect(readable.headers.get('access-control-allow-origin')).toBe('http://localhost:5173');
    expect(await readable.json()).toMatchObject({ issuer: `${oauth.url}/` });
    expect((await at('/.well-known/openid-configuration')).status).toBe(404);
    expect((await at('/.well-known/oauth-protected-resource', { method: 'POST' })).status).toBe(405);
    expect((await at('/.well-known/security.txt')).status).toBe(404);
    const foreign = { headers: { origin: 'https://evil.example' } };
    expect((await at('/.well-known/oauth-protected-resource/mcp', foreign)).status).toBe(403);
    const refused = await at('/mcp', { method: 'POST', body: '{}', ...page });
    expect(refused.headers.get('access-control-allow-origin')).toBe('http://localhost:5173');
    expect(refused.headers.get('access-control-expose-headers')).toContain('WWW-Authenticate');
    const before = upstream.seen.length;
    expect((await at('/mcp', { method: 'POST', body: '{}', ...foreign })).status).toBe(403);
    expect(upstream.seen.length).toBe(before);
  });

  it('asks about a bounded number of strangers’ tokens at once, which keeps no caller waiting', async () => {
    const { upstream, proxy } = await start('2026-07-28');
    const ann = oauth.issue('ann');
    expect(textOf(await post(proxy.url, { tool: 'who', headers: bearer(ann) }))).toBe('ann');
    let goOn = (): void => {};
    upstream.slow = new Promise<void>((resolve) => {
      goOn = resolve;
    });
    const before = upstream.seen.length;
    const statuses: number[] = [];
    const flood = Array.from({ length: 300 }, async () => {
      const { status } = await post(proxy.url, { tool: 'who', headers: bearer(randomUUID()) });
      statuses.push(status);
    });
    await expect.poll(() => upstream.seen.length - before).toBeGreaterThan(60);
    const anonymous = Array.from({ length: 50 }, () => post(proxy.url, { tool: 'who' }));
    // The others are told at once to come again, while the server answers none.
    await expect.poll(() => statuses.length).toBeGreaterThan(200);
    const anns = post(proxy.url, { tool: 'who', headers: bearer(ann) });
    await expect
      .poll(() => upstream.seen.some(({ method, token }) => method !== 'ping' && token === ann))
      .toBe(true);
    goOn();
    expect(textOf(await anns)).toBe('ann');
    await Promise.all(flood);
    expect(statuses.filter((status) => status === 401).length).toBeGreaterThan(0);
    expect(statuses.filter((status) => status === 503).length).toBeGreaterThan(200);
    expect(statuses.filter((status) => status !== 401 && status !== 503)).toEqual([]);
    expect(upstream.mostAtOnce()).toBeLessThanOrEqual(66);
    await Promise.all(anonymous);
  });

  it('says 503 for a token that it cannot ask about', async () => {
    const { upstream, proxy } = await start('2025-11-25');
    const ann = oauth.issue('ann');
    await (await legacyWith(proxy.url, ann)).close();
    closing.splice(closing.length - 2, 1);
    await upstream.close();
    const unknown = await post(proxy.url, { tool: 'who', headers: bearer(randomUUID()) });
    expect([unknown.status, unknown.headers.get('retry-after')]).toEqual([503, '5']);
  });

  it('ends with 2 where its flags do not go together', async () => {
    const { code, stderr } = await failedProxy(['node', 'server.js'], ['--forward-authorization']);
    expect(code).toBe(2);
    expect(stderr).toMatch(/add --url/);
  });
});

describe('remoteHost with forwardAuthorization', () => {
  const serve = async (kind: Kind, principal?: (authInfo: object | undefined) => string | undefined) => {
    const upstream = await guarded(kind, oauth);
    const served: Served = await serveHere(
      remoteHost({ url: upstream.url, forwardAuthorization: true }),
      principal === undefined ? {} : { principal },
    );
    closing.push(
      () => upstream.close(),
      () => served.close(),
    );
    return { upstream, served };
  };

  it.each(KINDS)('sends the token of authInfo to a server of %s', async (kind) => {
    const { served } = await serve(kind);
    for (const user of ['ann', 'ben']) {
      oauth.issue(user, `secret-of-${user}`);
      const client = await legacyWith(served.url, user);
      expect(await client.tool('who')).toBe(user);
      await client.close();
    }
    expect(served.log.text).not.toContain('secret-of');
  });

  it('keeps two tokens apart that the option principal takes for one caller', async () => {
    const { upstream, served } = await serve('2025-11-25', () => 'both');
    for (const user of ['carl', 'dora']) oauth.issue(user, `secret-of-${user}`);
    for (const user of ['carl', 'dora', 'carl'])
      expect(textOf(await post(served.url, { tool: 'who', headers: bearer(user) }))).toBe(user);
    const session = await begin([served], CAPABILITIES, 'carl');
    const call = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'who', arguments: {} } };
    const as = (user: string) =>
      send(served.url, JSON.stringify(call), { headers: { ...session.headers, ...bearer(user) } });
    expect(textOf(await as('carl'))).toBe('carl');
    expect((await as('dora')).message.error?.message).toMatch(/another access token/);
    for (const tokens of upstream.sessions.values()) expect(tokens.size).toBe(1);
  });

  it('refuses a header Authorization beside it', () => {
    const headers = { Authorization: 'Bearer x' };
    expect(() => remoteHost({ url: 'https://example.com/mcp', headers, forwardAuthorization: true })).toThrow(
      /leave out/,
    );
  });
});
