/** Stores that fail while they are opened, and while their connection is idle. */
import { randomUUID } from 'node:crypto';
import { chmodSync, mkdtempSync, readdirSync, statSync } from 'node:fs';
import { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import KeyvPostgres from '@keyv/postgres';
import type KeyvRedis from '@keyv/redis';
import type { RedisClientType } from '@keyv/redis';
import KeyvSqlite from '@keyv/sqlite';
import Keyv from 'keyv';
import { describe, expect, it } from 'vitest';
import { insertIfAbsent, read } from '../../src/checkpoint/insert.ts';
import { openStore } from '../../src/checkpoint/open-store.ts';
import { openRelay } from '../../src/relay/open-relay.ts';
import { scratch } from '../e2e/harness.ts';
import { POSTGRES, REDIS, SQLITE } from '../e2e/services.ts';
import { adapterOf } from '../fixtures/keyv-parts.ts';

describe('SQLite', () => {
  it('that is locked as it is opened is an error of the opening', async () => {
    const url = SQLITE.url();
    const holder = new KeyvSqlite({ uri: url });
    await holder.query('BEGIN EXCLUSIVE');
    await expect(openStore(url)).rejects.toMatchObject({ code: 'store' });
    await holder.query('ROLLBACK');
    const keyv = await openStore(url);
    expect(await insertIfAbsent(keyv, 'x', 1, 60_000)).toBe(true);
    await keyv.disconnect();
    await holder.disconnect();
  });

  it('writes ahead, syncs what it wrote, and keeps that to its owner', async () => {
    const url = SQLITE.url();
    const keyv = await openStore(url);
    expect(await insertIfAbsent(keyv, 'x', 1, 60_000)).toBe(true);
    const adapter = adapterOf<KeyvSqlite>(keyv);
    expect(await adapter.query('PRAGMA journal_mode')).toEqual([{ journal_mode: 'wal' }]);
    // FULL: an entry that was told outlives the machine's power.
    expect(await adapter.query('PRAGMA synchronous')).toEqual([{ synchronous: 2 }]);
    expect(statSync(`${url.replace('sqlite://', '')}-wal`).mode & 0o777).toBe(0o600);
    await keyv.disconnect();
  });

  it('that was locked for too long has what is written later, for everybody', async () => {
    const uri = `sqlite://${join(scratch(), 'calls.db')}`;
    const [ours, holder] = [
      new KeyvSqlite({ uri, busyTimeout: 20 }),
      new KeyvSqlite({ uri, busyTimeout: 20 }),
    ];
    const [keyv, theirs] = [new Keyv(ours), new Keyv(holder)];
    expect(await insertIfAbsent(keyv, 'before', 1, 60_000)).toBe(true);
    await holder.query('BEGIN EXCLUSIVE');
    await expect(insertIfAbsent(keyv, 'x', 1, 60_000)).rejects.toMatchObject({ code: 'store' });
    await expect(read(keyv, 'x')).rejects.toMatchObject({ code: 'store' });
    await holder.query('ROLLBACK');
    expect(await insertIfAbsent(keyv, 'x', 2, 60_000)).toBe(true);
    expect(await read(theirs, 'x')).toBe(2);
    expect(await insertIfAbsent(theirs, 'y', 3, 60_000)).toBe(true);
    await Promise.all([keyv.disconnect(), theirs.disconnect()]);
  });
});

describe.skipIf(POSTGRES.down)(POSTGRES.name, () => {
  it('may end a connection that is idle', async () => {
    const name = `idle-${randomUUID()}`;
    const keyv = await openStore(`${POSTGRES.url()}?application_name=${name}`);
    expect(await insertIfAbsent(keyv, name, 1, 60_000)).toBe(true);
    const other = new KeyvPostgres(POSTGRES.url());
    const sql = 'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1';
    expect((await other.query(sql, [name])).length).toBeGreaterThan(0);
    // An `error` event without a listener would end this process here.
    await expect.poll(() => read(keyv, name).catch(() => undefined)).toBe(1);
    await keyv.delete(name);
    // The adapter keeps one pool for all: the newest.
    await other.disconnect();
  });

  it('that is not there is an error of the opening', async () => {
    await expect(openStore('postgres://postgres@127.0.0.1:1/none')).rejects.toMatchObject({ code: 'store' });
  });
});

describe.skipIf(REDIS.down)(REDIS.name, () => {
  it('gives no command the reply of another, when its connection is lost as a command is to be written', async () => {
    const lines: Socket[] = [];
    const { connect } = Socket.prototype;
    Socket.prototype.connect = function (this: Socket, ...args: unknown[]) {
      lines.push(this);
      return Reflect.apply(connect, this, args) as Socket;
    };
    const keyv = await openStore(REDIS.url());
    const key = `lost:${randomUUID()}`;
    try {
      await insertIfAbsent(keyv, key, 'right', 60_000);
    } finally {
      Socket.prototype.connect = connect;
    }
    const { client } = adapterOf<KeyvRedis<unknown>>(keyv);
    // The client has it, and writes it in the next turn of the event loop.
    const ask = (): Promise<unknown> => (client as RedisClientType).get(key).catch(String);
    const asked = ask();
    for (const line of lines) line.destroy();
    for (const line of lines) line.emit('error', new Error('the line is cut'));
    const late = ask();
    expect(await asked).toMatch(/the line is cut/);
    expect(await late).toMatch(/^right$|closed/);
    await expect.poll(() => read(keyv, key).catch(() => 'failed')).toBe('right');
    expect(await insertIfAbsent(keyv, `${key}:2`, 'new', 60_000)).toBe(true);
    expect(await read(keyv, `${key}:2`)).toBe('new');
    await keyv.delete(key);
    await keyv.delete(`${key}:2`);
    await keyv.disconnect();
  });
});

describe('what somebody else on this machine may see', () => {
  it.each(['redsi://user:hunter2@host:6379', 'user:hunter2@host', 'postgers://u:hunter2@h/d', 'hunter2://x'])(
    'is no password of a URL that is none: %s',
    async (url) => {
      const refused = await Promise.all(
        [openStore(url), openRelay(url)].map((opening) => opening.catch(String)),
      );
      for (const text of refused) expect(text).toMatch(/--(store|relay)/);
      if (!url.startsWith('hunter2')) expect(refused.join()).not.toContain('hunter2');
    },
  );

  it.skipIf(process.platform === 'win32')(
    'is no SQLite file that was made here, nor what SQLite keeps beside it',
    async () => {
      const folder = mkdtempSync(join(tmpdir(), 'mcp-await-store-'));
      const keyv = await openStore(`sqlite://${join(folder, 'calls.db')}`);
      await keyv.set('key', 'value');
      for (const name of readdirSync(folder))
        expect([name, statSync(join(folder, name)).mode & 0o077]).toEqual([name, 0]);
      await keyv.disconnect();
      // The file exists, and its owner chose its permissions.
      chmodSync(join(folder, 'calls.db'), 0o640);
      const again = await openStore(`sqlite://${join(folder, 'calls.db')}`);
      expect(await again.get('key')).toBe('value');
      expect(statSync(join(folder, 'calls.db')).mode & 0o777).toBe(0o640);
      await again.disconnect();
    },
  );
});
