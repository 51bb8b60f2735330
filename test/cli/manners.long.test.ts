/** What a person expects of a command: its version, its help, short errors with an exit code, and a quiet end. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import process from 'node:process';
import { createInterface } from 'node:readline';
import { afterEach, describe, expect, it } from 'vitest';
import { nearest } from '../../src/cli/arguments.ts';
import { levelLogger, lineOf } from '../../src/cli/logger.ts';
import { post, textOf } from '../e2e/clients.ts';
import { compiled, SECRET, scratch } from '../e2e/harness.ts';

const ROOT = new URL('../../', import.meta.url).pathname;
const CLI = `${ROOT}dist/src/cli/main.js`;
const FIXTURE = `${ROOT}test/fixtures/asking-server.ts`;
const env = { ...process.env, MCP_AWAIT_SECRET: SECRET };

const children: ChildProcess[] = [];
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
});

function run(...args: string[]) {
  const { stdout, stderr, status } = spawnSync(process.execPath, [CLI, ...args], {
    encoding: 'utf8',
    env,
    timeout: 60_000,
  });
  return { stdout, stderr, status };
}

/** Modules of a package of its own. @returns its folder */
function packageOf(files: Readonly<Record<string, string>>): string {
  const folder = join(scratch(), 'package');
  mkdirSync(folder);
  symlinkSync(`${ROOT}node_modules`, join(folder, 'node_modules'));
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
  return folder;
}

/** A server that listens. */
async function serving(module: string, ...args: string[]) {
  const child = spawn(process.execPath, [CLI, 'serve', module, '--port', '0', ...args], { env });
  children.push(child);
  let stderr = '';
  child.stderr.on('data', (chunk: Buffer) => {
    stderr += chunk.toString();
  });
  const [line] = (await once(createInterface({ input: child.stdout }), 'line')) as [string];
  return { child, url: line.replace('listening on ', ''), stderr: () => stderr };
}

const BROKEN = 'const one = 1;\nexport default function () {\n  const x = ;\n}\n';

describe('the version', () => {
  const { version } = JSON.parse(readFileSync(`${ROOT}package.json`, 'utf8')) as { version: string };

  it.each(['--version', '-v'])('is printed by %s', (flag) => {
    expect(run(flag)).toEqual({ stdout: `${version}\n`, stderr: '', status: 0 });
  });
});

describe('help', () => {
  it.each(['serve', 'proxy', 'compare', 'calls'])('of %s is that of its --help', (command) => {
    expect(run('help', command)).toEqual(run(command, '--help'));
  });

  it('of an unknown command says which one was meant', () => {
    const { stderr, status } = run('help', 'srve');
    expect([stderr, status]).toEqual(["mcp-await: there is no command 'srve'; did you mean serve?\n", 2]);
  });
});

describe('what was meant', () => {
  it.each([
    ['prot', 'port'],
    ['srve', 'serve'],
    ['alow-origin', 'allow-origin'],
    ['xyzzy', undefined],
    ['p', undefined],
  ])('by %s is %s', (word, meant) => {
    expect(nearest(word, ['port', 'serve', 'allow-origin', 'path', 'stdio'])).toBe(meant);
  });
});

describe('a wrong argument', () => {
  it.each([
    [['srve'], "there is no command 'srve'; did you mean serve?"],
    [['serve'], 'serve takes one module, such as: mcp-await serve ./server.ts'],
    [['serve', '--prot', '3', 'x.js'], 'there is no option --prot; did you mean --port?'],
    [['serve', '--frobnicate', 'x.js'], 'there is no option --frobnicate; mcp-await help serve lists them'],
    [['calls', 'lst', '--store', 'memory:'], 'calls has no lst; did you mean list?'],
    [['calls', 'list'], 'calls needs --store URL'],
    [['compare', '--htm', 'x', 'x.js'], 'there is no option --htm; did you mean --html?'],
    [['proxy'], 'proxy takes a command after --, or --url'],
    [['serve', 'nowhere.js'], 'there is no file nowhere.js'],
  ])('%j is one line, and exit code 2', (args, told) => {
    const { stdout, stderr, status } = run(...args);
    expect(stderr).toContain(`mcp-await: ${told}`);
    expect(stderr.trim().split('\n')).toHaveLength(1);
    expect([stdout, status]).toEqual(['', 2]);
  });
});

describe('a module that cannot be loaded', () => {
  const folder = packageOf({
    'broken.js': BROKEN,
    'broken.ts': BROKEN,
    'broken.cjs': BROKEN.replace('export default', 'module.exports ='),
    'imports.js': "import './broken.js';\nexport default () => {};\n",
    'needs.js': "import 'a-package-that-is-not-there';\nexport default () => {};\n",
    'throws.js': "\nthrow new Error('no database');\n",
  });

  it.each([
    ['broken.js', 'broken.js:3'],
    ['broken.ts', 'broken.ts:3'],
    ['broken.cjs', 'broken.cjs:3'],
    ['imports.js', 'broken.js:3'],
    ['needs.js', "'a-package-that-is-not-there' imported from"],
    ['throws.js', 'throws.js:2'],
  ])('%s is reported with %s, and without the inside of Node', (name, told) => {
    const { stderr, status } = run('serve', join(folder, name), '--port', '0');
    expect(stderr).toContain(`${name} cannot be loaded: `);
    expect(stderr).toContain(told);
    expect(stderr).not.toMatch(/node:|mcp-await\/dist|node_modules|AwaitError/);
    expect(status).toBe(2);
  });
});

it('a factory that throws is reported at start, and served: it may need a client', async () => {
  const folder = packageOf({
    'server.js': "export default () => {\n  throw new Error('no database');\n};\n",
  });
  const { stderr } = await serving(join(folder, 'server.js'));
  expect(JSON.parse(stderr().trim())).toMatchObject({
    level: 'error',
    message: expect.stringContaining('the factory threw at start'),
    error: 'Error: no database',
  });
});

describe('an address that cannot be listened on', () => {
  it.each([
    [['--host', '203.0.113.7'], 'cannot listen on 203.0.113.7:0: EADDRNOTAVAIL'],
    [['--host', 'a-host.invalid'], 'cannot listen on a-host.invalid:0: '],
  ])('%j is one line', async (args, told) => {
    const { stdout, stderr, status } = run('serve', await compiled(FIXTURE), '--port', '0', ...args);
    const lines = stderr.trim().split('\n');
    expect(lines.at(-1)).toContain(`mcp-await: ${told}`);
    expect(stderr).not.toContain('    at ');
    expect([stdout, status]).toEqual(['', 2]);
  });

  it('is named where another process listens on it', async () => {
    const first = await serving(await compiled(FIXTURE));
    const { port } = new URL(first.url);
    const { stderr, status } = run('serve', await compiled(FIXTURE), '--port', port);
    expect(stderr).toContain(`--port ${port} is taken on 127.0.0.1`);
    expect(status).toBe(2);
  });
});

it.each(['--html', '--record', '--write'])(
  'a file for %s that cannot be written is one line, before anything is played',
  (flag) => {
    const { stdout, stderr, status } = run('compare', FIXTURE, flag, '/no/such/folder/file');
    expect(stderr).toContain(`mcp-await: ${flag} /no/such/folder/file cannot be written: `);
    expect(stderr.trim().split('\n')).toHaveLength(1);
    expect([stdout, status]).toEqual(['', 2]);
  },
);

describe('Ctrl-C', () => {
  it('says what is waited for, and ends with 0', async () => {
    const { child, url, stderr } = await serving(await compiled(FIXTURE), '--idle-time', '1s');
    expect((await post(url, { tool: 'one' })).keys).toHaveLength(1);
    const exit = once(child, 'exit');
    child.kill('SIGINT');
    await expect
      .poll(stderr)
      .toMatch(
        /^mcp-await: closing: 0 open requests \(10 s\), \d idle connections? \(2 s\); a third Ctrl-C ends it at once$/m,
      );
    expect(await exit).toEqual([0, null]);
  });
});

describe('--watch', () => {
  it('starts the server again when a file that it has loaded changes', async () => {
    const name = (version: number): string => `export const version = '${version}';\n`;
    const folder = packageOf({
      'server.ts': `import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { version } from './version.ts';
export default () => {
  const server = new McpServer({ name: 'watched', version: '1' });
  server.registerTool('version', {}, () => ({ content: [{ type: 'text' as const, text: version }] }));
  return server;
};
`,
      'version.ts': name(1),
    });
    const { child, url } = await serving(join(folder, 'server.ts'), '--watch', '--idle-time', '1s');
    expect(textOf(await post(url, { tool: 'version' }))).toBe('1');
    const lines = createInterface({ input: child.stdout });
    const again = new Promise<string>((resolve) => {
      lines.on('line', (line) => line.startsWith('listening on ') && resolve(line));
    });
    writeFileSync(join(folder, 'version.ts'), name(2));
    const at = (await again).replace('listening on ', '');
    expect(textOf(await post(at, { tool: 'version' }))).toBe('2');
    const exit = once(child, 'exit');
    child.kill('SIGTERM');
    await exit;
    await expect.poll(() => post(at, { tool: 'version' }).then(String, () => 'gone')).toBe('gone');
  });

  it.each([
    ['proxy', '--', 'cat'],
    ['serve', FIXTURE, '--stdio'],
  ])('is refused with %s %s %s', (command, ...rest) => {
    const { stderr, status } = run(command, '--watch', ...rest);
    expect([stderr, status]).toEqual(['mcp-await: --watch goes with serve, over HTTP\n', 2]);
  });
});

it('a pipe that is broken ends a listing without a word', async () => {
  const child = spawn('bash', [
    '-c',
    'set -o pipefail; "$0" "$1" --help | true; echo $?',
    process.execPath,
    CLI,
  ]);
  const [chunk] = (await once(child.stdout, 'data')) as [Buffer];
  expect(chunk.toString()).toBe('0\n');
  expect(child.stderr.read()).toBeNull();
});

describe('a line of the log', () => {
  const at = new Date(2026, 7, 1, 9, 5, 7);

  it('is for people on a terminal', () => {
    const line = lineOf(at, 'warn', 'the store fails', { code: 'store', tries: 3, error: 'no route' }, true);
    expect(line).toBe('09:05:07 warn  the store fails  code=store tries=3 error="no route"');
  });

  it('is JSON elsewhere', () => {
    const line = lineOf(at, 'warn', 'the store fails', { code: 'store' }, false);
    expect(JSON.parse(line)).toEqual({
      time: at.toISOString(),
      level: 'warn',
      message: 'the store fails',
      code: 'store',
    });
  });

  it('is left out below its level', () => {
    const written: string[] = [];
    const logger = levelLogger('warn', { isTTY: true, write: (line: string) => written.push(line) });
    logger.info('no');
    logger.error('yes');
    expect(written).toHaveLength(1);
    expect(written[0]).toMatch(/^\d\d:\d\d:\d\d error yes\n$/);
  });

  it('is dropped and counted while the log is not read', () => {
    const written: string[] = [];
    const output = { writableLength: 0, write: (line: string) => written.push(line) };
    const logger = levelLogger('info', output);
    output.writableLength = 10_000_000;
    for (let nth = 0; nth < 1_000; nth += 1) logger.info(`line ${nth}`);
    expect(written).toEqual([]);
    output.writableLength = 0;
    logger.info('back');
    expect(written.map((line) => JSON.parse(line))).toMatchObject([{ dropped: 1_000 }, { message: 'back' }]);
  });
});
