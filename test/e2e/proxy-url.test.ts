/** `proxy --url`: remote servers of 2025 and of 2024, each what the SDK makes of it, for clients of every revision. */
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { createMcpExpressApp } from '@modelcontextprotocol/sdk/server/express.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { SSEServerTransport } from '@modelcontextprotocol/sdk/server/sse.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import {
  ResourceUpdatedNotificationSchema,
  SubscribeRequestSchema,
  ToolListChangedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { remoteHost } from '../../src/index.ts';
import { openStore } from '../../src/store.ts';
import { answer, ask, linkIn } from '../ask/proxied.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { filledIn, legacy, legacyOver, modern, oldest } from './clients.ts';
import { listen, SECRET, serveHere, shut } from './harness.ts';
import { SQLITE } from './services.ts';

const closing: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0)) await close();
});

const asking = (): McpServer => buildServer(() => {});

/** Streamable HTTP, as SDK v1 serves it with sessions. */
async function streamable(seen: string[] = [], build = asking): Promise<string> {
  const sessions = new Map<string, StreamableHTTPServerTransport>();
  const app = createMcpExpressApp();
  app.all('/mcp', async (req, res) => {
    seen.push(String(req.headers['x-key']));
    let transport = sessions.get(String(req.headers['mcp-session-id']));
    if (transport === undefined) {
      const made = new StreamableHTTPServerTransport({
        sessionIdGenerator: () => randomUUID(),
        onsessioninitialized: (id) => void sessions.set(id, made),
      });
      await build().connect(made as Parameters<McpServer['connect']>[0]);
      transport = made;
    }
    await transport.handleRequest(req, res, req.body);
  });
  app.all('/moved', (_req, res) => res.redirect(308, '/mcp'));
  const server = createServer(app);
  const url = await listen(server);
  closing.push(() => shut(server));
  return `${url}/mcp`;
}

/** HTTP+SSE, as SDK v1 serves it. */
async function sse(build = asking): Promise<string> {
  const sessions = new Map<string, SSEServerTransport>();
  const app = createMcpExpressApp();
  app.get('/sse', async (_req, res) => {
    const transport = new SSEServerTransport('/messages', res);
    sessions.set(transport.sessionId, transport);
    await build().connect(transport);
  });
  app.post(
    '/messages',
    (req, res) => void sessions.get(String(req.query.sessionId))?.handlePostMessage(req, res, req.body),
  );
  const server = createServer(app);
  const url = await listen(server);
  closing.push(() => shut(server));
  return `${url}/sse`;
}

describe.each([
  ['Streamable HTTP', () => streamable()],
  ['HTTP+SSE', () => sse()],
] as const)('a remote server over %s', (_wire, start) => {
  it.each([
    ['2026-07-28', modern],
    ['2025-11-25', legacy],
    ['2024-11-05', (url: string) => oldest(url.replace('/mcp', '/sse'))],
  ] as const)('asks clients of %s', async (_revision, connect) => {
    const served = await serveHere(remoteHost({ url: await start() }), { limits: { drain: 300 } });
    closing.unshift(() => served.close());
    const client = await connect(served.url);
    expect(await client.tool('one')).toBe('Hello its name');
    expect(await client.tool('in-turn')).toBe('its name, its city, its street');
    expect(await client.tool('sample')).toBe('a poem');
    expect(await client.prompt('greet')).toBe('Greet its name');
    expect(await client.resource('diary://today')).toBe('Dear its name');
    await client.close();
  });
});

describe('before its SDK gives up on an ask its session is left', () => {
  it.each([
    ['Streamable HTTP', (build: () => McpServer) => streamable([], build)],
    ['HTTP+SSE', sse],
  ])('and ended, so that its tool does not give up after the call was done (%s)', async (_wire, start) => {
    const effects: string[] = [];
    const url = await start(() => {
      const server = new McpServer({ name: 'giving-up', version: '1.0.0' });
      server.registerTool('reads', { annotations: { readOnlyHint: true } }, async () => {
        effects.push('asked');
        const form = {
          message: 'name?',
          requestedSchema: { type: 'object' as const, properties: { name: { type: 'string' as const } } },
        };
        try {
          const { content } = await server.server.elicitInput(form, { timeout: 3_600_000 });
          effects.push('done');
          return { content: [{ type: 'text', text: `Hello ${content?.name}` }] };
        } catch {
          effects.push('gave up');
          return { content: [] };
        }
      });
      return server;
    });
    const served = await serveHere(remoteHost({ url, askTimeout: 600 }), { limits: { drain: 300 } });
    closing.unshift(() => served.close());
    const client = await legacy(served.url, {
      answer: async () => {
        await expect.poll(() => effects).toContain('gave up');
        return { action: 'accept', content: { name: 'Ann' } };
      },
    });
    expect(await client.tool('reads')).toBe('Hello Ann');
    expect(effects.filter((effect) => effect !== 'asked')).toEqual(['gave up', 'done']);
    expect(client.asked).toEqual(['name?']);
    await client.close();
  });
});

it('serves its session beside a call that waits for a person', async () => {
  const servers: McpServer[] = [];
  const effects: string[] = [];
  const url = await streamable([], () => {
    const capabilities = { resources: { subscribe: true } };
    const server = new McpServer({ name: 'changing', version: '1.0.0' }, { capabilities });
    servers.push(server);
    const { server: low } = server;
    low.setRequestHandler(SubscribeRequestSchema, () => ({}));
    server.registerTool('asks', {}, async () => {
      const requestedSchema = { type: 'object' as const, properties: {} };
      const { action } = await low.elicitInput({ message: 'Go on?', requestedSchema });
      effects.push(action);
      return { content: [] };
    });
    return server;
  });
  const store = SQLITE.url();
  const serve = async () =>
    serveHere(remoteHost({ url, replay: 'allow' }), {
      secrets: [SECRET],
      ask,
      limits: { drain: 300 },
      store: await openStore(store),
    });
  const [served, other] = [await serve(), await serve()];
  for (const { close } of [served, other]) closing.unshift(close);
  const client = new Client({ name: 'host', version: '1' });
  closing.unshift(() => client.close());
  const updated: string[] = [];
  client.setNotificationHandler(
    ResourceUpdatedNotificationSchema,
    ({ params }) => void updated.push(params.uri),
  );
  const changed = vi.fn();
  client.setNotificationHandler(ToolListChangedNotificationSchema, () => changed());
  const requestInit = { headers: { authorization: 'Bearer ann' } };
  const transport = new StreamableHTTPClientTransport(new URL(served.url), { requestInit });
  await client.connect(transport as Transport);
  await client.subscribeResource({ uri: 'diary://today' });
  const { content } = await client.callTool({ name: 'asks', arguments: {} });
  expect(JSON.stringify(content)).toContain('NOT DONE YET');
  for (const { server } of servers) await server.sendResourceUpdated({ uri: 'diary://today' });
  await expect.poll(() => updated).toEqual(['diary://today']);
  for (const { server } of servers) await server.sendToolListChanged();
  await expect.poll(() => changed.mock.calls).toHaveLength(1);
  await answer(linkIn((content as { text: string }[])[0]?.text ?? '', served));
  await client.callTool({ name: 'asks', arguments: {} });
  // The call made no such change: another process has nothing of it to repeat.
  const headers = {
    ...requestInit.headers,
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    'mcp-session-id': transport.sessionId ?? '',
  };
  const body = JSON.stringify({ jsonrpc: '2.0', id: 'list', method: 'tools/list' });
  expect(await (await fetch(other.url, { method: 'POST', headers, body })).text()).toContain('asks');
  expect(effects).toEqual(['accept']);
});

it('has room for clients that come and leave one after the other, without ending their sessions', async () => {
  const served = await serveHere(remoteHost({ url: await streamable(), maxChildren: 2 }), {
    limits: { drain: 300 },
  });
  closing.unshift(() => served.close());
  for (let nth = 0; nth < 5; nth += 1) {
    // The stream of the one before may not have ended yet.
    const client = await vi.waitFor(() => legacy(served.url), { timeout: 60_000 });
    expect(await client.toolNames()).toContain('one');
    await client.close();
  }
});

it('has no room while calls are unfinished', async () => {
  const served = await serveHere(remoteHost({ url: await streamable(), maxChildren: 1 }), {
    limits: { drain: 300 },
  });
  closing.unshift(() => served.close());
  let answer = (): void => {};
  const answered = new Promise<void>((resolve) => {
    answer = resolve;
  });
  const client = await legacyOver(new StreamableHTTPClientTransport(new URL(served.url)), {
    answer: async (params) => {
      await answered;
      return filledIn(params);
    },
  });
  const call = client.tool('one');
  await expect.poll(() => client.asked).toEqual(['name?']);
  await expect(legacy(served.url)).rejects.toThrow('This server is busy');
  answer();
  expect(await call).toBe('Hello its name');
  await client.close();
  await (await vi.waitFor(() => legacy(served.url), { timeout: 60_000 })).close();
});

it('sends its configured headers, and reports a server that cannot be reached', async () => {
  const seen: string[] = [];
  const url = await streamable(seen);
  const { serverInfo } = await remoteHost({ url, headers: { 'x-key': 'secret' } }).check();
  expect(serverInfo).toMatchObject({ name: 'asking' });
  expect(new Set(seen)).toEqual(new Set(['secret']));
  await expect(remoteHost({ url: 'http://127.0.0.1:9/mcp' }).check()).rejects.toThrow(
    /127\.0\.0\.1:9 cannot be served/,
  );
  expect(() => remoteHost({ url: 'ftp://example.com' })).toThrow(/http or https/);
});

describe('a remote server that redirects', () => {
  async function redirecting(to: (url: URL) => string): Promise<string> {
    const server = createServer((req, res) => {
      res.writeHead(307, { location: to(new URL(req.url ?? '', `http://${req.headers.host}`)) }).end();
    });
    const url = await listen(server);
    closing.push(() => shut(server));
    return url;
  }

  it('to another origin gets no header and no message there', async () => {
    const seen: string[] = [];
    const elsewhere = createServer((req, res) => {
      seen.push(`${req.method} ${req.headers['x-key']}`);
      res.writeHead(404).end();
    });
    const other = await listen(elsewhere);
    closing.push(() => shut(elsewhere));
    const url = await redirecting(() => `${other}/mcp`);
    const host = remoteHost({ url: `${url}/mcp`, headers: { 'x-key': 'secret' } });
    await expect(host.check()).rejects.toThrow(`redirects to ${other}`);
    expect(seen).toEqual([]);
  });

  it('within its origin is followed', async () => {
    const seen: string[] = [];
    const url = new URL('/moved', await streamable(seen)).href;
    await remoteHost({ url, headers: { 'x-key': 'kept' } }).check();
    expect(new Set(seen)).toEqual(new Set(['kept']));
  });
});
