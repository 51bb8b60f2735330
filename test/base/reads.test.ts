import { expect, it } from 'vitest';
import { deferred, readFor } from '../../src/base/values.ts';
import { countTurns, mostInOne } from '../loop-turns.ts';

const LONG = 'x'.repeat(100_000);

/** Begins so many reads, which end when they are told to. */
function begin(owner: string | undefined, count: number, begun: string[]) {
  return Array.from({ length: count }, () => {
    const found = deferred<string>();
    const read = readFor(owner, () => {
      begun.push(owner ?? 'stranger');
      return found.promise;
    });
    return { read, found };
  });
}

it('has eight reads under way, however many ask, and then one of each owner after the other', async () => {
  const begun: string[] = [];
  const strangers = begin(undefined, 100, begun);
  const known = begin('ann', 3, begun);
  await new Promise(setImmediate);
  expect(begun).toEqual(Array.from({ length: 8 }, () => 'stranger'));
  for (const { found } of [...strangers, ...known]) found.resolve('short');
  await Promise.all([...strangers, ...known].map(({ read }) => read));
  expect(begun).toHaveLength(103);
  expect(begun.lastIndexOf('ann')).toBeLessThan(16);
});

it('gives long records on in turns of their own, and reads no more until then', async () => {
  const begun: string[] = [];
  const turns = countTurns();
  const given: number[] = [];
  const all = begin(undefined, 24, begun).map(async ({ read, found }) => {
    found.resolve(LONG);
    await read;
    given.push(turns.now);
    expect(begun.length - given.length).toBeLessThanOrEqual(8);
  });
  await Promise.all(all);
  turns.stop();
  expect(mostInOne(given)).toBe(1);
});

it('goes on after a read that failed', async () => {
  const failing = Array.from({ length: 20 }, () =>
    readFor(undefined, () => Promise.reject(new Error('away'))),
  );
  const ended = await Promise.allSettled(failing);
  expect(ended.filter(({ status }) => status === 'rejected')).toHaveLength(20);
  expect(await readFor(undefined, async () => 'back')).toBe('back');
});
