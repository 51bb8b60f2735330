/** The command line itself: where it listens, what it logs, what it refuses, how it ends. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import process from 'node:process';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { accept, modern, post, textOf } from './clients.ts';
import { SECRET, type Spawned, spawnServers } from './harness.ts';

let servers: Spawned[] = [];
beforeAll(async () => {
  servers = await spawnServers('asking-server.ts', 1, {
    args: ['--log', 'warn', '--allow-origin', 'https://app.example'],
  });
});
afterAll(() => Promise.all(servers.map((server) => server.kill())));

const server = (): Spawned => {
  const [first] = servers;
  if (first === undefined) throw new Error('it was started');
  return first;
};

it('listens on 127.0.0.1, at /mcp, and nowhere else', async () => {
  expect(server().url).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/mcp$/);
  expect((await fetch(server().url.replace('/mcp', '/other'))).status).toBe(404);
  const client = await modern(server().url);
  expect(await client.tool('one')).toBe('Hello its name');
  await client.close();
});

it('lets in the origins that were allowed, and refuses others', async () => {
  const from = async (origin: string): Promise<number> =>
    (await post(server().url, { tool: 'one', headers: { origin } })).status;
  expect(await from('https://app.example')).toBe(200);
  expect(await from('https://evil.example')).toBe(403);
});

it('logs the reason of a refusal on stderr, one JSON line, and no token', async () => {
  const { state } = await post(server().url, { tool: 'one' });
  await post(server().url, { tool: 'echo', args: { word: 'x' }, state });
  await expect.poll(() => server().stderr()).toContain('another target');
  const line = server()
    .stderr()
    .split('\n')
    .find((text) => text.includes('another target'));
  expect(JSON.parse(line ?? '')).toMatchObject({ level: 'warn', code: 'bad-token' });
  expect(server().stderr()).not.toContain(state);
  expect(server().stderr()).not.toContain(SECRET);
});

it('ends with 0 on SIGTERM while calls are suspended', async () => {
  const cli = new URL('../../dist/src/cli/main.js', import.meta.url).pathname;
  const fixture = new URL('../fixtures/asking-server.ts', import.meta.url).pathname;
  const child = spawn(process.execPath, [cli, 'serve', fixture, '--port', '0', '--secret', SECRET], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const [line] = (await once(createInterface({ input: child.stdout }), 'line')) as [string];
  const url = line.replace('listening on ', '');
  const { state, keys } = await post(url, { tool: 'one' });
  expect(keys).toHaveLength(1);
  const other = await post(url, { tool: 'one' });
  const done = await post(url, { tool: 'one', state, responses: accept(keys, { name: 'Ann' }) });
  expect(textOf(done)).toBe('Hello Ann');
  expect(other.keys).toHaveLength(1);
  child.kill('SIGTERM');
  expect(await once(child, 'exit')).toEqual([0, null]);
});
