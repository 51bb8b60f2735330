/** Calls of one proxy in the process of another, whose proxy is killed, closed, or gives up on an ask. */
import { randomUUID } from 'node:crypto';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import Keyv from 'keyv';
import { afterEach, describe, expect, it } from 'vitest';
import type { Relay } from '../../src/call/ports.ts';
import { memoryRelay, stdioHost } from '../../src/index.ts';
import { accept, legacyOver, post, textOf } from './clients.ts';
import { SECRET, type Served, serveHere } from './harness.ts';
import { effectsFile, node, PYTHON, type RunningProxy, startProxy } from './proxied.ts';
import { NATS, NATS_URL, REDIS, redisDatabase } from './services.ts';

const open: { close(): Promise<unknown> }[] = [];
afterEach(async () => {
  for (const one of open.splice(0).reverse()) await one.close();
});

const ANSWERED = /"Hello Ann"/;
const REFUSED = /may not be run again from its start.*elicitation\/create/;

/** A session that begins at one process; all its later requests go to the other one. */
function movingTo(one: string, two: string): Transport {
  const transport = new StreamableHTTPClientTransport(new URL(two), {
    fetch: (_url, init) => fetch(String(init?.body ?? '').includes('"initialize"') ? one : two, init),
  });
  return transport as Transport;
}

describe.each([
  [REDIS.name, REDIS.down, redisDatabase(10)],
  [NATS.name, REDIS.down || NATS.down, NATS_URL],
])('over %s, where the proxy that has the process is killed', (_name, isDown, relay) => {
  /** Two proxies that share the process of the first, and what kills that. */
  const pair = async () => {
    const [effects, pids] = [effectsFile(), effectsFile()];
    const start = async (): Promise<RunningProxy> => {
      const env = { EFFECTS: effects.path, PIDS: pids.path };
      const options = ['--store', redisDatabase(10), '--relay', relay, '--log', 'error'];
      const proxy = await startProxy([...PYTHON, randomTag], options, env);
      open.push({ close: () => proxy.stop() });
      return proxy;
    };
    const randomTag = randomUUID();
    const [one, two] = [await start(), await start()];
    expect(textOf(await post(one.url, { tool: 'pid' }))).toMatch(/^\d+$/);
    return { one, two, effects, kill: () => one.stop('SIGKILL') };
  };

  it.skipIf(isDown)('a call that comes then runs', async () => {
    const { two, kill } = await pair();
    expect(textOf(await post(two.url, { tool: 'count' }))).toBe('1');
    await kill();
    expect(textOf(await post(two.url, { tool: 'count' }))).toBe('1');
  });

  it.skipIf(isDown)('a call that waited there for its turn runs', async () => {
    const { one, two, kill } = await pair();
    expect((await post(one.url, { tool: 'greet' })).keys).toHaveLength(1);
    const waiting = post(two.url, { tool: 'count' });
    // The later of two messages is answered: the earlier one has arrived.
    expect((await post(two.url, { method: 'tools/list' })).message.result?.tools).toHaveLength(1);
    await kill();
    expect(textOf(await waiting)).toBe('1');
  });

  it.skipIf(isDown).each([
    ['runs again where it may', 'greet', ANSWERED, ['greet', 'greet']],
    ['ends with an error that names its ask where it may not', 'order', REFUSED, ['order']],
  ])('a call that was asked about %s', async (_what, tool, told, ran) => {
    const { two, effects, kill } = await pair();
    const first = await post(two.url, { tool });
    await kill();
    const responses = accept(first.keys, { name: 'Ann' });
    const then = await post(two.url, { tool, state: first.state, responses });
    const text = JSON.stringify(then.message);
    expect(text).toMatch(told);
    if (told === REFUSED) expect(text).not.toContain('Ann');
    expect(effects.lines()).toEqual(ran);
  });

  it.skipIf(isDown).each([
    ['runs again where it may, and asks nothing twice', 'greet', /^Hello Ann$/, ['greet', 'greet']],
    ['ends with an error where it may not', 'order', /may not be run again/, ['order']],
  ])('a live call of a session %s', async (_what, tool, told, ran) => {
    const { one, two, effects, kill } = await pair();
    const client = await legacyOver(movingTo(one.url, two.url), {
      answer: async () => {
        await kill();
        return { action: 'accept', content: { name: 'Ann' } };
      },
    });
    open.push(client);
    expect(await client.tool(tool).catch(String)).toMatch(told);
    expect(client.asked).toEqual(['name?']);
    expect(effects.lines()).toEqual(ran);
  });
});

it('a process that is ended before its ask times out is not counted as one that died', async () => {
  const effects = effectsFile();
  const [command = '', ...args] = node('stdio-server.mjs', '4000');
  const [store, relay] = [new Keyv(), memoryRelay()];
  const serve = async (): Promise<Served> => {
    const host = stdioHost({ command, args, env: { EFFECTS: effects.path }, askTimeout: 400 });
    const served = await serveHere(host, { store, relay, secrets: [SECRET], limits: { drain: 300 } });
    open.push(served);
    return served;
  };
  const [one, two] = [await serve(), await serve()];
  const client = await legacyOver(movingTo(one.url, two.url), {
    answer: async () => {
      await expect.poll(() => effects.lines().length).toBeGreaterThan(7);
      return { action: 'accept', content: { name: 'Ann' } };
    },
  });
  open.push(client);
  expect(await client.tool('reads')).toBe('Hello Ann');
  expect(client.asked).toEqual(['name?']);
});

/**
 * As Redis and NATS do, it delivers to every listener of a name.
 * @param isApart while it returns true, no process is found that has the child of a client
 */
function broadcast(isApart: () => boolean): Relay {
  const listeners = new Map<string, Set<(message: string) => void>>();
  return {
    async listen(name, hear) {
      const all = listeners.get(name) ?? new Set();
      listeners.set(name, all.add(hear));
      return async () => void all.delete(hear);
    },
    async send(name, message) {
      const all = isApart() && name.startsWith('server.') ? [] : [...(listeners.get(name) ?? [])];
      for (const hear of all) setImmediate(hear, message);
      return all.length > 0;
    },
    close: async () => {},
  };
}

it('where two processes have a server for a client, the one that is not used ends no call', async () => {
  let isApart = true;
  const [store, relay] = [new Keyv(), broadcast(() => isApart)];
  const [command = '', ...args] = PYTHON;
  const effects = effectsFile();
  const serve = async (): Promise<Served> => {
    const host = stdioHost({ command, args, env: { EFFECTS: effects.path } });
    const served = await serveHere(host, { store, relay, secrets: [SECRET], limits: { drain: 300 } });
    open.push(served);
    return served;
  };
  const [one, two, three] = [await serve(), await serve(), await serve()];
  const pidAt = async ({ url }: Served): Promise<string> => textOf(await post(url, { tool: 'pid' }));
  const pids = [await pidAt(one), await pidAt(two)];
  expect(new Set(pids).size).toBe(2);
  isApart = false;
  const used = await pidAt(three);
  const first = await post(three.url, { tool: 'order' });
  await (used === pids[0] ? two : one).handler.close();
  const second = await post(three.url, {
    tool: 'order',
    state: first.state,
    responses: accept(first.keys, { name: 'Ann' }),
  });
  expect(second.keys).toEqual(['town']);
});
