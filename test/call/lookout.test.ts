/** How often a call that waits for an answer is looked for in the store. */
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { systemClock } from '../../src/base/values.ts';
import { Lookout, Naps } from '../../src/call/run/lookout.ts';

const MINUTE = 60_000;

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

async function looksOf(hasRelay: boolean, during: (naps: Naps, looks: () => number) => Promise<void>) {
  const naps = new Naps(systemClock);
  let looks = 0;
  let isOver = false;
  const look = async (): Promise<void> => {
    looks += 1;
  };
  new Lookout(naps, hasRelay).expect({ callId: 'call', waits: () => !isOver, look });
  await during(naps, () => looks);
  isOver = true;
  await vi.advanceTimersByTimeAsync(MINUTE);
}

it.each([
  [false, 126],
  [true, 33],
])('with a relay %s: at most %i times in the first minute', (hasRelay, most) =>
  looksOf(hasRelay, async (_, looks) => {
    await vi.advanceTimersByTimeAsync(MINUTE);
    expect(looks()).toBeLessThanOrEqual(most);
    expect(looks()).toBeGreaterThan(most - 5);
  }),
);

it('looks at once when the relay says that there is something', () =>
  looksOf(true, async (naps, looks) => {
    await vi.advanceTimersByTimeAsync(MINUTE);
    const before = looks();
    expect(naps.wake('call')).toBe(true);
    await vi.advanceTimersByTimeAsync(0);
    expect(looks()).toBe(before + 1);
  }));
