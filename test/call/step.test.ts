import { describe, expect, it } from 'vitest';
import { step } from '../../src/index.ts';
import { complete, MemoryStore, resultOf, start, type Tool, workbench } from './bench.ts';

/** Runs a tool with a frame that is kept, and with one led through the journal at every turn. */
async function bothWays(tool: Tool): Promise<unknown[]> {
  const results: unknown[] = [];
  for (const frames of [100, 0]) {
    const { engine } = workbench(tool, { store: new MemoryStore(), limits: { frames } });
    results.push(resultOf(await complete(await start(engine), () => engine)));
  }
  return results;
}

describe('step', () => {
  it('outside of a call just runs, with a key of its own', async () => {
    const keys = await Promise.all([1, 2].map(() => step('x', ({ idempotencyKey }) => idempotencyKey)));
    expect(new Set(keys).size).toBe(2);
  });

  it('gives the same bytes live and replayed: results are copies through JSON', async () => {
    const [live, replayed] = await bothWays(async ({ step, elicit }) => {
      const value = await step('x', () => ({ a: undefined, b: [1, null], __proto__: null }));
      (value.b as unknown[]).push('changed by the tool');
      await elicit('one');
      return { value, keys: Object.keys(value), nothing: await step('nothing', () => {}) };
    });
    expect(live).toEqual(replayed);
    expect(live).toMatchObject({ keys: ['b'], value: { b: [1, null, 'changed by the tool'] } });
  });

  it('throws the same error live and replayed', async () => {
    const [live, replayed] = await bothWays(async ({ step, elicit }) => {
      const failing = (): never => {
        throw Object.assign(new RangeError('no'), { code: 'E_NO', data: { left: 1 } });
      };
      const describeError = (error: Error & { code?: string; data?: unknown }) => [
        error.name,
        error.message,
        error.code,
        error.data,
      ];
      const first = await step('x', failing).catch(describeError);
      await elicit('one');
      return [first, await step('x', failing).catch(describeError)];
    });
    expect(live).toEqual(replayed);
    expect(live).toMatchObject([
      ['RangeError', 'no', 'E_NO', { left: 1 }],
      ['RangeError', 'no', 'E_NO', { left: 1 }],
    ]);
  });

  it('counts names in sequence, and refuses two open ones of one name', async () => {
    let runs = 0;
    const [live, replayed] = await bothWays(async ({ step, elicit }) => {
      const first = [await step('x', () => ++runs), await step('x', () => ++runs)];
      await elicit('one');
      const twins = await Promise.allSettled([step('y', () => 'kept'), step('y', () => 'refused')]);
      return [
        first.length,
        twins.map((twin) => (twin.status === 'fulfilled' ? twin.value : twin.reason.code)),
      ];
    });
    expect(live).toEqual([2, ['kept', 'duplicate-step']]);
    expect(replayed).toEqual(live);
    expect(runs).toBe(4);
  });

  it('that the tool begins as it returns is run and recorded before the call ends', async () => {
    const ran: string[] = [];
    const tool: Tool = async ({ step, elicit }) => {
      await elicit('one');
      const audited = step('audit', () => ran.push('audit')).then(() => ran.push('settled'));
      void audited;
      return 'done';
    };
    const store = new MemoryStore();
    const { engine } = workbench(tool, { store });
    expect(resultOf(await complete(await start(engine), () => engine))).toBe('done');
    expect(ran).toEqual(['audit', 'settled']);
    expect(store.types().slice(-2)).toEqual(['completed', 'ended']);
  });

  it('that a tool begins after its call has ended rejects, and ends no process where nobody awaits it', async () => {
    const later: Promise<unknown>[] = [];
    const unhandled: unknown[] = [];
    const note = (reason: unknown): void => void unhandled.push(reason);
    process.on('unhandledRejection', note);
    let go = (): void => {};
    const gone = new Promise<void>((resolve) => {
      go = resolve;
    });
    const { engine } = workbench(async ({ step }) => {
      void gone.then(() => {
        void step('floating', () => {});
        later.push(step('late', () => {}));
      });
      return 'done';
    });
    expect(resultOf(await start(engine))).toBe('done');
    go();
    await new Promise((resolve) => setTimeout(resolve, 20));
    process.off('unhandledRejection', note);
    await expect(later[0]).rejects.toMatchObject({ code: 'call-over' });
    expect(unhandled).toEqual([]);
  });

  it('nests by path, and what is inside of a done step is not run again', async () => {
    const ran: string[] = [];
    const [live, replayed] = await bothWays(async ({ step, elicit }) => {
      const inside = await step('outer', async () => {
        ran.push('outer');
        return [await step('inner', () => ran.push('inner')), await step('inner', () => ran.push('inner'))]
          .length;
      });
      await elicit('one');
      return [inside, await step('inner', () => 'of its own')];
    });
    expect(live).toEqual([2, 'of its own']);
    expect(replayed).toEqual(live);
    expect(ran).toEqual(['outer', 'inner', 'inner', 'outer', 'inner', 'inner']);
  });

  it('refuses asks inside of itself, at once', async () => {
    const [live] = await bothWays(async ({ step, elicit }) =>
      step('x', () => elicit('inside')).catch((error: { code: string }) => error.code),
    );
    expect(live).toBe('ask-in-step');
  });

  it('records a result that is no JSON as done, and then throws', async () => {
    for (const value of [
      new Date(0),
      new Map(),
      1n,
      Number.NaN,
      () => 1,
      { deep: [new Set()] },
      Symbol('x'),
    ]) {
      let runs = 0;
      const [live, replayed] = await bothWays(async ({ step, elicit }) => {
        const attempt = () =>
          step('x', () => {
            runs += 1;
            return value;
          }).then(
            () => 'kept',
            (error: { code: string }) => error.code,
          );
        const code = await attempt();
        await elicit('one');
        return code;
      });
      expect([live, replayed]).toEqual(['step-not-json', 'step-not-json']);
      expect(runs).toBe(2);
    }
  });

  it('has one idempotency key for its life, and another for each name', async () => {
    const keys = new Map<string, Set<string>>();
    const note =
      (name: string) =>
      ({ idempotencyKey }: { idempotencyKey: string }) => {
        keys.set(name, (keys.get(name) ?? new Set()).add(idempotencyKey));
      };
    await bothWays(async ({ step, elicit }) => {
      await step('a', note('a'));
      await step('a', note('a again'));
      await elicit('one');
      await step('b', note('b'));
    });
    const all = [...keys.values()].flatMap((set) => [...set]);
    expect(new Set(all).size).toBe(all.length);
    expect(all).toHaveLength(6);
  });
});
