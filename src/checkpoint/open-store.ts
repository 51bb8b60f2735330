/** Opens a Keyv by URL. */
import { closeSync, openSync } from 'node:fs';
import { createRequire } from 'node:module';
import Keyv, { type KeyvStoreAdapter } from 'keyv';
import { importPeer } from '../base/peer.ts';
import { optionError } from '../base/values.ts';
import { inTime, PATIENCE } from './in-time.ts';
import { FAILED, read } from './insert.ts';
import { FIRST, sqliteFile, unreachable } from './unreachable.ts';

/** How long PostgreSQL may take for a statement, in milliseconds. */
const STATEMENT = PATIENCE - 500;
/** Records that are listed with one statement. */
const AT_ONCE = 500;

/**
 * Opens a store, as `mcp-await serve --store` does, with what its adapter needs to survive a lost connection. The store
 * is read once, so one that cannot be used fails here.
 *
 * @param url `memory:`, `sqlite://file`, `redis://…`, `rediss://…`, `postgres://…` or `postgresql://…`
 * @throws AwaitError `bad-option` for another scheme, or when the adapter's package is not installed; `store`, within
 * five seconds, when the store cannot be reached or read; the message says its host, its port and the cause
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
      const { default: Sqlite } = await importPeer('@keyv/sqlite', () => import('@keyv/sqlite'));
      const { keyv, adapter } = await tried(url, () => {
        const path = sqliteFile(url);
        // Made for its owner alone, since it and SQLite's journals hold what callers sent; of a file that is there, its
        // owner chose the permissions. The cause of an error SQLite reports as a number: no such folder, no permission.
        if (path !== '' && path !== ':memory:') closeSync(openSync(path, 'a+', 0o600));
        const sqlite = new Sqlite({ uri: url, busyTimeout: 5_000 });
        // Reading below says why it failed; until then its rejection would end the process.
        sqlite.query('SELECT 1').catch(() => {});
        return sqlite;
      });
      // Write-ahead: a write costs one sync of the disk instead of three, and is on the disk all the same
      // (`synchronous` stays FULL). The mode belongs to the file: if another process holds its lock now, that process
      // sets it.
      await adapter.query('PRAGMA journal_mode = WAL').catch(() => {});
      return keyv;
    }
    case 'redis':
    case 'rediss': {
      const redis = await importPeer('@keyv/redis', () => import('@keyv/redis'));
      return (await tried(url, () => withOwnClients(redis, url))).keyv;
    }
    case 'postgres':
    case 'postgresql': {
      const { default: Postgres } = await importPeer('@keyv/postgres', () => import('@keyv/postgres'));
      const opened = (more: object) =>
        tried(url, () => withOwnPool(Postgres, { connectionString: url, ...more }));
      // A pooler between, such as PgBouncer, may refuse what it does not know, and has a time-out of its own.
      return (
        await opened({ statement_timeout: STATEMENT }).catch((error) => {
          if (/startup parameter/.test(String(error))) return opened({});
          throw error;
        })
      ).keyv;
    }
    default:
      throw optionError(
        `--store ${shown(url)}: use memory:, sqlite://file, redis://host:port or postgres://user@host/database`,
      );
  }
}

/**
 * Reads a record once, which connects. The SQL adapters make their table as they are constructed, and never again: one
 * that could not (the file was locked, the server was starting) fails for ever.
 * @throws AwaitError `store`
 */
async function tried<T extends KeyvStoreAdapter>(url: string, construct: () => T) {
  let keyv: Keyv | undefined;
  let first: unknown;
  try {
    const adapter = construct();
    const opened = new Keyv(adapter);
    keyv = opened;
    // This listener stays: without one a connection that fails while it is idle would end the process.
    opened.on('error', (error) => {
      first ??= error;
    });
    await read(opened, 'mcp-await:health', FIRST);
    return { keyv: opened, adapter };
  } catch (error) {
    // Not awaited: an adapter that waits for its connection would wait here.
    void keyv?.disconnect().catch(() => {});
    throw unreachable('store', url, first ?? error);
  }
}

/**
 * The adapter, with a client for each connection: one that connects again (@redis/client 5.12) may take the replies of
 * one connection for those of another. A connection on which an operation failed gives way to another one, at most each
 * five seconds; what is under way on it has five seconds more.
 */
function withOwnClients({ default: KeyvRedis, createClient }: typeof import('@keyv/redis'), url: string) {
  const create = () =>
    createClient({ url, disableOfflineQueue: true, socket: { reconnectStrategy: false } }).on(
      'error',
      () => {},
    );
  const end = (client: ReturnType<typeof create>): void => {
    if (client.isOpen) client.destroy();
  };
  let current = create();
  let opening: Promise<typeof current> | undefined;
  let opened = 0;
  const open = async (): Promise<typeof current> => {
    const client = create();
    await inTime(client.connect()).catch((error) => {
      end(client);
      throw error;
    });
    opened = performance.now();
    current = client;
    adapter.client = client;
    return client;
  };
  class Adapter extends KeyvRedis<unknown> {
    override async getClient() {
      if (current.isReady) return current;
      opening ??= open().finally(() => {
        opening = undefined;
      });
      return opening;
    }
    [FAILED](): void {
      if (!current.isReady || performance.now() - opened < PATIENCE) return;
      setTimeout(end, PATIENCE, current);
      current = create();
    }
    override async disconnect(): Promise<void> {
      await opening?.catch(() => {});
      // The reply of this command comes after those of all others.
      if (current.isReady) await inTime(current.ping()).catch(() => {});
      end(current);
    }
  }
  const adapter = new Adapter(current);
  return adapter;
}

/** The members of `pg` that are used here. */
interface Pg {
  readonly Pool: new (
    options: object,
  ) => {
    query(sql: string, values: unknown): Promise<{ readonly rows: unknown[] }>;
    end(): Promise<void>;
    on(event: 'error', listener: () => void): void;
  };
}

/**
 * The adapter, with connections of its own: the adapter itself ends those that any one of them made last. A connection
 * that does not answer is closed, and another one is made. The server ends a statement before that, or those that wait
 * for a lock would go on, and take up its connections.
 */
function withOwnPool(
  Postgres: typeof import('@keyv/postgres').default,
  options: { readonly connectionString: string },
) {
  const { Pool } = createRequire(import.meta.resolve('@keyv/postgres'))('pg') as Pg;
  const pool = new Pool({
    ...options,
    connectionTimeoutMillis: PATIENCE,
    query_timeout: PATIENCE,
  });
  // An idle connection that fails would end the process.
  pool.on('error', () => {});
  class Adapter extends Postgres {
    override async connect() {
      return async (sql: string, values?: unknown) => (await pool.query(sql, values)).rows;
    }
    override disconnect = () => pool.end();
  }
  return new Adapter({ uri: options.connectionString, iterationLimit: AT_ONCE });
}

/** The part of a malformed URL that may be logged, its scheme: a password may stand anywhere behind it. */
export function shown(url: string): string {
  const scheme = /^[a-z][a-z0-9+.-]{0,30}:/i.exec(url)?.[0];
  return scheme === undefined ? 'has no scheme' : `${scheme}…`;
}
