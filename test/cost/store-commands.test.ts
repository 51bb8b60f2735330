/**
 * What a call costs its store, counted by a Redis of the test's own (`INFO commandstats`), so that no noise can move
 * it. A change that costs more has to change the bound here, and say why.
 */
import { createClient } from '@redis/client';
import type Keyv from 'keyv';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openStore } from '../../src/checkpoint/open-store.ts';
import { type OwnStore, ownStore } from '../chaos/stores.ts';
import { SECRET, type Served, serveHere } from '../e2e/harness.ts';
import { REDIS } from '../e2e/services.ts';
import { build, clientOf, overHttp, type What } from './served.ts';

/** Calls that are counted, each on its own: the median has nothing of what timers do now and then. */
const CALLS = 9;

const BOUNDS: readonly { revision: string; what: What; most: number; why: string }[] = [
  { revision: '2025-11-25', what: 'plain', most: 1, why: 'is the session over, and what was set in it' },
  { revision: '2025-03-26', what: 'plain', most: 1, why: 'the same' },
  {
    revision: '2025-11-25',
    what: 'step',
    most: 6,
    why: 'the session; the call, the priming event, the step; the end, and its event',
  },
  { revision: '2025-03-26', what: 'step', most: 5, why: 'the same without a priming event' },
  {
    revision: '2025-11-25',
    what: 'ask',
    most: 10,
    why: 'the session, twice; the call, the priming event, the ask, its event; the answer; the end, its event; a look for the answer elsewhere',
  },
  { revision: '2025-03-26', what: 'ask', most: 9, why: 'the same without a priming event' },
  { revision: '2026-07-28', what: 'plain', most: 0, why: 'nothing is to be kept' },
  {
    revision: '2026-07-28',
    what: 'step',
    most: 2,
    why: 'the call and the step; nobody asks for the end again',
  },
  {
    revision: '2026-07-28',
    what: 'ask',
    most: 3,
    why: 'the checkpoint, the claim with the answers, the end',
  },
];

describe.skipIf(REDIS.down)('commands a call, on Redis', () => {
  let redis: OwnStore;
  let store: Keyv;
  let served: Served;
  let client: ReturnType<typeof createClient>;

  beforeAll(async () => {
    redis = await ownStore('redis');
    client = createClient({ url: redis.url });
    await client.connect();
    store = await openStore(redis.url);
    // On a machine that is busy with other things a call may take longer than a moment.
    served = await serveHere(build, { store, secrets: [SECRET], limits: { heldReply: 600_000 } });
  });
  afterAll(async () => {
    await served?.close();
    await store?.disconnect();
    await client?.close();
    redis?.remove();
  });

  /** Commands of others than this test, since they were reset last, once no more come. */
  async function commands(): Promise<Record<string, number>> {
    const counted = async () => {
      const stats = (await client.info('commandstats')).matchAll(/^cmdstat_([^:]+):calls=(\d+)/gm);
      const own = ['info', 'config|resetstat'];
      return Object.fromEntries(
        [...stats].flatMap(([, name = '', calls]) => (own.includes(name) ? [] : [[name, Number(calls)]])),
      );
    };
    let last = '';
    const settled = async (): Promise<boolean> => {
      const before = last;
      last = JSON.stringify(await counted());
      return last === before;
    };
    await expect.poll(settled, { interval: 10 }).toBe(true);
    return JSON.parse(last) as Record<string, number>;
  }

  for (const { revision, what, most, why } of BOUNDS) {
    it(`${revision}, ${what}: at most ${most} (${why})`, async () => {
      const call = await clientOf(overHttp(served.url), revision);
      await call(what);
      await commands();
      const each: { readonly total: number; readonly counted: string }[] = [];
      for (let nth = 0; nth < CALLS; nth += 1) {
        await client.sendCommand(['CONFIG', 'RESETSTAT']);
        await call(what);
        const counted = await commands();
        const total = Object.values(counted).reduce((sum, calls) => sum + calls, 0);
        each.push({ total, counted: JSON.stringify(counted) });
      }
      const median = each.sort((one, other) => one.total - other.total)[Math.floor(CALLS / 2)];
      expect(median?.total, median?.counted).toBeLessThanOrEqual(most);
    });
  }
});
