/**
 * Presents damaged tokens, sends random HTTP requests, messages on WebSockets or lines on stdio, or calls tools of remote
 * servers that reply with anything, and says how many and how fast.
 *
 *   npm run fuzz -- --tokens 1000000 [--seed 7]
 *   npm run fuzz -- --requests 1000000 [--seed 7]
 *   npm run fuzz -- --frames 300000 [--seed 7]
 *   npm run fuzz -- --lines 300000 [--seed 7]
 *   npm run fuzz -- --upstream 50000 [--seed 7]
 */
import { randomInt } from 'node:crypto';
import process from 'node:process';
import { parseArgs } from 'node:util';
import { fuzz } from './fuzz.ts';
import { fuzzHttp } from './http.ts';
import { fuzzStdio } from './stdio.ts';
import { fuzzUpstream } from './upstream.ts';
import type { Heap } from './watch.ts';
import { fuzzWebSocket } from './websocket.ts';

const { values } = parseArgs({
  options: {
    tokens: { type: 'string' },
    requests: { type: 'string' },
    frames: { type: 'string' },
    lines: { type: 'string' },
    upstream: { type: 'string' },
    seed: { type: 'string' },
  },
});
const tokens = Number(values.tokens ?? 100_000);
const seed = Number(values.seed ?? randomInt(2 ** 31));
if (!Number.isInteger(tokens) || tokens < 1 || !Number.isInteger(seed))
  throw new Error('--tokens and --seed take whole numbers');

const say = (line: string): void => void process.stdout.write(`${line}\n`);
/** How much a run may add to the heap of its first measurement, in bytes. */
const GROWTH = 268_435_456;
if (values.requests !== undefined) await sendRequests(Number(values.requests));
if (values.frames !== undefined) await sendMessages('WebSockets', Number(values.frames), fuzzWebSocket);
if (values.upstream !== undefined) await callServers(Number(values.upstream));
if (values.lines !== undefined) await sendMessages('stdio', Number(values.lines), fuzzStdio);
say(`fuzz of ${tokens} tokens, --seed ${seed}`);
const started = performance.now();
const report = await fuzz({
  tokens,
  seed,
  onWire: 50,
  progress: (presented) => {
    if (presented % 100_000 === 0) say(`${presented} tokens, ${rate(presented)} a second`);
  },
});
const { presented, byDamage, onWire, touched, accepted, different, problems } = report;
const least = Math.min(...byDamage.values());
say(
  `${presented} damaged tokens of ${byDamage.size} kinds (each at least ${least} times), ${rate(presented)} a second`,
);
say(
  `accepted: ${accepted.length}; store touched: ${touched} times; over HTTP: ${onWire} replies, ${different.length} that differ`,
);
const failures = [
  ...accepted.map((what) => `accepted: ${what}`),
  ...different.map((what) => `another reply: ${what}`),
  ...problems,
  ...(touched > 0 ? [`the store was touched ${touched} times`] : []),
];
for (const failure of failures.slice(0, 20)) say(`FAILED ${failure}`);
say(`${presented - accepted.length} passed, ${failures.length} failed`);
process.exit(failures.length === 0 ? 0 : 1);

function rate(count: number): number {
  return Math.round((count / (performance.now() - started)) * 1_000);
}

async function sendRequests(requests: number): Promise<never> {
  if (!Number.isInteger(requests) || requests < 1) throw new Error('--requests takes a whole number');
  say(`fuzz of ${requests} HTTP requests, --seed ${seed}`);
  const since = performance.now();
  const speed = (count: number): number => Math.round((count / (performance.now() - since)) * 1_000);
  const { sent, byStatus, heap, problems } = await fuzzHttp({
    requests,
    seed,
    progress: (count) => {
      if (count % 50_000 === 0) say(`${count} requests, ${speed(count)} a second`);
    },
  });
  const statuses = [...byStatus].sort(([one], [other]) => one - other);
  say(`${sent} requests, ${speed(sent)} a second: ${statuses.map((pair) => pair.join(' × ')).join(', ')}`);
  conclude(sent, heap, problems);
}

async function sendMessages(where: string, messages: number, fuzz: typeof fuzzStdio): Promise<never> {
  if (!Number.isInteger(messages) || messages < 1) throw new Error('--frames and --lines take whole numbers');
  say(`fuzz of ${messages} messages on ${where}, --seed ${seed}`);
  const since = performance.now();
  const { sent, pipes, replies, byEnd, heap, problems } = await fuzz({ messages, seed });
  const speed = Math.round((sent / (performance.now() - since)) * 1_000);
  say(`${sent} messages on ${pipes} connections, ${replies} replies, ${speed} a second`);
  say([...byEnd].map((pair) => pair.join(' × ')).join(', '));
  conclude(sent, heap, problems);
}

async function callServers(calls: number): Promise<never> {
  if (!Number.isInteger(calls) || calls < 1) throw new Error('--upstream takes a whole number');
  say(`fuzz of ${calls} calls of remote servers, --seed ${seed}`);
  const { byEnd, heap, problems } = await fuzzUpstream({ calls, seed });
  say([...byEnd].map((pair) => pair.join(' × ')).join(', '));
  conclude(calls, heap, problems);
}

function conclude(sent: number, heap: Heap, problems: readonly string[]): never {
  say(
    `heap: ${Math.round(heap.first / 1e6)} MB at the first look, ${Math.round(heap.most / 1e6)} MB at most`,
  );
  const grown = heap.most - heap.first;
  const failures = [...problems, ...(grown > GROWTH ? [`the heap grew by ${grown} bytes`] : [])];
  for (const failure of failures) say(`FAILED ${failure}`);
  say(`${sent} sent, ${failures.length} failed`);
  process.exit(failures.length === 0 ? 0 : 1);
}
