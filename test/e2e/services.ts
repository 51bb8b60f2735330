/** The stores and relays of the end-to-end tests, and whether they answer. */
import { createConnection } from 'node:net';
import { join } from 'node:path';
import process from 'node:process';
import KeyvPostgres from '@keyv/postgres';
import { scratch } from './harness.ts';

export const REDIS_URL = process.env.REDIS_URL ?? 'redis://127.0.0.1:6379';
/**
 * A database of its own: every process on a store looks after the tasks of all, and test files run side by side with
 * servers that differ.
 */
export function redisDatabase(number: number): string {
  const url = new URL(REDIS_URL);
  url.pathname = `/${number}`;
  return url.href;
}

export const NATS_URL = process.env.NATS_URL ?? 'nats://127.0.0.1:4222';
const POSTGRES_URL = process.env.POSTGRES_URL ?? 'postgres://postgres@127.0.0.1:5432/test';

export interface Service {
  /** Says why it is skipped, where it is. */
  readonly name: string;
  readonly url: () => string;
  readonly down: boolean;
}

/** A suite that needs a service which does not answer says so and is skipped; in CI that is a failure. */
async function service(
  name: string,
  url: string,
  port: number,
  works: (url: string) => Promise<unknown> = async () => {},
): Promise<Service> {
  const { hostname, port: given } = new URL(url);
  const up =
    (await answers(hostname, Number(given || port))) &&
    (await works(url).then(
      () => true,
      () => false,
    ));
  if (!up && process.env.MCP_AWAIT_REQUIRE_SERVICES === '1') {
    throw new Error(
      `${name} does not answer at ${hostname}:${given || port}, and MCP_AWAIT_REQUIRE_SERVICES=1`,
    );
  }
  return {
    name: up ? name : `${name} (skipped: ${name} does not answer at ${hostname})`,
    url: () => url,
    down: !up,
  };
}

function answers(host: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = createConnection({ host, port, timeout: 2_000 });
    const end = (up: boolean) => (): void => {
      socket.destroy();
      resolve(up);
    };
    socket.once('connect', end(true)).once('error', end(false)).once('timeout', end(false));
  });
}

export const SQLITE: Service = {
  name: 'SQLite',
  url: () => `sqlite://${join(scratch(), 'calls.db')}`,
  down: false,
};
export const REDIS = await service('Redis', REDIS_URL, 6379);
export const POSTGRES = await service('PostgreSQL', POSTGRES_URL, 5432, async (uri) => {
  // It may answer and have no such user or database.
  const adapter = new KeyvPostgres({ uri });
  adapter.on('error', () => {});
  await adapter.query('SELECT 1');
  await adapter.disconnect();
});
export const NATS = await service('NATS', NATS_URL, 4222);
export const STORES: readonly Service[] = [SQLITE, REDIS, POSTGRES];
/** SQLite's processes are on one machine. */
export const hasClock = (store: Service): boolean => store !== SQLITE;

/** Where two processes may keep their calls: each store, and the token alone. */
export interface Kind {
  readonly name: string;
  readonly down: boolean;
  readonly args: () => readonly string[];
}

export const KINDS: readonly Kind[] = [
  ...STORES.map(({ name, down, url }) => ({ name, down, args: () => ['--store', url()] })),
  { name: 'no store, state sealed', down: false, args: () => ['--state', 'sealed'] },
];
