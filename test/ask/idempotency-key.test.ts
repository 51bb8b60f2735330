/** A first request that comes again under its idempotency key: its tool runs once. */

import {
  Client as ModernClient,
  StreamableHTTPClientTransport as ModernTransport,
} from '@modelcontextprotocol/client';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import * as z from 'zod';
import { systemClock } from '../../src/base/values.ts';
import { tuned } from '../../src/call/limits.ts';
import { KeyvCallStore } from '../../src/checkpoint/call-store.ts';
import { step } from '../../src/index.ts';
import { openStore } from '../../src/store.ts';
import { accept, post, type RawCall, type RawReply, textOf } from '../e2e/clients.ts';
import { OLD_SECRET, SECRET, type Served, serveHere } from '../e2e/harness.ts';
import { REDIS, STORES } from '../e2e/services.ts';
import { tcpProxy } from '../fixtures/tcp-proxy.ts';
import { some } from '../short.ts';

const KEY = 'mcp-await/idempotency-key';
const runs = new Map<string, number>();
const gates = new Map<string, () => void>();

function build(): McpServer {
  const server = new McpServer({ name: 'orders', version: '1' });
  const count = (name: string): number => {
    runs.set(name, (runs.get(name) ?? 0) + 1);
    return runs.get(name) ?? 0;
  };
  const said = (text: string) => ({ content: [{ type: 'text' as const, text }] });
  server.registerTool('order', { inputSchema: { what: z.string() } }, async ({ what }) =>
    said(`order ${count(what)}`),
  );
  server.registerTool('slow', { inputSchema: { what: z.string() } }, async ({ what }) => {
    const nth = count(what);
    await new Promise<void>((resolve) => gates.set(what, resolve));
    return said(`slow ${nth}`);
  });
  server.registerTool('charge', { inputSchema: { what: z.string() } }, async ({ what }) => {
    const nth = await step('charge', () => count(what));
    await step('slow', () => new Promise<void>((resolve) => gates.set(what, resolve)));
    return said(`charged ${nth}`);
  });
  server.registerTool('askSlow', { inputSchema: { what: z.string() } }, async ({ what }) => {
    const requestedSchema = { type: 'object' as const, properties: { yes: { type: 'boolean' as const } } };
    const { content } = await server.server.elicitInput({ message: `Order ${what}?`, requestedSchema });
    const nth = count(what);
    await new Promise<void>((resolve) => gates.set(what, resolve));
    return said(`asked ${nth} ${content?.yes}`);
  });
  server.registerTool('both', { inputSchema: { what: z.string() } }, async ({ what }) => {
    const requestedSchema = { type: 'object' as const, properties: { yes: { type: 'boolean' as const } } };
    const ask = (message: string) => server.server.elicitInput({ message, requestedSchema });
    const [first, second] = [ask(`First ${what}?`), ask(`Second ${what}?`)];
    await first;
    await step('between', () => count(what));
    return said(`both ${count(what)} ${(await second).content?.yes}`);
  });
  server.registerTool('ask', { inputSchema: { what: z.string() } }, async ({ what }) => {
    const requestedSchema = { type: 'object' as const, properties: { yes: { type: 'boolean' as const } } };
    const { content } = await server.server.elicitInput({ message: `Order ${what}?`, requestedSchema });
    return said(`asked ${count(what)} ${content?.yes}`);
  });
  return server;
}

interface Caller {
  readonly asked: string[];
  call(tool: string, what: string, key?: string): Promise<string>;
  close(): Promise<void>;
}

async function open(
  kind: '2025-11-25' | '2026-07-28',
  url: string,
  who = 'ann',
  header?: string,
): Promise<Caller> {
  const asked: string[] = [];
  const requestInit = {
    headers: {
      ...(who !== '' && { authorization: `Bearer ${who}` }),
      ...(header && { 'idempotency-key': header }),
    },
  };
  const capabilities = { elicitation: { form: {} } };
  const info = { name: 'gateway', version: '1' };
  const yes = (message: string) => {
    asked.push(message);
    return { action: 'accept' as const, content: { yes: true } };
  };
  let client: Client | ModernClient;
  if (kind === '2025-11-25') {
    client = new Client(info, { capabilities });
    client.setRequestHandler(ElicitRequestSchema, ({ params }) => yes(params.message));
    await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }) as Transport);
  } else {
    client = new ModernClient(info, { capabilities, versionNegotiation: { mode: { pin: '2026-07-28' } } });
    client.setRequestHandler('elicitation/create', ({ params }) => yes(params.message));
    await client.connect(new ModernTransport(new URL(url), { requestInit }));
  }
  return {
    asked,
    async call(name, what, key) {
      const params = { name, arguments: { what }, ...(key !== undefined && { _meta: { [KEY]: key } }) };
      const { content } = (await client.callTool(params)) as { content: { text: string }[] };
      return content.map(({ text }) => text).join();
    },
    close: () => client.close(),
  };
}

describe.each(some(STORES.filter(({ down }) => !down)))('an idempotency key with $name', (service) => {
  let one: Served;
  let two: Served;
  beforeAll(async () => {
    const url = service.url();
    const options = async () => ({
      audience: `keys ${Date.now()}`,
      secrets: [SECRET],
      store: await openStore(url),
    });
    const audience = (await options()).audience;
    one = await serveHere(build, { ...(await options()), audience });
    two = await serveHere(build, { ...(await options()), audience });
  });
  afterAll(() => Promise.all([one.close(), two.close()]));

  it('names one call for two processes in the middle of a rotation', async () => {
    const audience = `rotation ${Date.now()}`;
    const url = service.url();
    const served: Served[] = [];
    for (const secrets of [
      [SECRET, OLD_SECRET],
      [OLD_SECRET, SECRET],
    ])
      served.push(
        await serveHere(build, {
          audience,
          secrets,
          store: await openStore(url),
          principal: () => 'ann',
        }),
      );
    for (let nth = 0; nth < 30; nth += 1) {
      const what = `rotated ${nth} ${service.name}`;
      const headers = { authorization: 'Bearer ann', 'idempotency-key': what };
      const replies = await Promise.all(
        served.map(({ url }) => post(url, { tool: 'order', args: { what }, headers })),
      );
      expect(replies.map(textOf)).toEqual(['order 1', 'order 1']);
    }
    await Promise.all(served.map((one) => one.close()));
  });

  it('begins no second call once its outcome had to make room, in the process that began it or not', async () => {
    const audience = `evicted ${Date.now()}`;
    const url = service.url();
    const options = async () => ({
      secrets: [SECRET],
      store: await openStore(url),
      audience,
      ...tuned({ lease: 300, callerStoredBytes: 60_000 }),
    });
    const [began, ended] = [await serveHere(build, await options()), await serveHere(build, await options())];
    const send = (at: Served, tool: string, what: string, key: string, more: RawCall = {}) =>
      post(at.url, {
        tool,
        args: { what },
        ...more,
        headers: { authorization: 'Bearer ann', 'idempotency-key': key },
      });
    const own = `kept ${service.name}`;
    expect(textOf(await send(ended, 'order', own, 'own'))).toBe('order 1');
    const others = `kept too ${service.name}`;
    const first = await send(began, 'ask', others, 'others');
    const answers = { state: first.state, responses: accept(first.keys, { yes: true }) };
    expect(textOf(await send(ended, 'ask', others, 'others', answers))).toBe('asked 1 true');
    const jump = vi.spyOn(systemClock, 'elapsed');
    // Outcomes are sent again for ten minutes; those that are older make room for others.
    for (const minutes of [11, 22]) {
      jump.mockImplementation(() => performance.now() + minutes * 60_000);
      for (let nth = 0; nth < 30; nth += 1)
        await send(
          ended,
          'order',
          `${'x'.repeat(2_000)} ${minutes} ${nth} ${service.name}`,
          `${minutes} ${nth}`,
        );
    }
    jump.mockImplementation(() => performance.now() + 33 * 60_000);
    for (const at of [began, ended]) {
      expect((await send(at, 'order', own, 'own')).message.error?.message).toMatch(
        /its outcome was not kept/,
      );
      expect((await send(at, 'ask', others, 'others')).message.error?.message).toMatch(
        /its outcome was not kept/,
      );
    }
    jump.mockRestore();
    expect([runs.get(own), runs.get(others)]).toEqual([1, 1]);
    await Promise.all([began.close(), ended.close()]);
  });

  it.each([
    ['ask', 'asked 1 true'],
    ['both', 'both 2 true'],
  ])('waits for the client that can be asked, where another request’s cannot: %s', async (name, text) => {
    const requestInit = { headers: { authorization: 'Bearer ann' } };
    const connect = async (url: string, capabilities: object): Promise<Client> => {
      const client = new Client({ name: 'gateway', version: '1' }, { capabilities });
      await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }) as Transport);
      return client;
    };
    const [first, second] = [await connect(one.url, { elicitation: {} }), await connect(two.url, {})];
    const answers: (() => void)[] = [];
    first.setRequestHandler(
      ElicitRequestSchema,
      () =>
        new Promise((resolve) => answers.push(() => resolve({ action: 'accept', content: { yes: true } }))),
    );
    const call = { name, arguments: { what: `${name} ${service.name}` }, _meta: { [KEY]: name } };
    const outcomes = [first.callTool(call)];
    await expect.poll(() => answers.length).toBe(name === 'both' ? 2 : 1);
    outcomes.push(second.callTool(call));
    for (const answer of answers) {
      await new Promise((resolve) => setTimeout(resolve, 1_500));
      answer();
    }
    for (const { content } of await Promise.all(outcomes)) expect(content).toMatchObject([{ text }]);
    await Promise.all([first.close(), second.close()]);
  });

  it('names another call once its call is over, and that one as long', async () => {
    const ttl = 600_000;
    const audience = `over ${Date.now()}`;
    const jump = vi.spyOn(KeyvCallStore.prototype, 'time').mockImplementation(() => Date.now());
    const store = await openStore(service.url());
    const served = await serveHere(build, { secrets: [SECRET], store, audience, ttl });
    const what = `again ${service.name}`;
    const headers = { authorization: 'Bearer ann', 'idempotency-key': what };
    const send = (more: RawCall = {}) =>
      post(served.url, { tool: 'order', args: { what }, headers, ...more });
    const ids: string[] = [];
    // A row of keys lasts for two times `ttl`, and each call for one.
    for (const [nth, minutes] of [0, 11, 22].entries()) {
      jump.mockImplementation(() => Date.now() + minutes * 60_000);
      expect([textOf(await send()), textOf(await send())]).toEqual([`order ${nth + 1}`, `order ${nth + 1}`]);
      if (service.name === 'Redis') continue;
      const keys: string[] = [];
      for await (const [key] of store.iterator?.(store.namespace) ?? []) keys.push(key);
      ids.push(...keys);
    }
    // No record is of a call that was over as it began: a sweeper deletes those.
    const now = Date.now() + 22 * 60_000;
    const calls = ids.filter((id) => id.includes('~:0'));
    expect(
      calls.length === 0 || calls.some((id) => Number.parseInt(id.replace(/^.*mcp-await:/, ''), 36) > now),
    ).toBe(true);
    jump.mockRestore();
    await served.close();
  });

  describe.each(['2025-11-25', '2026-07-28'] as const)('%s', (kind) => {
    const of = (name: string): string => `${name} ${kind} ${service.name}`;

    it('gives the same outcome to each request, at any process, and refuses other arguments', async () => {
      const [here, there] = [await open(kind, one.url), await open(kind, two.url)];
      expect(await here.call('order', of('a'), of('k'))).toBe('order 1');
      expect(await there.call('order', of('a'), of('k'))).toBe('order 1');
      expect(await here.call('order', of('a'))).toBe('order 2');
      await expect(there.call('order', of('b'), of('k'))).rejects.toThrow(
        'this idempotency key names a call',
      );
      await expect(there.call('slow', of('a'), of('k'))).rejects.toThrow('this idempotency key names a call');
      await Promise.all([here.close(), there.close()]);
    });

    it('refuses a key that is none, since its call would run twice', async () => {
      const here = await open(kind, one.url);
      for (const wrong of ['', 'x'.repeat(257), 7])
        await expect(here.call('order', of('w'), wrong as string)).rejects.toThrow(
          'an idempotency key is a text',
        );
      expect(runs.has(of('w'))).toBe(false);
      await here.close();
    });

    it('takes the header too, and is another caller’s own', async () => {
      const here = await open(kind, one.url, 'ann', of('h'));
      const again = await open(kind, two.url, 'ann', of('h'));
      const other = await open(kind, two.url, 'bob', of('h'));
      expect(await here.call('order', of('c'))).toBe('order 1');
      expect(await again.call('order', of('c'))).toBe('order 1');
      expect(await other.call('order', of('c'))).toBe('order 2');
      await Promise.all([here.close(), again.close(), other.close()]);
    });

    it('is nothing to an anonymous caller', async () => {
      const here = await open(kind, one.url, '');
      expect(await here.call('order', of('d'), of('n'))).toBe('order 1');
      expect(await here.call('order', of('d'), of('n'))).toBe('order 2');
      await here.close();
    });

    it('follows a call that runs, here and at the other process', async () => {
      const callers = [await open(kind, one.url), await open(kind, one.url), await open(kind, two.url)];
      const calls = callers.map((caller) => caller.call('slow', of('s'), of('f')));
      await expect.poll(() => gates.has(of('s'))).toBe(true);
      gates.get(of('s'))?.();
      expect(await Promise.all(calls)).toEqual(['slow 1', 'slow 1', 'slow 1']);
      await Promise.all(callers.map((caller) => caller.close()));
    });

    it('runs a call on whose client went away, and gives its outcome to the next request', async () => {
      const here = await open(kind, one.url);
      const lost = here.call('slow', of('t'), of('l')).catch(() => 'lost');
      await expect.poll(() => gates.has(of('t'))).toBe(true);
      await here.close();
      await lost;
      const there = await open(kind, two.url);
      const again = there.call('slow', of('t'), of('l'));
      gates.get(of('t'))?.();
      expect(await again).toBe('slow 1');
      await there.close();
    });

    it('asks as without one, and once', async () => {
      const here = await open(kind, one.url);
      expect(await here.call('ask', of('q'), of('q'))).toBe('asked 1 true');
      expect(await here.call('ask', of('q'), of('q'))).toBe('asked 1 true');
      expect(here.asked).toEqual([`Order ${of('q')}?`]);
      await here.close();
    });
  });

  describe('2026-07-28, by hand', () => {
    const of = (name: string): string => `${name} by hand ${service.name}`;
    const send = (to: Served, what: string, more: RawCall = {}, key?: string): Promise<RawReply> =>
      post(to.url, {
        tool: what.startsWith('slow') ? 'askSlow' : 'ask',
        args: { what },
        ...more,
        headers: { authorization: 'Bearer ann', ...(key !== undefined && { 'idempotency-key': key }) },
      });

    it('is ignored beside a requestState: the call goes on as it began', async () => {
      const plain = await send(one, of('p'));
      const answered = { state: plain.state, responses: accept(plain.keys, { yes: true }) };
      expect(textOf(await send(two, of('p'), answered, of('late')))).toBe('asked 1 true');
      const named = await send(one, of('r'), {}, of('r'));
      const without = { state: named.state, responses: accept(named.keys, { yes: true }) };
      expect(textOf(await send(two, of('r'), without))).toBe('asked 1 true');
      expect(textOf(await send(two, of('r'), {}, of('r')))).toBe('asked 1 true');
      // The one that came too late names nothing: a first request with it is a call of its own.
      expect((await send(one, of('late'), {}, of('late'))).keys).toHaveLength(1);
    });

    it('asks nothing of a call that is answered, and runs at the other process', async () => {
      const first = await send(one, of('slow'), {}, of('slow'));
      const answers = { state: first.state, responses: accept(first.keys, { yes: true }) };
      const runs = send(one, of('slow'), answers, of('slow'));
      await expect.poll(() => gates.has(of('slow'))).toBe(true);
      const { resumes } = two.handler.counters;
      const again = send(two, of('slow'), {}, of('slow'));
      const follows = expect.poll(() => two.handler.counters.resumes).toBeGreaterThan(resumes);
      await Promise.race([follows, again]);
      gates.get(of('slow'))?.();
      expect([textOf(await runs), textOf(await again)]).toEqual(['asked 1 true', 'asked 1 true']);
    });

    it('begins no second call once its call was erased', async () => {
      const who = { authorization: `Bearer erased${service.name}` };
      const key = { ...who, 'idempotency-key': 'erased' };
      const [what, waits] = [of('e'), of('v')];
      expect(textOf(await post(one.url, { tool: 'order', args: { what }, headers: key }))).toBe('order 1');
      const open = { ...who, 'idempotency-key': 'waits' };
      expect((await post(one.url, { tool: 'ask', args: { what: waits }, headers: open })).keys).toHaveLength(
        1,
      );
      const caller = `erased${service.name}`;
      const name = two.handler.nameOf({ clientId: caller, token: `secret-of-${caller}`, scopes: [] }) ?? '';
      expect(await two.handler.forget(name)).toBeGreaterThan(0);
      for (const at of [one, two]) {
        const again = await post(at.url, { tool: 'order', args: { what }, headers: key });
        expect(again.message.error?.message).toMatch(/its outcome was not kept/);
        const asked = await post(at.url, { tool: 'ask', args: { what: waits }, headers: open });
        expect(asked.message.error?.message).toMatch(/its outcome was not kept/);
      }
      expect([runs.get(what), runs.get(waits)]).toEqual([1, undefined]);
    });

    it('ends where its call is erased while another process runs it', async () => {
      const caller = `erasing${service.name}`;
      const headers = { authorization: `Bearer ${caller}`, 'idempotency-key': 'runs' };
      const name = two.handler.nameOf({ clientId: caller, token: `secret-of-${caller}`, scopes: [] }) ?? '';
      const what = of('erased-while');
      const send = (at: Served) => post(at.url, { tool: 'charge', args: { what }, headers });
      const runs = send(one);
      await expect.poll(() => gates.has(what)).toBe(true);
      const { calls } = two.handler.counters;
      const follows = send(two);
      await expect.poll(() => two.handler.counters.calls).toBeGreaterThan(calls);
      await expect.poll(() => one.handler.forget(name)).toBeGreaterThan(0);
      expect((await follows).message).toHaveProperty('error');
      gates.get(what)?.();
      await runs;
    });

    it('gets the same asks while the call waits, also beside answers to none of them', async () => {
      const first = await send(one, of('w'), {}, of('w'));
      const again = await send(two, of('w'), { responses: { other: { action: 'accept' } } }, of('w'));
      expect(again.message.result?.inputRequests).toEqual(first.message.result?.inputRequests);
      const answers = { state: again.state, responses: accept(again.keys, { yes: true }) };
      expect(textOf(await send(one, of('w'), answers, of('w')))).toBe('asked 1 true');
      expect(textOf(await send(two, of('w'), {}, of('w')))).toBe('asked 1 true');
    });
  });
});

it.skipIf(REDIS.down)('gets the outcome of the process that took its call over', async () => {
  const proxy = await tcpProxy(REDIS.url());
  const options = {
    audience: `fenced ${Date.now()}`,
    secrets: [SECRET],
    ...tuned({ lease: 600 }),
  };
  const behind = REDIS.url().replace(/:\d+(?=\/|$)/, `:${proxy.port}`);
  const [slow, quick] = [
    await serveHere(build, { ...options, store: await openStore(behind) }),
    await serveHere(build, { ...options, store: await openStore(REDIS.url()) }),
  ];
  const what = `fenced ${Date.now()}`;
  const call = {
    tool: 'charge',
    args: { what },
    headers: { authorization: 'Bearer ann', 'idempotency-key': what },
  };
  const first = post(slow.url, call);
  await expect.poll(() => gates.has(what)).toBe(true);
  const release = gates.get(what);
  gates.delete(what);
  // Its store is away for longer than a lease: another process goes on.
  await proxy.cut();
  const second = post(quick.url, call);
  await expect.poll(() => gates.has(what)).toBe(true);
  await proxy.mend();
  release?.();
  gates.get(what)?.();
  expect([textOf(await second), textOf(await first)]).toEqual(['charged 1', 'charged 1']);
  await Promise.all([slow.close(), quick.close()]);
  await proxy.cut();
});
