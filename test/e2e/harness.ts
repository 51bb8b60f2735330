/** What the end-to-end tests share: handlers in this process, command lines in others, and a balancer. */
import { type ChildProcess, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  statfsSync,
  writeFileSync,
} from 'node:fs';
import { createServer, request as httpRequest, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { createInterface } from 'node:readline';
import { build } from 'esbuild';
import type { Limits } from '../../src/call/limits.ts';
import type { AwaitHandler, AwaitOptions, HostFactory, Logger } from '../../src/index.ts';
import { createAwaitHandler } from '../../src/index.ts';
import { type NodeRequest, toNodeHandler } from '../../src/node.ts';
import { SHORT } from '../short.ts';

export const SECRET = 'the secret of the end-to-end tests: longer than 32 bytes';
export const OLD_SECRET = 'the secret from before the change of keys: as long again';

/** A cell of the matrix: what becomes of a suspended frame, and where its call is kept. */
export interface Cell {
  readonly name: string;
  readonly frames: 'kept' | 'replayed';
  readonly state: 'stored' | 'sealed';
}

const MATRIX: readonly Cell[] = (['kept', 'replayed'] as const).flatMap((frames) =>
  (['stored', 'sealed'] as const).map((state) => ({ name: `frame ${frames}, ${state}`, frames, state })),
);
/** All of them, or a diagonal; a call that is replayed from a store is that of two processes (`KINDS`). */
export const CELLS = SHORT
  ? MATRIX.filter(({ frames, state }) => (frames === 'kept') === (state === 'stored'))
  : MATRIX;

export function optionsOf(cell: Cell): AwaitOptions {
  return {
    state: cell.state,
    secrets: [SECRET],
    ...(cell.frames === 'replayed' && { limits: { frames: 0 } }),
  };
}

export interface Line {
  readonly level: keyof Logger;
  readonly message: string;
  readonly detail: Readonly<Record<string, unknown>>;
}

/** A logger that keeps its lines. */
export class LogBook implements Logger {
  readonly lines: Line[] = [];

  debug(message: string, detail: Readonly<Record<string, unknown>> = {}): void {
    this.lines.push({ level: 'debug', message, detail });
  }

  info(message: string, detail: Readonly<Record<string, unknown>> = {}): void {
    this.lines.push({ level: 'info', message, detail });
  }

  warn(message: string, detail: Readonly<Record<string, unknown>> = {}): void {
    this.lines.push({ level: 'warn', message, detail });
  }

  error(message: string, detail: Readonly<Record<string, unknown>> = {}): void {
    this.lines.push({ level: 'error', message, detail });
  }

  get text(): string {
    return this.lines.map((line) => JSON.stringify(line)).join('\n');
  }
}

export interface Served {
  readonly url: string;
  readonly handler: AwaitHandler;
  readonly log: LogBook;
  /** How many requests have come in. */
  readonly requests: () => number;
  close(): Promise<void>;
}

/** A handler in this process, on a port of its own. `Authorization: Bearer ann` becomes the caller `ann`. */
export async function serveHere(factory: HostFactory, options: AwaitOptions = {}): Promise<Served> {
  const log = new LogBook();
  const handler = createAwaitHandler(factory, { logger: log, ...options });
  const listener = toNodeHandler(handler);
  let requests = 0;
  // Clients keep connections for four seconds; a process that is starved would close one that is used again.
  const server = createServer({ keepAliveTimeout: 30_000 }, (req: NodeRequest, res) => {
    requests += 1;
    const caller = /^Bearer (\w+)$/.exec(req.headers.authorization ?? '')?.[1];
    if (caller !== undefined) req.auth = { token: `secret-of-${caller}`, clientId: caller, scopes: [] };
    void listener(req, res);
  });
  const url = `${await listen(server)}/mcp`;
  return {
    url,
    handler,
    log,
    requests: () => requests,
    async close() {
      await handler.close();
      await shut(server);
    },
  };
}

export interface Spawned {
  readonly url: string;
  readonly pid: number;
  /** Its stderr so far. */
  readonly stderr: () => string;
  readonly isRunning: () => boolean;
  /** Sends SIGKILL; resolves once the process has ended. */
  kill(): Promise<void>;
}

export interface SpawnOptions {
  /** Bounds that are no option. */
  readonly tuned?: Partial<Limits>;
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

/** How long the owner of a turn may be silent in the processes that tests start, in milliseconds. */
export const LEASE = 2_500;

/** The environment of a process whose clock is so many milliseconds ahead. */
export function clockAhead(ahead: number): { NODE_OPTIONS: string } {
  const script = `const%20now=Date.now;Date.now=()=>now()+${ahead}`;
  return { NODE_OPTIONS: `${process.env.NODE_OPTIONS ?? ''} --import data:text/javascript,${script}` };
}

const CLI = new URL('../../dist/src/cli/main.js', import.meta.url).pathname;
const TUNED_SERVE = new URL('../fixtures/tuned-serve.mjs', import.meta.url).pathname;

/** `mcp-await serve <module>` from dist, in `count` processes; a bare name is a fixture's. */
export async function spawnServers(
  module: string,
  count: number,
  options: SpawnOptions = {},
): Promise<Spawned[]> {
  const args = await argumentsOf(module, options);
  return Promise.all(Array.from({ length: count }, () => start(args, options.env ?? {})));
}

/** Processes that serve the tests of a suite one after the other: only those that a test killed are started again. */
export class Fleet {
  readonly #module: string;
  readonly #count: number;
  readonly #options: SpawnOptions;
  #servers: Spawned[] = [];

  constructor(module: string, count: number, options: SpawnOptions = {}) {
    this.#module = module;
    this.#count = count;
    this.#options = options;
  }

  /** Resolves once all of them run. */
  async up(): Promise<Spawned[]> {
    const args = await argumentsOf(this.#module, this.#options);
    const running = Array.from({ length: this.#count }, (_, nth) => this.#servers[nth]);
    this.#servers = await Promise.all(
      running.map((server) => (server?.isRunning() === true ? server : start(args, this.#options.env ?? {}))),
    );
    return [...this.#servers];
  }

  async down(): Promise<void> {
    await Promise.all(this.#servers.splice(0).map((server) => server.kill()));
  }
}

async function argumentsOf(module: string, { args = [], tuned }: SpawnOptions): Promise<string[]> {
  const path = new URL(module.includes('/') ? module : `../fixtures/${module}`, import.meta.url).pathname;
  const limits = ['--limit', `lease=${LEASE}`];
  return [
    ...(tuned === undefined ? [CLI, 'serve'] : [TUNED_SERVE, JSON.stringify(tuned)]),
    path.endsWith('.ts') ? await compiled(path) : path,
    '--port',
    '0',
    ...limits,
    ...args,
  ];
}

const ROOT = new URL('../..', import.meta.url).pathname;

/**
 * A TypeScript module as one of JavaScript, next to this package's own so that its imports resolve: loading it with
 * tsx costs a process more than a second. That `serve` loads TypeScript itself is tested in `cli.test.ts`.
 */
export async function compiled(path: string): Promise<string> {
  const { outputFiles } = await build({
    entryPoints: [path],
    write: false,
    bundle: true,
    platform: 'node',
    format: 'esm',
    packages: 'external',
    sourcemap: 'inline',
    plugins: [
      {
        name: 'the build in dist',
        setup(builder) {
          builder.onResolve({ filter: /\/src\/.*\.ts$/ }, ({ path: imported }) => ({
            path: join(ROOT, 'dist', imported.slice(imported.indexOf('src/'))).replace(/\.ts$/, '.js'),
            external: true,
          }));
        },
      },
    ],
  });
  const [code = new Uint8Array()] = outputFiles.map(({ contents }) => contents);
  const name = createHash('sha256').update(path).update(code).digest('hex').slice(0, 16);
  const folder = join(ROOT, '.cache', 'modules');
  mkdirSync(folder, { recursive: true });
  const file = join(folder, `${name}.mjs`);
  // Test files run side by side, and a process must not read half a module.
  writeFileSync(`${file}.${process.pid}`, code);
  renameSync(`${file}.${process.pid}`, file);
  return file;
}

async function start(args: readonly string[], env: Readonly<Record<string, string>>): Promise<Spawned> {
  const child = spawn(process.execPath, args, {
    env: { ...process.env, MCP_AWAIT_SECRET: SECRET, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let stderr = '';
  child.stderr.on('data', (chunk: Buffer) => {
    stderr += chunk.toString();
  });
  let isRunning = true;
  // A test that fails before it ends its processes must not leave them behind.
  const end = (): void => void child.kill('SIGKILL');
  process.once('exit', end);
  const gone = new Promise<void>((resolve) =>
    child.once('exit', () => {
      isRunning = false;
      process.off('exit', end);
      resolve();
    }),
  );
  for await (const line of createInterface({ input: child.stdout })) {
    const url = /^listening on (\S+)$/.exec(line)?.[1];
    if (url === undefined) continue;
    child.stdout.resume();
    const { pid = 0 } = child;
    return { url, pid, stderr: () => stderr, isRunning: () => isRunning, kill: () => killed(child, gone) };
  }
  throw new Error(`mcp-await ${args.slice(1).join(' ')} did not come up:\n${stderr}`);
}

function killed(child: ChildProcess, gone: Promise<void>): Promise<void> {
  child.kill('SIGKILL');
  return gone;
}

/** One POST as it went over the wire. */
export interface Post {
  /** The index of the process it went to. */
  readonly to: number;
  readonly request: { readonly method?: string; readonly params?: Readonly<Record<string, unknown>> };
  /** The reply's text, complete once the POST is. */
  reply: string;
}

export interface Balancer {
  readonly url: string;
  readonly posts: Post[];
  close(): Promise<void>;
}

/** Round-robin by default: each POST goes to another process than the one before. */
export async function balance(
  urls: readonly string[],
  pick: (nth: number, request: Post['request']) => number = (nth) => nth % urls.length,
): Promise<Balancer> {
  const posts: Post[] = [];
  // Longer than the processes', whose `Keep-Alive` is passed on.
  const server = createServer({ keepAliveTimeout: 120_000 }, async (req, res) => {
    const body = await textOf(req);
    const request = (body === '' ? {} : JSON.parse(body)) as Post['request'];
    const post: Post = { to: pick(posts.length, request), request, reply: '' };
    posts.push(post);
    const headers = { ...req.headers, host: 'localhost' };
    const onward = httpRequest(urls[post.to] ?? '', { method: req.method, headers }, (reply) => {
      res.writeHead(reply.statusCode ?? 502, reply.headers);
      reply.on('data', (chunk: Buffer) => {
        post.reply += chunk.toString();
      });
      reply.pipe(res);
      reply.once('close', () => reply.complete || res.destroy());
    });
    onward.on('error', () => (res.headersSent ? res.destroy() : res.writeHead(502).end()));
    res.once('close', () => onward.destroy());
    onward.end(body);
  });
  return { url: `${await listen(server)}/mcp`, posts, close: () => shut(server) };
}

/** The calls and their retries among what went over the wire. */
export function asking(posts: readonly Post[]): Post[] {
  const methods = new Set(['tools/call', 'prompts/get', 'resources/read']);
  return posts.filter(({ request }) => methods.has(request.method ?? ''));
}

/** Where there is room in memory: SQLite waits for a disk with each write, and blocks the tests of a whole worker. */
const MEMORY = '/dev/shm';
const LEAST_MEMORY = 2 ** 30;

/** A directory of its own. */
export function scratch(): string {
  return mkdtempSync(join(hasMemory() ? MEMORY : tmpdir(), 'mcp-await-e2e-'));
}

function hasMemory(): boolean {
  if (!existsSync(MEMORY)) return false;
  const { bavail, bsize } = statfsSync(MEMORY);
  return bavail * bsize > LEAST_MEMORY;
}

/** What the fixtures did, in order: `charge`, `ship` and the like. */
export function effectsIn(file: string): string[] {
  try {
    return readFileSync(file, 'utf8').split('\n').filter(Boolean);
  } catch {
    return [];
  }
}

export async function listen(server: Server): Promise<string> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

export function shut(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
    server.closeAllConnections();
  });
}

async function textOf(req: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of req) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString('utf8');
}
