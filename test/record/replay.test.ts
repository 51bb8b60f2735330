import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import '../../src/record/index.ts';
import type { Checkpoint, Entry } from '../../src/call/journal/entries.ts';
import {
  answers,
  BINDING,
  complete,
  errorOf,
  MemoryStore,
  requestContextOf,
  resultOf,
  start,
  suspended,
  type Tool,
  workbench,
} from '../call/bench.ts';

const GONE = { lease: 60, turnWait: 2_000 };

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 5));
}

function lastCheckpoint(store: MemoryStore): Checkpoint | undefined {
  const entries = [...store.entries.values()].map((text) => JSON.parse(text) as Entry);
  const last = entries.filter((entry) => entry.type === 'suspended').at(-1);
  return last?.type === 'suspended' ? last.checkpoint : undefined;
}

describe('a call that is replayed', () => {
  it('asks a question with a date and a random number in it once', async () => {
    const store = new MemoryStore();
    const asked: unknown[] = [];
    store.before = (entry) => {
      if (entry.type === 'suspended')
        asked.push(...entry.checkpoint.open.map(({ params }) => params.message));
    };
    const tool: Tool = async ({ elicit }) => {
      const order = randomUUID();
      await elicit(`Order ${order}, of ${new Date().toISOString()}?`);
      await elicit(`Lucky number ${Math.random()}?`);
      return order;
    };
    const benches = [1, 2].map(() => workbench(tool, { store }));
    let turn = 0;
    const next = () => (benches[++turn % 2] ?? workbench(tool)).engine;
    const order = resultOf(await complete(await start(next()), next));
    expect(asked).toHaveLength(2);
    expect(asked[0]).toContain(String(order));
  });

  it('draws in its place what each of two branches drew, whichever is first', async () => {
    const store = new MemoryStore();
    let delays = [1, 15];
    const tool: Tool = async ({ elicit }) => {
      const branch = async (name: string, delay: number | undefined) => {
        await new Promise((resolve) => setTimeout(resolve, delay));
        return `${name} ${randomUUID()}`;
      };
      const ids = await Promise.all([branch('a', delays[0]), branch('b', delays[1])]);
      await elicit(ids.join());
      return ids.join();
    };
    const first = suspended(await start(workbench(tool, { store }).engine));
    delays = [15, 1];
    const other = workbench(tool, { store });
    const result = resultOf(
      await other.engine.resume(first.token, BINDING, answers(first), requestContextOf()),
    );
    expect(result).toBe(first.asks[0]?.params.message);
  });

  it('draws for its tool alone, not for what writes its journal and sends its notifications', async () => {
    const store = new MemoryStore();
    store.before = () => void Math.random();
    const { engine } = workbench(
      async ({ elicit, notify, step }) => {
        // Until nothing is going on any more, so that it is the tool that sets it going.
        await new Promise((resolve) => setTimeout(resolve, 20));
        await step('one', () => 1);
        notify('hello');
        Date.now();
        await elicit('?');
      },
      { store },
    );
    suspended(await start(engine, requestContextOf({ notify: () => void Math.random() })));
    expect(Object.keys(lastCheckpoint(store)?.drawn ?? {})).toEqual([expect.stringMatching(/^now /)]);
  });

  it('draws afresh what its tool drew not before, and no more than that', async () => {
    const store = new MemoryStore();
    const old: Tool = async ({ elicit }) => {
      const draw = () => Math.random();
      const values = [draw()];
      await elicit('?');
      return values;
    };
    const first = suspended(await start(workbench(old, { store }).engine));
    const changed: Tool = async ({ elicit }) => {
      const values = [Math.random(), Math.random(), Date.now()];
      await elicit('?');
      return values;
    };
    const other = workbench(changed, { store });
    const outcome = await other.engine.resume(first.token, BINDING, answers(first), requestContextOf());
    const values = resultOf(outcome) as number[];
    expect(new Set(values).size).toBe(3);
    expect(other.log).toEqual([]);
  });
});

describe('a turn whose process dies', () => {
  it('is taken over with what was drawn before the step that is done, and before the one that was not', async () => {
    const store = new MemoryStore();
    const acted: string[] = [];
    let hang = true;
    const tool: Tool = async ({ elicit, step }) => {
      await Promise.resolve();
      const ids: string[] = [];
      for (const name of ['asked', 'order', 'mail']) {
        ids.push(randomUUID());
        const said = ids.join();
        if (name === 'asked') await elicit(said);
        else
          await step(name, async () => {
            acted.push(said);
            if (name === 'mail' && hang) await new Promise(() => {});
          });
      }
      return ids;
    };
    const owner = workbench(tool, { store: store.muted(), limits: GONE });
    const first = suspended(await start(owner.engine));
    void owner.engine.resume(first.token, BINDING, answers(first), requestContextOf());
    await until(() => acted.length === 2);
    hang = false;
    const other = workbench(tool, { store, limits: GONE });
    const result = resultOf(
      await other.engine.resume(first.token, BINDING, answers(first), requestContextOf()),
    );
    const [asked, order, mail] = result as string[];
    expect(first.asks[0]?.params.message).toBe(asked);
    expect(acted).toEqual([`${asked},${order}`, `${asked},${order},${mail}`, `${asked},${order},${mail}`]);
    expect(store.types()).toEqual([
      'suspended',
      'claimed',
      'drawn',
      'completed',
      'drawn',
      'claimed',
      'completed',
      'ended',
    ]);
  });
});

describe('what a call may draw', () => {
  const drawing: Tool = async ({ elicit }) => {
    for (let count = 0; count < 100; count += 1) Math.random();
    await elicit('?');
    return 'done';
  };

  it('is bounded: more than the journal may hold ends the call, with what to do', async () => {
    const { engine, log } = workbench(drawing, { frame: { maxDrawnBytes: 1_000 } });
    expect(errorOf(await start(engine))).toBeDefined();
    expect(log.map(({ message }) => message).join()).toContain('limits.journalBytes');
  });

  it('is not bounded for a tool that is not suspended any more', async () => {
    const { engine } = workbench(
      async () => {
        for (let count = 0; count < 100; count += 1) Math.random();
        return 'done';
      },
      { frame: { maxDrawnBytes: 1_000 } },
    );
    expect(resultOf(await start(engine))).toBe('done');
  });

  it('stands in the checkpoint once, however often the call is moved', async () => {
    const store = new MemoryStore();
    const tool: Tool = async ({ elicit, step }) => {
      const id = Math.random();
      await elicit('one');
      await step('mark', () => id);
      Math.random();
      await elicit('two');
    };
    const first = suspended(await start(workbench(tool, { store }).engine));
    const second = await workbench(tool, { store }).engine.resume(
      first.token,
      BINDING,
      answers(first),
      requestContextOf(),
    );
    suspended(second);
    expect(Object.values(lastCheckpoint(store)?.drawn ?? {}).map((values) => values.length)).toEqual([1, 1]);
  });
});
