/** Processes whose clocks differ by more than a call lives agree on when it ends, and on when a question's time is over. */
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { accept, post, type RawCall, textOf } from './clients.ts';
import { clockAhead, effectsIn, type Spawned, scratch, spawnServers } from './harness.ts';
import { hasClock, STORES } from './services.ts';

/** In milliseconds. */
const AHEAD = 1_200_000;

for (const { name, down, url } of STORES.filter(hasClock)) {
  describe.skipIf(down)(`processes whose clocks differ, on ${name}`, () => {
    const effects = join(scratch(), 'effects');
    let servers: Spawned[] = [];
    beforeAll(async () => {
      const started = [0, AHEAD, -AHEAD].map((ahead) =>
        spawnServers('asking-server.ts', 1, {
          args: ['--store', url(), '--ttl', '10m'],
          env: { EFFECTS: effects, ...clockAhead(ahead) },
        }),
      );
      servers = (await Promise.all(started)).flat();
    });
    afterAll(() => Promise.all(servers.map((server) => server.kill())));

    const at = (nth: number, call: RawCall) => post(servers[nth % servers.length]?.url ?? '', call);

    it('go on with one another’s calls, and run no step again', async () => {
      for (const first of servers.keys()) {
        const asked = await at(first, { tool: 'order' });
        const placed = { state: asked.state, responses: accept(asked.keys, { address: 'Main St' }) };
        const again = await at(first + 1, { tool: 'order', ...placed });
        const named = { state: again.state, responses: accept(again.keys, { name: 'Ann' }) };
        expect(textOf(await at(first + 2, { tool: 'order', ...named }))).toBe('Ann, Main St, 43');
      }
      expect(effectsIn(effects).filter((effect) => effect !== 'finally')).toEqual(
        servers.flatMap(() => ['charge', 'ship']),
      );
    });

    it('take an answer that comes in its time', async () => {
      for (const first of servers.keys()) {
        const { state, keys } = await at(first, { tool: 'patient', args: { timeout: 120_000 } });
        const retry = { tool: 'patient', args: { timeout: 120_000 }, state };
        const given = { ...retry, responses: accept(keys, { name: 'Ann' }) };
        expect(textOf(await at(first + 1, given))).toBe('Hello Ann');
      }
    });
  });
}
