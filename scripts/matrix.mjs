/**
 * Installs the packed package as users do, each time into an empty folder, from the registry: with both SDKs and both
 * versions of zod, on each release of Node, with npm and pnpm, with and without the optional peers. In each folder a
 * tool asks and is answered on 2026-07-28, and a module compiles. `npm run test:matrix`, or `-- WORD` for the rows whose
 * name has it. Prints a line for each row; exits with 1 if one fails.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';

const V1 = ['@modelcontextprotocol/sdk@1', 'zod@4'];
const PEERS = ['@keyv/redis', '@keyv/postgres', '@nats-io/transport-node', '@redis/client', 'vitest', 'yaml'];

const ROWS = [
  { name: 'SDK v1 1.25, zod 3.25', packages: ['@modelcontextprotocol/sdk@1.25', 'zod@3.25'] },
  { name: 'SDK v1 1.25, zod 4', packages: ['@modelcontextprotocol/sdk@1.25', 'zod@4'] },
  { name: 'SDK v1 newest, zod 3.25', packages: ['@modelcontextprotocol/sdk@1', 'zod@3.25'] },
  { name: 'SDK v1 newest, zod 4', packages: V1 },
  { name: 'SDK v2, no optional peer', packages: [] },
  { name: 'SDK v2, zod 3.25 beside it', packages: ['zod@3.25'] },
  { name: 'all optional peers', packages: [...V1, ...PEERS, '@modelcontextprotocol/client@2', 'tsx'] },
  { name: 'pnpm, SDK v1', packages: V1, manager: 'pnpm' },
  { name: 'pnpm, SDK v2', packages: ['@modelcontextprotocol/server@2'], manager: 'pnpm' },
  {
    name: 'pnpm, SDK v1 1.25, zod 3.25',
    packages: ['@modelcontextprotocol/sdk@1.25', 'zod@3.25'],
    manager: 'pnpm',
  },
  ...['20', '22', '24'].map((node) => ({ name: `Node ${node}`, packages: V1, node })),
  { name: 'Keyv 6', packages: V1, node: '22', keyv: '6' },
  {
    name: 'Keyv 6, Redis client 6, vitest 5',
    packages: [...V1, '@redis/client@6', 'vitest@5'],
    node: '24',
    keyv: '6',
    types: '24',
  },
  ...['5.4', '5.5', '5.6', '5.7', '5.8', '5.9', '6', '7'].map((typescript) => ({
    name: `TypeScript ${typescript}`,
    packages: V1,
    typescript,
  })),
];

/** @param isV1 whether the server is on SDK v1 */
function moduleOf(isV1) {
  const head = isV1
    ? "import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';"
    : "import { McpServer } from '@modelcontextprotocol/server';";
  const ask = isV1 ? 'server.server.elicitInput' : 'ctx.mcpReq.elicitInput';
  const ctx = isV1 ? '' : 'ctx';
  return `${head}
import { createAwaitHandler, step } from 'mcp-await';
import { toNodeHandler } from 'mcp-await/node';

export const handler = createAwaitHandler(() => {
  const server = new McpServer({ name: 'matrix', version: '1.0.0' });
  server.registerTool('greet', { description: 'asks' }, async (${ctx}) => {
    const made = await step('make', () => 'Hello');
    const answer = await ${ask}({
      message: 'name?',
      requestedSchema: { type: 'object', properties: { name: { type: 'string' } } },
    });
    return { content: [{ type: 'text' as const, text: made + ' ' + String(answer.content?.name) }] };
  });
  return server;
});
export const listener = toNodeHandler(handler);
`;
}

/** Asks, answers, and requires the package from CommonJS, as Node 20.19 and later can. */
const CHECK = `import { createRequire } from 'node:module';
import { handler } from './server.js';
const post = async (more) => {
  const response = await handler.fetch(new Request('http://localhost/mcp', {
    method: 'POST',
    headers: {
      'content-type': 'application/json', accept: 'application/json, text/event-stream',
      'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/call', 'mcp-name': 'greet',
    },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: {
      name: 'greet', arguments: {}, ...more,
      _meta: {
        'io.modelcontextprotocol/protocolVersion': '2026-07-28',
        'io.modelcontextprotocol/clientInfo': { name: 'matrix', version: '1' },
        'io.modelcontextprotocol/clientCapabilities': { elicitation: { form: {} } },
      },
    } }),
  }));
  const text = await response.text();
  return JSON.parse(text.startsWith('{') ? text : text.split('data: ').at(-1)).result;
};
const asked = await post({});
const [key] = Object.keys(asked.inputRequests);
const answer = { action: 'accept', content: { name: 'Ann' } };
const done = await post({ requestState: asked.requestState, inputResponses: { [key]: answer } });
if (done.content?.[0]?.text !== 'Hello Ann') throw new Error(JSON.stringify(done));
if (typeof createRequire(import.meta.url)('mcp-await').step !== 'function') throw new Error('require');
await handler.close();
console.log('answered on Node ' + process.versions.node);
process.exit(0);
`;

function run(command, args, cwd) {
  const { status, stdout, stderr } = spawnSync(command, args, { cwd, encoding: 'utf8', timeout: 300_000 });
  if (status === 0) return stdout.trim();
  const lines = `${stdout}\n${stderr}`
    .split('\n')
    .filter((line) => line.trim() !== '' && !/ warn /i.test(line));
  throw new Error(`${command} ${args.join(' ')}: ${lines.slice(0, 8).join(' | ')}`);
}

function check(row, tarball) {
  const { packages, manager = 'npm', node, typescript = '5.9', keyv = '5', types = '20' } = row;
  const folder = mkdtempSync(join(tmpdir(), 'mcp-await-matrix-'));
  try {
    writeFileSync(join(folder, 'package.json'), '{"name":"matrix","private":true,"type":"module"}');
    // A program of its own: a compiler's peers are no part of what is tried.
    const all = [tarball, `keyv@${keyv}`, ...packages, ...(node === undefined ? [] : [`node@${node}`])];
    if (manager === 'npm') run('npm', ['install', '--no-audit', '--no-fund', ...all], folder);
    else run('npx', ['-y', 'pnpm@10', 'add', ...all], folder);
    const tools = join(folder, 'tools');
    mkdirSync(tools);
    writeFileSync(join(tools, 'package.json'), '{"name":"tools","private":true}');
    run('npm', ['install', '--no-audit', '--no-fund', `typescript@${typescript}`], tools);
    run(
      manager === 'npm' ? 'npm' : 'npx',
      manager === 'npm'
        ? ['install', '--no-audit', '--no-fund', `@types/node@${types}`]
        : ['-y', 'pnpm@10', 'add', `@types/node@${types}`],
      folder,
    );
    writeFileSync(
      join(folder, 'server.ts'),
      moduleOf(packages.some((name) => name.startsWith('@modelcontextprotocol/sdk'))),
    );
    const options = {
      target: 'es2022',
      module: 'nodenext',
      strict: true,
      skipLibCheck: true,
      types: ['node'],
    };
    writeFileSync(
      join(folder, 'tsconfig.json'),
      JSON.stringify({ compilerOptions: options, files: ['server.ts'] }),
    );
    run(join(tools, 'node_modules', '.bin', 'tsc'), ['-p', '.'], folder);
    writeFileSync(join(folder, 'check.mjs'), CHECK);
    return run(
      node === undefined ? process.execPath : join(folder, 'node_modules', '.bin', 'node'),
      ['check.mjs'],
      folder,
    );
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const [word = ''] = process.argv.slice(2);
const packed = mkdtempSync(join(tmpdir(), 'mcp-await-packed-'));
const args = ['pack', '--json', '--ignore-scripts', '--pack-destination', packed];
const [{ filename }] = JSON.parse(
  execFileSync('npm', args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }),
);
for (const row of ROWS.filter(({ name }) => name.includes(word))) {
  try {
    const said = check(row, join(packed, filename));
    process.stdout.write(`ok    ${row.name}: ${said}\n`);
  } catch (error) {
    process.exitCode = 1;
    process.stdout.write(`FAILS ${row.name}: ${error.message}\n`);
  }
}
rmSync(packed, { recursive: true, force: true });
