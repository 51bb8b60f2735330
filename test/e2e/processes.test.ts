/** Two processes behind a round-robin: every POST of a call to the other one, and one that dies (issue, 3 and 4). */
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { some } from '../short.ts';
import { accept, modern, post, type TestClient, textOf } from './clients.ts';
import { asking, type Balancer, balance, effectsIn, type Spawned, scratch, spawnServers } from './harness.ts';
import { KINDS } from './services.ts';
import { TOOLS } from './tools.ts';

for (const kind of some(KINDS)) {
  describe.skipIf(kind.down)(`two processes on ${kind.name}`, () => {
    const effects = join(scratch(), 'effects');
    let servers: Spawned[] = [];
    let balancer: Balancer;
    let client: TestClient;
    let done = 0;

    const connect = async (pick?: (nth: number) => number): Promise<TestClient> => {
      balancer = await balance(
        servers.map(({ url }) => url),
        pick,
      );
      client = await modern(balancer.url);
      done = effectsIn(effects).length;
      return client;
    };
    const newEffects = (): string[] => effectsIn(effects).slice(done);
    /** Without effects outside of steps. */
    const acted = (): string[] => newEffects().filter((effect) => effect !== 'timer fired');

    beforeAll(async () => {
      servers = await spawnServers('asking-server.ts', 2, { args: kind.args(), env: { EFFECTS: effects } });
    });
    afterEach(async () => {
      await client.close();
      await balancer.close();
    });
    afterAll(() => Promise.all(servers.map((server) => server.kill())));

    it('completes a call whose every POST goes to the other process', async () => {
      await connect();
      expect(await client.tool('in-turn')).toBe('its name, its city, its street');
      expect(client.asked).toEqual(['name?', 'city?', 'street?']);
      const went = asking(balancer.posts).map(({ to }) => to);
      expect(went).toHaveLength(4);
      expect(went.every((to, nth) => nth === 0 || to !== went[nth - 1])).toBe(true);
    });

    it('completes it in one process, with its frame kept', async () => {
      await connect(() => 0);
      expect(await client.tool('in-turn')).toBe('its name, its city, its street');
      expect(asking(balancer.posts)).toHaveLength(4);
    });

    // The command line runs from dist, the fixture's `step` comes from src: two copies of the package.
    it('runs each step once, though the tool runs in both, on a copy of the package of its own', async () => {
      await connect();
      expect(await client.tool('order')).toBe('its name, its address, 43');
      expect(acted()).toEqual(['charge', 'ship', 'finally']);
    });

    it('acts on one branch of a race, though the timer wins in one process and the answer in the other', async () => {
      await connect();
      const [first, second] = servers.map(({ url }) => url);
      if (first === undefined || second === undefined) throw new Error('two processes were started');
      const race = { tool: 'race' };
      const { state, keys } = await post(first, race);
      await post(first, { tool: 'ring' });
      await expect.poll(newEffects).toContain('timer fired');
      const responses = accept(keys, { name: 'Ann' });
      expect(textOf(await post(second, { ...race, state, responses }))).toBe('answer');
      // The first process goes on with other things; its frame must not come back to this one.
      await post(first, { tool: 'one' });
      expect(acted()).toEqual(['ship']);
    });

    it.each(TOOLS)('serves %s, the answer in the process that did not ask', async (tool, text, asked) => {
      await connect();
      expect(await client.tool(tool)).toBe(text);
      expect([...client.asked].sort()).toEqual([...asked].sort());
      const went = asking(balancer.posts).map(({ to }) => to);
      expect(went.every((to, nth) => nth === 0 || to !== went[nth - 1])).toBe(true);
    });

    it('asks three questions at once in one round', async () => {
      await connect();
      expect(await client.tool('at-once')).toBe('its name, its city, its street');
      expect(asking(balancer.posts)).toHaveLength(2);
    });

    it('serves prompts and resources that ask', async () => {
      await connect();
      expect(await client.prompt('greet')).toBe('Greet its name');
      expect(await client.resource('diary://today')).toBe('Dear its name');
    });

    it('continues elsewhere when the process that asked is killed', async () => {
      const [first, second] = servers;
      if (first === undefined || second === undefined) throw new Error('two processes were started');
      let dead = false;
      balancer = await balance([first.url, second.url], () => (dead ? 1 : 0));
      done = effectsIn(effects).length;
      client = await modern(balancer.url, {
        answer: async ({ message }) => {
          await first.kill();
          dead = true;
          return { action: 'accept', content: { [String(message).replace('?', '')]: 'Ann' } };
        },
      });
      expect(await client.tool('order')).toBe('Ann, Ann, 43');
      expect(asking(balancer.posts).map(({ to }) => to)).toEqual([0, 1, 1]);
      expect(acted()).toEqual(['charge', 'ship', 'finally']);
    });
  });
}
