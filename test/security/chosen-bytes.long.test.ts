/** What a stranger chooses the length of, and a process keeps: each case is many times the heap that the process has. */
import { afterEach, describe, expect, it } from 'vitest';
import { accept, post, textOf } from '../e2e/clients.ts';
import { type Spawned, spawnServers } from '../e2e/harness.ts';
import { SQLITE } from '../e2e/services.ts';

const LONG = 'x'.repeat(3_900_000);
const HEAD = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };

let server: Spawned | undefined;
afterEach(() => server?.kill());

interface Session {
  post(message: object): Promise<Response>;
  /** Asks, and goes away; resolves with the id of the question. */
  ask(id: number, more?: object): Promise<string>;
}

async function open(url: string): Promise<Session> {
  const params = {
    protocolVersion: '2025-11-25',
    capabilities: { elicitation: {} },
    clientInfo: { name: 'stranger', version: '1' },
  };
  const first = await fetch(url, {
    method: 'POST',
    headers: HEAD,
    body: JSON.stringify({ jsonrpc: '2.0', id: 0, method: 'initialize', params }),
  });
  await first.text();
  const headers = {
    ...HEAD,
    'mcp-session-id': first.headers.get('mcp-session-id') ?? '',
    'mcp-protocol-version': '2025-11-25',
  };
  const post: Session['post'] = (message) =>
    fetch(url, { method: 'POST', headers, body: JSON.stringify({ jsonrpc: '2.0', ...message }) });
  const ask: Session['ask'] = async (id, more) => {
    const call = { id, method: 'tools/call', params: { name: 'one', arguments: {} }, ...more };
    const { body } = await post(call);
    const reader = body?.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    for (let read = await reader?.read(); read?.value !== undefined; read = await reader?.read()) {
      text += read.value;
      const asked = /"id":"([^"]+)","method":"elicitation/.exec(text)?.[1];
      if (asked === undefined) continue;
      await reader?.cancel();
      return asked;
    }
    throw new Error(`nothing was asked: ${text.slice(0, 500)}`);
  };
  return { post, ask };
}

describe.each([
  ['in memory', () => 'memory:'],
  ['on SQLite', () => SQLITE.url()],
])('a process with a heap of 160 MB %s', (_where, store) => {
  const start = async (): Promise<Session> => {
    const env = { NODE_OPTIONS: '--max-old-space-size=160' };
    [server] = await spawnServers('asking-server.ts', 1, { args: ['--store', store()], env });
    if (server === undefined) throw new Error('no server was started');
    return open(server.url);
  };
  const isAlive = async (): Promise<void> => {
    expect(server?.isRunning()).toBe(true);
    const other = await open(server?.url ?? '');
    expect(await other.ask(1)).toBeTruthy();
  };

  it('refuses the ids of answers that are as long as a body', async () => {
    const stranger = await start();
    for (let nth = 0; nth < 70; nth += 1) {
      const { status } = await stranger.post({ id: `${nth}${LONG}/k`, result: {} });
      expect(status).toBe(400);
    }
    await isAlive();
  });

  it('refuses such ids of requests, and of cancellations', async () => {
    const stranger = await start();
    for (let nth = 0; nth < 70; nth += 1) {
      const id = `${nth}${LONG}`;
      const sent = await stranger.post({ id, method: 'tools/call', params: { name: 'one', arguments: {} } });
      expect(sent.status).toBe(400);
      await stranger.post({ method: 'notifications/cancelled', params: { requestId: id } });
    }
    await isAlive();
  });

  it('keeps nothing of a waiting call’s message beside its params', async () => {
    const stranger = await start();
    for (let nth = 0; nth < 60; nth += 1) await stranger.ask(nth, { junk: LONG });
    await isAlive();
  });
});

it('counts the answers of strangers to questions that are out, with what they stored', async () => {
  const env = { NODE_OPTIONS: '--max-old-space-size=320' };
  const args = ['--store', 'memory:'];
  [server] = await spawnServers('asking-server.ts', 1, { args, env });
  const stranger = await open(server?.url ?? '');
  const params = { name: 'in-turn', arguments: {} };
  const asked: string[] = [];
  for (let nth = 0; nth < 90; nth += 1) asked.push(await stranger.ask(nth, { params }));
  const content = { name: 'x'.repeat(3_000_000) };
  for (const id of asked) {
    const { status } = await stranger.post({ id, result: { action: 'accept', content } });
    // Refused, once strangers have used up their part.
    expect([202, 429]).toContain(status);
  }
  expect(server?.isRunning()).toBe(true);
});

it('keeps outcomes that no journal has by their bytes', async () => {
  const env = { NODE_OPTIONS: '--max-old-space-size=200' };
  [server] = await spawnServers('asking-server.ts', 1, { args: ['--state', 'sealed'], env });
  const url = server?.url ?? '';
  for (let nth = 0; nth < 200; nth += 1) {
    const { state, keys } = await post(url, { tool: 'one' });
    const responses = accept(keys, { name: `${nth}${'x'.repeat(900_000)}` });
    expect(textOf(await post(url, { tool: 'one', state, responses }))).toContain('Hello');
  }
  expect(server?.isRunning()).toBe(true);
});
