/** A store that is away for a moment, for clients that ask live: the call waits for it, and no step is repeated. */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { afterEach, describe, expect, it } from 'vitest';
import { step } from '../../src/index.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { type Flaky, flakyStore } from '../fixtures/flaky-store.ts';
import { answer, asks, begin, call } from './anywhere.ts';
import { filledIn, legacy, oldest, type Script, type TestClient } from './clients.ts';
import { SECRET, type Served, serveHere } from './harness.ts';
import { openSession, resultIn, call as taskCall, until } from './rounds.ts';

let served: Served;
let client: TestClient | undefined;
afterEach(async () => {
  await client?.close();
  client = undefined;
  await served.close();
});

const CLIENTS: readonly [string, (script: Script) => Promise<TestClient>][] = [
  ['2025-11-25', (script) => legacy(served.url, script)],
  ['2024-11-05', (script) => oldest(new URL('/sse', served.url).href, script)],
];
const ENTRIES = (['called', 'asked', 'completed', 'ended', 'all'] as const).flatMap((entry) => [
  { entry, late: false },
  { entry, late: true },
]);

describe.each(CLIENTS)('%s', (_revision, connect) => {
  it.each(ENTRIES)('$entry fails for a moment (written all the same: $late)', async ({ entry, late }) => {
    const done: string[] = [];
    const flaky: Flaky = flakyStore();
    const limits = { lease: 2_000 };
    served = await serveHere(() => buildServer((effect) => done.push(effect)), {
      store: flaky.store,
      secrets: [SECRET],
      limits,
    });
    // As the answer to the first question comes, everything fails; else the entry, from the call's start on.
    const fails = (): void => {
      flaky.late = late;
      flaky.fail = entry;
    };
    client = await connect({
      answer: (params) => {
        if (entry === 'all' && client?.asked.length === 1) fails();
        return filledIn(params);
      },
    });
    if (entry !== 'all') fails();
    const result = client.tool('order');
    await expect
      .poll(() => served.log.lines.some(({ message }) => message.startsWith('the store fails')))
      .toBe(true);
    flaky.fail = undefined;
    expect(await result).toMatch(/^its name, its address, \d+$/);
    expect(done).toEqual(['charge', 'ship', 'finally']);
  });
});

it('2025-11-25: an answer whose POST breaks off while the store fails is appended all the same', async () => {
  const flaky: Flaky = flakyStore();
  served = await serveHere(() => buildServer(() => {}), { store: flaky.store, secrets: [SECRET] });
  const session = await begin([served]);
  const stream = await session.post(0, call('one'));
  const ask = await stream.next(asks('name'));
  flaky.fail = 'all';
  const leaving = new AbortController();
  const body = JSON.stringify({ jsonrpc: '2.0', ...answer(ask, 'name') });
  const { headers } = session;
  const posted = fetch(served.url, { method: 'POST', headers, body, signal: leaving.signal });
  const broken = posted.then(
    () => false,
    () => true,
  );
  await expect.poll(() => served.log.text).toContain('the store fails');
  leaving.abort();
  expect(await broken).toBe(true);
  flaky.fail = undefined;
  const { result } = await stream.next(({ id }) => id === 7);
  expect(JSON.stringify(result)).toContain('Hello its name');
});

it('the owner of a task keeps it while the store takes no writes, though it is read', async () => {
  const done: string[] = [];
  const map = new Map<string, string>();
  const stores = [flakyStore(map), flakyStore(map)] as const;
  const fail = (mode: Flaky['fail']): void => {
    for (const store of stores) store.fail = mode;
  };
  const build = (): McpServer => {
    const server = new McpServer({ name: 'paying', version: '1' });
    server.registerTool('pay', {}, async () => {
      await step('pay', () => {
        done.push('pay');
        // It is done, and cannot be recorded.
        fail('write');
      });
      return { content: [{ type: 'text', text: 'paid' }] };
    });
    return server;
  };
  const serve = ({ store }: Flaky): Promise<Served> =>
    serveHere(build, { store, secrets: [SECRET], limits: { lease: 2_000 }, tasks: () => 'now' });
  const owner = await serve(stores[0]);
  served = await serve(stores[1]);
  const session = await openSession([owner.url, served.url], '2025-11-25');
  const created = await session.post(taskCall('pay', { task: { ttl: 600_000 } }));
  const { taskId } = resultIn(created).task as { taskId: string };
  await expect.poll(() => done).toEqual(['pay']);
  // The other one would take it over.
  await expect.poll(() => served.log.text).toContain('the store fails');
  fail(undefined);
  await until(session, taskId, 'completed', 1);
  expect(done).toEqual(['pay']);
  await owner.close();
});

it('2025-11-25: a process that took a call over goes on with it once the store is back', async () => {
  const done: string[] = [];
  let isClaimed = false;
  let hasClaimed = (): void => {};
  const map = new (class extends Map<string, string> {
    override set(key: string, value: string): this {
      isClaimed ||= value.includes('"type":"claimed"');
      return super.set(key, value);
    }
    override get(key: string): string | undefined {
      // The call is read before its server is made.
      if (isClaimed && key.endsWith(':0')) hasClaimed();
      return super.get(key);
    }
  })();
  const [one, two] = [flakyStore(map), flakyStore(map)];
  const serve = ({ store }: Flaky): Promise<Served> =>
    serveHere(() => buildServer((effect) => done.push(effect)), {
      store,
      secrets: [SECRET],
      limits: { lease: 500 },
    });
  const other = await serve(one);
  served = await serve(two);
  const session = await begin([other, served]);
  const stream = await session.post(0, call('order'));
  await stream.next(asks('address'));
  // This one's process is heard of no more.
  one.fail = 'all';
  hasClaimed = () => {
    two.fail = 'all';
    hasClaimed = () => {};
  };
  const resumed = await session.get(1, stream.last);
  await expect.poll(() => two.fail).toBe('all');
  // For longer than an operation is tried for.
  await new Promise((resolve) => setTimeout(resolve, 2_500));
  two.fail = undefined;
  const ask = await resumed.next(asks('address'));
  await session.post(1, answer(ask, 'address'));
  const second = await resumed.next(asks('name'));
  await session.post(1, answer(second, 'name'));
  const { result } = await resumed.next(({ id }) => id === 7);
  expect(JSON.stringify(result)).toMatch(/its name, its address/);
  expect(done).toEqual(['charge', 'ship', 'finally']);
  one.fail = undefined;
  await other.close();
});
