/** Random tools: asks and steps in sequence, in parallel, or in a race. */
import fc from 'fast-check';
import type { Json, JsonObject } from '../../src/base/values.ts';
import { runInContext, step } from '../../src/call/frame/context.ts';
import type { Frame } from '../../src/call/frame/frame.ts';

export type Plan =
  | { readonly kind: 'ask'; readonly text: number }
  | {
      readonly kind: 'step';
      readonly ends: Ends;
      /** In milliseconds, or until the tool is given its first answer. */
      readonly takes: number | 'answer';
      readonly inside: boolean;
    }
  /** Throws -32042 until its URL was opened. */
  | { readonly kind: 'url' }
  | { readonly kind: 'wait'; readonly takes: number }
  | { readonly kind: 'throw' }
  | { readonly kind: 'all' | 'sequence' | 'race'; readonly parts: readonly Plan[] };

/** How a step ends: with its path, an error, or a value that is hard to record. */
type Ends = 'well' | 'badly' | 'without JSON' | 'with an unreadable error' | 'with a BigInt for a message';

/** The parts of its world that a tool may use. */
export interface Surroundings {
  wait(milliseconds: number): Promise<void>;
  /** A step begins. */
  begin(path: string, idempotencyKey: string): void;
  /** The tool gets a step's outcome, or an answer. */
  toldStep(path: string): void;
  toldAnswer(answer: string): void;
  /** Whether the user was at a URL. */
  wasAt(url: string): boolean;
}

const leaf = fc.oneof(
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('ask' as const), text: fc.nat(2) }) },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant('step' as const),
      ends: fc.constantFrom<Ends[]>(
        'well',
        'well',
        'well',
        'badly',
        'without JSON',
        'with an unreadable error',
        'with a BigInt for a message',
      ),
      // One of them ends just as the asks beside it go out; one among the answers of a turn.
      takes: fc.constantFrom<(number | 'answer')[]>(0, 3, 40, 599.5, 700, 2_500, 'answer'),
      inside: fc.boolean(),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant('wait' as const), takes: fc.constantFrom(0, 5, 150) }),
  },
);

const rare = fc.constantFrom<Plan[]>({ kind: 'throw' }, { kind: 'url' });

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

export function has(plan: Plan, kind: Plan['kind']): boolean {
  return plan.kind === kind || ('parts' in plan && plan.parts.some((part) => has(part, kind)));
}

export const answerTo = (text: string): JsonObject => ({ action: 'accept', content: { a: `re: ${text}` } });

/**
 * Equal questions of branches whose order a timer decides cannot be told apart by anybody: there each has words of its
 * own, as `docs/guarantees.md` asks for.
 */
const textOf = (text: number, path: string, root: Plan): string =>
  has(root, 'wait') ? `question ${path}` : `question ${text}`;

/** The outcome of a tool whose result depends on its answers alone. */
export function expected(plan: Plan, path = 'r', root = plan): Json {
  switch (plan.kind) {
    case 'ask':
      return `re: ${textOf(plan.text, path, root)}`;
    case 'step':
      return outcomeOf(plan.ends, path);
    case 'url':
      return 'opened';
    case 'wait':
      return 'waited';
    case 'throw':
      return 'Error: thrown';
    case 'all':
    case 'sequence':
      return plan.parts.map((part, nth) => expected(part, `${path}.${nth}`, root));
    case 'race':
      throw new Error('a race has no certain winner');
  }
}

/** What the tool gets of a step: the same live and replayed. */
function outcomeOf(ends: Ends, path: string): string {
  switch (ends) {
    case 'well':
      return path;
    case 'badly':
      return `Error: failed ${path}`;
    case 'without JSON':
      return 'step-not-json';
    case 'with an unreadable error':
      return 'Error: a value that cannot be read was thrown';
    case 'with a BigInt for a message':
      return 'Error: 1';
  }
}

function endStep(ends: Ends, path: string): unknown {
  switch (ends) {
    case 'well':
      return path;
    case 'badly':
      throw new Error(`failed ${path}`);
    case 'without JSON':
      return 1n;
    case 'with an unreadable error':
      throw Object.create(null);
    case 'with a BigInt for a message':
      throw Object.assign(new Error(), { message: 1n });
  }
}

const codeOf = (error: unknown): string =>
  error instanceof Error && 'code' in error ? String(error.code) : String(error);

/** The error of a tool that needs its user at a URL. */
class UrlNeeded extends Error {
  readonly code = -32042;
  readonly data: JsonObject;

  constructor(url: string) {
    super('needs a URL');
    this.data = { elicitations: [{ message: url, url, elicitationId: url }] };
  }
}

/** Runs a plan in a frame, as a server's handler would. */
export function runPlan(root: Plan, frame: Frame, world: Surroundings): void {
  let onAnswer = (): void => {};
  const answered = new Promise<void>((resolve) => {
    onAnswer = resolve;
  });
  const last = (takes: number | 'answer', part = 1): Promise<void> =>
    takes === 'answer' ? Promise.race([answered, world.wait(3_000)]) : world.wait(takes * part);
  const ask = async (text: string): Promise<Json> => {
    const requestedSchema = { type: 'object', properties: { a: { type: 'string' } }, required: ['a'] };
    const params = { mode: 'form', message: text, requestedSchema };
    const response = await frame.ask('elicitation/create', params, { inContext: true });
    if ('error' in response) throw new Error(response.error.message);
    const { a } = response.result.content as { a: string };
    world.toldAnswer(a);
    onAnswer();
    return a;
  };
  const act = (plan: Extract<Plan, { kind: 'step' }>, path: string): Promise<Json> =>
    step(path, async ({ idempotencyKey }) => {
      world.begin(path, idempotencyKey);
      await last(plan.takes);
      if (plan.inside) {
        await step('in', async (inner) => {
          world.begin(`${path}/in`, inner.idempotencyKey);
          await last(plan.takes, 0.5);
        });
        world.toldStep(`${path}/in`);
      }
      return endStep(plan.ends, path);
    })
      .then(String, codeOf)
      .then((outcome) => {
        // Of a call that its client gave up nothing is begun any more.
        if (outcome !== 'call-over') world.toldStep(path);
        return outcome;
      });
  const run = async (plan: Plan, path: string): Promise<Json> => {
    switch (plan.kind) {
      case 'ask':
        return ask(textOf(plan.text, path, root));
      case 'step':
        return act(plan, path);
      case 'wait':
        await world.wait(plan.takes);
        return 'waited';
      case 'throw':
        return Promise.reject(new Error('thrown')).catch((error: unknown) => String(error));
      case 'all':
        return Promise.all(plan.parts.map((part, nth) => run(part, `${path}.${nth}`)));
      case 'race': {
        const parts = plan.parts.map(async (part, nth) => ({
          nth,
          value: await run(part, `${path}.${nth}`),
        }));
        const { nth, value } = await Promise.race(parts);
        // Its next act depends on the winner.
        const won = `${path}.won by ${nth}`;
        await act({ kind: 'step', ends: 'well', takes: 0, inside: false }, won);
        return value;
      }
      case 'url':
        if (!world.wasAt(path)) throw new UrlNeeded(path);
        return 'opened';
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
      const { code, data } = error instanceof UrlNeeded ? error : { code: -32603, data: {} };
      frame.finish({ error: { code, message: String(error), data } });
    }
  });
}
