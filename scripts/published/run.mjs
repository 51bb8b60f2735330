// `npm run published`: published servers, unmodified, behind two processes of `mcp-await proxy`, used by the official
// clients of both eras. The servers and their versions are in servers.json, chosen by the rule in docs/published.md
// before any was tried. Each is installed into a folder of its own without install scripts. Results are kept after
// each server, so a run that was cut off goes on; `--again NAME…` tries servers anew, `--most N` stops after N.
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
import {
  Client as ModernClient,
  StreamableHTTPClientTransport as ModernTransport,
} from '@modelcontextprotocol/client';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { writeTable } from './table.mjs';

const CLI = new URL('../../dist/src/cli/main.js', import.meta.url).pathname;
const RESULTS = new URL('./results.json', import.meta.url).pathname;
const CACHE = process.env.PUBLISHED_CACHE ?? join(tmpdir(), 'mcp-await-published');
/** A server that drives a browser uses the one that the tests use. */
const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
/** Milliseconds. */
const INSTALL = 240_000;
const START = 45_000;
const CALL = 30_000;
const INFO = { name: 'published', version: '1.0.0' };
const CAPABILITIES = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} };
/** Tools that are there to show asking. */
const ASKING = /elicit|sampling|roots/i;

/** No package may fetch a browser or another binary, neither as it is installed nor as it starts. */
const NO_DOWNLOADS = {
  PUPPETEER_SKIP_DOWNLOAD: '1',
  PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD: '1',
  npm_config_ignore_scripts: 'true',
};

const { values } = parseArgs({
  options: { again: { type: 'string', multiple: true }, most: { type: 'string' } },
});
const servers = JSON.parse(readFileSync(new URL('./servers.json', import.meta.url), 'utf8'));
const results = existsSync(RESULTS) ? JSON.parse(readFileSync(RESULTS, 'utf8')) : {};
for (const name of values.again ?? []) delete results[name];

let tried = 0;
for (const [at, server] of servers.entries()) {
  if (results[server.name]?.version === server.version) continue;
  if (tried === Number(values.most ?? Infinity)) break;
  tried += 1;
  process.stdout.write(`[${at + 1}/${servers.length}] ${server.name}@${server.version} `);
  const began = Date.now();
  const result = await tryServer(server).catch((error) => ({ ok: false, reason: firstLine(error) }));
  results[server.name] = { version: server.version, ...result };
  const took = `${Math.round((Date.now() - began) / 1_000)} s`;
  process.stdout.write(`${result.ok ? `ok, ${result.tools} tools` : `failed: ${result.reason}`} (${took})\n`);
  writeFileSync(RESULTS, `${JSON.stringify(results, null, 2)}\n`);
  writeTable(servers, results);
}
writeTable(servers, results);
process.exit(0);

async function tryServer({ name, version, args = [], env = {}, standIn, asks = [] }) {
  const folder = join(CACHE, name.replaceAll('/', '+'));
  const bin = install(folder, name, version);
  // Replaces a network that the server would need; the server itself is as published.
  const before =
    standIn === undefined ? [] : ['--import', new URL(`./stand-ins/${standIn}`, import.meta.url).href];
  const own = args.map((arg) => (arg === '{chromium}' ? CHROMIUM : arg));
  const command = [process.execPath, ...before, bin, ...own];
  const proxies = [];
  try {
    for (let n = 0; n < 2; n += 1) proxies.push(await startProxy(folder, command, env));
    const seen = [];
    for (const { url } of proxies) {
      seen.push(await withModern(url, (client) => listed(client)));
      seen.push(await withLegacy(url, (client) => listed(client)));
    }
    const [first] = seen;
    if (
      first === undefined ||
      seen.some((one) => JSON.stringify(one.names) !== JSON.stringify(first.names))
    ) {
      return { ok: false, reason: 'the clients of both eras, or the two processes, see different lists' };
    }
    const asked = await askAll(proxies, [...first.asking.map(withArguments), ...asks]);
    return {
      ok: asked.failed.length === 0,
      ...first.counts,
      ...asked,
      ...(asked.failed.length > 0 && { reason: asked.failed[0] }),
    };
  } finally {
    for (const { child } of proxies) child.kill('SIGTERM');
    await Promise.all(proxies.map(({ ended }) => ended));
  }
}

function install(folder, name, version) {
  const own = join(folder, 'node_modules', name, 'package.json');
  if (!existsSync(own) || JSON.parse(readFileSync(own, 'utf8')).version !== version) {
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, 'package.json'), '{"private":true}');
    const npm = [
      'install',
      '--ignore-scripts',
      '--no-audit',
      '--no-fund',
      '--loglevel=error',
      `${name}@${version}`,
    ];
    const env = { ...process.env, ...NO_DOWNLOADS };
    const { status, stderr } = spawnSync('npm', npm, {
      cwd: folder,
      env,
      timeout: INSTALL,
      encoding: 'utf8',
    });
    if (status !== 0) throw new Error(`npm install failed: ${firstLine(stderr)}`);
  }
  const { bin } = JSON.parse(readFileSync(own, 'utf8'));
  const paths = typeof bin === 'string' ? { [name]: bin } : (bin ?? {});
  const short = name.split('/').at(-1);
  const path = paths[short] ?? paths[name] ?? Object.values(paths)[0];
  if (path === undefined) throw new Error('the package has no command (no bin): it is a library');
  return join(folder, 'node_modules', name, path);
}

async function startProxy(folder, command, env) {
  const args = [
    CLI,
    'proxy',
    '--port',
    '0',
    '--log',
    'error',
    '--start-timeout',
    `${START}ms`,
    '--',
    ...command,
  ];
  const child = spawn(process.execPath, args, {
    cwd: folder,
    env: { ...process.env, ...NO_DOWNLOADS, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let stderr = '';
  child.stderr.on('data', (chunk) => {
    stderr += chunk;
  });
  const ended = new Promise((resolve) => child.once('exit', resolve));
  const lines = createInterface({ input: child.stdout });
  for await (const line of lines) {
    const url = /^listening on (\S+)$/.exec(line)?.[1];
    if (url !== undefined) return { child, ended, url };
  }
  throw new Error(firstLine(stderr).replace(/^mcp-await: /, ''));
}

async function withModern(url, use) {
  const client = new ModernClient(INFO, {
    capabilities: CAPABILITIES,
    versionNegotiation: { mode: { pin: '2026-07-28' } },
  });
  const asked = [];
  client.setRequestHandler('elicitation/create', ({ params }) => answer(asked, params));
  client.setRequestHandler('sampling/createMessage', () => sample(asked));
  client.setRequestHandler('roots/list', () => roots(asked));
  await client.connect(new ModernTransport(new URL(url)), { timeout: START });
  return use(client, asked).finally(() => client.close());
}

async function withLegacy(url, use) {
  const client = new Client(INFO, { capabilities: CAPABILITIES });
  const asked = [];
  client.setRequestHandler(ElicitRequestSchema, ({ params }) => answer(asked, params));
  client.setRequestHandler(CreateMessageRequestSchema, () => sample(asked));
  client.setRequestHandler(ListRootsRequestSchema, () => roots(asked));
  await client.connect(new StreamableHTTPClientTransport(new URL(url)), { timeout: START });
  return use(client, asked).finally(() => client.close());
}

function answer(asked, { message = '', mode, requestedSchema }) {
  asked.push(message);
  if (mode === 'url') return { action: 'accept' };
  const fields = Object.entries(requestedSchema?.properties ?? {});
  return {
    action: 'accept',
    content: Object.fromEntries(fields.map(([name, schema]) => [name, filled(schema)])),
  };
}

function filled({ type, enum: choices, oneOf, default: own, format, minimum, items, minLength }) {
  if (own !== undefined) return own;
  if (choices !== undefined) return choices[0];
  if (oneOf !== undefined) return oneOf[0].const;
  if (type === 'boolean') return true;
  if (type === 'number' || type === 'integer') return minimum ?? 1;
  if (type === 'array') return [items?.enum?.[0] ?? items?.anyOf?.[0]?.const ?? 'one'];
  if (type === 'object') return {};
  if (format === 'email') return 'ann@example.com';
  if (format === 'uri') return 'https://example.com';
  if (format === 'date') return '2026-01-01';
  if (format === 'date-time') return '2026-01-01T00:00:00Z';
  return 'text'.padEnd(minLength ?? 0, '.');
}

function sample(asked) {
  asked.push('sampling');
  return { role: 'assistant', model: 'none', content: { type: 'text', text: 'a sample' } };
}

function roots(asked) {
  asked.push('roots');
  return { roots: [{ uri: 'file:///tmp', name: 'tmp' }] };
}

async function listed(client) {
  const { tools = {}, prompts, resources } = client.getServerCapabilities() ?? {};
  const all = {
    tools:
      tools === undefined
        ? []
        : await pages((cursor) => client.listTools(cursor, { timeout: CALL }), 'tools'),
    prompts:
      prompts === undefined
        ? []
        : await pages((cursor) => client.listPrompts(cursor, { timeout: CALL }), 'prompts'),
    resources:
      resources === undefined
        ? []
        : await pages((cursor) => client.listResources(cursor, { timeout: CALL }), 'resources'),
  };
  const counts = Object.fromEntries(Object.entries(all).map(([kind, items]) => [kind, items.length]));
  const names = Object.values(all).map((items) => items.map(({ name, uri }) => uri ?? name).sort());
  return { names, counts, asking: all.tools.filter(({ name }) => ASKING.test(name)) };
}

async function pages(list, kind) {
  const items = [];
  let cursor;
  do {
    const page = await list(cursor === undefined ? undefined : { cursor }).catch((error) => {
      // Declared, and not there.
      if (error.code === -32601) return { [kind]: [] };
      throw error;
    });
    items.push(...page[kind]);
    cursor = page.nextCursor;
  } while (cursor !== undefined && items.length < 5_000);
  return items;
}

/** A call of a tool with each argument that it requires. */
function withArguments({ name, inputSchema = {} }) {
  const wanted = (inputSchema.required ?? []).map((field) => [
    field,
    filled(inputSchema.properties?.[field] ?? {}),
  ]);
  return { name, arguments: Object.fromEntries(wanted) };
}

/** Every tool that is there to ask, with clients of both eras. */
async function askAll([{ url }], calls) {
  const [completed, failed] = [[], []];
  for (const params of calls) {
    const { name } = params;
    for (const [era, run] of [
      ['2026-07-28', withModern],
      ['2025-11-25', withLegacy],
    ]) {
      const told = await run(url, async (client, asked) => {
        const call =
          era === '2026-07-28'
            ? client.callTool(params, { timeout: CALL })
            : client.callTool(params, undefined, { timeout: CALL });
        const { isError, content } = await call;
        return isError ? firstLine(content[0]?.text) : asked.length > 0 ? 'asked' : 'nothing was asked';
      }).catch(firstLine);
      if (told === 'asked') completed.push(`${name} (${era})`);
      else if (told !== 'nothing was asked') failed.push(`${name} on ${era}: ${told}`);
    }
  }
  return { completed, failed };
}

function firstLine(error) {
  const told = error instanceof Error ? error.message : String(error);
  // A list of mistakes begins on the first line, with the mistakes on the next ones.
  const text = /^.*[[{]\n/.test(told) ? told.replaceAll(/\s+/g, ' ') : told;
  return (text.split('\n').find((line) => line.trim() !== '') ?? 'unknown').trim().slice(0, 300);
}
