/** Published servers, as they are: each asking tool, in two processes, on 2026-07-28 and 2025-11-25. */
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { CHROMIUM } from '../browser/chromium.ts';
import { legacy, modern, type Script, type TestClient } from '../e2e/clients.ts';
import { balance, effectsIn, type Spawned, scratch, spawnServers } from '../e2e/harness.ts';
import { KINDS } from '../e2e/services.ts';

const store = KINDS.find(({ down }) => !down);
const REVISIONS = [
  ['2026-07-28', modern],
  ['2025-11-25', legacy],
] as const;

type Connect = (url: string, script?: Script) => Promise<TestClient>;

/** Two processes of a server, and a client whose every POST goes to the other one. */
function mounted(
  name: string,
  env: () => Record<string, string> = () => ({}),
  { args = [], count = 2 }: { args?: readonly string[]; count?: number } = {},
) {
  let servers: Spawned[] = [];
  let end: (() => Promise<unknown>)[] = [];
  beforeAll(async () => {
    const module = `../published/servers/${name}.mjs`;
    servers = await spawnServers(module, count, { args: [...(store?.args() ?? []), ...args], env: env() });
  });
  afterEach(async () => {
    for (const close of end.splice(0).reverse()) await close();
    end = [];
  });
  afterAll(() => Promise.all(servers.map((server) => server.kill())));
  return async (connect: Connect, script: Script = {}): Promise<TestClient> => {
    const balancer = await balance(servers.map(({ url }) => url));
    end.push(() => balancer.close());
    const client = await connect(balancer.url, script);
    end.push(() => client.close());
    return client;
  };
}

describe('@modelcontextprotocol/server-everything', () => {
  const open = mounted('everything');

  it.each(REVISIONS)('asks its user, its model and for roots on %s', async (_revision, connect) => {
    const client = await open(connect);
    expect(await client.tool('trigger-elicitation-request')).toContain(
      'User provided the requested information',
    );
    expect(await client.tool('trigger-sampling-request', { prompt: 'a poem', maxTokens: 10 })).toContain(
      'a poem',
    );
    expect(await client.tool('get-roots-list')).toContain('file:///home/ann');
  });
});

describe('@modelcontextprotocol/server-filesystem', () => {
  const open = mounted('filesystem');

  it.each(REVISIONS)('knows its client’s roots before its first tool on %s', async (_revision, connect) => {
    const client = await open(connect);
    // The client's root is not on this machine: the server reports that, and keeps its start directory.
    expect(await client.tool('list_allowed_directories')).toContain('Allowed directories');
    expect(client.asked).toContain('roots');
  });
});

describe('@supabase/mcp-server-supabase', () => {
  const executed: unknown[] = [];
  let api: Server;
  beforeAll(async () => {
    api = createServer(async (req, res) => {
      let body = '';
      for await (const chunk of req) body += String(chunk);
      if (req.url?.endsWith('/database/query')) executed.push((JSON.parse(body) as { query: string }).query);
      res.writeHead(201, { 'content-type': 'application/json' }).end('[]');
    });
    await new Promise<void>((resolve) => api.listen(0, '127.0.0.1', resolve));
  });
  afterEach(() => {
    executed.length = 0;
  });
  afterAll(() => new Promise((resolve) => api.close(resolve)));
  const open = mounted('supabase', () => ({
    SUPABASE_API: `http://127.0.0.1:${(api.address() as AddressInfo).port}`,
  }));
  const drop = { query: 'drop table users' };

  it('drops no table that its user does not confirm on 2026-07-28', async () => {
    const client = await open(modern, { answer: () => ({ action: 'decline' }) });
    expect(await client.tool('execute_sql', drop)).toContain('declined');
    expect(client.asked).toHaveLength(1);
    expect(client.asked[0]).toContain('destructive operations');
    expect(executed).toEqual([]);
  });

  it('drops the table once that is confirmed, once, on 2026-07-28', async () => {
    const client = await open(modern);
    await client.tool('execute_sql', drop);
    expect(client.asked).toHaveLength(1);
    expect(executed).toEqual(['drop table users']);
  });

  it('does not ask on 2025-11-25, as natively: it needs an envelope, which that revision lacks', async () => {
    const client = await open(legacy);
    await client.tool('execute_sql', drop);
    expect(client.asked).toEqual([]);
    expect(executed).toEqual(['drop table users']);
  });
});

describe('fastmcp', () => {
  const open = mounted('fastmcp');

  it.each(REVISIONS)('asks from a tool on %s', async (_revision, connect) => {
    const client = await open(connect);
    expect(await client.tool('ask')).toBe('Hello its name');
  });
});

describe('mongodb-mcp-server', () => {
  const effects = join(scratch(), 'dropped');
  const open = mounted('mongodb', () => ({ EFFECTS: effects }));
  const drop = { connectionId: 'fake', database: 'shop', collection: 'users' };

  it.each(REVISIONS)('drops a collection once that is confirmed, once, on %s', async (_revision, connect) => {
    const before = effectsIn(effects).length;
    const client = await open(connect);
    expect(await client.tool('drop-collection', drop)).toContain('Successfully dropped');
    expect(client.asked).toHaveLength(1);
    expect(client.asked[0]).toContain('You are about to drop the **users** collection');
    expect(effectsIn(effects).slice(before)).toEqual(['shop.users']);
  });

  it.each(REVISIONS)('drops none that its user does not confirm on %s', async (_revision, connect) => {
    const before = effectsIn(effects).length;
    const client = await open(connect, { answer: () => ({ action: 'decline' }) });
    expect(await client.tool('drop-collection', drop)).toContain('did not confirm');
    expect(client.asked).toHaveLength(1);
    expect(effectsIn(effects).slice(before)).toEqual([]);
  });
});

describe.skipIf(CHROMIUM.down)(`@playwright/mcp with ${CHROMIUM.name}`, () => {
  const open = mounted('playwright', () => ({ CHROMIUM: CHROMIUM.path }));

  it.each(REVISIONS)('asks for roots, and opens its browser on %s', async (_revision, connect) => {
    const client = await open(connect);
    const url = 'data:text/html,<title>of the mounts</title><h1>hello</h1>';
    expect(await client.tool('browser_navigate', { url })).toContain('of the mounts');
    expect(new Set(client.asked)).toEqual(new Set(['roots']));
  });
});

describe.skipIf(CHROMIUM.down)(`@playwright/mcp with instance: process, and ${CHROMIUM.name}`, () => {
  const env = (): Record<string, string> => ({ CHROMIUM: CHROMIUM.path });
  const open = mounted('playwright', env, { args: ['--instance', 'process'], count: 1 });

  it.each(REVISIONS)('has its browser in the next call, too, on %s', async (_revision, connect) => {
    const client = await open(connect);
    await client.tool('browser_navigate', { url: 'data:text/html,<h1>still here</h1>' });
    expect(await client.tool('browser_snapshot')).toContain('still here');
  });
});
