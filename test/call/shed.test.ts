/** `shed()` and what sheds by itself: between steps, beside asks, in loops, and where a call becomes a task. */
import { describe, expect, it } from 'vitest';
import { shed } from '../../src/call/frame/context.ts';
import {
  accept,
  answers,
  BINDING,
  listening,
  MemoryStore,
  pause,
  requestContextOf,
  resultOf,
  start,
  suspended,
  type Tool,
  workbench,
} from './bench.ts';
import { begin, isOver, processOf, resultIn, taskLeg, taskOf, viewed, wish } from './tasks-bench.ts';

const LEG = requestContextOf({ sheds: true });
/** Longer than anything here takes. */
const soon = <T>(outcome: Promise<T>): Promise<T> =>
  Promise.race([
    outcome,
    pause(1_000).then(() => {
      throw new Error('it hangs');
    }),
  ]);

describe('a call that is given up', () => {
  it('continues after its last step wherever it comes to, as often as it is given up', async () => {
    const store = new MemoryStore();
    const effects: number[] = [];
    const tool: Tool = async ({ step }) => {
      for (let nth = 0; nth < 5; nth += 1) {
        await step('work', () => effects.push(nth));
        await shed();
      }
      return 'done';
    };
    let outcome = await start(workbench(tool, { store }).engine, LEG);
    let rounds = 0;
    for (; outcome.kind === 'suspended'; rounds += 1) {
      expect(outcome.asks).toEqual([]);
      outcome = await workbench(tool, { store }).engine.resume(outcome.token, BINDING, {}, LEG);
    }
    expect(resultOf(outcome)).toBe('done');
    expect([rounds, effects]).toEqual([5, [0, 1, 2, 3, 4]]);
  });

  it('becomes a task where its client would give up on it, and continues', async () => {
    const store = new MemoryStore();
    let turns = 0;
    const tool: Tool = async ({ step }) => {
      for (let nth = 0; nth < 6; nth += 1) {
        await step('work', () => nth);
        await shed();
      }
      return 'done';
    };
    const process = processOf(tool, store);
    let outcome = await soon(begin(process, wish({ when: 'late', rounds: 3 })).outcome);
    for (; outcome.kind === 'suspended'; turns += 1) {
      outcome = await soon(process.engine.resume(outcome.token, BINDING, {}, taskLeg()));
    }
    const id = taskOf(outcome);
    const seen = await soon(viewed(process, id, isOver));
    expect([turns, resultIn(seen.response)]).toEqual([2, 'done']);
  });

  it('has its open asks answered, and none asked twice', async () => {
    const store = new MemoryStore();
    const tool: Tool = async ({ elicit, step }) => {
      const both = Promise.all([
        elicit('one').then(({ content }) => content),
        step('work', () => 1).then(() => shed()),
      ]);
      const [content] = await both;
      return content;
    };
    let outcome = await soon(start(workbench(tool, { store }).engine, LEG));
    const keys: string[] = [];
    for (let round = 0; outcome.kind === 'suspended'; round += 1) {
      expect(round).toBeLessThan(4);
      keys.push(...outcome.asks.map(({ key }) => key));
      outcome = await soon(
        workbench(tool, { store }).engine.resume(outcome.token, BINDING, answers(suspended(outcome)), LEG),
      );
    }
    expect(resultOf(outcome)).toEqual({ a: 're: one' });
    expect(new Set(keys).size).toBe(keys.length);
  });

  it('waits for a step that is running, with all that is inside of it', async () => {
    const store = new MemoryStore();
    const effects: string[] = [];
    const tool: Tool = async ({ step }) => {
      let begin = (): void => {};
      const begun = new Promise<void>((resolve) => {
        begin = resolve;
      });
      const outer = step('outer', async () => {
        begin();
        await pause(5);
        await step('inner', () => effects.push('inner'));
        effects.push('outer');
      });
      await Promise.all([outer, Promise.race([begun, outer]).then(() => shed())]);
      return 'done';
    };
    const first = suspended(await soon(start(workbench(tool, { store }).engine, LEG)));
    expect(effects).toEqual(['inner', 'outer']);
    const next = workbench(tool, { store }).engine.resume(first.token, BINDING, {}, LEG);
    expect(resultOf(await soon(next))).toBe('done');
    expect(effects).toHaveLength(2);
  });

  it('waits for what is inside of a running step, where its process has too much to do', async () => {
    const store = new MemoryStore();
    const effects: string[] = [];
    const tool: Tool = async ({ step }) => {
      await step('first', () => effects.push('first'));
      await step('outer', async () => {
        await step('inner', () => effects.push('inner'));
        await pause(2);
        await step('inner', () => effects.push('inner 2'));
      });
      return 'done';
    };
    // It is late from its first step on.
    const bench = workbench(tool, { store, frame: { overloaded: () => true } });
    let outcome = await soon(start(bench.engine, LEG));
    for (let round = 0; outcome.kind === 'suspended'; round += 1) {
      expect(round).toBeLessThan(5);
      outcome = await soon(bench.engine.resume(outcome.token, BINDING, {}, LEG));
    }
    expect(resultOf(outcome)).toBe('done');
    expect(effects).toEqual(['first', 'inner', 'inner 2']);
  });

  it('is not, inside of a step, on a live context, and where its client does not bring it back', async () => {
    const inside: Tool = async ({ step }) => {
      await step('work', () => shed());
    };
    const { engine } = workbench(inside, { store: new MemoryStore() });
    expect(JSON.stringify(await start(engine, LEG))).toContain('calls shed() inside of itself');
    const store = new MemoryStore();
    const tool: Tool = async () => {
      await Promise.all([shed(), shed(), shed()]);
      return 'done';
    };
    for (const context of [listening().context, requestContextOf()]) {
      expect(resultOf(await soon(start(workbench(tool, { store }).engine, context)))).toBe('done');
    }
    expect(store.types()).toEqual([]);
  });

  it('twice at once comes to its end', async () => {
    const store = new MemoryStore();
    const tool: Tool = async ({ elicit }) => {
      await Promise.all([shed(), shed()]);
      return (await elicit('one')).content;
    };
    let outcome = await soon(start(workbench(tool, { store }).engine, LEG));
    for (let round = 0; outcome.kind === 'suspended'; round += 1) {
      expect(round).toBeLessThan(5);
      const given = Object.fromEntries(outcome.asks.map((ask) => [ask.key, accept(ask)]));
      outcome = await soon(workbench(tool, { store }).engine.resume(outcome.token, BINDING, given, LEG));
    }
    expect(resultOf(outcome)).toEqual({ a: 're: one' });
  });

  for (const how of ['shed()', 'an event loop that is late'] as const) {
    for (const isAsking of [false, true]) {
      const tail = isAsking ? ', and has an ask left' : '';
      it(`comes to its end before its client gives up on it, whatever its process has to do (${how}${tail})`, async () => {
        const store = new MemoryStore();
        const effects: number[] = [];
        const tool: Tool = async ({ step, elicit }) => {
          for (let nth = 0; nth < 15; nth += 1) {
            await step('work', () => effects.push(nth));
            if (how === 'shed()') await shed();
          }
          return isAsking ? (await elicit('one')).content : 'done';
        };
        const frame = { overloaded: () => how !== 'shed()' };
        let outcome = await soon(start(workbench(tool, { store, frame }).engine, LEG));
        let requests = 1;
        for (; outcome.kind === 'suspended'; requests += 1) {
          const { engine } = workbench(tool, { store, frame });
          outcome = await soon(engine.resume(outcome.token, BINDING, answers(suspended(outcome)), LEG));
        }
        expect(resultOf(outcome)).toEqual(isAsking ? { a: 're: one' } : 'done');
        expect(requests).toBeLessThanOrEqual(10);
        expect(effects).toEqual([...Array(15).keys()]);
      });
    }
  }

  it('too often is refused in words that say so', async () => {
    const store = new MemoryStore();
    const tool: Tool = async () => {
      for (;;) await shed();
    };
    const { engine, log } = workbench(tool, { store, limits: { rounds: 4 } });
    let outcome = await start(engine, LEG);
    let rounds = 0;
    for (; outcome.kind === 'suspended'; rounds += 1) {
      expect(rounds).toBeLessThan(6);
      outcome = await soon(engine.resume(outcome.token, BINDING, {}, LEG));
    }
    expect(JSON.stringify(outcome)).toContain('exceeds a limit');
    expect(log.map(({ message }) => message).join()).toContain('raise limits.rounds');
  });
});
