/** Where no journal keeps outcomes (`state: 'sealed'` without a store), a repeated request gets them from memory. */
import { describe, expect, it } from 'vitest';
import { systemClock } from '../../src/base/values.ts';
import { limitsOf } from '../../src/call/limits.ts';
import { Runs } from '../../src/call/run/registry.ts';

const MEBI = 1_048_576;

function remembering() {
  const runs = new Runs({ limits: limitsOf(), clock: systemClock } as never);
  return {
    remember: (callId: string, principal: string | undefined, value: unknown = '') => {
      const active = { sent: '', release: () => {} };
      const outcome = { kind: 'responded', response: { result: { value } } };
      runs.remember({ state: { callId, at: 0 }, active, binding: { principal } } as never, outcome as never);
    },
    knows: (callId: string) => runs.known(`${callId}@0`, '') !== undefined,
  };
}

describe('the outcomes that a process keeps without a store', () => {
  it('of a known caller stay, however many and however large those of strangers are', () => {
    const { remember, knows } = remembering();
    remember('known', 'alice');
    for (let nth = 0; nth < 200; nth += 1) remember(`large ${nth}`, undefined, 'x'.repeat(MEBI));
    for (let nth = 0; nth < 3_000; nth += 1) remember(`small ${nth}`, undefined);
    expect(knows('known')).toBe(true);
    expect(knows('large 199')).toBe(false);
    expect(knows('small 2000')).toBe(true);
    expect(knows('small 1999')).toBe(false);
  });

  it('of a known caller go for its own newer ones', () => {
    const { remember, knows } = remembering();
    remember('known', 'alice');
    for (let nth = 0; nth < 20; nth += 1) remember(`large ${nth}`, 'bob', 'x'.repeat(MEBI));
    expect(knows('large 0')).toBe(false);
    expect(knows('large 19')).toBe(true);
    for (let nth = 1; nth < 1_000; nth += 1) remember(`more ${nth}`, 'alice');
    expect(knows('known')).toBe(true);
    remember('more 1000', 'alice');
    expect(knows('known')).toBe(false);
    expect(knows('more 1')).toBe(true);
  });

  it('of strangers go first where all callers have too many', () => {
    const { remember, knows } = remembering();
    remember('strange', undefined);
    for (const caller of ['a', 'b', 'c', 'd'])
      for (let nth = 0; nth < 1_000; nth += 1) remember(`${caller} ${nth}`, caller);
    expect(knows('strange')).toBe(false);
    expect(knows('a 0')).toBe(true);
  });

  it('are forgotten where one is infinitely large, and others are counted as before', () => {
    const { remember, knows } = remembering();
    remember('known', 'alice');
    remember('infinite', undefined, Infinity);
    expect(knows('infinite')).toBe(false);
    for (let nth = 0; nth < 1_001; nth += 1) remember(`small ${nth}`, undefined);
    expect(knows('small 0')).toBe(false);
    expect(knows('small 1')).toBe(true);
    expect(knows('known')).toBe(true);
  });
});
