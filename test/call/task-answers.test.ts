/**
 * Answers to a task that break their ask's schema: asked again under a new key, whichever process runs the task
 * (invariant 5).
 */
import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../../src/base/values.ts';
import type { Entry, OpenAsk } from '../../src/call/journal/entries.ts';
import { gate } from '../fixtures/gate.ts';
import { accept, MemoryStore, pause, type Tool, until } from './bench.ts';
import {
  accepted,
  begin,
  isAsking,
  isOver,
  LEASE,
  type Process,
  processOf,
  resultIn,
  sweep,
  taskOf,
  update,
  view,
  viewed,
  wish,
} from './tasks-bench.ts';

const SCHEMA = { type: 'object', properties: { a: { type: 'string' } }, required: ['a'] };
const form = (message: string, key?: string): JsonObject => ({
  mode: 'form',
  message,
  requestedSchema: SCHEMA,
  ...(key !== undefined && { _meta: { 'mcp-await/key': key } }),
});
const tool: Tool = async ({ ask }) => {
  const both = await Promise.all([
    ask('elicitation/create', form('one')),
    ask('elicitation/create', form('two', 'two')),
  ]);
  return both.map(({ content }) => content);
};
const DONE = [{ a: 're: one' }, { a: 're: two' }];

const bad = (asks: readonly OpenAsk[]): JsonObject =>
  Object.fromEntries(asks.map((ask) => [ask.key, accept(ask, { other: 1 })])) as JsonObject;
const keysOf = (asks: readonly OpenAsk[]): string[] => asks.map(({ key }) => key);

/** Every key that an ask of a task was written under. */
function askedKeys(store: MemoryStore): string[] {
  return [...store.entries.values()].flatMap((text) => {
    const entry = JSON.parse(text) as Entry;
    return entry.type === 'asked' ? [entry.ask.key] : [];
  });
}

/** The task's open asks, once none of these keys is open. */
const askedAnew = async (
  process: Process,
  id: string,
  old: readonly OpenAsk[],
): Promise<readonly OpenAsk[]> => {
  const keys = keysOf(old);
  const isNew = ({ asks }: { asks: readonly OpenAsk[] }): boolean =>
    asks.length === old.length && !asks.some(({ key }) => keys.includes(key));
  return (await viewed(process, id, isNew)).asks;
};

describe('a bad answer to a task', () => {
  for (const place of ['where it runs', 'at another process'] as const) {
    it(`has its ask go out again under a new key (${place})`, async () => {
      const store = new MemoryStore(LEASE);
      const [owner, other] = [processOf(tool, store), processOf(tool, store)];
      const here = place === 'where it runs' ? owner : other;
      const id = taskOf(await begin(owner, wish()).outcome);
      const { asks } = await viewed(here, id, ({ asks: open }) => open.length === 2);
      await update(here, id, bad(asks));
      const again = await askedAnew(here, id, asks);
      // The same once more, and a good one that comes too late, change nothing.
      await update(here, id, bad(asks));
      await update(here, id, accepted(asks));
      await pause(LEASE / 3);
      expect(keysOf((await view(owner, id)).asks)).toEqual(keysOf(again));
      expect(askedKeys(store)).toHaveLength(4);
      await update(here, id, bad(again));
      await update(here, id, accepted(await askedAnew(here, id, again)));
      expect(resultIn((await viewed(here, id, isOver)).response)).toEqual(DONE);
      const used = askedKeys(store);
      expect(new Set(used).size).toBe(used.length);
    });
  }

  it('that comes at several processes at once has its ask go out again once', async () => {
    for (let round = 0; round < 10; round += 1) {
      const store = new MemoryStore(LEASE);
      const all = [processOf(tool, store), processOf(tool, store), processOf(tool, store)] as const;
      const id = taskOf(await begin(all[0], wish()).outcome);
      const { asks } = await viewed(all[0], id, ({ asks: open }) => open.length === 2);
      await Promise.all([...all, ...all].map((process) => update(process, id, bad(asks))));
      const again = await askedAnew(all[0], id, asks);
      await pause(60);
      expect(askedKeys(store)).toHaveLength(4);
      await update(all[round % 3] as Process, id, accepted(again));
      expect(resultIn((await viewed(all[1], id, isOver)).response)).toEqual(DONE);
    }
  });

  it('that comes as the task ends is written nowhere, as no report is', async () => {
    for (const what of ['bad answers', 'a report'] as const) {
      const store = new MemoryStore(LEASE);
      const end = gate();
      const progress = { report: () => {}, resets: false };
      const ending: Tool = async ({ ask }) =>
        Promise.race([
          end.opened,
          ...['one', 'two'].map((message) => ask('elicitation/create', form(message), { progress })),
        ]);
      const [owner, other] = [processOf(ending, store), processOf(ending, store)];
      const id = taskOf(await begin(owner, wish()).outcome);
      const { asks } = await viewed(other, id, ({ asks: open }) => open.length === 2);
      let inserts = 0;
      const { insertEntry } = other.store;
      other.store.insertEntry = async (...args) => {
        inserts += 1;
        if (inserts > 20) throw new Error('it never ends');
        end.open();
        await until(() => store.types().includes('ended'));
        return insertEntry.apply(other.store, args);
      };
      if (what === 'bad answers') await update(other, id, bad(asks));
      else
        expect(await other.engine.report(id, { principal: undefined }, asks[0]?.key ?? '', {})).toBe(false);
      expect(store.types().at(-1)).toBe('ended');
    }
  });

  it('to a dead owner makes the process that takes the task over ask again', async () => {
    const store = new MemoryStore(LEASE);
    const [owner, other] = [processOf(tool, store), processOf(tool, store)];
    const id = taskOf(await begin(owner, wish()).outcome);
    const { asks } = await viewed(owner, id, ({ asks: open }) => open.length === 2);
    owner.die();
    await update(other, id, bad(asks));
    // It is answered, as far as anybody can see, until somebody runs it.
    expect((await view(other, id)).status).toBe('working');
    await pause(LEASE);
    await sweep(other, id);
    const again = await askedAnew(other, id, asks);
    await update(other, id, accepted(again));
    expect(resultIn((await viewed(other, id, isOver)).response)).toEqual(DONE);
  });

  it('that was asked for again stays so after a takeover', async () => {
    const store = new MemoryStore(LEASE);
    const [owner, other] = [processOf(tool, store), processOf(tool, store)];
    const id = taskOf(await begin(owner, wish()).outcome);
    const { asks } = await viewed(owner, id, ({ asks: open }) => open.length === 2);
    await update(owner, id, bad(asks));
    const again = await askedAnew(owner, id, asks);
    owner.die();
    await pause(LEASE);
    await sweep(other, id);
    await until(() => other.engine.tasks?.runs(id) === true);
    await pause(20);
    expect(keysOf((await view(other, id)).asks)).toEqual(keysOf(again));
    await update(other, id, accepted(again));
    expect(resultIn((await viewed(other, id, isOver)).response)).toEqual(DONE);
  });

  it('whose owner is being given up has its ask go out again by the next one', async () => {
    const store = new MemoryStore(LEASE);
    const busy: Tool = async ({ ask, step }) => {
      const [answer] = await Promise.all([
        ask('elicitation/create', form('one')),
        step('slow', () => pause(150)),
      ]);
      return answer.content;
    };
    const [owner, other] = [processOf(busy, store, { limits: { drain: 20 } }), processOf(busy, store)];
    const id = taskOf(await begin(owner, wish()).outcome);
    const { asks } = await viewed(owner, id, isAsking);
    const closed = owner.engine.close();
    await pause(60);
    await update(owner, id, bad(asks));
    await closed;
    await pause(120);
    await sweep(other, id);
    await update(other, id, accepted(await askedAnew(other, id, asks)));
    expect(resultIn((await viewed(other, id, isOver)).response)).toEqual({ a: 're: one' });
  });

  it('changes nothing where the revision asks again under the key it has', async () => {
    const store = new MemoryStore(LEASE);
    const owner = processOf(tool, store);
    const id = taskOf(await begin(owner, wish()).outcome);
    const { asks } = await viewed(owner, id, ({ asks: open }) => open.length === 2);
    await owner.engine.tasks?.update(id, undefined, bad(asks), 'kept');
    await pause(60);
    expect(keysOf((await view(owner, id)).asks)).toEqual(keysOf(asks));
    expect((await view(owner, id)).status).toBe('input_required');
  });

  it('counts as an ask: a client that never gets it right ends the task by its limit', async () => {
    const owner = processOf(tool, new MemoryStore(LEASE), { frame: { maxAsks: 6 } });
    const id = taskOf(await begin(owner, wish()).outcome);
    for (let tries = 0; ; tries += 1) {
      const seen = await viewed(owner, id, (task) => isAsking(task) || isOver(task));
      if (seen.status === 'failed') break;
      expect(tries).toBeLessThan(8);
      await update(owner, id, bad(seen.asks.slice(0, 1))).catch(() => {});
    }
    expect(askedKeys(owner.store)).toHaveLength(6);
  });

  it('does not end the timeout that the tool gave its ask', async () => {
    const patient: Tool = async ({ ask }) => {
      const late = await ask('elicitation/create', form('one'), { timeout: 80 }).catch(String);
      return String(late);
    };
    const owner = processOf(patient, new MemoryStore(10_000));
    const id = taskOf(await begin(owner, wish()).outcome);
    const { asks } = await viewed(owner, id, isAsking);
    await update(owner, id, bad(asks));
    await askedAnew(owner, id, asks);
    expect(resultIn((await viewed(owner, id, isOver)).response)).toMatch(/timed out/);
  });
});
