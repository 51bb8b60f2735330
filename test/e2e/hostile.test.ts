/** Requests, tools and servers that once ended a process, hung a client, or were never let go. */
import { once } from 'node:events';
import { connect } from 'node:net';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { afterEach, describe, expect, it } from 'vitest';
import { buildServer } from '../fixtures/asking-server.ts';
import { accept, modern, post } from './clients.ts';
import { SECRET, type Served, type Spawned, serveHere, spawnServers } from './harness.ts';
import { legacySession } from './legacy-session.ts';

let served: Served | undefined;
let spawned: Spawned[] = [];
afterEach(async () => {
  await served?.close();
  served = undefined;
  for (const process_ of spawned.splice(0)) await process_.kill();
});

async function raw(url: string, text: string): Promise<string> {
  const { port } = new URL(url);
  const socket = connect(Number(port), '127.0.0.1');
  let heard = '';
  socket.on('data', (chunk: Buffer) => {
    heard += chunk.toString();
  });
  socket.write(text);
  await once(socket, 'close');
  return heard;
}

describe('the command line outlives', () => {
  it.each([
    ['a path that is no URL', 'GET // HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n'],
    ['a Host that is no host', 'GET /mcp HTTP/1.1\r\nHost: [::bad\r\nConnection: close\r\n\r\n'],
    ['a Host with credentials', 'GET /mcp HTTP/1.1\r\nHost: u:p@localhost\r\nConnection: close\r\n\r\n'],
  ])('%s', async (_name, text) => {
    spawned = await spawnServers('asking-server.ts', 1);
    const url = spawned[0]?.url ?? '';
    expect(await raw(url, text)).toMatch(/^HTTP\/1.1 [345]\d\d /);
    const client = await modern(url);
    expect(await client.toolNames()).toContain('one');
    await client.close();
  });
});

describe('a tool whose result is no JSON', () => {
  const build = (): McpServer => {
    const server = new McpServer({ name: 'big', version: '1' });
    server.registerTool('big', {}, async () => ({ content: [], structuredContent: { n: 10n } }));
    server.registerTool('asks', {}, async () => {
      await server.server.elicitInput({ message: 'x?', requestedSchema: { type: 'object', properties: {} } });
      return { content: [], structuredContent: { n: 10n } };
    });
    return server;
  };

  it('is an internal error, at once and after an ask, and the process lives', async () => {
    served = await serveHere(build, { secrets: [SECRET] });
    const once_ = await post(served.url, { tool: 'big', args: {} });
    expect(once_.message.error?.code).toBe(-32603);
    const asked = await post(served.url, { tool: 'asks', args: {} });
    const responses = accept(Object.keys(asked.message.result?.inputRequests ?? {}), {});
    const after = await post(served.url, { tool: 'asks', args: {}, state: asked.state, responses });
    expect(after.message.error).toEqual({ code: -32603, message: 'Internal error' });
    const again = await post(served.url, { tool: 'asks', args: {}, state: asked.state, responses });
    expect(again.message.error).toEqual(after.message.error);
  });
});

describe('a factory that throws', () => {
  it('is logged, whichever way the request came; its client gets an internal error', async () => {
    const fail = (): never => {
      throw new Error('no database');
    };
    served = await serveHere(fail, { secrets: [SECRET] });
    expect((await post(served.url, { tool: 'one', args: {} })).message.error?.code).toBe(-32603);
    await expect(modern(served.url)).rejects.toThrow();
    const errors = served.log.lines.filter(({ level }) => level === 'error').map(({ message }) => message);
    expect(errors).toEqual(Array(2).fill('the factory could not make a server: no database'));
    const params = {
      protocolVersion: '2025-11-25',
      capabilities: {},
      clientInfo: { name: 'x', version: '1' },
    };
    const response = await fetch(served.url, {
      method: 'POST',
      headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream' },
      body: JSON.stringify({ jsonrpc: '2.0', id: 9, method: 'initialize', params }),
    });
    expect(await response.json()).toEqual({
      jsonrpc: '2.0',
      id: 9,
      error: { code: -32603, message: 'Internal error' },
    });
  });
});

describe('a server', () => {
  it('whose cleanup fails, in whichever way, ends nothing', async () => {
    for (const cleanup of [
      () => Promise.reject(new Error('later')),
      () => {
        throw new Error('at once');
      },
    ]) {
      served = await serveHere(() => ({ server: buildServer(() => {}), cleanup }), { secrets: [SECRET] });
      const reply = await post(served.url, { tool: 'one', args: {}, responses: undefined });
      expect(reply.message.result?.resultType).toBe('input_required');
      await served.close();
      served = undefined;
    }
  });

  it('that cannot be connected is cleaned up all the same', async () => {
    let cleaned = 0;
    const count = (): void => {
      cleaned += 1;
    };
    const server = { connect: () => Promise.reject(new Error('no')) };
    served = await serveHere(() => ({ server, cleanup: count }), { secrets: [SECRET] });
    const reply = await post(served.url, { tool: 'one', args: {} });
    expect(reply.message.error).toEqual({ code: -32603, message: 'Internal error' });
    expect(cleaned).toBe(1);
  });
});

describe('a 2025 session', () => {
  it('without a connection is closed once its calls have expired, with its running calls', async () => {
    let made = 0;
    let cleaned = 0;
    const count = (): void => {
      cleaned += 1;
    };
    const factory = () => {
      made += 1;
      return { server: buildServer(() => {}), cleanup: count };
    };
    served = await serveHere(factory, { secrets: [SECRET], ttl: 200, limits: { sessionIdle: 50 } });
    const session = await legacySession(served.url, { elicitation: { form: {} } });
    const stream = await session.send({
      id: 1,
      method: 'tools/call',
      params: { name: 'one', arguments: {} },
    });
    await stream.next(({ method }) => method === 'elicitation/create');
    await stream.cancel();
    await expect.poll(() => made > 0 && cleaned === made).toBe(true);
  });
});
