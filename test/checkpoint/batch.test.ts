import { randomUUID } from 'node:crypto';
import fc from 'fast-check';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { PATIENCE } from '../../src/checkpoint/in-time.ts';
import { insertIfAbsent, overwrite, read, remove } from '../../src/checkpoint/insert.ts';
import { openStore } from '../../src/checkpoint/open-store.ts';
import { batched } from '../../src/checkpoint/table.ts';
import { STORES } from '../e2e/services.ts';
import { adapterOf } from '../fixtures/keyv-parts.ts';

const MOST = { operations: 5, characters: 100 };

interface Operation {
  readonly key: string;
  readonly size: number;
}

afterEach(() => {
  vi.useRealTimers();
});

describe('operations of a kind', () => {
  it('each get their own result, in bounded statements of different keys', async () => {
    const operations = fc.array(
      fc.record({
        key: fc.constantFrom('a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'),
        size: fc.integer({ min: 0, max: 120 }),
        fails: fc.boolean(),
        pause: fc.nat(3),
      }),
      { maxLength: 40 },
    );
    await fc.assert(
      fc.asyncProperty(operations, fc.integer({ min: 1, max: 3 }), async (all, lanes) => {
        let running = 0;
        const write = batched<(typeof all)[number], string>({
          lanes,
          most: MOST,
          apart: true,
          key: ({ key }) => key,
          characters: ({ size }) => size,
          async run(statement) {
            running += 1;
            expect(running).toBeLessThanOrEqual(lanes);
            expect(statement.length).toBeGreaterThan(0);
            expect(statement.length).toBeLessThanOrEqual(MOST.operations);
            const keys = statement.map(({ key }) => key);
            expect(keys).toEqual([...new Set(keys)].sort());
            const sum = statement.reduce((total, { size }) => total + size, 0);
            if (statement.length > 1) expect(sum).toBeLessThanOrEqual(MOST.characters);
            await new Promise((resolve) => setImmediate(resolve));
            running -= 1;
            if (statement.some(({ fails }) => fails)) throw new Error(keys.join());
            return statement.map(({ key, size }) => `${key}${size}`);
          },
        });
        const results = all.map(async (operation) => {
          for (let turn = 0; turn < operation.pause; turn += 1)
            await new Promise((resolve) => setImmediate(resolve));
          return write(operation).catch((error: Error) => error);
        });
        for (const [nth, result] of (await Promise.all(results)).entries()) {
          const { key, size, fails } = all[nth] as (typeof all)[number];
          // A statement that fails fails for all of it, and for nothing else.
          if (result instanceof Error) expect(result.message.split(',')).toContain(key);
          else expect([result, fails]).toEqual([`${key}${size}`, false]);
        }
      }),
    );
  });

  it('are not run once their callers were told that they failed', async () => {
    vi.useFakeTimers();
    const statements: string[][] = [];
    const write = batched<Operation, void>({
      lanes: 1,
      most: MOST,
      apart: true,
      key: ({ key }) => key,
      characters: () => 0,
      run(statement) {
        statements.push(statement.map(({ key }) => key));
        return statements.length <= 2 ? new Promise(() => {}) : Promise.resolve([]);
      },
    });
    const started = (key: string) => write({ key, size: 0 }).catch((error: Error) => error.message);
    const first = started('a');
    await vi.advanceTimersByTimeAsync(1_000);
    const second = started('a');
    await vi.advanceTimersByTimeAsync(2_000);
    // Behind the second, which hangs as well.
    void started('a');
    await vi.advanceTimersByTimeAsync(PATIENCE);
    const last = started('b');
    await vi.advanceTimersByTimeAsync(PATIENCE);
    expect([await first, await second]).toEqual(Array(2).fill(expect.stringContaining('no answer')));
    await last;
    expect(statements).toEqual([['a'], ['a'], ['b']]);
  });
});

for (const service of STORES.filter(({ name }) => !name.startsWith('Redis'))) {
  describe.skipIf(service.down)(`a table of ${service.name}`, () => {
    it('takes what comes at the same time as one statement of each kind', async () => {
      const keyv = await openStore(service.url());
      const statements: string[] = [];
      const adapter = adapterOf<{ query: (...args: unknown[]) => Promise<unknown> }>(keyv);
      const { query } = adapter;
      adapter.query = (sql, ...values) => {
        statements.push(String(sql).slice(0, 6));
        return query.call(adapter, sql, ...values);
      };
      const keys = Array.from({ length: 20 }, () => `test:${randomUUID()}`);
      const all = <T>(run: (key: string) => Promise<T>): Promise<T[]> => Promise.all(keys.map(run));
      expect(new Set(await all((key) => insertIfAbsent(keyv, key, key, 60_000)))).toEqual(new Set([true]));
      expect(new Set(await all((key) => insertIfAbsent(keyv, key, 'late', 60_000)))).toEqual(
        new Set([false]),
      );
      expect(await all((key) => read(keyv, key))).toEqual(keys);
      await all((key) => overwrite(keyv, key, `${key}!`, 60_000));
      expect(await all((key) => read(keyv, key))).toEqual(keys.map((key) => `${key}!`));
      await all((key) => remove(keyv, [key]));
      expect(await all((key) => read(keyv, key))).toEqual(keys.map(() => undefined));
      const kinds = ['INSERT', 'INSERT', 'SELECT', 'INSERT', 'SELECT', 'DELETE', 'SELECT'];
      expect(statements.filter((kind) => kind !== 'PRAGMA')).toEqual(kinds);
      await keyv.disconnect();
    });

    it('has as few statements at a time as its driver stands', async () => {
      const keyv = await openStore(service.url());
      const adapter = adapterOf<{ query: (...args: unknown[]) => Promise<unknown> }>(keyv);
      const { query } = adapter;
      let running = 0;
      let most = 0;
      adapter.query = async (...statement) => {
        running += 1;
        most = Math.max(most, running);
        return query.apply(adapter, statement).finally(() => {
          running -= 1;
        });
      };
      const keys = Array.from({ length: 40 }, () => `test:${randomUUID()}`);
      await Promise.all(
        keys.map(async (key, nth) => {
          for (let turn = 0; turn < nth % 5; turn += 1) await new Promise((resolve) => setImmediate(resolve));
          await Promise.all([
            insertIfAbsent(keyv, key, 1, 60_000),
            read(keyv, key),
            overwrite(keyv, key, 2, 60_000),
          ]);
          await remove(keyv, [key]);
        }),
      );
      // SQLite's driver frees a statement in the event loop, and waits there for whichever other one runs.
      if (service.name === 'SQLite') expect(most).toBe(1);
      else expect(most).toBeLessThanOrEqual(16);
      await keyv.disconnect();
    });

    it('has one winner for each row, in whichever order two processes write them', async () => {
      const url = service.url();
      const [one, other] = await Promise.all([openStore(url), openStore(url)]);
      const keys = Array.from({ length: 200 }, () => `test:${randomUUID()}`);
      const winners = await Promise.all([
        Promise.all(keys.map((key) => insertIfAbsent(one, key, 'one', 60_000))),
        Promise.all(keys.toReversed().map((key) => insertIfAbsent(other, key, 'other', 60_000))),
      ]);
      const values = await Promise.all(keys.map((key) => read(one, key)));
      expect(winners[0]).toEqual(values.map((value) => value === 'one'));
      expect(winners[1].toReversed()).toEqual(values.map((value) => value === 'other'));
      await remove(one, keys);
      await one.disconnect();
      // The adapters of one PostgreSQL share their pool.
      if (service.name === 'SQLite') await other.disconnect();
    });
  });
}
