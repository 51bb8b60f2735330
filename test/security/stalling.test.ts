/**
 * A stranger that stalls: bodies that never end, results that are never read, silent connections. All of them together
 * are bounded. Asserted by bytes and counts.
 */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { afterEach, describe, expect, it } from 'vitest';
import { atOnce } from '../../compat/session/call-reply.ts';
import type { Session } from '../../compat/session/session.ts';
import { Budget } from '../../src/base/budget.ts';
import { systemClock } from '../../src/base/values.ts';
import { tuned } from '../../src/call/limits.ts';
import { Backlog } from '../../src/doors/http/backlog.ts';
import { bodiesOf } from '../../src/doors/http/bodies.ts';
import type { Inbound, Writer } from '../../src/doors/http/exchange.ts';
import type { Services } from '../../src/handler/services.ts';
import type { AwaitOptions } from '../../src/index.ts';
import { newCounters } from '../../src/observe/counters.ts';
import { modernHeaders, post } from '../e2e/clients.ts';
import { SECRET, type Served, serveHere, spawnServers } from '../e2e/harness.ts';

const ends: (() => Promise<unknown> | unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

const LARGE = 12_000_000;

function server(): McpServer {
  const built = new McpServer({ name: 'large', version: '1' });
  built.registerTool('large', {}, () => ({ content: [{ type: 'text', text: 'x'.repeat(LARGE) }] }));
  built.registerTool('small', {}, () => ({ content: [{ type: 'text', text: 'small' }] }));
  return built;
}

async function serve(options: AwaitOptions): Promise<Served> {
  const served = await serveHere(server, { secrets: [SECRET], ...options });
  ends.push(() => served.close());
  return served;
}

/** A request as it stands, of which no reply is read. */
async function open(url: string, text: string): Promise<Socket> {
  const socket = connect(Number(new URL(url).port), '127.0.0.1');
  socket.on('error', () => {});
  ends.push(() => socket.destroy());
  await once(socket, 'connect');
  socket.pause();
  socket.write(text);
  return socket;
}

function head(url: string, length: number, headers: Readonly<Record<string, string>> = {}): string {
  const lines = {
    host: 'localhost',
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    'content-length': String(length),
    ...headers,
  };
  const text = Object.entries(lines).map(([name, value]) => `${name}: ${value}`);
  return `POST ${new URL(url).pathname} HTTP/1.1\r\n${text.join('\r\n')}\r\n\r\n`;
}

const isOpen = (socket: Socket): boolean => !socket.destroyed && !socket.readableEnded;

describe('bodies that never end', () => {
  it('hold limits.receivedBytes together: the one that took longest is broken off, and others are served', async () => {
    const { url, log } = await serve({ limits: { receivedBytes: 4_000_000 } });
    const sockets: Socket[] = [];
    for (let nth = 0; nth < 12; nth += 1) {
      const socket = await open(url, head(url, 1_000_000) + 'x'.repeat(500_000));
      socket.resume();
      sockets.push(socket);
      await sleep(20);
    }
    await expect.poll(() => sockets.filter(isOpen).length).toBeLessThanOrEqual(4);
    expect(isOpen(sockets[11] as Socket)).toBe(true);
    expect(log.text).toContain('limits.receivedBytes');
    expect((await post(url, { tool: 'small' })).status).toBe(200);
  });

  it('that are announced too long are refused before they are read', async () => {
    const { url } = await serve({ limits: { bodyBytes: 1_000 } });
    const socket = await open(url, head(url, 10_000_000));
    const [chunk] = (await once(socket.resume(), 'data')) as [Buffer];
    expect(chunk.toString()).toMatch(/^HTTP\/1\.1 413 [\s\S]*connection: close/i);
  });

  it('cost what they are long, however small their pieces are', () => {
    const bodies = new Budget(1_000_000);
    const body = bodiesOf(bodies, {}, 100_000)(() => {});
    for (let nth = 0; nth < 50_000; nth += 1) body.add(Buffer.from('x'));
    expect(bodies.bytes).toBeLessThanOrEqual(100_000);
    expect(() => body.add(Buffer.alloc(50_001))).toThrow('longer than 100000 bytes');
    expect(body.text()).toBe('x'.repeat(50_000));
    // A request that waits for its reply keeps no bytes.
    expect([bodies.bytes, body.text()]).toEqual([0, '']);
  });

  it('are broken off, the oldest first, and each once', () => {
    const bodies = new Budget(200);
    const broken: number[] = [];
    const begin = bodiesOf(bodies, {}, 1_000);
    const open = [0, 1, 2, 3].map((nth) => begin(() => broken.push(nth)));
    for (const body of open) body.add(Buffer.alloc(40));
    expect([broken, bodies.bytes]).toEqual([[0, 1], 80]);
    open[0]?.over();
    open[2]?.over();
    expect(bodies.bytes).toBe(40);
  });
});

describe('results that nobody reads', () => {
  it('hold limits.unreadBytes together, on a body of JSON and on a stream', async () => {
    const { url, handler } = await serve({ limits: { unreadBytes: 6 * LARGE } });
    const params = {
      name: 'large',
      arguments: {},
      _meta: {
        'io.modelcontextprotocol/protocolVersion': '2026-07-28',
        'io.modelcontextprotocol/clientInfo': { name: 'stalling', version: '1' },
        'io.modelcontextprotocol/clientCapabilities': {},
      },
    };
    const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params });
    const text = head(url, body.length, modernHeaders('tools/call', 'large')) + body;
    for (let nth = 0; nth < 10; nth += 1) await open(url, text);
    // What the kernel takes of each is not ours: two in three at most are still waited for.
    await expect.poll(() => handler.counters.brokenStreams).toBeGreaterThanOrEqual(4);
    expect((await post(url, { tool: 'small' })).status).toBe(200);
    const before = handler.counters.brokenStreams;
    const workspace = `${url}/acme`;
    const call = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'large' } });
    for (let nth = 0; nth < 10; nth += 1) await open(workspace, head(workspace, call.length) + call);
    await expect.poll(() => handler.counters.brokenStreams - before).toBeGreaterThanOrEqual(4);
  });

  it('are counted to the last message, where a reply of many is sent at once', () => {
    const backlog = new Backlog({ clock: systemClock, stalled: 1_000_000, budget: new Budget(1_000_000) });
    const session = { id: 'here' } as Session;
    const services = { counters: newCounters() } as Services;
    const messages = Array.from({ length: 10 }, () => ({
      method: 'm',
      params: { data: 'y'.repeat(20_000) },
    }));
    const { body } = atOnce(services, session, {} as Inbound, messages);
    let unsent = 0;
    const writer: Writer = {
      write: (text) => {
        unsent += text.length;
        return false;
      },
      get unsent() {
        return unsent;
      },
      onDrain: () => {},
      onClose: () => {},
      end: () => {},
      destroy: () => {},
    };
    if (typeof body === 'function') body(backlog.guard(writer, {}));
    expect(backlog.bytes).toBeGreaterThan(200_000);
  });

  it('are broken off when they took nothing for too long, also where the body is JSON', async () => {
    const { url, handler } = await serve({ ...tuned({ stalled: 300 }) });
    const call = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'large' } });
    const workspace = `${url}/acme`;
    await open(workspace, head(workspace, call.length, { accept: 'application/json' }) + call);
    await expect.poll(() => handler.counters.brokenStreams).toBe(1);
  });

  it('are forgotten once they are read, or gone', () => {
    const backlog = new Backlog({ clock: systemClock, stalled: 1_000_000, budget: new Budget(200) });
    const wires = [40, 40, 40].map((unsent) => ({
      unsent,
      destroyed: false,
      drain: () => {},
      close: () => {},
    }));
    const guards = wires.map((wire) =>
      backlog.guard(
        {
          write: () => false,
          get unsent() {
            return wire.unsent;
          },
          onDrain: (fn) => {
            wire.drain = fn;
          },
          onClose: (fn) => {
            wire.close = fn;
          },
          end: () => {},
          destroy: () => {
            wire.destroyed = true;
          },
        },
        {},
      ),
    );
    for (const guard of guards) guard.write('x');
    expect([backlog.bytes, wires.map(({ destroyed }) => destroyed)]).toEqual([80, [true, false, false]]);
    if (wires[1]) wires[1].unsent = 0;
    wires[1]?.drain();
    expect(backlog.bytes).toBe(40);
    wires[2]?.close();
    guards[2]?.write('x');
    expect(backlog.bytes).toBe(0);
  });
});

describe('mcp-await serve', () => {
  it('ends heads and bodies that take too long, and takes so many connections and no more', async () => {
    const args = ['--body-time', '2s', '--connections', '5'];
    const [spawned] = await spawnServers('asking-server.ts', 1, { args });
    ends.push(() => spawned?.kill());
    const url = spawned?.url ?? '';
    const slow = await open(url, 'POST /mcp HTTP/1.1\r\nhost: localhost\r\n');
    const never = await open(url, `${head(url, 1_000)}{`);
    for (const socket of [slow, never]) {
      const [chunk] = (await once(socket.resume(), 'data')) as [Buffer];
      expect(chunk.toString()).toContain('408 Request Timeout');
    }
    const sockets: Socket[] = [];
    for (let nth = 0; nth < 8; nth += 1) sockets.push((await open(url, '')).resume());
    await expect.poll(() => sockets.filter(isOpen).length).toBeLessThanOrEqual(5);
  });
});
