/**
 * Chaos over proxies: three `mcp-await proxy` with one Redis for store and relay, behind a balancer that picks one at
 * random for each request, while clients of both eras call asking tools of a Python server, and children and proxies
 * are killed.
 *
 *   npm run chaos:proxies -- --seconds 60 [--seed 7]
 *
 * No call may end with another call's answer, or with an answer that no user gave; a call that may not run again may
 * end with an error. When the proxies have ended, every child has ended.
 */
import { randomInt } from 'node:crypto';
import process from 'node:process';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { legacy, modern, type TestClient } from '../e2e/clients.ts';
import { effectsFile, isAlive, PYTHON, type RunningProxy, startProxy } from '../e2e/proxied.ts';
import { REDIS_URL } from '../e2e/services.ts';
import { randomOf } from '../fixtures/random.ts';
import { balanceFleet } from './balancer.ts';

const { values } = parseArgs({ options: { seconds: { type: 'string' }, seed: { type: 'string' } } });
const seconds = Number(values.seconds ?? 60);
const seed = Number(values.seed ?? randomInt(2 ** 31));
const random = randomOf(seed);
/** Time between two faults, in milliseconds. */
const PAUSE = 1_500;
/** How long one call may take, in milliseconds. */
const CALL = 60_000;

const pids = effectsFile();
const options = ['--store', REDIS_URL, '--relay', REDIS_URL, '--log', 'error', '--limit', 'lease=2s'];
const start = (port = '0'): Promise<RunningProxy> =>
  startProxy(PYTHON, [...options, '--port', port], { PIDS: pids.path });
const proxies = await Promise.all([start(), start(), start()]);
const balancer = await balanceFleet({ size: proxies.length, url: (at) => proxies[at]?.url ?? '' }, random);
const until = Date.now() + seconds * 1_000;
const tally = { right: 0, failed: 0, wrong: [] as string[] };
const kinds = { children: 0, proxies: 0 };

await Promise.all([
  disturb(),
  ...['a', 'b', 'c', 'd'].map((name) => work(name, (script) => modern(balancer.url, script))),
  ...['e', 'f'].map((name) => work(name, (script) => legacy(balancer.url, script))),
]);
await Promise.all(proxies.map((proxy) => proxy.stop()));
await balancer.close();
for (let wait = 0; wait < 50 && pids.lines().some((pid) => isAlive(Number(pid))); wait += 1) await sleep(200);
const left = pids.lines().filter((pid) => isAlive(Number(pid)));
const { right, failed, wrong } = tally;
process.stdout.write(
  `seed ${seed}: ${right} right, ${failed} ended with an error, ${wrong.length} wrong; killed ${kinds.children} children, ${kinds.proxies} proxies; ${pids.lines().length} children in all, ${left.length} left\n`,
);
for (const line of wrong) process.stdout.write(`wrong: ${line}\n`);
process.exit(wrong.length > 0 || left.length > 0 || right === 0 ? 1 : 0);

type Script = NonNullable<Parameters<typeof modern>[1]>;

/** One client, one call at a time; each has answers of its own. */
async function work(name: string, connect: (script: Script) => Promise<TestClient>): Promise<void> {
  let count = 0;
  while (Date.now() < until) {
    let mine = '';
    const answer: Script['answer'] = async ({ message }) => {
      const given = mine;
      await sleep(random.int(600));
      return { action: 'accept', content: { [String(message).replace('?', '')]: `${given}` } };
    };
    const client = await connect({ answer }).catch(() => undefined);
    if (client === undefined) {
      await sleep(200);
      continue;
    }
    for (let calls = 0; calls < 8 && Date.now() < until; calls += 1) {
      count += 1;
      mine = `${name}${count}`;
      const tool = random.int(2) === 0 ? 'greet' : 'order';
      const expected = tool === 'greet' ? `Hello ${mine}` : `${mine} of ${mine}`;
      const told = await Promise.race([client.tool(tool).catch(failure), sleep(CALL, new Error('late'))]);
      if (told === expected) tally.right += 1;
      else if (told instanceof Error) tally.failed += 1;
      else tally.wrong.push(`${tool} of ${mine}: ${told}`);
      if (told instanceof Error) break;
    }
    await client.close().catch(() => {});
  }
}

function failure(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}

async function disturb(): Promise<void> {
  while (Date.now() < until - PAUSE) {
    await sleep(PAUSE);
    const alive = pids.lines().map(Number).filter(isAlive);
    if (random.int(4) > 0) {
      const child = alive[random.int(Math.max(alive.length, 1))];
      if (child === undefined) continue;
      process.kill(child, 'SIGKILL');
      kinds.children += 1;
    } else {
      const at = random.int(proxies.length);
      const { port } = new URL(proxies[at]?.url ?? '');
      await proxies[at]?.stop('SIGKILL');
      kinds.proxies += 1;
      proxies[at] = await start(port);
    }
  }
}
