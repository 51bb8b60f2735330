/** Calls that go on without their request: followed by others, and taken up when their owner is silent. */
import { describe, expect, it } from 'vitest';
import type { OpenAsk } from '../../src/call/journal/entries.ts';
import {
  accept,
  BINDING,
  beginResumable,
  callIn,
  errorOf,
  listening,
  MemoryStore,
  pause,
  resultOf,
  type Tool,
  until,
  workbench,
} from './bench.ts';

const LIMITS = { lease: 80 };

function order() {
  const effects: string[] = [];
  const tool: Tool = async ({ elicit, step, notify }) => {
    await step('charge', ({ idempotencyKey }) => effects.push(`charge ${idempotencyKey}`));
    notify('charged');
    const one = await elicit('one');
    notify('one is known');
    const two = await elicit('two');
    await step('ship', () => effects.push('ship'));
    return [one.content, two.content];
  };
  return { effects, tool };
}

describe('a call that continues without its request', () => {
  it('is in the journal before it runs', async () => {
    const store = new MemoryStore();
    let there: string[] = [];
    const tool: Tool = async () => {
      there = store.types();
    };
    const { outcome } = beginResumable(workbench(tool, { store }).engine, listening().context);
    resultOf(await outcome);
    expect(there).toEqual(['called']);
    expect(store.types()).toEqual(['called', 'ended']);
  });

  it('is followed to its outcome, which is its owner’s', async () => {
    const store = new MemoryStore(LIMITS.lease);
    const { effects, tool } = order();
    const [owner, other] = [
      workbench(tool, { store, limits: LIMITS }),
      workbench(tool, { store, limits: LIMITS }),
    ];
    const { context, asked } = listening();
    const started = beginResumable(owner.engine, context);
    await until(() => asked.length === 1);
    const follower = listening();
    const followed = other.engine.takeUp(callIn(store), BINDING, follower.context);
    // Far longer than a lease: its owner is alive, although nothing happens.
    await pause(4 * LIMITS.lease);
    await started.answer(asked[0]?.key ?? '', { result: accept(asked[0] as OpenAsk) });
    await until(() => asked.length === 2);
    await started.answer(asked[1]?.key ?? '', { result: accept(asked[1] as OpenAsk) });
    const wanted = [{ a: 're: one' }, { a: 're: two' }];
    expect([resultOf(await started.outcome), resultOf(await followed.outcome)]).toEqual([wanted, wanted]);
    expect(effects).toHaveLength(2);
    expect([follower.asked, other.counts.opened]).toEqual([[], 0]);
  });

  it('is taken over where its owner went silent: asks go out again under their keys, steps are not repeated', async () => {
    const store = new MemoryStore(LIMITS.lease);
    const { effects, tool } = order();
    const owner = workbench(tool, { store: store.muted(), limits: LIMITS });
    const other = workbench(tool, { store, limits: LIMITS });
    const first = listening();
    const started = beginResumable(owner.engine, first.context);
    await until(() => first.asked.length === 1);
    await started.answer(first.asked[0]?.key ?? '', { result: accept(first.asked[0] as OpenAsk) });
    await until(() => first.asked.length === 2);
    const second = listening();
    const taken = other.engine.takeUp(callIn(store), BINDING, second.context);
    await until(() => second.asked.length === 1);
    expect(second.asked[0]).toEqual(first.asked[1]);
    expect(second.heard).toEqual([]);
    // Who was only slow cannot go on with it any more.
    await expect(
      started.answer(first.asked[1]?.key ?? '', { result: { action: 'decline' } }),
    ).rejects.toMatchObject({ code: 'fenced' });
    await taken.answer(second.asked[0]?.key ?? '', { result: accept(second.asked[0] as OpenAsk) });
    expect(resultOf(await taken.outcome)).toEqual([{ a: 're: one' }, { a: 're: two' }]);
    expect(effects.map((effect) => effect.split(' ')[0])).toEqual(['charge', 'ship']);
  });

  it('is taken over where there is room for its arguments, and followed elsewhere', async () => {
    const store = new MemoryStore(LIMITS.lease);
    const { tool } = order();
    const owner = workbench(tool, { store: store.muted(), limits: LIMITS });
    const full = workbench(tool, { store, limits: { ...LIMITS, argumentBytes: 1, callerArgumentBytes: 1 } });
    const other = workbench(tool, { store, limits: LIMITS });
    const first = listening();
    beginResumable(owner.engine, first.context);
    await until(() => first.asked.length === 1);
    const [second, third] = [listening(), listening()];
    const followed = full.engine.takeUp(callIn(store), BINDING, second.context);
    await pause(6 * LIMITS.lease);
    expect(store.types()).not.toContain('claimed');
    const taken = other.engine.takeUp(callIn(store), BINDING, third.context);
    for (const nth of [1, 2]) {
      await until(() => third.asked.length === nth);
      const ask = third.asked[nth - 1] as OpenAsk;
      await taken.answer(ask.key, { result: accept(ask) });
    }
    const wanted = [{ a: 're: one' }, { a: 're: two' }];
    expect([resultOf(await taken.outcome), resultOf(await followed.outcome)]).toEqual([wanted, wanted]);
    expect([second.asked, full.counts.opened]).toEqual([[], 0]);
  });

  it('is taken over also where each connection of its client is shorter than a lease', async () => {
    const store = new MemoryStore(LIMITS.lease);
    const { tool } = order();
    const first = listening();
    beginResumable(workbench(tool, { store: store.muted(), limits: LIMITS }).engine, first.context);
    await until(() => first.asked.length === 1);
    const other = workbench(tool, { store, limits: LIMITS });
    const second = listening();
    for (let times = 0; times < 12 && second.asked.length === 0; times += 1) {
      const followed = other.engine.takeUp(callIn(store), BINDING, second.context);
      await pause(LIMITS.lease / 2);
      if (second.asked.length === 0) followed.stop();
    }
    expect(second.asked).toEqual(first.asked);
  });

  it('is taken over by one of many', async () => {
    const store = new MemoryStore(LIMITS.lease);
    let begun = 0;
    const tool: Tool = async ({ step }) => {
      begun += 1;
      if (begun === 1) await new Promise(() => {});
      return step('once', () => begun);
    };
    beginResumable(workbench(tool, { store: store.muted(), limits: LIMITS }).engine, listening().context);
    await until(() => begun === 1);
    const others = Array.from({ length: 4 }, () => workbench(tool, { store, limits: LIMITS }));
    const outcomes = others.map(
      ({ engine }) => engine.takeUp(callIn(store), BINDING, listening().context).outcome,
    );
    expect((await Promise.all(outcomes)).map(resultOf)).toEqual([2, 2, 2, 2]);
    expect(begun).toBe(2);
  });

  it('is taken over by one request of a process, however long that takes to begin', async () => {
    // As long as a starved machine may stop: after a few leases another request does take it.
    const limits = { lease: 1_000 };
    const store = new MemoryStore(limits.lease);
    const { tool } = order();
    const owner = workbench(tool, { store: store.muted(), limits });
    const first = listening();
    beginResumable(owner.engine, first.context);
    await until(() => first.asked.length === 1);
    const other = workbench(tool, { store, limits });
    const claims = (): number => store.types().filter((type) => type === 'claimed').length;
    let opened = (): void => {};
    const opening = new Promise<undefined>((resolve) => {
      opened = () => resolve(undefined);
    });
    const legs = [listening(), listening()];
    const takings = legs.map(({ context }) =>
      other.engine.takeUp(callIn(store), BINDING, context, () => opening),
    );
    await until(() => claims() > 0);
    await pause(1.2 * limits.lease);
    opened();
    await until(() => legs.some(({ asked }) => asked.length === 1));
    expect(claims()).toBe(1);
    for (const { cancel } of takings) cancel();
  });

  it('ends with an error that names what was done, where it may not be run again', async () => {
    const store = new MemoryStore(LIMITS.lease);
    const tool: Tool = async ({ step }) => {
      await step('charge', () => 1);
      await new Promise(() => {});
    };
    beginResumable(workbench(tool, { store: store.muted(), limits: LIMITS }).engine, listening().context);
    await until(() => store.types().includes('completed'));
    const parts = { replay: () => 'never' as const };
    for (let twice = 0; twice < 2; twice += 1) {
      const other = workbench(tool, { store, limits: LIMITS, parts });
      const { outcome } = other.engine.takeUp(callIn(store), BINDING, listening().context);
      expect(errorOf(await outcome).message).toMatch(/could not be continued.*Completed steps: charge$/);
    }
    expect(store.types().filter((type) => type === 'ended')).toHaveLength(1);
  });

  it('is not taken over once its client cancelled it, nor for another caller', async () => {
    const store = new MemoryStore(LIMITS.lease);
    const { tool } = order();
    const owner = workbench(tool, { store, limits: LIMITS });
    const { context, asked } = listening();
    const started = beginResumable(owner.engine, context, { ...BINDING, principal: 'ann' });
    await until(() => asked.length === 1);
    const other = workbench(tool, { store, limits: LIMITS });
    const stranger = other.engine.takeUp(callIn(store), BINDING, listening().context);
    expect(errorOf(await stranger.outcome).message).toBe('Invalid or expired requestState');
    started.cancel();
    const ann = other.engine.takeUp(callIn(store), { ...BINDING, principal: 'ann' }, listening().context);
    // Its client gets nothing any more.
    expect(await ann.outcome).toEqual({ kind: 'gone', elsewhere: true });
    expect(other.counts.opened).toBe(0);
  });

  it('is left alone by a follower that left', async () => {
    const store = new MemoryStore(LIMITS.lease);
    const { tool } = order();
    const { context, asked } = listening();
    beginResumable(workbench(tool, { store: store.muted(), limits: LIMITS }).engine, context);
    await until(() => asked.length === 1);
    const other = workbench(tool, { store, limits: LIMITS });
    const follower = other.engine.takeUp(callIn(store), BINDING, listening().context);
    follower.cancel();
    expect((await follower.outcome).kind).toBe('gone');
    await pause(3 * LIMITS.lease);
    expect(store.types()).not.toContain('claimed');
  });
});
