/** Few pages at a time, one of each person, persons in turn, and not more of one person than it may have. */
import { once } from 'node:events';
import { describe, expect, it } from 'vitest';
import { PageTurns } from '../../src/ask/serve.ts';

describe('pages in turn', () => {
  it('of one person wait behind each other, and too many are refused', async () => {
    const turns = new PageTurns();
    const ends: string[] = [];
    let atOnce = 0;
    let most = 0;
    const open = (person: string, nth: number): Promise<string | undefined> =>
      turns.take(person, async () => {
        atOnce += 1;
        most = Math.max(most, atOnce);
        await new Promise((resolve) => setImmediate(resolve));
        atOnce -= 1;
        ends.push(person);
        return `${person} ${nth}`;
      });
    const ann = Array.from({ length: 40 }, (_, nth) => open('ann', nth));
    expect(await open('cyd', 1)).toBe('cyd 1');
    const others = ['bob', 'cyd', 'dan', 'eve', 'fay'].flatMap((person) => [
      open(person, 0),
      open(person, 1),
    ]);
    expect(await Promise.all(others)).not.toContain(undefined);
    expect((await Promise.all(ann)).filter((page) => page === undefined)).toHaveLength(7);
    expect(most).toBe(4);
    // Where more persons wait than there are places, they alternate.
    expect(ends.lastIndexOf('fay')).toBeLessThan(20);
  });

  it('of one person leave the other places free', async () => {
    const turns = new PageTurns();
    const stuck = new AbortController();
    const aborted = once(stuck.signal, 'abort');
    const ann = Array.from({ length: 8 }, () => turns.take('ann', () => aborted));
    let isServed = false;
    const bob = turns.take('bob', async () => {
      isServed = true;
    });
    await expect.poll(() => isServed).toBe(true);
    stuck.abort();
    await Promise.all([bob, ...ann]);
  });

  it('that fail leave their turn', async () => {
    const turns = new PageTurns();
    const failing = Array.from({ length: 10 }, () =>
      turns.take('ann', () => Promise.reject(new Error('no store'))).catch(({ message }) => message),
    );
    expect(await Promise.all(failing)).toEqual(Array(10).fill('no store'));
    expect(await turns.take('ann', async () => 1)).toBe(1);
  });
});
