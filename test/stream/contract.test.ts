/** What streams do, on every store and over every relay. Two `EventStreams` stand for two processes. */
import Keyv from 'keyv';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/base/values.ts';
import type { Relay } from '../../src/call/ports.ts';
import { KeyvCallStore } from '../../src/checkpoint/call-store.ts';
import { openStore } from '../../src/checkpoint/open-store.ts';
import { memoryRelay } from '../../src/index.ts';
import { natsRelay } from '../../src/relay/nats.ts';
import { redisRelay } from '../../src/relay/redis.ts';
import { sharedId } from '../../src/stream/event-id.ts';
import type { EventStreams } from '../../src/stream/event-streams.ts';
import { NATS, NATS_URL, POSTGRES, REDIS, REDIS_URL, SQLITE } from '../e2e/services.ts';
import { some } from '../short.ts';
import { Connection, follow, numbers, REFUSED, SCOPE, startProcess, until } from './workbench.ts';

interface Kind {
  readonly name: string;
  readonly down: boolean;
  readonly stores: () => Promise<readonly [Keyv, Keyv]>;
  readonly relays?: () => readonly [Relay, Relay];
}

const both = async (url: string): Promise<readonly [Keyv, Keyv]> => [
  await openStore(url),
  await openStore(url),
];
const one = async (): Promise<readonly [Keyv, Keyv]> => {
  const keyv = new Keyv();
  return [keyv, keyv];
};
const inMemory = (): readonly [Relay, Relay] => {
  const relay = memoryRelay();
  return [relay, relay];
};
const deaf = (): readonly [Relay, Relay] => {
  const relay: Relay = { ...memoryRelay(), send: async () => true };
  return [relay, relay];
};
const redis = (): readonly [Relay, Relay] => [redisRelay(REDIS_URL), redisRelay(REDIS_URL)];
const nats = (): readonly [Relay, Relay] => [natsRelay(NATS_URL), natsRelay(NATS_URL)];

const KINDS: readonly Kind[] = [
  { name: 'memory', down: false, stores: one },
  { name: 'memory, a relay in memory', down: false, stores: one, relays: inMemory },
  { name: 'memory, a relay that loses everything', down: false, stores: one, relays: deaf },
  { name: SQLITE.name, down: false, stores: () => both(SQLITE.url()) },
  {
    name: `${SQLITE.name}, a relay in memory`,
    down: false,
    stores: () => both(SQLITE.url()),
    relays: inMemory,
  },
  { name: REDIS.name, down: REDIS.down, stores: () => both(REDIS.url()) },
  { name: `${REDIS.name}, its relay`, down: REDIS.down, stores: () => both(REDIS.url()), relays: redis },
  {
    name: `${REDIS.name}, ${NATS.name}`,
    down: REDIS.down || NATS.down,
    stores: () => both(REDIS.url()),
    relays: nats,
  },
  { name: POSTGRES.name, down: POSTGRES.down, stores: () => both(POSTGRES.url()) },
  {
    name: `${POSTGRES.name}, ${REDIS.name} as the relay`,
    down: POSTGRES.down || REDIS.down,
    stores: () => both(POSTGRES.url()),
    relays: redis,
  },
];

/** Deletion is asynchronous: the error that a client gets once it is done. */
async function gone(streams: EventStreams, id: string, scope: string): Promise<unknown> {
  for (let tries = 0; tries < 1_000; tries += 1) {
    try {
      await streams.resume(id, scope);
    } catch (error) {
      return error;
    }
  }
  throw new Error(`${id} is still there`);
}

for (const { name, down, stores, relays } of some(KINDS, 2)) {
  describe.skipIf(down)(`streams on ${name}`, () => {
    let here: EventStreams;
    let there: EventStreams;
    const closing: (() => Promise<unknown>)[] = [];

    beforeAll(async () => {
      const keyvs = await stores();
      const made = relays?.();
      const make = (nth: 0 | 1): EventStreams =>
        startProcess({
          records: new KeyvCallStore(keyvs[nth], systemClock, 10_000),
          ...(made !== undefined && { relay: made[nth] }),
          limits: { streamEvents: 20, streams: 4 },
        });
      here = make(0);
      there = make(1);
      closing.push(
        () => here.close(),
        () => there.close(),
        ...(made ?? []).map((relay) => () => relay.close()),
        ...[...new Set(keyvs)].map((keyv) => () => keyv.disconnect().catch(() => {})),
      );
    });
    afterAll(async () => {
      for (const close of closing) await close();
    });

    const scopes = new Set<string>();
    /** A scope for each test: what one keeps does not count for another. */
    const scoped = (): string => {
      const scope = `session ${scopes.size}`;
      scopes.add(scope);
      return scope;
    };

    it('gives what is appended in order, under ids that count', async () => {
      const scope = scoped();
      const stream = here.open(scope);
      const connection = await follow(here, stream.id, 0, scope);
      const appended = numbers(1, 15).map((data) => stream.append({ data }));
      const ids = await Promise.all(appended);
      expect(ids).toEqual(numbers(1, 15).map((nth) => `${stream.id}_${nth}`));
      expect(connection.ids).toEqual(ids);
      expect(connection.data).toEqual(numbers(1, 15));
      expect(connection.ended).toBeUndefined();
    });

    it('replays after any of them, in either process', async () => {
      const scope = scoped();
      const stream = here.open(scope);
      const ids: string[] = [];
      for (const data of numbers(1, 12)) ids.push(await stream.append({ data, event: 'message', retry: 5 }));
      for (const [index, id] of ids.entries()) {
        const connection = new Connection();
        const streams = index % 2 === 0 ? there : here;
        await (await streams.resume(id, scope)).follow(connection);
        await until(() => connection.data.length === 11 - index);
        expect(connection.data).toEqual(numbers(index + 2, 12));
      }
    });

    it('closes right after the last event, and after it again', async () => {
      for (const ends of ['with the event', 'with a mark of its own']) {
        const scope = scoped();
        const stream = here.open(scope);
        const [near, far] = [await follow(here, stream.id, 0, scope), new Connection()];
        const first = await stream.append({ data: 'first' });
        await (await there.resume(first, scope)).follow(far);
        const last = await stream.append({ data: 'last' }, ends === 'with the event');
        await stream.finish();
        await until(() => far.ended !== undefined, 'the end');
        expect(far).toMatchObject({ data: ['last'], ended: 'finished' });
        expect(near.ended).toBe('replaced');
        const again = new Connection();
        await (await here.resume(last, scope)).follow(again);
        await until(() => again.ended !== undefined, 'the end again');
        expect(again).toMatchObject({ data: [], ended: 'finished' });
        await expect(stream.append({ data: 'late' })).rejects.toMatchObject({ code: 'closed' });
      }
    });

    it('brings what one process appends to the connection of another, each event once', async () => {
      const scope = scoped();
      const stream = here.open(scope);
      const near = await follow(here, stream.id, 0, scope);
      await stream.append({ data: '1' });
      const far = await follow(there, stream.id, 1, scope);
      for (const data of numbers(2, 12)) await stream.append({ data });
      await until(() => far.data.length === 11);
      expect(far.data).toEqual(numbers(2, 12));
      expect(near).toMatchObject({ data: ['1'], ended: 'replaced' });
      const back = new Connection();
      await (await here.resume(far.ids.at(-1) ?? '', scope)).follow(back);
      await stream.append({ data: '13' });
      await until(() => far.ended !== undefined && back.data.length > 0);
      expect(back.data).toEqual(['13']);
      expect(far.data).toEqual(numbers(2, 12));
    });

    it('has one connection of a process end the older one', async () => {
      const scope = scoped();
      const stream = here.open(scope);
      const first = await stream.append({ data: '1' });
      const connections: Connection[] = [];
      for (let nth = 0; nth < 3; nth += 1) connections.push(new Connection());
      await Promise.all(
        connections.map(async (connection) => (await here.resume(first, scope)).follow(connection)),
      );
      await stream.append({ data: '2' });
      const open = connections.filter(({ ended }) => ended === undefined);
      expect(open).toHaveLength(1);
      await until(() => open[0]?.data.length === 1);
      expect(connections.filter(({ ended }) => ended === 'replaced')).toHaveLength(2);
    });

    it('keeps so many events, and refuses who wants older ones', async () => {
      const scope = scoped();
      const stream = here.open(scope);
      await follow(here, stream.id, 0, scope);
      const ids: string[] = [];
      for (const data of numbers(1, 50)) ids.push(await stream.append({ data }));
      await until(() => stream.oldest === 31);
      for (const streams of [here, there]) {
        const far = new Connection();
        await (await streams.resume(ids[29] ?? '', scope)).follow(far);
        await until(() => far.data.length === 20);
        expect(far.data).toEqual(numbers(31, 50));
        for (const old of [0, 10, 28]) {
          await expect(gone(streams, ids[old] ?? '', scope)).resolves.toMatchObject(REFUSED);
        }
      }
    });

    it('breaks off a connection that falls behind what is kept, and never skips', async () => {
      const scope = scoped();
      const stream = here.open(scope);
      const [near, far] = [new Connection(), new Connection()];
      far.room = 2;
      await (await here.find(stream.id, 0, scope)).follow(near);
      for (const data of numbers(1, 40)) await stream.append({ data });
      await until(() => stream.oldest === 21);
      await (await there.resume(`${stream.id}_21`, scope)).follow(far);
      await until(() => far.data.length === 2);
      for (const data of numbers(41, 90)) await stream.append({ data });
      await until(() => stream.oldest > 60);
      far.take(100);
      await until(() => far.ended !== undefined, 'the end');
      expect(far).toMatchObject({ data: ['22', '23'], ended: 'behind' });
      expect(near).toMatchObject({ data: numbers(1, 40), ended: 'replaced' });
    });

    it('keeps a burst for a connection beside the appender that has not had it, and not more', async () => {
      const scope = scoped();
      const stream = here.open(scope);
      const near = new Connection();
      near.room = 2;
      await (await here.find(stream.id, 0, scope)).follow(near);
      for (const data of numbers(1, 100)) await stream.append({ data });
      near.take(98);
      await until(() => near.data.length === 100);
      expect(near.data).toEqual(numbers(1, 100));
      near.room = 0;
      for (const data of numbers(101, 300)) await stream.append({ data });
      await until(() => stream.oldest > 101);
      near.take(300);
      await until(() => near.ended !== undefined, 'the end');
      expect(near).toMatchObject({ data: numbers(1, near.data.length), ended: 'behind' });
    });

    it('answers unknown, foreign, damaged and long ids alike', async () => {
      const scope = scoped();
      const stream = here.open(scope);
      const id = await stream.append({ data: '1' });
      const wrong: [string, string][] = [
        [id, 'session of Mallory'],
        [`${stream.id}_2`, scope],
        [`${stream.id}_0`, scope],
        [`${stream.id}_01`, scope],
        [stream.id, scope],
        ['', scope],
        [`${id}${'0'.repeat(300)}`, scope],
        [id.replace(/\..{22}/, '.AAAAAAAAAAAAAAAAAAAAAA'), scope],
        [`0.${stream.id.split('.')[1]}_1`, scope],
      ];
      for (const streams of [here, there]) {
        for (const [text, asked] of wrong) {
          await expect(streams.resume(text, asked), text).rejects.toMatchObject(REFUSED);
        }
        await expect(streams.find(stream.id, 0, 'session of Mallory')).rejects.toMatchObject(REFUSED);
      }
      await here.resume(id, scope);
    });

    it('keeps so many streams of a session, the oldest finished one goes first', async () => {
      const scope = scoped();
      const busy = here.open(scope);
      await busy.append({ data: 'busy' });
      const ids: string[] = [];
      for (let nth = 0; nth < 4; nth += 1) ids.push(await here.open(scope).append({ data: 'done' }, true));
      await expect(there.resume(ids[1] ?? '', scope)).resolves.toBeDefined();
      for (const streams of [there, here]) {
        await expect(gone(streams, ids[0] ?? '', scope)).resolves.toMatchObject(REFUSED);
      }
      await busy.append({ data: 'still' });
      const unfinished = scoped();
      for (let nth = 0; nth < 4; nth += 1) here.open(unfinished);
      expect(() => here.open(unfinished)).toThrow(/streams of one session are unfinished/);
    });

    it('has streams that both processes append to by their id, leave, and delete', async () => {
      const scope = scoped();
      const id = sharedId(Date.now() + 60_000);
      const connection = await follow(here, id, 0, scope);
      await here.shared(id, scope).append({ data: '1' });
      await there.shared(id, scope).append({ data: '2' });
      there.leave(id, scope);
      await here.shared(id, scope).append({ data: '3' });
      await there.shared(id, scope).append({ data: '4' });
      await until(() => connection.data.length === 4);
      expect(connection.data).toEqual(numbers(1, 4));
      const last = connection.ids.at(-1) ?? '';
      await there.resume(last, scope);
      await here.remove(id, scope);
      expect(connection.ended).toBe('closed');
      await expect(there.resume(last, scope)).rejects.toMatchObject(REFUSED);
    });

    it('has a standing stream with a derived id, to which both processes append', async () => {
      const scope = scoped();
      const expires = Date.now() + 60_000;
      const [near, far] = [here.standing(scope, expires), there.standing(scope, expires)];
      expect(near.id).toBe(far.id);
      await near.append({ data: '1' });
      await far.append({ data: '2' });
      const first = await follow(here, near.id, 'new', scope);
      await until(() => first.data.length === 2);
      await near.append({ data: '3' });
      await far.append({ data: '4' });
      await until(() => first.data.length === 4);
      first.leave();
      await far.append({ data: '5' });
      const second = await follow(there, near.id, 'new', scope);
      await near.append({ data: '6' });
      await until(() => second.data.length === 2);
      expect(first.data).toEqual(['1', '2', '3', '4']);
      expect(second.data).toEqual(['5', '6']);
      const third = await follow(here, near.id, 'new', scope);
      await far.append({ data: '7' });
      await until(() => third.data.length === 1);
      expect([third.data, second.data]).toEqual([['7'], ['5', '6']]);
      await near.finish();
      await until(() => third.ended === 'finished');
      await expect(far.append({ data: '8' })).rejects.toMatchObject({ code: 'closed' });
      const late = here.standing(scope, expires);
      await expect(late.append({ data: '9' })).rejects.toMatchObject({ code: 'closed' });
    });

    it('drops a standing stream without a connection, and continues it on request', async () => {
      const scope = scoped();
      const expires = Date.now() + 60_000;
      const former = here.standing(scope, expires);
      await former.append({ data: '1' });
      here.leave(former.id, scope);
      const again = here.standing(scope, expires);
      expect(again).not.toBe(former);
      await again.append({ data: '2' });
      const connection = await follow(here, again.id, 'new', scope);
      here.leave(again.id, scope);
      expect(here.standing(scope, expires)).toBe(again);
      await again.append({ data: '3' });
      await until(() => connection.data.length === 3);
      expect(connection.data).toEqual(['1', '2', '3']);
    });

    it('deletes what a session had when it ends', async () => {
      const scope = scoped();
      const stream = here.open(scope);
      const connection = await follow(here, stream.id, 0, scope);
      const id = await stream.append({ data: '1' });
      here.drop(scope);
      expect(connection.ended).toBe('closed');
      await expect(stream.append({ data: '2' })).rejects.toMatchObject({ code: 'closed' });
      await expect(gone(there, id, scope)).resolves.toMatchObject(REFUSED);
    });
  });
}

describe('streams without a store', () => {
  it('are in the memory of this process, and in no other', async () => {
    const [here, there] = [startProcess(), startProcess()];
    const stream = here.open(SCOPE);
    const connection = await follow(here, stream.id);
    const id = await stream.append({ data: '1' });
    await stream.append({ data: '2' }, true);
    expect(connection).toMatchObject({ data: ['1', '2'], ended: 'finished' });
    const again = new Connection();
    await (await here.resume(id, SCOPE)).follow(again);
    await until(() => again.ended !== undefined);
    expect(again.data).toEqual(['2']);
    await expect(there.resume(id, SCOPE)).rejects.toMatchObject(REFUSED);
    await here.close();
    await there.close();
  });
});
