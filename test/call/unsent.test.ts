/** An ask that has not gone out within a second is a line in the log. */
import { describe, expect, it } from 'vitest';
import { type Clock, type JsonObject, systemClock, type Timer } from '../../src/base/values.ts';
import type { Frame } from '../../src/call/frame/frame.ts';
import { MemoryStore, requestContextOf, start, suspended, type Tool, until, workbench } from './bench.ts';

/** A clock whose one-second timers fire on command. */
function stoppedClock(): Clock & { second(): void } {
  const waiting = new Set<() => void>();
  return {
    ...systemClock,
    after: (milliseconds, fn) => {
      if (milliseconds !== 1_000) return systemClock.after(milliseconds, fn);
      waiting.add(fn);
      const timer: Timer = { cancel: () => waiting.delete(fn), unref: () => timer };
      return timer;
    },
    second: () => {
      for (const fn of [...waiting]) fn();
    },
  };
}

function told() {
  const lines: JsonObject[] = [];
  const warn = (message: string, detail: JsonObject): void => void lines.push({ message, ...detail });
  return { lines, warn };
}

const LINE = 'an ask has not gone out for a second';

describe('an ask that has not gone out', () => {
  it('since a step runs, is a line that says so, once', async () => {
    const clock = stoppedClock();
    const { lines, warn } = told();
    let asked = false;
    const tool: Tool = async ({ elicit, step }) => {
      const running = step('slow', () => new Promise(() => {}));
      asked = true;
      await Promise.all([running, elicit('one')]);
    };
    const { engine } = workbench(tool, { clock, frame: { clock, warn, askDelay: 60_000 } });
    void start(engine);
    await until(() => asked);
    await new Promise((resolve) => setTimeout(resolve, 20));
    clock.second();
    clock.second();
    expect(lines).toMatchObject([{ message: LINE, method: 'elicitation/create' }]);
    expect(lines[0]?.reason).toContain('a step runs');
  });

  it('since it was made behind the gate, is a line that says so', async () => {
    const clock = stoppedClock();
    const { lines, warn } = told();
    let goOn = (): void => {};
    const later = new Promise<void>((resolve) => {
      goOn = resolve;
    });
    const tool: Tool = async ({ elicit }) => {
      await Promise.all([elicit('one'), later.then(() => elicit('two'))]);
    };
    const { engine } = workbench(tool, { clock, frame: { clock, warn }, store: new MemoryStore() });
    suspended(await start(engine));
    goOn();
    await new Promise((resolve) => setTimeout(resolve, 5));
    clock.second();
    expect(lines).toMatchObject([{ message: LINE }]);
    expect(lines[0]?.reason).toContain('its turn has ended');
  });

  it('of a frame that is gone is a line at once', async () => {
    const { lines, warn } = told();
    let frame: Frame | undefined;
    const { engine } = workbench(async () => 'done', {
      frame: { warn },
      parts: {
        openInstance: async () => ({
          call: (called) => {
            frame = called;
            called.finish({ result: {} });
          },
          refresh() {},
          cancel() {},
          release() {},
        }),
      },
    });
    await start(engine, requestContextOf());
    void frame?.ask('elicitation/create', {}, { inContext: true });
    expect(lines).toMatchObject([{ method: 'elicitation/create' }]);
  });

  it('is no line where it went out', async () => {
    const clock = stoppedClock();
    const { lines, warn } = told();
    const { engine } = workbench(({ elicit }) => elicit('one'), { clock, frame: { clock, warn } });
    suspended(await start(engine));
    clock.second();
    expect(lines).toEqual([]);
  });
});
