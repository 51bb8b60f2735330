/** A version of a server, running: in a process of its own for a module, in this one for a factory. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { type AwaitError, deferred, optionError, reasonOf } from '../base/values.ts';
import type { HostFactory } from '../host/host.ts';
import { isPeerHost } from '../proxy/host.ts';
import { type Counts, ModuleCounts } from './effects/module-counts.ts';
import type { Effect } from './effects/observer.ts';
import { Ipc } from './ipc.ts';
import type { StoreAccess } from './shared-store.ts';
import { type LogLine, openSite, type Site, type SiteConfig } from './site.ts';
import type { Stage } from './stage.ts';

/** A module whose default export is a factory, or a command that speaks MCP over its stdin and stdout. */
type Program = { readonly module: string } | { readonly command: readonly string[] };

export interface Version {
  readonly name: string;
  readonly server: HostFactory | Program;
}

export interface ServerProcess {
  /** @throws AwaitError `bad-option` where the module cannot be loaded */
  open(config: Omit<SiteConfig, 'secret'>, stage: Stage, name?: string): Promise<Site>;
  /** Resolves with the reason once it ends by itself. */
  readonly ended: Promise<AwaitError>;
  /** What the module of its factory keeps in variables; nothing for a command. */
  counts(): Promise<Counts>;
  /** Nothing is counted until it is asked for again: each instance that is made would take longer. */
  counted(): Promise<void>;
  kill(): void;
}

/** Milliseconds that a module may take to load, and a process to answer once a step took too long. */
const LOADING = 10_000;
/** Or, on a machine so busy that this is longer, as many times what the process took to start. */
const STARTS = 10;
/** Milliseconds to wait for what a process that ended has written. */
const LAST_LINES = 500;

/** A factory that is played in several processes has one module all the same. */
const COUNTED = new WeakMap<HostFactory, ModuleCounts>();

/** @throws AwaitError `bad-option` if it cannot be loaded or started, with Node's own message */
export async function startServer({ server }: Version): Promise<ServerProcess> {
  if (typeof server !== 'function') return startProgram(server);
  const counts = COUNTED.get(server) ?? new ModuleCounts(server);
  COUNTED.set(server, counts);
  return {
    ended: new Promise(() => {}),
    open: async (config, stage, name = '') => {
      const log = (line: LogLine): void => stage.log(line, name);
      const { relay, secret } = stage;
      const store = stage.storeOf(name);
      stage.observe();
      return stage.keep(
        await openSite(
          isPeerHost(server) ? server : counts.factory,
          { ...config, secret },
          { store, relay, log },
        ),
      );
    },
    counts: async () => counts.read(),
    counted: async () => counts.close(),
    kill: () => counts.close(),
  };
}

async function startProgram(program: Program): Promise<ServerProcess> {
  const args = 'module' in program ? [program.module] : ['--', ...program.command];
  const named = 'module' in program ? program.module : program.command.join(' ');
  const spawned = performance.now();
  const child = spawnChild(args);
  let patience = LOADING;
  const seconds = (): number => Math.round(patience / 1_000);
  let stderr = '';
  child.stderr?.on('data', (chunk: Buffer) => {
    stderr = (stderr + chunk.toString()).slice(-4_000);
  });
  let isKilled = false;
  let isStuck = false;
  const kill = (): void => {
    isKilled = true;
    child.kill('SIGKILL');
  };
  const sites = new Map<
    string,
    { readonly stage: Stage; readonly name: string; readonly store: StoreAccess }
  >();
  const stops = new Map<string, () => Promise<void>>();
  const siteOf = (id: string) => {
    const site = sites.get(id);
    if (site === undefined) throw new RangeError(`no site ${id} was opened`);
    return site;
  };
  const { promise: begun, resolve: begin } = deferred();
  for (const stream of [child.stdout, child.stderr])
    stream?.on('data', (chunk: Buffer) => {
      for (const { stage, name } of sites.values()) stage.onOutput?.(chunk.toString(), name);
    });
  const ipc = new Ipc(child, {
    loading: () => {
      patience = Math.max(LOADING, STARTS * (performance.now() - spawned));
      begin();
    },
    get: (id: string, key: string) => siteOf(id).store.get(key),
    set: (id: string, key: string, value: unknown) => siteOf(id).store.set(key, value),
    delete: (id: string, key: string) => siteOf(id).store.delete(key),
    insertIfAbsent: (id: string, key: string, value: unknown) => siteOf(id).store.insertIfAbsent(key, value),
    listen: async (id: string, name: string) => {
      const hear = (message: string): void => void ipc.call('hear', id, name, message).catch(() => {});
      stops.set(`${id} ${name}`, await siteOf(id).stage.relay.listen(name, hear));
    },
    unlisten: (id: string, name: string) => stops.get(`${id} ${name}`)?.(),
    send: (id: string, name: string, message: string) => siteOf(id).stage.relay.send(name, message),
    effect: (effect: Effect) => {
      for (const { stage, name } of sites.values()) stage.saw(effect, name);
    },
    log: (id: string, line: LogLine) => siteOf(id).stage.log(line, siteOf(id).name),
  });
  const { promise: ended, resolve: endsItself } = deferred<AwaitError>();
  const gone = new Promise<void>((resolve) => {
    child.once('exit', async (code, signal) => {
      for (const stop of stops.values()) void stop();
      if (!isKilled) for (const { stage } of sites.values()) stage.isLost = true;
      // Its last lines may still be in the pipe; a child of its own may hold that open.
      await Promise.race([once(child, 'close'), sleep(LAST_LINES)]);
      const how = isStuck
        ? `was killed: it answered nothing for ${seconds()} seconds`
        : code === null
          ? `ended by ${signal}`
          : `ended with exit code ${code}`;
      const error = optionError(`the process of ${named} ${how}${lastLines(stderr)}`);
      ipc.end(error);
      if (!isKilled) {
        for (const { stage } of sites.values()) stage.fail(error);
        endsItself(error);
      }
      resolve();
    });
  });
  const hangs = async (): Promise<never> => {
    await begun;
    await sleep(patience, undefined, { ref: false });
    throw new Error(`it has not loaded after ${seconds()} seconds${lastLines(stderr)}`);
  };
  try {
    await Promise.race([ipc.call('ready'), hangs()]);
  } catch (error) {
    kill();
    const reason = reasonOf(error);
    // What cannot be loaded is named already.
    const message = reason.startsWith(`${named} `) ? reason : `${named} cannot be served: ${reason}`;
    throw optionError(message, error);
  }
  return {
    ended,
    open: async (config, stage, name = '') => {
      const id = String(sites.size + 1);
      sites.set(id, { stage, name, store: stage.storeOf(name) });
      const url = String(await ipc.call('open', id, { ...config, secret: stage.secret }));
      return stage.keep({
        url,
        answers: async () => {
          const stuck = setTimeout(() => {
            isStuck = true;
            child.kill('SIGKILL');
          }, patience);
          await ipc.call('ready').finally(() => clearTimeout(stuck));
        },
        close: async () => void (await ipc.call('close', id).catch(() => {})),
        crash: async () => {
          kill();
          await gone;
        },
      });
    },
    counts: async () => (await ipc.call('counts')) as Counts,
    counted: async () => void (await ipc.call('counted')),
    kill,
  };
}

/** What a process wrote last, where it wrote anything. */
function lastLines(stderr: string): string {
  const lines = stderr.trimEnd().split('\n').slice(-20).join('\n');
  return lines === '' ? ', and wrote nothing to stderr' : `; its last lines of stderr:\n${lines}`;
}

/** This file's neighbour, as it is: in TypeScript where this package is run from its source. */
function spawnChild(args: readonly string[]): ChildProcess {
  const ending = import.meta.url.slice(import.meta.url.lastIndexOf('.'));
  const entry = fileURLToPath(new URL(`./process${ending}`, import.meta.url));
  const loader = ending === '.ts' ? ['--import', 'tsx'] : [];
  return spawn(process.execPath, [...loader, entry, ...args], {
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    env: process.env,
  });
}
