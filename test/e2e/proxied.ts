/** What the tests of the proxy share: fixtures as children, and the processes that there are. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import process from 'node:process';
import { createInterface } from 'node:readline';
import { SECRET, scratch } from './harness.ts';

const CLI = new URL('../../dist/src/cli/main.js', import.meta.url).pathname;

export const fixture = (name: string): string => new URL(`../fixtures/${name}`, import.meta.url).pathname;
export const node = (name: string, ...args: string[]): string[] => [process.execPath, fixture(name), ...args];
export const PYTHON: readonly string[] = ['python3', fixture('asking_server.py')];

export interface RunningProxy {
  readonly url: string;
  readonly process: ChildProcess;
  readonly stderr: () => string;
  /** Resolves with its exit code, or the signal that ended it. */
  readonly ended: Promise<number | string>;
  stop(signal?: NodeJS.Signals): Promise<number | string>;
}

/** `mcp-await proxy --port 0 [options] -- command`, from dist; without a command where the options name a URL. */
export async function startProxy(
  command: readonly string[],
  options: readonly string[] = [],
  env: Readonly<Record<string, string>> = {},
): Promise<RunningProxy> {
  const given = command.length > 0 ? ['--', ...command] : [];
  const child = spawn(process.execPath, [CLI, 'proxy', '--port', '0', ...options, ...given], {
    env: { ...process.env, MCP_AWAIT_SECRET: SECRET, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let stderr = '';
  child.stderr.on('data', (chunk: Buffer) => {
    stderr += chunk.toString();
  });
  const ended = once(child, 'exit').then(([code, signal]) => code ?? signal);
  const stop = (signal: NodeJS.Signals = 'SIGTERM'): Promise<number | string> => {
    child.kill(signal);
    return ended;
  };
  for await (const line of createInterface({ input: child.stdout })) {
    const url = /^listening on (\S+)$/.exec(line)?.[1];
    if (url === undefined) continue;
    child.stdout.resume();
    return { url, process: child, stderr: () => stderr, ended, stop };
  }
  throw new Error(`it ended with ${await ended}: ${stderr}`);
}

/** `mcp-await proxy [options] -- command`, from dist, with its pipes open. */
export function spawnProxy(command: readonly string[], options: readonly string[]) {
  const child = spawn(process.execPath, [CLI, 'proxy', ...options, '--', ...command]);
  const ended = once(child, 'close').then(([code, signal]): number | string => code ?? String(signal));
  return { child, ended };
}

/** A proxy that fails to start: its exit code and its stderr. */
export async function failedProxy(
  command: readonly string[],
  options: readonly string[] = [],
): Promise<{ readonly code: number | string; readonly stderr: string }> {
  const { child, ended } = spawnProxy(command, ['--port', '0', ...options]);
  let stderr = '';
  child.stderr.on('data', (chunk: Buffer) => {
    stderr += chunk.toString();
  });
  return { code: await ended, stderr };
}

/** A file that children write to, and its lines. */
export function effectsFile(): { readonly path: string; readonly lines: () => string[] } {
  const path = join(scratch(), 'effects');
  return {
    path,
    lines: () => (existsSync(path) ? readFileSync(path, 'utf8').trim().split('\n') : []),
  };
}

export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
