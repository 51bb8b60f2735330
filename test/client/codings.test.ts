/** A server that names more codings than Node's `fetch` decodes, and then breaks its connection. */
import { type AddressInfo, createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { fetchWithinOrigin } from '../../src/client/redirect.ts';

// Vitest fails the run on an uncaught exception.
it.each([
  ['in one header', `content-encoding: ${Array(9).fill('gzip').join(', ')}\r\n`],
  ['in several', 'content-encoding: gzip\r\nContent-Encoding: br, gzip, deflate\r\n'.repeat(3)],
])('ends no process: %s', async (_, codings) => {
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.once('data', async () => {
      socket.write(`HTTP/1.1 200 OK\r\n${codings}content-length: 100\r\n\r\nx`);
      await sleep(20);
      socket.resetAndDestroy();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`);
  const read = fetchWithinOrigin(fetch, url, { method: 'POST', body: '{}' }).then((response) =>
    response.text(),
  );
  await expect(read).rejects.toThrow();
  await sleep(100);
  await new Promise((resolve) => server.close(resolve));
});
