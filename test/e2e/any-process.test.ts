/** 2025 clients whose every request may reach another process: streams, answers and calls are everybody's. */
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { some } from '../short.ts';
import { answer, asks, begin as beginAt, call, type Session } from './anywhere.ts';
import { effectsIn, Fleet, type Spawned, scratch } from './harness.ts';
import { NATS, NATS_URL, POSTGRES, REDIS, REDIS_URL, SQLITE } from './services.ts';

const KINDS = [
  { name: REDIS.name, down: REDIS.down, args: () => ['--store', REDIS_URL] },
  {
    name: `${REDIS.name}, with a relay`,
    down: REDIS.down,
    args: () => ['--store', REDIS_URL, '--relay', REDIS_URL],
  },
  {
    name: `${POSTGRES.name}, with a relay of ${NATS.name}`,
    down: POSTGRES.down || NATS.down,
    args: () => ['--store', POSTGRES.url(), '--relay', NATS_URL],
  },
  { name: SQLITE.name, down: false, args: () => ['--store', SQLITE.url()] },
];

/** Calls that are over sooner cannot be cancelled by another process. */
const lasting = (): Promise<unknown> => new Promise((resolve) => setTimeout(resolve, 300));

let servers: Spawned[] = [];
const begin = (): Promise<Session> => beginAt(servers);

for (const kind of some(KINDS)) {
  describe.skipIf(kind.down)(`three processes on ${kind.name}`, () => {
    const effects = join(scratch(), 'effects');
    const fleet = new Fleet('asking-server.ts', 3, { args: kind.args(), env: { EFFECTS: effects } });
    afterAll(() => fleet.down());
    const start = async (): Promise<Session> => {
      servers = await fleet.up();
      return begin();
    };

    it('take an answer in another process than the one that asks', async () => {
      const session = await start();
      const stream = await session.post(0, call('in-turn'));
      for (const [nth, field] of ['name', 'city', 'street'].entries()) {
        const ask = await stream.next(asks(field));
        expect((await session.post((nth % 2) + 1, answer(ask, field))).status).toBe(202);
      }
      const done = await stream.next(({ id }) => id === 7);
      expect(done.result?.content?.[0]?.text).toBe('its name, its city, its street');
      await expect.poll(() => stream.over).toBe(true);
    });

    it('resume a stream that broke, from where it was, and once', async () => {
      const session = await start();
      const first = await session.post(0, call('in-turn'));
      const ask = await first.next(asks('name'));
      const again = await session.get(1, first.last);
      expect((await session.post(2, answer(ask, 'name'))).status).toBe(202);
      const city = await again.next(asks('city'));
      const third = await session.get(2, again.last);
      await session.post(0, answer(city, 'city'));
      await session.post(1, answer(await third.next(asks('street')), 'street'));
      const done = await third.next(({ id }) => id === 7);
      expect(done.result?.content?.[0]?.text).toBe('its name, its city, its street');
      await expect.poll(() => third.over).toBe(true);
      // The second connection had the stream before this was said, so the first one had it no more.
      expect(first.messages.filter(asks('street'))).toEqual([]);
    });

    it('take a call up whose process was killed, and run no completed step twice', async () => {
      const session = await start();
      const before = effectsIn(effects).length;
      const first = await session.post(0, call('order'));
      const ask = await first.next(asks('address'));
      await servers[0]?.kill();
      await expect.poll(() => first.over).toBe(true);
      const again = await session.get(1, first.last);
      expect((await session.post(2, answer(ask, 'address'))).status).toBe(202);
      const name = await again.next(asks('name'));
      await session.post(2, answer(name, 'name'));
      const done = await again.next(({ id }) => id === 7);
      expect(done.result?.content?.[0]?.text).toBe('its name, its address, 43');
      const acted = effectsIn(effects).slice(before);
      expect(acted.filter((effect) => effect !== 'finally')).toEqual(['charge', 'ship']);
    });

    it('know what a client set in another one: its log level', async () => {
      const session = await start();
      const level = async (to: number, wanted: string): Promise<void> => {
        const set = await session.post(to, {
          id: 'level',
          method: 'logging/setLevel',
          params: { level: wanted },
        });
        await set.next(({ id }) => id === 'level');
      };
      const said = async (to: number): Promise<number> => {
        const stream = await session.post(to, call('notes'));
        for (const field of ['name', 'city']) {
          await session.post(to, answer(await stream.next(asks(field)), field));
        }
        await stream.next(({ id }) => id === 7);
        return stream.messages.filter(({ method }) => method === 'notifications/message').length;
      };
      await level(0, 'error');
      expect([await said(1), await said(0), await said(2)]).toEqual([0, 0, 0]);
      await level(2, 'debug');
      expect([await said(0), await said(1)]).toEqual([3, 3]);
    });

    it.each(['waits for its answer', 'is at work'])('cancel a call for one another: it %s', async (state) => {
      const session = await start();
      const before = effectsIn(effects).length;
      const stream = await session.post(0, call('cancelled'));
      const ask = await stream.next(asks('name'));
      if (state === 'is at work') await session.post(2, answer(ask, 'name'));
      const cancel = { method: 'notifications/cancelled', params: { requestId: 7 } };
      expect((await session.post(1, cancel)).status).toBe(202);
      // Without a relay its owner reads it with its next sign of life.
      await expect.poll(() => effectsIn(effects).slice(before)).toContain('aborted');
      await expect.poll(() => stream.over).toBe(true);
      expect(stream.messages.filter(({ id }) => id === 7)).toEqual([]);
      // Its id no longer cancels anything.
      const again = await session.post(0, { ...call('throws'), id: 8 });
      await again.next(({ id }) => id === 8);
    });

    it('take up no call that was cancelled, and end its stream', async () => {
      const session = await start();
      const before = effectsIn(effects).length;
      const first = await session.post(0, call('order'));
      await first.next(asks('address'));
      await lasting();
      await servers[0]?.kill();
      const again = await session.get(1, first.last);
      const cancel = { method: 'notifications/cancelled', params: { requestId: 7 } };
      expect((await session.post(2, cancel)).status).toBe(202);
      await expect.poll(() => again.over).toBe(true);
      expect(again.messages.filter(({ id }) => id === 7)).toEqual([]);
      expect(effectsIn(effects).slice(before)).toEqual(['charge']);
    });

    it('cancel nothing of another session', async () => {
      const session = await start();
      const other = await begin();
      const stream = await session.post(0, call('one'));
      const ask = await stream.next(asks('name'));
      await lasting();
      await other.post(1, { method: 'notifications/cancelled', params: { requestId: 7 } });
      await session.post(2, { method: 'notifications/cancelled', params: { requestId: '7' } });
      await new Promise((resolve) => setTimeout(resolve, 1_000));
      await session.post(1, answer(ask, 'name'));
      expect((await stream.next(({ id }) => id === 7)).result?.content?.[0]?.text).toBe('Hello its name');
    });

    it('refuse an id of another session, and a malformed one, with one sentence', async () => {
      const session = await start();
      const other = await begin();
      const stream = await session.post(0, call('one'));
      await stream.next(asks('name'));
      for (const [whose, id] of [
        [other, stream.last],
        [session, `${stream.last}9`],
        [session, 'nonsense'],
        [session, 'x'.repeat(5_000)],
      ] as const) {
        const refused = await whose.get(1, id);
        await expect.poll(() => refused.over).toBe(true);
        expect([refused.status, JSON.parse(refused.text).error]).toEqual([
          400,
          { code: -32602, message: 'Invalid or expired Last-Event-ID' },
        ]);
      }
    });
  });
}
