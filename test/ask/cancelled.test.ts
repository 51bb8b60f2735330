/** A call that its client cancels while it has the question itself: the tool is told, as without a page. */
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { ElicitRequestSchema, type ElicitResult } from '@modelcontextprotocol/sdk/types.js';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import * as z from 'zod';
import { systemClock } from '../../src/base/values.ts';
import { openStore } from '../../src/store.ts';
import { SECRET, type Served, serveHere } from '../e2e/harness.ts';
import { SQLITE } from '../e2e/services.ts';
import { askOptions, PAGE, PersonAtPage } from './person.ts';

const FORM = { type: 'object' as const, properties: { day: { type: 'string' as const } } };
const ann = new PersonAtPage();
const anything = z.looseObject({});
let stopped: string[] = [];
let runs = 0;
let ahead = 0;

function build(): McpServer {
  const server = new McpServer({ name: 'booking', version: '1' });
  server.registerTool('book', { inputSchema: { to: z.string() } }, async ({ to }, { signal }) => {
    runs += 1;
    signal.addEventListener('abort', () => void stopped.push(to));
    const { action } = await server.server.elicitInput({ message: `To ${to}?`, requestedSchema: FORM });
    return { content: [{ type: 'text', text: action }] };
  });
  return server;
}

const cleanUps: (() => unknown)[] = [];
let one: Served;
let two: Served;
beforeEach(async () => {
  stopped = [];
  runs = 0;
  ahead = 0;
  vi.spyOn(systemClock, 'now').mockImplementation(() => Date.now() + ahead);
  const url = SQLITE.url();
  const serve = async (): Promise<Served> => {
    const store = await openStore(url);
    const served = await serveHere(build, {
      tasks: 'optional',
      secrets: [SECRET],
      store,
      ask: askOptions,
    });
    cleanUps.push(() => served.close());
    return served;
  };
  one = await serve();
  two = await serve();
});
afterEach(async () => {
  for (const cleanUp of cleanUps.splice(0).reverse()) await cleanUp();
  vi.restoreAllMocks();
});

/** A client that is proven, and what it shows. */
async function proven(): Promise<{ client: Client; shows: ReturnType<typeof vi.fn> }> {
  const client = new Client({ name: 'host', version: '1' }, { capabilities: { elicitation: { form: {} } } });
  const shows = vi.fn(async (): Promise<ElicitResult> => {
    ahead += 1_500;
    return { action: 'accept', content: { day: 'Monday' } };
  });
  client.setRequestHandler(ElicitRequestSchema, () => shows());
  const requestInit = { headers: { authorization: 'Bearer ann' } };
  await client.connect(new StreamableHTTPClientTransport(new URL(one.url), { requestInit }) as Transport);
  cleanUps.push(() => client.close());
  await client.callTool({ name: 'book', arguments: { to: 'rome' } });
  shows.mockClear();
  shows.mockImplementation(() => new Promise(() => {}));
  return { client, shows };
}

it('fires the tool’s signal, and begins anew where it is called again', async () => {
  const { client, shows } = await proven();
  const stop = new AbortController();
  const params = { name: 'book', arguments: { to: 'oslo' } };
  const first = client.callTool(params, undefined, { signal: stop.signal }).catch(() => 'cancelled');
  await expect.poll(() => shows.mock.calls.length).toBe(1);
  expect(stopped).toEqual([]);
  stop.abort();
  expect(await first).toBe('cancelled');
  await expect.poll(() => stopped).toEqual(['oslo']);
  expect(await ann.read(two.url, PAGE)).toContain('Nothing waits for you now');
  shows.mockImplementation(async () => ({ action: 'decline' }));
  expect(await client.callTool(params)).toMatchObject({ content: [{ text: 'decline' }] });
  expect(runs).toBe(3);
});

it('fires it where a task is cancelled', async () => {
  const { client, shows } = await proven();
  const task = { ttl: 60_000 };
  const params = { name: 'book', arguments: { to: 'bern' }, task };
  const created = await client.request({ method: 'tools/call', params }, anything);
  const { taskId } = created.task as { taskId: string };
  const result = client.request({ method: 'tasks/result', params: { taskId } }, anything).catch(() => 'none');
  await expect.poll(() => shows.mock.calls.length).toBe(1);
  await client.request({ method: 'tasks/cancel', params: { taskId } }, anything);
  await result;
  await expect.poll(() => stopped).toEqual(['bern']);
});
