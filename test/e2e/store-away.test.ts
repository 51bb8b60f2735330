/** A store that is away for longer than a request waits, from a process that follows a call of a dead one. */
import { setTimeout as pause } from 'node:timers/promises';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { afterEach, describe, expect, it } from 'vitest';
import { AwaitError } from '../../src/base/values.ts';
import { type AwaitOptions, memoryRelay, step } from '../../src/index.ts';
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

it.each((['all', 'write'] as const).flatMap((fail) => [0, 1].map((to) => ({ fail, to }))))(
  'DRAFT-SEP-1858: answers to process $to wait while operations fail: $fail',
  async ({ fail, to }) => {
    const both = await start();
    const session = await begin(open, undefined, undefined, 'DRAFT-SEP-1858');
    const stream = await session.post(0, call('order'));
    const ask = await stream.next(asks('address'));
    await expect.poll(() => stream.over).toBe(true);
    // The session is read before.
    await session.post(to, { id: 8, method: 'ping' });
    for (const one of both) one.fail = fail;
    const body = [{ jsonrpc: '2.0', ...answer(ask, 'address') }];
    const next = session.post(to, body, { 'last-event-id': stream.last });
    await pause(9 * LEASE);
    for (const one of both) one.fail = undefined;
    const name = await (await next).next(asks('name'));
    expect(name.params?.message).toBe('name?');
    expect(done.filter((effect) => effect === 'charge')).toEqual(['charge']);
  },
);

describe('2026-07-28', () => {
  const form = { type: 'object' as const, properties: { day: { type: 'string' as const } } };
  let worked = 0;
  const build = (): McpServer => {
    const server = new McpServer({ name: 'working', version: '1' });
    server.registerTool('work', {}, async () => {
      const { content } = await server.server.elicitInput({ message: 'When?', requestedSchema: form });
      await step('work', async () => {
        worked += 1;
        await pause(2 * LEASE);
      });
      return { content: [{ type: 'text', text: `done on ${content?.day}` }] };
    });
    return server;
  };
  const serve = async (more: AwaitOptions, made = build): Promise<string> => {
    const limits = { lease: LEASE, drain: 100 };
    const served = await serveHere(made, { secrets: [SECRET], limits, ...more });
    open.push(served);
    return served.url;
  };
  const answered = (url: string, { keys: [key = ''], state }: RawReply): Promise<RawReply> =>
    post(url, {
      tool: 'work',
      state,
      responses: { [key]: { action: 'accept', content: { day: 'Monday' } } },
    });

  it('an answer that cannot be written is over with its call', async () => {
    const flaky = flakyStore();
    const url = await serve({ store: flaky.store, ttl: 4 * LEASE });
    const first = await post(url, { tool: 'work' });
    flaky.fail = 'claimed';
    const { message } = await answered(url, first);
    expect(message.error?.message).toContain('could not be saved');
  });

  it('an answer that its process has passed on waits, too, and what it began is done once', async () => {
    worked = 0;
    const records = new Map<string, string>();
    const both = [flakyStore(records), flakyStore(records)];
    const relay = memoryRelay();
    const [one = '', two = ''] = await Promise.all(both.map(({ store }) => serve({ store, relay })));
    const later = answered(two, await post(one, { tool: 'work' }));
    await expect.poll(() => worked).toBe(1);
    for (const each of both) each.fail = 'all';
    await pause(9 * LEASE);
    for (const each of both) each.fail = undefined;
    expect(textOf(await later)).toBe('done on Monday');
    expect(worked).toBe(1);
  });

  describe('an answer to a call that may not be run again, at a process that has not its frame', () => {
    const never = { replay: () => 'never' as const };

    it.each([
      ['refuses writes', ['write', 'write']],
      ['refuses the writes of the process that has it', ['write', undefined]],
      ['is away for the process that has it', ['all', undefined]],
      ['is away', ['all', 'all']],
    ] as const)('waits with that one while the store %s', { timeout: 60_000 }, async (_how, fails) => {
      worked = 0;
      const records = new Map<string, string>();
      const both = [flakyStore(records), flakyStore(records)];
      const relay = memoryRelay();
      const [one = '', two = ''] = await Promise.all(
        both.map(({ store }) => serve({ store, relay, ...never })),
      );
      const first = await post(one, { tool: 'work' });
      for (const [nth, each] of both.entries()) each.fail = fails[nth];
      const later = answered(two, first);
      await pause(9 * LEASE);
      for (const each of both) each.fail = undefined;
      expect(textOf(await later)).toBe('done on Monday');
      expect(worked).toBe(1);
    });

    it('is refused once nothing was heard of that one for a lease, and is good again where it is', async () => {
      worked = 0;
      const { store } = flakyStore();
      const memory = memoryRelay();
      let isLost = false;
      const relay = {
        ...memory,
        send: (name: string, text: string) => (isLost ? Promise.resolve(true) : memory.send(name, text)),
      };
      const one = await serve({ store, relay, ...never });
      const two = await serve({ store, relay, ...never });
      const first = await post(one, { tool: 'work' });
      isLost = true;
      const { message } = await answered(two, first);
      expect(JSON.stringify(message.error)).toContain('may not be run again');
      expect(textOf(await answered(one, first))).toBe('done on Monday');
      expect(worked).toBe(1);
    });
  });

  it('is claimed once by a process whose factory fails as a store does', async () => {
    const records = new Map<string, string>();
    const [own, other] = [flakyStore(records), flakyStore(records)];
    const one = await serve({ store: own.store });
    let good = Infinity;
    const two = await serve({ store: other.store }, () => {
      good -= 1;
      if (good < 0) throw new AwaitError('store', 'the database of the server is away');
      return build();
    });
    const first = await post(one, { tool: 'work' });
    // The first is asked what the tool is.
    good = 1;
    const { message } = await answered(two, first);
    expect(message.error).toBeDefined();
    expect(other.entries('claimed')).toHaveLength(1);
  });
});
