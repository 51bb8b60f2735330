/** Runs a snippet of a page in a process of its own, beside the files that the pages assume. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import process from 'node:process';
import { setTimeout as sleep } from 'node:timers/promises';
import { ROOT } from './pages.ts';

const TSX = import.meta.resolve('tsx');

export interface Running {
  readonly url: string;
  stop(): void;
}

export interface Beside {
  /** The folder for the file, from the project's root; its imports resolve from there. */
  readonly folder: string;
  /** Local files that it imports: the name there, and the file that is copied from `folder`. */
  readonly files: Readonly<Record<string, string>>;
}

const GREETER: Beside = {
  folder: 'test/docs',
  files: { 'server.ts': 'assumed/server.ts', 'verifier.ts': 'assumed/verifier.ts' },
};

/**
 * @param code a whole file that listens on port 3000
 * @throws Error with its output, if it ends or does not listen within 30 seconds
 */
export async function run(name: string, code: string, beside: Beside = GREETER): Promise<Running> {
  const home = `${ROOT}${beside.folder}`;
  const folder = `${home}/run-${process.pid}-${name.replace(/\W+/g, '-')}`;
  const port = await freePort();
  if (!code.includes('3000')) throw new Error(`${name} does not listen on 3000`);
  mkdirSync(folder, { recursive: true });
  for (const [to, from] of Object.entries(beside.files)) copyFileSync(`${home}/${from}`, `${folder}/${to}`);
  writeFileSync(`${folder}/mount.ts`, code.replace('3000', String(port)));
  const remove = (): void => rmSync(folder, { recursive: true, force: true });
  const child = spawn(process.execPath, ['--import', TSX, `${folder}/mount.ts`], {
    cwd: home,
    stdio: 'pipe',
  });
  return started(child, port, remove);
}

/** Waits until a process listens on a port. @param cleanUp called once it is stopped */
export async function started(
  child: ChildProcess,
  port: number,
  cleanUp: () => void = () => {},
): Promise<Running> {
  const stop = (): void => {
    child.kill();
    cleanUp();
  };
  try {
    await listening(child, port);
  } catch (error) {
    stop();
    throw error;
  }
  return { url: `http://127.0.0.1:${port}/mcp`, stop };
}

/** Ports of this process's tests: below those that the system gives out, since other tests get the same ones there. */
const FIRST = 10_000 + (process.pid % 200) * 100;
let ports = 0;

export async function freePort(): Promise<number> {
  for (;;) {
    const port = FIRST + (ports++ % 100);
    const server = createServer().listen(port, '127.0.0.1');
    const isFree = await once(server, 'listening').then(
      () => true,
      () => false,
    );
    if (!isFree) continue;
    server.close();
    await once(server, 'close');
    return port;
  }
}

async function listening(child: ChildProcess, port: number): Promise<void> {
  let printed = '';
  for (const stream of [child.stdout, child.stderr])
    stream?.on('data', (chunk) => (printed += String(chunk)));
  for (let tries = 0; tries < 300; tries++) {
    if (child.exitCode !== null) break;
    const answered = await fetch(`http://127.0.0.1:${port}/`).then(
      () => true,
      () => false,
    );
    if (answered) return;
    await sleep(100);
  }
  throw new Error(`it does not listen:\n${printed}`);
}
