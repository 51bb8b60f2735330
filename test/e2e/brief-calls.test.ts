/** Calls that end about when their replies are no longer held back: each response comes, once, and each tool runs once. */
import { setTimeout as sleep } from 'node:timers/promises';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { afterEach, expect, it } from 'vitest';
import { z } from 'zod';
import { tuned } from '../../src/call/limits.ts';
import { openStore } from '../../src/store.ts';
import { SHORT, some } from '../short.ts';
import { messagesIn, type Rpc } from './clients.ts';
import { SECRET, type Served, serveHere } from './harness.ts';
import { SQLITE } from './services.ts';

const open: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of open.splice(0).reverse()) await end();
});

const HELD = 8;
const HEADERS = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };

async function serve(ran: number[]): Promise<Served> {
  const build = (): McpServer => {
    const server = new McpServer({ name: 'brief', version: '1' }, { capabilities: { logging: {} } });
    const inputSchema = { nth: z.number(), takes: z.number() };
    server.registerTool('brief', { inputSchema }, async ({ nth, takes }) => {
      ran.push(nth);
      await sleep(takes);
      return { content: [{ type: 'text', text: String(nth) }] };
    });
    server.registerTool('talks', { inputSchema: {} }, async (_args, { sendNotification }) => {
      const data = 'x'.repeat(7_000);
      for (let nth = 0; nth < 700; nth += 1)
        void sendNotification({ method: 'notifications/message', params: { level: 'info', data } });
      await sleep(50);
      return { content: [{ type: 'text', text: 'said it' }] };
    });
    return server;
  };
  const served = await serveHere(build, {
    store: await openStore(SQLITE.url()),
    secrets: [SECRET],
    limits: { drain: 300 },
    ...tuned({ heldReply: HELD }),
  });
  open.push(() => served.close());
  return served;
}

async function read(response: Response, got: Rpc[]): Promise<void> {
  let text = '';
  try {
    for await (const chunk of response.body?.pipeThrough(new TextDecoderStream()) ?? []) {
      text += chunk;
      const end = text.lastIndexOf('\n\n') + 2;
      if (end < 2) continue;
      got.push(...messagesIn(text.slice(0, end)).filter(({ id }) => id !== undefined));
      text = text.slice(end);
    }
  } catch {
    // Its client left.
  }
}

const call = (nth: number) => ({
  jsonrpc: '2.0',
  id: nth,
  method: 'tools/call',
  params: { name: 'brief', arguments: { nth, takes: HELD - 2 + (nth % 6) } },
});
const initialize = (protocolVersion: string) => ({
  jsonrpc: '2.0',
  id: 'begin',
  method: 'initialize',
  params: { protocolVersion, capabilities: {}, clientInfo: { name: 'brief', version: '1' } },
});

it.each(some(['/sse', '/mcp/here']))('on a lasting stream (%s)', async (path) => {
  const ran: number[] = [];
  const { url } = await serve(ran);
  const root = new URL(url).origin;
  const gone = new AbortController();
  open.push(() => gone.abort());
  const stream = await fetch(`${root}${path}`, { headers: { accept: HEADERS.accept }, signal: gone.signal });
  const got: Rpc[] = [];
  const [first, second] = stream.body?.tee() ?? [];
  void read(new Response(first), got);
  const reader = second?.pipeThrough(new TextDecoderStream()).getReader();
  let head = '';
  while (!head.includes('\n\n')) head += (await reader?.read())?.value ?? '';
  void reader?.cancel();
  const endpoint = /^event: endpoint\n(?:.+\n)*data: (.+)$/m.exec(head)?.[1] ?? path;
  const name = stream.headers.get('mcp-stream-id');
  const headers = { ...HEADERS, ...(name !== null && { 'mcp-stream-id': name }) };
  const post = async (message: object): Promise<void> => {
    const body = JSON.stringify(message);
    const { status } = await fetch(`${root}${endpoint}`, { method: 'POST', headers, body });
    expect(status).toBe(202);
  };
  if (path === '/sse') await post(initialize('2024-11-05'));
  const calls = Array.from({ length: 90 }, (_, nth) => nth);
  for (let nth = 0; nth < calls.length; nth += 3)
    await Promise.all(calls.slice(nth, nth + 3).map((one) => post(call(one))));
  const responses = () => got.flatMap(({ id }) => (typeof id === 'number' ? [id] : []));
  await expect.poll(() => responses().length).toBe(calls.length);
  expect(responses().sort((a, b) => a - b)).toEqual(calls);
  expect(ran.sort((a, b) => a - b)).toEqual(calls);
});

it('in an array of 2025-03-26', async () => {
  const ran: number[] = [];
  const { url } = await serve(ran);
  const begun = await fetch(url, {
    method: 'POST',
    headers: HEADERS,
    body: JSON.stringify(initialize('2025-03-26')),
  });
  const headers = { ...HEADERS, 'mcp-session-id': begun.headers.get('mcp-session-id') ?? '' };
  for (let nth = 0; nth < 120; nth += 3) {
    const three = [nth, nth + 1, nth + 2];
    const body = JSON.stringify(three.map(call));
    const got: Rpc[] = [];
    await read(await fetch(url, { method: 'POST', headers, body }), got);
    expect(got.map(({ id }) => Number(id)).sort((a, b) => a - b)).toEqual(three);
  }
  expect(ran).toHaveLength(120);
});

it.skipIf(SHORT)('a single request is held to no bound of arrays, however much it says', async () => {
  const { url } = await serve([]);
  const begun = await fetch(url, {
    method: 'POST',
    headers: HEADERS,
    body: JSON.stringify(initialize('2025-11-25')),
  });
  const headers = { ...HEADERS, 'mcp-session-id': begun.headers.get('mcp-session-id') ?? '' };
  const params = { name: 'talks', arguments: {} };
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params });
  const got: Rpc[] = [];
  const response = await fetch(url, { method: 'POST', headers, body });
  expect(response.status).toBe(200);
  await read(response, got);
  expect(got.map(({ result }) => result?.content?.[0]?.text)).toEqual(['said it']);
});
