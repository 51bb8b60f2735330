/** One anonymous stranger whose bodies come in pieces of one byte: Node keeps a hundred for each that nobody has read. */
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { it } from 'vitest';
import { inSession } from './peer.ts';
import { lives, raw, start, url } from './small-heap.ts';

const CONNECTIONS = 400;
/** Of each body. Node reads some ten thousand of them at once. */
const PIECES = Buffer.from('1\r\na\r\n'.repeat(20_000));

async function send(method: string, headers: Readonly<Record<string, string>>): Promise<void> {
  const socket = (await raw()).resume();
  const all = { host: 'localhost', 'transfer-encoding': 'chunked', ...headers };
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}`);
  socket.write(`${method} /mcp HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`);
  socket.write(PIECES);
  await Promise.race([once(socket, 'drain'), once(socket, 'close'), sleep(10_000)]);
}

it.each(['POST', 'GET', 'DELETE'])('cannot end a process by %s', async (method) => {
  await start();
  const peer = await inSession(url, '2025-11-25');
  const accept = method === 'GET' ? 'text/event-stream' : 'application/json, text/event-stream';
  const headers = { ...(method === 'GET' && peer.headers), 'content-type': 'application/json', accept };
  await Promise.all(Array.from({ length: CONNECTIONS }, () => send(method, headers)));
  const ann = { authorization: 'Bearer ann' };
  await lives(ann);
  await lives(ann);
});
