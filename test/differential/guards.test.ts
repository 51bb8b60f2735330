/** What SDK v2 checks at its HTTP edge before a tool runs: the same status, headers and body hosted. */
import { McpServer as McpServerV1 } from '@modelcontextprotocol/sdk/server/mcp.js';
import { fromJsonSchema, McpServer, ResourceTemplate, requireScopes } from '@modelcontextprotocol/server';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { createAwaitHandler } from '../../src/index.ts';
import { LogBook } from '../e2e/harness.ts';
import { expectSame } from './compare.ts';
import { nativeModern, nativeSessionsV2 } from './native.ts';
import { CAPABILITIES, type Fetch, INFO, type Json } from './talk.ts';

/** What ran, natively or hosted. */
let ran: string[] = [];

function guarded(): McpServer {
  const server = new McpServer({ name: 'guarded', version: '1.0.0' });
  const none = { inputSchema: z.object({}) };
  const runs = (name: string) => () => {
    ran.push(name);
    return { content: [{ type: 'text' as const, text: name }] };
  };
  server.registerTool('open', none, runs('open'));
  server.registerTool(
    'drop',
    { ...none, scopeChallenge: requireScopes('db:write', 'db:drop') },
    runs('drop'),
  );
  server.registerTool(
    'explains',
    { ...none, scopeChallenge: () => ({ scopes: ['ask'], errorDescription: 'ask an admin' }) },
    runs('explains'),
  );
  server.registerTool('wrong', { ...none, scopeChallenge: () => ({ scopes: [] as never }) }, runs('wrong'));
  server.registerTool(
    'fails',
    {
      ...none,
      scopeChallenge: () => {
        throw new Error('no scopes today');
      },
    },
    runs('fails'),
  );
  const mirrored = { type: 'string', 'x-mcp-header': 'Region' } as const;
  server.registerTool(
    'query',
    {
      inputSchema: fromJsonSchema<{ region?: string }>({ type: 'object', properties: { region: mirrored } }),
    },
    runs('query'),
  );
  server.registerPrompt('secret', { scopeChallenge: requireScopes('read') }, () => {
    ran.push('secret');
    return { messages: [] };
  });
  const read = ({ href }: URL) => {
    ran.push(href);
    return { contents: [{ uri: href, text: 'one' }] };
  };
  server.registerResource('note', 'note://one', { scopeChallenge: requireScopes('read') }, read);
  const template = new ResourceTemplate('note://{name}/more', { list: undefined });
  server.registerResource('more', template, { scopeChallenge: requireScopes('read') }, read);
  return server;
}

interface Case {
  readonly name: string;
  readonly method: string;
  readonly params: Json;
  readonly headers?: Readonly<Record<string, string>>;
}

const call = (name: string, args: Json = {}, rest: Partial<Case> = {}): Case => ({
  name: `tools/call ${name}`,
  method: 'tools/call',
  params: { name, arguments: args },
  ...rest,
});

const CASES: readonly Case[] = [
  call('open'),
  call('drop'),
  call('explains'),
  call('wrong'),
  call('fails'),
  call('nowhere'),
  { name: 'prompts/get', method: 'prompts/get', params: { name: 'secret' } },
  { name: 'resources/read', method: 'resources/read', params: { uri: 'note://one' } },
  { name: 'resources/read of a template', method: 'resources/read', params: { uri: 'note://b/more' } },
];

const HEADERS: readonly Case[] = [
  call('query', { region: 'eu' }, { name: 'a mirrored argument without its header' }),
  call('query', { region: 'eu' }, { name: 'another value', headers: { 'mcp-param-region': 'us' } }),
  call('query', { region: 'eu' }, { name: 'the same value', headers: { 'mcp-param-region': 'eu' } }),
  call(
    'query',
    { region: 'é' },
    { name: 'the same in base64', headers: { 'mcp-param-region': '=?base64?w6k=?=' } },
  ),
  call('query', { region: 'eu' }, { name: 'bad base64', headers: { 'mcp-param-region': '=?base64?!?=' } }),
  call('query', {}, { name: 'a header without its argument', headers: { 'mcp-param-region': 'eu' } }),
  call('query', {}, { name: 'neither' }),
];

const RESOURCE = new URL('https://api.test/mcp');
const CALLERS = [
  { who: 'no credentials', authInfo: undefined },
  { who: 'no scope', authInfo: { token: 't', clientId: 'ann', scopes: [] } },
  {
    who: 'one of two scopes',
    authInfo: { token: 't', clientId: 'ann', scopes: ['db:write'], resource: RESOURCE },
  },
  {
    who: 'a URL of metadata',
    authInfo: { token: 't', clientId: 'ann', scopes: [], resourceMetadataUrl: 'https://api.test/"meta"' },
  },
  { who: 'all scopes', authInfo: { token: 't', clientId: 'ann', scopes: ['db:write', 'db:drop', 'read'] } },
];

let handlers: ReturnType<typeof createAwaitHandler>[] = [];
beforeEach(() => {
  ran = [];
});
afterEach(async () => {
  await Promise.all(handlers.map((handler) => handler.close()));
  handlers = [];
});

function hosted(authInfo: object | undefined, options = {}): Fetch {
  const handler = createAwaitHandler(guarded, { logger: new LogBook(), ...options });
  handlers.push(handler);
  return (request) => handler.fetch(request, authInfo === undefined ? {} : { authInfo });
}

function requestOf(body: Json, headers: Readonly<Record<string, string>>): Request {
  return new Request('http://mirror.test/mcp', {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      ...headers,
    },
    body: JSON.stringify(body),
  });
}

/** The outcome of a request: a refusal by its whole body, others by whether the tool ran. */
async function cameOf(reply: Response, before: number): Promise<Json> {
  const { status, headers } = reply;
  const body = await reply.text();
  return {
    status,
    challenge: headers.get('www-authenticate'),
    ran: ran.slice(before),
    ...(status !== 200 && { type: headers.get('content-type'), body: JSON.parse(body) as unknown }),
  };
}

async function modern(fetch: Fetch, { method, params, headers }: Case): Promise<Json> {
  const _meta = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientCapabilities': CAPABILITIES,
    'io.modelcontextprotocol/clientInfo': INFO,
  };
  const before = ran.length;
  const reply = await fetch(
    requestOf(
      { jsonrpc: '2.0', id: 1, method, params: { ...params, _meta } },
      {
        'mcp-protocol-version': '2026-07-28',
        'mcp-method': method,
        'mcp-name': String(params.name ?? params.uri),
        ...headers,
      },
    ),
  );
  return cameOf(reply, before);
}

async function session(fetch: Fetch, revision: string): Promise<Record<string, string>> {
  const params = { protocolVersion: revision, capabilities: CAPABILITIES, clientInfo: INFO };
  const begun = await fetch(requestOf({ jsonrpc: '2.0', id: 0, method: 'initialize', params }, {}));
  await begun.text();
  const headers = {
    'mcp-session-id': begun.headers.get('mcp-session-id') ?? '',
    'mcp-protocol-version': revision,
  };
  await fetch(requestOf({ jsonrpc: '2.0', method: 'notifications/initialized' }, headers));
  return headers;
}

async function inSession(fetch: Fetch, revision: string, { method, params, headers }: Case): Promise<Json> {
  const own = await session(fetch, revision);
  const before = ran.length;
  const reply = await fetch(requestOf({ jsonrpc: '2.0', id: 1, method, params }, { ...own, ...headers }));
  return cameOf(reply, before);
}

describe.each(CALLERS)('a caller with $who', ({ authInfo }) => {
  it.each(CASES)('of 2026-07-28 gets the same from $name', async (asked) => {
    expectSame(await modern(nativeModern(guarded, authInfo), asked), await modern(hosted(authInfo), asked));
  });

  it.each(CASES.flatMap((asked) => ['2025-03-26', '2025-11-25'].map((revision) => ({ ...asked, revision }))))(
    'of $revision gets the same from $name',
    async ({ revision, ...asked }) => {
      const native = await inSession(nativeSessionsV2(guarded, authInfo), revision, asked);
      expectSame(native, await inSession(hosted(authInfo), revision, asked));
    },
  );
});

describe('arguments that a tool mirrors in headers', () => {
  it.each(HEADERS)('of 2026-07-28: $name', async (asked) => {
    const fetch = hosted(undefined);
    const native = await modern(nativeModern(guarded), asked);
    expectSame(native, await modern(fetch, asked));
    // Once more, when this process knows the server.
    expectSame(native, await modern(fetch, asked));
  });

  it.each(HEADERS)('of 2025-11-25 are not looked at: $name', async (asked) => {
    const native = await inSession(nativeSessionsV2(guarded), '2025-11-25', asked);
    expectSame(native, await inSession(hosted(undefined), '2025-11-25', asked));
  });
});

describe('scopes of one handler, whose callers differ', () => {
  const poor = { token: 't', clientId: 'ann', scopes: [] };
  const rich = { token: 't', clientId: 'ann', scopes: ['db:write', 'db:drop'] };

  it.each(['call', 'session', 'caller', 'process'] as const)('with instance: %s', async (instance) => {
    const handler = createAwaitHandler(guarded, { logger: new LogBook(), instance });
    handlers.push(handler);
    const as =
      (authInfo: object): Fetch =>
      (request) =>
        handler.fetch(request, { authInfo });
    for (const [authInfo, status] of [
      [rich, 200],
      [poor, 403],
      [rich, 200],
      [poor, 403],
    ] as const) {
      expect(await modern(as(authInfo), call('drop'))).toMatchObject({ status });
      expect(await inSession(as(authInfo), '2025-11-25', call('drop'))).toMatchObject({ status });
    }
    expect(ran).toHaveLength(4);
  });

  it('a caller who loses a scope cannot continue a call', async () => {
    let answered = 0;
    const build = (): McpServer => {
      const server = new McpServer({ name: 'asks', version: '1.0.0' });
      const tool = { inputSchema: z.object({}), scopeChallenge: requireScopes('db:drop') };
      server.registerTool('asks', tool, async () => {
        await server.server.elicitInput({
          message: 'Sure?',
          requestedSchema: { type: 'object', properties: {} },
        });
        answered += 1;
        return { content: [] };
      });
      return server;
    };
    const handler = createAwaitHandler(build, { logger: new LogBook() });
    handlers.push(handler);
    const first = call('asks');
    const post = async (authInfo: object, more: Json): Promise<Response> =>
      handler.fetch(
        requestOf(
          {
            jsonrpc: '2.0',
            id: 1,
            method: 'tools/call',
            params: {
              ...first.params,
              ...more,
              _meta: {
                'io.modelcontextprotocol/protocolVersion': '2026-07-28',
                'io.modelcontextprotocol/clientCapabilities': CAPABILITIES,
                'io.modelcontextprotocol/clientInfo': INFO,
              },
            },
          },
          { 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/call', 'mcp-name': 'asks' },
        ),
        { authInfo },
      );
    const asked = (await (await post(rich, {})).json()) as { result: Json };
    const { requestState, inputRequests } = asked.result;
    const [key = ''] = Object.keys(inputRequests as Json);
    const retry = { requestState, inputResponses: { [key]: { action: 'accept', content: {} } } };
    expect((await post(poor, retry)).status).toBe(403);
    expect(answered).toBe(0);
    // It gets the scope, and sends the same again.
    expect((await post(rich, retry)).status).toBe(200);
    expect(answered).toBe(1);
  });
});

it('a server whose factory gives only some callers a guarded tool checks them, in any order', async () => {
  const build = ({ authInfo }: { authInfo?: { clientId?: unknown } }): McpServer => {
    const server = new McpServer({ name: 'some', version: '1.0.0' });
    const guard = authInfo?.clientId === 'bob' ? { scopeChallenge: requireScopes('db:drop') } : {};
    server.registerTool('drop', { inputSchema: z.object({}), ...guard }, () => {
      ran.push('drop');
      return { content: [] };
    });
    return server;
  };
  const handler = createAwaitHandler(build as never, { logger: new LogBook() });
  handlers.push(handler);
  const as =
    (clientId: string): Fetch =>
    (request) =>
      handler.fetch(request, { authInfo: { token: 't', clientId, scopes: [] } });
  expect(await modern(as('ann'), call('drop'))).toMatchObject({ status: 200, ran: ['drop'] });
  // A caller's first request is refused as the call starts; later ones by the SDK.
  expect(await modern(as('bob'), call('drop'))).toMatchObject({ ran: [] });
  expect(await modern(as('bob'), call('drop'))).toMatchObject({ status: 403, ran: [] });
});

it('a server of SDK v1 has its mirrored arguments checked once its tools were listed', async () => {
  const build = (): McpServerV1 => {
    const server = new McpServerV1({ name: 'v1', version: '1.0.0' });
    const region = z.string().meta({ 'x-mcp-header': 'Region' });
    server.registerTool('query', { inputSchema: { region } }, () => {
      ran.push('query');
      return { content: [] };
    });
    return server;
  };
  const handler = createAwaitHandler(build, { logger: new LogBook() });
  handlers.push(handler);
  const fetch: Fetch = (request) => handler.fetch(request);
  await modern(fetch, { name: 'tools/list', method: 'tools/list', params: {} });
  expect(await modern(fetch, call('query', { region: 'eu' }))).toMatchObject({ status: 400, ran: [] });
  const mirrored = call('query', { region: 'eu' }, { headers: { 'mcp-param-region': 'eu' } });
  expect(await modern(fetch, mirrored)).toMatchObject({ status: 200, ran: ['query'] });
});
