/** `proxy --url`: remote servers of 2025 and of 2024, each what the SDK makes of it, for clients of every revision. */
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { createMcpExpressApp } from '@modelcontextprotocol/sdk/server/express.js';
import { SSEServerTransport } from '@modelcontextprotocol/sdk/server/sse.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { remoteHost } from '../../src/index.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { filledIn, legacy, legacyOver, modern, oldest } from './clients.ts';
import { listen, serveHere, shut } from './harness.ts';

const closing: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0)) await close();
});

/** Streamable HTTP, as SDK v1 serves it with sessions. */
async function streamable(seen: string[] = []): Promise<string> {
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
      await buildServer(() => {}).connect(made as Parameters<ReturnType<typeof buildServer>['connect']>[0]);
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
async function sse(): Promise<string> {
  const sessions = new Map<string, SSEServerTransport>();
  const app = createMcpExpressApp();
  app.get('/sse', async (_req, res) => {
    const transport = new SSEServerTransport('/messages', res);
    sessions.set(transport.sessionId, transport);
    await buildServer(() => {}).connect(transport);
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
  ['HTTP+SSE', sse],
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
