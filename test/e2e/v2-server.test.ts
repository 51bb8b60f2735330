/** A server of SDK v2: asks of its tools, beside a tool that already returns `inputRequired` (issue, 5). */
import { inputRequired, McpServer } from '@modelcontextprotocol/server';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { Frame } from '../../src/call/frame/frame.ts';
import { v2Server } from '../fixtures/v2-server.ts';
import { some } from '../short.ts';
import { accept, legacy, modern, post, type TestClient, textOf } from './clients.ts';
import { balance, CELLS, optionsOf, type Served, type Spawned, serveHere, spawnServers } from './harness.ts';
import { KINDS } from './services.ts';

const TOOLS = [
  ['elicit', 'Hello its name'],
  ['send', 'Hello its name'],
  ['low-level', 'Hello its name'],
  ['both-at-once', 'its name in file:///home/ann'],
  ['sample', 'test'],
  ['order', 'shipped to its name'],
] as const;

for (const [revision, connect] of [
  ['2026-07-28', modern],
  ['2025-11-25', legacy],
] as const) {
  describe.each(CELLS)(`a v2 server and a client of ${revision} ($name)`, (cell) => {
    const done: string[] = [];
    let served: Served;
    let client: TestClient;
    const start = async (): Promise<void> => {
      done.length = 0;
      served = await serveHere(() => v2Server((effect) => done.push(effect)), optionsOf(cell));
      client = await connect(served.url);
    };
    afterEach(async () => {
      await client.close();
      await served.close();
    });

    it.each(TOOLS)('%s', async (tool, text) => {
      await start();
      expect(await client.tool(tool)).toBe(text);
      expect(done).toEqual(tool === 'order' ? ['charge', 'ship'] : []);
    });

    it('prompts and resources that ask', async () => {
      await start();
      expect(await client.prompt('greet')).toBe('Greet its name');
      expect(await client.resource('diary://today')).toBe('Dear its name');
    });

    it('a tool that returns inputRequired, twice', async () => {
      await start();
      expect(await client.tool('re-entrant')).toBe('its name of its name');
      expect(client.asked).toEqual(['who?', 'its name, where?']);
    });
  });
}

describe.each(CELLS)('a tool that returns inputRequired ($name)', (cell) => {
  let served: Served;
  afterEach(() => served.close());

  it('goes out under the keys that its author gave, and gets its own state back, not the token', async () => {
    served = await serveHere(() => v2Server(() => {}), optionsOf(cell));
    const first = await post(served.url, { tool: 're-entrant' });
    expect(first.keys).toEqual(['who']);
    expect(first.state).not.toContain('its own state');
    const who = { state: first.state, responses: accept(['who'], { name: 'Ann' }) };
    const second = await post(served.url, { tool: 're-entrant', ...who });
    expect(second.keys).toEqual(['home']);
    const home = { state: second.state, responses: accept(['home'], { name: 'Ghent' }) };
    const third = await post(served.url, { tool: 're-entrant', ...home });
    expect(textOf(third)).toBe('Ann of Ghent');
  });
});

for (const kind of some(KINDS)) {
  describe.skipIf(kind.down)(`a v2 server in two processes on ${kind.name}`, () => {
    let servers: Spawned[] = [];
    beforeAll(async () => {
      servers = await spawnServers('v2-server.ts', 2, { args: kind.args() });
    });
    afterAll(() => Promise.all(servers.map((server) => server.kill())));

    it('serves every tool, each POST to the other process', async () => {
      const balancer = await balance(servers.map(({ url }) => url));
      const client = await modern(balancer.url);
      for (const [tool, text] of TOOLS) expect(await client.tool(tool)).toBe(text);
      expect(await client.tool('re-entrant')).toBe('its name of its name');
      await client.close();
      await balancer.close();
    });
  });
}

it('begins no more of the asks that a tool returns than a call may make', async () => {
  const begun = vi.spyOn(Frame.prototype, 'ask');
  const build = (): McpServer => {
    const server = new McpServer({ name: 'many', version: '1' });
    server.registerTool('many', {}, () => {
      const asks = Array.from({ length: 10_000 }, (_, nth) => [`${nth}`, { method: 'roots/list' as const }]);
      return inputRequired({ inputRequests: Object.fromEntries(asks) });
    });
    return server;
  };
  const served = await serveHere(build, {});
  try {
    const { message } = await post(served.url, { tool: 'many' });
    expect(JSON.stringify(message)).toContain('exceeds a limit of the server');
    expect(begun).toHaveBeenCalledTimes(101);
  } finally {
    begun.mockRestore();
    await served.close();
  }
});
