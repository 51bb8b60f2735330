/** A version of a server, running: in a process of its own for a module, in this one for a factory. */
import { type ChildProcess, spawn } from 'node:child_process';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { AwaitError } from '../../src/base/error.ts';
import type { HostFactory } from '../../src/host/host.ts';
import { Ipc } from './ipc.ts';
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
  open(config: Omit<SiteConfig, 'secret'>, stage: Stage): Promise<Site>;
  kill(): void;
}

/** @throws AwaitError `bad-option` if it cannot be loaded or started, with Node's own message */
export async function startServer({ server }: Version): Promise<ServerProcess> {
  if (typeof server !== 'function') return startProgram(server);
  return {
    open: async (config, stage) => {
      const log = (line: LogLine): void => void stage.lines.push(line);
      const { store, relay, secret } = stage;
      return stage.keep(await openSite(server, { ...config, secret }, { store, relay, log }));
    },
    kill: () => {},
  };
}

async function startProgram(program: Program): Promise<ServerProcess> {
  const args = 'module' in program ? [program.module] : ['--', ...program.command];
  const named = 'module' in program ? program.module : program.command.join(' ');
  const child = spawnChild(args);
  let stderr = '';
  child.stderr?.on('data', (chunk: Buffer) => {
    stderr = (stderr + chunk.toString()).slice(-4_000);
  });
  const stages = new Map<string, Stage>();
  const stops = new Map<string, () => Promise<void>>();
  const stageOf = (id: string): Stage => {
    const stage = stages.get(id);
    if (stage === undefined) throw new RangeError(`no site ${id} was opened`);
    return stage;
  };
  const ipc = new Ipc(child, {
    get: (id: string, key: string) => stageOf(id).store.get(key),
    set: (id: string, key: string, value: unknown) => stageOf(id).store.set(key, value),
    delete: (id: string, key: string) => stageOf(id).store.delete(key),
    insertIfAbsent: (id: string, key: string, value: unknown) => stageOf(id).store.insertIfAbsent(key, value),
    listen: async (id: string, name: string) => {
      const hear = (message: string): void => void ipc.call('hear', id, name, message).catch(() => {});
      stops.set(`${id} ${name}`, await stageOf(id).relay.listen(name, hear));
    },
    unlisten: (id: string, name: string) => stops.get(`${id} ${name}`)?.(),
    send: (id: string, name: string, message: string) => stageOf(id).relay.send(name, message),
    log: (id: string, line: LogLine) => void stageOf(id).lines.push(line),
  });
  const gone = new Promise<void>((resolve) => {
    child.once('exit', () => {
      for (const stop of stops.values()) void stop();
      ipc.end(new AwaitError('bad-option', `the process of ${named} ended:\n${stderr}`));
      resolve();
    });
  });
  try {
    await ipc.call('ready');
  } catch (error) {
    child.kill('SIGKILL');
    const reason = error instanceof Error ? error.message : String(error);
    throw new AwaitError('bad-option', `${named} cannot be served: ${reason}`, error);
  }
  let opened = 0;
  return {
    open: async (config, stage) => {
      opened += 1;
      const id = String(opened);
      stages.set(id, stage);
      const url = String(await ipc.call('open', id, { ...config, secret: stage.secret }));
      return stage.keep({
        url,
        close: async () => void (await ipc.call('close', id).catch(() => {})),
        crash: async () => {
          child.kill('SIGKILL');
          await gone;
        },
      });
    },
    kill: () => void child.kill('SIGKILL'),
  };
}

/** This file's neighbour, as it is: in TypeScript where this package is run from its source. */
function spawnChild(args: readonly string[]): ChildProcess {
  const ending = import.meta.url.slice(import.meta.url.lastIndexOf('.'));
  const entry = fileURLToPath(new URL(`./process${ending}`, import.meta.url));
  const loader = ending === '.ts' ? ['--import', 'tsx'] : [];
  return spawn(process.execPath, [...loader, entry, ...args], {
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    env: process.env,
  });
}
