/**
 * A rolling restart: three processes behind a balancer, sixteen unmodified clients that call without a pause, and each
 * process restarted in turn by SIGTERM. A ledger outside of the processes counts effects.
 *
 *   npm run rolling -- [--seconds 60] [--balancer tcp] [--store redis] [--relay none] [--mount node] [--lines]
 *
 * Each flag takes several values, with commas; without flags every combination runs. Each process is restarted once at
 * least. A failed call, an effect that was
 * done twice, a failed connect, and a process that does not end by itself with code 0 end the run with code 1.
 */
import { randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import process from 'node:process';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { ownStore } from '../chaos/stores.ts';
import { compiled } from '../e2e/harness.ts';
import { REDIS_URL } from '../e2e/services.ts';
import { BALANCERS, openBalancer } from './balancers.ts';
import { CLIENTS, clientLoop, type Tally } from './clients.ts';
import { Fleet } from './fleet.ts';

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '60' },
    balancer: { type: 'string', default: BALANCERS.join() },
    store: { type: 'string', default: 'redis,postgres,sqlite' },
    relay: { type: 'string', default: 'none,redis' },
    mount: { type: 'string', default: 'node,serve' },
    lines: { type: 'boolean', default: false },
  },
});
const CLI = fileURLToPath(new URL('../../dist/src/cli/main.js', import.meta.url));
/** Longer than the balancer `ready` takes to notice, in milliseconds. */
const LINGER = 1_000;
/** How long a new process serves before the next one leaves, in milliseconds. */
const SETTLED = 1_000;

interface Cell {
  readonly balancer: (typeof BALANCERS)[number];
  readonly store: 'redis' | 'postgres' | 'sqlite';
  readonly relay: 'none' | 'redis';
  readonly mount: 'node' | 'serve';
}

const [tool, server] = await Promise.all(
  ['./tool.ts', './server.ts'].map((name) => compiled(fileURLToPath(new URL(name, import.meta.url)))),
);

// Its processes and stores end with it.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1));
let failed = false;
for (const cell of cells()) failed = !(await runOne(cell)) || failed;
process.exit(failed ? 1 : 0);

function cells(): Cell[] {
  const of = <T extends string>(list: string, known: readonly T[]): T[] =>
    list.split(',').map((name) => {
      const found = known.find((one) => one === name);
      if (found === undefined) throw new Error(`${name} is none of ${known.join(', ')}`);
      return found;
    });
  return of(values.balancer, BALANCERS).flatMap((balancer) =>
    of(values.store, ['redis', 'postgres', 'sqlite'] as const).flatMap((store) =>
      of(values.relay, ['none', 'redis'] as const).flatMap((relay) =>
        of(values.mount, ['node', 'serve'] as const).map((mount) => ({ balancer, store, relay, mount })),
      ),
    ),
  );
}

async function runOne({ balancer: kind, store, relay, mount }: Cell): Promise<boolean> {
  const kept = await ownStore(store);
  process.once('exit', kept.remove);
  const relayUrl = relay === 'redis' ? REDIS_URL : '';
  const effects = new Map<string, number>();
  const ledger = createServer(async (req, res) => {
    let text = '';
    for await (const chunk of req) text += chunk;
    const { call, step } = JSON.parse(text) as { call: string; step: string };
    const name = `${call} ${step}`;
    effects.set(name, (effects.get(name) ?? 0) + 1);
    res.end();
  });
  ledger.keepAliveTimeout = 60_000;
  await new Promise<void>((resolve) => ledger.listen(0, '127.0.0.1', resolve));
  const linger = kind === 'ready' ? LINGER : 0;
  const argsOf = (port: number): string[] => {
    if (mount === 'node') return [server ?? '', kept.url, relayUrl, String(port), String(linger)];
    const args = [CLI, 'serve', tool ?? '', '--port', String(port), '--store', kept.url];
    if (relayUrl !== '') args.push('--relay', relayUrl);
    if (linger > 0) args.push('--linger', `${linger}ms`);
    return args;
  };
  const fleet = new Fleet(argsOf, {
    MCP_AWAIT_SECRET: randomBytes(32).toString('base64url'),
    ROLLING_LEDGER: `http://127.0.0.1:${(ledger.address() as AddressInfo).port}/`,
  });
  await fleet.start();
  const balancer = await openBalancer(kind, fleet.ports);
  const tally: Tally = { completed: 0, failedCalls: [], failedConnects: [] };
  const until = Date.now() + Number(values.seconds) * 1_000;
  let isOver = false;
  const clients = Array.from({ length: 16 }, (_, nth) =>
    clientLoop(CLIENTS[nth % CLIENTS.length] ?? 'v1 2025-11-25', balancer.url, tally, () => isOver),
  );
  await sleep(SETTLED);
  let rounds = 0;
  do {
    await fleet.restartAll(SETTLED);
    rounds += 1;
  } while (Date.now() < until);
  isOver = true;
  await Promise.all(clients);
  balancer.close();
  await fleet.stop();
  ledger.close();
  kept.remove();
  process.off('exit', kept.remove);
  const twice = [...effects].filter(([, count]) => count > 1).map(([name]) => name);
  const longest = Math.round(Math.max(...fleet.ends) / 100) / 10;
  process.stdout.write(
    `${kind}, ${store}, ${relay === 'none' ? 'no relay' : 'relay'}, ${mount}: ${tally.completed} completed, ${tally.failedCalls.length} failed calls, ${tally.failedConnects.length} failed connects, ${twice.length} effects twice; ${rounds} rounds, a process took ${longest} s to end at most\n`,
  );
  const wrong = [
    ...tally.failedCalls.map((line) => `failed call: ${line}`),
    ...tally.failedConnects.map((line) => `failed connect: ${line}`),
    ...twice.map((name) => `done twice: ${name}`),
    ...fleet.faults,
  ];
  if (tally.completed === 0) wrong.push('no call was completed');
  for (const line of wrong.slice(0, 40)) process.stdout.write(`  ${line}\n`);
  if (values.lines || wrong.length > 0)
    for (const line of fleet.lines.slice(-40)) process.stdout.write(`  ${line}\n`);
  return wrong.length === 0;
}
