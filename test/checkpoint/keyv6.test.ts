/** Keyv 6 (Node ≥ 22.19 by its own word; it runs on 20 as well) holds the adapters of Keyv 5 in a bridge. */
import { randomUUID } from 'node:crypto';
import KeyvPostgres from '@keyv/postgres';
import KeyvRedis from '@keyv/redis';
import KeyvSqlite from '@keyv/sqlite';
import type Keyv from 'keyv';
import { Keyv as Keyv6 } from 'keyv6';
import { describe, expect, it } from 'vitest';
import { insertIfAbsent, primitiveOf, read, remove } from '../../src/checkpoint/insert.ts';
import { POSTGRES, REDIS, SQLITE } from '../e2e/services.ts';

const cases = [
  { name: 'its own Map', down: false, primitive: 'map', make: () => new Keyv6() },
  {
    name: 'SQLite',
    down: false,
    primitive: 'sqlite',
    make: () => new Keyv6({ store: new KeyvSqlite(SQLITE.url()) }),
  },
  {
    name: REDIS.name,
    down: REDIS.down,
    primitive: 'redis',
    make: () => new Keyv6({ store: new KeyvRedis(REDIS.url()) }),
  },
  {
    name: POSTGRES.name,
    down: POSTGRES.down,
    primitive: 'postgres',
    make: () => new Keyv6({ store: new KeyvPostgres(POSTGRES.url()) }),
  },
];

for (const { name, down, primitive, make } of cases) {
  describe.skipIf(down)(`Keyv 6 on ${name}`, () => {
    it('inserts once, and reads what it wrote', async () => {
      const keyv6 = make();
      const keyv = keyv6 as unknown as Keyv;
      const key = `test:${randomUUID()}`;
      expect(primitiveOf(keyv)).toBe(primitive);
      expect(await read(keyv, key)).toBeUndefined();
      expect(await insertIfAbsent(keyv, key, { first: true }, 60_000)).toBe(true);
      expect(await insertIfAbsent(keyv, key, { second: true }, 60_000)).toBe(false);
      expect(await read(keyv, key)).toEqual({ first: true });
      expect(await keyv6.get(key)).toEqual({ first: true });
      await remove(keyv, [key]);
      expect(await keyv6.get(key)).toBeUndefined();
      await keyv6.disconnect();
    });
  });
}
