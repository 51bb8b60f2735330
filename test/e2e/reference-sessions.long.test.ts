/**
 * The reference server's own messages in a session (log messages, resource updates), for a 2025 client whose requests
 * go to one of three processes, at random.
 */
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import {
  LoggingMessageNotificationSchema,
  ResourceUpdatedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { randomOf } from '../fixtures/random.ts';
import { type Balancer, balance, type Spawned, spawnServers } from './harness.ts';
import { REDIS, REDIS_URL } from './services.ts';

const URI = 'demo://resource/dynamic/text/1';
const OTHER = 'demo://resource/dynamic/text/2';

describe.skipIf(REDIS.down)('the reference server in three processes, for a session', () => {
  let servers: Spawned[] = [];
  let balancer: Balancer;
  beforeAll(async () => {
    servers = await spawnServers('everything.mjs', 3, { args: ['--store', REDIS_URL] });
    const random = randomOf(29);
    balancer = await balance(
      servers.map(({ url }) => url),
      () => random.int(3),
    );
  });
  afterAll(async () => {
    await Promise.all(servers.map((server) => server.kill()));
    await balancer.close();
  });

  const open = async () => {
    const client = new Client({ name: 'session', version: '1' });
    const updated: string[] = [];
    const levels: string[] = [];
    client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => {
      updated.push(params.uri);
    });
    client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => {
      levels.push(params.level);
    });
    await client.connect(new StreamableHTTPClientTransport(new URL(balancer.url)) as Transport);
    const call = async (name: string): Promise<string> => {
      const { content } = await client.callTool({ name, arguments: {} });
      return (content as { text: string }[])[0]?.text ?? '';
    };
    return { client, updated, levels, call };
  };

  it('tells of updates of what its client subscribed to, wherever that was', async () => {
    const { client, updated, call } = await open();
    await client.subscribeResource({ uri: URI });
    await client.subscribeResource({ uri: OTHER });
    await client.unsubscribeResource({ uri: OTHER });
    expect(await call('toggle-subscriber-updates')).toMatch(/^Started/);
    // At once, and again at the pace of the server.
    await expect.poll(() => updated.length).toBeGreaterThan(1);
    expect(new Set(updated)).toEqual(new Set([URI]));
    await client.close();
  });

  it('logs at the level that its client set, wherever that was', async () => {
    const { client, levels, call } = await open();
    await client.setLoggingLevel('debug');
    expect(await call('toggle-simulated-logging')).toMatch(/^Started/);
    await expect.poll(() => levels.length).toBeGreaterThan(2);
    await client.close();
  });
});
