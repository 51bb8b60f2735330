import { describe, expect, it, vi } from 'vitest';
import { systemClock } from '../../src/base/values.ts';
import {
  answers,
  BINDING,
  errorOf,
  MemoryStore,
  requestContextOf,
  resultOf,
  start,
  suspended,
  type Tool,
  workbench,
} from './bench.ts';

const idle = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 30));

function deferred(): { promise: Promise<string>; resolve: (value: string) => void } {
  let resolve: (value: string) => void = () => {};
  const promise = new Promise<string>((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
}

describe('a parked frame', () => {
  /** Ships when the user says so, cancels when `late` comes first. */
  const racing =
    (acts: string[], late: Promise<unknown>): Tool =>
    async ({ elicit, step }) => {
      const answer = await Promise.race([elicit('ship?'), late]);
      if (answer === 'late') return step('cancel', () => acts.push('cancel'));
      return step('ship', () => acts.push('ship'));
    };

  it('computes but does not act, and its turn has one outcome', async () => {
    const acts: string[] = [];
    const late = deferred();
    const { engine } = workbench(racing(acts, late.promise), { store: new MemoryStore() });
    const first = suspended(await start(engine));
    late.resolve('late');
    await idle();
    expect(acts).toEqual([]);
    resultOf(await engine.resume(first.token, BINDING, answers(first), requestContextOf()));
    expect(acts).toEqual(['cancel']);
  });

  it('does nothing any more when the turn is claimed elsewhere', async () => {
    const acts: string[] = [];
    const store = new MemoryStore();
    const late = deferred();
    const here = workbench(racing(acts, late.promise), { store });
    const there = workbench(racing(acts, new Promise(() => {})), { store });
    const first = suspended(await start(here.engine));
    late.resolve('late');
    await idle();
    resultOf(await there.engine.resume(first.token, BINDING, answers(first), requestContextOf()));
    const again = await here.engine.resume(first.token, BINDING, answers(first), requestContextOf());
    expect(resultOf(again)).toBe(1);
    await idle();
    expect(acts).toEqual(['ship']);
  });

  it('never runs a catch or a finally because of a suspend, a drop or a close', async () => {
    const ran: string[] = [];
    const tool: Tool = async ({ elicit }) => {
      try {
        await elicit('one');
        return 'done';
      } catch (error) {
        ran.push('catch');
        throw error;
      } finally {
        ran.push('finally');
      }
    };
    const { engine } = workbench(tool, { store: new MemoryStore(), limits: { frames: 0 } });
    const first = suspended(await start(engine));
    engine.close();
    await idle();
    expect(ran).toEqual([]);
    expect(first.asks).toHaveLength(1);
  });

  it('with onDrop unwind is severed first, and then its finally runs', async () => {
    const ran: string[] = [];
    const tool: Tool = async ({ elicit, step }) => {
      try {
        return await elicit('one');
      } finally {
        ran.push('finally');
        await step('too late', () => ran.push('step'));
      }
    };
    const { engine } = workbench(tool, {
      store: new MemoryStore(),
      limits: { frames: 0 },
      parts: { onDrop: 'unwind' },
    });
    suspended(await start(engine));
    await idle();
    expect(ran).toEqual(['finally']);
  });

  it('is not timed out, and arms no timer of its own', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'Date'] });
    try {
      const { engine } = workbench(({ elicit }) => elicit('one'), {
        store: new MemoryStore(),
        clock: systemClock,
      });
      const first = suspended(await start(engine));
      const timers = vi.getTimerCount();
      suspended(await start(engine));
      // One timer for all that is parked.
      expect(vi.getTimerCount()).toBe(timers);
      expect(timers).toBeLessThanOrEqual(1);
      vi.advanceTimersByTime(50 * 60_000);
      expect(
        resultOf(await engine.resume(first.token, BINDING, answers(first), requestContextOf())),
      ).toBeDefined();
    } finally {
      vi.useRealTimers();
    }
  });

  it('keeps the timeout its author passed as a deadline', async () => {
    let now = 0;
    const tool: Tool = async ({ ask }) =>
      ask('elicitation/create', { message: 'quick!' }, { timeout: 1_000 }).catch((error: unknown) =>
        String(error),
      );
    for (const frames of [100, 0]) {
      const { engine } = workbench(tool, {
        store: new MemoryStore(),
        clock: { ...systemClock, now: () => now },
        limits: { frames },
      });
      now = 0;
      const inTime = suspended(await start(engine));
      const late = suspended(await start(engine));
      now = 900;
      expect(
        resultOf(await engine.resume(inTime.token, BINDING, answers(inTime), requestContextOf())),
      ).toMatchObject({
        action: 'accept',
      });
      now = 1_100;
      expect(resultOf(await engine.resume(late.token, BINDING, answers(late), requestContextOf()))).toBe(
        'Error: Request timed out',
      );
    }
  });

  it('says what it had to say when its turn comes, once', async () => {
    const heard: string[] = [];
    let park = (): void => {};
    const parked = new Promise<void>((resolve) => {
      park = resolve;
    });
    const tool: Tool = async ({ elicit, notify }) => {
      const answer = elicit('one');
      await parked;
      notify('while parked');
      await answer;
      notify('after');
    };
    const { engine } = workbench(tool, { store: new MemoryStore() });
    const first = suspended(await start(engine, requestContextOf({ heard })));
    park();
    await idle();
    expect(heard).toEqual([]);
    await engine.resume(first.token, BINDING, answers(first), requestContextOf({ heard }));
    expect(heard).toEqual(['while parked', 'after']);
  });

  it('goes out beside a step that takes long, and the step is recorded all the same', async () => {
    const store = new MemoryStore();
    let finish: (value: string) => void = () => {};
    let runs = 0;
    const tool: Tool = ({ elicit, step }) =>
      Promise.all([
        elicit('meanwhile?'),
        step('long', () => {
          runs += 1;
          return new Promise<string>((resolve) => {
            finish = resolve;
          });
        }),
      ]);
    const benches = [
      workbench(tool, { store, frame: { askDelay: 10 } }),
      workbench(tool, { store }),
    ] as const;
    const first = suspended(await start(benches[0].engine));
    const elsewhere = benches[1].engine.resume(first.token, BINDING, answers(first), requestContextOf());
    await idle();
    finish('done');
    expect((resultOf(await elsewhere) as unknown[])[1]).toBe('done');
    expect(runs).toBe(1);
  });

  it('may not be replayed where the option replay says never', async () => {
    const { engine } = workbench(({ elicit }) => elicit('one'), {
      store: new MemoryStore(),
      limits: { frames: 0 },
      parts: { replay: () => 'never' },
    });
    const first = suspended(await start(engine));
    expect(errorOf(await engine.resume(first.token, BINDING, answers(first), requestContextOf())).code).toBe(
      -32603,
    );
  });
});
