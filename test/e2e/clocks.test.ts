/** Processes whose clocks differ by more than a call lives agree on when it ends, and on when a question's time is over. */

import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { openStore } from '../../src/store.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { tcpProxy } from '../fixtures/tcp-proxy.ts';
import { accept, filledIn, legacy, post, type RawCall, textOf } from './clients.ts';
import { clockAhead, effectsIn, SECRET, type Spawned, scratch, serveHere, spawnServers } from './harness.ts';
import { hasClock, STORES } from './services.ts';

/** In milliseconds. */
const AHEAD = 1_200_000;

afterEach(() => {
  vi.restoreAllMocks();
});

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

    it('wait for a store that is away for a moment, also where a clock is ahead by more than the call lives', async () => {
      const proxy = await tcpProxy(url(), name === 'PostgreSQL' ? 5432 : 6379);
      const far = new URL(url());
      far.hostname = '127.0.0.1';
      far.port = String(proxy.port);
      const { now } = Date;
      vi.spyOn(Date, 'now').mockImplementation(() => now() + 7_200_000);
      const done: string[] = [];
      const store = await openStore(far.href);
      const served = await serveHere(() => buildServer((effect) => done.push(effect)), {
        store,
        secrets: [SECRET],
        audience: randomUUID(),
      });
      const client = await legacy(served.url, {
        answer: async (params) => {
          proxy.onSent = (chunk) => {
            if (!/\bset\b|insert into/i.test(chunk.toString('latin1'))) return;
            proxy.onSent = () => {};
            void proxy.blink(100);
          };
          return filledIn(params);
        },
      });
      expect(await client.tool('order')).toMatch(/^its name, its address, \d+$/);
      expect(done).toEqual(['charge', 'ship', 'finally']);
      await client.close();
      await served.close();
      await store.disconnect();
      await proxy.cut();
    });

    it('take a token with the first request to one that has just started, while its store is away', async () => {
      const far = new URL(url());
      const proxy = await tcpProxy(far.href, name === 'PostgreSQL' ? 5432 : 6379);
      far.hostname = '127.0.0.1';
      far.port = String(proxy.port);
      const { now } = Date;
      const options = { secrets: [SECRET], audience: randomUUID() };
      const serve = async (store: string) =>
        serveHere(() => buildServer(() => {}), { ...options, store: await openStore(store) });
      const one = await serve(url());
      const { state, keys } = await post(one.url, { tool: 'one' });
      vi.spyOn(Date, 'now').mockImplementation(() => now() + 7_200_000);
      const other = await openStore(far.href);
      await proxy.cut();
      const two = await serveHere(() => buildServer(() => {}), { ...options, store: other });
      const done = post(two.url, { tool: 'one', state, responses: accept(keys, { name: 'Ann' }) });
      await new Promise((resolve) => setTimeout(resolve, 500));
      await proxy.mend();
      expect(textOf(await done)).toBe('Hello Ann');
      await Promise.all([one.close(), two.close()]);
      await other.disconnect();
      await proxy.cut();
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
