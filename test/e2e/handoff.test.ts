/** Two processes that reach one another: a call goes on where its frame is, while that process is there. */
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { some } from '../short.ts';
import { filledIn, modern, type Script, type TestClient } from './clients.ts';
import { asking, type Balancer, balance, effectsIn, type Spawned, scratch, spawnServers } from './harness.ts';
import { NATS, NATS_URL, REDIS, REDIS_URL } from './services.ts';

const RELAYS = [
  { ...REDIS, args: ['--relay', REDIS_URL] },
  { ...NATS, args: ['--relay', NATS_URL] },
];
const KEPT = [
  { name: 'calls in Redis', args: ['--store', REDIS_URL] },
  { name: 'calls in tokens', args: ['--state', 'sealed'] },
];

for (const relay of RELAYS) {
  for (const kept of some(KEPT)) {
    describe.skipIf(relay.down || REDIS.down)(`two processes over ${relay.name}, ${kept.name}`, () => {
      const effects = join(scratch(), 'effects');
      let servers: Spawned[] = [];
      let balancer: Balancer;
      let client: TestClient;

      beforeAll(async () => {
        // A busy machine may take longer than the default to accept a turn, and the tool would be run again.
        const options = {
          args: [...kept.args, ...relay.args],
          tuned: { handoffWait: 5_000 },
          env: { EFFECTS: effects },
        };
        servers = await spawnServers('asking-server.ts', 2, options);
      });
      afterEach(async () => {
        await client.close();
        await balancer.close();
      });
      afterAll(() => Promise.all(servers.map((server) => server.kill())));

      const connect = async (pick?: (nth: number) => number, script: Script = {}): Promise<void> => {
        balancer = await balance(
          servers.map(({ url }) => url),
          pick,
        );
        client = await modern(balancer.url, script);
      };

      it('run a tool once, whichever of them gets its answers', async () => {
        await connect();
        const before = effectsIn(effects).length;
        expect(await client.tool('begin')).toBe('its name, its city');
        const went = asking(balancer.posts).map(({ to }) => to);
        expect(new Set(went).size).toBe(2);
        expect(effectsIn(effects).slice(before)).toEqual(['begun']);
      });

      it('bring what a tool says to the client of the other one', async () => {
        await connect();
        await client.tool('notes');
        expect(client.progressed).toEqual([1, 2, 3]);
        expect(client.logged).toEqual(['note 1', 'note 2', 'note 3']);
      });

      it('run it again in the one that is left', async () => {
        let servedBy = 0;
        await connect(() => servedBy, {
          answer: async (params) => {
            servedBy = 1;
            await servers[0]?.kill();
            return filledIn(params);
          },
        });
        const before = effectsIn(effects).length;
        expect(await client.tool('begin')).toBe('its name, its city');
        expect(effectsIn(effects).slice(before)).toEqual(['begun', 'begun']);
      });
    });
  }
}
