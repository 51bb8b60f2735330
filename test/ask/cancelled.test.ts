/** A call that its client cancels while it has the question itself: the tool is told, as without a page. */
import { setTimeout as pause } from 'node:timers/promises';
import type { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { ElicitResult } from '@modelcontextprotocol/sdk/types.js';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import * as z from 'zod';
import { step } from '../../src/index.ts';
import type { Served } from '../e2e/harness.ts';
import { clock, takeClock } from './clock.ts';
import { linkIn, PAGE, PersonAtPage } from './person.ts';
import { cleanUp, connected, request, serveTwo } from './two.ts';

const FORM = { type: 'object' as const, properties: { day: { type: 'string' as const } } };
const ann = new PersonAtPage();
const anything = z.looseObject({});
let stopped: string[] = [];
let runs = 0;

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

let one: Served;
let two: Served;
beforeEach(async () => {
  stopped = [];
  runs = 0;
  takeClock();
  [one, two] = await serveTwo(build);
});
afterEach(async () => {
  await cleanUp();
  vi.restoreAllMocks();
});

/** A client that is proven, and what it shows. */
async function proven(): Promise<{ client: Client; shows: ReturnType<typeof vi.fn> }> {
  const shows = vi.fn(async (): Promise<ElicitResult> => {
    clock.ahead += 1_500;
    return { action: 'accept', content: { day: 'Monday' } };
  });
  const client = await connected(one, { elicitation: { form: {} } }, () => shows());
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

it('does nothing with an answer on the page to a task that was cancelled at another process', async () => {
  const paid: string[] = [];
  const [one, two] = await serveTwo(
    () => {
      const server = new McpServer({ name: 'shop', version: '1' });
      server.registerTool('pay', {}, async () => {
        const requestedSchema = { type: 'object' as const, properties: {} };
        const { action } = await server.server.elicitInput({ message: 'Pay?', requestedSchema });
        await step('pay', () => paid.push(action));
        return { content: [{ type: 'text', text: action }] };
      });
      return server;
    },
    { tasks: 'now' },
  );
  const { result } = await request(one, 'tools/call', { name: 'pay', arguments: {} });
  const { taskId } = result as { taskId: string };
  const task = async (): Promise<string> => JSON.stringify(await request(two, 'tasks/get', { taskId }));
  await expect.poll(task).toContain('/ask/');
  const link = linkIn(await task()).replace(/[\\"].*/, '');
  await request(two, 'tasks/cancel', { taskId });
  await ann.answer(two.url, link, {});
  await pause(2_000);
  expect(await task()).toContain('"cancelled"');
  expect(paid).toEqual([]);
});
