// `npm run inspector`: the Inspector's command line, at a pinned version, against serve, proxy and both on stdio, in
// both eras. It is installed without install scripts into a folder of its own. It answers no elicitation on the command
// line, so a tool that asks must return its SDK's own error for such a client.
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { createInterface } from 'node:readline';

const VERSION = '2.12.0';
const FOLDER = join(tmpdir(), `mcp-await-inspector-${VERSION}`);
const BIN = join(FOLDER, 'node_modules/.bin/mcp-inspector');
const CLI = new URL('../dist/src/cli/main.js', import.meta.url).pathname;
const fixture = (name) => new URL(`../test/fixtures/${name}`, import.meta.url).pathname;
const SERVE = ['serve', fixture('asking-server.ts')];
const PROXY = ['proxy'];
const PYTHON = ['--', 'python3', fixture('asking_server.py')];
/** The commands, and the texts that their output must contain. */
const RUNS = {
  serve: [
    [['--method', 'tools/list'], /"name": "one"/],
    [['--method', 'tools/call', '--tool-name', 'throws'], /out of paper/],
    [['--method', 'tools/call', '--tool-name', 'one'], /does not support|-32021|elicitation/],
    [['--method', 'prompts/list'], /"name": "greet"/],
    [['--method', 'resources/list'], /diary:\/\/today/],
  ],
  proxy: [
    [['--method', 'tools/list'], /"name": "slow"/],
    [['--method', 'tools/call', '--tool-name', 'count'], /"text": "\d+"/],
    [['--method', 'resources/read', '--uri', 'diary://today'], /Dear diary/],
    [['--method', 'prompts/list'], /"name": "greeting"/],
  ],
};

if (!existsSync(BIN)) {
  mkdirSync(FOLDER, { recursive: true });
  writeFileSync(join(FOLDER, 'package.json'), '{"private":true}');
  const npm = [
    'install',
    '--ignore-scripts',
    '--no-audit',
    '--no-fund',
    `@modelcontextprotocol/inspector@${VERSION}`,
  ];
  spawnSync('npm', npm, { cwd: FOLDER, stdio: 'inherit' });
}
let failed = 0;
for (const [command, args, last] of [
  ['serve', SERVE, []],
  ['proxy', PROXY, PYTHON],
]) {
  const { child, url } = await start([...args, '--port', '0', '--log', 'error', ...last]);
  for (const era of ['legacy', 'modern'])
    run(`${command} (${era})`, [url, '--protocol-era', era], RUNS[command]);
  if (command === 'serve') run('serve at /sse', [url.replace('/mcp', '/sse')], RUNS.serve.slice(0, 2));
  child.kill('SIGTERM');
  const stdio = [process.execPath, CLI, ...args, '--stdio', '--log', 'error', ...last];
  // Its own options end where a command with a -- of its own begins, so a shell takes its place.
  const target = last.length === 0 ? stdio : ['sh', '-c', `exec ${stdio.join(' ')}`];
  run(`${command} --stdio`, target, RUNS[command]);
}
process.stdout.write(failed === 0 ? 'all as expected\n' : `${failed} not as expected\n`);
process.exit(failed === 0 ? 0 : 1);

function run(name, target, runs) {
  for (const [args, expected] of runs) {
    const { stdout, stderr } = spawnSync(BIN, ['--cli', ...target, ...args], {
      encoding: 'utf8',
      timeout: 60_000,
    });
    const isWell = expected.test(stdout) || expected.test(stderr);
    if (!isWell) failed += 1;
    process.stdout.write(`${isWell ? 'ok    ' : 'FAILED'} ${name} ${args.slice(1).join(' ')}\n`);
    if (!isWell) process.stdout.write(`${stdout}${stderr}`.slice(0, 1_000));
  }
}

async function start(args) {
  const child = spawn(process.execPath, [CLI, ...args], { stdio: ['ignore', 'pipe', 'inherit'] });
  for await (const line of createInterface({ input: child.stdout })) {
    const url = /^listening on (\S+)$/.exec(line)?.[1];
    if (url !== undefined) return { child, url };
  }
  throw new Error(`mcp-await ${args.join(' ')} did not come up`);
}
