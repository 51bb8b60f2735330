/** A task of 2026-07-28 that became one late waits for its person as long as it lives, at whichever process. */
import { setTimeout as sleep } from 'node:timers/promises';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { afterEach, expect, it } from 'vitest';
import { tuned } from '../../src/call/limits.ts';
import { step } from '../../src/index.ts';
import { PAGE, PersonAtPage } from './person.ts';
import { cleanUp, request, serveTwo } from './two.ts';

function build(): McpServer {
  const server = new McpServer({ name: 'booking', version: '1' });
  server.registerTool('late', {}, async () => {
    await step('slow', () => sleep(1_500));
    const requestedSchema = { type: 'object' as const, properties: { day: { type: 'string' as const } } };
    const params = { message: 'Late?', requestedSchema, _meta: { 'mcp-await/by': 'person' } };
    const { content } = await server.server.elicitInput(params, { timeout: 86_400_000 });
    return { content: [{ type: 'text', text: `on ${content?.day}` }] };
  });
  return server;
}

const said = async (...args: Parameters<typeof request>): Promise<string> =>
  JSON.stringify(await request(...args));

afterEach(cleanUp);

it('goes on when its person answers, though its process has ended', async () => {
  const [one, two] = await serveTwo(build, { tasks: 'optional', ...tuned({ taskAfter: 300, lease: 1_500 }) });
  const created = await said(one, 'tools/call', { name: 'late', arguments: {} });
  const taskId = /"taskId":"([^"]+)"/.exec(created)?.[1];
  expect(taskId).toBeDefined();
  const ann = new PersonAtPage();
  await expect.poll(() => ann.read(two.url, PAGE)).toContain('Late?');
  await one.close();
  // A request waits for 25 seconds.
  await sleep(32_000);
  expect(await said(two, 'tasks/get', { taskId })).toContain('"status":"working"');
  const link = /href="(http[^"]*\/ask\/[^"]*)"/.exec(await ann.read(two.url, PAGE))?.[1] ?? '';
  expect((await ann.answer(two.url, link, { day: 'Friday' })).status).toBe(303);
  await expect.poll(() => said(two, 'tasks/get', { taskId })).toContain('on Friday');
});
