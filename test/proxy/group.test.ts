/**
 * A server that ends at once is started again after a pause that grows, however many calls ask for it; a new one is
 * given the newest settings of its client, and no more than is needed of them.
 */
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { Budget } from '../../src/base/budget.ts';
import { NOBODY } from '../../src/host/spoken.ts';
import { Group } from '../../src/proxy/group.ts';
import type { LinkEvents } from '../../src/proxy/link.ts';
import { LogBook } from '../e2e/harness.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** A group whose servers answer `initialize`, if they do, and end with the next request. */
function failing(starts: () => boolean) {
  const sent: Readonly<Record<string, unknown>>[] = [];
  const links: LinkEvents[] = [];
  let closed = 0;
  const openLink = (events: LinkEvents) => {
    links.push(events);
    return {
      send: (message: Readonly<Record<string, unknown>>): void => {
        const { id, method } = message;
        sent.push(message);
        queueMicrotask(() => {
          if (method === 'ping' || !starts()) events.ended('it ended');
          else if (id !== undefined) events.message({ jsonrpc: '2.0', id, result: {} });
        });
      },
      close: async () => {
        closed += 1;
      },
      kill: () => events.ended('it was killed'),
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
  return {
    group: new Group(NOBODY, options, { notification: () => {} }),
    opened: () => links.length,
    closed: () => closed,
    say: (message: Readonly<Record<string, unknown>>) =>
      links.at(-1)?.message({ jsonrpc: '2.0', ...message }),
    sent,
  };
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

it('a new server is given the newest settings that fit, without what else was in their requests', async () => {
  const { group, sent } = failing(() => true);
  const more = 'x'.repeat(100);
  const uri = (nth: number): string => `${nth}:${'x'.repeat(60_000)}`;
  for (const nth of [1, 2, 3]) group.remember('resources/subscribe', { uri: uri(nth), more });
  group.remember('resources/subscribe', { uri: 'x'.repeat(262_144) });
  group.remember('logging/setLevel', { level: 'debug', more });
  await group.peer();
  const settings = sent.filter(({ method }) => !/initialize/.test(String(method)));
  expect(settings.map(({ method, params }) => [method, params])).toEqual([
    ['resources/subscribe', { uri: uri(2) }],
    ['resources/subscribe', { uri: uri(3) }],
    ['logging/setLevel', { level: 'debug' }],
  ]);
});

it('a server that is ended for one of its calls is started again at once where its client subscribed, else when needed', async () => {
  const { group, sent, opened } = failing(() => true);
  (await group.peer()).kill(true);
  await vi.advanceTimersByTimeAsync(0);
  expect(opened()).toBe(1);
  group.remember('resources/subscribe', { uri: 'diary://today' });
  (await group.peer()).kill(true);
  await vi.advanceTimersByTimeAsync(0);
  expect(opened()).toBe(3);
  expect(sent.at(-1)).toMatchObject({ method: 'resources/subscribe', params: { uri: 'diary://today' } });
  await group.close();
  await vi.advanceTimersByTimeAsync(10_000);
  expect(opened()).toBe(3);
});

it('ends with the last of its leases; until then one that is left hears what belongs to no call', async () => {
  const { group, closed, say } = failing(() => true);
  const heard: string[] = [];
  const [first, second, third] = ['first', 'second', 'third'].map((name) => ({
    notification: () => void heard.push(name),
    ask: () => new Promise<never>(() => {}),
    isUsed: false,
  }));
  if (first === undefined || second === undefined || third === undefined) throw new Error('three are made');
  for (const lease of [first, second, third]) group.leases.add(lease);
  group.sayOutside(first);
  await group.peer();
  for (const lease of [third, first]) {
    say({ method: 'notifications/tools/list_changed' });
    group.leave(lease);
  }
  say({ method: 'notifications/tools/list_changed' });
  expect([heard, closed()]).toEqual([['first', 'first', 'second'], 0]);
  group.leave(second);
  group.leave(second);
  expect(closed()).toBe(1);
  await expect(group.peer()).rejects.toThrow('was closed');
});
