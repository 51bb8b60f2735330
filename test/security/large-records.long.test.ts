/**
 * One anonymous stranger that has a shared store read large records again and again, against a process with a small
 * heap: how much is read at once does not depend on how many ask.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import process from 'node:process';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { accept, post, textOf } from '../e2e/clients.ts';
import { Reader } from '../e2e/reader.ts';
import { call, HEADERS, initialize, inSession, Peer } from './peer.ts';

const SERVER = new URL('../fixtures/large-server.mts', import.meta.url).pathname;
const REDIS_URL = process.env.REDIS_URL ?? 'redis://127.0.0.1:6379';
/** In MiB. */
const HEAP = 192;
/** Requests that are sent at once. */
const MANY = 300;
const ROUNDS = 2;
/** At the process, in a round. */
const LOOKS = 20;

let child: ChildProcess;
let port = 0;
let url = '';
const sockets = new Set<Socket>();

beforeEach(async () => {
  child = spawn(process.execPath, [`--max-old-space-size=${HEAP}`, '--import', 'tsx', SERVER], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, STORE: REDIS_URL, TASKS: 'now' },
  });
  if (child.stdout === null) throw new Error('no output');
  const [line] = (await once(createInterface(child.stdout), 'line')) as [string];
  port = Number(line);
  url = `http://127.0.0.1:${port}/mcp`;
});

afterEach(async () => {
  for (const socket of sockets) socket.destroy();
  sockets.clear();
  child.kill('SIGKILL');
  if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
});

/** The process lives, and serves a known caller. */
async function lives(): Promise<void> {
  expect([child.exitCode, child.signalCode]).toEqual([null, null]);
  expect(textOf(await post(url, { tool: 'small', headers: { authorization: 'Bearer ann' } }))).toBe('small');
}

/** Sends a request on a connection of its own, and reads nothing of its reply. */
async function unread(head: string, headers: Readonly<Record<string, string>>, body = ''): Promise<void> {
  const socket = connect(port, '127.0.0.1');
  sockets.add(socket);
  socket.on('error', () => {}).on('close', () => sockets.delete(socket));
  await Promise.race([once(socket, 'connect'), once(socket, 'close')]);
  socket.pause();
  const all = { host: 'localhost', ...headers, 'content-length': String(Buffer.byteLength(body)) };
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}`);
  socket.write(`${head} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n${body}`);
}

/** Many at once, again and again. @param isAsleep the process wakes when all have come, as after a pause of its machine */
async function flood(request: (nth: number) => Promise<unknown>, isAsleep = false): Promise<void> {
  for (let round = 0; round < ROUNDS; round += 1) {
    if (isAsleep) child.kill('SIGSTOP');
    const sent = Array.from({ length: MANY }, (_, nth) => request(nth).catch(() => {}));
    // Connections that it has not accepted yet may leave no room for all.
    if (isAsleep) await Promise.race([Promise.all(sent), sleep(1_000)]);
    child.kill('SIGCONT');
    for (let look = 0; look < LOOKS; look += 1) {
      await lives();
      await sleep(25);
    }
    for (const socket of sockets) socket.destroy();
    await Promise.all(sent);
  }
}

const text = 'x'.repeat(3_900_000);

/** Resumes the reply to a request. */
async function resumes(peer: Peer, ids: readonly string[], isRead = false): Promise<void> {
  expect(ids.every((id) => id !== '')).toBe(true);
  await flood((nth) => {
    const headers = {
      ...peer.headers,
      accept: 'text/event-stream',
      'last-event-id': ids[nth % ids.length] ?? '',
    };
    if (!isRead) return unread('GET /mcp', headers);
    return fetch(url, { headers, signal: AbortSignal.timeout(20_000) }).then((reply) => reply.text());
  });
}

const firstId = (events: string): string => /^id: (.+)$/m.exec(events)?.[1] ?? '';

describe('a stranger with large records in a shared store', () => {
  it.each([
    ['replies of 4 MB', {}, false],
    ['replies of 4 MB, and reads them', {}, true],
    ['replies to calls of 4 MB', { text }, false],
  ])('resumes %s', async (_what, args, isRead) => {
    const peer = await inSession(url, '2025-11-25');
    const ids: string[] = [];
    for (let id = 0; id < 4; id += 1) {
      const reply = await peer.send(call(id, 'late', args));
      ids.push(firstId(await reply.text()));
    }
    await resumes(peer, ids, isRead);
  });

  it('resumes replies to waiting calls of 4 MB', async () => {
    const peer = await inSession(url, '2025-11-25');
    const ids: string[] = [];
    for (let id = 0; id < 4; id += 1) {
      const stream = await peer.stream(call(id, 'race', { text }));
      await stream.next(({ method }) => method === 'elicitation/create');
      ids.push(firstId(stream.text));
    }
    await resumes(peer, ids);
  });

  it('resumes a stream of HTTP+SSE with ten replies of 4 MB, and a call in it that is none', async () => {
    const events = await fetch(url.replace('/mcp', '/sse'), { headers: { accept: 'text/event-stream' } });
    const reader = new Reader(events);
    await expect.poll(() => /data: (\S+)/.test(reader.text)).toBe(true);
    const peer = new Peer(new URL(/data: (\S+)/.exec(reader.text)?.[1] ?? '', url).href, {});
    await peer.post(initialize('2024-11-05'));
    for (let id = 0; id < 10; id += 1) {
      await peer.post(call(id, 'large'));
      await expect.poll(() => reader.messages.some((message) => message.id === id)).toBe(true);
    }
    const [, stream = ''] = /^(.+?)_\d+(~|$)/.exec(reader.last) ?? [];
    const none = `${stream.slice(0, stream.indexOf('.'))}.${'a'.repeat(22)}`;
    const headers = { accept: 'text/event-stream', 'last-event-id': `${stream}_1~${none}_1` };
    await flood(() => unread('GET /sse', headers));
  });

  // Those that wait as it ends have their replies in streams by then.
  it.each([['large'], ['late']])('asks for the results of tasks of 4 MB of the tool %s', async (tool) => {
    const peer = await inSession(url, '2025-11-25');
    const headers = { ...HEADERS, ...peer.headers };
    const begun = Array.from({ length: 4 }, (_, id) => {
      const request = call(id, tool, { text });
      return peer.post({ ...request, params: { ...request.params, task: {} } });
    });
    const ids = (await Promise.all(begun)).map((reply) => /"taskId":"([^"]+)"/.exec(reply.text)?.[1] ?? '');
    expect(ids.every((id) => id !== '')).toBe(true);
    await flood((nth) => {
      const params = { taskId: ids[nth % 4] };
      return unread(
        'POST /mcp',
        headers,
        JSON.stringify({ jsonrpc: '2.0', id: nth + 10, method: 'tasks/result', params }),
      );
    });
  });

  it('goes on from old states behind answers of 900 KB', async () => {
    const replies: { state: string | undefined; responses: object }[] = [];
    for (let nth = 0; nth < 8; nth += 1) {
      const asked = await post(url, { tool: 'twice' });
      const first = { state: asked.state, responses: accept(asked.keys, { text: text.slice(0, 900_000) }) };
      const again = await post(url, { tool: 'twice', ...first });
      const second = { state: again.state, responses: accept(again.keys, { text: 'y' }) };
      expect(textOf(await post(url, { tool: 'twice', ...second }))).toBe('1 8');
      replies.push(nth % 2 === 0 ? first : second);
    }
    await flood((nth) => post(url, { tool: 'twice', ...replies[nth % 8] }));
  });

  it('goes on with other answers from an old state of a call that was suspended fifty times since, with 900 KB each', async () => {
    let asked = await post(url, { tool: 'often' });
    let old = asked;
    for (let nth = 0; nth < 49; nth += 1) {
      const given = nth === 1 ? text.slice(0, 900_000) : 'y';
      asked = await post(url, {
        tool: 'often',
        state: asked.state,
        responses: accept(asked.keys, { text: given }),
      });
      if (nth === 2) old = asked;
    }
    expect(asked.state).toBeDefined();
    await flood((nth) =>
      post(url, { tool: 'often', state: old.state, responses: accept(old.keys, { text: `other ${nth}` }) }),
    );
  });
});

describe('a stranger whose large results come in one moment', () => {
  const { params } = call(0, 'large');
  const requests: [what: string, method: string, params: object][] = [
    ['calls of a quick tool', 'tools/call', params],
    ['calls of a tool that takes a moment', 'tools/call', { ...params, name: 'late' }],
    ['prompts', 'prompts/get', { name: 'large' }],
    ['resources', 'resources/read', { uri: 'large://text' }],
  ];

  it.each(requests)('sends %s', async (_what, method, params) => {
    const peers = await Promise.all(Array.from({ length: 10 }, () => inSession(url, '2025-11-25')));
    await flood(async (id) => {
      const headers = { ...HEADERS, ...peers[id % peers.length]?.headers };
      await unread('POST /mcp', headers, JSON.stringify({ jsonrpc: '2.0', id, method, params }));
    }, true);
  });
});
