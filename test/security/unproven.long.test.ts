/** Strangers whose bodies come in pieces of one byte, while the server behind the proxy takes its time to say who they are. */
import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, it } from 'vitest';
import { listen, shut } from '../e2e/harness.ts';
import { initialize } from './peer.ts';
import { raw, start, url } from './small-heap.ts';

const CLI = new URL('../../dist/src/cli/main.js', import.meta.url).pathname;
const CONNECTIONS = 200;
/** How long the server takes to say what a token is worth, in milliseconds. */
const SLOW = 6_000;

const server = createServer((req, res) => {
  const isKnown = req.headers.authorization === 'Bearer ann';
  const result = {
    protocolVersion: '2025-11-25',
    capabilities: {},
    serverInfo: { name: 'far', version: '1' },
  };
  const serve = async (): Promise<void> => {
    let text = '';
    for await (const piece of req) text += piece;
    if (!isKnown) await sleep(SLOW);
    const { id } = text === '' ? {} : JSON.parse(text);
    res.writeHead(!isKnown ? 401 : id === undefined ? 202 : 200, { 'content-type': 'application/json' });
    res.end(isKnown && id !== undefined ? JSON.stringify({ jsonrpc: '2.0', id, result }) : '');
  };
  void serve();
});
afterEach(() => shut(server));

/** What is replied to a request whose body comes in pieces of one byte, and with its head; nothing if it is broken off. */
async function send(token: string, body: string): Promise<string> {
  const socket = await raw();
  const reply = new Promise<string>((resolve) => {
    let text = '';
    socket.on('data', (piece) => {
      text += piece;
      if (text.includes('\r\n0\r\n')) resolve(text);
    });
    socket.once('close', () => resolve(text));
  });
  const headers = {
    host: 'localhost',
    authorization: `Bearer ${token}`,
    accept: 'application/json, text/event-stream',
    'content-type': 'application/json',
    'transfer-encoding': 'chunked',
  };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  socket.write(`POST /mcp HTTP/1.1\r\n${lines.join('')}\r\n${body.replace(/./g, '1\r\n$&\r\n')}0\r\n\r\n`);
  return reply;
}

it('cannot end a process', async () => {
  const args = ['proxy', '--url', `${await listen(server)}/mcp`, '--forward-authorization', '--port', '0'];
  await start({}, [CLI, ...args]);
  const body = `${JSON.stringify(initialize('2025-11-25'))}${' '.repeat(20_000)}`;
  expect(await send('ann', body)).toMatch(/^HTTP\/1.1 200.*"name":"far"/s);
  const replies = await Promise.all(Array.from({ length: CONNECTIONS }, () => send('stranger', body)));
  // Some may have been too many, or taken too long, or their connections were.
  expect(replies.filter((reply) => !/^(HTTP\/1.1 (401|408|503)|$)/.test(reply))).toEqual([]);
  expect((await fetch(url.replace('/mcp', '/healthz'))).status).toBe(200);
});
