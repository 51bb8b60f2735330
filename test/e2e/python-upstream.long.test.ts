/**
 * The proxy before a server of the Python SDK 2.x, of 2026-07-28 alone: clients of both eras, and two proxies of which
 * one is killed. The SDK comes from pip, where its index can be reached, into a folder of the tests.
 */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, it } from 'vitest';
import { accept, legacy, modern, post, textOf } from './clients.ts';
import { effectsFile, fixture, startProxy } from './proxied.ts';
import { SQLITE } from './services.ts';

const PYTHON = pythonWithSdk();
const name = `a server of the Python SDK 2.x${PYTHON === undefined ? ' (skipped: pip does not find mcp>=2)' : ''}`;

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

/** @returns its interpreter; undefined where the SDK cannot be installed */
function pythonWithSdk(): string | undefined {
  const folder = fileURLToPath(new URL('../../.cache/python-sdk', import.meta.url));
  const python = `${folder}/bin/python`;
  const run = (command: string, ...args: string[]): boolean =>
    spawnSync(command, args, { stdio: 'ignore', timeout: 240_000 }).status === 0;
  const hasSdk = (): boolean => run(python, '-c', 'import mcp.server.mcpserver, mcp_types, uvicorn');
  if (hasSdk()) return python;
  const pip = [
    '-m',
    'pip',
    'install',
    '--quiet',
    '--retries',
    '0',
    '--timeout',
    '15',
    'mcp>=2,<3',
    'uvicorn',
  ];
  const isMade = run('python3', '-m', 'venv', folder) && run(python, ...pip);
  return isMade && hasSdk() ? python : undefined;
}

async function upstream(effects: string): Promise<string> {
  const child = spawn(PYTHON ?? '', [fixture('modern_server.py'), effects], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  ends.push(async () => {
    child.kill('SIGKILL');
    await once(child, 'exit');
  });
  const lines = createInterface({ input: child.stdout });
  const [url] = (await once(lines, 'line')) as [string];
  return url;
}

async function proxies(url: string) {
  const options = ['--url', url, '--store', SQLITE.url(), '--limit', 'lease=2500'];
  const running = await Promise.all([startProxy([], options), startProxy([], options)]);
  ends.push(() => Promise.all(running.map(({ stop }) => stop('SIGKILL'))));
  return running;
}

const ROME = { to: 'Rome' };
const DONE = 'Rome on its day, seat its seat';

describe.skipIf(PYTHON === undefined)(name, () => {
  it.each([
    ['2025-11-25', legacy],
    ['2026-07-28', modern],
  ] as const)('asks a client of %s, each round once', async (_revision, connect) => {
    const effects = effectsFile();
    const [proxy] = await proxies(await upstream(effects.path));
    const client = await connect(proxy?.url ?? '');
    expect(await client.toolNames()).toEqual(['book']);
    expect(await client.tool('book', ROME)).toBe(DONE);
    // The first, and one for each answer.
    expect(effects.lines()).toHaveLength(3);
  });

  it('goes on at the other proxy, also once the first one was killed', async () => {
    const effects = effectsFile();
    const [one, other] = await proxies(await upstream(effects.path));
    const tool = 'book';
    const first = await post(one?.url ?? '', { tool, args: ROME });
    const day = accept(first.keys, { day: 'its day' });
    const second = await post(other?.url ?? '', { tool, args: ROME, state: first.state, responses: day });
    await one?.stop('SIGKILL');
    const seat = accept(second.keys, { seat: 'its seat' });
    const done = await post(other?.url ?? '', { tool, args: ROME, state: second.state, responses: seat });
    expect(textOf(done)).toBe(DONE);
    expect(effects.lines()).toHaveLength(3);
  });
});
