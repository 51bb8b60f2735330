/** The command line itself: its address, its log, its refusals, its end. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import process from 'node:process';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { SHORT, some } from '../short.ts';
import { accept, modern, post, textOf } from './clients.ts';
import { compiled, SECRET, type Spawned, scratch, spawnServers } from './harness.ts';
import { REDIS, REDIS_URL } from './services.ts';

const CLI = new URL('../../dist/src/cli/main.js', import.meta.url).pathname;
const FIXTURE = new URL('../fixtures/asking-server.ts', import.meta.url).pathname;
const SERVER = `
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
const build = (): McpServer => {
  const server = new McpServer({ name: 'typed', version: '1' });
  server.registerTool('hello', {}, () => ({ content: [{ type: 'text', text: 'hello' }] }));
  return server;
};
`;

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

it.skipIf(SHORT)('goes on where nobody reads its log any more', async () => {
  const child = spawn(
    process.execPath,
    [CLI, 'serve', await compiled(FIXTURE), '--port', '0', '--secret', SECRET],
    { stdio: ['ignore', 'pipe', 'pipe'] },
  );
  const [line] = (await once(createInterface({ input: child.stdout }), 'line')) as [string];
  const url = line.replace('listening on ', '');
  child.stderr.destroy();
  child.stdout.destroy();
  // Each is a line of the log.
  for (let nth = 0; nth < 5; nth += 1)
    expect((await post(url, { tool: 'one', headers: { origin: 'https://evil.example' } })).status).toBe(403);
  expect((await post(url, { tool: 'one' })).keys).toHaveLength(1);
  expect([child.exitCode, child.signalCode]).toEqual([null, null]);
  child.kill('SIGKILL');
});

it('ends with 0 on SIGTERM while calls are suspended', async () => {
  const fixture = new URL('../fixtures/asking-server.ts', import.meta.url).pathname;
  const child = spawn(
    process.execPath,
    [CLI, 'serve', fixture, '--port', '0', '--secret', SECRET, '--idle-time', '1s'],
    {
      stdio: ['ignore', 'pipe', 'inherit'],
    },
  );
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

describe('a TypeScript module', () => {
  /** In a package of its own. */
  const moduleOf = (manifest: object, source: string): string => {
    const folder = join(scratch(), 'package');
    mkdirSync(folder);
    symlinkSync(new URL('../../node_modules', import.meta.url).pathname, join(folder, 'node_modules'));
    writeFileSync(join(folder, 'package.json'), JSON.stringify(manifest));
    writeFileSync(join(folder, 'server.ts'), source);
    return join(folder, 'server.ts');
  };
  const serve = (path: string, ...args: string[]) =>
    spawn(process.execPath, [CLI, 'serve', path, '--port', '0', '--secret', SECRET, ...args]);

  it.each(some([{ type: 'module' }, { type: 'commonjs' }, {}]))(
    'of a package with %j is served',
    async (manifest) => {
      const child = serve(moduleOf(manifest, `${SERVER}export default build;`));
      try {
        const [line] = (await once(createInterface({ input: child.stdout }), 'line')) as [string];
        expect(textOf(await post(line.replace('listening on ', ''), { tool: 'hello' }))).toBe('hello');
      } finally {
        child.kill('SIGKILL');
      }
    },
  );

  it.skipIf(SHORT || REDIS.down)(
    'that is no factory ends with 2, with a store that was opened before',
    async () => {
      const child = serve(moduleOf({}, `${SERVER}export const server = build();`), '--store', REDIS_URL);
      let told = '';
      child.stderr.on('data', (chunk) => {
        told += String(chunk);
      });
      try {
        expect(await once(child, 'exit')).toEqual([2, null]);
        expect(told).toContain('must be a factory');
      } finally {
        child.kill('SIGKILL');
      }
    },
  );
});

describe('serve on an address that others reach', () => {
  it.skipIf(SHORT)('warns that it authenticates nobody, and not on loopback', async () => {
    const [open] = await spawnServers('asking-server.ts', 1, {
      args: ['--host', '0.0.0.0', '--log', 'warn'],
    });
    expect(open?.stderr()).toContain('authenticates nobody');
    await open?.kill();
    expect(servers[0]?.stderr()).not.toContain('authenticates nobody');
  });
});
