/** The connections of a store that `openStore` opens: whose they are, and those that fall silent or break. */
import { spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { createRequire } from 'node:module';
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient } from '@redis/client';
import type Keyv from 'keyv';
import { afterEach, describe, expect, it } from 'vitest';
import { KeyvBacking } from '../../src/checkpoint/backing.ts';
import { insertIfAbsent, read } from '../../src/checkpoint/insert.ts';
import { Names } from '../../src/checkpoint/names.ts';
import { openStore } from '../../src/store.ts';
import { ownStore } from '../chaos/stores.ts';
import { POSTGRES, REDIS } from '../e2e/services.ts';
import { type TcpProxy, tcpProxy } from '../fixtures/tcp-proxy.ts';

const cleanUps: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanUp of cleanUps.splice(0).reverse()) await cleanUp();
});

async function opened(url: string): Promise<Keyv> {
  const keyv = await openStore(url);
  cleanUps.push(() => void keyv.disconnect().catch(() => {}));
  return keyv;
}

async function behind(url: string): Promise<{ proxy: TcpProxy; url: string }> {
  const proxy = await tcpProxy(url, url.startsWith('postgres') ? 5432 : 6379);
  cleanUps.push(() => proxy.cut());
  const through = new URL(url);
  through.hostname = '127.0.0.1';
  through.port = String(proxy.port);
  return { proxy, url: through.href };
}

const isRead = (keyv: Keyv): Promise<boolean> =>
  read(keyv, 'mcp-await:health', 1_000).then(
    () => true,
    () => false,
  );

describe.each([REDIS, POSTGRES].filter(({ down }) => !down))('$name', (service) => {
  it('closes a store, and no other of its process', async () => {
    const url = service.url();
    const [first, second] = [await openStore(url), await opened(url)];
    await first.disconnect();
    expect(await isRead(second)).toBe(true);
    const third = await openStore(url);
    await third.disconnect();
    expect(await isRead(second)).toBe(true);
  });

  it('replaces connections that fall silent', async () => {
    const { proxy, url } = await behind(service.url());
    const keyv = await opened(url);
    proxy.silence();
    proxy.isSilent = true;
    const write = (): Promise<unknown> =>
      insertIfAbsent(keyv, `mcp-await:${randomUUID()}`, 1, 60_000, 1_000).catch(() => {});
    for (let round = 0; round < 6; round += 1) await Promise.all([isRead(keyv), write(), isRead(keyv)]);
    proxy.isSilent = false;
    await expect.poll(() => isRead(keyv), { interval: 200 }).toBe(true);
  });

  it('is opened although an attempt before hung', async () => {
    const { proxy, url } = await behind(service.url());
    proxy.isSilent = true;
    await expect(openStore(url)).rejects.toMatchObject({ code: 'store' });
    proxy.isSilent = false;
    expect(await isRead(await opened(url))).toBe(true);
  });

  it('lists all of its keys, or fails', async () => {
    const { proxy, url } = await behind(service.url());
    const keyv = await opened(url);
    const write = (nth: number): Promise<boolean> =>
      insertIfAbsent(keyv, `mcp-await:${nth}-${randomUUID()}`, nth, 60_000);
    await Promise.all(Array.from({ length: 2_500 }, (_, nth) => write(nth)));
    const backing = new KeyvBacking(keyv, new Names('listed'), {} as never, 1_000);
    let pages = 0;
    proxy.onSent = (chunk) => {
      if (/LIKE|SCAN/i.test(chunk.toString('latin1'))) pages += 1;
      if (pages === 2) void proxy.blink(20);
    };
    const listed = (async () => {
      for await (const _ of backing.keys());
    })();
    await expect(listed).rejects.toThrow();
  });
});

describe.skipIf(POSTGRES.down)(POSTGRES.name, () => {
  it('has no more connections while its table is locked', async () => {
    const name = `locked_${randomUUID().slice(0, 8)}`;
    const own = new URL(POSTGRES.url());
    own.pathname = `/${name}`;
    const operator = await connectedTo(POSTGRES.url());
    await operator.query(`CREATE DATABASE ${name}`);
    cleanUps.push(() => operator.query(`DROP DATABASE ${name} WITH (FORCE)`));
    const keyv = await opened(own.href);
    const ends = performance.now() + 14_000;
    const locker = await connectedTo(own.href);
    await locker.query('BEGIN');
    await locker.query('LOCK TABLE keyv');
    const count = async (): Promise<number> => {
      const sql = 'SELECT count(*)::int AS n FROM pg_stat_activity WHERE datname = $1';
      return (await operator.query(sql, [name])).rows[0]?.n ?? 0;
    };
    let most = 0;
    const ask = async (): Promise<void> => {
      while (performance.now() < ends) await isRead(keyv);
    };
    const look = async (): Promise<void> => {
      for (; performance.now() < ends; await sleep(500)) most = Math.max(most, await count());
    };
    await Promise.all([ask(), ask(), ask(), ask(), ask(), ask(), look()]);
    await locker.query('ROLLBACK');
    await locker.end();
    expect(await isRead(keyv)).toBe(true);
    // Of the store's lanes, and of the one that locks.
    expect(most).toBeLessThanOrEqual(6);
  });
});

/** A client of `pg`, of which the adapter's own connections are made. */
interface PgClient {
  connect(): Promise<void>;
  query(sql: string, values?: unknown[]): Promise<{ rows: { n: number }[] }>;
  end(): Promise<void>;
}

async function connectedTo(connectionString: string): Promise<PgClient> {
  const { Client } = createRequire(import.meta.resolve('@keyv/postgres'))('pg');
  const client: PgClient = new Client({ connectionString });
  await client.connect();
  cleanUps.push(() => client.end().catch(() => {}));
  return client;
}

const hasRedis = spawnSync('redis-server', ['--version']).status === 0;

describe.skipIf(!hasRedis)(hasRedis ? 'a Redis' : 'a Redis (skipped: there is no redis-server)', () => {
  it('that became a replica is left for the one that its address leads to', async () => {
    const [first, second] = await Promise.all([ownStore('redis'), ownStore('redis')]);
    cleanUps.push(first.remove, second.remove);
    const { proxy, url } = await behind(first.url);
    const keyv = await opened(url);
    const write = (): Promise<unknown> =>
      insertIfAbsent(keyv, `mcp-await:${randomUUID()}`, 1, 60_000).catch((error) => String(error.cause));
    expect(await write()).toBe(true);
    const port = Number(new URL(second.url).port);
    const operator = await createClient({ url: first.url }).connect();
    await operator.sendCommand(['REPLICAOF', '127.0.0.1', String(port)]);
    operator.destroy();
    proxy.farPort = port;
    expect(await write()).toMatch(/READONLY/);
    await expect.poll(write, { interval: 200 }).toBe(true);
  });
});
