/** One anonymous stranger with hundreds of connections, on each of which thousands of requests come at once. */
import { setTimeout as sleep } from 'node:timers/promises';
import { it } from 'vitest';
import { lives, raw, start, whileStopped } from './small-heap.ts';

const CONNECTIONS = 200;
const REQUESTS = 5_000;
const GET = 'GET /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n';
const HEADERS =
  'host: localhost\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream';

it.each([
  ['GET', GET],
  ['POST', `POST /mcp HTTP/1.1\r\n${HEADERS}\r\ncontent-length: 2\r\n\r\n{}`],
  [
    'POST, to be continued',
    `POST /mcp HTTP/1.1\r\n${HEADERS}\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n{}`,
  ],
])('cannot end a process by %s', async (_what, request) => {
  await start();
  const sockets = await Promise.all(Array.from({ length: CONNECTIONS }, raw));
  await whileStopped(async () => {
    // Nothing is read.
    for (const socket of sockets) socket.pause().write(request.repeat(REQUESTS));
    await sleep(2_000);
  });
  await sleep(5_000);
  await lives({ authorization: 'Bearer ann' });
});
