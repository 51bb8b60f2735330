/** Requests whose connections break while they wait for their turn of the event loop. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { afterEach, expect, it } from 'vitest';
import { type Served, serveHere } from '../e2e/harness.ts';

const MANY = 100;
const BODY = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/list' });
const HEAD = [
  'POST /mcp HTTP/1.1',
  'host: localhost',
  'content-type: application/json',
  'accept: application/json, text/event-stream',
  `content-length: ${BODY.length}`,
].join('\r\n');

let served: Served;
const sockets: Socket[] = [];
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  await served.close();
});

it.each([
  ['its head', ''],
  ['a part of its body', BODY.slice(0, 10)],
  ['all of it', BODY],
])('count for nothing afterwards: each has sent %s', async (_what, body) => {
  served = await serveHere(() => new McpServer({ name: 'idle', version: '1' }));
  const { hostname, port } = new URL(served.url);
  for (let nth = 0; nth < MANY; nth += 1) sockets.push(connect(Number(port), hostname));
  await Promise.all(sockets.map((socket) => once(socket, 'connect')));
  for (const socket of sockets) {
    socket.on('error', () => {});
    socket.write(`${HEAD}\r\n\r\n${body}`);
  }
  for (const socket of sockets) socket.resetAndDestroy();
  const reply = await fetch(served.url, { method: 'POST', body: '{}' });
  await reply.text();
  await expect.poll(() => served.handler.traffic.memory.amount).toBe(0);
});
