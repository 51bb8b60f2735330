/** The booking example in two processes of Bun, and of Deno, on one Redis: what one asks, the other goes on with. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { afterEach, describe, expect, it } from 'vitest';
import { accept, post, textOf } from '../e2e/clients.ts';
import { SECRET } from '../e2e/harness.ts';
import { REDIS } from '../e2e/services.ts';

const ROOT = new URL('../..', import.meta.url).pathname;
const BINARIES = `${ROOT}test/runtimes/node_modules`;
/** Where the packages keep their binaries, before and after their install scripts ran. */
const binary = (...paths: readonly string[]): string | undefined =>
  paths.map((path) => `${BINARIES}/${path}`).find((path) => existsSync(path));
const RUNTIMES = [
  { name: 'Bun', command: binary('@oven/bun-linux-x64/bin/bun', 'bun/bin/bun.exe'), args: ['run'] },
  {
    name: 'Deno',
    command: binary('@deno/linux-x64-glibc/deno'),
    args: ['run', '-A', '--node-modules-dir=manual'],
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

describe.each(RUNTIMES)('$name', ({ command, args }) => {
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
