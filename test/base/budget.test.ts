/** The one budget of bytes: shares, and who is broken off. */
import { describe, expect, it } from 'vitest';
import { Budget } from '../../src/base/budget.ts';
import type { QuotaKey } from '../../src/base/quota.ts';

const ann: QuotaKey = { principal: 'ann' };
const bob: QuotaKey = { principal: 'bob' };
const stranger: QuotaKey = {};
const from = (address: string): QuotaKey => ({ address });

function bench(most: number) {
  const budget = new Budget(most);
  const broken: string[] = [];
  const open = (name: string, quotaKey: QuotaKey, bytes: number) => {
    const account = budget.open(quotaKey, () => broken.push(name));
    account.set(bytes);
    return account;
  };
  return { budget, broken, open };
}

describe('a budget of bytes', () => {
  it('breaks off strangers for strangers, the oldest first, and each once', () => {
    const { budget, broken, open } = bench(1_000);
    for (const nth of [0, 1, 2, 3, 4, 5]) open(`stranger ${nth}`, stranger, 200);
    expect(broken).toEqual(['stranger 0', 'stranger 1', 'stranger 2', 'stranger 3']);
    expect(budget.bytes).toBe(400);
  });

  it('never breaks off a known caller for a stranger, however many there are', () => {
    const { broken, open } = bench(1_000);
    open('ann', ann, 450);
    for (let nth = 0; nth < 100; nth += 1) open(`stranger ${nth}`, from(`192.0.2.${nth}`), 100);
    expect(broken).not.toContain('ann');
    expect(broken).toHaveLength(95);
  });

  it('frees strangers’ bytes for known callers, and a caller’s own beyond its share', () => {
    const { budget, broken, open } = bench(1_000);
    open('stranger', stranger, 400);
    open('ann', ann, 400);
    open('bob', bob, 400);
    expect([broken, budget.bytes]).toEqual([['stranger'], 800]);
    open('ann again', ann, 101);
    expect(broken).toEqual(['stranger', 'ann']);
  });

  it('frees the bytes of the known caller that holds most, where there are no strangers’', () => {
    const { broken, open } = bench(1_000);
    open('bob', bob, 200);
    open('ann', ann, 100);
    open('ann again', ann, 300);
    open('eve', { principal: 'eve' }, 390);
    open('bob again', bob, 50);
    expect(broken).toEqual(['ann']);
  });

  it('counts what changes, and what is closed no more', () => {
    const { budget, broken, open } = bench(1_000);
    const account = open('ann', ann, 100);
    account.set(300);
    expect(budget.bytes).toBe(300);
    account.set(0);
    expect(budget.bytes).toBe(0);
    account.set(200);
    account.close();
    account.set(900);
    expect([budget.bytes, broken]).toEqual([0, []]);
  });

  it('breaks off an account that is too large by itself', () => {
    const { budget, broken, open } = bench(1_000);
    open('huge', ann, 501);
    expect([budget.bytes, broken]).toEqual([0, ['huge']]);
  });
});
