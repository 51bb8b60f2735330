/** Replies of remote servers, of SDK v1, that end before their response: what is resumed, and what is lost. */
import { randomUUID } from 'node:crypto';
import { createServer, type Server, type ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { InMemoryEventStore } from '@modelcontextprotocol/sdk/examples/shared/inMemoryEventStore.js';
import { createMcpExpressApp } from '@modelcontextprotocol/sdk/server/express.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { SSEServerTransport } from '@modelcontextprotocol/sdk/server/sse.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { afterEach, expect, it } from 'vitest';
import { remoteHost } from '../../src/index.ts';
import { listen, type Served, serveHere, shut } from '../e2e/harness.ts';

const closing: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0)) await close();
});

interface Upstream {
  readonly url: string;
  /** Calls of its tools, by name. */
  readonly runs: string[];
  readonly begun: () => number;
  /** The replies to `tools/call` that are open. */
  readonly replies: Set<ServerResponse>;
  /** Ends every connection, as its process would by dying. */
  cut(): void;
  /** Refuses connections for so long, in milliseconds. */
  leave(time: number): Promise<void>;
  /** Forgets its sessions, as one that was started anew. */
  forget(): void;
  /** Ends what runs of `wait`. */
  release(): void;
}

interface Ways {
  readonly resumable?: boolean;
  /** What it says of a session that it does not know. Default 400. */
  readonly unknown?: number;
  /** Replies to a `tools/call` of `odd`. */
  readonly odd?: (res: ServerResponse, id: unknown) => void;
}

async function upstream({ resumable = false, unknown = 400, odd }: Ways = {}): Promise<Upstream> {
  const sessions = new Map<string, StreamableHTTPServerTransport | SSEServerTransport>();
  const runs: string[] = [];
  const replies = new Set<ServerResponse>();
  const waiting: (() => void)[] = [];
  let begun = 0;
  const connected = async (transport: unknown): Promise<void> => {
    begun += 1;
    const server = new McpServer({ name: 'upstream', version: '1' });
    const tool = (name: string, readOnlyHint: boolean, run: () => Promise<unknown>): void =>
      void server.registerTool(
        name,
        { annotations: { readOnlyHint } },
        async ({ _meta, sendNotification }) => {
          runs.push(name);
          const params = { progressToken: _meta?.progressToken ?? '', progress: 1 };
          await sendNotification({ method: 'notifications/progress', params });
          await run();
          return { content: [{ type: 'text', text: `${name} ${runs.length}` }] };
        },
      );
    const wait = (): Promise<unknown> => new Promise<void>((resolve) => waiting.push(resolve));
    tool('wait', false, wait);
    tool('read', true, async () => runs.length > 1 || wait());
    tool('odd', false, async () => {});
    tool('echo', false, async () => {});
    await server.connect(transport as Transport);
  };
  const app = createMcpExpressApp();
  app.all('/mcp', async (req, res) => {
    const { method, id, params } = req.body ?? {};
    if (method === 'tools/call') {
      replies.add(res);
      res.on('close', () => replies.delete(res));
      if (params.name === 'odd' && odd !== undefined) return odd(res, id);
    }
    const named = req.headers['mcp-session-id'];
    let transport = sessions.get(String(named)) as StreamableHTTPServerTransport | undefined;
    if (transport === undefined) {
      if (named !== undefined) return void res.writeHead(unknown).end();
      const made = new StreamableHTTPServerTransport({
        sessionIdGenerator: () => randomUUID(),
        onsessioninitialized: (session) => void sessions.set(session, made),
        ...(resumable && { eventStore: new InMemoryEventStore() }),
      });
      await connected(made);
      transport = made;
    }
    await transport.handleRequest(req, res, req.body);
  });
  app.get('/sse', async (_req, res) => {
    const transport = new SSEServerTransport('/messages', res);
    sessions.set(transport.sessionId, transport);
    await connected(transport);
  });
  app.post('/messages', async (req, res) => {
    const transport = sessions.get(String(req.query.sessionId)) as SSEServerTransport | undefined;
    if (transport === undefined) return void res.writeHead(404).end();
    await transport.handlePostMessage(req, res, req.body);
  });
  const server: Server = createServer(app);
  const url = await listen(server);
  closing.push(() => {
    server.closeAllConnections();
    return shut(server);
  });
  return {
    url: `${url}/mcp`,
    runs,
    begun: () => begun,
    replies,
    cut: () => server.closeAllConnections(),
    leave: async (time) => {
      const { port } = new URL(url);
      await shut(server);
      await sleep(time);
      await new Promise<void>((resolve) => server.listen(Number(port), '127.0.0.1', resolve));
    },
    forget: () => sessions.clear(),
    release: () => {
      for (const resolve of waiting.splice(0)) resolve();
    },
  };
}

async function behind(url: string): Promise<{ readonly served: Served; readonly client: Client }> {
  const served = await serveHere(remoteHost({ url, upstream: '2025-11-25' }), { limits: { drain: 300 } });
  const client = new Client(
    { name: 'client', version: '1' },
    { capabilities: { roots: { listChanged: true } } },
  );
  await client.connect(new StreamableHTTPClientTransport(new URL(served.url)) as Transport);
  closing.unshift(async () => {
    await client.close();
    await served.close();
  });
  return { served, client };
}

const call = (client: Client, name: string, options = {}): Promise<unknown> =>
  client.callTool({ name, arguments: {} }, undefined, { timeout: 120_000, ...options }).then(
    ({ content }) => (content as { text: string }[])[0]?.text,
    ({ message }: Error) => message,
  );
/** Resolves once its reply has begun. */
async function begun(client: Client, name: string, options = {}): Promise<() => Promise<unknown>> {
  let onprogress = (): void => {};
  const progressed = new Promise<void>((resolve) => {
    onprogress = resolve;
  });
  const result = call(client, name, { onprogress, ...options });
  await progressed;
  return () => result;
}

const LOST = 'it may not be run again from its start';
const LOGGED = 'a reply of it ended without the response';

it.each<[string, Ways]>([
  ['/mcp', {}],
  ['/sse', {}],
  // A reply that cannot be resumed.
  ['/mcp', { resumable: true }],
])('a server that dies in a call over %s (%o) loses it, and the next one runs', async (path, ways) => {
  const server = await upstream(ways);
  const { served, client } = await behind(new URL(path, server.url).href);
  const waits = await begun(client, 'wait');
  server.forget();
  server.cut();
  expect(await waits()).toContain(LOST);
  expect(served.log.text).toContain(LOGGED);
  expect(await call(client, 'echo')).toBe('echo 2');
  expect(server.begun()).toBe(2);
});

it.each(['/mcp', '/sse'])('replies to other messages over %s end no call', async (path) => {
  const server = await upstream();
  const { client } = await behind(new URL(path, server.url).href);
  const waits = await begun(client, 'wait');
  await client.notification({ method: 'notifications/roots/list_changed' });
  expect((await client.listTools()).tools).toHaveLength(4);
  // Longer than the end of a reply waits for what was in it.
  await sleep(500);
  server.release();
  expect(await waits()).toBe('wait 1');
});

it('a call that only reads runs again where its reply breaks', async () => {
  const server = await upstream();
  const { client } = await behind(server.url);
  const reads = await begun(client, 'read');
  for (const reply of server.replies) reply.destroy();
  expect(await reads()).toBe('read 2');
});

it('a call that only reads runs again on a server that is back after seconds', async () => {
  const server = await upstream({ unknown: 404 });
  const { client } = await behind(server.url);
  const reads = await begun(client, 'read');
  server.forget();
  await server.leave(3_500);
  expect(await reads()).toBe('read 2');
  expect(server.begun()).toBe(2);
});

const stream = (res: ServerResponse): ServerResponse =>
  res.writeHead(200, { 'content-type': 'text/event-stream' });
const other = JSON.stringify({ jsonrpc: '2.0', id: 'other', result: {} });

it.each<[string, NonNullable<Ways['odd']>]>([
  ['breaks in an event', (res) => stream(res).write('data: {"js', () => res.destroy())],
  ['ends at once', (res) => void stream(res).end()],
  ['ends with the response to another request', (res) => void stream(res).end(`data: ${other}\n\n`)],
  [
    'is JSON, with the response to another request',
    (res) => void res.setHeader('content-type', 'application/json').end(other),
  ],
  ['is no reply', (res) => void res.writeHead(202).end()],
  ['has an event id, and its server resumes none', (res) => void stream(res).end('id: 1\ndata: \n\n')],
])('a call whose reply %s is lost', async (_what, odd) => {
  const server = await upstream({ odd });
  const { served, client } = await behind(server.url);
  expect(await call(client, 'odd')).toContain(LOST);
  expect(served.log.text).toContain(LOGGED);
  expect(await call(client, 'echo')).toBe('echo 1');
});

it('a reply with event ids is resumed', async () => {
  const server = await upstream({ resumable: true });
  const { client } = await behind(server.url);
  const waits = await begun(client, 'wait');
  server.cut();
  await expect.poll(() => server.replies.size).toBe(0);
  server.release();
  expect(await waits()).toBe('wait 1');
  expect(server.begun()).toBe(1);
});

it('a call that may not run again is sent to a server that was started anew: the old session was unknown', async () => {
  const server = await upstream({ unknown: 404 });
  const { client } = await behind(server.url);
  expect(await call(client, 'echo')).toBe('echo 1');
  server.forget();
  const calls = await Promise.all([call(client, 'echo'), call(client, 'echo')]);
  expect(calls.toSorted()).toEqual(['echo 2', 'echo 3']);
  expect([server.runs.length, server.begun()]).toEqual([3, 2]);
});

it('a reply to a cancelled call may end without a response', async () => {
  const server = await upstream();
  const { served, client } = await behind(server.url);
  const cancelling = new AbortController();
  const waits = await begun(client, 'wait', { signal: cancelling.signal });
  cancelling.abort('enough');
  expect(await waits()).toContain('enough');
  // It is cancelled there by the time that the next request has its response.
  expect((await client.listTools()).tools).toHaveLength(4);
  for (const reply of server.replies) reply.end();
  expect(await call(client, 'echo')).toBe('echo 2');
  expect(served.log.text).not.toContain(LOGGED);
  expect(server.begun()).toBe(1);
});
