/** How long a lasting stream keeps what was sent on it, on every store. Two `EventStreams` stand for two processes. */
import { randomUUID } from 'node:crypto';
import Keyv from 'keyv';
import { afterEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/base/values.ts';
import { KeyvCallStore } from '../../src/checkpoint/call-store.ts';
import { openStore } from '../../src/checkpoint/open-store.ts';
import type { EventStreams } from '../../src/stream/event-streams.ts';
import { POSTGRES, REDIS, redisDatabase, SQLITE } from '../e2e/services.ts';
import { textOfRecord } from '../fixtures/keyv-parts.ts';
import { follow, numbers, REFUSED, startProcess, until } from './workbench.ts';

const LIFE = 600_000;
const DAY = 86_400_000;
/** What the store waits for clocks that differ (`src/checkpoint/call-store.ts`). */
const MARGIN = 300_000;
/** Of its own: all that is in it is looked through. */
const OWN_REDIS = { ...REDIS, url: () => redisDatabase(12) };
const MEMORY = { name: 'memory', url: () => 'memory:', down: false };

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

interface Stage {
  readonly keyv: Keyv;
  readonly store: KeyvCallStore;
  readonly here: EventStreams;
  readonly there: EventStreams;
  readonly scope: string;
  readonly expires: number;
  /** Lets time pass, by the clock of both processes. */
  pass(milliseconds: number): void;
}

async function stage(url: string, streamEvents = 20): Promise<Stage> {
  const keyv = await openStore(url);
  let passed = 0;
  const clock = { ...systemClock, now: () => Date.now() + passed };
  const store = new KeyvCallStore(keyv, clock, 10_000);
  const limits = { streamLife: LIFE, streamEvents };
  const [here, there] = [0, 1].map(() => startProcess({ records: store, clock, limits })) as [
    EventStreams,
    EventStreams,
  ];
  ends.push(
    () => keyv.disconnect().catch(() => {}),
    () => here.close(),
    () => there.close(),
  );
  return {
    keyv,
    store,
    here,
    there,
    scope: `session ${randomUUID()}`,
    expires: Date.now() + DAY,
    pass: (milliseconds) => {
      passed += milliseconds;
    },
  };
}

/** The records that hold a text, and in how many milliseconds Redis deletes each by itself. */
async function holding({ keyv }: Stage, text: string): Promise<number[]> {
  const lives: number[] = [];
  for await (const [key, value] of keyv.iterator?.(keyv.namespace) ?? []) {
    if (!JSON.stringify(value).includes(text)) continue;
    const { client, namespace, createKeyPrefix } = keyv.store;
    lives.push(
      client === undefined ? 0 : await client.pTTL(createKeyPrefix.call(keyv.store, key, namespace)),
    );
  }
  return lives;
}

describe.each([MEMORY, SQLITE, OWN_REDIS, POSTGRES])('a lasting stream on $name', ({ url, down }) => {
  it.skipIf(down)('keeps an event for streamLife, and then its place alone', async () => {
    const on = await stage(url());
    const { here, there, scope, expires, store } = on;
    const [secret, later] = [`told ${randomUUID()}`, `"later ${randomUUID()}"`];
    const stream = here.standing(scope, expires);
    const first = await stream.append({ data: `"${secret}"` });
    on.pass(LIFE - 1_000);
    const second = await stream.append({ data: later });
    // A client that comes back in time misses nothing, in either process.
    for (const streams of [there, here]) {
      const connection = await follow(streams, stream.id, 'new', scope);
      await until(() => connection.data.length === 2 || streams === here);
      expect(connection.data).toEqual(streams === there ? [`"${secret}"`, later] : []);
    }
    expect(await holding(on, secret)).toHaveLength(1);
    on.pass(MARGIN + 2_000);
    await store.sweep();
    // Redis deletes by its own clock, on which no time has passed.
    for (const left of await holding(on, secret)) expect(left).toBeLessThanOrEqual(LIFE + MARGIN);
    expect(await holding(on, later.slice(1, -1))).toHaveLength(1);
    // Its place is not used again, and who has it reads on.
    const third = await there.standing(scope, expires).append({ data: '3' });
    expect(Number(third.split('_').at(-1))).toBeGreaterThan(Number(second.split('_').at(-1)));
    expect(first).toBe(`${stream.id}_1`);
  });

  it.skipIf(down)('deletes what it holds with its oldest events, and with itself', async () => {
    const on = await stage(url());
    const { here, scope, expires } = on;
    const secret = `told ${randomUUID()}`;
    const stream = here.standing(scope, expires);
    for (const data of numbers(1, 60)) await stream.append({ data: `"${secret} ${data}"` });
    await until(() => stream.oldest > 38);
    await expect.poll(async () => (await holding(on, secret)).length).toBeLessThan(24);
    await here.remove(stream.id, scope);
    expect(await holding(on, secret)).toEqual([]);
  });
});

describe('a client that comes back to a lasting stream', () => {
  it('later than streamLife is refused where it missed an event, and served where it did not', async () => {
    const on = await stage('memory:');
    const { here, there, scope, expires, store } = on;
    const stream = here.standing(scope, expires);
    const ids = [await stream.append({ data: '1' }), await stream.append({ data: '2' })];
    // Another process's connection is an entry of its own between the events.
    await follow(there, stream.id, 'new', scope);
    on.pass(LIFE + MARGIN + 1_000);
    await store.sweep();
    await expect(here.resume(ids[0] ?? '', scope)).rejects.toMatchObject(REFUSED);
    await here.resume(ids[1] ?? '', scope);
    const last = await stream.append({ data: '3' });
    await expect(there.resume(ids[0] ?? '', scope)).rejects.toMatchObject(REFUSED);
    const connection = await follow(there, stream.id, Number(ids[1]?.split('_').at(-1)), scope);
    await until(() => connection.data.length === 1);
    expect([connection.ids, connection.data]).toEqual([[last], ['3']]);
  });

  it('without an event id gets what is still kept of what nobody has had', async () => {
    const on = await stage('memory:');
    const { here, there, scope, expires, store } = on;
    const stream = here.standing(scope, expires);
    for (const data of numbers(1, 5)) await stream.append({ data });
    on.pass(LIFE + MARGIN + 1_000);
    await store.sweep();
    await stream.append({ data: '6' });
    const connection = await follow(there, stream.id, 'new', scope);
    await until(() => connection.data.length === 1);
    expect(connection.data).toEqual(['6']);
    expect(connection.ended).toBeUndefined();
  });
});

describe('the events in a process’s memory', () => {
  it('are bounded for each caller and for all: the oldest go, and never those of another caller', async () => {
    const kept = new Map<string, string>();
    const store = new KeyvCallStore(new Keyv({ store: kept }), systemClock, 10_000);
    const streams = startProcess({ records: store, bytes: { all: 60_000, caller: 25_000, large: 1_000 } });
    ends.push(() => streams.close());
    const large = (nth: number): { data: string } => ({ data: `"${nth} ${'x'.repeat(5_000)}"` });
    const expires = Date.now() + DAY;
    const hers = streams.open('hers', expires, { owner: 'ann' });
    const first = await hers.append(large(0));
    const [before] = [await hers.append(large(1))];
    const strangers: string[] = [];
    for (let nth = 0; nth < 30; nth += 1) {
      // Of streams that ended and of one that lasts, in sessions of their own.
      const stream = nth % 2 === 0 ? streams.open(`${nth}`, expires) : streams.standing('lasting', expires);
      strangers.push(await stream.append(large(nth), nth % 2 === 0));
    }
    const bytes = (): number =>
      [...kept.values()].reduce((sum, record) => sum + textOfRecord(record).length, 0);
    await expect.poll(bytes).toBeLessThan(60_000);
    // The caller that has a name misses nothing.
    const connection = await follow(streams, hers.id, Number(first.split('_').at(-1)), 'hers');
    await until(() => connection.data.length === 1);
    expect(connection.ids).toEqual([before]);
    // A stranger that comes back for what is gone is refused, and for the newest is served.
    await expect(
      streams.resume(`${strangers[0]?.split('_').slice(0, -1).join('_')}_0`, '0'),
    ).rejects.toMatchObject(REFUSED);
    const newest = streams.standing('lasting', expires);
    const last = await follow(streams, newest.id, newest.position - 1, 'lasting');
    await until(() => last.data.length === 1);
    // Of a caller who has more than a part of it, too.
    for (let nth = 0; nth < 20; nth += 1) await hers.append(large(nth));
    await expect.poll(bytes).toBeLessThan(75_000);
    await streams.remove(hers.id, 'hers');
    await expect.poll(bytes).toBeLessThan(45_000);
  });
});
