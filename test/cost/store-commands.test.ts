/**
 * What a call costs its store, counted by a Redis of the test's own (`INFO commandstats`), so that no noise can move
 * it. A change that costs more has to change the bound here, and say why.
 */
import { createClient } from '@redis/client';
import type Keyv from 'keyv';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openStore } from '../../src/checkpoint/open-store.ts';
import type { Revision } from '../../src/index.ts';
import { type OwnStore, ownStore } from '../chaos/stores.ts';
import { SECRET, type Served, serveHere } from '../e2e/harness.ts';
import { REDIS } from '../e2e/services.ts';
import { build, clientOf, overHttp, speakerFor, type What } from './served.ts';

/** Calls that are counted, each on its own: the median has nothing of what timers do now and then. */
const CALLS = 9;

type Bound = readonly [most: number, why: string];

const SESSION = 'is the session over, and what was set in it';
const LIVE = {
  plain: [1, SESSION],
  step: [5, 'the session; the call, the step; the end, and its event'],
  ask: [
    9,
    'the session, twice; the call, the ask, its event; the answer; the end, its event; a look elsewhere',
  ],
} satisfies Record<What, Bound>;
const ROUND_TRIPS = {
  plain: [1, SESSION],
  step: [3, 'the session; the call and the step'],
  ask: [5, 'the session, twice; the checkpoint, the claim with the answers, the end'],
} satisfies Record<What, Bound>;

const BOUNDS: Readonly<Record<Revision, Readonly<Record<What, Bound>>>> = {
  '2024-11-05': {
    plain: [
      8,
      'the session; a 202 promises the response: the call, its place in the session’s list, its end, its event in two records, that it was told; a look of its connection',
    ],
    step: [9, 'the same, and the step'],
    ask: [13, 'the same; the session again, the ask, its event in two records, the answer'],
  },
  '2025-03-26': LIVE,
  '2025-06-18': LIVE,
  '2025-11-25': {
    plain: LIVE.plain,
    step: [6, 'as before, and the priming event'],
    ask: [10, 'as before, and the priming event'],
  },
  'DRAFT-SEP-1858': {
    plain: [1, SESSION],
    step: [5, 'as 2025-06-18'],
    ask: [
      15,
      'the session, twice; the call, the checkpoint, three events; the last of them again; the claim, the end; the stream taken over, its event',
    ],
  },
  'DRAFT-MRTR-2026-02': ROUND_TRIPS,
  'DRAFT-SEP-2322': ROUND_TRIPS,
  '2026-07-28': {
    plain: [0, 'nothing is to be kept'],
    step: [2, 'the call and the step; nobody asks for the end again'],
    ask: [3, 'the checkpoint, the claim with the answers, the end'],
  },
  'workspace-sse': {
    plain: [3, 'who listens; the call and its end'],
    step: [4, 'the same, and the step'],
    ask: [
      16,
      'the same; the ask, the answer; the body as a stream: its list of calls, its two events, who reads it and how far',
    ],
  },
};
/** They have their connections besides their requests. */
const SPOKEN: ReadonlySet<string> = new Set<Revision>(['2024-11-05', 'workspace-sse']);

const CASES = Object.entries(BOUNDS).flatMap(([revision, bounds]) =>
  (['plain', 'step', 'ask'] as const).map((what) => ({
    revision: revision as Revision,
    what,
    most: bounds[what][0],
    why: bounds[what][1],
  })),
);

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
    served = await serveHere(build, {
      store,
      secrets: [SECRET],
      limits: { heldReply: 600_000 },
      workspace: { capabilities: { elicitation: {} } },
    });
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

  for (const { revision, what, most, why } of CASES) {
    it(`${revision}, ${what}: at most ${most} (${why})`, async () => {
      const call = SPOKEN.has(revision)
        ? await speakerFor(new URL(served.url).origin, revision)
        : await clientOf(overHttp(served.url), revision);
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
