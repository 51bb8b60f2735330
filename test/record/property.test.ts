/** Any tool that draws values in branches that race: a replay draws its journal's values, whichever branch is first. */
import { randomInt, randomUUID } from 'node:crypto';
import { setTimeout as sleep, setImmediate as turn } from 'node:timers/promises';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { sent } from './fake-network.ts';
import '../../src/record/index.ts';
import { complete, MemoryStore, resultOf, start, type Tool, type ToolApi, workbench } from '../call/bench.ts';
import { SHORT } from '../short.ts';

type Plan =
  | { readonly kind: 'draw'; readonly of: keyof typeof DRAWS }
  | { readonly kind: 'ask' | 'step' | 'wait' | 'fetch' }
  | { readonly kind: 'all' | 'settled' | 'sequence'; readonly parts: readonly Plan[] };

const DRAWS = {
  now: () => Date.now(),
  date: () => new Date().toISOString(),
  random: () => Math.random(),
  uuid: () => randomUUID(),
  global: () => crypto.randomUUID(),
};

const plan = fc.letrec<{ plan: Plan }>((tie) => ({
  plan: fc.oneof(
    { maxDepth: 3, depthSize: 'small' },
    fc.record({
      kind: fc.constant('draw' as const),
      of: fc.constantFrom('now', 'date', 'random', 'uuid', 'global'),
    }),
    fc.record({ kind: fc.constantFrom('ask' as const, 'step' as const, 'wait' as const, 'fetch' as const) }),
    fc.record({
      kind: fc.constantFrom('all' as const, 'settled' as const, 'sequence' as const),
      parts: fc.array(tie('plan'), { minLength: 1, maxLength: 4 }),
    }),
  ),
})).plan;

/** Another wait each time, so that branches come in another order in each attempt. */
function anyWait(): Promise<unknown> {
  const waits = [() => Promise.resolve(), () => turn(), () => sleep(1), () => sleep(3)];
  return waits[randomInt(waits.length)]?.() ?? Promise.resolve();
}

/** Branches of several things each, of which one asks: so that there is a replay, and something to mistake. */
const racing = fc.array(fc.array(plan, { minLength: 1, maxLength: 5 }), { minLength: 2, maxLength: 4 }).map(
  (branches): Plan => ({
    kind: 'all',
    parts: [
      ...branches.map((parts): Plan => ({ kind: 'sequence', parts: [{ kind: 'wait' }, ...parts] })),
      { kind: 'ask' },
    ],
  }),
);

interface Seen {
  /** What each attempt at the tool drew so far, by the place in the plan. */
  readonly attempts: Map<string, unknown>[];
  readonly asked: string[];
}

function toolOf(root: Plan, seen: Seen): Tool {
  return (api) => {
    const drawn = new Map<string, unknown>();
    seen.attempts.push(drawn);
    return run(root, 'root', api, drawn);
  };
}

/** Branches are awaited where they are joined: a promise returned without `await` is joined microtasks later. */
async function run(part: Plan, path: string, api: ToolApi, drawn: Map<string, unknown>): Promise<unknown> {
  switch (part.kind) {
    case 'draw': {
      const value = DRAWS[part.of]();
      drawn.set(path, value);
      return value;
    }
    case 'ask':
      return api.elicit(`${path} at ${new Date().toISOString()}, number ${Math.random()}`);
    case 'step':
      return api.step(path, () => ({ inside: Math.random() }));
    case 'fetch': {
      const value: unknown = await (await fetch('https://numbers.example')).json();
      drawn.set(path, JSON.stringify(value));
      return value;
    }
    case 'wait':
      await anyWait();
      return 'waited';
    case 'all':
      return await Promise.all(part.parts.map((inner, index) => run(inner, `${path}.${index}`, api, drawn)));
    case 'settled':
      return await Promise.allSettled(
        part.parts.map((inner, index) => run(inner, `${path}.${index}`, api, drawn)),
      );
    case 'sequence': {
      const results: unknown[] = [];
      for (const [index, inner] of part.parts.entries()) {
        results.push(await run(inner, `${path}.${index}`, api, drawn));
      }
      return results;
    }
  }
}

/** Where a call is, each turn in another process. */
async function moved(root: Plan) {
  const seen: Seen = { attempts: [], asked: [] };
  const store = new MemoryStore();
  const checkpoints: Map<string, unknown>[] = [];
  store.before = (entry) => {
    if (entry.type !== 'suspended') return;
    checkpoints.push(new Map(seen.attempts.at(-1)));
    seen.asked.push(...entry.checkpoint.open.map((ask) => `${ask.key} ${String(ask.params.message)}`));
  };
  const tool = toolOf(root, seen);
  // On a machine that is busy, a branch may take its time to come to where it was.
  const options = { store, limits: { frames: 0 }, frame: { replayGrace: 2_000 } };
  const benches = [workbench(tool, options), workbench(tool, options)] as const;
  let turns = 0;
  const next = () => benches[++turns % 2 === 0 ? 0 : 1].engine;
  resultOf(await complete(await start(benches[0].engine), next));
  return { seen, checkpoints };
}

function count(part: Plan, kind: Plan['kind']): number {
  const inner = 'parts' in part ? part.parts.reduce((sum, item) => sum + count(item, kind), 0) : 0;
  return inner + (part.kind === kind ? 1 : 0);
}

describe('any tool that draws in branches, replayed each turn', () => {
  it('draws again what it had drawn when it was suspended, and asks and sends nothing twice', async () => {
    await fc.assert(
      fc.asyncProperty(racing, async (root) => {
        sent.length = 0;
        const { seen, checkpoints } = await moved(root);
        const last = seen.attempts.at(-1);
        for (const checkpoint of checkpoints) {
          for (const [path, value] of checkpoint) expect([path, last?.get(path)]).toEqual([path, value]);
        }
        expect(sent.length).toBe(count(root, 'fetch'));
        const questions = new Set(seen.asked);
        expect(questions.size).toBe(count(root, 'ask'));
      }),
      { numRuns: SHORT ? 75 : 300 },
    );
  });
});
