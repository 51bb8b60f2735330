/**
 * Every tool of `examples/` through a balancer that sends each request to one of three processes, at random, for
 * the clients that have sessions. Whatever a tool comes to where one process serves it, it comes to here.
 */
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { AwaitClientTransport } from '../../src/client/index.ts';
import { randomOf } from '../fixtures/random.ts';
import { legacy, modern, type TestClient } from './clients.ts';
import { type Balancer, balance, type Spawned, spawnServers } from './harness.ts';
import { REDIS, REDIS_URL } from './services.ts';

const EXAMPLES = ['booking/server.ts', 'booking/with-steps.ts', 'conformance-server.ts', 'side-by-side.ts'];
const CLIENTS: readonly (readonly [string, number, (url: string) => Promise<TestClient>])[] = [
  ['SDK v1', 1_000, (url) => legacy(url)],
  ['SDK v2 in legacy mode', 1_000, (url) => modern(url, {}, 'legacy')],
  [
    'SDK v1 on DRAFT-SEP-1858',
    1_000,
    (url) =>
      legacy(url, {}, new AwaitClientTransport(new URL(url), { revision: 'DRAFT-SEP-1858' }) as Transport),
  ],
];
/** Calls that are under way at once. */
const AT_ONCE = 10;
const ARGUMENTS = { to: 'Rome', prompt: 'a capital', message: 'hello', name: 'ann', code: '1' };
/** They run as tasks alone, which these clients do not ask for. */
const TASKS_ALONE = new Set(['failing_job', 'protocol_error_job', 'test_tool_with_task']);
/** It rests for a second in each call, by its client's own clock. */
const SLOW = 'test_reconnection';

describe.skipIf(REDIS.down)('the examples, through a balancer over three processes', () => {
  const groups = new Map<string, { servers: Spawned[]; balancer: Balancer }>();
  beforeAll(async () => {
    const random = randomOf(1858);
    for (const example of EXAMPLES) {
      const servers = await spawnServers(`../../examples/${example}`, 3, { args: ['--store', REDIS_URL] });
      const balancer = await balance(
        servers.map(({ url }) => url),
        () => random.int(servers.length),
      );
      groups.set(example, { servers, balancer });
    }
  });
  afterAll(async () => {
    for (const { servers, balancer } of groups.values()) {
      await Promise.all(servers.map((server) => server.kill()));
      await balancer.close();
    }
  });

  for (const [name, count, open] of CLIENTS) {
    it(`complete for a client of ${name}: ${count} calls, none lost`, async () => {
      const expected = new Map<string, string>();
      const plan: { tool: string; example: string; client: TestClient }[] = [];
      const clients: TestClient[] = [];
      for (const [example, { servers, balancer }] of groups) {
        const alone = await legacy(servers[0]?.url ?? '');
        const client = await open(balancer.url);
        clients.push(alone, client);
        for (const tool of await alone.toolNames()) {
          if (TASKS_ALONE.has(tool)) continue;
          expected.set(`${example} ${tool}`, await outcome(alone, tool));
          plan.push({ tool, example, client });
        }
      }
      expect(plan.length).toBeGreaterThan(25);
      expect([...expected.values()].filter((text) => text.startsWith('throws'))).toEqual([]);
      const quick = plan.filter(({ tool }) => tool !== SLOW);
      let next = 0;
      const differ: string[] = [];
      const worker = async (): Promise<void> => {
        while (next < count) {
          const nth = next;
          next += 1;
          const among = nth < plan.length ? plan : quick;
          const chosen = among[nth % among.length];
          if (chosen === undefined) return;
          const { tool, example, client } = chosen;
          const got = await outcome(client, tool);
          if (got !== expected.get(`${example} ${tool}`)) differ.push(`${tool}: ${got}`);
        }
      };
      await Promise.all(Array.from({ length: AT_ONCE }, worker));
      expect(differ).toEqual([]);
      await Promise.all(clients.map((client) => client.close()));
    });
  }
});

/** A tool may fail, as it does for everybody; what varies from call to call is left out. */
async function outcome(client: TestClient, tool: string): Promise<string> {
  const text = await client.tool(tool, ARGUMENTS).catch((error: unknown) => `throws ${String(error)}`);
  return text.replace(/[0-9a-f-]{36}|receipt \S+/g, '…');
}
