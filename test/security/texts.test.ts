/** Texts that strangers send at once: what waits to be parsed is counted, and a turn of the event loop parses few. */

import { once } from 'node:events';
import { createServer } from 'node:http';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { afterEach, expect, it, vi } from 'vitest';
import { WebSocket } from 'ws';
import { LoopTurns } from '../../src/base/values.ts';
import { tuned } from '../../src/call/limits.ts';
import { Pipe } from '../../src/doors/pipe/pipe.ts';
import { mountWebSocket } from '../../src/websocket.ts';
import { modernHeaders } from '../e2e/clients.ts';
import { listen, type Served, serveHere, shut } from '../e2e/harness.ts';
import { countTurns, mostInOne } from '../loop-turns.ts';

let served: Served;
afterEach(async () => {
  vi.restoreAllMocks();
  await served.close();
});

const build = (): McpServer => {
  const server = new McpServer({ name: 'plain', version: '1' });
  server.registerTool('plain', {}, () => ({ content: [{ type: 'text', text: 'done' }] }));
  return server;
};

/** A call of 2026-07-28 whose arguments are so long. */
function callOf(length: number): string {
  const _meta = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientInfo': { name: 'stranger', version: '1' },
    'io.modelcontextprotocol/clientCapabilities': {},
  };
  const params = { name: 'plain', arguments: { text: 'x'.repeat(length) }, _meta };
  return JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params });
}

const HEADERS = {
  'content-type': 'application/json',
  accept: 'application/json, text/event-stream',
  ...modernHeaders('tools/call', 'plain'),
};

it('over WebSockets, each just too short to wait alone, are read one in a turn', async () => {
  served = await serveHere(build);
  const server = createServer();
  const mounted = mountWebSocket(server, served.handler);
  const url = await listen(server);
  const turns = countTurns();
  const read: number[] = [];
  const { receive } = Pipe.prototype;
  vi.spyOn(Pipe.prototype, 'receive').mockImplementation(function (this: Pipe, text) {
    if (text.length > 60_000) read.push(turns.now);
    receive.call(this, text);
  });
  const sockets = Array.from({ length: 40 }, () => new WebSocket(`${url.replace('http', 'ws')}/mcp`, 'mcp'));
  await Promise.all(sockets.map((socket) => once(socket, 'open')));
  const replies = Promise.all(sockets.map((socket) => once(socket, 'message')));
  for (const socket of sockets) socket.send(callOf(60_000));
  await replies;
  turns.stop();
  for (const socket of sockets) socket.terminate();
  await mounted.close();
  await shut(server);
  expect(read).toHaveLength(40);
  expect(mostInOne(read)).toBe(1);
});

it('over HTTP are parsed one in a turn', async () => {
  served = await serveHere(build);
  const text = callOf(60_000);
  const turns = countTurns();
  const read: number[] = [];
  const { parse } = JSON;
  vi.spyOn(JSON, 'parse').mockImplementation((given, ...more) => {
    if (given === text) read.push(turns.now);
    return parse(given, ...more);
  });
  const requests = Array.from({ length: 40 }, () =>
    served.handler.fetch(new Request(served.url, { method: 'POST', headers: HEADERS, body: text })),
  );
  for (const reply of await Promise.all(requests)) expect(reply.status).toBe(200);
  turns.stop();
  expect(read).toHaveLength(40);
  expect(mostInOne(read)).toBe(1);
});

it('that wait to be parsed are counted, and given back', async () => {
  served = await serveHere(build, tuned({ argumentBytes: 32_000_000 }));
  // A sixth of it once it is parsed.
  const body = callOf(650_000).replaceAll('x', '\\u0078');
  const sent = (): Promise<Response> =>
    served.handler.fetch(new Request(served.url, { method: 'POST', headers: HEADERS, body }));
  let begin = (): void => {};
  const begins = new Promise<void>((resolve) => {
    begin = resolve;
  });
  const { next } = LoopTurns.prototype;
  vi.spyOn(LoopTurns.prototype, 'next').mockImplementation(async function (this: LoopTurns, share, owner) {
    if (share === 1) await begins;
    return next.call(this, share, owner);
  });
  setTimeout(begin, 1_000);
  const statuses = (await Promise.all(Array.from({ length: 8 }, sent))).map(({ status }) => status);
  expect(new Set(statuses)).toEqual(new Set([200, 503]));
  expect(served.log.text).toContain('limits.argumentBytes');
  for (let nth = 0; nth < 6; nth += 1) expect((await sent()).status).toBe(200);
});
