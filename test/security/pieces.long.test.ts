/** One anonymous stranger whose bodies come in pieces of one byte: each takes a hundred until it is read. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import process from 'node:process';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { post, textOf } from '../e2e/clients.ts';
import { inSession } from './peer.ts';

const SERVER = new URL('../fixtures/large-server.mts', import.meta.url).pathname;
/** In MiB. */
const HEAP = 192;
const CONNECTIONS = 400;
/** Of each body. Node reads some ten thousand of them at once. */
const PIECES = Buffer.from('1\r\na\r\n'.repeat(20_000));

let child: ChildProcess;
let port = 0;
let url = '';
let sockets: Socket[] = [];

beforeEach(async () => {
  child = spawn(process.execPath, [`--max-old-space-size=${HEAP}`, '--import', 'tsx', SERVER], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  if (child.stdout === null) throw new Error('no output');
  const [line] = (await once(createInterface(child.stdout), 'line')) as [string];
  port = Number(line);
  url = `http://127.0.0.1:${port}/mcp`;
});

afterEach(async () => {
  for (const socket of sockets) socket.destroy();
  sockets = [];
  child.kill('SIGKILL');
  if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
});

async function send(method: string, headers: Readonly<Record<string, string>>): Promise<void> {
  const socket = connect(port, '127.0.0.1');
  sockets.push(socket);
  socket.on('error', () => {}).resume();
  const all = { host: 'localhost', 'transfer-encoding': 'chunked', ...headers };
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}`);
  socket.write(`${method} /mcp HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`);
  socket.write(PIECES);
  await Promise.race([once(socket, 'drain'), once(socket, 'close'), sleep(10_000)]);
}

it.each(['POST', 'GET', 'DELETE'])(
  'cannot end a process by %s',
  async (method) => {
    const peer = await inSession(url, '2025-11-25');
    const accept = method === 'GET' ? 'text/event-stream' : 'application/json, text/event-stream';
    const headers = { ...(method === 'GET' && peer.headers), 'content-type': 'application/json', accept };
    await Promise.all(Array.from({ length: CONNECTIONS }, () => send(method, headers)));
    expect(textOf(await post(url, { tool: 'small', headers: { authorization: 'Bearer ann' } }))).toBe(
      'small',
    );
    expect([child.exitCode, child.signalCode]).toEqual([null, null]);
  },
  120_000,
);
