/** A store that goes away between its reply to an insert and the read that follows. */
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { AwaitError, systemClock } from '../../src/base/values.ts';
import type { Entry } from '../../src/call/journal/entries.ts';
import { type Entries, JournalWriter } from '../../src/call/journal/writer.ts';
import { Retry } from '../../src/log/retry.ts';
import { liveCall } from './live-call.ts';

const LEASE = 50;

it('a finished step whose position another process took waits until its call expires, not three leases', async () => {
  const now = Date.now();
  const call = liveCall(now, now + 60_000);
  const stored: Entry[] = [];
  const retry = new Retry({ clock: systemClock, lease: LEASE });
  let isAway = false;
  const entries: Entries = {
    insert: async (position, entry) => {
      if (position < stored.length) return false;
      stored[position] = entry;
      return true;
    },
    read: (position, until) =>
      retry.read(async () => {
        if (isAway) throw new AwaitError('store', 'it does not answer');
        return stored[position];
      }, until),
    readOn: async function* (position) {
      yield* stored.slice(position);
    },
    beat: async () => {},
  };
  const journal = new JournalWriter(entries, call, -1, systemClock, LEASE);
  await journal.store?.();
  stored.push({ type: 'reading', connection: 'of a client that came back' });
  isAway = true;
  const written = journal.append({
    type: 'completed',
    completion: { kind: 'step', path: 'charge', outcome: { value: 120 } },
  });
  let failure: unknown;
  written.catch((error: unknown) => {
    failure = error;
  });
  await sleep(6 * LEASE);
  expect(failure).toBeUndefined();
  isAway = false;
  await written;
  expect(stored.map(({ type }) => type)).toEqual(['called', 'reading', 'held', 'completed']);
});
