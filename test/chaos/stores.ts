/** Stores of the run's own: a Redis, a PostgreSQL cluster, or a file, which can be broken without harm to others. */
import { type ChildProcess, execFile, spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { createConnection, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import KeyvSqlite from '@keyv/sqlite';

export type StoreName = 'redis' | 'postgres' | 'sqlite';

export interface OwnStore {
  readonly url: string;
  /** Crashes it and starts it again; absent if this run did not start its process. */
  readonly restart?: () => Promise<void>;
  /** Stops it from replying until `resume`. */
  pause(): Promise<void>;
  resume(): Promise<void>;
  /** Ends it and deletes its files, at once, also when this process exits. */
  remove(): void;
}

export async function ownStore(name: StoreName): Promise<OwnStore> {
  const folder = mkdtempSync(join(tmpdir(), `mcp-await-chaos-${name}-`));
  const clear = (): void => rmSync(folder, { recursive: true, force: true });
  try {
    if (name === 'redis') return await redis(folder, clear);
    return name === 'postgres' ? await postgres(folder, clear) : sqlite(folder, clear);
  } catch (error) {
    clear();
    throw error;
  }
}

async function redis(folder: string, clear: () => void): Promise<OwnStore> {
  const port = await freePort();
  // Acknowledged writes are on the disk, so a crash may lose none of them.
  const durable = ['--save', '', '--appendonly', 'yes', '--appendfsync', 'always', '--dir', folder];
  const args = ['--port', String(port), '--bind', '127.0.0.1', '--loglevel', 'warning', ...durable];
  let child: ChildProcess;
  const start = async (): Promise<void> => {
    child = spawn('redis-server', args, { stdio: 'ignore' });
    let failure: Error | undefined;
    child.once('error', (error) => {
      failure = error;
    });
    await until(async () => {
      if (failure !== undefined) throw failure;
      return (await answerOf(port, 'PING\r\n')).startsWith('+PONG');
    }, 'redis-server');
  };
  await start();
  return {
    url: `redis://127.0.0.1:${port}`,
    async restart() {
      const gone = new Promise((resolve) => child.once('exit', resolve));
      child.kill('SIGKILL');
      await gone;
      await start();
    },
    async pause() {
      child.kill('SIGSTOP');
    },
    async resume() {
      child.kill('SIGCONT');
    },
    remove() {
      child.kill('SIGKILL');
      clear();
    },
  };
}

async function postgres(folder: string, clear: () => void): Promise<OwnStore> {
  const port = await freePort();
  const data = join(folder, 'data');
  const log = join(folder, 'log');
  // PostgreSQL refuses to run as root.
  const asRoot = process.getuid?.() === 0;
  if (asRoot) spawnSync('chown', ['postgres', folder]);
  const command = (tool: string, args: readonly string[]): [string, string[]] => {
    const path = join(binaries(), tool);
    return asRoot ? ['runuser', ['-u', 'postgres', '--', path, ...args]] : [path, [...args]];
  };
  const run = async (tool: string, args: readonly string[]): Promise<void> => {
    await promisify(execFile)(...command(tool, args), { cwd: '/' });
  };
  const settings = `-p ${port} -c listen_addresses=127.0.0.1 -c unix_socket_directories=''`;
  await run('initdb', ['-D', data, '-U', 'postgres', '-A', 'trust', '--no-sync']);
  const cluster = ['-D', data, '-w', '-l', log, '-o', settings];
  await run('pg_ctl', ['start', ...cluster]);
  const signal = (name: NodeJS.Signals): void => {
    const postmaster = Number(readFileSync(join(data, 'postmaster.pid'), 'utf8').split('\n', 1)[0]);
    for (const pid of [postmaster, ...childrenOf(postmaster)]) {
      try {
        process.kill(pid, name);
      } catch {
        // A backend may have ended by itself.
      }
    }
  };
  return {
    url: `postgres://postgres@127.0.0.1:${port}/postgres`,
    restart: () => run('pg_ctl', ['restart', '-m', 'immediate', ...cluster]),
    async pause() {
      signal('SIGSTOP');
    },
    async resume() {
      signal('SIGCONT');
    },
    remove() {
      if (existsSync(join(data, 'postmaster.pid'))) signal('SIGCONT');
      const [file, args] = command('pg_ctl', ['stop', '-D', data, '-m', 'immediate']);
      spawnSync(file, args, { cwd: '/' });
      clear();
    },
  };
}

/** Nothing to restart here; it is slow while another connection holds it for itself alone. */
function sqlite(folder: string, clear: () => void): OwnStore {
  const url = `sqlite://${join(folder, 'calls.sqlite')}`;
  // It gives up soon: waiting for the lock stops this whole process, and the ledger is in it.
  const holder = new KeyvSqlite({ uri: url, busyTimeout: 50 });
  holder.on('error', () => {});
  return {
    url,
    async pause() {
      await until(async () => {
        await holder.query('BEGIN EXCLUSIVE');
        return true;
      }, 'BEGIN EXCLUSIVE');
    },
    async resume() {
      await holder.query('ROLLBACK');
    },
    remove: clear,
  };
}

function binaries(): string {
  const root = '/usr/lib/postgresql';
  const [newest] = existsSync(root)
    ? readdirSync(root).sort((one, other) => Number(other) - Number(one))
    : [];
  return newest === undefined ? '' : join(root, newest, 'bin');
}

function childrenOf(parent: number): number[] {
  return readFileSync(`/proc/${parent}/task/${parent}/children`, 'utf8')
    .split(' ')
    .filter(Boolean)
    .map(Number);
}

function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const address = server.address();
      server.close(() => resolve(typeof address === 'object' ? (address?.port ?? 0) : 0));
    });
  });
}

function answerOf(port: number, sent: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = createConnection({ host: '127.0.0.1', port, timeout: 500 }, () => socket.write(sent));
    socket.once('data', (chunk) => {
      socket.destroy();
      resolve(chunk.toString());
    });
    socket.once('timeout', () => socket.destroy(new Error('no answer')));
    socket.once('error', reject);
  });
}

async function until(works: () => Promise<boolean>, what: string): Promise<void> {
  let last: unknown;
  for (let attempt = 0; attempt < 200; attempt += 1) {
    try {
      if (await works()) return;
    } catch (error) {
      if (error instanceof Error && 'code' in error && error.code === 'ENOENT') throw error;
      last = error;
    }
    await sleep(50);
  }
  throw new Error(`${what} did not come up: ${String(last)}`);
}
