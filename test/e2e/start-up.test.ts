/** A server's own messages as it starts, or on a timer (invariants 4, 6 and 13). */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { legacy, modern, post, type TestClient, textOf } from './clients.ts';
import { CELLS, optionsOf, type Served, serveHere } from './harness.ts';

let served: Served;
afterEach(async () => {
  vi.useRealTimers();
  await served.close();
});

const reply = (text: string) => ({ content: [{ type: 'text' as const, text }] });

/** Asks for the roots as soon as it is initialized and awaits them, as server-filesystem does. */
function asksOnStart(): McpServer {
  const server = new McpServer({ name: 'rooted', version: '1.0.0' });
  let roots: string[] = [];
  server.server.oninitialized = async () => {
    roots = (await server.server.listRoots()).roots.map(({ uri }) => uri);
  };
  server.registerTool('plain', {}, () => reply('plain'));
  server.registerTool('rooted', {}, async () => {
    while (roots.length === 0) await new Promise((resolve) => setImmediate(resolve));
    return reply(roots.join());
  });
  server.registerTool('asks', {}, async () => {
    const requestedSchema = { type: 'object' as const, properties: {} };
    const { action } = await server.server.elicitInput({ message: 'sure?', requestedSchema });
    return reply(action);
  });
  return server;
}

/** Stops all timers: a wait for one never ends. */
function standStill(): void {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
}

describe.each(CELLS)('a server that asks on start-up ($name)', (cell) => {
  it('asks a 2026-07-28 client what its tool asks', async () => {
    served = await serveHere(asksOnStart, optionsOf(cell));
    const client = await modern(served.url);
    expect(await client.tool('asks')).toBe('accept');
    expect(client.asked).toContain('sure?');
    await client.close();
  });
});

describe('a server that asks on start-up, and a 2025-11-25 client', () => {
  it('initializes it without waiting for what it asked', async () => {
    served = await serveHere(asksOnStart);
    standStill();
    const client: TestClient = await legacy(served.url);
    expect(await client.tool('plain')).toBe('plain');
    await client.close();
  });

  it('is asked on its standing stream, and the answer reaches the server', async () => {
    served = await serveHere(asksOnStart);
    const client = await legacy(served.url);
    expect(await client.tool('rooted')).toBe('file:///home/ann');
    expect(client.asked).toEqual(['roots']);
    await client.close();
  });
});

describe.each(CELLS)('a server that asks on a timer ($name)', (cell) => {
  it('asks it in the one call that the server is for', async () => {
    let asked = (): void => {};
    const hasAsked = new Promise<void>((resolve) => {
      asked = resolve;
    });
    served = await serveHere(() => {
      const server = new McpServer({ name: 'timed', version: '1.0.0' });
      server.server.oninitialized = () => {
        setTimeout(() => {
          void server.server.listRoots().catch(() => {});
          asked();
        }, 1);
      };
      server.registerTool('plain', {}, async () => {
        await hasAsked;
        for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
        return reply('plain');
      });
      return server;
    }, optionsOf(cell));
    const asking = await post(served.url, { tool: 'plain' });
    expect(asking.keys).toEqual(['roots-1']);
    const responses = { 'roots-1': { roots: [] } };
    const answer = await post(served.url, { tool: 'plain', state: asking.state, responses });
    expect(textOf(answer)).toBe('plain');
  });
});

it('the factory and its cleanup are told of the client that asks, and run once for each call', async () => {
  const told: unknown[] = [];
  const cleaned: unknown[] = [];
  served = await serveHere(({ era, revision, clientInfo, clientCapabilities, authInfo }) => {
    told.push({ era, revision, clientInfo, clientCapabilities, caller: authInfo?.clientId });
    const server = new McpServer({ name: 'told', version: '1.0.0' });
    server.registerTool('plain', {}, (extra) => reply(String(extra.authInfo?.clientId)));
    return { server, cleanup: (sessionId) => cleaned.push(sessionId) };
  });
  const headers = { authorization: 'Bearer ann' };
  expect(textOf(await post(served.url, { tool: 'plain', capabilities: { sampling: {} }, headers }))).toBe(
    'ann',
  );
  expect(told).toEqual([
    {
      era: 'modern',
      revision: '2026-07-28',
      clientInfo: { name: 'e2e', version: '1.0.0' },
      clientCapabilities: { sampling: {} },
      caller: 'ann',
    },
  ]);
  await expect.poll(() => cleaned).toHaveLength(1);
});
