/** A store that is away for longer than a request waits, from a process that follows a call of a dead one. */
import { setTimeout as pause } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { buildServer } from '../fixtures/asking-server.ts';
import { type Flaky, flakyStore } from '../fixtures/flaky-store.ts';
import { some } from '../short.ts';
import { answer, asks, begin, call, type Session } from './anywhere.ts';
import { post, type RawReply, textOf } from './clients.ts';
import { SECRET, type Served, serveHere } from './harness.ts';
import type { Reader } from './reader.ts';

const LEASE = 300;
const open: Served[] = [];
afterEach(() => Promise.all(open.splice(0).map((served) => served.close())));

const done: string[] = [];

/** Two processes that reach one store, each by itself. */
async function start(): Promise<[Flaky, Flaky]> {
  done.length = 0;
  const records = new Map<string, string>();
  const both = [flakyStore(records), flakyStore(records)] as [Flaky, Flaky];
  for (const { store } of both) {
    const limits = { lease: LEASE, drain: 100 };
    const options = { store, secrets: [SECRET], limits };
    open.push(await serveHere(() => buildServer((effect) => done.push(effect)), options));
  }
  return both;
}

async function finish(session: Session, stream: Reader): Promise<void> {
  const name = await stream.next(asks('name'));
  await session.post(1, answer(name, 'name'));
  const { result } = await stream.next(({ id }) => id === 7);
  expect(JSON.stringify(result)).toContain('its name, its address');
  expect(done).toEqual(expect.arrayContaining(['charge', 'ship']));
  expect(done.filter((effect) => effect === 'charge')).toEqual(['charge']);
}

it.each(some([5, 9, 14]))(
  "2025-11-25: a dead process's call is taken over after %i leases",
  {
    timeout: 60_000,
  },
  async (leases) => {
    const [dead, alive] = await start();
    const session = await begin(open);
    const stream = await session.post(0, call('order'));
    const ask = await stream.next(asks('address'));
    // For the others it is dead.
    dead.fail = 'all';
    const resumed = await session.get(1, stream.last);
    await pause(LEASE / 3);
    alive.fail = 'all';
    await pause(leases * LEASE);
    alive.fail = undefined;
    await session.post(1, answer(ask, 'address'));
    await finish(session, resumed);
  },
);

it.each(some([5, 9, 20]))(
  '2025-11-25: an answer at another process is fetched after %i leases',
  {
    timeout: 60_000,
  },
  async (leases) => {
    const both = await start();
    const session = await begin(open);
    const stream = await session.post(0, call('order'));
    const ask = await stream.next(asks('address'));
    for (const one of both) one.fail = 'all';
    await pause(leases * LEASE);
    for (const one of both) one.fail = undefined;
    await session.post(1, answer(ask, 'address'));
    await finish(session, stream);
  },
);

it.each(some([0, 1]))(
  '2025-11-25: an answer that comes meanwhile to process %i is taken in',
  {
    timeout: 60_000,
  },
  async (to) => {
    const both = await start();
    const session = await begin(open);
    const stream = await session.post(0, call('order'));
    const ask = await stream.next(asks('address'));
    for (const one of both) one.fail = 'all';
    const answered = session.post(to, answer(ask, 'address'));
    await pause(7 * LEASE);
    for (const one of both) one.fail = undefined;
    expect((await answered).status).toBe(202);
    await finish(session, stream);
  },
);

describe.each(['all', 'write'] as const)('2026-07-28, while operations of the store fail: %s', (fail) => {
  const answered = (to: number, { keys: [key = ''], state }: RawReply, field: string, signal?: AbortSignal) =>
    post(open[to]?.url ?? '', {
      tool: 'order',
      state,
      responses: { [key]: { action: 'accept', content: { [field]: `its ${field}` } } },
      ...(signal && { signal }),
    });

  it.each(some([0, 1]))(
    'an answer that comes to process %i waits for it, with its client',
    { timeout: 60_000 },
    async (to) => {
      const both = await start();
      const first = await post(open[0]?.url ?? '', { tool: 'order' });
      for (const one of both) one.fail = fail;
      const later = answered(to, first, 'address');
      await pause(9 * LEASE);
      for (const one of both) one.fail = undefined;
      const second = await later;
      expect(second.keys).toHaveLength(1);
      expect(textOf(await answered(1 - to, second, 'name'))).toContain('its name, its address');
      expect(done.filter((effect) => effect === 'charge')).toEqual(['charge']);
    },
  );

  it('an answer whose client has left is given up, and is good again elsewhere', async () => {
    const both = await start();
    const first = await post(open[0]?.url ?? '', { tool: 'order' });
    for (const one of both) one.fail = fail;
    const leaving = new AbortController();
    const left = answered(1, first, 'address', leaving.signal).catch(() => 'left');
    await pause(LEASE);
    leaving.abort();
    expect(await left).toBe('left');
    await pause(6 * LEASE);
    for (const one of both) one.fail = undefined;
    expect((await answered(0, first, 'address')).keys).toHaveLength(1);
    expect(done.filter((effect) => effect === 'charge')).toEqual(['charge']);
  });
});
