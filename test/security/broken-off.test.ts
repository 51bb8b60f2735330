/** Requests whose connections break while they wait for their turn of the event loop. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import { connect, type Socket } from 'node:net';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { afterEach, expect, it } from 'vitest';
import { toNodeHandler } from '../../src/node.ts';
import { begin } from '../e2e/anywhere.ts';
import { modernHeaders } from '../e2e/clients.ts';
import { listen, type Served, serveHere, shut } from '../e2e/harness.ts';

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

it('listens for nobody where a parser has read the body, and its client has gone', async () => {
  served = await serveHere(
    () => new McpServer({ name: 'idle', version: '1' }, { capabilities: { tools: {} } }),
  );
  const listener = toNodeHandler(served.handler);
  let done = 0;
  let gone = new AbortController();
  const mount = createServer(async (req, res) => {
    const chunks: Buffer[] = [];
    for await (const chunk of req) chunks.push(chunk as Buffer);
    gone.abort();
    if (!req.socket.destroyed) await once(req.socket, 'close');
    await listener(Object.assign(req, { body: JSON.parse(String(Buffer.concat(chunks))) }), res);
    done += 1;
  });
  const url = await listen(mount);
  const method = 'subscriptions/listen';
  const META = 'io.modelcontextprotocol';
  const params = {
    notifications: { toolsListChanged: true },
    _meta: {
      [`${META}/protocolVersion`]: '2026-07-28',
      [`${META}/clientInfo`]: { name: 'gone', version: '1' },
      [`${META}/clientCapabilities`]: {},
    },
  };
  const headers = {
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    ...modernHeaders(method, ''),
  };
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method, params });
  for (let nth = 0; nth < 10; nth += 1) {
    gone = new AbortController();
    await fetch(url, { method: 'POST', headers, body, signal: gone.signal }).catch(() => undefined);
  }
  await expect.poll(() => done).toBe(10);
  expect(served.handler.traffic.memory.amount).toBe(0);
  await shut(mount);
});

it('opens no stream over fetch for a client that has gone', async () => {
  served = await serveHere(() => new McpServer({ name: 'idle', version: '1' }));
  const { headers } = await begin([served], {});
  const asked = { headers: { ...headers, accept: 'text/event-stream' } };
  const open = await served.handler.fetch(new Request(served.url, asked));
  expect([open.status, open.headers.get('content-type')]).toEqual([200, 'text/event-stream']);
  const gone = await served.handler.fetch(new Request(served.url, { ...asked, signal: AbortSignal.abort() }));
  expect(await gone.text()).toBe('');
  await open.body?.cancel();
});
