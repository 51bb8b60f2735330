/** Versions, sessions, refusals, redirects, credentials, and the number of connections. */
import { type OAuthClientProvider, UnauthorizedError } from '@modelcontextprotocol/sdk/client/auth.js';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { LATEST_PROTOCOL_VERSION } from '@modelcontextprotocol/sdk/types.js';
import { describe, expect, it } from 'vitest';
import { AwaitClientTransport } from '../../src/client/index.ts';
import {
  ask,
  bare,
  closing,
  connect,
  connected,
  DRAFT,
  message,
  onCall,
  RESULT,
  type Reply,
  type Route,
  result,
  routes,
  type Scripted,
  scripted,
  sleep,
  until,
} from './script.ts';

function serve(version: string, ...all: Route[]): Promise<Scripted> {
  return scripted(routes(...all), version).then(closing);
}

const asking = bare('buffer_input', '2') + message(ask(1, 'x'), '3') + bare('input_required', '4');
const answered: Route = onCall(({ body }, reply) => reply.json(result(body.id)));

describe('the version', () => {
  it('is asked for in initialize, stays in every header, and the client hears one it knows', async () => {
    const server = await serve(DRAFT, answered);
    const { call, transport, messages } = await connected(server.url);
    await call();
    await transport.terminateSession();
    await until(() => server.seen.length === 5);
    const [initialize, ...later] = server.seen;
    expect(initialize?.body.params?.protocolVersion).toBe(DRAFT);
    expect(initialize?.headers['mcp-protocol-version']).toBeUndefined();
    expect(later.map(({ verb }) => verb).sort()).toEqual(['DELETE', 'GET', 'POST', 'POST']);
    for (const { headers } of later) expect(headers['mcp-protocol-version']).toBe(DRAFT);
    for (const { headers } of later) expect(headers['mcp-session-id']).toBe('session-1');
    expect(messages[0]).toMatchObject({ result: { protocolVersion: LATEST_PROTOCOL_VERSION } });
    expect(transport.protocolVersion).toBe(DRAFT);
  });

  it('of another answer is the one that counts, and the draft’s events then mean nothing', async () => {
    const server = await serve(
      '2025-06-18',
      onCall((_, reply) => {
        reply.write(asking);
        void until(() => server.turns().length === 2).then(() => reply.write(message(result(1), '5')).end());
      }),
    );
    const { call, transport } = await connected(server.url);
    expect(await call()).toEqual(RESULT);
    const [, answer, ...none] = server.turns();
    expect(none).toEqual([]);
    expect(answer?.body).toMatchObject({ id: 1, result: { action: 'accept' } });
    expect(answer?.headers['mcp-protocol-version']).toBe('2025-06-18');
    expect(transport.protocolVersion).toBe('2025-06-18');
  });

  it('that is unknown is refused by the client itself', async () => {
    const server = await serve('2031-01-01');
    await expect(connect(server.url)).rejects.toThrow('2031-01-01');
  });

  it('must be one that this package speaks', () => {
    const revision = JSON.parse('"DRAFT-OTHER"');
    expect(() => new AwaitClientTransport('http://127.0.0.1:1/mcp', { revision })).toThrow(
      expect.objectContaining({ code: 'bad-option', message: expect.stringContaining(DRAFT) }),
    );
  });
});

describe('a session', () => {
  it('that is given is gone on with, under the draft’s version, and without initialize', async () => {
    const server = await serve(DRAFT, answered);
    const { call, transport } = await connected(server.url, undefined, { sessionId: 'session-0' });
    expect(transport.sessionId).toBe('session-0');
    await call().catch(() => {});
    expect(server.seen.map(({ body }) => body.method)).toEqual(['tools/call']);
    expect(server.seen[0]?.headers).toMatchObject({
      'mcp-session-id': 'session-0',
      'mcp-protocol-version': DRAFT,
    });
  });

  it('of another version gets an error', async () => {
    const server = await serve('2025-06-18', answered);
    const transport = new AwaitClientTransport(server.url, { revision: DRAFT, sessionId: 'session-0' });
    transport.setProtocolVersion('2025-06-18');
    const client = new Client({ name: 'test', version: '1.0.0' });
    await client.connect(transport);
    closing(client);
    await client.callTool({ name: 'ask' }).catch(() => {});
    expect(server.seen[0]?.headers['mcp-protocol-version']).toBe('2025-06-18');
  });

  it('is ended by DELETE, once, and by no close', async () => {
    const server = await serve(DRAFT);
    const { transport, client } = await connected(server.url);
    await transport.terminateSession();
    expect(transport.sessionId).toBeUndefined();
    await transport.terminateSession();
    await client.close();
    expect(server.seen.filter(({ verb }) => verb === 'DELETE')).toHaveLength(1);
  });

  it('that the server will not end stays the server’s', async () => {
    const refuse =
      (status: number): Route =>
      ({ verb }, reply) => {
        if (verb === 'DELETE') reply.json('no', status);
        return verb === 'DELETE';
      };
    const lenient = await connected((await serve(DRAFT, refuse(405))).url);
    await expect(lenient.transport.terminateSession()).resolves.toBeUndefined();
    const strict = await connected((await serve(DRAFT, refuse(403))).url);
    await expect(strict.transport.terminateSession()).rejects.toMatchObject({ code: 403 });
    expect(strict.transport.sessionId).toBe('session-1');
  });

  it('that is gone says what to do', async () => {
    const server = await serve(
      DRAFT,
      onCall((_, reply) => reply.json('Session not found', 404)),
    );
    const { call, errors } = await connected(server.url);
    await expect(call()).rejects.toMatchObject({
      code: 404,
      message: expect.stringMatching(/Session not found.*connect with a new transport/),
    });
    expect(errors).toContainEqual(expect.objectContaining({ code: 404 }));
  });
});

describe('what is refused', () => {
  it.each([400, 401, 403, 406, 429, 500])('with %i rejects with that code', async (status) => {
    const server = await serve(
      DRAFT,
      onCall((_, reply) => reply.json({ why: 'because' }, status)),
    );
    const { call } = await connected(server.url);
    await expect(call()).rejects.toMatchObject({ code: status, message: expect.stringContaining('because') });
  });

  it('by a reply of another type, or one that is no message, rejects', async () => {
    const server = await serve(
      DRAFT,
      onCall((_, reply) => void reply.res.writeHead(200, { 'content-type': 'text/html' }).end('<p>'), 'html'),
      onCall((_, reply) => reply.json({ hello: 'world' }), 'other'),
    );
    const { call } = await connected(server.url);
    await expect(call('html')).rejects.toMatchObject({
      code: -1,
      message: expect.stringContaining('text/html'),
    });
    await expect(call('other')).rejects.toThrow('no JSON-RPC message');
  });

  it('by an event that is no message is told, and the rest is read', async () => {
    const server = await serve(
      DRAFT,
      onCall((_, reply) => reply.write('data: {"x":1}\n\n', 'data: nope\n\n', message(result(1))).end()),
    );
    const { call, errors } = await connected(server.url);
    expect(await call()).toEqual(RESULT);
    expect(errors).toHaveLength(2);
  });

  it('is to be started twice', async () => {
    const { transport } = await connected((await serve(DRAFT)).url);
    await expect(transport.start()).rejects.toThrow('already started');
  });

  it('is whatever comes after a close, which breaks the streams that are open', async () => {
    let broken = 0;
    const server = await serve(DRAFT, ({ verb, body }, reply) => {
      if (verb !== 'GET' && body.method !== 'tools/call') return false;
      reply.write('id: 1\ndata:\n\n').res.once('close', () => {
        broken += 1;
      });
      return true;
    });
    const { transport, client, call, errors } = await connected(server.url);
    const done = call();
    await until(() => server.seen.length === 4);
    await client.close();
    await expect(done).rejects.toThrow('Connection closed');
    await until(() => broken === 2);
    const ping = { jsonrpc: '2.0', method: 'ping', id: 5 } as const;
    await expect(transport.send(ping)).rejects.toMatchObject({ name: 'AbortError' });
    await sleep(50);
    expect(server.seen).toHaveLength(4);
    // The call's own, too, where the close came before its reply's headers.
    expect(new Set(errors.map(({ name }) => name))).toEqual(new Set(['AbortError']));
  });
});

describe('requests', () => {
  it('carry the headers of requestInit and of headers, and go through the fetch that is given', async () => {
    const server = await serve(DRAFT, answered);
    let fetched = 0;
    const { call, transport } = await connected(server.url, undefined, {
      requestInit: { headers: { authorization: 'Bearer one', 'x-a': 'init' } },
      headers: { 'x-a': 'over' },
      fetch: (url, init) => {
        fetched += 1;
        return fetch(url, init);
      },
    });
    await call();
    await transport.terminateSession();
    await until(() => server.seen.length === 5);
    expect(fetched).toBe(5);
    for (const { headers } of server.seen) {
      expect(headers).toMatchObject({ authorization: 'Bearer one', 'x-a': 'over' });
    }
  });

  it('follow a redirect within the origin, and no other', async () => {
    const elsewhere = await serve(DRAFT, answered);
    let target = '/mcp?moved';
    const server = await serve(DRAFT, (seen, reply) => {
      if (seen.body.method !== 'tools/call') return false;
      if (target === '') reply.json(result(seen.body.id));
      else reply.res.writeHead(307, { location: target }).end();
      if (target.startsWith('/')) target = '';
      return true;
    });
    const { call } = await connected(server.url);
    expect(await call()).toEqual(RESULT);
    target = elsewhere.url;
    await expect(call()).rejects.toMatchObject({
      code: 307,
      message: expect.stringContaining('not followed'),
    });
    expect(elsewhere.seen).toEqual([]);
  });

  it('get credentials from an authProvider, and new ones once', async () => {
    let fresh = false;
    const server = await serve(DRAFT, ({ verb, headers }, reply) => {
      if (verb !== 'POST' || headers['content-type'] !== 'application/json') return false;
      if (headers.authorization === 'Bearer fresh') return false;
      reply.json('who are you', 401);
      return true;
    });
    const redirected: URL[] = [];
    const provider: OAuthClientProvider = {
      ...user(server.url, redirected),
      tokens: () => ({ access_token: fresh ? 'fresh' : 'stale', token_type: 'Bearer' }),
      redirectToAuthorization: (url) => {
        redirected.push(url);
        fresh = true;
      },
    };
    const first = connect(server.url, undefined, { authProvider: provider });
    await expect(first).rejects.toBeInstanceOf(UnauthorizedError);
    expect(redirected).toHaveLength(1);
    const { transport } = await connected(server.url, undefined, { authProvider: provider });
    expect(transport.protocolVersion).toBe(DRAFT);
    expect(redirected).toHaveLength(1);
  });

  it('step up to what they were granted and what is asked for besides (SEP-2350)', async () => {
    const challenge = 'Bearer error="insufficient_scope", scope="files:write files:read"';
    const server = await serve(
      DRAFT,
      onCall((_, { res }) => res.writeHead(403, { 'www-authenticate': challenge }).end()),
    );
    const redirected: URL[] = [];
    const provider = user(server.url, redirected);
    const { call } = await connected(server.url, undefined, { authProvider: provider });
    await expect(call()).rejects.toBeInstanceOf(UnauthorizedError);
    expect(redirected.map((url) => url.searchParams.get('scope'))).toEqual([
      'files:read mail:read files:write',
    ]);
  });

  function user(server: string, redirected: URL[]): OAuthClientProvider {
    const { origin } = new URL(server);
    return {
      redirectUrl: `${origin}/callback`,
      clientMetadata: { redirect_uris: [`${origin}/callback`] },
      clientInformation: () => ({ client_id: 'test' }),
      tokens: () => ({ access_token: 'granted', token_type: 'Bearer', scope: 'files:read mail:read' }),
      saveTokens: () => {},
      redirectToAuthorization: (url) => void redirected.push(url),
      saveCodeVerifier: () => {},
      codeVerifier: () => 'verifier',
    };
  }
});

describe('connections', () => {
  it('are kept alive from turn to turn', async () => {
    const turns = 10;
    const server = await serve(
      DRAFT,
      onCall((_, reply) => reply.write(asking).end()),
      (seen, reply) => {
        if (seen.batch === undefined) return false;
        const done = server.turns().filter(({ batch }) => batch !== undefined).length % turns === 0;
        if (done) reply.json(result(current));
        else reply.write(asking).end();
        return true;
      },
    );
    const { call } = await connected(server.url);
    let current = 0;
    for (current = 1; current <= 5; current += 1) expect(await call()).toEqual(RESULT);
    expect(server.turns()).toHaveLength(5 * (turns + 1));
    // Those that were opened side by side at the start: initialize, initialized, the GET and the first call.
    expect(server.sockets()).toBeLessThanOrEqual(4);
  });

  it('are kept where the server ends its stream a moment after input_required', async () => {
    const late = async (reply: Reply): Promise<void> => {
      reply.write(asking);
      await sleep(30);
      reply.end();
    };
    const server = await serve(
      DRAFT,
      onCall((_, reply) => void late(reply)),
      (seen, reply) => {
        if (seen.batch === undefined) return false;
        if (server.turns().length === 12) reply.json(result(1));
        else void late(reply);
        return true;
      },
    );
    const { call } = await connected(server.url);
    expect(await call()).toEqual(RESULT);
    expect(server.sockets()).toBeLessThanOrEqual(4);
  });
});
