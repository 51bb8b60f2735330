/** The one helper of everything that is tried again: how often, after which pauses, and until when. */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Attempts, forRepeats, RECONNECTION, retry } from '../../src/client/message.ts';

const OPTIONS = {
  initialReconnectionDelay: 100,
  reconnectionDelayGrowFactor: 2,
  maxReconnectionDelay: 300,
  maxRetries: 4,
};
const open = new AbortController().signal;

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** Milliseconds before each attempt, until there are no more. */
async function pauses(attempts: Attempts, wait?: number): Promise<number[]> {
  const waited: number[] = [];
  for (;;) {
    const start = Date.now();
    const next = attempts.next(wait);
    await vi.runAllTimersAsync();
    if (!(await next)) return waited;
    waited.push(Date.now() - start);
  }
}

describe('attempts', () => {
  it('come after longer and longer pauses, up to the longest, and end', async () => {
    expect(await pauses(new Attempts(OPTIONS, open))).toEqual([100, 200, 300, 300]);
  });

  it('come at once first, or later than usual', async () => {
    expect(await pauses(new Attempts(OPTIONS, open, 1))).toEqual([0, 100, 200, 300]);
    expect(await pauses(new Attempts(OPTIONS, open, -1))).toEqual([200, 300, 300, 300]);
  });

  it('come when the server says', async () => {
    expect(await pauses(new Attempts(OPTIONS, open), 75)).toEqual([75, 75, 75, 75]);
    // One that names no pause would be asked hundreds of times a second.
    expect(await pauses(new Attempts(OPTIONS, open), 0)).toEqual([50, 50, 50, 50]);
  });

  it('begin anew after a success', async () => {
    const attempts = new Attempts(OPTIONS, open);
    await pauses(attempts);
    attempts.reset();
    expect(await pauses(attempts)).toEqual([100, 200, 300, 300]);
  });

  it('end with the signal, in the middle of a pause too', async () => {
    const stop = new AbortController();
    const attempts = new Attempts({ ...OPTIONS, initialReconnectionDelay: 1e6 }, stop.signal);
    const next = attempts.next();
    stop.abort();
    expect(await next).toBe(false);
    expect(await attempts.next()).toBe(false);
    expect(vi.getTimerCount()).toBe(0);
  });

  it('at what may be repeated last for thirteen seconds at least', async () => {
    const waited = await pauses(new Attempts(forRepeats({ ...RECONNECTION, maxRetries: 0 }), open));
    expect(waited).toHaveLength(5);
    expect(waited.reduce((sum, one) => sum + one)).toBeGreaterThan(13_000);
    expect(forRepeats({ ...RECONNECTION, maxRetries: 9 }).maxRetries).toBe(9);
  });
});

describe('retry', () => {
  const failing = (times: number) =>
    vi.fn(async () => {
      if (times-- > 0) throw new Error(`${times} more`);
      return 'done';
    });

  it('gives the result of the first attempt that succeeds', async () => {
    const doing = failing(2);
    const done = retry(doing, new Attempts(OPTIONS, open), () => true);
    await vi.runAllTimersAsync();
    expect(await done).toBe('done');
    expect(doing).toHaveBeenCalledTimes(3);
  });

  it('throws the last failure', async () => {
    const doing = failing(9);
    const done = expect(retry(doing, new Attempts(OPTIONS, open), () => true)).rejects.toThrow('4 more');
    await vi.runAllTimersAsync();
    await done;
    expect(doing).toHaveBeenCalledTimes(5);
  });

  it('throws what may not pass at once, and anything once its signal is aborted', async () => {
    const [one, other] = [failing(9), failing(9)];
    await expect(retry(one, new Attempts(OPTIONS, open), () => false)).rejects.toThrow('8 more');
    await expect(retry(other, new Attempts(OPTIONS, AbortSignal.abort()), () => true)).rejects.toThrow(
      '8 more',
    );
    expect([one, other].map(({ mock }) => mock.calls.length)).toEqual([1, 1]);
  });
});
