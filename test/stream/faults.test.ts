/** Faults: of stores, relays and time, and too many events. */
import Keyv from 'keyv';
import { describe, expect, it } from 'vitest';
import { AwaitError, systemClock } from '../../src/base/values.ts';
import { KeyvCallStore } from '../../src/checkpoint/call-store.ts';
import { KeyRing } from '../../src/checkpoint/key-ring.ts';
import { Names } from '../../src/checkpoint/names.ts';
import { encryptedRecords } from '../../src/checkpoint/records.ts';
import { Sealer } from '../../src/checkpoint/sealed.ts';
import { memoryRelay } from '../../src/index.ts';
import { Retry } from '../../src/log/retry.ts';
import { memoryRecords, type StreamRecords } from '../../src/stream/records.ts';
import { adapterOf } from '../fixtures/keyv-parts.ts';
import { Connection, FakeClock, follow, numbers, REFUSED, SCOPE, startProcess, until } from './workbench.ts';

type Fault = 'before' | 'after' | undefined;

function flaky(records: StreamRecords): StreamRecords & { fault: Fault; reads: number; failing: boolean } {
  const retry = new Retry({ clock: systemClock, lease: 1_000 });
  const store = {
    fault: undefined as Fault,
    failing: false,
    reads: 0,
    insert(name: string, value: unknown, expires: number, how?: { readonly until?: number }) {
      const insert = async (): Promise<boolean> => {
        const { fault } = store;
        store.fault = undefined;
        if (fault === 'before') throw new AwaitError('store', 'it is down');
        const inserted = await records.insert(name, value, expires);
        if (fault === 'after') throw new AwaitError('store', 'it wrote, and says that it did not');
        return inserted;
      };
      return retry.insert(insert, () => records.get(name), value, how?.until);
    },
    async get(name: string) {
      store.reads += 1;
      if (store.failing) throw new AwaitError('store', 'it is down');
      return records.get(name);
    },
    replace: records.replace,
    remove: records.remove,
  };
  return store;
}

describe('a store that fails', () => {
  for (const fault of ['before', 'after'] as const) {
    it(`${fault} it has written: the event is in the stream once, and the next one follows it`, async () => {
      const store = flaky(memoryRecords(systemClock));
      const streams = startProcess({ records: store });
      const stream = streams.open(SCOPE);
      const connection = await follow(streams, stream.id);
      await stream.append({ data: '1' });
      store.fault = fault;
      expect(await stream.append({ data: '2' })).toBe(`${stream.id}_2`);
      await stream.append({ data: '3' }, true);
      expect(connection.data).toEqual(['1', '2', '3']);
      expect(connection.ended).toBe('finished');
      await streams.close();
    });
  }

  it('to be read for a while costs that while, and a connection when it lasts', async () => {
    const clock = new FakeClock();
    const kept = memoryRecords(clock);
    const store = flaky(kept);
    const [here, there] = [startProcess({ records: kept, clock }), startProcess({ records: store, clock })];
    const stream = here.open(SCOPE);
    await stream.append({ data: '1' });
    const far = await follow(there, stream.id, 1);
    store.failing = true;
    await stream.append({ data: '2' });
    await clock.pass(100);
    store.failing = false;
    await clock.pass(1_000);
    expect(far).toMatchObject({ data: ['2'], ended: undefined });
    store.failing = true;
    await clock.pass(10_000);
    expect(far.ended).toBe('failed');
    const dead = new Connection();
    store.failing = false;
    const found = await there.find(stream.id, 1, SCOPE);
    store.failing = true;
    await found.follow(dead);
    expect(dead.ended).toBe('failed');
  });
});

describe('time', () => {
  it('ends what has expired, for who asks and for who is there', async () => {
    const clock = new FakeClock();
    const streams = startProcess({ clock, limits: { streamLife: 5_000 } });
    const stream = streams.open(SCOPE);
    const connection = await follow(streams, stream.id);
    const id = await stream.append({ data: '1' });
    await clock.pass(5_000);
    await streams.resume(id, SCOPE);
    expect(connection.ended).toBeUndefined();
    await clock.pass(1);
    await clock.pass(1);
    expect(connection.ended).toBe('expired');
    await expect(streams.resume(id, SCOPE)).rejects.toMatchObject(REFUSED);
    await expect(stream.append({ data: '2' })).rejects.toMatchObject({ code: 'closed' });
  });

  it('is swept from the store by the sweeper that calls have', async () => {
    const keyv = new Keyv();
    let now = Date.now();
    const clock = { ...systemClock, now: () => now };
    const store = new KeyvCallStore(keyv, clock, 10_000);
    const streams = startProcess({ records: store, clock, limits: { streamEvents: 5 } });
    const stream = streams.open(SCOPE);
    await follow(streams, stream.id);
    for (const data of numbers(1, 30)) await stream.append({ data });
    await until(() => stream.oldest === 26);
    await streams.standing(SCOPE, now + 1_000).append({ data: '1' });
    await follow(streams, streams.standing(SCOPE, now + 1_000).id, 'new');
    const kept = adapterOf<Map<string, unknown>>(keyv);
    expect(kept.size).toBeGreaterThan(7);
    expect(await store.sweep()).toBe(0);
    now += 2 * 3_600_000;
    await store.sweep();
    expect([...kept.keys()]).toEqual([]);
    await streams.close();
  });

  it('deletes a finished stream once it cannot be resumed, and no other', async () => {
    const clock = new FakeClock();
    const records = memoryRecords(clock);
    const streams = startProcess({ records, clock, limits: { streamLife: 5_000 } });
    const [over, goesOn] = [0, 1].map(() => streams.open(SCOPE, clock.now() + 3_600_000));
    if (over === undefined || goesOn === undefined) throw new Error('two streams were opened');
    const last = [await over.append({ data: '1' }, true), await goesOn.append({ data: '1' })];
    await clock.pass(5_000);
    for (const id of last) await streams.resume(id, SCOPE);
    await clock.pass(5_001);
    await expect(streams.resume(last[0] ?? '', SCOPE)).rejects.toMatchObject(REFUSED);
    await streams.resume(last[1] ?? '', SCOPE);
    await goesOn.append({ data: '2' });
    await streams.close();
  });

  it('polls an idle stream ever more rarely, and not at all if no other process can append', async () => {
    const clock = new FakeClock();
    const store = flaky(memoryRecords(clock));
    const options = { records: store, clock, limits: { streamPoll: 1_000 } };
    const [here, there] = [startProcess(options), startProcess(options)];
    const stream = here.open(SCOPE);
    const near = await follow(here, stream.id);
    store.reads = 0;
    await clock.pass(60_000);
    expect(store.reads, 'one look in five seconds beside the appender').toBe(12);
    await stream.append({ data: '1' });
    const far = await follow(there, stream.id, 1);
    await clock.pass(10_000);
    expect(near.ended).toBe('replaced');
    store.reads = 0;
    await clock.pass(60_000);
    expect(store.reads, 'a look a second elsewhere, and whether the next was pruned at every eighth').toBe(
      67,
    );
    await stream.append({ data: '2' });
    for (let waited = 0; far.data.length === 0 && waited < 1_000; waited += 1) await clock.pass(1);
    expect(far.data).toEqual(['2']);
    await stream.append({ data: '3' });
    await clock.pass(20);
    expect(far.data, 'soon after something came').toEqual(['2', '3']);
    const alone = startProcess({ clock });
    const quiet = alone.open(SCOPE, clock.now() + 1_000_000);
    const connection = await follow(alone, quiet.id);
    await clock.pass(600_000);
    expect(connection.ended).toBeUndefined();
  });
});

describe('a relay', () => {
  it('brings events and newer connections without a look', async () => {
    const clock = new FakeClock();
    const options = { records: memoryRecords(clock), clock, relay: memoryRelay() };
    const [here, there] = [startProcess(options), startProcess(options)];
    const stream = here.open(SCOPE);
    await stream.append({ data: '1' });
    const near = await follow(here, stream.id, 1);
    await new Promise((resolve) => setImmediate(resolve));
    const far = await follow(there, stream.id, 1);
    await until(() => near.ended === 'replaced', 'the end of the older connection');
    await stream.append({ data: '2' });
    await until(() => far.data.length === 1);
    const back = await follow(here, stream.id, 2);
    await until(() => far.ended === 'replaced', 'the end of the older connection, beside the appender');
    await stream.append({ data: '3' }, true);
    await until(() => back.ended === 'finished');
    await here.close();
    await there.close();
  });
});

describe('a reader that is behind', () => {
  it('is read nothing for, and gets all of it in order when it is ready', async () => {
    const store = flaky(memoryRecords(systemClock));
    const streams = startProcess({ records: store });
    const stream = streams.open(SCOPE);
    const connection = new Connection();
    connection.room = 3;
    await (await streams.find(stream.id, 0, SCOPE)).follow(connection);
    for (const data of numbers(1, 300)) await stream.append({ data });
    expect(connection.data).toHaveLength(3);
    expect(store.reads, 'nothing is read while it is behind').toBeLessThan(3);
    connection.take(50);
    await until(() => connection.data.length === 53);
    connection.take(1_000);
    await until(() => connection.data.length === 300);
    await stream.append({ data: '301' }, true);
    expect(connection.data).toEqual(numbers(1, 301));
    expect(connection.ended).toBe('finished');
    await streams.close();
  });
});

describe('an event that is appended while its connection looks', () => {
  it('is given at once, not at the next look', async () => {
    const clock = new FakeClock();
    const kept = memoryRecords(clock);
    let answer: (() => void) | undefined;
    let slow = false;
    const records: StreamRecords = {
      ...kept,
      get: async (name) => {
        const found = await kept.get(name);
        if (slow) {
          await new Promise<void>((resolve) => {
            answer = resolve;
          });
        }
        return found;
      },
    };
    const streams = startProcess({ records, clock });
    const stream = streams.open(SCOPE);
    await stream.append({ data: '1' });
    const connection = new Connection();
    const found = await streams.find(stream.id, 1, SCOPE);
    await found.follow(connection);
    // The first look is over.
    await new Promise((resolve) => setTimeout(resolve, 20));
    slow = true;
    await clock.pass(5_000);
    await until(() => answer !== undefined, 'a look');
    slow = false;
    // The look has found nothing, and has not come back with it.
    await stream.append({ data: '2' });
    await stream.append({ data: '3' });
    answer?.();
    for (let turns = 0; turns < 20; turns += 1) await new Promise((resolve) => setImmediate(resolve));
    expect(connection.data).toEqual(['2', '3']);
    await streams.close();
  });
});

describe('an appender that is faster than its store', () => {
  it('is refused what would not be kept', async () => {
    const records = memoryRecords(systemClock);
    let release: () => void = () => {};
    const open = new Promise<void>((resolve) => {
      release = resolve;
    });
    const slow: StreamRecords = {
      ...records,
      insert: async (name, value, expires) => {
        await open;
        return records.insert(name, value, expires);
      },
    };
    const streams = startProcess({ records: slow, limits: { streamEvents: 10 } });
    const stream = streams.open(SCOPE);
    const appended = numbers(1, 10).map((data) => stream.append({ data }));
    await expect(stream.append({ data: '11' })).rejects.toMatchObject({ code: 'limit' });
    release();
    await Promise.all(appended);
    await stream.append({ data: '11' });
    await streams.close();
  });
});

describe('encrypted records', () => {
  it('keep unread events in the store, which are replayed', async () => {
    const keyv = new Keyv();
    const ring = new KeyRing(['a secret of these tests, long enough to be taken for one']);
    const sealer = new Sealer({
      ring,
      audience: 'test',
      maxLength: 1_000_000,
      now: Date.now,
    });
    const cipher = encryptedRecords(sealer);
    const records = new KeyvCallStore(keyv, systemClock, 10_000, { names: new Names('test', ring), cipher });
    const [here, there] = [startProcess({ records }), startProcess({ records })];
    const stream = here.open(SCOPE);
    const id = await stream.append({ data: 'nothing' });
    await stream.append({ data: 'a password' }, true);
    const far = new Connection();
    await (await there.resume(id, SCOPE)).follow(far);
    await until(() => far.ended !== undefined);
    expect(far.data).toEqual(['a password']);
    const kept = adapterOf<Map<string, unknown>>(keyv);
    const dump = JSON.stringify([...kept]);
    expect(dump).not.toContain('password');
    expect(dump, 'nor is an id there to be tried').not.toContain(stream.id);
    await here.close();
    await there.close();
  });
});

describe('a process that goes away', () => {
  it('ends a connection that was still claiming its stream', async () => {
    const store = memoryRecords(systemClock);
    const here = startProcess({ records: store });
    const streams = startProcess({ records: store });
    const stream = here.open(SCOPE);
    await stream.append({ data: '1' });
    const connection = new Connection();
    const following = (await streams.find(stream.id, 0, SCOPE)).follow(connection);
    await streams.close();
    await following;
    expect(connection.ended).toBe('leaving');
    await here.close();
  });
});

describe('a client that is to come back', () => {
  it('has an event by then, however slow the store: it knows no id otherwise', async () => {
    const records = memoryRecords(systemClock);
    let write = (): void => {};
    const slow = new Promise<void>((resolve) => {
      write = resolve;
    });
    const insert: StreamRecords['insert'] = async (...args) => {
      await slow;
      return records.insert(...args);
    };
    const streams = startProcess({ records: { ...records, insert } });
    const stream = streams.open(SCOPE);
    const connection = await follow(streams, stream.id);
    const primed = stream.append({ data: '' });
    streams.disconnect(stream.id, SCOPE);
    expect(connection.ended).toBeUndefined();
    write();
    const id = await primed;
    expect([connection.ids, connection.ended]).toEqual([[id], 'closed']);
    await stream.append({ data: 'the rest' }, true);
    const again = await follow(streams, stream.id, 1);
    await until(() => again.ended !== undefined);
    expect([again.data, again.ended]).toEqual([['the rest'], 'finished']);
    await streams.close();
  });
});
