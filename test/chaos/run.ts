/**
 * Chaos on real parts: three processes with clocks that differ, on a store of the run's own, while clients
 * with stubborn retries call a tool of asks and steps. Processes are killed and stopped past their lease; the
 * store is crashed and restarted, stops answering for less and for more than its operations wait, and is full.
 * A ledger outside of the system records every effect.
 *
 *   npm run chaos -- --minutes 5 --store redis|postgres|sqlite [--seed 7]
 *
 * The seed decides which faults come, in which order and for how long; what they hit depends on the machine.
 * What is checked is told in `verdict.ts`; `--events <file>` keeps what it was checked on.
 */
import { randomBytes, randomInt } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import process from 'node:process';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { randomOf } from '../fixtures/random.ts';
import { client, type Tally } from './clients.ts';
import type { Event, Fault } from './events.ts';
import { disturb } from './faults.ts';
import { Fleet } from './fleet.ts';
import { openLedger } from './ledger.ts';
import { ownStore, type StoreName } from './stores.ts';
import { judge, type Verdict } from './verdict.ts';

const CLIENTS = 8;
/** A start that fails for want of a store takes this long at most after the store's fault, in milliseconds. */
const START = 8_000;
const NAMES: readonly StoreName[] = ['redis', 'postgres', 'sqlite'];

const { values } = parseArgs({
  options: {
    minutes: { type: 'string' },
    store: { type: 'string' },
    seed: { type: 'string' },
    events: { type: 'string' },
  },
});
const minutes = Number(values.minutes ?? 1);
const name = NAMES.find((known) => known === (values.store ?? 'sqlite'));
const seed = Number(values.seed ?? randomInt(2 ** 31));
if (name === undefined || !(minutes > 0) || !Number.isInteger(seed))
  throw new Error(
    `--minutes takes a positive number, --store one of ${NAMES.join(', ')}, --seed a whole number`,
  );

process.stdout.write(`chaos on ${name}, ${minutes} minutes, --seed ${seed}\n`);
const store = await ownStore(name);
process.once('exit', () => store.remove());
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(130));
const ledger = await openLedger();
const fleet = new Fleet(store.url, ledger.url, randomBytes(32).toString('base64url'), randomOf(seed + 2));
process.prependOnceListener('exit', () => fleet.killAll());
await fleet.start();

let over = false;
const isOver = (): boolean => over;
const tally: Tally = { completed: 0, neverBegan: 0, retries: 0, lost: [], done: [] };
const { faults, done } = disturb(fleet, store, seed, isOver);
const clients = Array.from({ length: CLIENTS }, (_, nth) =>
  client(fleet, randomOf(seed + 10 + nth), tally, isOver),
);
await Promise.race([sleep(minutes * 60_000), done]);
over = true;
await done;
await Promise.all(clients);
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
  const count = (kind: string): number => faults.filter((fault) => fault.kind === kind).length;
  const kinds =
    store.restart === undefined ? ['kill', 'stop', 'slow', 'full'] : ['kill', 'stop', 'restart', 'slow'];
  say(
    `faults: ${kinds.map((kind) => `${kind} ${count(kind)}`).join(', ')}${store.restart === undefined ? ' (SQLite: no process to restart)' : ''}`,
  );
  say(
    `processes: ${fleet.skews.length} started, ${fleet.failedStarts.length} more could not open their store; clocks off by ${Math.min(...fleet.skews)} to ${Math.max(...fleet.skews)} ms`,
  );
  say(
    `calls: ${tally.completed} completed, ${tally.lost.length} lost, ${tally.neverBegan} never began; ${tally.retries} requests sent again`,
  );
  const refused = events.filter((event) => event.type === 'append' && event.outcome === 'store');
  const noRoom = refused.filter((event) => event.type === 'append' && /disk is full/.test(event.cause ?? ''));
  say(
    `entries that the store failed to take: ${refused.length}${store.restart === undefined ? `, ${noRoom.length} of them because it was full` : ''}`,
  );
  say(
    `ledger: ${keys} idempotency keys for ${completed} completed steps; ${repeated} of them more than once`,
  );
  const reasons = [...excused].map(([kind, times]) => `${kind} ${times}`);
  say(`executions in vain, by what fell inside: ${reasons.join(', ') || 'none'}`);
  const failures = [
    ...tally.lost.map((reply) => `lost: ${reply}`),
    ...fleet.crashes,
    ...violations,
    ...fleet.failedStarts
      .filter((at) => !hasStoreFault(at))
      .map((at) => `a start failed by itself at ${at.toFixed(0)}`),
    ...(keys === completed ? [] : ['keys and completed steps differ']),
    ...(tally.completed > 0 ? [] : ['no call completed']),
    ...kinds
      .filter((kind) => count(kind) === 0)
      .map((kind) => `the run was too short for a fault of kind ${kind}`),
    ...(count('full') > 0 && noRoom.length === 0 ? ['the disk was full, and nobody noticed'] : []),
  ];
  for (const failure of failures.slice(0, 20)) say(`FAILED ${failure}`);
  say(`${tally.completed} passed, ${failures.length} failed`);
  process.exit(failures.length === 0 ? 0 : 1);
}

function hasStoreFault(at: number): boolean {
  return faults.some(({ pid, since, until }) => pid === undefined && since <= at && at <= until + START);
}
