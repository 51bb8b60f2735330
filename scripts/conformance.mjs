// Runs the official MCP conformance suite, once per revision, against examples/conformance-server.ts as served by the
// built command line, and against SDK v1's client on our transport (test/conformance/client.ts). A scenario, scored by
// the suite or not, passes only if the suite ran it and none of its checks is a FAILURE or a WARNING. Scenarios that the
// suite itself skips are listed. A server has no expected failures; those of the client are in NOT_OURS, with reasons,
// and one that passes all the same is a failure.
//
// node scripts/conformance.mjs [--revision 2026-07-28] [--only <scenario>]
//
// Afterwards the server scenarios of 2025-11-25 run again through a balancer that sends each request to one of three
// processes, at random; they share a SQLite file.
//
// MCP_CONFORMANCE_URL=http://127.0.0.1:3000/mcp tests a server that is already running instead.
import { spawn } from 'node:child_process';
import { randomBytes, randomInt } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { createServer as createHttpServer, request } from 'node:http';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const REVISIONS = ['2026-07-28', '2025-11-25', '2025-06-18', '2025-03-26'];
/** Those whose scenarios the suite has frozen; of the others it runs what is tagged with them. */
const FROZEN = ['2026-07-28', '2025-11-25'];
const OAUTH = 'of the SDK, whose OAuth does not know it';
/** Client scenarios of which a part is not this package's, and why. */
const NOT_OURS = {
  '2025-11-25': { initialize: 'the transport asks for a draft, which is why one takes it' },
  '2026-07-28': {
    'auth/iss-supported-missing': OAUTH,
    'auth/iss-wrong-issuer': OAUTH,
    'auth/iss-unexpected': OAUTH,
    'auth/iss-normalized': OAUTH,
    'auth/metadata-issuer-mismatch': OAUTH,
  },
};
/** The revision that runs through several processes, and its name in the report. */
const SESSIONS = '2025-11-25';
const PROCESSES = 3;
const SUITE = '@modelcontextprotocol/conformance';
const SUITE_VERSION = '0.2.0-alpha.12';
const ROOT = fileURLToPath(new URL('..', import.meta.url));
/** By its path: the suite runs elsewhere. */
const TSX = import.meta.resolve('tsx');
const CACHE = join(ROOT, '.cache', 'conformance');

/** Runs a command to its end and resolves to its exit code and everything it printed. */
function run(command, args, options = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], ...options });
    let output = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (chunk) => {
        output += chunk;
      });
    }
    child.on('error', reject);
    child.on('close', (code) => resolve({ code, output }));
  });
}

/** Installs the suite, and a Node that can run it if this one cannot; returns a function that calls the suite. */
async function installSuite() {
  const modules = join(CACHE, 'node_modules');
  const manifest = join(modules, SUITE, 'package.json');
  const tooOld = Number(process.versions.node.split('.')[0]) < 22;
  const node = tooOld
    ? join(modules, 'node', 'bin', process.platform === 'win32' ? 'node.exe' : 'node')
    : process.execPath;
  const ready = () =>
    existsSync(node) && existsSync(manifest) && JSON.parse(readFileSync(manifest)).version === SUITE_VERSION;

  if (!ready()) {
    console.log(`Installing ${SUITE}@${SUITE_VERSION} into .cache/conformance ...`);
    mkdirSync(CACHE, { recursive: true });
    writeFileSync(join(CACHE, 'package.json'), '{ "private": true }\n');
    const packages = [`${SUITE}@${SUITE_VERSION}`, ...(tooOld ? ['node@24'] : [])];
    const { code, output } = await run('npm', ['install', '--no-save', '--prefix', CACHE, ...packages], {
      cwd: CACHE,
      shell: process.platform === 'win32',
    });
    if (code !== 0 || !ready()) throw new Error(`npm install of the conformance suite failed\n${output}`);
  }
  return (...args) => run(node, [join(modules, SUITE, 'dist', 'index.js'), ...args], { cwd: CACHE });
}

function freePort() {
  return new Promise((resolve, reject) => {
    const probe = createServer().on('error', reject);
    probe.listen(0, '127.0.0.1', () => {
      const { port } = probe.address();
      probe.close(() => resolve(port));
    });
  });
}

/** Starts the server under test. `log()` returns the end of its output. */
async function startServer(options = [], env = {}) {
  const port = await freePort();
  const args = [
    'dist/src/cli/main.js',
    'serve',
    'examples/conformance-server.ts',
    '--port',
    String(port),
    // Its scenarios of tasks need them.
    '--tasks',
    'optional',
    ...options,
  ];
  // In a process group of its own, so that whatever it starts ends with it.
  const detached = process.platform !== 'win32';
  const child = spawn(process.execPath, args, {
    cwd: ROOT,
    detached,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, ...env },
  });
  const kill = () => {
    try {
      process.kill(detached ? -child.pid : child.pid, 'SIGKILL');
    } catch {} // It has ended already.
  };
  process.once('exit', kill);
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.once(signal, () => process.exit(1));

  let output = '';
  const log = () => output.slice(-4000);
  const url = await new Promise((resolve, reject) => {
    const timer = setTimeout(() => fail('did not say where it listens within 30 s'), 30_000);
    const fail = (why) => {
      clearTimeout(timer);
      kill();
      reject(new Error(`the server under test ${why}\n${log()}`));
    };
    child.on('error', (error) => fail(`did not start: ${error.message}`));
    child.on('exit', (code, signal) => fail(`ended (${signal ?? code})`));
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (chunk) => {
        output += chunk;
        const listening = /listening on (http:\/\/\S+)/.exec(output);
        if (!listening) return;
        clearTimeout(timer);
        resolve(listening[1]);
      });
    }
  });
  return { url, log, stop: kill };
}

/** Several processes on one store, and a balancer in front of them. */
async function startCluster() {
  const folder = mkdtempSync(join(tmpdir(), 'mcp-await-conformance-'));
  const options = ['--store', `sqlite://${join(folder, 'calls.sqlite')}`];
  const env = { MCP_AWAIT_SECRET: randomBytes(32).toString('base64url') };
  const servers = await Promise.all(Array.from({ length: PROCESSES }, () => startServer(options, env)));
  const balancer = createHttpServer((req, res) => {
    const target = new URL(servers[randomInt(PROCESSES)].url);
    const headers = { ...req.headers, host: target.host };
    const onward = request(target, { method: req.method, headers }, (reply) => {
      res.writeHead(reply.statusCode, reply.headers);
      res.flushHeaders();
      reply.pipe(res);
    });
    onward.on('error', () => (res.headersSent ? res.destroy() : res.writeHead(502).end()));
    res.once('close', () => onward.destroy());
    req.pipe(onward);
  });
  await new Promise((resolve) => balancer.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${balancer.address().port}/mcp`,
    log: () => servers.map(({ log }) => log()).join('\n'),
    stop: () => {
      for (const server of servers) server.stop();
      balancer.close();
      balancer.closeAllConnections();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/**
 * The scenarios of a revision for a `role` (server or client): a map from name to `scored`, or to the reason why it is
 * not scored. Those of extensions for clients are about other OAuth flows than a user's, and are left out.
 */
async function listScenarios(suite, revision, role) {
  const isFrozen = FROZEN.includes(revision);
  const which = isFrozen ? ['--requirements', revision] : [`--${role}`, '--spec-version', revision];
  const { code, output } = await suite('list', ...which);
  const scenarios = new Map();
  let section = '';
  for (const line of output.split('\n')) {
    const [, indent, name, tag] = /^( +)- (\S+)(?: \[([^\]]+)\])?$/.exec(line) ?? [];
    if (!name) section = line.trim();
    else if (indent.length === 2 && section.toLowerCase().startsWith(role)) scenarios.set(name, 'scored');
    else if (tag === role && (role === 'server' || !section.startsWith('extension')))
      scenarios.set(name, section.replace(/ \(\d+\):$/, ''));
  }
  if (code !== 0 || scenarios.size === 0) throw new Error(`the suite does not list ${revision}\n${output}`);
  return scenarios;
}

/** Reads a run's results: `<path>-<time>/checks.json`, for each scenario that ended. */
function readChecks(path) {
  const parent = dirname(path);
  const folder = existsSync(parent)
    ? readdirSync(parent).find((name) => name.replace(/-\d{4}-\d\d-\d\dT.*$/, '') === basename(path))
    : undefined;
  const file = folder && join(parent, folder, 'checks.json');
  return file && existsSync(file) ? JSON.parse(readFileSync(file)) : undefined;
}

/** The failed checks of a scenario, a line each; empty if it passed. */
function problems(checks) {
  if (!checks) return ['the suite reported no result'];
  const bad = checks.filter(({ status }) => status === 'FAILURE' || status === 'WARNING');
  if (bad.length > 0)
    return bad.map(({ status, id, errorMessage }) => `${status} ${id}: ${errorMessage ?? ''}`);
  return checks.some(({ status }) => status === 'SUCCESS') ? [] : ['nothing was checked'];
}

/** Runs the server scenarios of a revision against `url`. */
async function runServer(suite, url, revision, only, title = revision) {
  const scenarios = await listScenarios(suite, revision, 'server');
  const chosen = only ? [...scenarios].filter(([name]) => name === only) : [...scenarios];
  const totals = { chosen: chosen.length, passed: 0, failed: 0, skipped: 0 };
  if (chosen.length === 0) return totals;

  const results = emptied('server', revision);
  const what = only
    ? ['--scenario', only, '--spec-version', revision, '--force']
    : FROZEN.includes(revision)
      ? ['--requirements', revision]
      : ['--suite', 'all', '--spec-version', revision];
  const { code, output } = await suite('server', '--url', url, ...what, '--output-dir', results);

  console.log(`\n${title}`);
  for (const [name, scoring] of chosen) {
    judge(totals, name, scoring, readChecks(join(results, `server-${name}`)));
  }
  // The suite knows of a failure that its files do not show: believe it.
  if (!only && code !== 0 && totals.failed === 0) {
    totals.failed++;
    console.log(`  ✗ the suite itself ended with exit code ${code}\n${output.slice(-2000)}`);
  }
  return totals;
}

/** Runs the client scenarios of a revision, one after the other: the suite would start all of them at once. */
async function runClient(suite, revision, only) {
  const scenarios = await listScenarios(suite, revision, 'client');
  const chosen = only ? [...scenarios].filter(([name]) => name === only) : [...scenarios];
  const totals = { chosen: chosen.length, passed: 0, failed: 0, skipped: 0 };
  if (chosen.length === 0) return totals;
  const results = emptied('client', revision);
  const command = `${process.execPath} --import ${TSX} ${join(ROOT, 'test', 'conformance', 'client.ts')}`;
  console.log(`\n${revision}, SDK v1's client on our transport`);
  for (const [name, scoring] of chosen) {
    const what = ['--scenario', name, '--spec-version', revision];
    await suite('client', '--command', command, ...what, '--output-dir', results);
    judge(totals, name, scoring, readChecks(join(results, name)), NOT_OURS[revision]?.[name]);
  }
  return totals;
}

function emptied(role, revision) {
  const results = join(CACHE, 'results', role, revision);
  rmSync(results, { recursive: true, force: true });
  mkdirSync(results, { recursive: true });
  return results;
}

/** Prints what became of a scenario, and counts it. `notOurs` says why it must fail. */
function judge(totals, name, scoring, checks, notOurs) {
  if (checks?.length > 0 && checks.every(({ status }) => status === 'SKIPPED')) {
    totals.skipped++;
    console.log(`  - ${name}: the suite skips it: ${checks[0].errorMessage ?? checks[0].name}`);
    return;
  }
  const wrong = problems(checks);
  if (notOurs !== undefined && checks !== undefined) {
    totals[wrong.length === 0 ? 'failed' : 'skipped']++;
    console.log(
      wrong.length === 0 ? `  ✗ ${name}: passes, and is in NOT_OURS` : `  - ${name}: not ours: ${notOurs}`,
    );
  } else if (wrong.length === 0) {
    totals.passed++;
    const count = checks.filter(({ status }) => status === 'SUCCESS').length;
    const how = scoring === 'scored' ? '' : `; not scored by the suite: ${scoring}`;
    console.log(`  ✓ ${name} (${count} checks${how})`);
  } else {
    totals.failed++;
    console.log(`  ✗ ${name}`);
  }
  for (const line of wrong) console.log(`      ${line.replaceAll('\n', '\n      ')}`);
}

function add(totals, counts) {
  for (const key of Object.keys(totals)) totals[key] += counts[key];
}

async function main() {
  const { values } = parseArgs({ options: { revision: { type: 'string' }, only: { type: 'string' } } });
  const revisions = values.revision ? [values.revision] : REVISIONS;
  const totals = { chosen: 0, passed: 0, failed: 0, skipped: 0 };
  let server;
  try {
    const suite = await installSuite();
    const running = process.env.MCP_CONFORMANCE_URL;
    server = running ? undefined : await startServer();
    for (const revision of revisions) {
      add(totals, await runServer(suite, running ?? server.url, revision, values.only));
      if (!running && FROZEN.includes(revision)) add(totals, await runClient(suite, revision, values.only));
    }
    if (!running && revisions.includes(SESSIONS)) {
      server?.stop();
      server = await startCluster();
      const title = `${SESSIONS}, each request to one of ${PROCESSES} processes`;
      add(totals, await runServer(suite, server.url, SESSIONS, values.only, title));
    }
    if (totals.chosen === 0) throw new Error(`no revision has a scenario named ${values.only}`);
    if (totals.failed > 0 && server) console.log(`\nThe server under test printed last:\n${server.log()}`);
  } catch (error) {
    totals.failed++;
    console.error(`\n${error instanceof Error ? error.message : error}`);
  } finally {
    server?.stop();
  }
  console.log(
    `\n${totals.passed} passed, ${totals.failed} failed, ${totals.skipped} left out, for the reasons above`,
  );
  process.exitCode = totals.failed === 0 && totals.passed > 0 ? 0 : 1;
}

await main();
