/** A server behind `mcp-await proxy` by its other doors and streams: a WebSocket, and changes of its lists. */
import { Client as ModernClient, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as LegacyTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { WebSocketClientTransport } from '@modelcontextprotocol/sdk/client/websocket.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { ToolListChangedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { legacyOver } from './clients.ts';
import { node, type RunningProxy, startProxy } from './proxied.ts';

let proxy: RunningProxy;
beforeAll(async () => {
  // Node 20 has none of its own, and SDK v1's transport takes the global one.
  (globalThis as { WebSocket?: unknown }).WebSocket ??= WebSocket;
  proxy = await startProxy(node('stdio-server.mjs'));
});
afterAll(() => proxy.stop());

const INFO = { name: 'doors', version: '1' };

it('serves a WebSocket at /mcp', async () => {
  const client = await legacyOver(new WebSocketClientTransport(new URL(proxy.url.replace('http', 'ws'))));
  expect(await client.tool('writes')).toBe('Hello its name');
  expect(client.asked).toEqual(['name?']);
  await client.close();
});

it('closes a WebSocket that sends bytes which are not UTF-8 with 1007', async () => {
  const socket = new WebSocket(proxy.url.replace('http', 'ws'), ['mcp']);
  const code = new Promise((resolve) => socket.on('close', resolve));
  socket.on('error', () => {});
  socket.on('open', () => socket.send(Buffer.from([0x22, 0xff, 0xfe, 0x22]), { binary: false }));
  expect(await code).toBe(1007);
});

it('tells a session of 2025 that the tools have changed', async () => {
  const client = new Client(INFO);
  let changes = 0;
  client.setNotificationHandler(ToolListChangedNotificationSchema, () => {
    changes += 1;
  });
  await client.connect(new LegacyTransport(new URL(proxy.url)) as Transport);
  await client.callTool({ name: 'adds-tool' });
  await expect.poll(() => changes).toBeGreaterThan(0);
  await client.close();
});

it('tells a client of 2026-07-28 that listens', async () => {
  const client = new ModernClient(INFO, { versionNegotiation: { mode: { pin: '2026-07-28' } } });
  let changes = 0;
  client.setNotificationHandler('notifications/tools/list_changed', () => {
    changes += 1;
  });
  await client.connect(new StreamableHTTPClientTransport(new URL(proxy.url)));
  const listening = await client.listen({ toolsListChanged: true });
  await client.callTool({ name: 'adds-tool' });
  await expect.poll(() => changes).toBeGreaterThan(0);
  await listening.close();
  await client.close();
});
