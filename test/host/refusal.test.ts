/** What the SDKs' own servers say of a call that they refuse, and what a tool says that ran. */
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { InMemoryTransport } from '@modelcontextprotocol/sdk/inMemory.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { McpServer as McpServerV2 } from '@modelcontextprotocol/server';
import { expect, it } from 'vitest';
import * as z from 'zod';
import type { Response } from '../../src/call/journal/entries.ts';
import { isRefusal } from '../../src/host/refusal.ts';

type Register = Pick<McpServer, 'registerTool' | 'registerPrompt'>;

function register(server: Register): void {
  const inputSchema = { room: z.string() };
  const say = (text: string) => async () => ({ content: [{ type: 'text' as const, text }], isError: true });
  server.registerTool('book', { inputSchema }, say('The tool hammer was not found'));
  server.registerTool('off', { inputSchema }, say('off')).disable();
  server.registerPrompt('greet', { argsSchema: { name: z.string() } }, () => ({ messages: [] }));
}

const SERVERS = {
  'SDK v1': () => new McpServer({ name: 's', version: '1' }),
  'SDK v2': () => new McpServerV2({ name: 's', version: '1' }) as unknown as McpServer,
};

it.each(Object.entries(SERVERS))('%s', async (_, make) => {
  const server = make();
  register(server);
  const client = new Client({ name: 'c', version: '1' });
  const [near, far] = InMemoryTransport.createLinkedPair();
  await Promise.all([server.connect(far), client.connect(near)]);
  const said = (sent: Promise<object>): Promise<Response> =>
    sent.then(
      (result) => ({ result: { ...result } }),
      ({ code, message }: { code: number; message: string }) => ({
        // As it was sent: the client adds its own prefix.
        error: { code, message: message.replace(/^MCP error -\d+: /, '') },
      }),
    );
  const call = (name: string, args: Record<string, unknown>) =>
    said(client.callTool({ name, arguments: args }));
  for (const refused of [
    await call('unknown', {}),
    await call('off', { room: 'blue' }),
    await call('book', {}),
    await said(client.getPrompt({ name: 'unknown' })),
    await said(client.getPrompt({ name: 'greet', arguments: {} })),
  ])
    expect([refused, isRefusal(refused)]).toEqual([refused, true]);
  const ran = await call('book', { room: 'blue' });
  expect([ran, isRefusal(ran)]).toEqual([ran, false]);
  await client.close();
});

it('Python’s, and no error of a tool', () => {
  const result = (text: string): Response => ({
    result: { content: [{ type: 'text', text }], isError: true },
  });
  expect(isRefusal(result('Unknown tool: book'))).toBe(true);
  expect(isRefusal(result("Input validation error: 'floor' is a required property"))).toBe(true);
  expect(isRefusal({ error: { code: -32601, message: 'Method not found' } })).toBe(true);
  expect(isRefusal(result('Error executing tool book: the room is taken'))).toBe(false);
  expect(isRefusal({ result: { content: [{ type: 'text', text: 'Unknown tool: book' }] } })).toBe(false);
  expect(isRefusal({ error: { code: -32042, message: 'Open the URL first' } })).toBe(false);
  expect(isRefusal({ result: { isError: true } })).toBe(false);
});
