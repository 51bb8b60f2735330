/** A store that is down: an error that tells nothing secret, and the same POST completes later. */

import type { AddressInfo } from 'node:net';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { openStore } from '../../src/checkpoint/open-store.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { type Flaky, flakyStore } from '../fixtures/flaky-store.ts';
import { accept, post, type RawCall, type RawReply, textOf } from './clients.ts';
import { CELLS, optionsOf, SECRET, type Served, serveHere } from './harness.ts';
import { REDIS, REDIS_URL } from './services.ts';

let served: Served;
afterEach(() => served.close());

function isDown(reply: RawReply): void {
  expect(reply.message.error?.code).toBe(-32603);
  expect(reply.text).not.toMatch(/hunter2|10\.0\.0\.7|redis|mcp-await:/i);
}

describe.each(CELLS)('a store that fails ($name)', (cell) => {
  const done: string[] = [];
  let flaky: Flaky;

  /** The order's first question, and the POST that answers it. */
  const begin = async (): Promise<RawCall> => {
    done.length = 0;
    flaky = flakyStore();
    const options = { ...optionsOf(cell), store: flaky.store };
    served = await serveHere(() => buildServer((effect) => done.push(effect)), options);
    const { state, keys } = await post(served.url, { tool: 'order' });
    return { tool: 'order', state, responses: accept(keys, { address: 'Main St' }) };
  };
  const finish = async (second: RawReply): Promise<void> => {
    expect(second.keys).toHaveLength(1);
    const responses = accept(second.keys, { name: 'Ann' });
    const last = await post(served.url, { tool: 'order', state: second.state, responses });
    expect(textOf(last)).toBe('Ann, Main St, 43');
    expect(done.filter((effect) => effect === 'charge')).toHaveLength(1);
    expect(done).not.toContain('catch');
  };
  const theReasonIsLogged = (): void => {
    const [line] = served.log.lines.filter(({ level }) => level === 'error');
    expect(line?.detail.code).toBe('store');
    expect(String(line?.detail.cause)).toContain('//***@10.0.0.7:6379');
  };

  it('as the first question is to be kept', async () => {
    await begin();
    flaky.fail = 'suspended';
    isDown(await post(served.url, { tool: 'one' }));
    theReasonIsLogged();
    flaky.fail = undefined;
    expect((await post(served.url, { tool: 'one' })).keys).toHaveLength(1);
  });

  it('altogether, as the answer comes', async () => {
    const retry = await begin();
    flaky.fail = 'all';
    isDown(await post(served.url, retry));
    isDown(await post(served.url, retry));
    theReasonIsLogged();
    flaky.fail = undefined;
    await finish(await post(served.url, retry));
    expect(done).toEqual(['charge', 'ship', 'finally']);
  });

  it.each(['claimed', 'suspended'] as const)('as the entry %s is to be written', async (entry) => {
    const retry = await begin();
    flaky.fail = entry;
    isDown(await post(served.url, retry));
    theReasonIsLogged();
    flaky.fail = undefined;
    await finish(await post(served.url, retry));
    expect(done).toEqual(['charge', 'ship', 'finally']);
  });

  it.each(['claimed', 'suspended', 'completed'] as const)(
    'after the entry %s was written all the same',
    async (entry) => {
      const retry = await begin();
      flaky.fail = entry;
      flaky.late = true;
      isDown(await post(served.url, retry));
      flaky.fail = undefined;
      await finish(await post(served.url, retry));
      expect(done).toEqual(['charge', 'ship', 'finally']);
    },
  );

  it('as a step is to be recorded: it may run again, the call continues', async () => {
    const retry = await begin();
    flaky.fail = 'completed';
    isDown(await post(served.url, retry));
    theReasonIsLogged();
    flaky.fail = undefined;
    await finish(await post(served.url, retry));
  });

  it.each([false, true])('as the result is to be written (written all the same: %s)', async (late) => {
    const retry = await begin();
    const second = await post(served.url, retry);
    const responses = accept(second.keys, { name: 'Ann' });
    const last = { tool: 'order', state: second.state, responses };
    flaky.fail = 'ended';
    flaky.late = late;
    isDown(await post(served.url, last));
    flaky.fail = undefined;
    expect(textOf(await post(served.url, last))).toBe('Ann, Main St, 43');
    expect(done.filter((effect) => effect !== 'finally')).toEqual(['charge', 'ship']);
  });
});

describe.skipIf(REDIS.down)(`${REDIS.name} behind a connection that is cut`, () => {
  it('answers with an internal error, and continues when it is back', { timeout: 60_000 }, async () => {
    const proxy = await tcpProxy(REDIS_URL);
    const store = await openStore(`redis://127.0.0.1:${proxy.port}`);
    served = await serveHere(() => buildServer(() => {}), { secrets: [SECRET], store });
    const { state, keys } = await post(served.url, { tool: 'one' });
    const retry = { tool: 'one', state, responses: accept(keys, { name: 'Ann' }) };
    await proxy.cut();
    isDown(await post(served.url, retry));
    expect(served.log.lines.some(({ detail }) => detail.code === 'store')).toBe(true);
    await proxy.mend();
    await expect
      .poll(async () => textOf(await post(served.url, retry)), { timeout: 40_000 })
      .toBe('Hello Ann');
    await store.disconnect();
    await proxy.cut();
  });
});

/** Passes bytes on to a server until it is cut, and again once it is mended. */
async function tcpProxy(url: string): Promise<{ port: number; cut(): Promise<void>; mend(): Promise<void> }> {
  const { hostname, port: target } = new URL(url);
  const sockets = new Set<Socket>();
  let server: Server | undefined;
  const open = (port: number): Promise<void> => {
    const listening = createServer((near) => {
      const far = connect(Number(target || 6379), hostname);
      for (const socket of [near, far]) {
        sockets.add(socket);
        socket.on('error', () => {});
        socket.on('close', () => {
          near.destroy();
          far.destroy();
        });
      }
      near.pipe(far).pipe(near);
    });
    server = listening;
    return new Promise((resolve) => listening.listen(port, '127.0.0.1', resolve));
  };
  await open(0);
  if (server === undefined) throw new Error('it was opened');
  const { port } = server.address() as AddressInfo;
  return {
    port,
    mend: () => open(port),
    cut: () =>
      new Promise((resolve) => {
        server?.close(() => resolve());
        for (const socket of sockets) socket.destroy();
        sockets.clear();
      }),
  };
}
