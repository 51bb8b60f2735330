/** A server on the SDK, in two handlers on one store: as a tool's author has it. */
import { randomUUID } from 'node:crypto';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import Keyv from 'keyv';
import { describe, expect, it } from 'vitest';
import '../../src/record/index.ts';
import { modern } from '../e2e/clients.ts';
import { balance, SECRET, serveHere } from '../e2e/harness.ts';

describe('a server on the SDK that imports mcp-await/record', () => {
  it('asks once, and comes to what it asked about, though each request goes to another process', async () => {
    const made: string[] = [];
    const factory = () => {
      const server = new McpServer({ name: 'shop', version: '1' });
      server.registerTool('order', {}, async () => {
        const stamp = async (name: string) => {
          await new Promise((resolve) => setTimeout(resolve, 5));
          return `${name}: ${randomUUID()} at ${Date.now()}`;
        };
        const lines = await Promise.all(['tea', 'jam'].map(stamp));
        made.push(lines.join(', '));
        const question = { requestedSchema: { type: 'object' as const, properties: {} } };
        await server.server.elicitInput({ ...question, message: `Buy ${lines.join(', ')}?` });
        await server.server.elicitInput({ ...question, message: `Sure, at ${Math.random()}?` });
        return { content: [{ type: 'text', text: lines.join(', ') }] };
      });
      return server;
    };
    const store = new Keyv();
    const options = { store, secrets: [SECRET], limits: { frames: 0 } };
    const served = await Promise.all([serveHere(factory, options), serveHere(factory, options)]);
    const { url, posts, close } = await balance(served.map((one) => one.url));
    const client = await modern(url);
    const text = await client.tool('order', {});
    expect(made).toEqual([text, text, text]);
    expect(client.asked).toHaveLength(2);
    expect(posts.filter(({ request }) => request.method === 'tools/call')).toHaveLength(3);
    await client.close();
    await close();
    for (const one of served) await one.close();
  });
});
