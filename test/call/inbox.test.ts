/** Answers that come in at another process than the one that runs the call. */
import { describe, expect, it } from 'vitest';
import type { OpenAsk } from '../../src/call/journal/entries.ts';
import type { Relay } from '../../src/call/ports.ts';
import { memoryRelay } from '../../src/relay/memory.ts';
import {
  accept,
  BINDING,
  beginResumable,
  callIn,
  listening,
  MemoryStore,
  pause,
  resultOf,
  type Tool,
  until,
  workbench,
  wrapped,
} from './bench.ts';

const LIMITS = { lease: 80 };

const both: Tool = async ({ elicit }) => {
  const one = await elicit('one');
  const [two, three] = await Promise.all([elicit('two'), elicit('three')]);
  return [one, two, three].map((answer) => answer.content);
};
const ALL = [{ a: 're: one' }, { a: 're: two' }, { a: 're: three' }];

/** A relay that says it delivered, and did not. */
const deaf: Relay = { listen: async () => async () => {}, send: async () => true, close: async () => {} };

describe('an answer that comes in elsewhere', () => {
  for (const [how, relay] of [
    ['over a relay', memoryRelay()],
    ['over a relay that loses everything', deaf],
    ['over the store alone', undefined],
  ] as const) {
    it(`reaches the tool ${how}`, async () => {
      const store = new MemoryStore();
      const make = () => workbench(both, { store, ...(relay !== undefined && { relay }) });
      const [owner, other] = [make(), make()];
      await pause();
      const { context, asked } = listening();
      const { outcome } = beginResumable(owner.engine, context);
      for (const known of [1, 2, 3]) {
        await until(() => asked.length >= known);
        const ask = asked[known - 1] as OpenAsk;
        await other.engine.deliver(callIn(store), { principal: undefined }, ask.key, { result: accept(ask) });
      }
      expect(resultOf(await outcome)).toEqual(ALL);
    });
  }

  it('counts once: the first of several, wherever they come in', async () => {
    const store = new MemoryStore();
    const [owner, other] = [workbench(both, { store }), workbench(both, { store })];
    const { context, asked } = listening();
    const started = beginResumable(owner.engine, context);
    await until(() => asked.length === 1);
    const [ask] = asked as [OpenAsk];
    const good = { result: accept(ask) };
    const bad = { result: { action: 'decline' } };
    await other.engine.deliver(callIn(store), { principal: undefined }, ask.key, good);
    await other.engine.deliver(callIn(store), { principal: undefined }, ask.key, bad);
    await until(() => asked.length === 3);
    expect(await started.answer(ask.key, bad)).toBe(false);
    for (const { key, params } of asked.slice(1)) {
      const response = { result: accept({ params } as OpenAsk) };
      await Promise.all([
        started.answer(key, response),
        other.engine.deliver(callIn(store), { principal: undefined }, key, response),
        started.answer(key, response),
      ]);
    }
    expect(resultOf(await started.outcome)).toEqual(ALL);
    const answered = [...store.entries.values()].filter((text) => text.includes('"completed"'));
    expect(answered).toHaveLength(3);
  });

  it('is read by the process that takes the call over', async () => {
    const store = new MemoryStore(LIMITS.lease);
    // As if it had died: it sends no sign of life and reads nothing on.
    const muted = store.muted();
    const open: MemoryStore['open'] = (call, after) =>
      wrapped(MemoryStore.prototype.open.call(muted, call, after), { read: () => new Promise(() => {}) });
    const dead: MemoryStore = Object.create(muted, { open: { value: open } });
    const owner = workbench(both, { store: dead, limits: LIMITS });
    const other = workbench(both, { store, limits: LIMITS });
    const first = listening();
    beginResumable(owner.engine, first.context);
    await until(() => first.asked.length === 1);
    const [ask] = first.asked as [OpenAsk];
    await other.engine.deliver(callIn(store), { principal: undefined }, ask.key, { result: accept(ask) });
    const second = listening();
    const taken = other.engine.takeUp(callIn(store), BINDING, second.context);
    await until(() => second.asked.length === 2);
    expect(second.asked.map(({ key }) => key)).not.toContain(ask.key);
    for (const { key, params } of second.asked) {
      await taken.answer(key, { result: accept({ params } as OpenAsk) });
    }
    expect(resultOf(await taken.outcome)).toEqual(ALL);
  });

  it('is refused for an ask that was never made', async () => {
    const store = new MemoryStore();
    const [owner, other] = [workbench(both, { store }), workbench(both, { store })];
    const { context, asked } = listening();
    beginResumable(owner.engine, context);
    await until(() => asked.length === 1);
    const made = other.engine.deliver(callIn(store), { principal: undefined }, 'elicitation-99', {
      result: { action: 'cancel' },
    });
    await expect(made).rejects.toMatchObject({ code: 'bad-token' });
    expect(store.types()).toEqual(['called', 'asked']);
  });

  it('is refused for a call of another caller, and for none', async () => {
    const store = new MemoryStore();
    const owner = workbench(both, { store });
    const { context, asked } = listening();
    beginResumable(owner.engine, context);
    await until(() => asked.length === 1);
    const { key } = asked[0] as OpenAsk;
    for (const [call, principal] of [
      [callIn(store), 'ann'],
      ['no-such-call', undefined],
    ] as const) {
      const delivered = owner.engine.deliver(call, { principal }, key, { result: { action: 'cancel' } });
      await expect(delivered).rejects.toMatchObject({ code: 'bad-token' });
    }
    expect(store.types()).toEqual(['called', 'asked']);
  });
});
