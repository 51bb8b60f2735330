/** Keys of asks that no property may have, or that a browser changes: the ask is answered all the same. */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { afterEach, beforeEach, expect, it } from 'vitest';
import * as z from 'zod';
import type { Served } from '../e2e/harness.ts';
import { linkIn, PersonAtPage } from './person.ts';
import { cleanUp, connected, serveTwo } from './two.ts';

const KEYS = ['__proto__', 'two\nlines', 'return\r', 'lone \ud800', 'constructor', 'ja, ü 語'];
const FORM = { type: 'object' as const, properties: { day: { type: 'string' as const } } };

function build(): McpServer {
  const server = new McpServer({ name: 'booking', version: '1' });
  server.registerTool('book', { inputSchema: { key: z.number() } }, async ({ key }) => {
    const _meta = { 'mcp-await/key': KEYS[key] };
    const { content } = await server.server.elicitInput({ message: 'When?', requestedSchema: FORM, _meta });
    return { content: [{ type: 'text', text: String(content?.day) }] };
  });
  return server;
}

let one: Served;
beforeEach(async () => {
  [one] = await serveTwo(build);
});
afterEach(cleanUp);

const told = (result: unknown): string => (result as { content: { text: string }[] }).content[0]?.text ?? '';

it.each(KEYS.map((key, nth) => [JSON.stringify(key), nth]))(
  '%s is answered on the page',
  async (_key, key) => {
    const client = await connected(one, {}, () => ({ action: 'decline' }));
    const params = { name: 'book', arguments: { key } };
    const link = linkIn(told(await client.callTool(params)));
    expect((await new PersonAtPage().answer(one.url, link, { day: 'Monday' })).status).toBe(303);
    expect(told(await client.callTool(params))).toBe('Monday');
  },
);

it.each(KEYS.map((key, nth) => [JSON.stringify(key), nth]))(
  '%s is answered by its client',
  async (_key, key) => {
    const client = await connected(one, { elicitation: { form: {} } }, async () => ({
      action: 'accept',
      content: { day: 'Monday' },
    }));
    expect(told(await client.callTool({ name: 'book', arguments: { key } }))).toBe('Monday');
  },
);
