/** Many requests that come on one connection in one piece. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import { connect, type Socket } from 'node:net';
import { afterEach, expect, it } from 'vitest';
import { toNodeHandler } from '../../src/node.ts';
import { listen, shut } from '../e2e/harness.ts';

const REQUEST = 'GET /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n';

let begun = 0;
let before: () => unknown = () => undefined;
const server = createServer(
  toNodeHandler({
    serve: async () => {
      begun += 1;
      await before();
      return { status: 200, headers: {}, body: 'done' };
    },
  }),
);

let socket: Socket | undefined;
afterEach(async () => {
  socket?.destroy();
  server.closeAllConnections();
  await shut(server);
});

it.each([
  ['later', () => new Promise(setImmediate)],
  ['at once', () => undefined],
])('are begun sixteen at a time, if answered %s: a connection with more is broken off', async (_, wait) => {
  before = wait;
  begun = 0;
  const { port } = new URL(await listen(server));
  socket = connect(Number(port), '127.0.0.1');
  socket.on('error', () => {});
  let text = '';
  socket.on('data', (chunk) => {
    text += String(chunk);
  });
  const answers = (): number => text.split('HTTP/1.1 200').length - 1;
  for (let round = 1; round <= 3; round += 1) {
    socket.write(REQUEST.repeat(16));
    await expect.poll(answers).toBe(round * 16);
  }
  begun = 0;
  socket.write(REQUEST.repeat(1_000));
  await once(socket, 'close');
  expect(begun).toBe(16);
  expect((await fetch(`http://127.0.0.1:${port}/mcp`, { method: 'POST', body: '{}' })).status).toBe(200);
});
