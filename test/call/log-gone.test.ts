/** What an owner takes of a log that lost its last entry, or all of them: a store that failed over, or made room. */
import { expect, it } from 'vitest';
import { AwaitError } from '../../src/base/values.ts';
import type { Entry } from '../../src/call/journal/entries.ts';
import { type Entries, JournalWriter } from '../../src/call/journal/writer.ts';
import { steadyClock } from '../fixtures/steady-clock.ts';
import { liveCall } from './live-call.ts';

const LEASE = 1_000;
const call = liveCall(0, Number.MAX_SAFE_INTEGER);
const called: Entry = { type: 'called', format: 1, call };
const done: Entry = {
  type: 'completed',
  completion: { kind: 'step', path: 'charge', outcome: { value: 120 } },
};

function log() {
  const stored = new Map<number, Entry>();
  let passed = 0;
  const entries: Entries = {
    insert: async (position, entry) => {
      if (stored.has(position)) return false;
      stored.set(position, entry);
      return true;
    },
    read: async (position) => stored.get(position),
    readOn: async function* (position) {
      for (let at = position; stored.has(at); at += 1) yield stored.get(at) as Entry;
    },
    beat: async () => {},
  };
  const clock = {
    ...steadyClock,
    now: () => steadyClock.now() + passed,
    elapsed: () => steadyClock.elapsed() + passed,
  };
  const open = (after: number): JournalWriter => new JournalWriter(entries, call, after, clock, LEASE);
  const wait = (milliseconds: number): void => {
    passed += milliseconds;
  };
  return { stored, open, wait };
}

it('an owner goes on where the store lost its last entry', async () => {
  const { stored, open, wait } = log();
  const owner = open(-1);
  await owner.append(called);
  await owner.append(done);
  stored.delete(1);
  for (const silence of [0, LEASE, 10 * LEASE]) {
    wait(silence);
    expect(await owner.readOn()).toBeUndefined();
  }
  await owner.append(done);
  expect(owner.position).toBe(2);
});

it('an owner that was silent for long finds that its log has made room', async () => {
  const { stored, open, wait } = log();
  const owner = open(-1);
  await owner.append(called);
  stored.clear();
  wait(10 * LEASE);
  expect(await owner.readOn()).toMatchObject({ type: 'cancelled', isErased: true });
  await expect(owner.append(done)).rejects.toMatchObject({ code: 'bad-token' });
});

it('a follower does not take over a call whose log has made room', async () => {
  const { stored, open } = log();
  await open(-1).append(called);
  stored.clear();
  const claim: Entry = { type: 'claimed', answers: [], sent: '', by: 'another' };
  await expect(open(0).append(claim)).rejects.toMatchObject({ code: 'bad-token' });
});

it('a log whose first entry is under a secret that was taken out goes on', async () => {
  const { stored, open } = log();
  await open(-1).append(called);
  const read = stored.get.bind(stored);
  stored.get = (position) => {
    if (position === 0) throw new AwaitError('bad-token', 'another secret');
    return read(position);
  };
  const next = open(0);
  await next.append(done);
  expect(next.position).toBe(1);
});
