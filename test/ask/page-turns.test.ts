/** Few pages at a time, persons in turn, and not more of one person than it may have. */
import { describe, expect, it } from 'vitest';
import { PageTurns } from '../../src/ask/page-turns.ts';

describe('pages in turn', () => {
  it('of one person wait behind those of others, and too many are refused', async () => {
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
    const bob = Array.from({ length: 3 }, (_, nth) => open('bob', nth));
    expect(await Promise.all(bob)).toEqual(['bob 0', 'bob 1', 'bob 2']);
    expect((await Promise.all(ann)).filter((page) => page === undefined)).toHaveLength(4);
    expect(most).toBe(4);
    // Four of hers were begun; from then on they alternate.
    expect(ends.lastIndexOf('bob')).toBeLessThan(12);
    expect(await open('cyd', 1)).toBe('cyd 1');
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
