/** A store that is down: requests wait for it, and an error, where there is one, tells nothing secret. */

import { afterEach, describe, expect, it } from 'vitest';
import { openStore } from '../../src/checkpoint/open-store.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { type Flaky, flakyStore } from '../fixtures/flaky-store.ts';
import { tcpProxy } from '../fixtures/tcp-proxy.ts';
import { accept, post, type RawCall, type RawReply, textOf } from './clients.ts';
import { CELLS, optionsOf, SECRET, type Served, serveHere } from './harness.ts';
import { REDIS, REDIS_URL } from './services.ts';

let served: Served;
afterEach(() => served.close());

function isDown(reply: RawReply): void {
  expect(reply.message.error?.code).toBe(-32603);
  expect(reply.text).not.toMatch(/hunter2|10\.0\.0\.7|redis|mcp-await:/i);
}

/** The line about the outage. */
function outage({ log }: Served) {
  return log.lines.find(({ level, detail }) => level === 'warn' && detail.code === 'store');
}

describe.each(CELLS)('a store that fails ($name)', (cell) => {
  const done: string[] = [];
  let flaky: Flaky;

  /** The order's first question, and the POST that answers it. */
  const begin = async (): Promise<RawCall> => {
    done.length = 0;
    flaky = flakyStore();
    const options = optionsOf(cell);
    const limits = { ...options.limits, lease: 400 };
    served = await serveHere(() => buildServer((effect) => done.push(effect)), {
      ...options,
      limits,
      store: flaky.store,
    });
    const { state, keys } = await post(served.url, { tool: 'order' });
    return { tool: 'order', state, responses: accept(keys, { address: 'Main St' }) };
  };
  /** Sends a POST to a store that fails, and mends the store once that is in the log. */
  const through = async (retry: RawCall): Promise<RawReply> => {
    const reply = post(served.url, retry);
    await expect.poll(() => outage(served)).toBeDefined();
    expect(String(outage(served)?.detail.cause)).toContain('//***@10.0.0.7:6379');
    flaky.fail = undefined;
    return reply;
  };
  const finish = async (second: RawReply): Promise<void> => {
    expect(second.keys).toHaveLength(1);
    const responses = accept(second.keys, { name: 'Ann' });
    const last = await post(served.url, { tool: 'order', state: second.state, responses });
    expect(textOf(last)).toBe('Ann, Main St, 43');
    expect(done).toEqual(['charge', 'ship', 'finally']);
  };

  it('as the first question is to be kept, for longer than a request waits', async () => {
    await begin();
    flaky.fail = 'suspended';
    isDown(await post(served.url, { tool: 'one' }));
    const [line] = served.log.lines.filter(({ level }) => level === 'error');
    expect(line?.detail.code).toBe('store');
    expect(String(line?.detail.cause)).toContain('//***@10.0.0.7:6379');
    flaky.fail = undefined;
    expect((await post(served.url, { tool: 'one' })).keys).toHaveLength(1);
  });

  it.each([false, true])('altogether, as the answer comes (written all the same: %s)', async (late) => {
    const retry = await begin();
    flaky.fail = 'all';
    flaky.late = late;
    await finish(await through(retry));
  });

  it.each(
    (['claimed', 'suspended', 'completed'] as const).flatMap((entry) => [
      { entry, late: false },
      { entry, late: true },
    ]),
  )('as the entry $entry is to be written (written all the same: $late)', async ({ entry, late }) => {
    const retry = await begin();
    flaky.fail = entry;
    flaky.late = late;
    await finish(await through(retry));
  });

  it('while the client leaves and comes again with the same request', async () => {
    const retry = await begin();
    flaky.fail = 'completed';
    const leaving = new AbortController();
    const left = post(served.url, { ...retry, signal: leaving.signal }).catch(() => undefined);
    await expect.poll(() => outage(served)).toBeDefined();
    leaving.abort();
    await left;
    flaky.fail = undefined;
    await finish(await post(served.url, retry));
  });

  it.each([false, true])('as the result is to be written (written all the same: %s)', async (late) => {
    const retry = await begin();
    const second = await post(served.url, retry);
    const responses = accept(second.keys, { name: 'Ann' });
    flaky.fail = 'ended';
    flaky.late = late;
    const last = await through({ tool: 'order', state: second.state, responses });
    expect(textOf(last)).toBe('Ann, Main St, 43');
    expect(done).toEqual(['charge', 'ship', 'finally']);
  });
});

describe.skipIf(REDIS.down)(`${REDIS.name} behind a connection that is cut`, () => {
  it('answers once it is back', async () => {
    const proxy = await tcpProxy(REDIS_URL);
    const store = await openStore(`redis://127.0.0.1:${proxy.port}`);
    served = await serveHere(() => buildServer(() => {}), { secrets: [SECRET], store });
    const { state, keys } = await post(served.url, { tool: 'one' });
    const retry = { tool: 'one', state, responses: accept(keys, { name: 'Ann' }) };
    await proxy.cut();
    const reply = post(served.url, retry);
    await expect.poll(() => outage(served)).toBeDefined();
    await proxy.mend();
    expect(textOf(await reply)).toBe('Hello Ann');
    await store.disconnect();
    await proxy.cut();
  });
});
