/** The two faces of a handler, each in a framework that people use. */
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import express from 'express';
import { Hono } from 'hono';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { createAwaitHandler } from '../../../src/index.ts';
import { toNodeHandler } from '../../../src/node.ts';

const SECRET = 'a secret of these tests, long enough to be taken for one';

function build(): McpServer {
  const server = new McpServer({ name: 'faces', version: '1' }, { capabilities: { logging: {} } });
  server.registerTool('greet', { inputSchema: { polite: z.boolean() } }, async ({ polite }, extra) => {
    const { authInfo, _meta, sendNotification } = extra;
    const progressToken = _meta?.progressToken;
    if (progressToken !== undefined) {
      await sendNotification({ method: 'notifications/progress', params: { progressToken, progress: 1 } });
    }
    const answer = await server.server.elicitInput({
      message: 'Name?',
      requestedSchema: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] },
    });
    const text = `${polite ? 'Good day' : 'Hi'}, ${answer.content?.name} (${authInfo?.clientId ?? 'anonymous'})`;
    return { content: [{ type: 'text', text }] };
  });
  return server;
}

async function callWith(transport: StreamableHTTPClientTransport) {
  const client = new Client(
    { name: 'test', version: '1' },
    { capabilities: { elicitation: { form: {} } }, versionNegotiation: { mode: { pin: '2026-07-28' } } },
  );
  client.setRequestHandler('elicitation/create', () => ({ action: 'accept', content: { name: 'Ann' } }));
  await client.connect(transport);
  const progress: number[] = [];
  const result = await client.callTool(
    { name: 'greet', arguments: { polite: true } },
    // This client reports its own rounds as progress too, with a message.
    { onprogress: (update) => void (update.message ?? progress.push(update.progress)) },
  );
  await client.close();
  return { progress, result: result as { content: { text: string }[] } };
}

describe('handler.fetch', () => {
  it('serves from Hono', async () => {
    const handler = createAwaitHandler(build, { secrets: [SECRET] });
    const app = new Hono();
    app.all('/mcp', (context) => handler.fetch(context.req.raw));
    const fetch = async (url: string | URL, init?: RequestInit): Promise<Response> =>
      app.request(String(url), init);
    const transport = new StreamableHTTPClientTransport(new URL('http://localhost/mcp'), { fetch });
    const { result, progress } = await callWith(transport);
    expect(result.content[0]?.text).toBe('Good day, Ann (anonymous)');
    expect(progress).toEqual([1]);
    await handler.close();
  });
});

describe('toNodeHandler', () => {
  it('serves from Express, behind its body parser and a middleware that knows the caller', async () => {
    const handler = createAwaitHandler(build, { secrets: [SECRET] });
    const app = express();
    app.use(express.json());
    app.use((req, _res, next) => {
      Object.assign(req, { auth: { token: 't', clientId: 'app', scopes: [] } });
      next();
    });
    app.all('/mcp', toNodeHandler(handler));
    const server = app.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const { result, progress } = await callWith(
      new StreamableHTTPClientTransport(new URL(`http://127.0.0.1:${port}/mcp`)),
    );
    expect(result.content[0]?.text).toBe('Good day, Ann (app)');
    expect(progress).toEqual([1]);
    await handler.close();
    server.close();
    server.closeAllConnections();
  });

  it('refuses a body nested too deeply that a parser of Express has parsed', async () => {
    const handler = createAwaitHandler(build, { secrets: [SECRET] });
    const app = express();
    app.use(express.json());
    app.all('/mcp', toNodeHandler(handler));
    const server = app.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const refused = await fetch(`http://127.0.0.1:${port}/mcp`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream' },
      body: `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":${'['.repeat(600)}${']'.repeat(600)}}}`,
    });
    expect([refused.status, await refused.text()]).toEqual([
      400,
      expect.stringContaining('nested too deeply'),
    ]);
    await handler.close();
    server.close();
    server.closeAllConnections();
  });
});
