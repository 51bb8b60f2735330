/** Work that is ready at once leaves others their turn of the event loop. */
import { expect, it } from 'vitest';
import { LoopTurns } from '../../src/base/values.ts';

it('is done one piece in a turn, in the order in which it came', async () => {
  const turns = new LoopTurns();
  const done: unknown[] = [];
  const pieces = [1, 2, 3].map((nth) => turns.next().then(() => done.push(nth)));
  const others = (async () => {
    for (let nth = 0; nth < 3; nth += 1) {
      await new Promise((resolve) => setImmediate(resolve));
      done.push('other');
    }
  })();
  await Promise.all([...pieces, others]);
  // No two pieces come one after the other while others wait.
  expect(done.filter((one) => one !== 'other')).toEqual([1, 2, 3]);
  expect(done.slice(0, 5).some((one, nth, all) => one !== 'other' && typeof all[nth + 1] === 'number')).toBe(
    false,
  );
});
