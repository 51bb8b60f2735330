/** What a task leaves in the store that is this process's own memory. */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { afterEach, expect, it, vi } from 'vitest';
import { MemoryBacking } from '../../src/checkpoint/backing.ts';
import { createAwaitHandler } from '../../src/index.ts';
import { modernHeaders } from '../e2e/clients.ts';

afterEach(() => vi.restoreAllMocks());

it('is no row for a sweeper, which such a store has not', async () => {
  const insert = vi.spyOn(MemoryBacking.prototype, 'insert');
  const build = (): McpServer => {
    const server = new McpServer({ name: 'jobs', version: '1' });
    server.registerTool('small', {}, () => ({ content: [{ type: 'text', text: 'small' }] }));
    return server;
  };
  const handler = createAwaitHandler(build, { tasks: 'now' });
  const _meta = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientInfo': { name: 'a', version: '1' },
    'io.modelcontextprotocol/clientCapabilities': { extensions: { 'io.modelcontextprotocol/tasks': {} } },
  };
  const params = { name: 'small', arguments: {}, _meta };
  const reply = await handler.fetch(
    new Request('http://localhost/mcp', {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        ...modernHeaders('tools/call', 'small'),
      },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params }),
    }),
  );
  expect(await reply.text()).toContain('taskId');
  const names = insert.mock.calls.map(([name]) => name);
  expect(names).not.toEqual([]);
  expect(names.filter((name) => name.includes('.tasks.'))).toEqual([]);
  await handler.close();
});
