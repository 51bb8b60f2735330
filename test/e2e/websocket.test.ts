/** WebSockets: SDK v1's own transport; ours, which resumes after a broken socket; and refusals. */
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { type AddressInfo, connect, createServer as createTcp, type Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { WebSocketClientTransport } from '@modelcontextprotocol/sdk/client/websocket.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import Keyv from 'keyv';
import { afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { WebSocket } from 'ws';
import { z } from 'zod';
import { deferred } from '../../src/base/values.ts';
import { tuned } from '../../src/call/limits.ts';
import { KeyvCallStore } from '../../src/checkpoint/call-store.ts';
import { openStore } from '../../src/checkpoint/open-store.ts';
import { AwaitWebSocketTransport } from '../../src/client/index.ts';
import { type AwaitOptions, createAwaitHandler, type HostProduct, step } from '../../src/index.ts';
import { closeOnSignals, toNodeHandler } from '../../src/node.ts';
import { type MountedWebSocket, mountWebSocket, type WebSocketOptions } from '../../src/websocket.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { flakyStore } from '../fixtures/flaky-store.ts';
import { legacyOver, modernOver } from './clients.ts';
import { LogBook, SECRET } from './harness.ts';
import { REDIS, REDIS_URL, SQLITE } from './services.ts';

beforeAll(() => {
  // Node 20 has none of its own, and SDK v1's transport takes the global one.
  (globalThis as { WebSocket?: unknown }).WebSocket ??= WebSocket;
});

type Json = Readonly<Record<string, unknown>>;

interface Mounted {
  readonly url: string;
  readonly port: number;
  readonly mounted: MountedWebSocket;
  readonly effects: string[];
  readonly server: Server;
  close(): Promise<void>;
}

const open: { close(): Promise<void> }[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((one) => one.close()));
});

async function serve(
  options: AwaitOptions = {},
  sockets: WebSocketOptions = {},
  build: (effect: (name: string) => void) => HostProduct = buildServer,
): Promise<Mounted> {
  const effects: string[] = [];
  const handler = createAwaitHandler(() => build((effect) => effects.push(effect)), {
    logger: new LogBook(),
    limits: { drain: 200, lease: 1_000 },
    ...options,
  });
  const server = createServer(toNodeHandler(handler));
  const mounted = mountWebSocket(server, handler, sockets);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const close = async (): Promise<void> => {
    await mounted.close();
    await handler.close();
    server.close();
    server.closeAllConnections();
  };
  const one = { url: `ws://127.0.0.1:${port}/mcp`, port, mounted, effects, server, close };
  open.push(one);
  return one;
}

/** Forwards connections to a port that may change, and breaks those that there are. */
async function wire(first: number) {
  let port = first;
  const sockets = new Set<Socket>();
  const server = createTcp((near) => {
    const far = connect(port, '127.0.0.1');
    for (const socket of [near, far]) {
      sockets.add(socket);
      socket
        .on('error', () => {})
        .on('close', () => {
          near.destroy();
          far.destroy();
          sockets.delete(socket);
        });
    }
    near.pipe(far).pipe(near);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  open.push({ close: () => new Promise((resolve) => server.close(() => resolve())) });
  return {
    url: `ws://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`,
    breakOff: (to = port): void => {
      port = to;
      for (const socket of sockets) socket.destroy();
    },
  };
}

describe("SDK v1's WebSocketClientTransport", () => {
  it('completes every asking tool', async () => {
    const { url } = await serve();
    const client = await legacyOver(new WebSocketClientTransport(new URL(url)));
    expect(await client.tool('one')).toBe('Hello its name');
    expect(await client.tool('in-turn')).toBe('its name, its city, its street');
    expect(await client.tool('at-once')).toBe('its name, its city, its street');
    expect(await client.tool('by-extra')).toBe('Hello its name');
    expect(await client.tool('link')).toBe('link: accept');
    expect(await client.tool('sample')).toBe('a poem');
    expect(await client.tool('roots')).toBe('file:///home/ann');
    expect(await client.tool('order')).toContain('its name, its address');
    expect(await client.tool('notes')).toBe('its name of its city');
    // The SDK's client forgets progress that comes in one chunk with the result.
    expect(client.progressed.slice(0, 2)).toEqual([1, 2]);
    expect(client.logged).toEqual(['note 1', 'note 2', 'note 3']);
    expect(await client.prompt('greet')).toBe('Greet its name');
    expect(await client.resource('diary://today')).toBe('Dear its name');
    await client.close();
  });
});

it('a client of 2026-07-28 is served on a socket, too', async () => {
  const { url } = await serve();
  const client = await modernOver(new WebSocketClientTransport(new URL(url)) as never);
  expect(await client.tool('in-turn')).toBe('its name, its city, its street');
  await client.close();
});

describe('a socket that breaks', () => {
  const fast = { initialReconnectionDelay: 50, maxRetries: 40, maxReconnectionDelay: 200 };

  it('before its session has begun: the client introduces itself again', async () => {
    const { port, server } = await serve();
    const { url, breakOff } = await wire(port);
    // The first socket breaks with the first message on it, as at a restart.
    server.once('upgrade', (_request, socket: Socket) => socket.once('data', () => breakOff()));
    const client = await legacyOver(new AwaitWebSocketTransport(url, { reconnectionOptions: fast }));
    expect(await client.tool('one')).toBe('Hello its name');
    await client.close();
  });

  it('at once, each time: the pauses grow', async () => {
    const { port } = await serve();
    const { url, breakOff } = await wire(port);
    let opened = 0;
    const open = (to: string, protocol: string): WebSocket => {
      opened += 1;
      const socket = new WebSocket(to, protocol);
      if (opened > 1) socket.once('open', () => setImmediate(() => socket.close()));
      return socket;
    };
    const client = await legacyOver(new AwaitWebSocketTransport(url, { open, reconnectionOptions: fast }));
    breakOff();
    await pause(1_000);
    // Fifty milliseconds at least between two.
    expect(opened).toBeGreaterThan(3);
    expect(opened).toBeLessThan(22);
    await client.close();
  });

  it('while its user is asked: the call continues, and asks nothing twice', async () => {
    const { port, effects } = await serve();
    const { url, breakOff } = await wire(port);
    let breaks = 0;
    const client = await legacyOver(new AwaitWebSocketTransport(url, { reconnectionOptions: fast }), {
      answer: async () => {
        breaks += 1;
        breakOff();
        return { action: 'accept', content: { address: 'here', name: 'Ann' } };
      },
    });
    expect(await client.tool('order')).toMatch(/^Ann, here/);
    expect(breaks).toBe(2);
    expect(client.asked).toEqual(['address?', 'name?']);
    expect(effects).toEqual(['charge', 'ship', 'finally']);
    await client.close();
  });

  it('while its store is away for longer than a request waits: the call continues', async () => {
    const flaky = flakyStore();
    const { port, effects } = await serve({
      store: flaky.store,
      secrets: [SECRET],
      limits: { drain: 200, lease: 200 },
    });
    const { url, breakOff } = await wire(port);
    const client = await legacyOver(new AwaitWebSocketTransport(url, { reconnectionOptions: fast }), {
      answer: async ({ message }) => {
        if (message === 'address?') {
          flaky.fail = 'all';
          breakOff();
          await pause(1_500);
          flaky.fail = undefined;
        }
        return { action: 'accept', content: { address: 'here', name: 'Ann' } };
      },
    });
    expect(await client.tool('order')).toMatch(/^Ann, here/);
    expect(effects).toEqual(['charge', 'ship', 'finally']);
    await client.close();
  });

  it('while a tool is at work: its response comes on the next one', async () => {
    const { port } = await serve();
    const { url, breakOff } = await wire(port);
    const client = await legacyOver(new AwaitWebSocketTransport(url, { reconnectionOptions: fast }));
    const called = client.tool('lingers');
    await expect.poll(() => client.logged).toEqual(['before']);
    breakOff();
    expect(await called).toBe('its name');
    expect(client.logged).toEqual(['before', 'between']);
    await client.close();
  });

  it('before its request was answered in any way: the request runs once', async () => {
    const { port, effects } = await serve();
    const { url, breakOff } = await wire(port);
    const client = await legacyOver(new AwaitWebSocketTransport(url, { reconnectionOptions: fast }));
    const called = client.tool('begin');
    await expect.poll(() => effects).toContain('begun');
    breakOff();
    expect(await called).toBe('its name, its city');
    expect(effects.filter((effect) => effect === 'begun')).toEqual(['begun']);
    await client.close();
  });

  it.skipIf(REDIS.down)('continues at another process, without repeating anything', async () => {
    const shared = async (): Promise<AwaitOptions> => ({
      store: await openStore(REDIS_URL),
      secrets: [SECRET],
    });
    const [one, two] = [await serve(await shared()), await serve(await shared())];
    const { url, breakOff } = await wire(one.port);
    const client = await legacyOver(new AwaitWebSocketTransport(url, { reconnectionOptions: fast }), {
      answer: async ({ message }) => {
        if (message === 'address?') {
          breakOff(two.port);
          await one.close();
        }
        return { action: 'accept', content: { address: 'here', name: 'Ann' } };
      },
    });
    expect(await client.tool('order')).toMatch(/^Ann, here/);
    expect([...one.effects, ...two.effects].filter((effect) => effect === 'charge')).toEqual(['charge']);
    expect(two.effects).toContain('ship');
    await client.close();
  });
});

/** A client whose session began at one process, and whose call reaches another. */
async function callElsewhere(first: string): Promise<(url: string) => Promise<Connected>> {
  const beginning = await connected(first);
  const asked = {
    protocolVersion: '2025-11-25',
    capabilities: {},
    clientInfo: { name: 'x', version: '1' },
    _meta: { 'mcp-await/session': true },
  };
  beginning.say({ id: 'i', method: 'initialize', params: asked });
  await expect.poll(() => beginning.got.length).toBe(1);
  const [begunSession = {}] = beginning.got;
  const { _meta } = begunSession.result as { _meta: Json };
  beginning.say({ method: 'notifications/initialized' });
  beginning.socket.terminate();
  const params = {
    _meta: { 'mcp-await/session': _meta['mcp-await/session'], 'mcp-await/version': '2025-11-25' },
  };
  return async (url) => {
    const resumed = await connected(url);
    resumed.say({ method: 'notifications/mcp-await/resume', params });
    resumed.say({ id: 5, method: 'tools/call', params: { name: 'charge', arguments: {} } });
    return resumed;
  };
}

interface Connected {
  readonly socket: WebSocket;
  readonly got: Json[];
  say(message: object): void;
}

async function connected(url: string): Promise<Connected> {
  const socket = new WebSocket(url, 'mcp');
  const got: Json[] = [];
  socket.on('message', (data) => got.push(JSON.parse(String(data))));
  await once(socket, 'open');
  return { socket, got, say: (message) => socket.send(JSON.stringify({ jsonrpc: '2.0', ...message })) };
}

/** @param isReady its servers wait for that */
function chargingAfter(isReady: Promise<void>, begun: string[] = []) {
  return (async (effect: (name: string) => void) => {
    begun.push('a server');
    await isReady;
    const server = new McpServer({ name: 'charging', version: '1.0.0' });
    server.registerTool('charge', {}, async () => {
      await step('charge', () => effect('charge'));
      return { content: [{ type: 'text', text: 'charged' }] };
    });
    return server;
  }) as never;
}

it('a request that is sent again while its server is being made gets its response', async () => {
  const shared: AwaitOptions = { store: await openStore(SQLITE.url()), secrets: [SECRET] };
  const first = await serve(shared);
  const { promise, resolve: ready } = deferred();
  const begun: string[] = [];
  const other = await serve(shared, {}, chargingAfter(promise, begun));
  const send = await callElsewhere(first.url);
  const broken = await send(other.url);
  await expect.poll(() => begun.length).toBe(1);
  broken.socket.terminate();
  const again = await send(other.url);
  // Whether it waits for the other one's log cannot be seen from here.
  await pause(300);
  ready();
  await expect.poll(() => again.got.some(({ id }) => id === 5)).toBe(true);
  expect(other.effects).toEqual(['charge']);
  again.socket.close();
});

it('a request whose process has ended before it wrote its call is run by the next one', async () => {
  const shared: AwaitOptions = {
    store: await openStore(SQLITE.url()),
    secrets: [SECRET],
    limits: tuned({ lease: 400 }),
  };
  const first = await serve(shared);
  const ended = await serve(shared, {}, chargingAfter(Promise.resolve()));
  const send = await callElsewhere(first.url);
  // A process that is killed once it has noted the request.
  const { insert } = KeyvCallStore.prototype;
  let isKilled = false;
  const inserted = vi.spyOn(KeyvCallStore.prototype, 'insert');
  inserted.mockImplementation(async function (this: KeyvCallStore, name, ...more) {
    const isFirst = await insert.call(this, name, ...more);
    if (!name.includes(':sent:') || isKilled) return isFirst;
    isKilled = true;
    return new Promise(() => {});
  });
  const broken = await send(ended.url);
  await expect.poll(() => isKilled).toBe(true);
  broken.socket.terminate();
  const next = await serve(shared, {}, chargingAfter(Promise.resolve()));
  const again = await send(next.url);
  await expect
    .poll(() => again.got.find(({ id }) => id === 5))
    .toMatchObject({ result: { content: [{ text: 'charged' }] } });
  expect([ended.effects, next.effects]).toEqual([[], ['charge']]);
  inserted.mockRestore();
  again.socket.close();
});

it('a request whose stream is gone gets an error', async () => {
  const { url } = await serve();
  const socket = new WebSocket(url, 'mcp');
  await once(socket, 'open');
  const send = async (method: string, id: number | undefined, params: object): Promise<Json> => {
    socket.send(JSON.stringify({ jsonrpc: '2.0', method, params, ...(id !== undefined && { id }) }));
    return id === undefined ? {} : JSON.parse(String((await once(socket, 'message'))[0]));
  };
  const _meta = { 'mcp-await/session': true };
  const clientInfo = { name: 'x', version: '1' };
  await send('initialize', 1, { protocolVersion: '2025-11-25', capabilities: {}, clientInfo, _meta });
  await send('notifications/initialized', undefined, {});
  const event = { 'mcp-await/event': 'mwt0koer.L9tt9xx6iCqVlq670sPfyF:3' };
  const { id, error } = await send('tools/call', 2, { name: 'one', _meta: event });
  expect([id, error]).toEqual([2, expect.objectContaining({ message: expect.stringContaining('expired') })]);
  socket.close();
});

/** A server whose tool returns half a megabyte. */
function talkative(effect: (name: string) => void): McpServer {
  const server = new McpServer({ name: 'talkative', version: '1.0.0' });
  server.registerTool('talk', {}, () => {
    effect('talk');
    return { content: [{ type: 'text', text: 'x'.repeat(500_000) }] };
  });
  return server;
}

function talk(id: number): object {
  const _meta = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientInfo': { name: 'x', version: '1' },
    'io.modelcontextprotocol/clientCapabilities': {},
  };
  return { jsonrpc: '2.0', id, method: 'tools/call', params: { name: 'talk', _meta } };
}

describe('a connection is refused', () => {
  const failure = (url: string, protocols: string[], headers: Record<string, string> = {}): Promise<string> =>
    new Promise((resolve) => {
      const socket = new WebSocket(url, protocols, { headers });
      socket.on('unexpected-response', (_request, response) => resolve(String(response.statusCode)));
      socket.on('open', () => resolve('open'));
      socket.on('error', () => {});
    });

  it('without the subprotocol, from a foreign page, for a foreign host, elsewhere, and without credentials', async () => {
    const { url } = await serve();
    expect(await failure(url, [])).toBe('400');
    expect(await failure(url, ['mcp'], { origin: 'https://evil.example' })).toBe('403');
    expect(await failure(url, ['mcp'], { host: 'evil.example' })).toBe('421');
    expect(await failure(url.replace('/mcp', '/other'), ['mcp'])).toBe('404');
    expect(await failure(url, ['mcp'])).toBe('open');
    const guarded = await serve({}, { authenticate: () => Promise.reject(new Error('who?')) });
    expect(await failure(guarded.url, ['mcp'])).toBe('401');
  });

  /** The close code of a socket that sends an invalid message. */
  const closing = (
    url: string,
    send: (socket: WebSocket) => unknown,
  ): Promise<{ code: number; reason: string }> =>
    new Promise((resolve) => {
      const socket = new WebSocket(url, ['mcp']);
      socket.on('open', () => send(socket));
      socket.on('close', (code, reason) => resolve({ code, reason: String(reason) }));
      socket.on('error', () => {});
    });

  it('with a code and a reason, for what comes on it', async () => {
    const { url } = await serve({}, { maxMessage: 1_000 });
    expect(await closing(url, (socket) => socket.send('x'.repeat(2_000)))).toMatchObject({ code: 1009 });
    expect(await closing(url, (socket) => socket.send(Buffer.from('{}')))).toEqual({
      code: 1003,
      reason: 'messages are text',
    });
    for (const session of ['made up', '\u0000', '\ud800', '']) {
      const _meta = { 'mcp-await/session': session };
      const unknown = { jsonrpc: '2.0', method: 'notifications/mcp-await/resume', params: { _meta } };
      expect(await closing(url, (socket) => socket.send(JSON.stringify(unknown)))).toEqual({
        code: 4404,
        reason: 'session not found: initialize again',
      });
    }
  });

  it('at a shutdown, once all that was received is replied to', async () => {
    const done: string[] = [];
    const replied: string[] = [];
    const build = (): McpServer => {
      const server = new McpServer({ name: 'brief', version: '1' });
      server.registerTool('brief', { inputSchema: { name: z.string() } }, async ({ name }) => {
        await pause(10);
        done.push(name);
        return { content: [{ type: 'text', text: name }] };
      });
      return server;
    };
    const handler = createAwaitHandler(build, { logger: new LogBook(), limits: { drain: 6_000 } });
    const server = createServer(toNodeHandler(handler));
    const close = closeOnSignals(server, handler, { sockets: mountWebSocket(server, handler) });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const url = new URL(`ws://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`);
    const clients = await Promise.all(
      Array.from({ length: 40 }, () => legacyOver(new WebSocketClientTransport(url))),
    );
    // Half of the clients always have a call open.
    const calling = [...clients, ...clients.slice(20)].map(async (client, at) => {
      // One call after the other, as fast as it goes, until its socket is closed.
      for (let count = 0; ; count += 1) {
        const name = `${at}.${count}`;
        const text = await client.tool('brief', { name }).catch(() => undefined);
        if (text === undefined) return;
        replied.push(text);
      }
    });
    await expect.poll(() => replied.length).toBeGreaterThan(100);
    await Promise.all([close(), ...calling]);
    expect(new Set(done.filter((name) => !replied.includes(name)))).toEqual(new Set());
  });

  it('with 1001 at a shutdown', async () => {
    const served = await serve();
    const closed = closing(served.url, () => void served.mounted.close());
    expect(await closed).toEqual({ code: 1001, reason: 'this server is shutting down' });
  });

  it('with 503, where as many sockets are open as there may be, however many come at once', async () => {
    const { url } = await serve({}, { maxSockets: 2 });
    const came = await Promise.all(Array.from({ length: 6 }, () => failure(url, ['mcp'])));
    expect(came.filter((one) => one === 'open')).toHaveLength(2);
    expect(came.filter((one) => one === '503')).toHaveLength(4);
  });

  it('with 1013, where its client does not read', async () => {
    const { url, server, effects } = await serve({}, {}, talkative);
    let wire: Socket | undefined;
    server.on('connection', (socket) => {
      wire = socket;
    });
    const closed = closing(url, async (socket) => {
      // Node resumes a socket once its upgrade is over.
      await new Promise((resolve) => setImmediate(resolve));
      socket.pause();
      for (let id = 1; id <= 40; id += 1) socket.send(JSON.stringify(talk(id)));
      await expect.poll(() => effects.length).toBeGreaterThan(0);
      await expect.poll(() => wire?.writableLength).toBeGreaterThan(4_194_304);
      socket.resume();
    });
    expect(await closed).toEqual({ code: 1013, reason: 'this client does not read' });
  });

  it('when it answers no ping', async () => {
    const { url } = await serve({}, { ping: 100 });
    const socket = new WebSocket(url, ['mcp']);
    const closed = new Promise((resolve) => socket.on('close', resolve));
    socket.on('error', () => {});
    socket.on('upgrade', ({ socket: wire }) => {
      // It reads nothing, and so no ping.
      wire.pause();
      setTimeout(() => wire.resume(), 500);
    });
    expect(await closed).toBe(1006);
  });
});

it('tools see who authenticated at the upgrade', async () => {
  const seen: unknown[] = [];
  const { url } = await serve(
    {
      store: new Keyv(),
      principal: (authInfo) => {
        seen.push(authInfo);
        return 'ann';
      },
    },
    { authenticate: ({ headers }) => ({ clientId: String(headers['x-user']) }) },
  );
  const socket = new WebSocket(url, ['mcp'], { headers: { 'x-user': 'ann' } });
  await new Promise((resolve) => socket.on('open', resolve));
  const params = { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'x', version: '1' } };
  socket.send(JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'initialize', params }));
  await new Promise((resolve) => socket.once('message', resolve));
  expect(seen).toContainEqual({ clientId: 'ann' });
  socket.close();
});

it('a client that resumes leaves records that make room with their calls', async () => {
  const store = new Keyv();
  const { url } = await serve({ store, ...tuned({ callerStoredBytes: 20_000 }) });
  const socket = new WebSocket(url, 'mcp');
  const got: Json[] = [];
  socket.on('message', (data) => got.push(JSON.parse(String(data))));
  await once(socket, 'open');
  const say = (message: object): void => socket.send(JSON.stringify({ jsonrpc: '2.0', ...message }));
  const clientInfo = { name: 'x', version: '1' };
  const _meta = { 'mcp-await/session': true };
  say({
    id: 'i',
    method: 'initialize',
    params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo, _meta },
  });
  say({ method: 'notifications/initialized' });
  for (let id = 0; id < 500; id += 1) say({ id, method: 'ping' });
  await expect.poll(() => got.length).toBe(501);
  expect(got.filter(({ error }) => error !== undefined)).toEqual([]);
  await expect.poll(() => (store.opts.store as Map<string, string>).size).toBeLessThan(200);
  socket.close();
});
