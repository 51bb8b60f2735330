/** Tasks of random tools among processes that die, sleep, and are asked at random. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Entry } from '../../src/call/journal/entries.ts';
import type { TaskStatus, TaskView } from '../../src/call/task/tasks.ts';
import { MemoryStore, pause, type Tool, type ToolApi } from './bench.ts';
import {
  accepted,
  begin,
  isOver,
  LEASE,
  type Process,
  processOf,
  sweep,
  taskOf,
  update,
  view,
  wish,
} from './tasks-bench.ts';

type Plan =
  | { readonly kind: 'ask' }
  | { readonly kind: 'step' }
  | { readonly kind: 'nested' }
  | { readonly kind: 'tick' }
  | { readonly kind: 'all' | 'sequence'; readonly parts: readonly Plan[] };

const plan = fc.letrec<{ plan: Plan }>((tie) => ({
  plan: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    fc.constantFrom<Plan>({ kind: 'ask' }, { kind: 'step' }, { kind: 'nested' }, { kind: 'tick' }),
    fc.record({
      kind: fc.constantFrom('all' as const, 'sequence' as const),
      parts: fc.array(tie('plan'), { minLength: 1, maxLength: 4 }),
    }),
  ),
})).plan;

type Move = { readonly kind: 'die' | 'sleep' | 'answer' | 'wait'; readonly whose: number };

const moves = fc.array(
  fc.record({
    kind: fc.constantFrom('die' as const, 'sleep' as const, 'answer' as const, 'wait' as const),
    whose: fc.nat(2),
  }),
  { maxLength: 12 },
);

function toolOf(root: Plan, effects: string[]): Tool {
  const run = async (part: Plan, path: string, api: ToolApi): Promise<unknown> => {
    switch (part.kind) {
      case 'ask':
        return (await api.elicit(`question ${path}`)).content;
      case 'step':
        return api.step(path, async () => {
          effects.push(path);
          await pause(0);
          return path;
        });
      case 'nested':
        return api.step(path, async () => {
          effects.push(path);
          await api.step('inner', () => void effects.push(`${path}/inner`));
          return path;
        });
      case 'tick':
        return pause(1).then(() => 'tick');
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

/** The outcome of a tool that is not disturbed. */
function wanted(part: Plan, path = 'root'): unknown {
  if (part.kind === 'ask') return { a: `re: question ${path}` };
  if (part.kind === 'tick') return 'tick';
  if (part.kind === 'step' || part.kind === 'nested') return path;
  return part.parts.map((inner, index) => wanted(inner, `${path}.${index}`));
}

const ENDS: ReadonlySet<TaskStatus> = new Set(['completed', 'failed', 'cancelled']);

async function runTask(root: Plan, schedule: readonly Move[], when: 'now' | 'late'): Promise<TaskView> {
  const store = new MemoryStore(LEASE);
  const effects: string[] = [];
  const tool = toolOf(root, effects);
  const processes: Process[] = [0, 1, 2].map(() => processOf(tool, store));
  const at = (whose: number): Process => processes[whose] as Process;
  let disturbed = 0;
  const answered = new Set<string>();
  let last: TaskStatus = 'working';
  const task = wish(when === 'now' ? {} : { when, after: 0, rounds: 1, always: true });
  const id = taskOf(await begin(at(0), task).outcome);
  const look = async (whose: number): Promise<TaskView> => {
    const seen = await view(at(whose), id);
    if (ENDS.has(last)) expect(seen.status).toBe(last);
    last = seen.status;
    for (const { key } of seen.asks) expect(answered.has(key)).toBe(false);
    return seen;
  };
  const answer = async (whose: number): Promise<void> => {
    const { asks } = await look(whose);
    const some = asks.slice(0, 1 + (asks.length % 2));
    await update(at(whose), id, accepted(some));
    for (const { key } of some) answered.add(key);
  };
  const takeUp = async (): Promise<void> => {
    if (processes.some(({ engine }) => engine.tasks?.runs(id))) return;
    await Promise.all(processes.map((process) => sweep(process, id)));
  };
  for (const { kind, whose } of schedule) {
    if (kind === 'die') {
      at(whose).die();
      disturbed += 1;
      processes[whose] = processOf(tool, store);
    } else if (kind === 'sleep') {
      const slept = at(whose);
      slept.sleep();
      disturbed += 1;
      await pause(LEASE);
      const others = processes.filter((process) => process !== slept);
      // A sweeper takes no task whose owner gives signs of life.
      if (!others.some(({ engine }) => engine.tasks?.runs(id)))
        await Promise.all(others.map((process) => sweep(process, id)));
      slept.wake();
    } else if (kind === 'answer') {
      await answer(whose);
    } else {
      await pause(3);
    }
    if (kind === 'die') await takeUp();
  }
  for (let tries = 0; ; tries += 1) {
    const seen = await look(tries % 3);
    if (isOver(seen)) {
      const done = [...store.entries.values()].flatMap((text) => {
        const entry = JSON.parse(text) as Entry;
        return entry.type === 'completed' ? [JSON.stringify(entry.completion)] : [];
      });
      expect(new Set(done).size).toBe(done.length);
      // Each disturbance may cut off what runs at that time, and nothing else is done twice.
      expect(effects.length === new Set(effects).size || disturbed > 0).toBe(true);
      for (const process of processes) expect((await view(process, id)).response).toEqual(seen.response);
      return seen;
    }
    if (tries > 300) throw new Error(`it hangs: ${store.types().join()} ${JSON.stringify(seen)}`);
    await answer(tries % 3);
    await pause(2);
    await takeUp();
  }
}

describe('a task of any tool', () => {
  it('has the same result whatever becomes of its processes', async () => {
    await fc.assert(
      fc.asyncProperty(
        plan,
        moves,
        fc.constantFrom('now' as const, 'late' as const),
        async (root, schedule, when) => {
          const seen = await runTask(root, schedule, when);
          expect(seen.response).toEqual({ result: { value: wanted(root) } });
        },
      ),
      { numRuns: 60, interruptAfterTimeLimit: 20_000 },
    );
  });
});
