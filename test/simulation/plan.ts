/** Random tools: what they do one after the other, at once, or in a race. */
import fc from 'fast-check';
import { runInContext, step } from '../../src/call/context.ts';
import type { Frame } from '../../src/call/frame.ts';
import type { Json, JsonObject } from '../../src/call/json.ts';

export type Plan =
  | { readonly kind: 'ask'; readonly text: number }
  | { readonly kind: 'step'; readonly fails: boolean; readonly takes: number; readonly inside: boolean }
  | { readonly kind: 'wait'; readonly takes: number }
  | { readonly kind: 'throw' }
  | { readonly kind: 'all' | 'sequence' | 'race'; readonly parts: readonly Plan[] };

/** What a tool may use of its world. */
export interface Surroundings {
  wait(milliseconds: number): Promise<void>;
  /** A step begins. */
  begin(path: string, idempotencyKey: string): void;
  /** The tool is told what a step came to, or an answer. */
  toldStep(path: string): void;
  toldAnswer(answer: string): void;
}

const leaf = fc.oneof(
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('ask' as const), text: fc.nat(2) }) },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant('step' as const),
      fails: fc.boolean(),
      // One of them ends just as the asks beside it go out.
      takes: fc.constantFrom(0, 3, 40, 599.5, 700, 2_500),
      inside: fc.boolean(),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant('wait' as const), takes: fc.constantFrom(0, 5, 150) }),
  },
);

const rare = fc.constant<Plan>({ kind: 'throw' });

export const plans = fc.letrec<{ plan: Plan }>((tie) => ({
  plan: fc.oneof(
    { depthSize: 'small', withCrossShrink: true, maxDepth: 3 },
    { weight: 5, arbitrary: leaf },
    { weight: 4, arbitrary: group('sequence', tie('plan')) },
    { weight: 2, arbitrary: group('all', tie('plan')) },
    { weight: 1, arbitrary: group('race', tie('plan')) },
    { weight: 1, arbitrary: rare },
  ),
})).plan;

function group(kind: 'all' | 'sequence' | 'race', part: fc.Arbitrary<Plan>): fc.Arbitrary<Plan> {
  return fc.record({ kind: fc.constant(kind), parts: fc.array(part, { minLength: 1, maxLength: 4 }) });
}

/** Whether the result depends on nothing but the answers. */
export function isDeterministic(plan: Plan): boolean {
  return !has(plan, 'race');
}

/** Whether what wins a race, or is asked beside one, may depend on a timer, which no journal records. */
export function racesTimers(plan: Plan): boolean {
  return has(plan, 'race') && has(plan, 'wait');
}

function has(plan: Plan, kind: Plan['kind']): boolean {
  return plan.kind === kind || ('parts' in plan && plan.parts.some((part) => has(part, kind)));
}

export const answerTo = (text: string): JsonObject => ({ action: 'accept', content: { a: `re: ${text}` } });

const textOf = (text: number): string => `question ${text}`;

/** What a tool comes to whose result depends on nothing but the answers. */
export function expected(plan: Plan, path = 'r'): Json {
  switch (plan.kind) {
    case 'ask':
      return `re: ${textOf(plan.text)}`;
    case 'step':
      return plan.fails ? `Error: failed ${path}` : path;
    case 'wait':
      return 'waited';
    case 'throw':
      return 'Error: thrown';
    case 'all':
    case 'sequence':
      return plan.parts.map((part, nth) => expected(part, `${path}.${nth}`));
    case 'race':
      throw new Error('a race has no certain winner');
  }
}

/** Runs a plan in a frame, as a server's handler would. */
export function runPlan(root: Plan, frame: Frame, world: Surroundings): void {
  const ask = async (text: string): Promise<Json> => {
    const requestedSchema = { type: 'object', properties: { a: { type: 'string' } } };
    const params = { mode: 'form', message: text, requestedSchema };
    const response = await frame.ask('elicitation/create', params, { inContext: true });
    if ('error' in response) throw new Error(response.error.message);
    const { a } = response.result.content as { a: string };
    world.toldAnswer(a);
    return a;
  };
  const act = (plan: Extract<Plan, { kind: 'step' }>, path: string): Promise<Json> =>
    step(path, async ({ idempotencyKey }) => {
      world.begin(path, idempotencyKey);
      await world.wait(plan.takes);
      if (plan.inside) {
        await step('in', async (inner) => {
          world.begin(`${path}/in`, inner.idempotencyKey);
          await world.wait(plan.takes / 2);
        });
        world.toldStep(`${path}/in`);
      }
      if (plan.fails) throw new Error(`failed ${path}`);
      return path;
    })
      .catch((error: unknown) => String(error))
      .finally(() => world.toldStep(path));
  const run = async (plan: Plan, path: string): Promise<Json> => {
    switch (plan.kind) {
      case 'ask':
        return ask(textOf(plan.text));
      case 'step':
        return act(plan, path);
      case 'wait':
        await world.wait(plan.takes);
        return 'waited';
      case 'throw':
        return Promise.reject(new Error('thrown')).catch((error: unknown) => String(error));
      case 'all':
        return Promise.all(plan.parts.map((part, nth) => run(part, `${path}.${nth}`)));
      case 'race':
        return Promise.race(plan.parts.map((part, nth) => run(part, `${path}.${nth}`)));
      case 'sequence': {
        const results: Json[] = [];
        for (const [nth, part] of plan.parts.entries()) results.push(await run(part, `${path}.${nth}`));
        return results;
      }
    }
  };
  void runInContext(frame.context, async () => {
    try {
      frame.finish({ result: { value: await run(root, 'r') } });
    } catch (error) {
      frame.finish({ error: { code: -32603, message: String(error) } });
    }
  });
}
