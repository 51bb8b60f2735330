/** A store that goes away at any operation of a first request: its client is told to send it again only where nothing began. */
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, expect, it } from 'vitest';
import { askOptions } from '../ask/person.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { flakyStore } from '../fixtures/flaky-store.ts';
import { begin, call } from './anywhere.ts';
import { post, type RawReply, send } from './clients.ts';
import { SECRET, type Served, serveHere } from './harness.ts';

const LEASE = 300;
/** More than any of these requests makes. */
const OPERATIONS = 12;

const open: Served[] = [];
afterAll(() => Promise.all(open.splice(0).map((served) => served.close())));

/** @returns what was done, and whether the client was told to send the request again */
async function away(
  lasts: number,
  state: 'stored' | 'sealed',
  request: (served: Served, ready: () => void) => Promise<RawReply>,
): Promise<{ done: string[]; again: boolean }> {
  const done: string[] = [];
  const flaky = flakyStore();
  const options = {
    store: flaky.store,
    secrets: [SECRET],
    state,
    ask: askOptions,
    limits: { lease: LEASE, drain: 100 },
  };
  const served = await serveHere(() => buildServer((effect) => done.push(effect)), options);
  open.push(served);
  const reply = request(served, () => {
    flaky.lasts = lasts;
  });
  // One that has begun a step waits for the store.
  const early = await Promise.race([
    reply,
    (async () => {
      for (let waited = 0; flaky.fail === undefined && waited < 5_000; waited += 50) await pause(50);
      await pause(8 * LEASE);
    })(),
  ]);
  Object.assign(flaky, { lasts: Infinity, fail: undefined });
  void reply.catch(() => {});
  return {
    done,
    again: early !== undefined && (early.status === 503 || early.text.includes('"retry":true')),
  };
}

const WIRES = {
  '2025-11-25': (tool: string) => async (served: Served, ready: () => void) => {
    const { headers } = await begin([served]);
    ready();
    return send(served.url, JSON.stringify({ jsonrpc: '2.0', ...call(tool) }), { headers });
  },
  '2026-07-28': (tool: string) => (served: Served, ready: () => void) => {
    ready();
    return post(served.url, { tool });
  },
  // As a caller whose asks are for the page.
  'with a page': (tool: string) => (served: Served, ready: () => void) => {
    ready();
    return post(served.url, { tool, capabilities: {}, headers: { authorization: 'Bearer ann' } });
  },
};

it.each(
  Object.entries(WIRES).flatMap(([wire, of]) => ['stored', 'sealed'].map((state) => ({ wire, of, state }))),
)('$wire, $state', { timeout: 60_000 }, async ({ of, state }) => {
  const kind = state as 'stored' | 'sealed';
  // Its first statement is a step; the other only asks.
  const [order, one] = await Promise.all(
    ['order', 'one'].map((tool) =>
      Promise.all(Array.from({ length: OPERATIONS }, (_, lasts) => away(lasts, kind, of(tool)))),
    ),
  );
  expect(order?.[0]).toEqual({ done: [], again: true });
  for (const { done, again } of order ?? []) if (again) expect(done).toEqual([]);
  expect(order?.some(({ done }) => done.includes('charge'))).toBe(true);
  expect(one?.some(({ again }) => again)).toBe(true);
});
