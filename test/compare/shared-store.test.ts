/** The store of a comparison: an adapter that brings the journal's primitive itself. */
import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { systemClock } from '../../src/base/values.ts';
import { type CallRecord, FORMAT } from '../../src/call/journal/entries.ts';
import { KeyvCallStore } from '../../src/checkpoint/call-store.ts';
import { insertIfAbsent, primitiveOf, read } from '../../src/checkpoint/insert.ts';
import { keyvOver, SharedStore } from '../../src/compare/shared-store.ts';

it('has an adapter whose own insert is used: two handlers over one store cannot both insert', async () => {
  const store = new SharedStore();
  const [one, two] = [keyvOver(store), keyvOver(store)];
  expect(primitiveOf(one)).toBe('own');
  const inserted = await Promise.all(
    [one, two].map((keyv, nth) => insertIfAbsent(keyv, 'test:1', { nth }, 60_000)),
  );
  expect(inserted.sort()).toEqual([false, true]);
  expect(await read(two, 'test:1')).toEqual(await read(one, 'test:1'));
});

it('tells the steps that completed, each once a call, from the entries of a journal', async () => {
  const store = new SharedStore();
  const journals = new KeyvCallStore(keyvOver(store), systemClock, 10_000);
  const expires = Date.now() + 60_000;
  const call: CallRecord = {
    id: `${expires.toString(36)}.${randomUUID()}`,
    method: 'tools/call',
    params: {},
    requestId: 1,
    revision: '2026-07-28',
    client: { capabilities: {}, info: {}, protocolVersion: '2025-11-25' },
    created: Date.now(),
    expires,
  };
  const journal = journals.open(call, -1);
  const done = (path: string) => ({ kind: 'step' as const, path, outcome: {} });
  await journal.append({ type: 'completed', completion: done('charge') });
  await journal.append({ type: 'completed', completion: done('ship') });
  const checkpoint = { format: FORMAT, call, turn: 1, completions: [done('charge')], open: [], asked: 0 };
  await journal.append({ type: 'suspended', checkpoint });
  expect(store.takeSteps()).toEqual(['charge', 'ship']);
  expect(store.takeSteps()).toEqual([]);
});
