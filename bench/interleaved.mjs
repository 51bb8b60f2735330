/**
 * Servers, each in a process of its own, measured in turns of one run, so that other load on the machine affects all
 * alike.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { arch, cpus, platform } from 'node:os';

/** Until V8 has compiled what calls run through: after one second ours still gains, and its peers less. */
const WARM_UP_SECONDS = 5;

export function positive(name, text) {
  const value = Number(text);
  if (Number.isFinite(value) && value > 0) return value;
  throw new Error(`--${name} must be a positive number, not ${text}`);
}

/**
 * @param script sends its port once it listens, and its processor time on request
 * @param load makes calls of a server: `(server, concurrency, seconds) => { calls, elapsed }`
 * @returns for each variant its medians, by concurrency
 */
export async function interleave({ script, variants, concurrencies, rounds, seconds, profile, load }) {
  const servers = await Promise.all(variants.map((variant) => start(script, variant, profile)));
  const figures = servers.map(() => new Map(concurrencies.map((concurrency) => [concurrency, []])));
  try {
    for (const server of servers) await load(server, Math.max(...concurrencies), WARM_UP_SECONDS);
    for (let round = 0; round < rounds; round += 1) {
      for (const concurrency of concurrencies) {
        for (const [nth, server] of servers.entries())
          figures[nth].get(concurrency).push(await measure(server, concurrency, seconds, load));
      }
    }
  } finally {
    for (const { child } of servers) child.disconnect();
  }
  console.log(`node ${process.version}, ${platform()} ${arch()}, ${cpus().length} cores`);
  console.log(`median of ${rounds} rounds of ${seconds} s`);
  return new Map(
    variants.map((variant, nth) => [
      variant,
      new Map(
        [...figures[nth]].map(([concurrency, runs]) => [
          concurrency,
          { rate: median(runs.map(({ rate }) => rate)), cpu: median(runs.map(({ cpu }) => cpu)) },
        ]),
      ),
    ]),
  );
}

async function start(script, name, profile) {
  const execArgv =
    profile === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${profile}/${name.replaceAll(/\W+/g, '-')}`];
  // As deployed: in development mcp-await watches the effects of tools (`warnUnjournaled`).
  const env = { ...process.env, NODE_ENV: 'production' };
  const child = fork(script, [name], { execArgv, env });
  const failed = once(child, 'exit').then(() => Promise.reject(new Error(`${name} did not start`)));
  const [{ port }] = await Promise.race([once(child, 'message'), failed]);
  failed.catch(() => {});
  return { name, child, port };
}

async function measure(server, concurrency, seconds, load) {
  const before = await cpuOf(server.child);
  const { calls, elapsed } = await load(server, concurrency, seconds);
  const cpu = (await cpuOf(server.child)) - before;
  return { rate: calls / elapsed, cpu: cpu / calls };
}

/** Processor time that a server took so far, in microseconds. */
async function cpuOf(child) {
  child.send('cpu');
  const [{ user, system }] = await once(child, 'message');
  return user + system;
}

export function median(numbers) {
  const sorted = numbers.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
