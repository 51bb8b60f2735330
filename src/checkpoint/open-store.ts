/** Opens a Keyv by URL, as the command line takes it. */
import Keyv from 'keyv';
import { AwaitError } from '../error.ts';

/**
 * @param url `memory:`, `sqlite://file`, `redis://…`, `rediss://…`, `postgres://…` or `postgresql://…`
 * @throws AwaitError `bad-option` for another scheme, or when the adapter's package is not installed
 */
export async function openStore(url: string): Promise<Keyv> {
  const scheme = /^([a-z]+):/.exec(url)?.[1];
  switch (scheme) {
    case 'memory':
      return new Keyv();
    case 'sqlite': {
      const { default: KeyvSqlite } = await load('@keyv/sqlite', () => import('@keyv/sqlite'));
      return guarded(new Keyv(new KeyvSqlite({ uri: url, busyTimeout: 5_000 })));
    }
    case 'redis':
    case 'rediss': {
      const { default: KeyvRedis } = await load('@keyv/redis', () => import('@keyv/redis'));
      return guarded(new Keyv(new KeyvRedis(url)));
    }
    case 'postgres':
    case 'postgresql': {
      const { default: KeyvPostgres } = await load('@keyv/postgres', () => import('@keyv/postgres'));
      return guarded(new Keyv(new KeyvPostgres({ uri: url })));
    }
    default:
      throw new AwaitError(
        'bad-option',
        `--store ${url}: use memory:, sqlite://file, redis://host:port or postgres://user@host/database`,
      );
  }
}

/** An adapter's connection may fail while nobody is asking; each operation reports its own failure. */
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
