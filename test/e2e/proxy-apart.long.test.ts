/** Two proxies on one store without a relay: each has a process of its own for a client, and its own queue for it. */
import process from 'node:process';
import { setTimeout as pause } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { type Limits, tuned } from '../../src/call/limits.ts';
import { openStore } from '../../src/checkpoint/open-store.ts';
import { stdioHost } from '../../src/index.ts';
import { accept, post, type RawReply, textOf } from './clients.ts';
import { SECRET, type Served, serveHere } from './harness.ts';
import { effectsFile, fixture, isAlive, node, PYTHON, type RunningProxy, startProxy } from './proxied.ts';
import { REDIS, redisDatabase, SQLITE } from './services.ts';

const open: RunningProxy[] = [];
const here: Served[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((proxy) => proxy.stop('SIGKILL')));
  await Promise.all(here.splice(0).map((served) => served.close()));
});

const ann = ({ keys, state }: RawReply) => ({ state, responses: accept(keys, { name: 'Ann' }) });

describe('a call that one proxy asked and the other one continued', () => {
  const start = async (command: readonly string[], options: readonly string[], effects: string) => {
    const shared = ['--store', redisDatabase(10), '--log', 'error', ...options];
    const proxy = await startProxy(command, shared, { EFFECTS: effects });
    open.push(proxy);
    return proxy;
  };

  it.skipIf(REDIS.down).each([
    ['which ended', 'greet', /^Hello Ann$/],
    ['which asks again', 'order', /"town"/],
  ])('frees the process that it waited in: a call %s', async (_what, tool, told) => {
    const effects = effectsFile();
    const options = ['--ask-timeout', '0', '--replay', 'allow'];
    const one = await start(PYTHON, options, effects.path);
    const two = await start(PYTHON, options, effects.path);
    const first = textOf(await post(one.url, { tool: 'pid' }));
    const asked = await post(one.url, { tool });
    const waiting = post(one.url, { tool: 'count' });
    const next = await post(two.url, { tool, ...ann(asked) });
    expect(next.keys.length > 0 ? JSON.stringify(next.keys) : textOf(next)).toMatch(told);
    expect(textOf(await waiting)).toBe('1');
    await expect.poll(() => isAlive(Number(first))).toBe(false);
    expect(effects.lines()).toEqual([tool, tool]);
  });

  it.skipIf(REDIS.down)('runs no catch of its tool, and may be asked there again', async () => {
    const effects = effectsFile();
    const command = node('stdio-server.mjs');
    const [one, two] = [await start(command, [], effects.path), await start(command, [], effects.path)];
    const asked = await post(one.url, { tool: 'reads' });
    const waiting = post(one.url, { tool: 'reads' });
    expect(textOf(await post(two.url, { tool: 'reads', ...ann(asked) }))).toBe('Hello Ann');
    const again = await waiting;
    expect(textOf(await post(one.url, { tool: 'reads', ...ann(again) }))).toBe('Hello Ann');
    expect(effects.lines()).toEqual(['asked', 'asked', 'asked']);
  });

  it.skipIf(REDIS.down)('waits on where it was asked, if the other one may not run it again', async () => {
    const effects = effectsFile();
    const [one, two] = [await start(PYTHON, [], effects.path), await start(PYTHON, [], effects.path)];
    const asked = await post(one.url, { tool: 'order' });
    const refused = await post(two.url, { tool: 'order', ...ann(asked) });
    expect(refused.message.error?.message).toMatch(/may not be run again/);
    const town = await post(one.url, { tool: 'order', ...ann(asked) });
    const responses = accept(town.keys, { city: 'Aix' });
    const order = await post(one.url, { tool: 'order', state: town.state, responses });
    expect(textOf(order)).toBe('Ann of Aix');
    expect(effects.lines()).toEqual(['order', 'ship']);
  });
});

describe('a server that several calls use is free for the next call', () => {
  /** Proxies in this process, each with one server for all of its clients. */
  const start = async (count: number, limits: Partial<Limits> = {}): Promise<string[]> => {
    const place = SQLITE.url();
    for (let nth = 0; nth < count; nth += 1) {
      const [command, args] = [process.execPath, [fixture('stdio-server.mjs')]];
      const host = stdioHost({ command, args, queueWait: 5_000 });
      const store = await openStore(place);
      here.push(await serveHere(host, { store, secrets: [SECRET], instance: 'process', ...tuned(limits) }));
    }
    return here.map(({ url }) => url);
  };

  it('when another process continued a call', async () => {
    const [one = '', two = ''] = await start(2);
    const asked = await post(one, { tool: 'reads' });
    expect(textOf(await post(two, { tool: 'reads', ...ann(asked) }))).toBe('Hello Ann');
    const again = await post(one, { tool: 'reads' });
    expect(textOf(await post(one, { tool: 'reads', ...ann(again) }))).toBe('Hello Ann');
  });

  it('when a call came back to it, and left again', async () => {
    const tool = 'reads-thrice';
    const [one = '', two = ''] = await start(2);
    const first = await post(one, { tool });
    const second = await post(two, { tool, ...ann(first) });
    await pause(1_500);
    const third = await post(one, { tool, ...ann(second) });
    expect(textOf(await post(two, { tool, ...ann(third) }))).toBe('Hello Ann\nHello Ann\nHello Ann');
    expect((await post(one, { tool })).keys).toHaveLength(1);
  });

  it('when a call was dropped that waited for long', async () => {
    const [one = ''] = await start(1, { frameIdle: 200 });
    const asked = await post(one, { tool: 'reads' });
    await expect.poll(() => here[0]?.handler.parked).toBe(0);
    expect(textOf(await post(one, { tool: 'reads', ...ann(asked) }))).toBe('Hello Ann');
  });
});
