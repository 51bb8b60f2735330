/** A second published server: @playwright/mcp, every tool of which asks for roots before it does anything. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { legacy, modern } from './clients.ts';
import { balance, type Spawned, spawnServers } from './harness.ts';
import { SQLITE } from './services.ts';

describe.each([
  ['SQLite', () => ['--store', SQLITE.url()]],
  ['no store, state sealed', () => ['--state', 'sealed']],
])('@playwright/mcp in two processes, %s', (_name, args) => {
  let servers: Spawned[] = [];
  beforeAll(async () => {
    servers = await spawnServers('playwright.mjs', 2, { args: args() });
  });
  afterAll(() => Promise.all(servers.map((server) => server.kill())));

  it.each(['browser_close', 'browser_tabs', 'browser_snapshot'])(
    'asks in the middle of %s, and goes on in the other process with the answer',
    async (tool) => {
      const balancer = await balance(servers.map(({ url }) => url));
      const client = await modern(balancer.url);
      const text = await client.tool(tool, tool === 'browser_tabs' ? { action: 'list' } : {});
      // It got past its ask, and says in its own words what stops it then.
      expect(text).toContain('/no/such/browser');
      expect(client.asked).toEqual(['roots']);
      await client.close();
      await balancer.close();
    },
  );

  it('serves a 2025-11-25 client as it always did', async () => {
    const client = await legacy(servers[0]?.url ?? '');
    expect(await client.tool('browser_close')).toContain('/no/such/browser');
    expect(client.asked).toEqual(['roots']);
    await client.close();
  });
});
