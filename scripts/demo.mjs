// The demo of the README: two processes on one SQLite file, a client of each revision calls the same
// await-style tool, and what went over the wire is printed. Exits 0 when every call came to its result.
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import {
  Client as ModernClient,
  StreamableHTTPClientTransport as ModernTransport,
} from '@modelcontextprotocol/client';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';

const folder = mkdtempSync(join(tmpdir(), 'mcp-await-demo-'));
const secret = randomBytes(32).toString('base64url');
const children = [];

async function startProcess(name) {
  const args = ['dist/src/cli/main.js', 'serve', 'examples/booking/with-steps.ts', '--port', '0'];
  args.push('--store', `sqlite://${join(folder, 'calls.sqlite')}`);
  const child = spawn(process.execPath, args, {
    env: { ...process.env, MCP_AWAIT_SECRET: secret },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  children.push(child);
  const line = await Promise.race([
    once(createInterface(child.stdout), 'line').then(([first]) => first),
    once(child, 'exit').then(() => Promise.reject(new Error(`process ${name} did not start`))),
  ]);
  return { name, url: new URL(line.replace('listening on ', '')) };
}

/** Sends each POST of a client to the next process, and notes what it was and what came back. */
async function startBalancer(processes, sticky) {
  const rows = [];
  let turn = 0;
  const server = createServer(async (req, res) => {
    const target = processes[sticky ? 0 : turn++ % processes.length];
    const chunks = [];
    for await (const chunk of req) chunks.push(chunk);
    const body = Buffer.concat(chunks);
    const headers = { ...req.headers, host: target.url.host };
    delete headers.connection;
    const answer = await fetch(target.url, { method: req.method, headers, ...(body.length > 0 && { body }) });
    res.writeHead(answer.status, { ...Object.fromEntries(answer.headers), connection: 'keep-alive' });
    const row = { to: target.name, sent: describeSent(req, body), back: [] };
    if (row.sent !== undefined) rows.push(row);
    const decoder = new TextDecoder();
    let text = '';
    for await (const chunk of answer.body ?? []) {
      res.write(chunk);
      text += decoder.decode(chunk, { stream: true });
      row.back = describeBack(text);
    }
    res.end();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { rows, server, url: new URL(`http://127.0.0.1:${server.address().port}/mcp`) };
}

function describeSent(req, body) {
  if (req.method !== 'POST' || body.length === 0) return undefined;
  const message = JSON.parse(body.toString());
  if (message.method === 'tools/call') {
    const { inputResponses, requestState } = message.params;
    const answers =
      inputResponses === undefined ? '' : ` + answers ${JSON.stringify(contentsOf(inputResponses))}`;
    const state = requestState === undefined ? '' : ` + requestState (${requestState.length} characters)`;
    return `tools/call ${message.params.name}${answers}${state}`;
  }
  if (message.method === undefined) return `answer ${JSON.stringify(message.result?.content)}`;
  return undefined;
}

function contentsOf(inputResponses) {
  return Object.fromEntries(Object.entries(inputResponses).map(([key, { content }]) => [key, content]));
}

function describeBack(text) {
  const messages = text.startsWith('{')
    ? [safeParse(text)]
    : text
        .split('\n')
        .filter((line) => line.startsWith('data: {'))
        .map((line) => safeParse(line.slice(6)));
  return messages.filter((message) => message !== undefined).map(describeMessage);
}

function describeMessage(message) {
  const { method, params, result } = message;
  if (method !== undefined) return `asks live: ${params.message ?? method}`;
  if (result?.resultType === 'input_required') {
    const asks = Object.values(result.inputRequests ?? {}).map(({ params: ask }) => ask.message);
    return `input_required: ${asks.join(' / ')}`;
  }
  if (result?.content !== undefined) return `result: ${result.content[0].text}`;
  return JSON.stringify(message.error ?? result);
}

function safeParse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

const CAPABILITIES = { elicitation: { form: {} } };
const answer = ({ params }) => ({
  action: 'accept',
  content: params.message.startsWith('When') ? { day: 'Monday' } : { yes: true },
});

async function withModernClient(url) {
  const client = new ModernClient(
    { name: 'demo', version: '1' },
    { capabilities: CAPABILITIES, versionNegotiation: { mode: { pin: '2026-07-28' } } },
  );
  client.setRequestHandler('elicitation/create', answer);
  await client.connect(new ModernTransport(url));
  return client;
}

async function withClient(url) {
  const client = new Client({ name: 'demo', version: '1' }, { capabilities: CAPABILITIES });
  client.setRequestHandler(ElicitRequestSchema, answer);
  await client.connect(new StreamableHTTPClientTransport(url));
  return client;
}

function print(revision, note, rows) {
  process.stdout.write(`\n${revision}: ${note}\n`);
  for (const { to, sent, back } of rows) {
    process.stdout.write(`  ${`POST to ${to}`.padEnd(10)} → ${sent}\n`);
    for (const line of back) process.stdout.write(`  ${''.padEnd(10)} ← ${line}\n`);
  }
}

try {
  const processes = await Promise.all([startProcess('A'), startProcess('B')]);
  process.stdout.write('One await-style tool; two processes, A and B, on one SQLite file.\n');
  const runs = [
    ['2026-07-28', 'each POST goes to the other process', withModernClient, false],
    ['2025-11-25', 'asked live on the stream, its session at one process', withClient, true],
  ];
  let booked = 0;
  for (const [revision, note, connect, sticky] of runs) {
    const balancer = await startBalancer(processes, sticky);
    const client = await connect(balancer.url);
    const result = await client.callTool({ name: 'book_flight', arguments: { to: 'Rome' } });
    if (String(result.content?.[0]?.text).startsWith('Booked seat')) booked += 1;
    await client.close();
    print(revision, note, balancer.rows);
    balancer.server.close();
    balancer.server.closeAllConnections();
  }
  process.stdout.write(`\n${booked} of ${runs.length} clients booked their flight.\n`);
  if (booked !== runs.length) process.exitCode = 1;
} finally {
  for (const child of children) child.kill();
  rmSync(folder, { recursive: true, force: true });
}
