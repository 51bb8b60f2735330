/** On every wire whose asks are live, in each of two processes: what a client reports on an ask reaches its tool. */
import { createServer } from 'node:http';
import process from 'node:process';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { AwaitWebSocketTransport } from '../../src/client/index.ts';
import { createAwaitHandler } from '../../src/index.ts';
import { toNodeHandler } from '../../src/node.ts';
import { mountWebSocket } from '../../src/websocket.ts';
import { askerV1, askerV2 } from '../differential/asker.ts';
import { sessionTalk } from '../differential/talk.ts';
import { asks, begin, call } from './anywhere.ts';
import { Fleet, LogBook, listen, type Served, serveHere, shut } from './harness.ts';
import { fixture } from './proxied.ts';
import type { Reader } from './reader.ts';
import { REDIS, REDIS_URL } from './services.ts';
import * as workspace from './workspace-wire.ts';

const CLI = new URL('../../dist/src/cli/main.js', import.meta.url).pathname;
const SERVER = fixture('listening-server.ts');
const REPORTED = {
  reports: [
    { progress: 1, total: 2 },
    { progress: 2, total: 2 },
  ],
  answer: { action: 'accept', content: { name: 'Ann' } },
};
const { reports: REPORTS } = REPORTED;
const ANSWER = { action: 'accept' as const, content: { name: 'Ann' } };

const open: { close(): Promise<unknown> }[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((one) => one.close()));
});

async function serve(): Promise<Served> {
  const served = await serveHere(() => askerV1());
  open.push(served);
  return served;
}

/** A client whose user takes two looks before it answers. */
async function reporting(
  transport: unknown,
  answering: Promise<unknown> = Promise.resolve(),
): Promise<Client> {
  const client = new Client({ name: 'reports', version: '1' }, { capabilities: { elicitation: {} } });
  client.setRequestHandler(ElicitRequestSchema, async (_request, { _meta, sendNotification }) => {
    const { progressToken } = _meta ?? {};
    if (progressToken === undefined) return { action: 'cancel' };
    for (const progress of [1, 2]) {
      const params = { progressToken, progress, total: 2 };
      await sendNotification({ method: 'notifications/progress', params });
    }
    await answering;
    return ANSWER;
  });
  await client.connect(transport as Transport);
  open.unshift(client);
  return client;
}

async function serveSockets(): Promise<string> {
  const handler = createAwaitHandler(() => askerV1(), { logger: new LogBook() });
  const server = createServer(toNodeHandler(handler));
  const mounted = mountWebSocket(server, handler);
  open.push({
    close: () =>
      mounted
        .close()
        .then(() => handler.close())
        .then(() => shut(server)),
  });
  return `${(await listen(server)).replace('http', 'ws')}/mcp`;
}

function textIn(result: object | undefined): string {
  const { content } = result as { content: { text: string }[] };
  return content[0]?.text ?? '';
}

const stdio = (...args: string[]) =>
  new StdioClientTransport({ command: process.execPath, args, stderr: 'ignore' });

const WIRES: readonly (readonly [string, () => Promise<unknown>])[] = [
  ['2025-11-25', async () => new StreamableHTTPClientTransport(new URL((await serve()).url))],
  ['2024-11-05', async () => new SSEClientTransport(new URL('/sse', (await serve()).url))],
  ['WebSocket', async () => new AwaitWebSocketTransport(await serveSockets())],
  ['stdio', async () => stdio(CLI, 'serve', SERVER, '--stdio')],
];

describe.each(WIRES)('%s', (_name, connect) => {
  it('carries progress', async () => {
    const client = await reporting(await connect());
    const result = await client.callTool({ name: 'listens', arguments: {} });
    expect(JSON.parse(textIn(result))).toEqual(REPORTED);
  });
});

it('a proxy passes it on to a server in a process of its own', async () => {
  const transport = stdio(CLI, 'proxy', '--stdio', '--', process.execPath, '--import', 'tsx', SERVER);
  // The SDK's server forgets who listens as soon as it reads the answer.
  const client = await reporting(transport, new Promise(() => {}));
  const result = await client.callTool({ name: 'hears', arguments: {} });
  expect(JSON.parse(textIn(result))).toEqual({ reports: REPORTS });
});

it('2025-11-25 carries it for a task', async () => {
  const handler = createAwaitHandler(() => askerV2(), { tasks: () => 'now', logger: new LogBook() });
  open.push(handler);
  const talk = await sessionTalk((request) => handler.fetch(request), '2025-11-25');
  const params = { name: 'listens', arguments: {}, task: { ttl: 60_000 } };
  const { response } = await talk.request('tools/call', params);
  const { task } = (response as { result: { task: { taskId: string } } }).result;
  const told = await talk.request('tasks/result', { taskId: task.taskId });
  const { result } = told.response as { result: object };
  expect(JSON.parse(textIn(result))).toMatchObject({ reports: [{ progress: 1 }, { progress: 2 }] });
});

it('a workspace carries it', async () => {
  const url = (await serve()).url;
  const stream = await workspace.get(`${url}/w`);
  const post = (message: object) => workspace.post(`${url}/w`, message, { stream: stream.stream });
  await post(workspace.initialize(1, { elicitation: {} }));
  await stream.response(1);
  await post(workspace.call(2, 'listens'));
  const ask = await stream.ask('name');
  const { _meta } = ask.message.params as { _meta: object };
  for (const progress of [1, 2]) {
    const params = { ..._meta, progress, total: 2 };
    expect((await post({ jsonrpc: '2.0', method: 'notifications/progress', params })).status).toBe(202);
  }
  await post({ jsonrpc: '2.0', id: ask.message.id, result: ANSWER });
  expect(JSON.parse(workspace.textOf(await stream.response(2)))).toEqual(REPORTED);
});

describe.skipIf(REDIS.down)(`two processes on ${REDIS.name}`, () => {
  const fleet = new Fleet('listening-server.ts', 2, { args: ['--store', REDIS_URL] });
  afterAll(() => fleet.down());

  it('carry it from the one to the other', async () => {
    const session = await begin(await fleet.up());
    const stream = await session.post(0, call('listens'));
    const ask = await stream.next(asks('name'));
    const { _meta } = ask.params as { _meta: object };
    for (const progress of [1, 2]) {
      const params = { ..._meta, progress, total: 2 };
      expect((await session.post(1, { method: 'notifications/progress', params })).status).toBe(202);
    }
    await session.post(1, { id: ask.id, result: ANSWER });
    const done = await stream.next(({ id }) => id === 7);
    expect(JSON.parse(textIn(done.result))).toEqual(REPORTED);
  });

  it('close a standing stream for one another, more than once', async () => {
    const session = await begin(await fleet.up());
    const standing = await session.get(1);
    const closes = async (): Promise<void> => {
      const stream = await session.post(0, call('closes'));
      await stream.next(({ id }) => id === 7);
    };
    const isClosed = (stream: Reader) => async () => {
      await closes();
      return stream.over;
    };
    await expect.poll(isClosed(standing)).toBe(true);
    const again = await session.get(1);
    expect(again.status).toBe(200);
    await expect.poll(isClosed(again)).toBe(true);
  });
});
