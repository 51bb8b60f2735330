/** A process that shuts down while calls run: its clients' replies, and the takeover. */
import { once } from 'node:events';
import { createServer, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import Keyv from 'keyv';
import { afterEach, describe, expect, it } from 'vitest';
import { openStore } from '../../src/checkpoint/open-store.ts';
import { step } from '../../src/index.ts';
import { closeOnSignals } from '../../src/node.ts';
import { CLOSING } from '../fixtures/frozen.ts';
import { inSession, Peer, call as peerCall } from '../security/peer.ts';
import { asks, begin, call } from './anywhere.ts';
import { accept, post, textOf } from './clients.ts';
import { SECRET, type Served, serveHere } from './harness.ts';
import { legacySession } from './legacy-session.ts';
import { SQLITE } from './services.ts';
import * as workspace from './workspace-wire.ts';

const open: Served[] = [];
afterEach(() => Promise.all(open.splice(0).map((served) => served.close())));

/** Asks, does something once, and then takes until `gate` opens. */
function slowly(gate: { open: Promise<unknown> }, done: string[]): McpServer {
  const server = new McpServer({ name: 'slow', version: '1.0.0' });
  server.registerTool('work', {}, async () => {
    const requestedSchema = { type: 'object' as const, properties: {} };
    await server.server.elicitInput({ message: 'go?', requestedSchema });
    await step('once', () => done.push('once'));
    await gate.open;
    return { content: [{ type: 'text', text: 'finished' }] };
  });
  return server;
}

async function serve(place: string, gate: { open: Promise<unknown> }, done: string[], drain: number) {
  const served = await serveHere(() => slowly(gate, done), {
    store: await openStore(place),
    secrets: [SECRET],
    // It must be the entry in the journal that lets the other process in, and not the lease.
    limits: { drain, lease: 600_000 },
    revisions: ['*', { name: 'workspace-sse', capabilities: { elicitation: {} } }],
  });
  open.push(served);
  return served;
}

it('gives up a turn that does not end, and the same request continues elsewhere at once', async () => {
  const gate = { open: new Promise<unknown>(() => {}) };
  const done: string[] = [];
  const place = SQLITE.url();
  const [old, fresh] = [await serve(place, gate, done, 50), await serve(place, gate, done, 50)];
  const { state, keys } = await post(old.url, { tool: 'work' });
  const answer = { tool: 'work', state, responses: accept(keys, {}) };
  const running = post(old.url, answer);
  await expect.poll(() => done).toEqual(['once']);
  await old.handler.close();
  expect((await running).message.error).toEqual(CLOSING);
  gate.open = Promise.resolve();
  expect(textOf(await post(fresh.url, answer))).toBe('finished');
  expect(done).toEqual(['once']);
});

it('lets a turn end that does, serves new requests meanwhile, and refuses them after', async () => {
  let finish = (_: unknown): void => {};
  const gate = {
    open: new Promise((resolve) => {
      finish = resolve;
    }),
  };
  const done: string[] = [];
  const old = await serve(SQLITE.url(), gate, done, 20_000);
  const { state, keys } = await post(old.url, { tool: 'work' });
  const running = post(old.url, { tool: 'work', state, responses: accept(keys, {}) });
  await expect.poll(() => done).toEqual(['once']);
  const closed = old.handler.close();
  expect(old.handler.close()).toBe(closed);
  expect((await post(old.url, { tool: 'work' })).message.result?.resultType).toBe('input_required');
  finish(undefined);
  await closed;
  expect(textOf(await running)).toBe('finished');
  const refused = await post(old.url, { tool: 'work' });
  expect(refused.status).toBe(503);
  expect(refused.headers.get('retry-after')).toBe('1');
});

it('hands over a call that asks once the others were handed over', async () => {
  const old = await serve(SQLITE.url(), { open: Promise.resolve() }, [], 3_000);
  const session = await legacySession(old.url, { elicitation: {} });
  await old.handler.leave();
  const params = { name: 'work', arguments: {} };
  const stream = await session.send({ id: 1, method: 'tools/call', params });
  await stream.next(({ method }) => method === 'elicitation/create');
  await expect(stream.next(({ id }) => id === 1)).rejects.toThrow('retry: 5000');
});

it('waits with a request whose turn another process runs', async () => {
  let finish = (_: unknown): void => {};
  const gate = {
    open: new Promise((resolve) => {
      finish = resolve;
    }),
  };
  const done: string[] = [];
  const place = SQLITE.url();
  const [old, owner] = [await serve(place, gate, done, 20_000), await serve(place, gate, done, 20_000)];
  const { state, keys } = await post(owner.url, { tool: 'work' });
  const answer = { tool: 'work', state, responses: accept(keys, {}) };
  const there = post(owner.url, answer);
  await expect.poll(() => done).toEqual(['once']);
  const here = post(old.url, answer);
  await expect.poll(() => old.handler.counters.resumes).toBe(1);
  const closed = old.handler.close();
  await pause(200);
  finish(undefined);
  expect([textOf(await here), textOf(await there)]).toEqual(['finished', 'finished']);
  await closed;
  expect(done).toEqual(['once']);
});

it('still takes the answers of a 2025 client, whose call can end only so', async () => {
  const done: string[] = [];
  const old = await serve(SQLITE.url(), { open: Promise.resolve() }, done, 20_000);
  const { send } = await legacySession(old.url, { elicitation: {} });
  const stream = await send({ id: 1, method: 'tools/call', params: { name: 'work', arguments: {} } });
  const ask = await stream.next(({ method }) => method === 'elicitation/create');
  const closed = old.handler.close();
  await send({ id: ask.id, result: { action: 'accept', content: {} } });
  const response = await stream.next(({ id }) => id === 1);
  expect(response.result?.content).toEqual([{ type: 'text', text: 'finished' }]);
  await closed;
});

it('sends the result of a call whose answer came to another process on the stream that waits for it', async () => {
  const place = SQLITE.url();
  const gate = { open: Promise.resolve() };
  const [one, two] = [await serve(place, gate, [], 60_000), await serve(place, gate, [], 60_000)];
  const peer = await inSession(one.url, '2025-11-25');
  for (let nth = 0; nth < 5; nth += 1) {
    const stream = await peer.stream(peerCall(nth, 'work'));
    const { id } = await stream.next(({ method }) => method === 'elicitation/create');
    const left = one.handler.leave();
    await new Peer(two.url, peer.headers).post({
      jsonrpc: '2.0',
      id,
      result: { action: 'accept', content: {} },
    });
    expect(JSON.stringify(await stream.next((message) => message.id === nth))).toContain('finished');
    await left;
  }
});

it('has written all that it writes once it is closed', async () => {
  const records = new Map<string, unknown>();
  const operations: string[] = [];
  const slow = <T>(name: string, run: () => T): Promise<T> => {
    operations.push(name);
    return pause(5).then(run);
  };
  const store = new Keyv({
    store: {
      get: (key: string) => slow(`get ${key}`, () => records.get(key)),
      set: (key: string, value: unknown) => slow(`set ${key}`, () => records.set(key, value)),
      delete: (key: string) => slow(`delete ${key}`, () => records.delete(key)),
      clear: async () => records.clear(),
      insertIfAbsent: (key: string, value: unknown) =>
        slow(`insert ${key}`, () => !records.has(key) && records.set(key, value) !== undefined),
    },
  });
  const old = await serveHere(() => slowly({ open: Promise.resolve() }, []), { store, secrets: [SECRET] });
  open.push(old);
  const { send } = await legacySession(old.url, { elicitation: {} });
  const stream = await send({ id: 1, method: 'tools/call', params: { name: 'work', arguments: {} } });
  const ask = await stream.next(({ method }) => method === 'elicitation/create');
  const closed = old.handler.close();
  await send({ id: ask.id, result: { action: 'accept', content: {} } });
  await closed;
  // The author disconnects the store now: a Redis client that gets a command later connects again, and stays.
  operations.length = 0;
  await pause(300);
  expect(operations).toEqual([]);
});

describe('a call that waits for its user when its process goes away', () => {
  const finished = [{ type: 'text', text: 'finished' }];
  const pair = async (): Promise<[Served, Served]> => {
    const place = SQLITE.url();
    const gate = { open: Promise.resolve() };
    return [await serve(place, gate, [], 50), await serve(place, gate, [], 50)];
  };

  it('continues where its client of 2025 comes back', async () => {
    const both = await pair();
    const session = await begin(both);
    const first = await session.post(0, call('work'));
    const ask = await first.next(asks('go'));
    await both[0].handler.close();
    await expect.poll(() => first.over).toBe(true);
    expect(first.messages.filter(({ id }) => id === 7)).toEqual([]);
    const again = await session.get(1, first.last);
    await session.post(1, { id: ask.id, result: { action: 'accept', content: {} } });
    expect((await again.next(({ id }) => id === 7)).result?.content).toEqual(finished);
  });

  it.each(['its GET', "its POST's own body"])(
    'goes on where its client of workspace-sse comes back: %s',
    async (on) => {
      const both = await pair();
      const url = (nth: 0 | 1): string => `${both[nth].url}/acme`;
      const stream = on === 'its GET' ? await workspace.get(url(0)) : undefined;
      const posted = await workspace.post(url(0), workspace.call(7, 'work'));
      const first = stream ?? posted;
      const ask = await first.ask('go');
      await both[0].handler.close();
      expect((await first.end()).responses()).toEqual([]);
      const again = await workspace.get(url(1), { last: first.last });
      await workspace.post(url(1), { id: ask.message.id, result: { action: 'accept', content: {} } });
      expect((await again.response(7)).message.result?.content).toEqual(finished);
    },
  );
});

it('cleans a server up whose step outlasts the drain', async () => {
  const cleaned: string[] = [];
  const began: string[] = [];
  const served = await serveHere(
    () => {
      const server = new McpServer({ name: 'endless', version: '1.0.0' });
      server.registerTool('work', {}, async () => {
        const requestedSchema = { type: 'object' as const, properties: {} };
        await server.server.elicitInput({ message: 'go?', requestedSchema });
        await step('endless', () => new Promise(() => began.push('step')));
        return { content: [] };
      });
      return { server, cleanup: () => cleaned.push('cleanup') };
    },
    { limits: { drain: 50 } },
  );
  open.push(served);
  const { state, keys } = await post(served.url, { tool: 'work' });
  void post(served.url, { tool: 'work', state, responses: accept(keys, {}) }).catch(() => {});
  await expect.poll(() => began).toEqual(['step']);
  await served.handler.close();
  await expect.poll(() => cleaned).toEqual(['cleanup']);
});

it.each([
  'This server is shutting down; send the same request again',
  'Internal error: this call is being continued elsewhere; send the same request again',
  'Invalid or expired requestState',
])('a tool that throws "%s" has its error told to a 2025 client', async (message) => {
  const served = await serveHere(
    () => {
      const server = new McpServer({ name: 'gateway', version: '1.0.0' }, { capabilities: { logging: {} } });
      server.registerPrompt('relays', {}, async ({ sendNotification }) => {
        // Its stream begins, so that others may follow the call.
        await sendNotification({ method: 'notifications/message', params: { level: 'error', data: 'x' } });
        throw new Error(message);
      });
      return server;
    },
    { store: await openStore(SQLITE.url()), secrets: [SECRET] },
  );
  open.push(served);
  const session = await legacySession(served.url, {});
  const stream = await session.send({ id: 1, method: 'prompts/get', params: { name: 'relays' } });
  const reply = await stream.next(({ id }) => id === 1);
  expect(reply.error?.message).toBe(message);
});

it('ends a turn of 2026-07-28 that outlasts the drain at its next step, and runs no step twice', async () => {
  const done: string[] = [];
  let finish = (): void => {};
  const slow = new Promise<void>((resolve) => {
    finish = resolve;
  });
  const steps = (): McpServer => {
    const server = new McpServer({ name: 'steps', version: '1.0.0' });
    server.registerTool('work', {}, async () => {
      await step('first', async () => {
        done.push('first');
        await slow;
      });
      await step('second', () => done.push('second'));
      return { content: [{ type: 'text', text: 'finished' }] };
    });
    return server;
  };
  const store = await openStore(SQLITE.url());
  const options = { store, secrets: [SECRET], limits: { drain: 200, lease: 600_000 } };
  const [old, fresh] = [await serveHere(steps, options), await serveHere(steps, options)];
  open.push(old, fresh);
  const running = post(old.url, { tool: 'work' });
  await expect.poll(() => done).toEqual(['first']);
  await old.handler.leave();
  const closed = old.handler.close();
  finish();
  const shed = await running;
  expect(shed.message.result?.resultType).toBe('input_required');
  expect(shed.keys).toEqual([]);
  await closed;
  expect(textOf(await post(fresh.url, { tool: 'work', state: shed.state, responses: {} }))).toBe('finished');
  expect(done).toEqual(['first', 'second']);
});

it('hands a call over that comes while its process leaves, and asks', async () => {
  const place = SQLITE.url();
  const gate = { open: Promise.resolve() };
  const both = [await serve(place, gate, [], 50), await serve(place, gate, [], 50)] as const;
  const session = await begin(both);
  await both[0].handler.leave();
  const first = await session.post(0, call('work'));
  const ask = await first.next(asks('go'));
  await expect.poll(() => first.over).toBe(true);
  const again = await session.get(1, first.last);
  await session.post(1, { id: ask.id, result: { action: 'accept', content: {} } });
  expect((await again.next(({ id }) => id === 7)).result?.content).toEqual([
    { type: 'text', text: 'finished' },
  ]);
});

describe('handler.health', () => {
  const server = (): McpServer => new McpServer({ name: 'healthy', version: '1.0.0' });

  it('is ready until the process leaves', async () => {
    const served = await serveHere(server);
    open.push(served);
    expect(await served.handler.health()).toEqual({ ready: true });
    void served.handler.leave(10);
    expect(await served.handler.health()).toEqual({ ready: false, reason: 'this process is about to end' });
  });

  /** A store that can be down. */
  function fragile(): { store: Keyv; isDown: boolean; failed: number } {
    const records = new Map<string, unknown>();
    const get = async (key: string): Promise<unknown> => {
      if (!parts.isDown) return records.get(key);
      parts.failed += 1;
      throw new Error('down');
    };
    const store = new Keyv({
      store: {
        get,
        set: async (key: string, value: unknown) => void records.set(key, value),
        delete: async (key: string) => records.delete(key),
        clear: async () => records.clear(),
        insertIfAbsent: async (key: string, value: unknown) =>
          !records.has(key) && records.set(key, value) !== undefined,
      },
    });
    const parts = { store, isDown: false, failed: 0 };
    return parts;
  }

  it.each([
    ['since it began', 10_000, true],
    ['for more than half a lease', 300, false],
  ])('is not ready while the store has not answered %s', async (_since, lease, isDown) => {
    const parts = fragile();
    const served = await serveHere(server, { store: parts.store, secrets: [SECRET], limits: { lease } });
    open.push(served);
    if (!isDown) expect(await served.handler.health()).toEqual({ ready: true });
    parts.isDown = true;
    const not = { ready: false, reason: 'the store does not answer' };
    if (isDown) expect(await served.handler.health()).toEqual(not);
    else await expect.poll(() => served.handler.health()).toEqual(not);
    parts.isDown = false;
    await expect.poll(() => served.handler.health()).toEqual({ ready: true });
  });

  it('stays ready while the store is away for a moment, so that a balancer finds a process', async () => {
    const parts = fragile();
    // A minute of silence would not count.
    const limits = { lease: 120_000 };
    const served = await serveHere(server, { store: parts.store, secrets: [SECRET], limits });
    open.push(served);
    expect(await served.handler.health()).toEqual({ ready: true });
    parts.isDown = true;
    const said: { ready: boolean }[] = [];
    await expect
      .poll(async () => {
        said.push(await served.handler.health());
        return parts.failed;
      })
      .toBeGreaterThan(1);
    expect(said.every(({ ready }) => ready)).toBe(true);
  });

  it('is not ready without secrets', async () => {
    let secrets: () => Promise<string[]> = () => Promise.reject(new Error('the vault is sealed'));
    const served = await serveHere(server, { secrets: () => secrets() });
    open.push(served);
    expect(await served.handler.health()).toEqual({ ready: false, reason: 'the secrets cannot be had' });
    secrets = async () => [SECRET];
    expect(await served.handler.health()).toEqual({ ready: true });
  });
});

const handler = { leave: async () => {}, close: async () => {}, release: async () => {} };

/** A server that ends as `closeOnSignals` says, and one connection to it. */
async function connected(server: Server, closing = handler) {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const close = closeOnSignals(server, closing);
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
  let text = '';
  socket.on('data', (chunk: Buffer) => {
    text += chunk;
  });
  return {
    close,
    /** Sends requests in one write. */
    ask: (...paths: string[]) =>
      socket.write(paths.map((path) => `GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`).join('')),
    over: once(socket, 'close'),
    text: () => text,
  };
}

it('keeps a connection as long as its client was told, also behind a response that took longer', async () => {
  let finish = (): void => {};
  const server = createServer((req, res) => {
    res.flushHeaders();
    if (req.url === '/long') finish = () => res.end();
    else res.end('served');
  });
  server.keepAliveTimeout = 1;
  const { close, ask, over, text } = await connected(server);
  ask('/long');
  await expect.poll(text).toContain('keep-alive');
  const closed = close();
  // Longer than a response may take.
  await pause(3_200);
  finish();
  await expect.poll(text).toContain('0\r\n\r\n');
  ask('/next');
  await over;
  expect(text()).toContain('Connection: close');
  expect(text()).toContain('served');
  await closed;
});

it('ends replies that last before it refuses anything, and serves what their connections bring', async () => {
  const done: string[] = [];
  let end = (): void => {};
  const server = createServer((req, res) => {
    if (req.url !== '/long') {
      res.writeHead(done.includes('closed') ? 503 : 200).end();
      return;
    }
    res.flushHeaders();
    end = () => res.end();
  });
  server.keepAliveTimeout = 1;
  const { close, ask, over, text } = await connected(server, {
    leave: async () => {
      done.push('left');
      // What lasts is there at the second call alone.
      if (done.length === 2) end();
    },
    close: async () => void done.push('closed'),
    release: async () => {},
  });
  ask('/long');
  await expect.poll(text).toContain('keep-alive');
  const closed = close();
  await expect.poll(text).toContain('0\r\n\r\n');
  ask('/next');
  await over;
  expect(text().match(/HTTP\/1.1 \d+/g)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 200']);
  await closed;
  expect(done).toEqual(['left', 'left', 'closed']);
});

it('sends the responses to all requests that came one behind the other, and closes with the last', async () => {
  const responses: ServerResponse[] = [];
  const server = createServer((_req, res) => responses.push(res));
  const { close, ask, over, text } = await connected(server);
  ask('/a', '/b');
  await expect.poll(() => responses.length).toBe(2);
  const closed = close();
  ask('/c', '/d');
  await expect.poll(() => responses.length).toBe(4);
  for (const [nth, res] of responses.entries()) res.end(`response ${nth}`);
  await over;
  expect(text().match(/response \d/g)).toEqual(['response 0', 'response 1', 'response 2', 'response 3']);
  expect(text().match(/Connection: close/g)).toHaveLength(1);
  await closed;
});

it('refuses a linger that is no time', () => {
  expect(() => closeOnSignals(createServer(), handler, { linger: -1 })).toThrow(
    expect.objectContaining({ code: 'bad-option' }),
  );
});
