import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../../src/base/values.ts';
import { SHORT } from '../short.ts';
import {
  complete,
  MemoryStore,
  requestContextOf,
  resultOf,
  start,
  type Tool,
  type ToolApi,
  workbench,
} from './bench.ts';

/** A random tool: asks and steps, in sequence and in parallel. */
type Plan =
  | { readonly kind: 'ask'; readonly text: number }
  | { readonly kind: 'step'; readonly fails: boolean }
  | { readonly kind: 'tick' }
  | { readonly kind: 'say' }
  | { readonly kind: 'all' | 'sequence'; readonly parts: readonly Plan[] };

const plan = fc.letrec<{ plan: Plan }>((tie) => ({
  plan: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    fc.record({ kind: fc.constant('ask' as const), text: fc.nat(3) }),
    fc.record({ kind: fc.constant('step' as const), fails: fc.boolean() }),
    fc.constant<Plan>({ kind: 'tick' }),
    fc.constant<Plan>({ kind: 'say' }),
    fc.record({
      kind: fc.constantFrom('all' as const, 'sequence' as const),
      parts: fc.array(tie('plan'), { minLength: 1, maxLength: 4 }),
    }),
  ),
})).plan;

interface Effects {
  readonly steps: Map<string, number>;
  readonly keys: Map<string, Set<string>>;
}

function toolOf(root: Plan, effects: Effects): Tool {
  const run = async (part: Plan, path: string, api: ToolApi): Promise<unknown> => {
    switch (part.kind) {
      case 'ask':
        return api.elicit(`question ${part.text}`);
      case 'step':
        return api
          .step(path, ({ idempotencyKey }) => {
            effects.steps.set(path, (effects.steps.get(path) ?? 0) + 1);
            effects.keys.set(path, (effects.keys.get(path) ?? new Set()).add(idempotencyKey));
            if (part.fails) throw new Error(`failed ${path}`);
            return { path };
          })
          .catch((error: unknown) => String(error));
      case 'tick':
        await new Promise((resolve) => setImmediate(resolve));
        return 'tick';
      case 'say':
        api.notify(path);
        return 'said';
      case 'all':
        return Promise.all(part.parts.map((inner, index) => run(inner, `${path}.${index}`, api)));
      case 'sequence': {
        const results: unknown[] = [];
        for (const [index, inner] of part.parts.entries())
          results.push(await run(inner, `${path}.${index}`, api));
        return results;
      }
    }
  };
  return (api) => run(root, 'root', api);
}

const noEffects = (): Effects => ({ steps: new Map(), keys: new Map() });

/** A kept frame, always another process, or a random mixture: `moves` says where each turn goes. */
async function runPlan(root: Plan, moves: readonly boolean[], carry: boolean, withStore: boolean) {
  const effects = noEffects();
  const store = withStore ? { store: new MemoryStore() } : {};
  const options = { ...store, carry };
  const benches = [
    workbench(toolOf(root, effects), options),
    workbench(toolOf(root, effects), options),
  ] as const;
  const heard: string[] = [];
  let turn = 0;
  let home = 0;
  const next = () => {
    if (moves[turn++ % Math.max(moves.length, 1)]) home = 1 - home;
    return benches[home === 0 ? 0 : 1].engine;
  };
  const outcome = await complete(await start(benches[0].engine, requestContextOf({ heard })), next);
  return { value: resultOf(outcome), effects, benches, heard };
}

describe('any tool, however its call moves', () => {
  for (const [name, carry, withStore] of [
    ['stored', false, true],
    ['sealed', true, false],
    ['sealed with a store', true, true],
  ] as const) {
    it(`has the same result and runs each step once (${name})`, async () => {
      await fc.assert(
        fc.asyncProperty(
          plan,
          fc.array(fc.boolean(), { minLength: 1, maxLength: 6 }),
          async (root, moves) => {
            const parked = await runPlan(root, [false], carry, withStore);
            const moved = await runPlan(root, moves, carry, withStore);
            expect(moved.value).toEqual(parked.value);
            expect([...moved.effects.steps.values()].every((count) => count === 1)).toBe(true);
            expect([...moved.effects.keys.values()].every((keys) => keys.size === 1)).toBe(true);
            expect(moved.effects.steps.size).toBe(parked.effects.steps.size);
          },
        ),
        { numRuns: SHORT ? 50 : 150 },
      );
    });
  }

  it('says each notification once, whichever process it is in', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.constantFrom('ask', 'say', 'step'), { maxLength: 8 }),
        fc.boolean(),
        async (kinds, moves) => {
          const store = new MemoryStore();
          const heard: string[] = [];
          const tool: Tool = async (api) => {
            for (const [index, kind] of kinds.entries()) {
              if (kind === 'say') api.notify(`say ${index}`);
              else if (kind === 'ask') await api.elicit('question');
              else await api.step(`step ${index}`, () => index);
            }
          };
          const benches = [workbench(tool, { store }), workbench(tool, { store })] as const;
          let outcome = await start(benches[0].engine, requestContextOf({ heard }));
          for (let turn = 1; outcome.kind === 'suspended'; turn += 1) {
            const engine = benches[moves && turn % 2 === 1 ? 1 : 0].engine;
            const responses: JsonObject = Object.fromEntries(
              outcome.asks.map((ask) => [ask.key, { action: 'decline' }]),
            );
            const { token } = outcome;
            const binding = { revision: 'test', method: 'tools/call', target: 'tool', args: 'none' };
            outcome = await engine.resume(token, binding, responses, requestContextOf({ heard }));
          }
          expect(heard).toEqual(kinds.flatMap((kind, index) => (kind === 'say' ? [`say ${index}`] : [])));
        },
      ),
      { numRuns: 100 },
    );
  });
});
