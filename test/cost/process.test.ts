/**
 * What a call costs its process, in what can be counted: promises, bytes, instances of the server. Times are not: they
 * are the benchmark's. A change that costs more has to change the bound here, and say why.
 */
import { createHook } from 'node:async_hooks';
import { getHeapStatistics } from 'node:v8';
import { afterEach, describe, expect, it } from 'vitest';
import { type AwaitHandler, createAwaitHandler, type Revision } from '../../src/index.ts';
import { LogBook, SECRET } from '../e2e/harness.ts';
import { build, casesOf, clientOf, direct, type MakeCall, type What } from './served.ts';

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

type Bound = readonly [promises: number, kilobytes: number, why: string];

/** The responses of 2024-11-05 and workspace-sse come on other connections, whose cost is not the call's. */
type Counted = Exclude<Revision, '2024-11-05' | 'workspace-sse'>;

const EARLIER = {
  plain: [82, 92, 'as 2025-11-25'],
  step: [171, 170, 'as 2025-11-25, without its priming event'],
  ask: [236, 230, 'as 2025-11-25, without its priming event'],
} satisfies Record<What, Bound>;

const BOUNDS: Readonly<Record<Counted, Readonly<Record<What, Bound>>>> = {
  '2025-03-26': EARLIER,
  '2025-06-18': EARLIER,
  '2025-11-25': {
    plain: [85, 95, 'the server itself makes a quarter of both; no journal, no stream'],
    step: [195, 190, 'a stream of two events, a journal of two entries: each insert is Keyv’s, about 20'],
    ask: [260, 250, 'the same, and the POST of the answer'],
  },
  'DRAFT-SEP-1858': {
    plain: [81, 85, 'as 2025-11-25'],
    step: [171, 157, 'as 2025-06-18'],
    ask: [375, 345, 'a checkpoint, a stream of three events, and in the second POST its takeover'],
  },
  'DRAFT-MRTR-2026-02': {
    plain: [96, 92, 'as 2025-11-25, and the tool’s mark as a task'],
    step: [122, 112, 'the same, and a journal of two entries'],
    ask: [230, 240, 'two POSTs; a checkpoint, a claim, an end, a sealed token'],
  },
  'DRAFT-SEP-2322': {
    plain: [101, 90, 'as the draft before it'],
    step: [127, 110, 'as the draft before it'],
    ask: [265, 272, 'as the draft before it'],
  },
  '2026-07-28': {
    plain: [122, 262, 'a server of its own, with its zod and its handshake: half of the bytes'],
    step: [150, 285, 'the same, and a journal of two entries'],
    ask: [235, 380, 'two POSTs to one server; a checkpoint, a claim, an end, a sealed token'],
  },
};

const CASES = casesOf(BOUNDS).map(({ revision, what, bound: [promises, kilobytes, why] }) => {
  return { revision, what, promises, kilobytes, instances: revision === '2026-07-28' ? 1 : 0, why };
});

describe('a call, in its process', () => {
  for (const { revision, what, why, ...most } of CASES) {
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
