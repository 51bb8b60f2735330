/** What an attack on the engine found once: each of these lost, repeated or mixed up something. */
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
  pause as sleep,
  start,
  suspended,
  type Tool,
  workbench,
  wrapped,
} from './bench.ts';

/** The same store, as a process sees it that is slow to reach it. */
function slow(store: MemoryStore, verb: 'read' | 'append', ms: number): MemoryStore {
  if (verb === 'read') {
    return Object.create(store, {
      read: { value: (call: string, at: number) => sleep(ms).then(() => store.read(call, at)) },
    });
  }
  const open: MemoryStore['open'] = (call, after) => {
    return wrapped(store.open(call, after), { write: (run) => sleep(ms).then(run) });
  };
  return Object.create(store, { open: { value: open } });
}

describe('branches that wait for something that is not journaled', () => {
  it('are given time on replay: no step goes to another branch', async () => {
    const effects: string[] = [];
    const tool: Tool = ({ elicit, step }) =>
      Promise.all([
        sleep(15).then(() => step('charge', () => effects.push('a'))),
        (async () => {
          await elicit('one');
          await elicit('two');
          return step('charge', () => effects.push('b'));
        })(),
      ]);
    const store = new MemoryStore();
    const [here, there] = [workbench(tool, { store }), workbench(tool, { store })];
    const first = suspended(await start(here.engine));
    await sleep(40);
    const second = suspended(
      await here.engine.resume(first.token, BINDING, answers(first), requestContextOf()),
    );
    resultOf(await there.engine.resume(second.token, BINDING, answers(second), requestContextOf()));
    expect(effects).toEqual(['a', 'b']);
  });

  it('get their own answers, and no question is asked twice', async () => {
    for (const drift of ['ask', 'reuse'] as const) {
      const tool: Tool = async ({ elicit }) => {
        const [size, rest] = await Promise.all([
          sleep(15).then(() => elicit('size?')),
          (async () => [await elicit('colour?'), await elicit('shape?'), await elicit('material?')])(),
        ]);
        return [size, ...rest].map((answer) => (answer.content as { a: string }).a);
      };
      const { engine } = workbench(tool, {
        store: new MemoryStore(),
        limits: { frames: 0 },
        frame: { drift },
      });
      const asked: string[] = [];
      const outcome = await complete(
        await start(engine),
        () => engine,
        (ask) => {
          asked.push(String(ask.params.message));
          return accept(ask);
        },
      );
      expect(resultOf(outcome)).toEqual(['re: size?', 're: colour?', 're: shape?', 're: material?']);
      expect(asked.sort()).toEqual(['colour?', 'material?', 'shape?', 'size?']);
    }
  });
});

describe('a step', () => {
  it('that was cut off after a step inside of it completed runs again, and the inner one does not', async () => {
    const store = new MemoryStore();
    const ran: string[] = [];
    const tool: Tool = async ({ elicit, step }) => {
      await elicit('go?');
      return step('outer', async () => {
        ran.push('outer');
        return step('inner', () => ran.push('inner'));
      });
    };
    const { engine } = workbench(tool, { store });
    const first = suspended(await start(engine));
    let down = true;
    store.before = (entry) => {
      if (
        down &&
        entry.type === 'completed' &&
        entry.completion.kind === 'step' &&
        entry.completion.path === 'outer'
      ) {
        throw new Error('down');
      }
    };
    expect(
      errorOf(await engine.resume(first.token, BINDING, answers(first), requestContextOf())).message,
    ).toContain('again');
    down = false;
    expect(resultOf(await engine.resume(first.token, BINDING, answers(first), requestContextOf()))).toBe(2);
    expect(ran).toEqual(['outer', 'inner', 'outer']);
  });

  it('that could not be recorded while its frame was parked leaves the call good', async () => {
    const store = new MemoryStore();
    const tool: Tool = ({ elicit, step }) =>
      Promise.all([elicit('meanwhile?'), step('long', () => sleep(40))]);
    const { engine, counts } = workbench(tool, { store, frame: { askDelay: 5 }, limits: { lease: 40 } });
    const first = suspended(await start(engine));
    store.before = () => {
      throw new Error('down');
    };
    await sleep(80);
    store.before = () => {};
    resultOf(await engine.resume(first.token, BINDING, answers(first), requestContextOf()));
    expect(counts.released).toBe(counts.opened);
  });

  it('or an ask that a tool waits for is unwound where that is the option', async () => {
    const ran: string[] = [];
    const tool: Tool = async ({ elicit, step }) => {
      try {
        await Promise.race([elicit('one'), sleep(15)]);
        await step('behind the gate', () => ran.push('step'));
      } finally {
        ran.push('finally');
      }
    };
    const { engine } = workbench(tool, { store: new MemoryStore(), parts: { onDrop: 'unwind' } });
    suspended(await start(engine));
    await sleep(40);
    engine.close();
    await sleep(10);
    expect(ran).toEqual(['finally']);
  });
});

describe('tokens', () => {
  it('of one call that two processes ran apart do not meet in a frame (sealed, no store)', async () => {
    const tool: Tool = async ({ elicit }) => {
      const who = (await elicit('who?')).content as { a: string };
      await elicit(`pay ${who.a}?`);
      return `paid ${who.a}`;
    };
    const [here, there] = [workbench(tool, { carry: true }), workbench(tool, { carry: true })];
    const first = suspended(await start(here.engine));
    const say = (a: string) => answers(first, (ask) => accept(ask, { a }));
    const ann = suspended(await here.engine.resume(first.token, BINDING, say('ann'), requestContextOf()));
    const bob = suspended(await there.engine.resume(first.token, BINDING, say('bob'), requestContextOf()));
    expect(resultOf(await here.engine.resume(bob.token, BINDING, answers(bob), requestContextOf()))).toBe(
      'paid bob',
    );
    expect(resultOf(await here.engine.resume(ann.token, BINDING, answers(ann), requestContextOf()))).toBe(
      'paid ann',
    );
  });
});

describe('a request that comes again', () => {
  it('while its first one is leaving before the turn began, is served', async () => {
    const store = new MemoryStore();
    const tool: Tool = ({ elicit }) => elicit('one');
    const here = workbench(tool, { store });
    const there = workbench(tool, { store: slow(store, 'read', 30) });
    const first = suspended(await start(here.engine));
    const gone = new AbortController();
    const left = there.engine.resume(
      first.token,
      BINDING,
      answers(first),
      requestContextOf({ signal: gone.signal }),
    );
    void sleep(5).then(() => gone.abort());
    await sleep(15);
    const again = new AbortController();
    const retry = there.engine.resume(
      first.token,
      BINDING,
      answers(first),
      requestContextOf({ signal: again.signal }),
    );
    expect((await left).kind).toBe('gone');
    expect(resultOf(await retry)).toBeDefined();
  });

  it('is not lost when its frame would be dropped while the claim is written', async () => {
    const tool: Tool = ({ elicit }) => elicit('one');
    const store = slow(new MemoryStore(), 'append', 15);
    const { engine } = workbench(tool, { store, limits: { frames: 1 } });
    const first = suspended(await start(engine));
    const [done] = await Promise.all([
      engine.resume(first.token, BINDING, answers(first), requestContextOf()),
      start(engine),
    ]);
    expect(resultOf(done)).toBeDefined();
  });
});

describe('keys', () => {
  it('that look like generated ones do not collide with them', async () => {
    const tool: Tool = ({ ask, elicit }) =>
      Promise.all([
        ask('elicitation/create', { _meta: { 'mcp-await/key': 'elicitation-2' }, message: 'named' }),
        elicit('unnamed'),
      ]);
    const { engine } = workbench(tool);
    const first = suspended(await start(engine));
    expect(new Set(first.asks.map(({ key }) => key)).size).toBe(2);
    expect(
      resultOf(await engine.resume(first.token, BINDING, answers(first), requestContextOf())),
    ).toHaveLength(2);
  });
});
