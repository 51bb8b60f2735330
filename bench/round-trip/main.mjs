/**
 * Calls per second of one tool that asks once, on 2026-07-28: each variant is a server in a process of its
 * own, and all are measured in turns of one run, so that what else the machine does falls on all alike.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { arch, cpus, platform } from 'node:os';
import { parseArgs } from 'node:util';
import { load } from './client.mjs';

const REFERENCE = 'hand-written';
const VARIANTS = [REFERENCE, 'parked', 'replayed', 'replayed-shared', 'floor'];
const CONCURRENCIES = [8, 1];
const WARM_UP_SECONDS = 1;

export async function main(args) {
  const { values } = parseArgs({
    args,
    options: {
      rounds: { type: 'string', default: '7' },
      seconds: { type: 'string', default: '1' },
      variants: { type: 'string', default: VARIANTS.join() },
      profile: { type: 'string' },
    },
  });
  const [rounds, seconds] = [positive('rounds', values.rounds), positive('seconds', values.seconds)];
  const servers = await Promise.all(values.variants.split(',').map((name) => start(name, values.profile)));
  try {
    for (const { port } of servers) await load(port, Math.max(...CONCURRENCIES), WARM_UP_SECONDS);
    for (let round = 0; round < rounds; round += 1) {
      for (const concurrency of CONCURRENCIES) {
        for (const server of servers) await measure(server, concurrency, seconds);
      }
    }
    console.log(`node ${process.version}, ${platform()} ${arch()}, ${cpus().length} cores`);
    console.log(`median of ${rounds} rounds of ${seconds} s; ratio of medians to ${REFERENCE}`);
    for (const concurrency of CONCURRENCIES) print(servers, concurrency);
  } finally {
    for (const { child } of servers) child.disconnect();
  }
}

function positive(name, text) {
  const value = Number(text);
  if (Number.isFinite(value) && value > 0) return value;
  throw new Error(`--${name} must be a positive number, not ${text}`);
}

async function start(name, profile) {
  const execArgv = profile === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${profile}/${name}`];
  // As it is deployed: in development mcp-await watches what tools do (`warnUnjournaled`).
  const env = { ...process.env, NODE_ENV: 'production' };
  const child = fork(new URL('./server.mjs', import.meta.url), [name], { execArgv, env });
  const failed = once(child, 'exit').then(() => Promise.reject(new Error(`${name} did not start`)));
  const [{ port }] = await Promise.race([once(child, 'message'), failed]);
  return { name, child, port, figures: new Map(CONCURRENCIES.map((concurrency) => [concurrency, []])) };
}

async function measure({ child, port, figures }, concurrency, seconds) {
  const before = await cpuOf(child);
  const { calls, elapsed } = await load(port, concurrency, seconds);
  const cpu = (await cpuOf(child)) - before;
  figures.get(concurrency).push({ rate: calls / elapsed, cpu: cpu / calls });
}

/** Processor time that a server took so far, in microseconds. */
async function cpuOf(child) {
  child.send('cpu');
  const [{ user, system }] = await once(child, 'message');
  return user + system;
}

function print(servers, concurrency) {
  const medians = servers.map(({ name, figures }) => ({
    name,
    rate: median(figures.get(concurrency).map(({ rate }) => rate)),
    cpu: median(figures.get(concurrency).map(({ cpu }) => cpu)),
  }));
  const reference = medians.find(({ name }) => name === REFERENCE)?.rate;
  console.log(
    `\nconcurrency ${concurrency}`.padEnd(17),
    'calls/s'.padStart(9),
    'ratio'.padStart(7),
    ' cpu µs/call',
  );
  for (const { name, rate, cpu } of medians) {
    const ratio = reference === undefined ? '-' : (rate / reference).toFixed(2);
    console.log(name.padEnd(16), rate.toFixed(0).padStart(9), ratio.padStart(7), cpu.toFixed(0).padStart(12));
  }
}

function median(numbers) {
  const sorted = numbers.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
