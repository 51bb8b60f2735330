/**
 * What a call costs its store, counted by a Redis of the test's own, so that no noise can move it: commands
 * (`INFO commandstats`), and round trips (`total_reads_processed`: commands that are sent together are one). A change
 * that costs more has to change the bound here, and say why.
 */
import type Keyv from 'keyv';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { tuned } from '../../src/call/limits.ts';
import { openStore } from '../../src/checkpoint/open-store.ts';
import type { Revision } from '../../src/index.ts';
import { type OwnStore, ownStore } from '../chaos/stores.ts';
import { SECRET, type Served, serveHere } from '../e2e/harness.ts';
import { REDIS } from '../e2e/services.ts';
import { type Cost, commandsOf } from './commands.ts';
import {
  build,
  casesOf,
  clientOf,
  type MakeCall,
  overHttp,
  type Send,
  speakerFor,
  type What,
} from './served.ts';

/** Calls that a session has made before: a cost that grows with it would be missed on a fresh one. */
const BEFORE = 150;
/** Calls that are counted, each on its own: polls of a busy machine only add, so the least has nothing of them. */
const CALLS = 9;

type Bound = readonly [commands: number, trips: number, why: string];

const SESSION = 'is the session over, and what was set in it';
const LIVE = {
  plain: [1, 1, SESSION],
  step: [4, 4, 'the session; the call, the step, the end'],
  ask: [6, 6, 'the session, twice; the call, the ask, the answer, the end'],
} satisfies Record<What, Bound>;
const ROUND_TRIPS = {
  plain: [1, 1, SESSION],
  step: [3, 3, 'the session; the call and the step'],
  ask: [5, 5, 'the session, twice; the checkpoint, the claim with the answers, the end'],
} satisfies Record<What, Bound>;

const BOUNDS: Readonly<Record<Revision, Readonly<Record<What, Bound>>>> = {
  '2024-11-05': {
    plain: [3, 3, 'the session; the response, as an event in two records'],
    step: [5, 5, 'the session; the call, its place in the stream, the step, the end'],
    ask: [7, 7, 'the session, twice; the call, its place in the stream, the ask, the answer, the end'],
  },
  '2025-03-26': LIVE,
  '2025-06-18': LIVE,
  '2025-11-25': LIVE,
  'DRAFT-SEP-1858': {
    plain: LIVE.plain,
    step: LIVE.step,
    ask: [8, 8, 'the session, twice; the call, the checkpoint; both again; the claim, the end'],
  },
  'DRAFT-MRTR-2026-02': ROUND_TRIPS,
  'DRAFT-SEP-2322': ROUND_TRIPS,
  '2026-07-28': {
    plain: [0, 0, 'nothing is to be kept'],
    step: [2, 2, 'the call and the step; nobody asks for the end again'],
    ask: [3, 3, 'the checkpoint, the claim with the answers, the end'],
  },
  'workspace-sse': {
    plain: [1, 1, 'who listens'],
    step: [4, 4, 'the same; the call, the step, the end'],
    ask: [5, 5, 'the same; the call, the ask, the answer, the end'],
  },
};
/** They have their connections besides their requests. */
const SPOKEN: ReadonlySet<string> = new Set<Revision>(['2024-11-05', 'workspace-sse']);

describe.skipIf(REDIS.down)('commands a call, on Redis', () => {
  let redis: OwnStore;
  let store: Keyv;
  let served: Served;
  let counter: Awaited<ReturnType<typeof commandsOf>>;

  beforeAll(async () => {
    redis = await ownStore('redis');
    counter = await commandsOf(redis.url);
    store = await openStore(redis.url);
    // On a machine that is busy with other things a call may take longer than a moment.
    served = await serveHere(build, {
      store,
      secrets: [SECRET],
      ...tuned({ heldReply: 600_000 }),
      revisions: ['*', { name: 'workspace-sse', capabilities: { elicitation: {} } }],
    });
  });
  afterAll(async () => {
    await served?.close();
    await store?.disconnect();
    await counter?.close();
    redis?.remove();
  });

  for (const { revision, what, bound } of casesOf(BOUNDS)) {
    const [most, mostTrips, why] = bound;
    it(`${revision}, ${what}: at most ${most} in ${mostTrips} round trips (${why})`, async () => {
      const call = SPOKEN.has(revision)
        ? await speakerFor(new URL(served.url).origin, revision)
        : await clientOf(overHttp(served.url), revision);
      await isWithin(call, what, most, mostTrips);
    });
  }

  for (const { revision, what, bound } of casesOf({
    '2025-11-25': LIVE,
    '2026-07-28': BOUNDS['2026-07-28'],
  })) {
    const most = what === 'plain' ? bound[0] : bound[0] + 1;
    it(`${revision}, ${what}, of a known caller: at most ${most} (what is stored is in the caller's list)`, async () => {
      await isWithin(await clientOf(overHttp(served.url, 'ann'), revision), what, most, most);
    });
  }

  it('2025-11-25, one that takes longer than a moment: at most 3 (the session; the call, the end)', async () => {
    const slow = await serveHere(build, { store, secrets: [SECRET], ...tuned({ heldReply: 0 }) });
    try {
      await isWithin(await clientOf(overHttp(slow.url), '2025-11-25'), 'plain', 3, 3);
    } finally {
      await slow.close();
    }
  });

  it.each([
    ['2025-11-25', 9, 'seven; each of the two processes reads what the other one wrote'],
    ['2026-07-28', 6, 'four, the read of the checkpoint, and a look whether the log is there'],
  ] as const)('%s, ask, answered at another process: at most %i (%s)', async (revision, most, _why) => {
    const other = await serveHere(build, { store, secrets: [SECRET] });
    try {
      const [here, there] = [overHttp(served.url, 'ann'), overHttp(other.url, 'ann')];
      const send: Send = (headers, body, onText) => {
        const isAnswer = !('method' in body) || JSON.stringify(body).includes('requestState');
        return (isAnswer ? there : here)(headers, body, onText);
      };
      await isWithin(await clientOf(send, revision), 'ask', most, most);
    } finally {
      await other.close();
    }
  });

  async function isWithin(call: MakeCall, what: What, most: number, mostTrips: number): Promise<void> {
    for (let nth = 0; nth < BEFORE; nth += 1) await call(what);
    await counter.costOf(() => call(what));
    const each: Cost[] = [];
    for (let nth = 0; nth < CALLS; nth += 1) each.push(await counter.costOf(() => call(what)));
    const least = (of: (cost: Cost) => number): number => Math.min(...each.map(of));
    const counted = JSON.stringify(each);
    expect(
      least(({ commands }) => commands),
      counted,
    ).toBeLessThanOrEqual(most);
    expect(
      least(({ trips }) => trips),
      counted,
    ).toBeLessThanOrEqual(mostTrips);
    // What is sent together is counted once, and nothing that is sent is missed.
    for (const { commands, trips } of each) if (commands > 0) expect(trips, counted).toBeGreaterThan(0);
  }
});
