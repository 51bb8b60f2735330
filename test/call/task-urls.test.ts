/**
 * Tasks whose tool throws -32042: the URLs are asked for, and the tool runs again, in whichever process runs the task.
 */
import { describe, expect, it } from 'vitest';
import type { Json, JsonObject } from '../../src/base/values.ts';
import type { Entry, OpenAsk, TaskWish } from '../../src/call/journal/entries.ts';
import { MemoryStore, pause, requestContextOf, type Tool } from './bench.ts';
import {
  begin,
  isAsking,
  isOver,
  LEASE,
  type Process,
  processOf,
  resultIn,
  sweep,
  taskLeg,
  taskOf,
  update,
  view,
  viewed,
  wish,
} from './tasks-bench.ts';

const needed = (elicitations: Json): Error =>
  Object.assign(new Error('MCP error -32042: open it'), { code: -32042, data: { elicitations } });
let drawn = 0;
const urlOf = (name: string): Json => {
  drawn += 1;
  return { mode: 'url', message: name, url: `https://bank.example/${name}`, elicitationId: `e${drawn}` };
};

/** A tool that needs URLs to be opened, one step before that and an ask after it. */
function bank(...names: string[]) {
  const effects: string[] = [];
  const opened = new Set<string>();
  const tool: Tool = async ({ step, elicit }) => {
    await step('prepare', () => effects.push('prepare'));
    const missing = names.filter((name) => !opened.has(name));
    if (missing.length > 0) throw needed(names.map(urlOf));
    await step('pay', () => effects.push('pay'));
    return (await elicit('one')).content;
  };
  return { effects, opened, tool };
}
const accepted = (asks: readonly OpenAsk[], action = 'accept'): JsonObject =>
  Object.fromEntries(asks.map((ask) => [ask.key, { action, content: { a: 'x' } }]));
const urlsIn = (asks: readonly OpenAsk[]): unknown[] => asks.map(({ params }) => params.url);
const asksFor = async (process: Process, id: string, count: number): Promise<readonly OpenAsk[]> =>
  (await viewed(process, id, ({ asks }) => asks.length === count)).asks;
const isOne = ({ params }: OpenAsk): boolean => params.message === 'one';
const asksOne = async (process: Process, id: string): Promise<readonly OpenAsk[]> =>
  (await viewed(process, id, ({ asks }) => asks.some(isOne))).asks.filter(isOne);

function entriesOf(store: MemoryStore): Entry[] {
  return [...store.entries.values()].map((text) => JSON.parse(text) as Entry);
}

describe('a task that throws -32042', () => {
  const wishes: [string, TaskWish][] = [
    ['at once', wish()],
    ['late', wish({ when: 'after-asks' })],
    ['that its client must get', wish({ when: 'late', always: true })],
  ];
  for (const [name, how] of wishes) {
    it(`asks for the URLs, and its tool is run again when they are answered (a task ${name})`, async () => {
      const store = new MemoryStore(LEASE);
      const { effects, opened, tool } = bank('a', 'b');
      const owner = processOf(tool, store);
      const id = taskOf(await begin(owner, how).outcome);
      const asks = await asksFor(owner, id, 2);
      expect(urlsIn(asks)).toEqual(['https://bank.example/a', 'https://bank.example/b']);
      expect(asks.every(({ params }) => params.mode === 'url')).toBe(true);
      opened.add('a').add('b');
      await update(owner, id, accepted(asks.slice(0, 1)));
      expect(await asksFor(owner, id, 1)).toEqual(asks.slice(1));
      await update(owner, id, accepted(asks.slice(1)));
      await update(owner, id, accepted(await asksOne(owner, id)));
      expect(resultIn((await viewed(owner, id, isOver)).response)).toEqual({ a: 'x' });
      expect(effects).toEqual(['prepare', 'pay']);
      expect(owner.engine.tasks?.runs(id)).toBe(false);
      expect(owner.counts.released).toBe(owner.counts.opened);
    });
  }

  it('asks again while they are still needed, and says so after limits.reruns', async () => {
    const { tool } = bank('a');
    const owner = processOf(tool, new MemoryStore(LEASE), { limits: { reruns: 2 } });
    const id = taskOf(await begin(owner, wish()).outcome);
    const keys = new Set<string>();
    for (let round = 0; round < 2; round += 1) {
      const [ask] = (await viewed(owner, id, ({ asks }) => asks.some(({ key }) => !keys.has(key)))).asks;
      if (ask === undefined) throw new Error('nothing is asked');
      keys.add(ask.key);
      await update(owner, id, accepted([ask]));
    }
    const { response } = await viewed(owner, id, isOver);
    expect(JSON.stringify(response)).toMatch(/still needs what is done at: https:/);
    expect(keys.size).toBe(2);
  });

  it('ends when one is declined, also after the process that got the answer died', async () => {
    for (const dies of [false, true]) {
      const store = new MemoryStore(LEASE);
      const { effects, tool } = bank('a', 'b');
      const [owner, other] = [processOf(tool, store), processOf(tool, store)];
      const id = taskOf(await begin(owner, wish()).outcome);
      const asks = await asksFor(owner, id, 2);
      owner.store.after = (entry) => {
        if (dies && entry.type === 'completed' && entry.completion.kind === 'answer') owner.die();
      };
      void update(owner, id, accepted(asks.slice(0, 1), 'decline'));
      if (dies) {
        await pause(LEASE);
        await sweep(other, id);
      }
      const { response } = await viewed(other, id, isOver);
      expect(JSON.stringify(response)).toContain('was not opened');
      expect(effects).toEqual(['prepare']);
    }
  });

  it('asks the same under the same keys wherever it is taken over', async () => {
    const store = new MemoryStore(LEASE);
    const { effects, opened, tool } = bank('a', 'b');
    const processes = [processOf(tool, store), processOf(tool, store), processOf(tool, store)] as const;
    const [first, second, third] = processes;
    const id = taskOf(await begin(first, wish()).outcome);
    const asks = await asksFor(first, id, 2);
    first.die();
    await pause(LEASE);
    await sweep(second, id);
    await pause(100);
    expect((await asksFor(second, id, 2)).map(({ key }) => key)).toEqual(asks.map(({ key }) => key));
    await update(second, id, accepted(asks.slice(0, 1)));
    await asksFor(second, id, 1);
    second.die();
    await pause(LEASE);
    await sweep(third, id);
    await pause(100);
    // Answered URLs are not asked for again.
    expect((await asksFor(third, id, 1)).map(({ key }) => key)).toEqual([asks[1]?.key]);
    opened.add('a').add('b');
    await update(third, id, accepted(asks.slice(1)));
    await update(third, id, accepted(await asksOne(third, id)));
    expect(resultIn((await viewed(third, id, isOver)).response)).toEqual({ a: 'x' });
    expect(effects).toEqual(['prepare', 'pay']);
    const asked = entriesOf(store).flatMap((entry) => (entry.type === 'asked' ? [entry.ask.key] : []));
    // Each process asks again for what is open: an answer to the one before may be lost.
    const [a, b] = asks.map(({ key }) => key);
    expect(asked.slice(0, 5)).toEqual([a, b, a, b, b]);
    expect(new Set(asked).size).toBe(3);
  });

  it('can be cancelled, and given up at a shutdown, while it asks', async () => {
    for (const how of ['cancel', 'close'] as const) {
      const store = new MemoryStore(LEASE);
      const { opened, tool } = bank('a');
      const [owner, other] = [processOf(tool, store), processOf(tool, store)];
      const id = taskOf(await begin(owner, wish()).outcome);
      const asks = await asksFor(owner, id, 1);
      if (how === 'cancel') {
        expect(await other.engine.tasks?.cancel(id, undefined)).toBe(true);
        expect((await view(owner, id)).status).toBe('cancelled');
        continue;
      }
      await owner.engine.close();
      expect((await other.engine.tasks?.progress(id))?.left).toBe(true);
      opened.add('a');
      await sweep(other, id);
      await pause(20);
      await update(other, id, accepted(await asksOne(other, id)));
      expect(resultIn((await viewed(other, id, isOver)).response)).toEqual({ a: 'x' });
      expect(asks).toHaveLength(1);
    }
  });

  it('fails where its client opens no URLs, as a call in rounds does', async () => {
    const { tool } = bank('a');
    const owner = processOf(tool, new MemoryStore(LEASE));
    const context = taskLeg({ capabilities: { elicitation: { form: {} } } });
    const id = taskOf(await begin(owner, wish(), context).outcome);
    expect((await viewed(owner, id, isOver)).response).toMatchObject({
      error: { code: -32021, data: { requiredCapabilities: { elicitation: { url: {} } } } },
    });
  });

  it('fails in a plain sentence where it names no URL, in a task or out of it', async () => {
    const tool: Tool = async () => {
      throw needed([]);
    };
    const owner = processOf(tool, new MemoryStore(LEASE));
    const id = taskOf(await begin(owner, wish()).outcome);
    const { response } = await viewed(owner, id, isOver);
    expect(response).toMatchObject({ error: { code: -32603 } });
    const outcome = await begin(owner, wish({ when: 'late' })).outcome;
    for (const told of [response, outcome]) expect(JSON.stringify(told)).not.toContain('32042');
  });

  it('is left as it is where asks are live from the start: the code is its revision’s', async () => {
    const { tool } = bank('a');
    const owner = processOf(tool, new MemoryStore(LEASE));
    const id = taskOf(
      await begin(owner, wish(), { ...requestContextOf({ takesTasks: true }), live: true }).outcome,
    );
    const seen = await viewed(owner, id, (task) => isOver(task) || isAsking(task));
    expect(seen.response).toMatchObject({ error: { code: -32042 } });
  });
});
