/**
 * Chaos on real parts: three processes with clocks that differ, on a store of the run's own, while clients with
 * stubborn retries call a tool of asks and steps. Processes are killed and stopped past their lease; the store is
 * crashed and restarted, stops answering for less and for more than its operations wait, and is full. A ledger outside
 * of the system records every effect.
 *
 *   npm run chaos -- --minutes 5 --store redis|postgres|sqlite [--seed 7]
 *
 * With `--clients v1` or `v2` the official clients of a session do the calling, behind a balancer; with `tasks` there
 * are 200 tasks at once, and the run is over when they are. `--faults kills` kills one process a lease and does nothing
 * else; `--faults moments` kills each in the moment before a call of it is durable, which loses that call's
 * response and nothing else; `--faults cuts` breaks all connections to the store for 20 ms, every second or two, which
 * costs no call, and repeats no step. With `--clients every` a client
 * of each revision calls, the older ones and the drafts too.
 *
 * The seed decides which faults come, in which order and for how long; which call they hit depends on the machine. The
 * checks are in `verdict.ts`; `--events <file>` keeps the events that were checked.
 */
import { randomBytes, randomInt } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import process from 'node:process';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { randomOf } from '../fixtures/random.ts';
import { tcpProxy } from '../fixtures/tcp-proxy.ts';
import { balanceFleet } from './balancer.ts';
import { client, type Tally } from './clients.ts';
import { clock, type Event, type Fault, LEASE } from './events.ts';
import { disturb, type Moment } from './faults.ts';
import { bundleServer, Fleet } from './fleet.ts';
import { openLedger } from './ledger.ts';
import { type Kind, OLDER, sessionClient } from './session-clients.ts';
import { ownStore, type StoreName } from './stores.ts';
import { taskClient } from './task-clients.ts';
import { judge, type Verdict } from './verdict.ts';

const CLIENTS = 8;
const TASKS = 200;
const EVERY: readonly ('raw' | Kind)[] = ['raw', 'v1', 'v2', ...OLDER];
/** A start that fails for want of a store takes this long at most after the store's fault, in milliseconds. */
const START = 8_000;
const NAMES: readonly StoreName[] = ['redis', 'postgres', 'sqlite'];

const { values } = parseArgs({
  options: {
    minutes: { type: 'string' },
    store: { type: 'string' },
    seed: { type: 'string' },
    events: { type: 'string' },
    clients: { type: 'string' },
    faults: { type: 'string' },
  },
});
const minutes = Number(values.minutes ?? 1);
const name = NAMES.find((known) => known === (values.store ?? 'sqlite'));
const seed = Number(values.seed ?? randomInt(2 ** 31));
const kind = (['raw', 'v1', 'v2', 'every', 'tasks'] as const).find(
  (known) => known === (values.clients ?? 'raw'),
);
const which = (['all', 'kills', 'moments', 'cuts'] as const).find(
  (known) => known === (values.faults ?? 'all'),
);
if (kind === undefined || which === undefined)
  throw new Error('--clients takes raw, v1, v2, every or tasks, --faults all, kills, moments or cuts');
if (name === undefined || !(minutes > 0) || !Number.isInteger(seed))
  throw new Error(
    `--minutes takes a positive number, --store one of ${NAMES.join(', ')}, --seed a whole number`,
  );

process.stdout.write(
  `chaos on ${name}, clients ${kind}, faults ${which}, ${minutes} minutes, --seed ${seed}\n`,
);
const store = await ownStore(name);
process.once('exit', () => store.remove());
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(130));
let over = false;
/** Calls whose processes were killed as they began. A store that was quick may have had them by then. */
const cutOff = new Set<string>();
const begun = new Set<string>();
let onMoment: ((moment?: Moment) => void) | undefined;
const moment = (): Promise<Moment | undefined> =>
  new Promise((resolve) => {
    if (over) resolve(undefined);
    else onMoment = resolve;
  });
const ledger = await openLedger(async (event) => {
  if (event.type !== 'moment' || begun.has(event.call)) return;
  begun.add(event.call);
  if (onMoment === undefined) return;
  const strike = onMoment;
  onMoment = undefined;
  cutOff.add(event.call);
  await new Promise<void>((over) => strike({ pid: event.pid, over }));
});
const proxy = which === 'cuts' ? await tcpProxy(store.url) : undefined;
const storeUrl = proxy === undefined ? store.url : store.url.replace(/:\d+(?=\/|$)/, `:${proxy.port}`);
const fleet = new Fleet(
  await bundleServer(),
  storeUrl,
  ledger.url,
  randomBytes(32).toString('base64url'),
  randomOf(seed + 2),
  which === 'moments' ? { CHAOS_MOMENTS: '1' } : {},
);
process.prependOnceListener('exit', () => fleet.killAll());
await fleet.start();

const isOver = (): boolean => over;
const tally: Tally = { completed: 0, neverBegan: 0, retries: 0, lost: [], done: [] };
const { faults, everyKind, done } = disturb(fleet, store, seed, which, isOver, moment, proxy);
const balancer = await balanceFleet(fleet, randomOf(seed + 3));
const isTasks = kind === 'tasks';
const clients = Array.from({ length: isTasks ? TASKS : CLIENTS }, (_, nth) => {
  if (kind === 'tasks') return taskClient(fleet, randomOf(seed + 10 + nth), tally);
  const own = kind === 'every' ? EVERY[nth % EVERY.length] : kind;
  if (own === 'raw' || own === undefined) return client(fleet, randomOf(seed + 10 + nth), tally, isOver);
  return sessionClient(own, balancer.url, tally, isOver);
});
await Promise.race([
  isTasks ? Promise.all(clients) : Promise.all([sleep(minutes * 60_000), everyKind]),
  done,
]);
over = true;
onMoment?.();
// A call that begins now would wait for a kill that never comes.
onMoment = undefined;
await done;
await Promise.all(clients);
tally.retries += balancer.retries();
await balancer.close();
// A process that lost its turn says what became of its step's record only then.
for (const until = clock() + 2 * LEASE; clock() < until && isAwaited(); ) await sleep(100);
fleet.killAll();
ledger.close();

if (values.events !== undefined) {
  writeFileSync(values.events, JSON.stringify({ faults, events: ledger.events, done: tally.done }));
}
const verdict = judge(ledger.events, faults, tally.done);
report(verdict, faults, ledger.events);

function report(
  { keys, completed, repeated, excused, violations }: Verdict,
  faults: readonly Fault[],
  events: readonly Event[],
): void {
  const say = (line: string): void => void process.stdout.write(`${line}\n`);
  const count = (of: string): number => faults.filter((fault) => fault.kind === of).length;
  const onStore = store.restart === undefined ? ['slow', 'full'] : ['restart', 'slow'];
  const kinds = which === 'cuts' ? ['cut'] : which !== 'all' ? ['kill'] : ['kill', 'stop', ...onStore];
  const counts = kinds.map((of) => `${of} ${count(of)}`).join(', ');
  say(`faults: ${counts}${store.restart === undefined ? ' (SQLite: no process to restart)' : ''}`);
  say(
    `processes: ${fleet.skews.length} started, ${fleet.failedStarts.length} more could not open their store; clocks off by ${Math.min(...fleet.skews)} to ${Math.max(...fleet.skews)} ms`,
  );
  say(
    `calls: ${tally.completed} completed, ${tally.lost.length} lost, ${tally.neverBegan} never began; ${tally.retries} requests sent again`,
  );
  const refused = events.filter((event) => event.type === 'outage');
  const noRoom = refused.filter(({ cause }) => /disk is full/.test(cause));
  say(
    `outages that a process reported: ${refused.length}${store.restart === undefined ? `, ${noRoom.length} of them because it was full` : ''}`,
  );
  say(
    `ledger: ${keys} idempotency keys for ${completed} completed steps; ${repeated} of them more than once`,
  );
  const reasons = [...excused].map(([by, times]) => `${by} ${times}`);
  say(`executions in vain, by what fell inside: ${reasons.join(', ') || 'none'}`);
  const kept = new Set(events.flatMap((event) => (event.type === 'append' ? [event.call] : [])));
  const gone = [...cutOff].filter((call) => !kept.has(call));
  if (which === 'moments')
    say(`killed as they began: ${cutOff.size} calls, of which ${gone.length} were in no journal`);
  const failures = [
    ...tally.lost.map((reply) => `lost: ${reply}`),
    ...(which === 'cuts' && tally.neverBegan > 0 ? [`${tally.neverBegan} calls never began`] : []),
    ...(which === 'cuts' && repeated > 0 ? ['a step was repeated'] : []),
    ...fleet.crashes,
    ...violations,
    ...events.flatMap((event) =>
      event.type === 'begin' && !kept.has(event.call)
        ? [`step ${event.step} of call ${event.call} ran, and no journal has that call`]
        : [],
    ),
    ...(which === 'moments' && gone.length === 0 ? ['no call was killed before it was durable'] : []),
    // One may fail where other work takes the whole machine, as an operation may.
    ...fleet.failedStarts
      .filter(({ at, again }) => again && !hasStoreFault(at))
      .map(({ at, said }) => `a start failed by itself at ${at.toFixed(0)}: ${said}`),
    ...(keys === completed ? [] : ['keys and completed steps differ']),
    ...(tally.completed > 0 ? [] : ['no call completed']),
    ...kinds.filter((of) => count(of) === 0).map((of) => `the run was too short for a fault of kind ${of}`),
    ...(count('full') > 0 && noRoom.length === 0 ? ['the disk was full, and nobody noticed'] : []),
  ];
  for (const failure of failures.slice(0, 20)) say(`FAILED ${failure}`);
  say(`${tally.completed} passed, ${failures.length} failed`);
  process.exit(failures.length === 0 ? 0 : 1);
}

/** Whether a step of a process that lives was begun, and the ledger has nothing of its record. */
function isAwaited(): boolean {
  const told = new Set(ledger.events.map((event) => (event.type === 'append' ? event.run : undefined)));
  const killed = new Set(faults.map(({ kind, pid }) => (kind === 'kill' ? pid : undefined)));
  return ledger.events.some(
    (event) => event.type === 'begin' && !told.has(event.run) && !killed.has(event.pid),
  );
}

function hasStoreFault(at: number): boolean {
  return faults.some(({ pid, since, until }) => pid === undefined && since <= at && at <= until + START);
}
