/** A process that ends as a step begins: its client of 2025-11-25 has an id by then, and comes back for the response. */
import { afterEach, describe, expect, it } from 'vitest';
import { begin, call } from './anywhere.ts';
import { type Spawned, spawnServers } from './harness.ts';
import { REDIS, redisDatabase } from './services.ts';

let servers: Spawned[] = [];
afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.kill()));
});

describe.skipIf(REDIS.down)('a process that ends as a step begins', () => {
  it('has sent its client an id', async () => {
    const args = ['--store', redisDatabase(8)];
    servers = [
      ...(await spawnServers('dying-server.ts', 1, { args, env: { DIES: 'yes' } })),
      ...(await spawnServers('dying-server.ts', 1, { args })),
    ];
    const session = await begin(servers);
    const first = await session.post(0, call('work'));
    await expect.poll(() => first.over).toBe(true);
    expect(first.last).toMatch(/_1$/);
    const second = await session.get(1, first.last);
    const { result } = await second.next(({ id }) => id === 7);
    expect(result?.content?.[0]?.text).toBe('done');
  });
});
