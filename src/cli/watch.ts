/** Runs a command again whenever a file of a folder changes, until a signal ends it. */
import { spawn } from 'node:child_process';
import { watch } from 'node:fs';
import { relative, resolve } from 'node:path';
import process from 'node:process';

/** Milliseconds of quiet after a change: editors write a file in several parts. */
const QUIET = 100;

/**
 * @param args of this command line; each run is a process of its own, which loads every module anew
 * @param folders what is watched, with the folders in it, but for `node_modules` and hidden files
 * @param outputs files that the command writes
 */
export async function runAtChanges(
  args: readonly string[],
  folders: readonly string[],
  outputs: readonly string[],
): Promise<void> {
  const ended = new AbortController();
  const { signal } = ended;
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(name, () => ended.abort());
  let wake = (): void => {};
  const written = new Set(outputs.map((file) => resolve(file)));
  for (const folder of new Set(folders.map((one) => resolve(one)))) {
    watch(folder, { recursive: true, signal }, (_event, name) => {
      const file = resolve(folder, name ?? '');
      if (written.has(file) || /(^|[\\/])(node_modules|\.)/.test(relative(folder, file))) return;
      wake();
    });
  }
  while (!signal.aborted) {
    let timer: NodeJS.Timeout | undefined;
    const changed = new Promise<void>((done) => {
      wake = () => {
        clearTimeout(timer);
        timer = setTimeout(done, QUIET);
      };
      signal.addEventListener('abort', () => done());
    });
    const child = spawn(process.execPath, [...process.execArgv, process.argv[1] ?? '', ...args], {
      stdio: 'inherit',
    });
    await new Promise((done) => child.once('close', done));
    if (!signal.aborted) process.stderr.write(`watching ${folders.join(', ')}; end with Ctrl-C\n`);
    await changed;
  }
}
