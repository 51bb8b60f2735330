/** A store or a relay that cannot be reached when a process starts: it says where and why, and ends or waits. */
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import process from 'node:process';
import { afterEach, describe, expect, it } from 'vitest';
import { openStore } from '../../src/checkpoint/open-store.ts';
import { tcpProxy } from '../fixtures/tcp-proxy.ts';
import { SHORT, some } from '../short.ts';
import { SECRET, scratch } from './harness.ts';
import { NATS, NATS_URL, POSTGRES, REDIS, REDIS_URL } from './services.ts';

const CLI = new URL('../../dist/src/cli/main.js', import.meta.url).pathname;
const SERVER = new URL('../fixtures/asking-server.ts', import.meta.url).pathname;
const CHILD = new URL('../fixtures/stdio-server.mjs', import.meta.url).pathname;
const PASSWORD = 'hunter2';

const kills: (() => unknown)[] = [];
afterEach(() => {
  for (const kill of kills.splice(0)) kill();
});

function start(...args: readonly string[]) {
  const child = spawn(process.execPath, [CLI, ...args], {
    env: { ...process.env, MCP_AWAIT_SECRET: SECRET },
  });
  kills.push(() => child.kill('SIGKILL'));
  const running = { child, out: '', err: '', code: new Promise<number | null>(() => {}) };
  running.code = new Promise((resolve) => child.once('close', resolve));
  child.stdout.on('data', (chunk) => {
    running.out += String(chunk);
  });
  child.stderr.on('data', (chunk) => {
    running.err += String(chunk);
  });
  return running;
}

/** The same server with another user, host or database. */
function changed(
  url: string,
  change: Partial<Record<'username' | 'password' | 'pathname' | 'hostname', string>>,
) {
  return Object.assign(new URL(url), change).href;
}

/** The host and port of a real service, as a message names them. */
function placeOf(url: string, port: string): string {
  const { hostname, port: given } = new URL(url);
  return `${hostname}:${given || port}`;
}

const stranger = { username: 'nobody-here', password: PASSWORD };
const folder = scratch();
mkdirSync(join(folder, 'folder.db'));
writeFileSync(join(folder, 'text.db'), 'this is a text, and not a database of SQLite\n'.repeat(100));

const STORES = [
  {
    name: 'Redis on a port that is closed',
    url: `redis://:${PASSWORD}@127.0.0.1:1`,
    told: ['127.0.0.1:1', 'ECONNREFUSED'],
  },
  {
    name: 'Redis on a host that does not exist',
    url: `redis://u:${PASSWORD}@no-host.invalid`,
    told: ['no-host.invalid:6379', /ENOTFOUND|EAI_AGAIN|no answer/],
  },
  {
    name: 'Redis with a wrong password',
    url: changed(REDIS_URL, stranger),
    told: [placeOf(REDIS_URL, '6379'), 'WRONGPASS'],
    down: REDIS.down,
  },
  {
    name: 'PostgreSQL on a port that is closed',
    url: `postgres://u:${PASSWORD}@127.0.0.1:1/d`,
    told: ['127.0.0.1:1', 'ECONNREFUSED'],
  },
  {
    name: 'PostgreSQL on a host that does not exist',
    url: `postgres://u:${PASSWORD}@no-host.invalid/d`,
    told: ['no-host.invalid:5432', /ENOTFOUND|EAI_AGAIN|no answer/],
  },
  {
    name: 'PostgreSQL with another user',
    url: changed(POSTGRES.url(), stranger),
    told: [
      placeOf(POSTGRES.url(), '5432'),
      /role "nobody-here" does not exist|password authentication failed/,
    ],
    down: POSTGRES.down,
  },
  {
    name: 'PostgreSQL without the database',
    url: changed(POSTGRES.url(), { pathname: '/no-database' }),
    told: [placeOf(POSTGRES.url(), '5432'), 'database "no-database" does not exist'],
    down: POSTGRES.down,
  },
  {
    name: 'a SQLite file in no folder',
    url: `sqlite://${join(folder, 'none', 'calls.db')}`,
    told: [join(folder, 'none', 'calls.db'), 'ENOENT'],
  },
  {
    name: 'a folder as a SQLite file',
    url: `sqlite://${join(folder, 'folder.db')}`,
    told: [join(folder, 'folder.db'), 'EISDIR'],
  },
  {
    name: 'a text as a SQLite file',
    url: `sqlite://${join(folder, 'text.db')}`,
    told: [join(folder, 'text.db'), /not a database/i],
  },
  {
    name: 'a password that is not encoded',
    url: `redis://u:12/${PASSWORD}@127.0.0.1`,
    told: ['percent-encoded'],
  },
] as const;

describe.each(some(STORES.map((store) => ({ down: false, ...store }))))('$name', ({ url, told, down }) => {
  const expectTold = (text: string): void => {
    for (const part of told) expect(text).toMatch(part);
    expect(text).not.toContain(PASSWORD);
    expect(text).not.toContain('u:12');
  };

  it.skipIf(down)('is an error of openStore', async () => {
    const error: unknown = await openStore(url).catch((reason: unknown) => reason);
    expect(error).toMatchObject({ code: 'store' });
    expectTold(String(error));
  });

  it.skipIf(down)('ends serve, proxy and calls with 2', async () => {
    const file = url.startsWith('sqlite:') ? [] : [start('calls', 'list', '--store', url)];
    const all = [
      start('serve', SERVER, '--port', '0', '--store', url),
      start('proxy', '--port', '0', '--store', url, '--', process.execPath, CHILD),
      ...file,
    ];
    for (const running of all) {
      expect(await running.code).toBe(2);
      expect(running.out).toBe('');
      expectTold(running.err);
    }
  });
});

describe.each(
  some([
    {
      name: 'a Redis relay on a port that is closed',
      url: `redis://:${PASSWORD}@127.0.0.1:1`,
      told: 'ECONNREFUSED',
    },
    {
      name: 'a Redis relay with a wrong password',
      url: changed(REDIS_URL, stranger),
      told: 'WRONGPASS',
      down: REDIS.down,
    },
    {
      name: 'a NATS relay on a port that is closed',
      url: `nats://u:${PASSWORD}@127.0.0.1:1`,
      told: /refused/i,
    },
  ]),
)('$name', ({ url, told, down = false }) => {
  it.skipIf(down)('ends serve with 2', async () => {
    const running = start('serve', SERVER, '--port', '0', '--relay', url);
    expect(await running.code).toBe(2);
    expect(running.out).toBe('');
    expect(running.err).toContain(placeOf(url, '6379'));
    expect(running.err).toMatch(told);
    expect(running.err).not.toContain(PASSWORD);
  });
});

describe('--wait-for-store', () => {
  it.each(
    some([
      { flag: '--store', what: 'Redis', url: REDIS_URL, port: 6379, down: REDIS.down },
      { flag: '--store', what: 'PostgreSQL', url: POSTGRES.url(), port: 5432, down: POSTGRES.down },
      { flag: '--relay', what: 'Redis', url: REDIS_URL, port: 6379, down: REDIS.down },
      { flag: '--relay', what: 'NATS', url: NATS_URL, port: 4222, down: NATS.down },
    ]).filter(({ down }) => !down),
  )('waits for $flag on $what until it answers', async ({ flag, url, port }) => {
    const proxy = await tcpProxy(url, port);
    await proxy.cut();
    const near = Object.assign(new URL(url), { hostname: '127.0.0.1', port: proxy.port }).href;
    const running = start('serve', SERVER, '--port', '0', '--wait-for-store', flag, near);
    const lines = (): number => running.err.split(`127.0.0.1:${proxy.port}`).length - 1;
    await expect.poll(lines).toBeGreaterThanOrEqual(1);
    expect([running.out, running.child.exitCode]).toEqual(['', null]);
    await proxy.mend();
    await expect.poll(() => running.out).toContain('listening on');
    running.child.kill('SIGTERM');
    expect(await running.code).toBe(0);
    await proxy.cut();
  });

  it.skipIf(SHORT)('waits for a SQLite file', async () => {
    const place = join(scratch(), 'later');
    const running = start(
      'serve',
      SERVER,
      '--port',
      '0',
      '--wait-for-store',
      '--store',
      `sqlite://${place}/calls.db`,
    );
    await expect.poll(() => running.err).toContain('ENOENT');
    mkdirSync(place);
    await expect.poll(() => running.out).toContain('listening on');
    expect(existsSync(join(place, 'calls.db'))).toBe(true);
  });
});

it.skipIf(SHORT || REDIS.down)(
  'a relay that goes while a process runs does not keep it from ending',
  async () => {
    const proxy = await tcpProxy(REDIS_URL);
    const running = start('serve', SERVER, '--port', '0', '--relay', `redis://127.0.0.1:${proxy.port}`);
    await expect.poll(() => running.out).toContain('listening on');
    await proxy.cut();
    running.child.kill('SIGTERM');
    const code = await running.code;
    expect({ code, err: running.err }).toEqual({
      code: 0,
      err: expect.not.stringContaining('could not close'),
    });
  },
);
