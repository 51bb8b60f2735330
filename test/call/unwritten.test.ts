/** Notifications that a silent store does not take wait up to a bound; further ones go to the connection alone. */
import { expect, it } from 'vitest';
import { defined, systemClock } from '../../src/base/values.ts';
import { RunJournal } from '../../src/call/journal/run-journal.ts';
import { volatileJournal } from '../../src/call/journal/writer.ts';

/** In megabytes: half of all is one caller's, and half is all strangers'. */
it.each([
  ['one caller', 1, 40, 33, () => 'ann'],
  ['strangers', 30, 3, 33, () => undefined],
  ['all callers', 60, 3, 67, (nth: number) => `caller ${nth}`],
])('of %s', async (_whose, calls, each, kept, principalOf) => {
  let write = (): void => {};
  const silent = new Promise<void>((resolve) => {
    write = resolve;
  });
  const journals = Array.from({ length: calls }, (_, nth) => {
    const journal = volatileJournal(-1);
    const decide = journal.decide;
    const slow = {
      ...journal,
      decide: (...args: Parameters<typeof decide>) => silent.then(() => decide(...args)),
    };
    const call = { id: `${nth}`, ...defined({ principal: principalOf(nth) }) };
    return new RunJournal(slow, call, { clock: systemClock, limits: { journalBytes: 1_000_000 } });
  });
  let direct = 0;
  const message = { method: 'notifications/message', params: { data: 'x'.repeat(1_000_000) } };
  const tell = (): void => {
    for (const journal of journals)
      for (let count = 0; count < each; count += 1) journal.notify(message, () => (direct += 1));
  };
  tell();
  // A megabyte each, and a little more.
  expect(calls * each - direct).toBeGreaterThanOrEqual(kept - 1);
  expect(calls * each - direct).toBeLessThanOrEqual(kept);
  write();
  // Once they are written there is room again.
  await expect
    .poll(() => {
      direct = 0;
      journals[0]?.notify(message, () => (direct += 1));
      return direct;
    })
    .toBe(0);
});
