/** Clients on stdio that read slowly, or not at all. */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { afterEach, expect, it } from 'vitest';
import { type Limits, tuned } from '../../src/call/limits.ts';
import { createStdio } from '../../src/stdio.ts';
import { some } from '../short.ts';
import { LogBook } from './harness.ts';

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

const HALF = 500_000;
const CALLS = 40;

/** A server whose tool returns half a megabyte, on a socket; and the client's end of that. */
async function served(limits: Partial<Limits> = {}) {
  const effects: string[] = [];
  const log = new LogBook();
  const build = (): McpServer => {
    const made = new McpServer({ name: 'talkative', version: '1.0.0' });
    made.registerTool('talk', {}, () => {
      effects.push('talk');
      return { content: [{ type: 'text', text: 'x'.repeat(HALF) }] };
    });
    return made;
  };
  const listening = createServer();
  listening.listen(0, '127.0.0.1');
  await once(listening, 'listening');
  const client = connect((listening.address() as AddressInfo).port, '127.0.0.1');
  const [near] = (await once(listening, 'connection')) as [Socket];
  for (const socket of [client, near]) socket.on('error', () => {});
  client.pause();
  const server = createStdio(build, { stdin: near, stdout: near, logger: log, ...tuned(limits) });
  ends.push(
    () => listening.close(),
    () => server.close(),
    () => client.destroy(),
  );
  const isClosed = { yes: false };
  void server.closed.then(() => {
    isClosed.yes = true;
  });
  const say = (message: object): void =>
    void client.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
  return { server, client, stdin: near, effects, log, isClosed, say };
}

const clientInfo = { name: 'x', version: '1' };
const talk = (id: number, _meta?: object): object => ({
  id,
  method: 'tools/call',
  params: { name: 'talk', ...(_meta !== undefined && { _meta }) },
});
const MODERN = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientInfo': clientInfo,
  'io.modelcontextprotocol/clientCapabilities': {},
};

/** Reads a third of a megabyte, ten times a second at most. */
async function* slowly(client: Socket): AsyncGenerator<Buffer> {
  while (!client.destroyed) {
    const chunk: Buffer | null = client.read(350_000) ?? client.read();
    if (chunk !== null) yield chunk;
    await sleep(chunk === null ? 10 : 100);
  }
}

it.each(
  some([
    ['2026-07-28', MODERN],
    ['2025-11-25', undefined],
  ]),
)('one that reads slowly gets everything, on %s', async (_revision, meta) => {
  const { client, say, effects, isClosed, log } = await served({ stalled: 2_000 });
  if (meta === undefined) {
    const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo };
    say({ id: 0, method: 'initialize', params });
    await once(client, 'readable');
    client.read();
    say({ method: 'notifications/initialized' });
  }
  for (let id = 1; id <= CALLS; id += 1) say(talk(id, meta));
  const answered = new Set<unknown>();
  client.pause();
  let text = '';
  for await (const chunk of slowly(client)) {
    text += chunk.toString();
    const whole = text.split('\n');
    text = whole.pop() ?? '';
    for (const line of whole) answered.add(JSON.parse(line).id);
    if ([...answered].filter((id) => Number(id) > 0).length === CALLS) break;
  }
  expect(effects).toHaveLength(CALLS);
  expect(isClosed.yes).toBe(false);
  expect(log.text).not.toContain('must read');
});

it('one that reads gets all replies to a burst, though they are more than may wait', async () => {
  const { client, isClosed } = await served({ unreadBytes: 6_000_000 });
  const calls = Array.from({ length: 40 }, (_, nth) => ({ jsonrpc: '2.0', ...talk(nth + 1, MODERN) }));
  client.write(calls.map((call) => `${JSON.stringify(call)}\n`).join(''));
  let text = '';
  client.on('data', (chunk: Buffer) => {
    text += chunk.toString();
  });
  // It begins a moment later.
  setTimeout(() => client.resume(), 300);
  await expect.poll(() => text.split('\n').length).toBe(41);
  expect(isClosed.yes).toBe(false);
});

it.each([
  ['for too long', { stalled: 500 }, /nothing for 500 ms/],
  ['while more than limits.unreadBytes wait', { unreadBytes: 4_195_000 }, /limits\.unreadBytes/],
])(
  'one that reads nothing %s is disconnected, and the log says what to do',
  async (_what, limits, reason) => {
    const { server, say, log } = await served(limits);
    for (let id = 1; id <= CALLS; id += 1) say(talk(id, MODERN));
    await server.closed;
    const line = log.lines.find(({ message }) => message.includes('is disconnected'));
    expect(line?.level).toBe('warn');
    expect(line?.message).toMatch(/must read/);
    expect(JSON.stringify(line?.detail)).toMatch(reason);
  },
);

it('one that reads nothing is asked nothing more: its further requests wait until it has caught up', async () => {
  const { client, say, effects, stdin } = await served();
  let id = 0;
  // Until one waits.
  do {
    id += 1;
    say(talk(id, MODERN));
    for (let look = 0; look < 50 && effects.length < id; look += 1)
      await new Promise((resolve) => setTimeout(resolve, 10));
  } while (effects.length === id);
  expect(stdin.isPaused()).toBe(true);
  for (const before = id; id < before + CALLS; id += 1) say(talk(id + 1, MODERN));
  // They are in the socket now; had they been read, they would run.
  await expect.poll(() => client.writableLength).toBe(0);
  for (let turn = 0; turn < 50; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  expect(effects.length).toBeLessThanOrEqual(id - CALLS);
  client.resume();
  await expect.poll(() => effects.length).toBe(id);
});
