/** What a server sends is passed on in order, no faster than a rate, and not without bound. */
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
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
    failed: (reason) => void reasons.push(reason),
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
    const own = new Inflow({ rate: 1_000, pass: ({ id }) => void passed.push(id), failed: () => {} });
    for (const id of ['a', undefined, 'b', 'c']) own.push({ method: 'm', ...(id !== undefined && { id }) });
    expect(passed).toEqual(['a']);
    while (own.isBehind) await sleep(1);
    expect(passed).toEqual(['a', undefined, 'b', 'c']);
  });

  it('end their link where too many wait', () => {
    const { push, reasons } = inflow(10);
    push(100_500);
    expect(reasons).toHaveLength(1);
  });

  it('end their link where those that wait take too much memory', () => {
    const { own, reasons } = inflow(10);
    const text = 'x'.repeat(10_000_000);
    for (let nth = 0; nth < 5; nth += 1) own.push({ nth, text });
    expect([reasons.length, own.isBehind]).toEqual([0, true]);
    for (let nth = 0; nth < 10; nth += 1) own.push({ nth, text });
    expect(reasons).toHaveLength(1);
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
