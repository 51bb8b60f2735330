import { randomUUID } from 'node:crypto';
import Keyv from 'keyv';
import { describe, expect, it } from 'vitest';
import { systemClock } from '../../src/base/values.ts';
import type { CallRecord, Entry } from '../../src/call/journal/entries.ts';
import { KeyvCallStore } from '../../src/checkpoint/call-store.ts';
import { insertIfAbsent, primitiveOf, read, remove } from '../../src/checkpoint/insert.ts';
import { openStore } from '../../src/checkpoint/open-store.ts';
import { type Service, SQLITE, STORES } from '../e2e/services.ts';

const MEMORY: Service = { name: 'memory', url: () => 'memory:', down: false };

for (const service of [MEMORY, ...STORES]) {
  const { name } = service;
  describe.skipIf(service.down)(`insert if absent on ${name}`, () => {
    const url = service.url();

    it('inserts once, in the keyspace and the encoding of Keyv itself', async () => {
      const keyv = await openStore(url);
      const key = `test:${randomUUID()}`;
      expect(primitiveOf(keyv)).not.toBe('none');
      expect(await read(keyv, key)).toBeUndefined();
      expect(await insertIfAbsent(keyv, key, { first: true }, 60_000)).toBe(true);
      expect(await insertIfAbsent(keyv, key, { second: true }, 60_000)).toBe(false);
      expect(await read(keyv, key)).toEqual({ first: true });
      expect(await keyv.get(key)).toEqual({ first: true });
      await remove(keyv, [key]);
      expect(await keyv.get(key)).toBeUndefined();
      await keyv.set(key, 'by keyv');
      expect(await insertIfAbsent(keyv, key, 'late', 60_000)).toBe(false);
      await keyv.delete(key);
      await keyv.disconnect();
    });

    it('deletes several records, and no other', async () => {
      const keyv = await openStore(url);
      const [one = '', two = '', other = ''] = Array.from({ length: 3 }, () => `test:${randomUUID()}`);
      for (const key of [one, two, other]) await insertIfAbsent(keyv, key, 'there', 60_000);
      await remove(keyv, [one, two, `test:${randomUUID()}`]);
      expect(await Promise.all([one, two, other].map((key) => read(keyv, key)))).toEqual([
        undefined,
        undefined,
        'there',
      ]);
      await remove(keyv, [other]);
      await keyv.disconnect();
    });

    it('pays no heed to a default ttl of the Keyv', async () => {
      const keyv = await openStore(url);
      keyv.ttl = 1;
      const key = `test:${randomUUID()}`;
      await insertIfAbsent(keyv, key, 'kept', 60_000);
      await new Promise((resolve) => setTimeout(resolve, 20));
      expect(await read(keyv, key)).toBe('kept');
      await remove(keyv, [key]);
      await keyv.disconnect();
    });

    it('keeps a journal, fences who loses a position, and sweeps what has expired', async () => {
      const keyv = await openStore(url);
      const store = new KeyvCallStore(keyv, systemClock, 10_000);
      const call = callOf(Date.now() + 60_000);
      const over = callOf(Date.now() - 3_600_000);
      await store.open(over, -1).append({ type: 'left' });
      expect(await store.read(over.id, 1)).toEqual({ type: 'left' });
      const journal = store.open(call, -1);
      const rival = store.open(call, 0);
      const entry: Entry = { type: 'left' };
      await journal.append(entry);
      expect(journal.position).toBe(1);
      await expect(rival.append(entry)).rejects.toMatchObject({ code: 'fenced' });
      expect(await store.read(call.id, 0)).toMatchObject({ type: 'called', call });
      expect(await store.read(call.id, 1)).toEqual(entry);
      expect(await store.read(call.id, 2)).toBeUndefined();
      await store.sweep();
      expect(await store.read(call.id, 1)).toEqual(entry);
      if (primitiveOf(keyv) !== 'redis') expect(await store.read(over.id, 1)).toBeUndefined();
      await keyv.disconnect();
    });
  });
}

describe('a journal', () => {
  it('is forgotten in memory, and nowhere else', async () => {
    const store = new KeyvCallStore(new Keyv(), systemClock, 10_000);
    const call = callOf(Date.now() + 60_000);
    const journal = store.open(call, -1);
    await journal.append({ type: 'left' });
    store.forget(call, journal.position);
    expect(await store.read(call.id, 0)).toBeUndefined();
    expect(await store.read(call.id, 1)).toBeUndefined();
  });

  it.each(['at once', 'once it was read on'])(
    'is not continued where it was deleted for room, by who had a part of it or had found it: %s',
    async (when) => {
      const keyv = await openStore(SQLITE.url());
      let silent = 0;
      const clock = { ...systemClock, elapsed: () => systemClock.elapsed() + silent };
      const store = new KeyvCallStore(keyv, clock, 10_000);
      const call = callOf(Date.now() + 60_000);
      const journal = store.open(call, -1);
      for (let nth = 0; nth < 2; nth += 1) await journal.append({ type: 'left' });
      silent = 60_000;
      // No other process claimed the call, so this one may still write.
      await journal.append({ type: 'left' });
      const found = store.open(call, journal.position);
      // Another process goes on with it and ends it; after six leases its records make room.
      silent = 120_000;
      const names = Array.from({ length: journal.position + 1 }, (_, at) => `${call.id}:${at}`);
      await store.remove(...names);
      const claim = { type: 'claimed', answers: [], sent: '', by: 'other' } as const;
      if (when !== 'at once') for (const one of [journal, found]) await one.readOn();
      for (const one of [journal, found])
        await expect(one.append(claim)).rejects.toMatchObject({
          code: one === journal ? 'bad-token' : 'fenced',
        });
      await keyv.disconnect();
    },
  );

  it('has no free position once it is erased', async () => {
    const keyv = await openStore(SQLITE.url());
    const store = new KeyvCallStore(keyv, systemClock, 10_000);
    const call = callOf(Date.now() + 60_000);
    const journal = store.open(call, -1);
    const completion = { kind: 'step', path: 'charge', outcome: { value: 'secret' } } as const;
    const claim = { type: 'claimed', answers: [], sent: '', by: 'other' } as const;
    const ended = { type: 'ended', response: { result: {} } } as const;
    const written = [
      { type: 'completed', completion },
      claim,
      { type: 'completed', completion },
      ended,
    ] as const;
    for (const entry of written) await journal.append(entry);
    const found: Entry[] = [];
    for await (const entry of store.readOn(call.id, 0)) found.push(entry);
    await store.erase(call, found, []);
    for (let at = 0; at <= written.length; at += 1) {
      expect(await store.insertEntry(call, at, claim)).toBe(false);
      expect(await store.read(call.id, at)).toEqual({ type: 'cancelled', when: 0, isErased: true });
    }
    await keyv.disconnect();
  });

  it('keeps what a client named toJSON', async () => {
    const store = new KeyvCallStore(new Keyv(), systemClock, 10_000);
    const call = { ...callOf(Date.now() + 60_000), params: { name: 'x', arguments: { toJSON: 1 } } };
    await store.open(call, -1).append({ type: 'left' });
    expect(await store.read(call.id, 0)).toEqual({ type: 'called', format: 1, call });
  });
});

describe('a store that fails', () => {
  const broken = (adapter: object): Keyv => {
    const keyv = new Keyv({ store: adapter, throwOnErrors: false });
    keyv.on('error', () => {});
    return keyv;
  };

  it('is an error, never a miss, although Keyv swallows it once it has an error listener', async () => {
    const fail = (): never => {
      throw new Error('connection refused at 10.0.0.7');
    };
    const keyv = broken({ get: fail, set: fail, delete: fail, clear: fail });
    expect(await keyv.get('x')).toBeUndefined();
    await expect(read(keyv, 'x')).rejects.toMatchObject({ code: 'store' });
    await expect(insertIfAbsent(keyv, 'x', 1, 1_000)).rejects.toMatchObject({ code: 'store' });
    for (const keys of [['x'], ['x', 'y']])
      await expect(remove(keyv, keys)).rejects.toMatchObject({ code: 'store' });
  });

  it('that had written before it failed is recognized: the entry is ours, and the journal continues', async () => {
    const map = new Map<string, unknown>();
    let failing = false;
    const keyv = broken({
      get: (key: string) => map.get(key),
      delete: (key: string) => map.delete(key),
      clear: () => map.clear(),
      set: (key: string, value: unknown) => {
        map.set(key, value);
        if (failing) throw new Error('lost the connection after writing');
      },
    });
    const store = new KeyvCallStore(keyv, systemClock, 10_000);
    const call = callOf(Date.now() + 60_000);
    await store.insertEntry(call, 0, { type: 'left' });
    const journal = store.open(call, 0);
    failing = true;
    const left = journal.append({ type: 'left' });
    await expect.poll(() => map.size).toBe(2);
    failing = false;
    await left;
    await journal.append({ type: 'ended', response: { result: {} } });
    expect(journal.position).toBe(2);
  });

  it('without the primitive still inserts once within this process', async () => {
    const map = new Map<string, unknown>();
    const slow = {
      get: async (key: string) => map.get(key),
      set: async (key: string, value: unknown) => void map.set(key, value),
    };
    const keyv = broken({
      ...slow,
      delete: async (key: string) => map.delete(key),
      clear: async () => map.clear(),
    });
    expect(primitiveOf(keyv)).toBe('none');
    const won = await Promise.all(Array.from({ length: 20 }, () => insertIfAbsent(keyv, 'x', 1, 1_000)));
    expect(won.filter(Boolean)).toHaveLength(1);
  });
});

function callOf(expires: number): CallRecord {
  const client = { capabilities: {}, info: {}, protocolVersion: '2025-11-25' };
  const id = `${Math.ceil(expires).toString(36)}.${randomUUID()}`;
  return {
    id,
    method: 'tools/call',
    params: {},
    requestId: 1,
    revision: 'test',
    client,
    created: Date.now(),
    expires,
  };
}
