/** A WebSocket server that means harm to its client. */
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, it } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import { AwaitWebSocketTransport } from '../../src/client/index.ts';

const servers: WebSocketServer[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) {
    for (const socket of server.clients) socket.terminate();
    server.close();
  }
});

/** What a client says of a server that does this to it. */
async function against(harm: (socket: WebSocket) => void): Promise<string> {
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1', handleProtocols: () => 'mcp' });
  servers.push(server);
  await once(server, 'listening');
  server.on('connection', harm);
  const transport = new AwaitWebSocketTransport(`ws://127.0.0.1:${(server.address() as AddressInfo).port}`);
  const said: string[] = [];
  transport.onerror = ({ message }) => void said.push(message);
  // As a client that answers at once.
  transport.onmessage = (message) => {
    if ('method' in message && message.method === 'ping' && 'id' in message)
      void transport.send({ jsonrpc: '2.0', id: message.id, result: {} });
  };
  const closed = new Promise<void>((resolve) => {
    transport.onclose = resolve;
  });
  await transport.start();
  await closed;
  return said.join();
}

const ask = (id: number) =>
  JSON.stringify({ jsonrpc: '2.0', id, method: 'elicitation/create', params: { message: '?' } });

it.each([
  [
    'many values',
    `{"jsonrpc":"2.0","method":"x","params":{"all":[${'[],'.repeat(300_000)}1]}}`,
    '250000 values',
  ],
  ['deep nesting', `{"jsonrpc":"2.0","method":"x","params":${'['.repeat(900)}`, '500 levels deep'],
])('that sends %s is left before they are parsed', async (_what, text, said) => {
  expect(await against((socket) => socket.send(text))).toContain(said);
});

it('that asks without an end is left', async () => {
  const harm = (socket: WebSocket): void => {
    for (let id = 0; id < 1_100; id += 1) socket.send(ask(id));
  };
  expect(await against(harm)).toContain('asks more than 1000 things at once');
});

it('that asks much and takes its questions back is not', async () => {
  const harm = (socket: WebSocket): void => {
    for (let id = 0; id < 1_100; id += 1) {
      socket.send(ask(id));
      const params = { requestId: id };
      socket.send(JSON.stringify({ jsonrpc: '2.0', method: 'notifications/cancelled', params }));
    }
    socket.send(`{"jsonrpc":"2.0","method":"x","params":${'['.repeat(900)}`);
  };
  expect(await against(harm)).toContain('500 levels deep');
});

it('that reads no answer is left', async () => {
  const id = 'x'.repeat(1_000_000);
  const harm = (socket: WebSocket): void => {
    (socket as unknown as { pause(): void }).pause();
    for (let nth = 0; nth < 90; nth += 1)
      socket.send(JSON.stringify({ jsonrpc: '2.0', id: `${nth}${id}`, method: 'ping' }));
  };
  expect(await against(harm)).toContain('reads nothing');
});
