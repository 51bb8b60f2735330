/** Requests that offer another protocol than WebSocket, on a server that has WebSockets too: they are plain HTTP/1.1. */
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { createServer as createTls } from 'node:https';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { afterEach, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import * as z from 'zod';
import { createAwaitHandler } from '../../../src/index.ts';
import { toNodeHandler } from '../../../src/node.ts';
import { mountWebSocket } from '../../../src/websocket.ts';
import { modernHeaders } from '../../e2e/clients.ts';

const cleanUps: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanUp of cleanUps.splice(0).reverse()) await cleanUp();
});

function build(): McpServer {
  const server = new McpServer({ name: 'echo', version: '1' });
  const inputSchema = { text: z.string() };
  server.registerTool('length', { inputSchema }, ({ text }) => ({
    content: [{ type: 'text', text: `${text.length} characters` }],
  }));
  return server;
}

/** TLS without a certificate. */
const psk = Buffer.alloc(32, 7);
const SHARED_KEY = { ciphers: 'PSK', maxVersion: 'TLSv1.2' } as const;
const CLIENT = {
  ...SHARED_KEY,
  pskCallback: () => ({ psk, identity: 'client' }),
  checkServerIdentity: () => undefined,
};

async function serve(secure: boolean): Promise<number> {
  const handler = createAwaitHandler(build);
  const listener = toNodeHandler(handler);
  let server: Server = createServer(listener);
  if (secure) server = createTls({ ...SHARED_KEY, pskCallback: () => psk }, listener);
  mountWebSocket(server, handler);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  cleanUps.push(async () => {
    server.closeAllConnections();
    server.close();
    await handler.close();
  });
  return (server.address() as AddressInfo).port;
}

function request(text: string, upgrade: string): readonly [head: string, body: string] {
  const _meta = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientInfo': { name: 'java', version: '1' },
    'io.modelcontextprotocol/clientCapabilities': {},
  };
  const params = { name: 'length', arguments: { text }, _meta };
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params });
  const headers = {
    Host: 'localhost',
    Connection: 'Upgrade, HTTP2-Settings',
    Upgrade: upgrade,
    'HTTP2-Settings': 'AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA',
    'Content-Type': 'application/json',
    Accept: 'application/json, text/event-stream',
    'Content-Length': Buffer.byteLength(body),
    ...modernHeaders('tools/call', 'length'),
  };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
  return [`POST /mcp HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`, body];
}

describe.each([
  ['http', false],
  ['https', true],
])('over %s', (_name, secure) => {
  it('an offer of h2c is passed over, also in the next request of its connection', async () => {
    const port = await serve(secure);
    const socket: Socket = secure
      ? connectTls({ port, host: '127.0.0.1', ...CLIENT })
      : connect(port, '127.0.0.1');
    cleanUps.push(() => socket.destroy());
    await once(socket, secure ? 'secureConnect' : 'connect');
    let got = '';
    socket.on('data', (chunk) => {
      got += chunk;
    });
    const [head, body] = request('abc', 'h2c');
    socket.write(head + body);
    await expect.poll(() => got).toContain('3 characters');
    // Its body comes later, and in parts.
    const [next, long] = request('x'.repeat(300_000), 'h2c, foo');
    socket.write(next);
    await new Promise((resolve) => setTimeout(resolve, 50));
    socket.write(long.slice(0, 100_000));
    socket.write(long.slice(100_000));
    await expect.poll(() => got).toContain('300000 characters');
    expect(got.match(/HTTP\/1\.1 200 OK/g)).toHaveLength(2);
    expect(got).not.toContain('Connection: close');
  });

  it('a WebSocket is served beside', async () => {
    const port = await serve(secure);
    const url = `${secure ? 'wss' : 'ws'}://127.0.0.1:${port}/mcp`;
    const socket = new WebSocket(url, ['mcp'], CLIENT as object);
    cleanUps.push(() => socket.terminate());
    await once(socket, 'open');
    const other = new WebSocket(url.replace('/mcp', '/other'), ['mcp'], CLIENT as object);
    const [{ message }] = (await once(other, 'error')) as [Error];
    expect(message).toContain('404');
  });
});
