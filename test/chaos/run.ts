/**
 * Chaos on real processes: three of them on one store, killed and stopped at random, while clients with
 * stubborn retries call a tool of asks and steps. A ledger outside of the system records every effect.
 *
 *   npm run chaos -- --minutes 1 --store redis|postgres|sqlite
 *
 * Checked at the end: every call that got a token came to its result with all its steps; distinct idempotency
 * keys equal completed steps; a key occurs twice only where its process was killed or stopped around it.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';

const { values } = parseArgs({ options: { minutes: { type: 'string' }, store: { type: 'string' } } });
const MINUTES = Number(values.minutes ?? 1);
const PROCESSES = 3;
const CLIENTS = 6;
const STEPS = ['a0', 'b0', 'a1', 'b1', 'a2', 'b2'];
/** A fault this long before or after an effect may have fallen into its step, in milliseconds. */
const AROUND = 2_500;

const STORES: Readonly<Record<string, string>> = {
  sqlite: `sqlite://${join(mkdtempSync(join(tmpdir(), 'mcp-await-chaos-')), 'calls.sqlite')}`,
  redis: process.env.REDIS_URL ?? 'redis://127.0.0.1:6379',
  postgres: process.env.POSTGRES_URL ?? 'postgres://postgres@127.0.0.1:5432/postgres',
};
const store = STORES[values.store ?? 'sqlite'];
if (store === undefined || !(MINUTES > 0))
  throw new Error('--minutes takes a positive number, --store one of sqlite, redis, postgres');

interface Effect {
  readonly key: string;
  readonly name: string;
  readonly pid: number;
  readonly at: number;
}

const ledger: Effect[] = [];
const faults: { pid: number; at: number; kind: string }[] = [];
const secret = randomBytes(32).toString('base64url');
const script = new URL('./server.ts', import.meta.url).pathname;
let over = false;

const ledgerServer = createServer(async (req, res) => {
  let text = '';
  for await (const chunk of req) text += chunk;
  ledger.push({ ...(JSON.parse(text) as Omit<Effect, 'at'>), at: Date.now() });
  res.end();
});
ledgerServer.listen(0, '127.0.0.1');
await once(ledgerServer, 'listening');
const ledgerUrl = `http://127.0.0.1:${(ledgerServer.address() as AddressInfo).port}`;

interface Slot {
  child: ChildProcess;
  url: string;
}

async function startServer(): Promise<Slot> {
  const args = ['--import', 'tsx', script, store as string, ledgerUrl, secret];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  const [port] = (await once(createInterface(child.stdout), 'line')) as [string];
  return { child, url: `http://127.0.0.1:${port}/mcp` };
}

const slots = await Promise.all(Array.from({ length: PROCESSES }, startServer));

async function disturb(): Promise<void> {
  while (!over) {
    await sleep(700 + Math.random() * 900);
    const index = Math.floor(Math.random() * slots.length);
    const slot = slots[index] as Slot;
    const { pid } = slot.child;
    if (over || pid === undefined) return;
    if (Math.random() < 0.3) {
      faults.push({ pid, at: Date.now(), kind: 'stop' });
      process.kill(pid, 'SIGSTOP');
      await sleep(1_500);
      process.kill(pid, 'SIGCONT');
      faults.push({ pid, at: Date.now(), kind: 'wake' });
    } else {
      faults.push({ pid, at: Date.now(), kind: 'kill' });
      slot.child.kill('SIGKILL');
      slots[index] = await startServer();
    }
  }
}

interface Reply {
  readonly result?: {
    resultType: string;
    inputRequests?: object;
    requestState?: string;
    content?: { text: string }[];
  };
  readonly error?: { code: number; message: string };
}

const META = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientInfo': { name: 'chaos', version: '1' },
  'io.modelcontextprotocol/clientCapabilities': { elicitation: { form: {} } },
};
let nextId = 1;

/** Undefined when no reply came; a reply that says to come again counts as none. */
async function post(params: object): Promise<Reply | undefined> {
  const slot = slots[Math.floor(Math.random() * slots.length)] as Slot;
  const body = {
    jsonrpc: '2.0',
    id: nextId++,
    method: 'tools/call',
    params: { name: 'work', arguments: {}, ...params, _meta: META },
  };
  try {
    const response = await fetch(slot.url, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        'mcp-protocol-version': '2026-07-28',
        'mcp-method': 'tools/call',
        'mcp-name': 'work',
      },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(12_000),
    });
    const reply = (await response.json()) as Reply;
    return reply.error?.message.includes('send the same request again') ? undefined : reply;
  } catch {
    return undefined;
  }
}

const tally = { completed: 0, neverStarted: 0, retries: 0, lost: [] as string[] };

async function stubborn(params: object): Promise<Reply> {
  for (let attempt = 0; attempt < 60; attempt += 1) {
    const reply = await post(params);
    if (reply !== undefined) return reply;
    tally.retries += 1;
    await sleep(100);
  }
  return { error: { code: 0, message: 'no reply in 60 attempts' } };
}

async function client(): Promise<void> {
  while (!over) {
    // Without a token nobody can go on: a first POST that fails is a call that never began.
    let reply = await post({});
    if (reply === undefined) {
      tally.neverStarted += 1;
      await sleep(50);
      continue;
    }
    while (reply.result?.resultType === 'input_required') {
      const { inputRequests = {}, requestState } = reply.result;
      const entries = Object.keys(inputRequests).map((key) => [
        key,
        { action: 'accept', content: { go: true } },
      ]);
      reply = await stubborn({ requestState, inputResponses: Object.fromEntries(entries) });
    }
    const text = reply.result?.content?.[0]?.text;
    if (text === STEPS.join(' ')) tally.completed += 1;
    else tally.lost.push(JSON.stringify(reply));
  }
}

const disturbing = disturb();
const clients = Array.from({ length: CLIENTS }, client);
await sleep(MINUTES * 60_000);
over = true;
await Promise.all(clients);
await disturbing;
for (const { child } of slots) child.kill('SIGKILL');
ledgerServer.close();

const byKey = new Map<string, Effect[]>();
for (const effect of ledger) byKey.set(effect.key, [...(byKey.get(effect.key) ?? []), effect]);
const repeated = [...byKey.values()].filter((effects) => effects.length > 1);
const unexplained = repeated.filter((effects) =>
  effects
    .slice(0, -1)
    .some(({ pid, at }) => !faults.some((fault) => fault.pid === pid && Math.abs(fault.at - at) < AROUND)),
);
const expected = tally.completed * STEPS.length;
const kinds = ['kill', 'stop'].map(
  (kind) => `${faults.filter((fault) => fault.kind === kind).length} ${kind}s`,
);
process.stdout.write(
  `chaos on ${values.store ?? 'sqlite'}: ${tally.completed} calls completed, ${tally.lost.length} lost, ${tally.neverStarted} first requests failed, ${tally.retries} retries; ${kinds.join(', ')}\n` +
    `ledger: ${byKey.size} keys for ${expected} completed steps; ${repeated.length} keys twice or more, ${unexplained.length} of them without a fault near\n`,
);
for (const lost of tally.lost.slice(0, 5)) process.stdout.write(`lost: ${lost}\n`);
const failed =
  tally.lost.length + unexplained.length + (byKey.size === expected ? 0 : 1) + (tally.completed > 0 ? 0 : 1);
process.stdout.write(`${tally.completed} passed, ${failed} failed\n`);
process.exit(failed === 0 ? 0 : 1);
