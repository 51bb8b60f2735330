/** The end of a call's time to live, for clients that wait on a stream: a response first, and no 202 for an answer after it. */
import type Keyv from 'keyv';
import { expect, it } from 'vitest';
import { objectOf } from '../../src/base/values.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { flakyStore } from '../fixtures/flaky-store.ts';
import { answer, asks, begin, call } from './anywhere.ts';
import { filledIn, legacy, oldest, type Script, type TestClient } from './clients.ts';
import { SECRET, type Served, serveHere } from './harness.ts';

const serve = (done: string[] = []): Promise<Served> =>
  serveHere(() => buildServer((effect) => done.push(effect)), { ttl: 1_500 });

it.each<[string, (served: Served, script: Script) => Promise<TestClient>]>([
  ['2025-11-25', (served, script) => legacy(served.url, script)],
  ['2024-11-05', (served, script) => oldest(new URL('/sse', served.url).href, script)],
])('%s: a client that waits is told, with the steps that are done', async (_revision, connect) => {
  const done: string[] = [];
  const served = await serve(done);
  const client = await connect(served, {
    // Its user never answers.
    answer: (params) => (params.message === 'address?' ? new Promise(() => {}) : filledIn(params)),
  });
  await expect(client.tool('order')).rejects.toThrow(/has expired.* Completed steps: charge/);
  expect(done).toEqual(['charge']);
  await client.close();
  await served.close();
});

it('2025-11-25: an answer that comes later is refused with the reason', async () => {
  const served = await serve();
  const session = await begin([served]);
  const stream = await session.post(0, call('one'));
  const ask = await stream.next(asks('name'));
  const { error } = await stream.next(({ id }) => id === 7);
  expect(error?.message).toContain('has expired');
  const late = await session.post(0, answer(ask, 'name'));
  expect(late.status).toBe(400);
  await expect.poll(() => late.text).toContain('the call that asked has expired');
  await served.close();
});

it('2025-11-25: a client that waits for a task is told, though the store was away as its time ended', async () => {
  const flaky = flakyStore();
  const served = await serveHere(() => buildServer(() => {}), {
    store: flaky.store,
    secrets: [SECRET],
    ttl: 2_000,
    tasks: () => 'now',
  });
  const session = await begin([served]);
  const { id, params, ...message } = call('one');
  const creating = { ...message, id: 'task', params: { ...params, task: { ttl: 60_000 } } };
  const created = await (await session.post(0, creating)).next(({ id }) => id === 'task');
  const { taskId } = objectOf(created.result?.task);
  const stream = await session.post(0, { ...message, id, method: 'tasks/result', params: { taskId } });
  await stream.next(asks('name'));
  flaky.fail = 'all';
  await new Promise((resolve) => setTimeout(resolve, 3_000));
  flaky.fail = undefined;
  const { error } = await stream.next(({ id: answered }) => answered === id);
  expect(error?.message).toContain('expired');
  await served.close();
});

it('2025-11-25: a client that came back to another process is told, where the owner can tell nobody', async () => {
  const records = new Map<string, string>();
  const own = flakyStore(records);
  const serveOn = (store: Keyv): Promise<Served> =>
    serveHere(() => buildServer(() => {}), {
      store,
      secrets: [SECRET],
      ttl: 2_000,
      limits: { lease: 60_000 },
    });
  const servers = [await serveOn(own.store), await serveOn(flakyStore(records).store)];
  const session = await begin(servers);
  const stream = await session.post(0, call('one'));
  await stream.next(asks('name'));
  // As if it were stopped.
  own.fail = 'all';
  const resumed = await session.get(1, stream.last);
  await expect.poll(() => resumed.over, { timeout: 8_000 }).toBe(true);
  expect(resumed.messages.filter(({ id }) => id === 7).map(({ error }) => error?.message)).toEqual([
    expect.stringContaining('has expired'),
  ]);
  own.fail = undefined;
  await Promise.all(servers.map((served) => served.close()));
});
