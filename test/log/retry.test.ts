/** What of a failing store tells an observer that the owner of a call cannot write either. */
import { expect, it } from 'vitest';
import { AwaitError } from '../../src/base/values.ts';
import { Retry } from '../../src/log/retry.ts';
import { steadyClock } from '../fixtures/steady-clock.ts';

/** Fails so many times. */
function failing(times: number): () => Promise<true> {
  let left = times;
  return async () => {
    left -= 1;
    if (left >= 0) throw new AwaitError('store', 'it failed');
    return true;
  };
}

it('counts reads that fail, and no writes: a record may be refused for its own sake, again and again', async () => {
  const retry = new Retry({ clock: steadyClock, lease: 100 });
  await retry.insert(failing(3), async () => undefined, 'large');
  await retry.write(failing(3));
  expect(retry.failures).toBe(0);
  await retry.read(failing(3));
  expect(retry.failures).toBe(3);
});
