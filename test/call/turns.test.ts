import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../../src/base/values.ts';
import type { RequestContext } from '../../src/call/ports.ts';
import { BAD_TOKEN } from '../fixtures/frozen.ts';
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

const ROUNDS: Tool = async ({ elicit }) => [await elicit('one'), await elicit('two')];

describe('a turn', () => {
  it('suspends with all asks that are open together, and no more', async () => {
    const { engine } = workbench(({ elicit }) => Promise.all([elicit('a'), elicit('b'), elicit('c')]));
    const first = suspended(await start(engine));
    expect(first.asks.map((ask) => ask.params.message)).toEqual(['a', 'b', 'c']);
    expect(new Set(first.asks.map((ask) => ask.key)).size).toBe(3);
    expect(
      resultOf(await engine.resume(first.token, BINDING, answers(first), requestContextOf())),
    ).toHaveLength(3);
  });

  it('gives the same POST the same outcome, also while it is being made, and refuses other answers', async () => {
    for (const store of [new MemoryStore(), undefined]) {
      let runs = 0;
      const tool: Tool = async ({ elicit, step }) => {
        await elicit('one');
        return step('count', () => ++runs);
      };
      const { engine } = workbench(tool, {
        ...(store !== undefined && { store }),
        carry: store === undefined,
      });
      const first = suspended(await start(engine));
      const sent = answers(first);
      const both = await Promise.all(
        [1, 2].map(() => engine.resume(first.token, BINDING, sent, requestContextOf())),
      );
      const later = await engine.resume(first.token, BINDING, sent, requestContextOf());
      expect([...both, later].map(resultOf)).toEqual([1, 1, 1]);
      const other = await engine.resume(
        first.token,
        BINDING,
        { [first.asks[0]?.key ?? '']: { action: 'decline' } },
        requestContextOf(),
      );
      expect(errorOf(other)).toEqual(BAD_TOKEN);
    }
  });

  it('has one winner among processes', async () => {
    const store = new MemoryStore();
    let effects = 0;
    const tool: Tool = async ({ elicit, step }) => {
      await elicit('one');
      return step('effect', () => ++effects);
    };
    const benches = Array.from({ length: 4 }, () => workbench(tool, { store }));
    const first = suspended(await start((benches[0] as (typeof benches)[0]).engine));
    const sent = answers(first);
    const outcomes = await Promise.all(
      benches.map(({ engine }) => engine.resume(first.token, BINDING, sent, requestContextOf())),
    );
    expect(outcomes.map(resultOf)).toEqual([1, 1, 1, 1]);
    expect(effects).toBe(1);
  });

  it('asks a missing answer again under its key and a bad one under a new key, without running the tool', async () => {
    const tool: Tool = ({ ask }) =>
      ask('elicitation/create', {
        message: 'one',
        requestedSchema: { type: 'object', properties: { a: {} }, required: ['a'] },
      });
    for (const frames of [100, 0]) {
      const { engine } = workbench(tool, { store: new MemoryStore(), limits: { frames } });
      const first = suspended(await start(engine));
      const [ask] = first.asks;
      const missing = suspended(await engine.resume(first.token, BINDING, {}, requestContextOf()));
      expect(missing.asks).toEqual(first.asks);
      const bad = suspended(
        await engine.resume(
          missing.token,
          BINDING,
          { [ask?.key ?? '']: { action: 'accept', content: {} } },
          requestContextOf(),
        ),
      );
      expect(bad.asks[0]?.key).not.toBe(ask?.key);
      expect(bad.asks[0]?.params).toEqual(ask?.params);
      const worse = suspended(
        await engine.resume(
          bad.token,
          BINDING,
          { [bad.asks[0]?.key ?? '']: { action: 'accept' } },
          requestContextOf(),
        ),
      );
      expect(new Set([ask?.key, bad.asks[0]?.key, worse.asks[0]?.key]).size).toBe(3);
      expect(resultOf(await engine.resume(worse.token, BINDING, answers(worse), requestContextOf()))).toEqual(
        accept(worse.asks[0] as never),
      );
    }
  });

  it('continues with one answer of two, and asks the other again under its key', async () => {
    for (const frames of [100, 0]) {
      const { engine } = workbench(({ elicit }) => Promise.all([elicit('a'), elicit('b')]), {
        store: new MemoryStore(),
        limits: { frames },
      });
      const first = suspended(await start(engine));
      const [a, b] = first.asks;
      const second = suspended(
        await engine.resume(first.token, BINDING, { [a?.key ?? '']: accept(a as never) }, requestContextOf()),
      );
      expect(second.asks).toEqual([b]);
      const done = await engine.resume(second.token, BINDING, answers(second), requestContextOf());
      expect(resultOf(done)).toEqual([accept(a as never), accept(b as never)]);
    }
  });

  it('refuses what is no answer, and the token stays good', async () => {
    const { engine } = workbench(ROUNDS, { store: new MemoryStore() });
    const first = suspended(await start(engine));
    const key = first.asks[0]?.key ?? '';
    for (const wrong of [
      null,
      7,
      'x',
      [],
      { [key]: null },
      { [key]: 'yes' },
      { [key]: { action: 'maybe' } },
      { [key]: [] },
    ]) {
      expect(errorOf(await engine.resume(first.token, BINDING, wrong, requestContextOf())).code).toBe(-32602);
    }
    expect((await complete(first, () => engine)).kind).toBe('responded');
  });

  it('uses answers sent along before they were asked, where the explicit key matches and the schema is kept', async () => {
    const tool: Tool = async ({ ask }) => {
      const schema = { type: 'object', properties: { a: {} }, required: ['a'] };
      const named = { _meta: { 'mcp-await/key': 'name' }, message: 'name?', requestedSchema: schema };
      return ask('elicitation/create', named);
    };
    const { engine } = workbench(tool);
    const good = { name: { action: 'accept', content: { a: 1 } }, other: 5 };
    expect(resultOf(await start(engine, requestContextOf(), good))).toEqual(good.name);
    const bad = suspended(
      await start(engine, requestContextOf(), { name: { action: 'accept', content: {} } }),
    );
    expect(bad.asks[0]?.params._meta).toBeUndefined();
    expect(errorOf(await start(engine, requestContextOf(), { name: 12 })).code).toBe(-32602);
    expect(errorOf(await start(engine, requestContextOf(), null)).code).toBe(-32602);
  });

  it('ends with -32021 when its client cannot be asked and its revision says so by a code', async () => {
    const { engine } = workbench(({ ask }) => ask('sampling/createMessage', { messages: [] }));
    const context = requestContextOf({ capabilities: { elicitation: {} }, refuses: true });
    const outcome = await start(engine, context);
    const required = { requiredCapabilities: { sampling: {} } };
    expect(errorOf(outcome)).toMatchObject({ code: -32021, data: required });
  });

  it('tells the tool when a context of another revision cannot be asked, and continues', async () => {
    const store = new MemoryStore();
    const tool: Tool = async ({ ask, elicit }) => {
      const message = await ask('sampling/createMessage', { messages: [] }).catch(String);
      return [message, await elicit('name')];
    };
    const [here, elsewhere] = [workbench(tool, { store }).engine, workbench(tool, { store }).engine];
    const context = (): RequestContext => requestContextOf({ capabilities: { elicitation: {} } });
    const first = suspended(await start(here, context()));
    expect(first.asks.map(({ method }) => method)).toEqual(['elicitation/create']);
    const done = resultOf(await elsewhere.resume(first.token, BINDING, answers(first), context()));
    expect(done).toMatchObject([expect.stringContaining('does not support sampling'), expect.anything()]);
  });

  it('refuses tokens of another method, target, argument, revision or caller alike', async () => {
    const { engine } = workbench(ROUNDS, { store: new MemoryStore() });
    const first = suspended(await start(engine));
    const others = [
      { method: 'prompts/get' },
      { target: 'other' },
      { args: 'others' },
      { revision: 'other' },
      { principal: 'eve' },
    ];
    for (const other of others) {
      const outcome = await engine.resume(
        first.token,
        { ...BINDING, ...other },
        answers(first),
        requestContextOf(),
      );
      expect(errorOf(outcome)).toEqual(BAD_TOKEN);
    }
  });
});

describe('a client that goes away', () => {
  it('ends a first turn: the tool is told, and what it does then counts for nothing', async () => {
    let told: Promise<unknown> | undefined;
    const steps: string[] = [];
    const { engine, counts } = workbench(async ({ cancelled, step, elicit }) => {
      told = new Promise((resolve) => cancelled.addEventListener('abort', resolve));
      await told;
      await step('after', () => steps.push('after'));
      return elicit('never');
    });
    const gone = new AbortController();
    const outcome = start(engine, requestContextOf({ signal: gone.signal }));
    await new Promise((resolve) => setTimeout(resolve, 20));
    gone.abort();
    expect((await outcome).kind).toBe('gone');
    await told;
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(steps).toEqual([]);
    expect(counts.released).toBe(1);
  });

  it('ends a later turn: the same POST continues after the last completed step, here or elsewhere', async () => {
    for (const elsewhere of [false, true]) {
      const store = new MemoryStore();
      const ran: string[] = [];
      let open: () => void = () => {};
      const held = new Promise<void>((resolve) => {
        open = resolve;
      });
      const tool: Tool = async ({ elicit, step }) => {
        await elicit('one');
        await step('first', () => ran.push('first'));
        await held;
        return step('second', () => ran.push('second'));
      };
      const benches = [workbench(tool, { store }), workbench(tool, { store })] as const;
      const first = suspended(await start(benches[0].engine));
      const gone = new AbortController();
      const left = benches[0].engine.resume(
        first.token,
        BINDING,
        answers(first),
        requestContextOf({ signal: gone.signal }),
      );
      while (ran.length === 0) await new Promise((resolve) => setImmediate(resolve));
      gone.abort();
      expect((await left).kind).toBe('gone');
      open();
      await new Promise((resolve) => setTimeout(resolve, 20));
      expect(ran).toEqual(['first']);
      const retry = await benches[elsewhere ? 1 : 0].engine.resume(
        first.token,
        BINDING,
        answers(first),
        requestContextOf(),
      );
      expect(resultOf(retry)).toBe(2);
      expect(ran).toEqual(['first', 'second']);
    }
  });
});

describe('a store that fails', () => {
  it('loses no call: the same POST completes it later', async () => {
    for (const mode of ['before', 'after'] as const) {
      for (const failing of ['claimed', 'completed', 'ended', 'suspended'] as const) {
        const store = new MemoryStore();
        let charged = 0;
        const tool: Tool = async ({ elicit, step }) => {
          await elicit('one');
          const receipt = await step('charge', () => ++charged);
          return [receipt, await elicit('two')];
        };
        const { engine } = workbench(tool, { store });
        const first = suspended(await start(engine));
        let down = failing !== 'ended';
        store[mode] = (entry) => {
          if (down && entry.type === failing) throw new Error('the store is down');
        };
        if (down) {
          const error = errorOf(
            await engine.resume(first.token, BINDING, answers(first), requestContextOf()),
          );
          expect(error.code).toBe(-32603);
          expect(error.message).not.toContain('down');
        }
        down = false;
        const second = await engine.resume(first.token, BINDING, answers(first), requestContextOf());
        down = failing === 'ended';
        const open = suspended(second);
        let done = await engine.resume(open.token, BINDING, answers(open), requestContextOf());
        down = false;
        if (failing === 'ended')
          done = await engine.resume(open.token, BINDING, answers(open), requestContextOf());
        expect((resultOf(done) as unknown[])[1]).toBeDefined();
        // A step whose record was lost with the store runs again, under the same key: the one such case.
        expect(charged).toBe(failing === 'completed' && mode === 'before' ? 2 : 1);
      }
    }
  });
});

describe('limits', () => {
  it('end a call that asks, or grows, without end', async () => {
    const endless: Tool = async ({ elicit }) => {
      for (let round = 0; ; round += 1) await elicit(`again ${round}`);
    };
    const asking = workbench(endless, { store: new MemoryStore(), frame: { maxAsks: 3 } });
    expect(errorOf(await complete(await start(asking.engine), () => asking.engine)).message).toContain(
      'limit',
    );
    const rounds = workbench(endless, { store: new MemoryStore(), limits: { rounds: 3 } });
    expect(errorOf(await complete(await start(rounds.engine), () => rounds.engine)).message).toContain(
      'limit',
    );
    const growing: Tool = async ({ elicit, step }) => {
      await step('big', () => 'x'.repeat(5_000));
      return elicit('one');
    };
    const big = workbench(growing, { store: new MemoryStore(), limits: { journalBytes: 2_000 } });
    expect(errorOf(await start(big.engine)).message).toContain('limit');
  });

  it('keep few frames, and a dropped one costs nothing but a replay', async () => {
    const { engine, counts } = workbench(ROUNDS, { store: new MemoryStore(), limits: { frames: 1 } });
    const all = await Promise.all([1, 2, 3].map(() => start(engine)));
    expect(engine.parked).toBe(1);
    expect(counts.released).toBe(2);
    for (const outcome of all) expect(resultOf(await complete(outcome, () => engine))).toHaveLength(2);
  });
});

describe('a thrown -32042', () => {
  const url = { mode: 'url', url: 'https://bank.example/consent', message: 'Consent', elicitationId: 'e1' };
  const needs = (elicitations: JsonObject[]): Error =>
    Object.assign(new Error('URL needed'), { code: -32042, data: { elicitations } });

  it('becomes the URL asks that it names, and the tool is run again', async () => {
    let consented = false;
    let runs = 0;
    const bench = workbench(async () => 'unused', {
      store: new MemoryStore(),
      parts: {
        openInstance: async () => ({
          call: (frame) => {
            runs += 1;
            if (consented) frame.finish({ result: { value: 'done' } });
            else
              frame.finish({ error: { code: -32042, message: 'URL needed', data: { elicitations: [url] } } });
          },
          refresh() {},
          cancel() {},
          release() {},
        }),
      },
    });
    const first = suspended(await start(bench.engine));
    expect(first.asks[0]?.params.url).toBe(url.url);
    consented = true;
    const done = await bench.engine.resume(
      first.token,
      BINDING,
      answers(first, () => ({ action: 'accept' })),
      requestContextOf(),
    );
    expect(resultOf(done)).toBe('done');
    expect(runs).toBe(2);
    expect(needs([url]).message).toBe('URL needed');
  });
});
