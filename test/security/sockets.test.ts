/**
 * WebSockets and pipelined connections of strangers: their bytes count with those of HTTP, and a socket ends with the
 * standing of its caller. Asserted by bytes and close codes.
 */
import { once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import Keyv from 'keyv';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { WebSocket } from 'ws';
import { AwaitError, LoopTurns } from '../../src/base/values.ts';
import { type AwaitHandler, type AwaitOptions, createAwaitHandler } from '../../src/index.ts';
import { type NodeRequest, toNodeHandler } from '../../src/node.ts';
import { mountWebSocket, type WebSocketOptions } from '../../src/websocket.ts';
import { modernHeaders } from '../e2e/clients.ts';
import { LogBook, SECRET } from '../e2e/harness.ts';
import { frame } from './frames.ts';

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

const LARGE = 1_000_000;

function build(): McpServer {
  const server = new McpServer({ name: 'large', version: '1' });
  for (const [name, length] of [
    ['large', LARGE],
    // More than a connection's buffers take.
    ['huge', 10 * LARGE],
  ] as const)
    server.registerTool(name, {}, () => ({ content: [{ type: 'text', text: 'x'.repeat(length) }] }));
  return server;
}

/** `Authorization: Bearer ann` names the caller `ann`, on a socket too. */
async function serve(
  options: AwaitOptions = {},
  sockets: WebSocketOptions = {},
): Promise<{ handler: AwaitHandler; port: number; url: string }> {
  const handler = createAwaitHandler(build, {
    logger: new LogBook(),
    secrets: [SECRET],
    store: new Keyv(),
    principal: (authInfo) => (typeof authInfo?.clientId === 'string' ? authInfo.clientId : undefined),
    ...options,
  });
  const listener = toNodeHandler(handler);
  const server = createServer((req: NodeRequest, res) => {
    const clientId = /^Bearer (\w+)$/.exec(req.headers.authorization ?? '')?.[1];
    if (clientId !== undefined) req.auth = { clientId };
    void listener(req, res);
  });
  const mounted = mountWebSocket(server, handler, {
    authenticate: ({ headers }) => {
      const clientId = /^Bearer (\w+)$/.exec(headers.authorization ?? '')?.[1];
      return clientId === undefined ? undefined : { clientId };
    },
    ...sockets,
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  ends.push(async () => {
    await mounted.close();
    await handler.close();
    server.close();
    server.closeAllConnections();
  });
  const { port } = server.address() as AddressInfo;
  return { handler, port, url: `http://127.0.0.1:${port}/mcp` };
}

const bearer = (caller: string) => ({ authorization: `Bearer ${caller}` });

interface Opened {
  readonly socket: WebSocket;
  readonly raw: Socket;
  readonly closed: Promise<{ code: number; reason: string }>;
}

async function open(port: number, headers: Readonly<Record<string, string>> = {}): Promise<Opened> {
  const socket = new WebSocket(`ws://127.0.0.1:${port}/mcp`, ['mcp'], { headers: { ...headers } });
  socket.on('error', () => {});
  ends.push(() => socket.terminate());
  const closed = new Promise<{ code: number; reason: string }>((resolve) => {
    socket.on('close', (code, reason) => resolve({ code, reason: String(reason) }));
  });
  const [{ socket: raw }] = (await once(socket, 'upgrade')) as [{ socket: Socket }];
  if (socket.readyState !== socket.OPEN) await once(socket, 'open');
  return { socket, raw, closed };
}

const isOpen = ({ socket }: Opened): boolean => socket.readyState === socket.OPEN;

const modern = (id: number, name = 'large') => ({
  jsonrpc: '2.0',
  id,
  method: 'tools/call',
  params: {
    name,
    arguments: {},
    _meta: {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientInfo': { name: 'stalling', version: '1' },
      'io.modelcontextprotocol/clientCapabilities': {},
    },
  },
});

describe('messages that are not finished', () => {
  it('count with the bodies of HTTP: strangers are broken off for strangers, a known caller never', async () => {
    const { handler, port, url } = await serve({ limits: { receivedBytes: 4_000_000 } });
    const ann = await open(port, bearer('ann'));
    ann.raw.write(frame(1, Buffer.alloc(500_000, 0x20), true, 1_000_000));
    await expect.poll(() => handler.traffic.received.bytes).toBeGreaterThan(400_000);
    const strangers: Opened[] = [];
    for (let nth = 0; nth < 20; nth += 1) {
      const one = await open(port);
      one.raw.write(frame(1, Buffer.alloc(500_000, 0x20), true, 1_000_000));
      strangers.push(one);
    }
    await expect.poll(() => strangers.filter(isOpen).length).toBeLessThanOrEqual(4);
    expect(handler.traffic.received.bytes).toBeLessThanOrEqual(4_000_000);
    // Half bodies over HTTP, of strangers too.
    for (let nth = 0; nth < 17; nth += 1) {
      const socket = connect(port, '127.0.0.1');
      socket.on('error', () => {});
      ends.push(() => socket.destroy());
      const head = 'POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n';
      socket.write(`${head}content-length: 1000000\r\n\r\n${'x'.repeat(500_000)}`);
      await once(socket, 'connect');
    }
    await expect.poll(() => strangers.filter(isOpen).length).toBe(0);
    expect(isOpen(ann)).toBe(true);
    const ping = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping' });
    ann.raw.write(Buffer.from(ping.padEnd(500_000)));
    const [reply] = await once(ann.socket, 'message');
    expect(String(reply)).toContain('"jsonrpc"');
    expect((await fetch(url, { method: 'GET' })).status).not.toBe(500);
  });

  it('count whole chunks where fragments of one byte come between pongs', async () => {
    const { handler, port } = await serve({ limits: { receivedBytes: 2_000_000 } });
    const { raw, closed } = await open(port);
    const pongs = Buffer.concat(Array.from({ length: 400 }, () => frame(10, Buffer.alloc(125), true)));
    let most = 0;
    let isFirst = true;
    const timer = setInterval(() => {
      most = Math.max(most, handler.traffic.received.bytes);
    });
    for (let nth = 0; nth < 100 && !raw.destroyed; nth += 1) {
      raw.write(frame(isFirst ? 1 : 0, Buffer.from('x'), false));
      raw.write(pongs);
      isFirst = false;
      await new Promise((resolve) => setImmediate(resolve));
    }
    const { code } = await closed;
    clearInterval(timer);
    expect([1006, 1013]).toContain(code);
    expect(most).toBeLessThanOrEqual(1_000_000);
    await expect.poll(() => handler.traffic.received.bytes).toBe(0);
  });

  it('count while they wait for their turn, though they are whole', async () => {
    const { handler, port } = await serve({ limits: { receivedBytes: 2_000_000 } });
    const chunk = Buffer.concat(Array(9_000).fill(frame(1, Buffer.from('{'), true)));
    const ann = await open(port, bearer('ann'));
    const strangers: Opened[] = [];
    for (let nth = 0; nth < 12; nth += 1) strangers.push(await open(port));
    for (const { raw } of strangers) raw.write(chunk);
    let most = 0;
    while (strangers.every(isOpen)) {
      await nextTurn();
      most = Math.max(most, handler.traffic.received.bytes);
    }
    expect(most).toBeGreaterThan(500_000);
    expect(most).toBeLessThanOrEqual(1_000_000);
    ann.socket.send(JSON.stringify(modern(1, 'none')));
    const [said] = (await once(ann.socket, 'message')) as [Buffer];
    expect(JSON.parse(String(said)).id).toBe(1);
  });

  it('wait one at a time in the row of all, so that the others go with their socket', async () => {
    const { port } = await serve();
    const { raw } = await open(port);
    const waits = vi.spyOn(LoopTurns.prototype, 'next').mockReturnValue(new Promise(() => {}));
    raw.write(Buffer.concat(Array(500).fill(frame(1, Buffer.from('{'), true))));
    await expect.poll(() => waits.mock.calls.length).toBe(1);
    await sleep(50);
    // The others wait beside their socket, and are gone with it.
    const inRow = waits.mock.calls.length;
    waits.mockRestore();
    raw.destroy();
    expect(inRow).toBe(1);
  });

  it('come one in a turn of the event loop, however many a chunk holds', async () => {
    const { port } = await serve();
    const one = await open(port);
    const turns: number[] = [];
    let turn = 0;
    const count = (): void => {
      turn += 1;
      if (turns.length < 500) setImmediate(count);
    };
    setImmediate(count);
    const emitted = vi.spyOn(WebSocket.prototype, 'emit').mockImplementation((event) => {
      if (event === 'message') turns.push(turn);
      return true;
    });
    ends.push(() => emitted.mockRestore());
    one.raw.write(Buffer.concat(Array(500).fill(frame(1, Buffer.from('{'), true))));
    await expect.poll(() => turns.length).toBe(500);
    expect(new Set(turns).size).toBeGreaterThan(490);
  });

  it.each([
    ['no UTF-8', [frame(1, Buffer.from([0xff]), true)], 1007],
    ['no close code', [frame(8, Buffer.from([0, 1]), true)], 1002],
  ])(
    'end their socket and nothing else where pings come before, and more behind: %s',
    async (_, bad, code) => {
      const { port } = await serve();
      const { raw, closed } = await open(port);
      // Each ping is a turn of the event loop, in which the later pieces come.
      const pings = Array(50).fill(frame(9, Buffer.alloc(0), true));
      raw.setNoDelay();
      for (const piece of [pings, bad, [frame(1, Buffer.from('x'), true)]]) {
        raw.write(Buffer.concat(piece));
        await sleep(1);
      }
      expect((await closed).code).toBe(code);
    },
  );

  it('have so many fragments at most', async () => {
    const { port } = await serve();
    const { raw, closed } = await open(port);
    const fragment = frame(0, Buffer.from('x'), false);
    raw.write(Buffer.concat([frame(1, Buffer.from('x'), false), ...Array(3_000).fill(fragment)]));
    expect((await closed).code).toBe(1008);
  });

  it('cost nothing once they are whole, nor do pongs', async () => {
    const { handler, port } = await serve();
    const { socket, raw } = await open(port);
    for (let id = 0; id < 50; id += 1) {
      socket.send(JSON.stringify({ jsonrpc: '2.0', id, method: 'ping', pad: 'x'.repeat(10_000 * (id % 5)) }));
      raw.write(frame(10, Buffer.alloc(100), true));
      raw.write(frame(1, Buffer.from('{"jsonrpc":'), false));
      raw.write(frame(0, Buffer.from('"2.0"}'), true));
    }
    await once(socket, 'message');
    await expect.poll(() => handler.traffic.received.bytes).toBe(0);
  });
});

describe('a message of very many values', () => {
  it('is refused before it is parsed', async () => {
    const { port } = await serve();
    const { socket } = await open(port);
    const parse = vi.spyOn(JSON, 'parse');
    try {
      for (const text of [`[${'{},'.repeat(200_000)}{}]`, '['.repeat(200_000)]) {
        socket.send(text);
        const [reply] = await once(socket, 'message');
        expect(String(reply)).toMatch(/holds more than 100000 values|nested too deeply/);
      }
      expect(parse.mock.calls.filter(([text]) => text.length > 100_000)).toEqual([]);
    } finally {
      parse.mockRestore();
    }
  });
});

describe('replies that nobody reads', () => {
  it('count on sockets, over all of them', async () => {
    const { handler, port } = await serve({ limits: { unreadBytes: 8_000_000 } });
    const sockets: Opened[] = [];
    for (let nth = 0; nth < 12; nth += 1) {
      const one = await open(port);
      one.raw.pause();
      for (let id = 0; id < 6; id += 1) one.socket.send(JSON.stringify(modern(id)));
      sockets.push(one);
    }
    await expect.poll(() => handler.counters.brokenStreams).toBeGreaterThanOrEqual(6);
    expect(handler.traffic.unread.bytes).toBeLessThanOrEqual(4_000_000);
  });

  it('count on one connection where they are queued, without a socket of their own', async () => {
    const { handler, port } = await serve({ limits: { unreadBytes: 8_000_000 } });
    const socket = connect(port, '127.0.0.1');
    socket.on('error', () => {});
    ends.push(() => socket.destroy());
    await once(socket, 'connect');
    socket.pause();
    // As many as may be open.
    const requests = Array.from({ length: 12 }, (_, id) => {
      const body = JSON.stringify(modern(id, 'huge'));
      const headers = {
        host: 'localhost',
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        ...modernHeaders('tools/call', 'huge'),
        'content-length': String(body.length),
      };
      const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
      return `POST /mcp HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n${body}`;
    });
    const closed = once(socket, 'close');
    socket.write(requests.join(''));
    await expect.poll(() => handler.counters.brokenStreams).toBeGreaterThanOrEqual(1);
    socket.resume();
    await closed;
    await expect.poll(() => handler.traffic.unread.bytes).toBe(0);
  });
});

describe('a socket is closed with 4401', () => {
  it('when its caller is disconnected, or forgotten, and no other caller’s is', async () => {
    const { handler, port, url } = await serve();
    const ann = [await open(port, bearer('ann')), await open(port, bearer('ann'))];
    const bob = await open(port, bearer('bob'));
    const stranger = await open(port);
    const stream = await fetch(`${url}/acme`, { headers: { ...bearer('ann'), accept: 'text/event-stream' } });
    expect(stream.status).toBe(200);
    expect(handler.disconnect('ann')).toBe(3);
    for (const { closed } of ann) expect((await closed).code).toBe(4401);
    await expect(stream.text()).rejects.toThrow();
    expect(handler.disconnect('ann')).toBe(0);
    await handler.forget('bob');
    expect((await bob.closed).code).toBe(4401);
    expect(isOpen(stranger)).toBe(true);
  });

  it('when its credentials expire', async () => {
    const { port } = await serve(
      {},
      { authenticate: () => ({ clientId: 'ann', expiresAt: Date.now() / 1_000 + 0.2 }) },
    );
    const { closed } = await open(port);
    expect(await closed).toEqual({ code: 4401, reason: 'the credentials have expired' });
  });

  it('when they are refused later, or are another caller’s, and not while they are renewed', async () => {
    let answer: () => { clientId: string; expiresAt?: number } = () => ({ clientId: 'ann' });
    let asked = 0;
    const authenticate = () => {
      asked += 1;
      return answer();
    };
    const { port } = await serve({}, { ping: 30, authenticate });
    const first = await open(port);
    await expect.poll(() => asked).toBeGreaterThan(3);
    expect(isOpen(first)).toBe(true);
    answer = () => ({ clientId: 'bob' });
    expect((await first.closed).code).toBe(4401);
    answer = () => ({ clientId: 'ann' });
    const second = await open(port);
    answer = () => {
      throw new Error('revoked');
    };
    expect((await second.closed).code).toBe(4401);
  });

  it('and not while they cannot be verified: then new ones get 503', async () => {
    let isAway = false;
    let asked = 0;
    const authenticate = () => {
      asked += 1;
      if (isAway) throw new AwaitError('internal', 'the keys cannot be read');
      return { clientId: 'ann', expiresAt: Date.now() / 1_000 + 0.5 };
    };
    const { port } = await serve({}, { ping: 30, authenticate });
    const first = await open(port);
    isAway = true;
    const before = asked;
    await expect.poll(() => asked).toBeGreaterThan(before + 3);
    expect(isOpen(first)).toBe(true);
    const refused = new WebSocket(`ws://127.0.0.1:${port}/mcp`, ['mcp']);
    const [error] = await once(refused, 'error');
    expect(String(error)).toContain('503');
    expect(await first.closed).toEqual({ code: 4401, reason: 'the credentials have expired' });
  });
});

it('anonymous sockets take half of the places at most', async () => {
  const { port } = await serve({}, { maxSockets: 10 });
  for (let nth = 0; nth < 5; nth += 1) await open(port);
  const refused = new WebSocket(`ws://127.0.0.1:${port}/mcp`, ['mcp']);
  const [error] = await once(refused, 'error');
  expect(String(error)).toContain('503');
  expect(isOpen(await open(port, bearer('ann')))).toBe(true);
});

it('a GET’s stream is closed when its credentials expire', async () => {
  const handler = createAwaitHandler(build, { logger: new LogBook(), principal: () => 'ann' });
  ends.push(() => handler.close());
  const request = new Request('http://localhost/mcp/acme', { headers: { accept: 'text/event-stream' } });
  const authInfo = { clientId: 'ann', expiresAt: Date.now() / 1_000 + 0.2 };
  const stream = await handler.fetch(request, { authInfo });
  expect(stream.status).toBe(200);
  await expect(stream.text()).rejects.toThrow();
});

it('so is one of notices', async () => {
  const handler = createAwaitHandler(build, { logger: new LogBook(), principal: () => 'ann' });
  ends.push(() => handler.close());
  const method = 'subscriptions/listen';
  const _meta = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientInfo': { name: 'listens', version: '1' },
    'io.modelcontextprotocol/clientCapabilities': {},
  };
  const params = { notifications: { toolsListChanged: true }, _meta };
  const request = new Request('http://localhost/mcp', {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'mcp-protocol-version': '2026-07-28',
      'mcp-method': method,
    },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }),
  });
  const stream = await handler.fetch(request, {
    authInfo: { clientId: 'ann', expiresAt: Date.now() / 1_000 + 0.2 },
  });
  expect(stream.headers.get('content-type')).toContain('text/event-stream');
  await expect(stream.text()).rejects.toThrow();
});
