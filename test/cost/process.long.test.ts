/**
 * What a call costs its process, in what can be counted: bytes, instances of the server. Times are not: they
 * are the benchmark's. A change that costs more has to change the bound here, and say why.
 */
import { getHeapStatistics } from 'node:v8';
import { afterEach, beforeAll, describe, expect, it } from 'vitest';
import { tuned } from '../../src/call/limits.ts';
import { type AwaitHandler, createAwaitHandler, type Revision } from '../../src/index.ts';
import { LogBook, SECRET } from '../e2e/harness.ts';
import { build, casesOf, clientOf, direct, type MakeCall, type What } from './served.ts';

const CALLS = 120;
/** Calls between two looks at the heap: few enough that most pairs of looks have no collection between them. */
const EACH = 5;

let handler: AwaitHandler | undefined;
let instances = 0;
afterEach(() => handler?.close());
// The first ones cost more, until their code is compiled.
beforeAll(async () => {
  for (let nth = 0; nth < 10; nth += 1) {
    await warm('2025-03-26', 'plain');
    await handler?.close();
  }
});

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
      ...tuned({ heldReply: 600_000 }),
    },
  );
  const call = await clientOf(direct(handler), revision);
  for (let nth = 0; nth < CALLS; nth += 1) await call(what);
  return call;
}

/**
 * Not exact, and another figure with each version of Node: bounds are a third above what was measured
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

type Bound = readonly [kilobytes: number, why: string];

/** The responses of 2024-11-05 and workspace-sse come on other connections, whose cost is not the call's. */
type Counted = Exclude<Revision, '2024-11-05' | 'workspace-sse'>;

const EARLIER = {
  plain: [92, 'as 2025-11-25'],
  step: [170, 'as 2025-11-25, without its priming event'],
  ask: [230, 'as 2025-11-25, without its priming event'],
} satisfies Record<What, Bound>;

const BOUNDS: Readonly<Record<Counted, Readonly<Record<What, Bound>>>> = {
  '2025-03-26': EARLIER,
  '2025-06-18': EARLIER,
  '2025-11-25': {
    plain: [95, 'the server itself makes a quarter of both; no journal, no stream'],
    step: [190, 'a stream of two events, a journal of two entries: each insert is Keyv’s'],
    ask: [250, 'the same, and the POST of the answer'],
  },
  'DRAFT-SEP-1858': {
    plain: [85, 'as 2025-11-25'],
    step: [157, 'as 2025-06-18'],
    ask: [345, 'a checkpoint, a stream of three events, and in the second POST its takeover'],
  },
  'DRAFT-MRTR-2026-02': {
    plain: [92, 'as 2025-11-25, and the tool’s mark as a task'],
    step: [112, 'the same, and a journal of two entries'],
    ask: [240, 'two POSTs; a checkpoint, a claim, an end, a sealed token'],
  },
  'DRAFT-SEP-2322': {
    plain: [90, 'as the draft before it'],
    step: [110, 'as the draft before it'],
    ask: [272, 'as the draft before it'],
  },
  '2026-07-28': {
    plain: [262, 'a server of its own, with its zod and its handshake: half of the bytes'],
    step: [285, 'the same, and a journal of two entries'],
    ask: [380, 'two POSTs to one server; a checkpoint, a claim, an end, a sealed token'],
  },
};

const CASES = casesOf(BOUNDS).map(({ revision, what, bound: [kilobytes, why] }) => {
  return { revision, what, kilobytes, instances: revision === '2026-07-28' ? 1 : 0, why };
});

describe('a call, in its process', () => {
  for (const { revision, what, why, ...most } of CASES) {
    it(`${revision}, ${what}: ${most.kilobytes} KiB, ${most.instances} instances (${why})`, async () => {
      const call = await warm(revision, what);
      instances = 0;
      const counted = {
        kilobytes: (await bytesOf(() => call(what))) / 1_024,
        instances: instances / (CALLS * EACH),
      };
      expect(counted.instances).toBe(most.instances);
      expect(counted.kilobytes).toBeLessThanOrEqual(most.kilobytes);
    });
  }
});
