/** Two proxies with a relay: a client's calls go to the process that has its server, whichever proxy they reach. */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import Keyv from 'keyv';
import { afterEach, describe, expect, it } from 'vitest';
import type { Limits } from '../../src/call/limits.ts';
import { openStore } from '../../src/checkpoint/open-store.ts';
import { memoryRelay, type Relay, stdioHost } from '../../src/index.ts';
import { natsRelay } from '../../src/relay/nats.ts';
import { SHORT } from '../short.ts';
import { accept, legacy, legacyOver, modern, post, textOf } from './clients.ts';
import { balance, SECRET, type Served, scratch, serveHere } from './harness.ts';
import { effectsFile, isAlive, PYTHON, type RunningProxy, startProxy } from './proxied.ts';
import { NATS, NATS_URL, REDIS, redisDatabase } from './services.ts';

const [command = '', ...args] = PYTHON;
const open: { close(): Promise<unknown> }[] = [];
afterEach(async () => {
  for (const one of open.splice(0).reverse()) await one.close();
});

/** Two handlers over one store and one relay, and a balancer that sends each request to the other one. */
async function pair(drain = 300, relay: Relay = memoryRelay(), limits: Partial<Limits> = {}) {
  const [effects, pids] = [effectsFile(), effectsFile()];
  const file = join(scratch(), 'calls.db');
  const serve = async (): Promise<Served> =>
    serveHere(stdioHost({ command, args, env: { EFFECTS: effects.path, PIDS: pids.path } }), {
      store: await openStore(`sqlite://${file}`),
      relay,
      secrets: [SECRET],
      limits: { drain, lease: 1_000, ...limits },
    });
  const [one, two] = [await serve(), await serve()];
  const balancer = await balance([one.url, two.url]);
  open.push(one, two, balancer);
  return { one, two, url: balancer.url, effects, pids };
}

const ANN = { authorization: 'Bearer ann' };

describe('with a relay', () => {
  it('a session has one process, whose memory all its calls share', async () => {
    const { url, pids } = await pair();
    const [ann, bob] = [await legacy(url), await legacy(url)];
    const counts = [];
    for (let n = 0; n < 4; n += 1) counts.push(await ann.tool('count'));
    expect(counts).toEqual(['1', '2', '3', '4']);
    expect(await bob.tool('count')).toBe('1');
    expect(pids.lines()).toHaveLength(2);
    await ann.close();
    await bob.close();
  });

  it('so has a known caller of 2026-07-28', async () => {
    const { one, two, pids } = await pair();
    const pidAt = async ({ url }: Served): Promise<string> =>
      textOf(await post(url, { tool: 'pid', headers: ANN }));
    expect(await pidAt(one)).toBe(await pidAt(two));
    expect(pids.lines()).toHaveLength(1);
  });

  it.each([
    ['2026-07-28', modern],
    ['2025-11-25', legacy],
  ] as const)('calls ask, report and end wherever their requests go, on %s', async (_revision, connect) => {
    const { url, effects, pids } = await pair();
    const client = await connect(url);
    for (let n = 0; n < 2; n += 1) {
      expect(await client.tool('order')).toBe('its name of its city');
      expect(await client.tool('progress')).toBe('done');
      expect(await client.prompt('greeting')).toBe('Greet its name');
    }
    expect(client.progressed).toEqual([1, 2, 1, 2]);
    expect(effects.lines()).toEqual(['order', 'ship', 'order', 'ship']);
    expect(pids.lines()).toHaveLength(1);
    await client.close();
  });

  it('a call that waits at one proxy continues in its process when its answer comes to the other', async () => {
    const { one, two, effects } = await pair();
    const first = await post(one.url, { tool: 'order', headers: ANN });
    const answer = { tool: 'order', headers: ANN };
    const second = await post(two.url, {
      ...answer,
      state: first.state,
      responses: accept(first.keys, { name: 'Ann' }),
    });
    const done = await post(two.url, {
      ...answer,
      state: second.state,
      responses: accept(second.keys, { city: 'Rome' }),
    });
    expect(textOf(done)).toBe('Ann of Rome');
    expect(effects.lines()).toEqual(['order', 'ship']);
  });

  it('calls of two proxies take turns in the one process', async () => {
    const { one, two } = await pair();
    const first = await post(one.url, { tool: 'greet', headers: ANN });
    const waiting = post(two.url, { tool: 'pid', headers: ANN });
    const done = await post(one.url, {
      tool: 'greet',
      headers: ANN,
      state: first.state,
      responses: accept(first.keys, { name: 'Ann' }),
    });
    expect(textOf(done)).toBe('Hello Ann');
    expect(textOf(await waiting)).toMatch(/^\d+$/);
  });

  it('cancels at the process what its client cancels at the other proxy', async () => {
    const { one, two, effects } = await pair();
    await post(one.url, { tool: 'pid', headers: ANN });
    const abort = new AbortController();
    const call = post(two.url, { tool: 'slow', headers: ANN, signal: abort.signal });
    await expect.poll(effects.lines).toContain('slow begins');
    abort.abort();
    await expect(call).rejects.toThrow();
    await expect.poll(effects.lines).toContain('cancelled');
  });

  it.each([
    ['runs again where it may', 'greet', /"Hello Ann"/],
    ['ends with an error where it may not', 'order', /may not be run again/],
  ])('a call whose process goes with its proxy %s', async (_what, tool, told) => {
    const { one, two, effects } = await pair();
    await post(one.url, { tool: 'pid', headers: ANN });
    const first = await post(two.url, { tool, headers: ANN });
    expect(effects.lines()).toEqual([tool]);
    await one.handler.close();
    const responses = accept(first.keys, { name: 'Ann' });
    const then = await post(two.url, { tool, headers: ANN, state: first.state, responses });
    expect(JSON.stringify(then.message)).toMatch(told);
    expect(effects.lines()).toEqual(tool === 'greet' ? [tool, tool] : [tool]);
  });

  it('a session that is idle in the process of its server keeps it for a call at the other', async () => {
    const { one, two, effects, pids } = await pair(300, memoryRelay(), { sessionIdle: 500 });
    const transport = new StreamableHTTPClientTransport(new URL(two.url), {
      fetch: (_url, init) => fetch(String(init?.body).includes('"initialize"') ? one.url : two.url, init),
    });
    const client = await legacyOver(transport);
    expect(await client.tool('slow', { seconds: 4 })).toBe('rested');
    expect(effects.lines()).toEqual(['slow begins', 'slow ends']);
    await client.close();
    // Its session has ended at both proxies, so the server's process ends.
    await expect.poll(() => pids.lines().map(Number).filter(isAlive)).toEqual([]);
    expect(pids.lines()).toHaveLength(1);
  });

  it('a process that leaves runs the calls of others to their end, and takes no more', async () => {
    const { one, two, effects } = await pair(10_000);
    const pid = await post(one.url, { tool: 'pid', headers: ANN });
    expect(textOf(await post(two.url, { tool: 'pid', headers: ANN }))).toBe(textOf(pid));
    const slow = { tool: 'slow', headers: ANN };
    // The second one waits for its turn, and may begin in another process.
    const calls = [post(two.url, slow), post(two.url, slow)];
    await expect.poll(effects.lines).toContain('slow begins');
    await one.handler.close();
    for (const call of calls) expect(textOf(await call)).toBe('rested');
    expect(effects.lines()).toEqual(['slow begins', 'slow ends', 'slow begins', 'slow ends']);
    expect(textOf(await post(two.url, { tool: 'pid', headers: ANN }))).not.toBe(textOf(pid));
  });

  it('a call that waits for its turn as its process leaves goes on in another one', async () => {
    const { one, two } = await pair();
    expect((await post(one.url, { tool: 'order', headers: ANN })).keys).toHaveLength(1);
    const call = { tool: 'pid', headers: ANN };
    const waiting = post(one.url, call);
    await expect.poll(() => one.handler.counters.calls).toBe(2);
    await one.handler.leave();
    const { state, keys } = await waiting;
    expect(keys).toEqual([]);
    expect(state).not.toBe('');
    expect(textOf(await post(two.url, { ...call, state }))).toMatch(/^\d+$/);
  });

  it('a process that leaves lets go of others that have no call, and serves its own', async () => {
    const { one, two } = await pair(10_000);
    const at = async ({ url }: Served): Promise<string> =>
      textOf(await post(url, { tool: 'pid', headers: ANN }));
    const pid = await at(one);
    expect(await at(two)).toBe(pid);
    await one.handler.leave();
    expect(await at(one)).toBe(pid);
    const other = await at(two);
    expect(other).not.toBe(pid);
    await one.handler.close();
    expect(await at(two)).toBe(other);
  });

  it('a relay that does not answer holds no call up', async () => {
    const silent: Relay = { ...memoryRelay(), send: () => new Promise(() => {}) };
    const { one, two, pids } = await pair(300, silent);
    for (const { url } of [one, two]) await post(url, { tool: 'pid', headers: ANN });
    expect(pids.lines()).toHaveLength(2);
  });

  it.each(['fails', 'hears nobody', 'loses all', 'loses half of all', 'delays and doubles'] as const)(
    'a call goes on in the process of another proxy while the relay %s',
    async (fault) => {
      const memory = memoryRelay();
      let how: typeof fault | undefined;
      const relay: Relay = {
        ...memory,
        async send(name, message) {
          if (how === 'fails') throw new Error('the connection is closed');
          if (how === 'hears nobody') return false;
          if (how === 'loses all' || (how === 'loses half of all' && Math.random() < 0.5)) return true;
          if (how !== 'delays and doubles') return memory.send(name, message);
          for (const after of [Math.random() * 500, 600])
            setTimeout(() => void memory.send(name, message), after);
          return true;
        },
      };
      const { one, two, effects, pids } = await pair(300, relay);
      const work = { tool: 'slow', headers: ANN };
      await post(one.url, { tool: 'pid', headers: ANN });
      const call = post(two.url, work);
      await expect.poll(effects.lines).toContain('slow begins');
      how = fault;
      await expect.poll(effects.lines).toContain('slow ends');
      await sleep(1_500);
      if (fault !== 'loses half of all' && fault !== 'delays and doubles') how = undefined;
      expect(textOf(await call)).toBe('rested');
      expect(textOf(await post(two.url, work))).toBe('rested');
      expect(effects.lines()).toEqual(['slow begins', 'slow ends', 'slow begins', 'slow ends']);
      expect(pids.lines()).toHaveLength(1);
    },
  );

  it('shares servers again after a relay that was away as its first client came', async () => {
    const memory = memoryRelay();
    const heard: string[] = [];
    let isAway = true;
    const away = async (): Promise<never> => {
      throw new Error('the connection is closed');
    };
    const relay: Relay = {
      ...memory,
      async listen(name, hear) {
        if (isAway) return away();
        heard.push(name);
        return memory.listen(name, hear);
      },
      send: (name, message) => (isAway ? away() : memory.send(name, message)),
    };
    const { one, two, pids } = await pair(300, relay);
    const pid = async ({ url }: Served, name: string): Promise<string> =>
      textOf(await post(url, { tool: 'pid', headers: { authorization: `Bearer ${name}` } }));
    const ann = await pid(one, 'ann');
    isAway = false;
    // The client that came meanwhile, too.
    await expect.poll(() => heard).toContainEqual(expect.stringMatching(/^server\./));
    expect(await pid(two, 'ann')).toBe(ann);
    const bob = await pid(two, 'bob');
    expect(await pid(one, 'bob')).toBe(bob);
    expect(pids.lines()).toEqual([ann, bob]);
  });

  it('servers of another command behind the same relay are not taken for this one', async () => {
    const relay = memoryRelay();
    const options = { store: new Keyv(), relay, secrets: [SECRET] };
    const plain = await serveHere(stdioHost({ command, args }), options);
    const other = await serveHere(stdioHost({ command, args: [...args, 'other'] }), options);
    open.push(plain, other);
    const pidAt = async ({ url }: Served): Promise<string> =>
      textOf(await post(url, { tool: 'pid', headers: ANN }));
    expect(await pidAt(plain)).not.toBe(await pidAt(other));
  });
});

describe.skipIf(SHORT || REDIS.down)(`over ${REDIS.name}`, () => {
  it('two proxies share a process, and the one that is left starts another when its owner is killed', async () => {
    const url = redisDatabase(9);
    const pids = effectsFile();
    const start = (): Promise<RunningProxy> =>
      startProxy(PYTHON, ['--store', url, '--relay', url, '--log', 'error'], { PIDS: pids.path });
    const [one, two] = [await start(), await start()];
    open.push({ close: () => one.stop() }, { close: () => two.stop() });
    const pidAt = async (proxy: RunningProxy): Promise<string> =>
      textOf(await post(proxy.url, { tool: 'pid' }));
    const pid = await pidAt(one);
    expect(await pidAt(two)).toBe(pid);
    await one.stop('SIGKILL');
    // The relay may not know yet that it is gone.
    const next = await pidAt(two);
    expect(next).toMatch(/^\d+$/);
    expect(next).not.toBe(pid);
  });
});

describe.skipIf(NATS.down)(`over ${NATS.name}`, () => {
  it('a call and its result may be longer than the server takes in one message', async () => {
    const pids = effectsFile();
    const store = new Keyv();
    const serve = async (): Promise<Served> => {
      const host = stdioHost({ command, args, env: { PIDS: pids.path } });
      const served = await serveHere(host, { store, relay: natsRelay(NATS_URL), secrets: [SECRET] });
      open.push(served);
      return served;
    };
    const [one, two] = [await serve(), await serve()];
    await post(one.url, { tool: 'pid', headers: ANN });
    const long = 'x'.repeat(2_500_000);
    const reply = await post(two.url, { tool: 'echo', args: { text: long }, headers: ANN });
    expect(textOf(reply) === long).toBe(true);
    expect(pids.lines()).toHaveLength(1);
  });
});
