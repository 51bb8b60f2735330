import { describe, expect, it } from 'vitest';
import {
  accept,
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
} from './bench.ts';

/** Starts with one version of a tool and goes on with another, as in a rolling upgrade. */
async function upgrade(before: Tool, after: Tool, frame = {}) {
  const store = new MemoryStore();
  const [old, fresh] = [workbench(before, { store, frame }), workbench(after, { store, frame })];
  const first = suspended(await start(old.engine));
  const next = await fresh.engine.resume(first.token, BINDING, answers(first), requestContextOf());
  return { first, next, fresh };
}

const LOGIN = { login: { type: 'string' } };

describe('a tool whose branch is slower in a replay than it was live', () => {
  it('is waited for where another branch attempts a new step meanwhile', async () => {
    const done: string[] = [];
    const booking =
      (slowness: number): Tool =>
      async ({ elicit, step }) => {
        const paying = (async () => {
          // A request that no journal has, several times as long as `replayGrace`.
          if (slowness > 0) await new Promise((resolve) => setTimeout(resolve, slowness));
          return step('pay', () => void done.push('pay'));
        })();
        const seat = elicit('which seat?').then(() => step('reserve', () => void done.push('reserve')));
        await Promise.all([paying, seat]);
        return 'booked';
      };
    const { next } = await upgrade(booking(0), booking(200), { replayGrace: 30 });
    expect(resultOf(next)).toBe('booked');
    expect(done).toEqual(['pay', 'reserve']);
  });
});

describe('one question that is asked twice at once', () => {
  it('has the answer of each given to its own branch again, whichever came first', async () => {
    const done: string[] = [];
    const store = new MemoryStore();
    const tool: Tool = async ({ elicit, step }) => {
      const branch = async (name: string) => {
        await elicit('which?');
        await step(name, () => void done.push(name));
      };
      await Promise.all([branch('one'), branch('two')]);
    };
    const [here, there] = [workbench(tool, { store }), workbench(tool, { store })];
    const first = suspended(await start(here.engine));
    const [one, two] = first.asks;
    if (one === undefined || two === undefined) throw new Error('two asks');
    const later = await here.engine.resume(
      first.token,
      BINDING,
      { [two.key]: accept(two) },
      requestContextOf(),
    );
    expect(done).toEqual(['two']);
    const second = suspended(later);
    expect(second.asks.map(({ key }) => key)).toEqual([one.key]);
    resultOf(await there.engine.resume(second.token, BINDING, answers(second), requestContextOf()));
    expect(done).toEqual(['two', 'one']);
  });
});

describe('a tool that changed while its call was suspended', () => {
  it('asks only for what is missing', async () => {
    const { first, next, fresh } = await upgrade(
      ({ elicit }) => Promise.all([elicit('GitHub login?', LOGIN), elicit('Google login?', LOGIN)]),
      ({ elicit }) => Promise.all([elicit('GitHub login?', LOGIN), elicit('Microsoft login?', LOGIN)]),
    );
    const second = suspended(next);
    expect(second.asks.map((ask) => ask.params.message)).toEqual(['Microsoft login?']);
    expect(first.asks.map((ask) => ask.key)).not.toContain(second.asks[0]?.key);
    const done = await fresh.engine.resume(second.token, BINDING, answers(second), requestContextOf());
    expect(resultOf(done)).toMatchObject([
      { content: { a: 're: GitHub login?' } },
      { content: { a: 're: Microsoft login?' } },
    ]);
  });

  it('asks nothing again when its questions changed places, or one is gone', async () => {
    const swapped = await upgrade(
      ({ elicit }) => Promise.all([elicit('a?'), elicit('b?')]),
      async ({ elicit }) => (await Promise.all([elicit('b?'), elicit('a?')])).reverse(),
    );
    expect(resultOf(swapped.next)).toMatchObject([
      { content: { a: 're: a?' } },
      { content: { a: 're: b?' } },
    ]);
    const gone = await upgrade(
      ({ elicit }) => Promise.all([elicit('a?'), elicit('b?')]),
      ({ elicit }) => elicit('b?'),
    );
    expect(resultOf(gone.next)).toMatchObject({ content: { a: 're: b?' } });
  });

  it('is refused when a step was renamed, and the new name does not run', async () => {
    const ran: string[] = [];
    const { next, fresh } = await upgrade(
      async ({ step, elicit }) => [await step('charge', () => ran.push('charge')), await elicit('sure?')],
      async ({ step, elicit }) => [await step('bill', () => ran.push('bill')), await elicit('sure?')],
    );
    expect(errorOf(next)).toMatchObject({ code: -32603 });
    expect(errorOf(next).message).toContain('Completed steps: charge');
    expect(errorOf(next).message).not.toContain('call the tool again');
    expect(ran).toEqual(['charge']);
    expect(fresh.log.find(({ level }) => level === 'error')?.message).toMatch(/bill.*charge/);
  });

  it('is refused when one key is asked by another method', async () => {
    const meta = { _meta: { 'mcp-await/key': 'k' } };
    const { next } = await upgrade(
      ({ ask }) => ask('elicitation/create', { ...meta, message: 'x' }),
      ({ ask }) => ask('sampling/createMessage', { ...meta, messages: [] }),
    );
    expect(errorOf(next).code).toBe(-32603);
  });
});

describe('a process that has not the tool', () => {
  const asks: Tool = async ({ elicit, step }) => {
    await step('pay', () => {});
    return (await elicit('sure?')).content;
  };
  const lacks: Tool = async () => {
    throw Object.assign(new Error('no such tool'), { code: -32602 });
  };

  it.each([
    ['in a store', { store: new MemoryStore() }],
    ['in its token', { carry: true }],
  ])('refuses the request that brings a call back, which goes on elsewhere: %s', async (_, options) => {
    const [old, fresh] = [workbench(lacks, options), workbench(asks, options)];
    const first = suspended(await start(fresh.engine));
    const again = (process: typeof old) =>
      process.engine.resume(first.token, BINDING, answers(first), requestContextOf());
    for (const refusal of [await again(old), await again(old)])
      expect(errorOf(refusal)).toMatchObject({ code: -32602, message: 'Error: no such tool' });
    expect(old.counts.released).toBe(2);
    expect(resultOf(await again(workbench(asks, options)))).toEqual({ a: 're: sure?' });
  });

  it('ends a call whose tool itself fails: that is no refusal', async () => {
    const store = new MemoryStore();
    const fails: Tool = () => Promise.reject(new Error('taken'));
    const first = suspended(await start(workbench(asks, { store }).engine));
    const again = (tool: Tool) =>
      workbench(tool, { store }).engine.resume(first.token, BINDING, answers(first), requestContextOf());
    expect(errorOf(await again(fails)).message).toBe('Error: taken');
    expect(errorOf(await again(asks)).message).toBe('Error: taken');
  });

  it('ends a call that failed before it asked anything', async () => {
    const { engine } = workbench(lacks, { store: new MemoryStore() });
    expect(errorOf(await start(engine)).code).toBe(-32602);
  });
});

describe('a question that reads otherwise on each run', () => {
  let clock = 0;
  const dated: Tool = async ({ elicit }) => {
    const answer = await elicit(`It is ${clock++}. Go on?`);
    return [answer, await elicit('Really?', LOGIN)];
  };

  it('is no drift while the frame is kept', async () => {
    const { engine } = workbench(dated, { store: new MemoryStore() });
    expect(resultOf(await complete(await start(engine), () => engine))).toHaveLength(2);
  });

  it('is asked again once, and a second change ends the call', async () => {
    const { engine, log } = workbench(dated, { store: new MemoryStore(), limits: { frames: 0 } });
    const first = suspended(await start(engine));
    const again = suspended(await engine.resume(first.token, BINDING, answers(first), requestContextOf()));
    expect(again.asks[0]?.params.message).not.toBe(first.asks[0]?.params.message);
    expect(again.asks[0]?.key).not.toBe(first.asks[0]?.key);
    const ended = await engine.resume(again.token, BINDING, answers(again), requestContextOf());
    expect(errorOf(ended).code).toBe(-32603);
    expect(log.at(-1)?.message).toContain("drift: 'reuse'");
  });

  it("is answered by the first answer where drift is 'reuse', and ends at once where it is 'fail'", async () => {
    const reuse = workbench(dated, {
      store: new MemoryStore(),
      limits: { frames: 0 },
      frame: { drift: 'reuse' },
    });
    expect(resultOf(await complete(await start(reuse.engine), () => reuse.engine))).toHaveLength(2);
    const fail = workbench(dated, {
      store: new MemoryStore(),
      limits: { frames: 0 },
      frame: { drift: 'fail' },
    });
    expect(errorOf(await complete(await start(fail.engine), () => fail.engine)).code).toBe(-32603);
  });

  it('is no drift when the date comes from a step', async () => {
    const steady: Tool = async ({ elicit, step }) => {
      const now = await step('now', () => clock++);
      return [await elicit(`It is ${now}. Go on?`), await elicit('Really?', LOGIN)];
    };
    const { engine } = workbench(steady, { store: new MemoryStore(), limits: { frames: 0 } });
    expect(
      resultOf(
        await complete(
          await start(engine),
          () => engine,
          (ask) => accept(ask),
        ),
      ),
    ).toHaveLength(2);
  });
});
