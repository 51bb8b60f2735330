/** Two proxies on one store without a relay: each has a process of its own for a client, and its own queue for it. */
import { afterEach, describe, expect, it } from 'vitest';
import { accept, post, type RawReply, textOf } from './clients.ts';
import { effectsFile, isAlive, node, PYTHON, type RunningProxy, startProxy } from './proxied.ts';
import { REDIS, redisDatabase } from './services.ts';

const open: RunningProxy[] = [];
afterEach(() => Promise.all(open.splice(0).map((proxy) => proxy.stop('SIGKILL'))));

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
    await expect.poll(() => isAlive(Number(first)), { timeout: 10_000 }).toBe(false);
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
