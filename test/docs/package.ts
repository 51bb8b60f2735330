/** What an installed package must do: be imported and required, run the pages' snippets, and start its command. */
import { execFileSync, spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import process from 'node:process';
import { expect } from 'vitest';
import { legacy, modern } from '../e2e/clients.ts';
import { snippetsOf } from './pages.ts';
import { freePort, type Running, started } from './run.ts';

/** A function of each entry point that needs no optional package. */
const ENTRIES: Readonly<Record<string, string>> = {
  'mcp-await': 'createAwaitHandler',
  'mcp-await/node': 'toNodeHandler',
  'mcp-await/stdio': 'createStdio',
  'mcp-await/store': 'openStore',
  'mcp-await/websocket': 'mountWebSocket',
  'mcp-await/client': 'AwaitClientTransport',
};

/** @param load a JavaScript expression for the module in `path` */
function typesOf(project: string, inputType: 'module' | 'commonjs', load: string): unknown {
  const code = `(async () => {
    const types = {};
    for (const [path, name] of ${JSON.stringify(Object.entries(ENTRIES))}) types[path] = typeof (${load})[name];
    console.log(JSON.stringify(types));
  })();`;
  const args = ['--no-warnings', `--input-type=${inputType}`, '--eval', code];
  return JSON.parse(execFileSync(process.execPath, args, { cwd: project, encoding: 'utf8' }));
}

export function expectImported(project: string): void {
  const functions = Object.fromEntries(Object.keys(ENTRIES).map((path) => [path, 'function']));
  expect(typesOf(project, 'module', 'await import(path)')).toEqual(functions);
  expect(typesOf(project, 'commonjs', 'require(path)')).toEqual(functions);
}

/** Runs the files of docs/start.md as they stand there: each factory, with the lines that mount it. */
export async function expectStarted(project: string): Promise<void> {
  const codes = snippetsOf('docs/start.md').map(({ code }) => code);
  const factories = codes.filter((code) => code.includes('function buildServer'));
  const mount = codes.find((code) => code.includes('createAwaitHandler')) ?? '';
  expect([factories.length, mount.split('3000').length]).toEqual([2, 2]);
  for (const factory of factories) {
    const port = await freePort();
    writeFileSync(join(project, 'server.js'), factory);
    writeFileSync(join(project, 'mount.js'), mount.replace('3000', String(port)));
    const child = spawn(process.execPath, ['mount.js'], { cwd: project, stdio: 'pipe' });
    await expectGreeting(await started(child, port));
  }
}

/** Serves the last factory that was run. @param command the package's command, and arguments that come first */
export async function expectServed(
  project: string,
  [command = '', ...first]: readonly string[],
): Promise<void> {
  const port = await freePort();
  const args = [...first, 'serve', './server.js', '--port', String(port)];
  const child = spawn(command, args, { cwd: project, stdio: 'pipe' });
  await expectGreeting(await started(child, port));
}

async function expectGreeting({ url, stop }: Running): Promise<void> {
  try {
    for (const connect of [modern, legacy]) {
      const client = await connect(url);
      expect(await client.tool('greet')).toBe('Hello its name');
      expect(client.asked).toEqual(['What is your name?']);
      await client.close();
    }
  } finally {
    stop();
  }
}
