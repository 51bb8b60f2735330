/** A process with a small heap, and what strangers send to it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import process from 'node:process';
import { createInterface } from 'node:readline';
import { afterEach, expect } from 'vitest';
import { WebSocket } from 'ws';
import { post, textOf } from '../e2e/clients.ts';
import { initialize, Peer } from './peer.ts';

const SERVER = new URL('../fixtures/large-server.mts', import.meta.url).pathname;
/** In MiB; `receivedBytes` and `unreadBytes` are 32 there, `callerArgumentBytes` too. */
const HEAP = 192;

let child: ChildProcess;
let port = 0;
export let url = '';
const sockets: { destroy(): void }[] = [];

/** @param script prints its address, or its port alone */
export async function start(
  env: Readonly<Record<string, string>> = {},
  script: readonly string[] = ['--import', 'tsx', SERVER],
): Promise<void> {
  child = spawn(process.execPath, [`--max-old-space-size=${HEAP}`, ...script], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, ...env },
  });
  if (child.stdout === null) throw new Error('no output');
  const [line] = (await once(createInterface(child.stdout), 'line')) as [string];
  port = Number(/\d+(?=\/|$)/.exec(line)?.[0]);
  url = `http://127.0.0.1:${port}/mcp`;
}

afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  child.kill('SIGKILL');
  if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
});

/** Does something while the process sleeps: what is sent meanwhile, it finds all at once. */
export async function whileStopped(act: () => Promise<void>): Promise<void> {
  child.kill('SIGSTOP');
  await act();
  child.kill('SIGCONT');
}

/** The process lives, and serves another client. */
export async function lives(headers: Readonly<Record<string, string>> = {}): Promise<void> {
  expect([child.exitCode, child.signalCode]).toEqual([null, null]);
  expect(textOf(await post(url, { tool: 'small', headers }))).toBe('small');
}

/** Bytes outside of the heap: what sockets read, and do not give back. */
export async function buffers(): Promise<number> {
  return Number(textOf(await post(url, { tool: 'buffers' })));
}

export async function raw(): Promise<Socket> {
  const socket = connect(port, '127.0.0.1');
  sockets.push(socket);
  socket.on('error', () => {});
  await once(socket, 'connect');
  return socket;
}

export async function webSocket(): Promise<{ socket: WebSocket; wire: Socket }> {
  const socket = new WebSocket(`ws://127.0.0.1:${port}/mcp`, ['mcp']);
  socket.on('error', () => {});
  sockets.push({ destroy: () => socket.terminate() });
  const [{ socket: wire }] = (await once(socket, 'upgrade')) as [{ socket: Socket }];
  if (socket.readyState !== socket.OPEN) await once(socket, 'open');
  return { socket, wire };
}

/** A session of HTTP+SSE, whose stream is read to its end. */
export async function overSse(): Promise<Peer> {
  const { body } = await fetch(url.replace('/mcp', '/sse'), { headers: { accept: 'text/event-stream' } });
  const reader = body?.pipeThrough(new TextDecoderStream()).getReader();
  if (reader === undefined) throw new Error('no stream');
  const [, endpoint = ''] = /data: (\S+)/.exec((await reader.read()).value ?? '') ?? [];
  sockets.push({ destroy: () => void reader.cancel().catch(() => {}) });
  const end = (async () => {
    for (let read = await reader.read(); !read.done; ) read = await reader.read();
  })();
  end.catch(() => {});
  const peer = new Peer(new URL(endpoint, url).href, {});
  await peer.post(initialize('2024-11-05'));
  return peer;
}

export const large = (id: number) => ({
  jsonrpc: '2.0',
  id,
  method: 'tools/call',
  params: {
    name: 'large',
    arguments: {},
    _meta: {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientInfo': { name: 'stranger', version: '1' },
      'io.modelcontextprotocol/clientCapabilities': {},
    },
  },
});

export const VERSION = { 'mcp-protocol-version': '2026-07-28' };

/** A POST as it is written on a connection. */
export function onWire(body: string, named: Readonly<Record<string, string>>): string {
  const headers = {
    host: 'localhost',
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    ...named,
    'content-length': String(Buffer.byteLength(body)),
  };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
  return `POST /mcp HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n${body}`;
}

/** Waits until the process has taken what it will, or has broken the connection off. */
export const written = (socket: Socket, bytes: Buffer): Promise<void> =>
  new Promise((resolve) => {
    const done = (): void => {
      socket.off('close', done);
      resolve();
    };
    socket.once('close', done);
    if (socket.destroyed) done();
    else socket.write(bytes, done);
  });
