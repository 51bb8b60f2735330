/**
 * What a call costs its process, in what can be counted: promises, bytes, instances of the server. Times are not: they
 * are the benchmark's. A change that costs more has to change the bound here, and say why.
 */
import { createHook } from 'node:async_hooks';
import { getHeapStatistics } from 'node:v8';
import { afterEach, describe, expect, it } from 'vitest';
import { type AwaitHandler, createAwaitHandler } from '../../src/index.ts';
import { LogBook, SECRET } from '../e2e/harness.ts';
import { build, clientOf, direct, type MakeCall, type What } from './served.ts';

const CALLS = 120;
/** Calls between two looks at the heap: few enough that most pairs of looks have no collection between them. */
const EACH = 5;

let handler: AwaitHandler | undefined;
let instances = 0;
afterEach(() => handler?.close());

async function warm(revision: string, what: What): Promise<MakeCall> {
  handler = createAwaitHandler(
    () => {
      instances += 1;
      return build();
    },
    {
      secrets: [SECRET],
      logger: new LogBook(),
      warnUnjournaled: false,
      limits: { heldReply: 600_000 },
    },
  );
  const call = await clientOf(direct(handler), revision);
  for (let nth = 0; nth < CALLS; nth += 1) await call(what);
  return call;
}

async function promisesIn(work: () => Promise<void>): Promise<number> {
  let promises = 0;
  const hook = createHook({
    init: (_id, type) => {
      if (type === 'PROMISE') promises += 1;
    },
  });
  hook.enable();
  await work();
  hook.disable();
  return promises;
}

/**
 * Not exact, unlike promises, and another figure with each version of Node: bounds are a third above what was measured
 * on Node 20. The median of what the heap grew by, so that collections do not count. */
async function bytesOf(call: () => Promise<void>): Promise<number> {
  const grown: number[] = [];
  for (let look = 0; look < CALLS; look += 1) {
    const before = getHeapStatistics().used_heap_size;
    for (let nth = 0; nth < EACH; nth += 1) await call();
    grown.push((getHeapStatistics().used_heap_size - before) / EACH);
  }
  return grown.sort((one, other) => one - other)[CALLS / 2] ?? 0;
}

const BOUNDS: readonly {
  revision: string;
  what: What;
  promises: number;
  kilobytes: number;
  instances: number;
  why: string;
}[] = [
  {
    revision: '2025-11-25',
    what: 'plain',
    promises: 85,
    kilobytes: 95,
    instances: 0,
    why: 'the server itself makes a quarter of both; no journal, no stream',
  },
  {
    revision: '2025-11-25',
    what: 'step',
    promises: 195,
    kilobytes: 190,
    instances: 0,
    why: 'a stream of two events, a journal of two entries: each insert is Keyv’s, about 20',
  },
  {
    revision: '2025-11-25',
    what: 'ask',
    promises: 260,
    kilobytes: 250,
    instances: 0,
    why: 'the same, and the POST of the answer',
  },
  {
    revision: '2025-03-26',
    what: 'plain',
    promises: 82,
    kilobytes: 92,
    instances: 0,
    why: 'as 2025-11-25',
  },
  {
    revision: '2026-07-28',
    what: 'plain',
    promises: 122,
    kilobytes: 262,
    instances: 1,
    why: 'a server of its own, with its zod and its handshake: half of the bytes',
  },
  {
    revision: '2026-07-28',
    what: 'step',
    promises: 150,
    kilobytes: 285,
    instances: 1,
    why: 'the same, and a journal of two entries',
  },
  {
    revision: '2026-07-28',
    what: 'ask',
    promises: 235,
    kilobytes: 380,
    instances: 1,
    why: 'two POSTs to one server; a checkpoint, a claim, an end, a sealed token',
  },
];

describe('a call, in its process', () => {
  for (const { revision, what, why, ...most } of BOUNDS) {
    it(`${revision}, ${what}: ${most.promises} promises, ${most.kilobytes} KiB, ${most.instances} instances (${why})`, async () => {
      const call = await warm(revision, what);
      instances = 0;
      const promises = await promisesIn(async () => {
        for (let nth = 0; nth < CALLS; nth += 1) await call(what);
      });
      const counted = {
        promises: promises / CALLS,
        kilobytes: (await bytesOf(() => call(what))) / 1_024,
        instances: instances / (CALLS * (EACH + 1)),
      };
      expect(counted.instances).toBe(most.instances);
      expect(counted.promises).toBeLessThanOrEqual(most.promises);
      expect(counted.kilobytes).toBeLessThanOrEqual(most.kilobytes);
    });
  }
});
