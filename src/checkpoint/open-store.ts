/** Opens a Keyv by URL. */
import type { EventEmitter } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type KeyvPostgres from '@keyv/postgres';
import type KeyvSqlite from '@keyv/sqlite';
import Keyv from 'keyv';
import { AwaitError } from '../base/error.ts';

/** How long a first connection to Redis is waited for, in milliseconds. */
const CONNECTING = 5_000;

/**
 * Opens a store, as `mcp-await serve --store` does, with what its adapter needs to survive a lost connection.
 *
 * @param url `memory:`, `sqlite://file`, `redis://…`, `rediss://…`, `postgres://…` or `postgresql://…`
 * @throws AwaitError `bad-option` for another scheme, or when the adapter's package is not installed; `store` where
 * SQLite or PostgreSQL cannot be opened
 *
 * @example
 * import { openStore } from 'mcp-await/store';
 *
 * export const store = openStore(process.env.REDIS_URL ?? 'redis://127.0.0.1:6379');
 */
export async function openStore(url: string): Promise<Keyv> {
  const scheme = /^([a-z]+):/.exec(url)?.[1];
  switch (scheme) {
    case 'memory':
      return new Keyv();
    case 'sqlite': {
      const { default: Sqlite } = await load('@keyv/sqlite', () => import('@keyv/sqlite'));
      keepToOwner(url);
      const adapter = new Sqlite({ uri: url, busyTimeout: 5_000 });
      const keyv = await tried(url, adapter);
      // Write-ahead: a write costs one sync of the disk instead of three, and is on the disk all the same
      // (`synchronous` stays FULL). The mode belongs to the file: if another process holds its lock now, that process
      // sets it.
      await adapter.query('PRAGMA journal_mode = WAL').catch(() => {});
      return keyv;
    }
    case 'redis':
    case 'rediss': {
      const { default: KeyvRedis } = await load('@keyv/redis', () => import('@keyv/redis'));
      // With its offline queue, a client of Redis (@redis/client 5.12) that writes in the very moment it loses its
      // connection takes the replies of the next one for those of other commands, until it is restarted.
      const adapter = new KeyvRedis({ url, disableOfflineQueue: true });
      const keyv = guarded(new Keyv(adapter));
      // Without that queue nothing waits for the first connection either. One that is down may come up later.
      const connected = adapter.getClient().catch(() => undefined);
      await Promise.race([connected, sleep(CONNECTING, undefined, { ref: false })]);
      return keyv;
    }
    case 'postgres':
    case 'postgresql': {
      const { default: Postgres } = await load('@keyv/postgres', () => import('@keyv/postgres'));
      return tried(url, new Postgres({ uri: url, log: outlive }));
    }
    default:
      throw new AwaitError(
        'bad-option',
        `--store ${shown(url)}: use memory:, sqlite://file, redis://host:port or postgres://user@host/database`,
      );
  }
}

/** Creates the file with access for its owner only, since it and its SQLite journals hold what callers sent. */
function keepToOwner(url: string): void {
  const path = url.replace(/^sqlite:(?:\/\/)?/, '');
  if (path === '' || path === ':memory:') return;
  try {
    closeSync(openSync(path, 'ax', 0o600));
  } catch {
    // The file exists, and its owner chose its permissions; or it cannot be made, and opening it reports why.
  }
}

/**
 * The SQL adapters make their table as they are constructed, and never again: one that could not (the file was locked,
 * the server was starting) fails for ever, or ends the process with an unhandled rejection.
 * @throws AwaitError `store`
 */
async function tried(url: string, adapter: KeyvSqlite | KeyvPostgres): Promise<Keyv> {
  const keyv = guarded(new Keyv(adapter));
  try {
    await adapter.query(`SELECT 1 FROM ${adapter.opts.table} LIMIT 1`);
  } catch (error) {
    // Not the whole URL: there may be a password in it.
    const [scheme] = url.split(':', 1);
    throw new AwaitError(
      'store',
      `the ${scheme} store cannot be opened (${String(error)}); is it up, and free?`,
      error,
    );
  }
  return keyv;
}

/**
 * Keeps the process alive when an idle connection fails (the server restarts). The adapter's pool emits `error` then,
 * without a listener, and the adapter does not expose its pool; but the pool calls this option as its own method for
 * each connection it makes.
 */
function outlive(this: EventEmitter): void {
  if (this.listenerCount('error') === 0) this.on('error', () => {});
}

/** The part of a malformed URL that may be logged, its scheme: a password may stand anywhere behind it. */
export function shown(url: string): string {
  const scheme = /^[a-z][a-z0-9+.-]{0,30}:/i.exec(url)?.[0];
  return scheme === undefined ? 'has no scheme' : `${scheme}…`;
}

/** Ignores failures of an idle connection; each operation reports its own failure. */
function guarded(keyv: Keyv): Keyv {
  keyv.on('error', () => {});
  return keyv;
}

async function load<T>(name: string, importer: () => Promise<T>): Promise<T> {
  try {
    return await importer();
  } catch (error) {
    throw new AwaitError('bad-option', `this store needs the package ${name}: npm install ${name}`, error);
  }
}
