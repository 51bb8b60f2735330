/** Steps that run while asks are out, and while their turn ends: none that is done runs again. */
import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../../src/base/values.ts';
import type { Entry } from '../../src/call/journal/entries.ts';
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
  until,
  workbench,
} from './bench.ts';

/** A step's work that ends on command and counts its starts. */
function slow() {
  let finish = (): void => {};
  const done = new Promise<void>((resolve) => {
    finish = resolve;
  });
  const run = async (): Promise<void> => {
    work.began += 1;
    await done;
  };
  const work = { began: 0, finish, run };
  return work;
}

/** A journal's entries without the request and the checkpoints. */
const completionsIn = (store: MemoryStore): unknown[] =>
  [...store.entries.values()].flatMap((text) => {
    const entry = JSON.parse(text) as Entry;
    return entry.type === 'completed' && entry.completion.kind === 'step' ? [entry.completion.path] : [];
  });

const isRecorded = (store: MemoryStore, path: string) => () => completionsIn(store).includes(path);

const REQUIRED = { type: 'object', properties: { a: { type: 'string' } }, required: ['a'] };

describe('a step beside an ask whose answer breaks its schema', () => {
  function askingBeside(work: ReturnType<typeof slow>): Tool {
    return async ({ ask, step }) => {
      const question = { mode: 'form', message: 'which?', requestedSchema: REQUIRED };
      const [, answer] = await Promise.all([step('charge', work.run), ask('elicitation/create', question)]);
      return answer.content;
    };
  }
  const bad = () => ({ action: 'accept', content: {} });
  // A lease longer than any test: a request that waits for it gets `busy`.
  const options = { frame: { askDelay: 5 }, limits: { lease: 60_000, turnWait: 300 } };

  it.each([
    ['is not run again by the process that gets the good answer', 0],
    ['is not waited for by the next request where a replay got the bad answer', 1],
  ])('%s', async (_, bads) => {
    const store = new MemoryStore();
    const work = slow();
    const processes = [0, 1].map(() => workbench(askingBeside(work), { store, ...options }));
    const [here, there] = processes;
    const getsBad = processes[bads];
    if (here === undefined || there === undefined || getsBad === undefined) throw new Error('two processes');
    const first = suspended(await start(here.engine));
    work.finish();
    await until(isRecorded(store, 'charge'));
    const second = suspended(
      await getsBad.engine.resume(first.token, BINDING, answers(first, bad), requestContextOf()),
    );
    const done = await there.engine.resume(second.token, BINDING, answers(second), requestContextOf());
    expect(resultOf(done)).toEqual({ a: 're: which?' });
    expect(work.began).toBe(1);
  });

  it('keeps its call here when the re-ask cannot be written', async () => {
    const store = new MemoryStore();
    const work = slow();
    const { engine, counts } = workbench(askingBeside(work), { store, ...options });
    const first = suspended(await start(engine));
    work.finish();
    await until(isRecorded(store, 'charge'));
    store.before = (entry) => {
      if (entry.type === 'suspended') throw new Error('down');
    };
    const wrong = answers(first, bad);
    errorOf(await engine.resume(first.token, BINDING, wrong, requestContextOf()));
    store.before = () => {};
    const second = suspended(await engine.resume(first.token, BINDING, wrong, requestContextOf()));
    expect(second.asks.map(({ key }) => key)).not.toEqual(first.asks.map(({ key }) => key));
    resultOf(await engine.resume(second.token, BINDING, answers(second), requestContextOf()));
    expect([work.began, counts.opened, counts.released]).toEqual([1, 1, 1]);
  });
});

describe('a turn that ends while a step runs', () => {
  const URL_NEEDED = {
    code: -32042,
    data: {
      elicitations: [{ mode: 'url', message: 'log in', url: 'https://a.example/', elicitationId: 'e' }],
    },
  };

  it('waits for the step when its tool throws -32042', async () => {
    const store = new MemoryStore();
    const work = slow();
    let runs = 0;
    const tool: Tool = async ({ step }) => {
      runs += 1;
      const charged = step('charge', work.run);
      await step('quick', () => {});
      if (runs === 1) throw Object.assign(new Error('log in'), URL_NEEDED);
      await charged;
      return 'done';
    };
    const { engine } = workbench(tool, { store });
    const first = start(engine);
    await until(isRecorded(store, 'quick'));
    work.finish();
    const done = await complete(
      await first,
      () => engine,
      () => ({ action: 'accept' }),
    );
    expect(resultOf(done)).toBe('done');
    expect([runs, work.began]).toEqual([2, 1]);
  });

  it('waits for the step when its client cannot be asked', async () => {
    const store = new MemoryStore();
    const work = slow();
    const tool: Tool = async ({ elicit, ask, step }) => {
      await elicit('one');
      const charged = step('charge', work.run);
      await step('quick', () => {});
      const sampled = await ask('sampling/createMessage', { messages: [], maxTokens: 1 });
      await charged;
      return sampled.model;
    };
    const { engine } = workbench(tool, { store });
    const first = suspended(await start(engine));
    const unable = requestContextOf({ capabilities: { elicitation: {} }, refuses: true });
    const refusal = engine.resume(first.token, BINDING, answers(first), unable);
    await until(isRecorded(store, 'quick'));
    work.finish();
    expect(errorOf(await refusal).code).toBe(-32021);
    expect(completionsIn(store)).toEqual(['quick', 'charge']);
    const again = suspended(
      await engine.resume(first.token, BINDING, answers(first), requestContextOf({ refuses: true })),
    );
    const model = () => ({ role: 'assistant', model: 'm', content: { type: 'text', text: '' } });
    const done = await engine.resume(again.token, BINDING, answers(again, model), requestContextOf());
    expect(resultOf(done)).toBe('m');
    expect(work.began).toBe(1);
  });

  it('gives the response at once when the tool is done', async () => {
    const work = slow();
    const tool: Tool = async ({ step }) => {
      const given = Promise.race([step('slow', work.run), step('quick', () => 'quick')]);
      return given;
    };
    const { engine } = workbench(tool, { store: new MemoryStore() });
    expect(resultOf(await start(engine))).toBe('quick');
    work.finish();
  });
});

describe('a step that ends among the answers of its turn', () => {
  /** Says in a step which came first, the step or the second answer. */
  function racing(work: ReturnType<typeof slow>, seen: string[]): Tool {
    return async ({ elicit, step }) => {
      const charged = step('charge', work.run).then(() => 'charge');
      const one = elicit('one').then(() => work.finish());
      const two = elicit('two', { b: {} }).then(() => 'two');
      const winner = await Promise.race([charged, two]);
      await one;
      await step(`saw ${winner}`, () => void seen.push(winner));
      const last = await elicit('last');
      return [winner, last.content as JsonObject];
    };
  }

  it('is released in the order that the journal has, so that a replay has the same result', async () => {
    const store = new MemoryStore();
    const seen: string[] = [];
    const work = slow();
    const make = () => workbench(racing(work, seen), { store, frame: { askDelay: 5 } });
    const [here, there] = [make(), make()];
    const first = suspended(await start(here.engine));
    const second = suspended(
      await here.engine.resume(first.token, BINDING, answers(first), requestContextOf()),
    );
    const done = await there.engine.resume(
      second.token,
      BINDING,
      answers(second, accept),
      requestContextOf(),
    );
    expect(resultOf(done)).toEqual([seen[0], { a: 're: last' }]);
    expect([seen.length, work.began]).toEqual([1, 1]);
  });

  it('waits behind the gate while the frame is parked, and comes before the answers', async () => {
    const store = new MemoryStore();
    const work = slow();
    const order: string[] = [];
    const tool: Tool = async ({ elicit, step }) => {
      await Promise.all([
        step('charge', work.run).then(() => order.push('charge')),
        elicit('one').then(() => order.push('one')),
      ]);
    };
    const { engine } = workbench(tool, { store, frame: { askDelay: 5 } });
    const first = suspended(await start(engine));
    work.finish();
    await until(isRecorded(store, 'charge'));
    expect(order).toEqual([]);
    resultOf(await engine.resume(first.token, BINDING, answers(first), requestContextOf()));
    expect(order).toEqual(['charge', 'one']);
  });
});
