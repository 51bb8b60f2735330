/** What a server sends is passed on in order, no faster than a rate, and not without bound. */
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { Budget } from '../../src/base/budget.ts';
import type { QuotaKey } from '../../src/base/quota.ts';
import { Inflow } from '../../src/proxy/inflow.ts';

function inflow(rate: number, pass = (_nth: number): void => {}) {
  const passed: number[] = [];
  const reasons: string[] = [];
  const own: Inflow = new Inflow({
    rate,
    pass: ({ nth }) => {
      passed.push(Number(nth));
      pass(Number(nth));
    },
    link: { kill: (reason) => void reasons.push(reason) },
  });
  const push = (count: number): void => {
    for (let nth = 0; nth < count; nth += 1) own.push({ nth });
  };
  return { own, push, passed, reasons };
}

describe('messages of a server', () => {
  it('are passed on at once, as long as they are few', () => {
    const { own, push, passed } = inflow(1_000);
    push(50);
    expect([passed.length, own.isBehind]).toEqual([50, false]);
  });

  it('wait beyond the rate, and come in their order', async () => {
    const { own, push, passed } = inflow(1_000);
    push(250);
    expect([passed.length, own.isBehind]).toEqual([100, true]);
    await own.ready();
    expect(passed).toEqual(Array.from({ length: 250 }, (_, nth) => nth));
    expect(own.isBehind).toBe(false);
  });

  it.each([
    ['lines', 5_000, 0],
    ['bytes', 0, 8_000_000],
  ])('wait behind too many %s that were no messages', async (_what, lines, bytes) => {
    const { own, push, passed } = inflow(1_000);
    for (let count = 0; count < 5; count += 1) own.took(10, 10_000);
    expect(own.ready()).toBeUndefined();
    own.took(lines, bytes);
    push(1);
    expect([passed.length, own.isBehind]).toEqual([0, true]);
    await own.ready();
    expect([passed.length, own.isBehind]).toEqual([1, false]);
  });

  it('that are requests are one in a turn of the event loop', async () => {
    const passed: unknown[] = [];
    const own = new Inflow({ rate: 1_000, pass: ({ id }) => void passed.push(id) });
    for (const id of ['a', undefined, 'b', 'c']) own.push({ method: 'm', ...(id !== undefined && { id }) });
    expect(passed).toEqual(['a']);
    while (own.isBehind) await sleep(1);
    expect(passed).toEqual(['a', undefined, 'b', 'c']);
  });

  it('are read once those before them were passed on, or are dropped', async () => {
    const { own, push, passed } = inflow(1_000);
    push(50);
    expect(own.ready()).toBeUndefined();
    push(3_000);
    await own.ready();
    expect([passed.length, own.isBehind]).toEqual([3_050, false]);
    push(3_000);
    const ready = own.ready();
    own.close();
    await ready;
  });

  it('end their link where one cannot be handled', () => {
    const { push, passed, reasons } = inflow(1_000, (nth) => {
      if (nth === 2) throw new RangeError('too deep');
    });
    push(10);
    expect([passed, reasons.length]).toEqual([[0, 1, 2], 1]);
    expect(reasons[0]).toContain('too deep');
  });

  it('are dropped once it is closed', async () => {
    const { own, push, passed } = inflow(100);
    push(50);
    own.close();
    await sleep(250);
    expect(passed).toHaveLength(10);
  });
});

describe('what links hold of their servers', () => {
  const MIB = 1_048_576;
  const ann: QuotaKey = { principal: 'ann' };
  const bob: QuotaKey = { principal: 'bob' };

  /** Links of one budget; `ended` names those that were ended. */
  function links() {
    const budget = new Budget(16 * MIB, MIB / 2);
    const ended: string[] = [];
    const link = (name: string, quotaKey: QuotaKey = {}): Inflow =>
      new Inflow({
        rate: 10,
        account: (breakOff) => budget.open(quotaKey, breakOff),
        pass: () => {},
        link: { kill: () => void ended.push(name) },
      });
    return { budget, ended, link };
  }
  const messages = (link: Inflow, count: number, text = 'x'.repeat(MIB)): void => {
    for (let nth = 0; nth < count; nth += 1) link.push({ nth, text });
  };

  it('is one amount: where strangers’ share is full, the oldest of their links ends', () => {
    const { budget, ended, link } = links();
    const [first, second, third] = [link('first'), link('second'), link('third')];
    first.took(0, 100, 3 * MIB);
    messages(second, 5);
    expect([ended, Math.floor(budget.bytes / MIB)]).toEqual([[], 7]);
    third.took(0, 100, 2 * MIB);
    expect([ended, Math.floor(budget.bytes / MIB)]).toEqual([['first'], 6]);
    messages(second, 4);
    expect([ended, Math.floor(budget.bytes / MIB)]).toEqual([['first', 'second'], 2]);
  });

  it('costs no known caller a link for a stranger, or for one who holds more', () => {
    const { ended, link } = links();
    link('bob', bob).took(0, 100, 4 * MIB);
    link('stranger').took(0, 100, 7 * MIB);
    const own = link('ann', ann);
    own.took(0, 100, 6 * MIB);
    expect(ended).toEqual(['stranger']);
    link('eve', { principal: 'eve' }).took(0, 100, 7 * MIB);
    expect(ended).toEqual(['stranger', 'eve']);
  });

  it('does not count where it is little, or many small messages that no longer wait', async () => {
    const { budget, ended, link } = links();
    for (let nth = 0; nth < 100; nth += 1) link('small').took(0, 100, 65_536);
    expect([budget.bytes, ended]).toEqual([0, []]);
    const own = link('own');
    messages(own, 3);
    expect(budget.bytes).toBeGreaterThan(0);
    await own.ready();
    expect(budget.bytes).toBe(0);
  });

  it('counts no more once the link is closed', () => {
    const { budget, link } = links();
    const own = link('own');
    own.took(0, 100, 2 * MIB);
    messages(own, 3);
    own.close();
    own.took(0, 100, 2 * MIB);
    expect(budget.bytes).toBe(0);
  });

  it('is finite for a number that JSON cannot hold', async () => {
    const { budget, link } = links();
    const own = link('own', ann);
    messages(own, 2);
    own.push({ number: Number.POSITIVE_INFINITY });
    expect(budget.bytes).toBe(0);
    link('next', ann).took(0, 100, MIB);
    expect(budget.bytes).toBe(MIB);
  });
});
