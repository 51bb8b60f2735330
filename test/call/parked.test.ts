import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { systemClock } from '../../src/base/values.ts';
import { Parked } from '../../src/call/run/registry.ts';

const LIMITS = { frames: 100, callerFrames: 100, callerBytes: 1_000, frameIdle: 1_000 };

function parked(limits: Partial<typeof LIMITS> = {}) {
  const dropped: string[] = [];
  return {
    dropped,
    parked: new Parked<string>({ ...LIMITS, ...limits }, systemClock, (item) => dropped.push(item)),
  };
}

describe('parked frames', () => {
  it('are dropped least recently used first, of the caller who has too many', () => {
    const { dropped, parked: frames } = parked({ callerFrames: 2 });
    for (const key of ['a1', 'b1', 'a2', 'b2']) frames.park(key, key, { principal: key[0] }, 1);
    frames.park('a1', frames.take('a1') ?? '', { principal: 'a' }, 1);
    frames.park('a3', 'a3', { principal: 'a' }, 1);
    expect(dropped).toEqual(['a2']);
  });

  it('are dropped when the journals of one caller are too large, also when one alone is', () => {
    const { dropped, parked: frames } = parked();
    frames.park('other', 'other', { principal: 'b' }, 900);
    frames.park('one', 'one', { principal: 'a' }, 600);
    frames.park('two', 'two', { principal: 'a' }, 600);
    expect(dropped).toEqual(['one']);
    frames.park('large', 'large', { principal: 'a' }, 5_000);
    expect(dropped).toEqual(['one', 'two', 'large']);
    expect(frames.size).toBe(1);
  });

  it('of strangers are dropped first where there are too many', () => {
    const { dropped, parked: frames } = parked({ frames: 4 });
    const park = (key: string, principal?: string) => frames.park(key, key, { principal }, 1);
    park('known', 'a');
    for (const key of ['s1', 's2', 's3', 's4']) park(key);
    expect(dropped).toEqual(['s1']);
    park('other', 'b');
    expect(dropped).toEqual(['s1', 's2']);
    for (const key of ['o1', 'o2']) park(key, 'b');
    expect(dropped).toEqual(['s1', 's2', 's3', 's4']);
    // Where known callers have all, one that holds most loses its own, and a stranger has no room.
    park('s5');
    park('o3', 'b');
    expect(dropped.slice(4)).toEqual(['s5', 'other']);
    expect(frames.get('known')).toBe('known');
  });

  it('keep their accounts right, whatever is parked, taken and dropped', () => {
    const action = fc.record({
      key: fc.nat(8),
      caller: fc.option(fc.constantFrom('a', 'b'), { nil: undefined }),
      bytes: fc.nat(400),
      take: fc.boolean(),
    });
    fc.assert(
      fc.property(fc.array(action, { maxLength: 60 }), (actions) => {
        const { dropped, parked: frames } = parked({ frames: 6, callerFrames: 3 });
        const here = new Map<string, { caller: string | undefined; bytes: number }>();
        for (const { key: number, caller, bytes, take } of actions) {
          const key = `${number}`;
          if (here.has(key)) expect(frames.take(key)).toBe(key);
          here.delete(key);
          if (!take) {
            here.set(key, { caller, bytes });
            frames.park(key, key, { principal: caller }, bytes);
          }
          for (const gone of dropped.splice(0)) here.delete(gone);
          expect(frames.size).toBe(here.size);
          expect(here.size).toBeLessThanOrEqual(6);
          for (const who of ['a', 'b', undefined]) {
            const own = [...here.values()].filter((place) => place.caller === who);
            if (who !== undefined) expect(own.length).toBeLessThanOrEqual(3);
            expect(own.reduce((sum, place) => sum + place.bytes, 0)).toBeLessThanOrEqual(1_000);
          }
        }
      }),
    );
  });
});
