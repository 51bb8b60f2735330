/** A server that ends at once is started again after a pause that grows, however many calls ask for it. */
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { Budget } from '../../src/base/budget.ts';
import { NOBODY } from '../../src/host/spoken.ts';
import { Group } from '../../src/proxy/group.ts';
import type { LinkEvents } from '../../src/proxy/link.ts';
import { LogBook } from '../e2e/harness.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** A group whose servers answer `initialize`, if they do, and end with the next request. */
function failing(starts: () => boolean): { readonly group: Group; readonly opened: () => number } {
  let opened = 0;
  const openLink = (events: LinkEvents) => {
    opened += 1;
    return {
      send: ({ id, method }: Readonly<Record<string, unknown>>): void => {
        queueMicrotask(() => {
          if (method !== 'initialize' || !starts()) events.ended('it ended');
          else events.message({ jsonrpc: '2.0', id, result: {} });
        });
      },
      close: async () => {},
      kill: () => {},
    };
  };
  const options = {
    name: 'failing',
    openLink,
    logger: new LogBook(),
    children: 1,
    queue: 10,
    queueWait: 60_000,
    startTimeout: 1_000,
    askTimeout: 0,
    account: (breakOff: () => void) => new Budget(1_000).open({}, breakOff),
  };
  return { group: new Group(NOBODY, options, { notification: () => {} }), opened: () => opened };
}

it.each([
  ['that cannot be started', () => false],
  ['that ends at once', () => true],
])('one %s', async (_what, starts) => {
  const { group, opened } = failing(starts);
  const use = (): Promise<unknown> =>
    group
      .peer()
      .then((peer) => peer.request('ping', {}))
      .catch(() => {});
  await use();
  await vi.advanceTimersByTimeAsync(0);
  expect(opened()).toBe(1);
  for (const [failures, pause] of [250, 1_000, 4_000, 10_000, 10_000].entries()) {
    const asked = Promise.all([use(), use(), use()]);
    await vi.advanceTimersByTimeAsync(pause - 1);
    expect(opened()).toBe(failures + 1);
    await vi.advanceTimersByTimeAsync(1);
    await asked;
    expect(opened()).toBe(failures + 2);
  }
});
