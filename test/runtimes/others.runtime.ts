/**
 * Bun and Deno: the booking example in two processes on one Redis, where one process continues the other's call; and the
 * recipe of Hono with `export default app`.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { afterEach, describe, expect, it } from 'vitest';
import { snippetsOf } from '../docs/pages.ts';
import { freePort, started } from '../docs/run.ts';
import { APART, twoCallers } from '../docs/two-callers.ts';
import { accept, post, textOf } from '../e2e/clients.ts';
import { SECRET } from '../e2e/harness.ts';
import { REDIS } from '../e2e/services.ts';

const ROOT = new URL('../..', import.meta.url).pathname;
const BINARIES = `${ROOT}test/runtimes/node_modules`;
/** Where the packages keep their binaries, before and after their install scripts ran. */
const binary = (...paths: readonly string[]): string | undefined =>
  paths.map((path) => `${BINARIES}/${path}`).find((path) => existsSync(path));
const RUNTIMES = [
  {
    name: 'Bun',
    command: binary('@oven/bun-linux-x64/bin/bun', 'bun/bin/bun.exe'),
    args: ['run'],
    serveArgs: (port: number) => ['run', `--port=${port}`],
  },
  {
    name: 'Deno',
    command: binary('@deno/linux-x64-glibc/deno'),
    args: ['run', '-A', '--node-modules-dir=manual'],
    serveArgs: (port: number) => ['serve', '-A', '--node-modules-dir=manual', `--port=${port}`],
  },
];

const children: ChildProcess[] = [];
afterEach(() => {
  for (const child of children.splice(0)) child.kill();
});

async function serve(command = '', args: readonly string[] = []): Promise<string> {
  const serving = [`${ROOT}dist/src/cli/main.js`, 'serve', 'examples/booking/with-steps.ts', '--port', '0'];
  const child = spawn(command, [...args, ...serving, '--store', REDIS.url()], {
    cwd: ROOT,
    env: { ...process.env, MCP_AWAIT_SECRET: SECRET },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  children.push(child);
  const [line] = (await once(createInterface(child.stdout), 'line')) as [string];
  return line.replace('listening on ', '');
}

for (const { name, command } of RUNTIMES)
  if (command === undefined)
    console.warn(`\nSkipped: ${name} has no binary for this machine in its npm package\n`);
if (REDIS.down) console.warn('\nSkipped: Bun and Deno need Redis\n');

/** The recipe of Hono with its last line replaced, beside the files that it assumes. @returns the folder */
function writeRecipe(): string {
  const folder = `${ROOT}test/docs/run-${process.pid}-default`;
  const recipe = snippetsOf('docs/recipes.md').find(({ heading }) => heading === 'Hono')?.code ?? '';
  const last = 'serve({ fetch: app.fetch, port: 3000 });';
  expect(recipe).toContain(last);
  mkdirSync(folder, { recursive: true });
  for (const name of ['server', 'verifier'])
    copyFileSync(`${ROOT}test/docs/assumed/${name}.ts`, `${folder}/${name}.ts`);
  // Deno resolves no `.js` to a `.ts`.
  const code = recipe.replace(last, 'export default app;').replace(/(\.\/\w+)\.js'/g, "$1.ts'");
  writeFileSync(`${folder}/mount.ts`, code.replace("import { serve } from '@hono/node-server';\n", ''));
  return folder;
}

describe.each(RUNTIMES)('$name', ({ command, args, serveArgs }) => {
  it.skipIf(command === undefined)('serves what the recipe of Hono exports', async () => {
    const folder = writeRecipe();
    const port = await freePort();
    const child = spawn(command ?? '', [...serveArgs(port), `${folder}/mount.ts`], {
      cwd: ROOT,
      stdio: 'pipe',
    });
    const { url, stop } = await started(child, port, () => rmSync(folder, { recursive: true, force: true }));
    try {
      expect(await twoCallers(url)).toEqual(APART);
    } finally {
      stop();
    }
  });

  it.skipIf(REDIS.down || command === undefined)(
    'goes on in another process, and does no step twice',
    async () => {
      const [one, other] = await Promise.all([serve(command, args), serve(command, args)]);
      const call = { tool: 'book_flight', args: { to: 'Rome' } };
      const first = await post(one, call);
      const day = accept(first.keys, { day: 'Monday' });
      const second = await post(other, { ...call, state: first.state, responses: day });
      const seat = /Seat (\w+)/.exec(second.text)?.[1];
      expect(seat, second.text).toBeDefined();
      const sure = accept(second.keys, { yes: true });
      const third = await post(one, { ...call, state: second.state, responses: sure });
      expect(textOf(third)).toContain(`Booked seat ${seat} to Rome on Monday`);
    },
  );
});
