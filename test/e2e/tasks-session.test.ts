/** Tasks of 2025-11-25: by hand, by the SDK's own client for them, and at three processes. */
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import {
  CallToolRequestSchema,
  CallToolResultSchema,
  ElicitRequestSchema,
  McpError,
} from '@modelcontextprotocol/sdk/types.js';
import { afterEach, describe, expect, it } from 'vitest';
import { Names } from '../../src/checkpoint/names.ts';
import type { AwaitOptions } from '../../src/index.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { type Flaky, flakyStore } from '../fixtures/flaky-store.ts';
import { buildTaskServer } from '../fixtures/task-server.ts';
import { some } from '../short.ts';
import { answer, asks, begin, type Session } from './anywhere.ts';
import { filledIn, type Rpc } from './clients.ts';
import { SECRET, type Served, type Spawned, serveHere, spawnServers } from './harness.ts';
import type { Reader } from './reader.ts';
import { REDIS, redisDatabase, SQLITE } from './services.ts';

const OWN_URL = redisDatabase(7);

const RELATED = 'io.modelcontextprotocol/related-task';
type Json = Record<string, unknown>;
interface Task {
  readonly taskId: string;
  readonly status: string;
}

let served: Served | undefined;
let servers: Spawned[] = [];
afterEach(async () => {
  await served?.close();
  served = undefined;
  await Promise.all(servers.splice(0).map((server) => server.kill()));
});

const start = async (options: AwaitOptions = {}): Promise<Session> => {
  served = await serveHere(() => buildTaskServer(() => {}), { tasks: 'optional', ...options });
  return begin([served]);
};

let nextId = 100;
/** A request, and its response. */
async function ask(
  session: Session,
  method: string,
  params: Json = {},
  to = 0,
): Promise<Rpc & { error?: Json }> {
  const id = nextId++;
  const stream = await session.post(to, { id, method, params });
  return stream.next((message) => message.id === id) as Promise<Rpc & { error?: Json }>;
}

async function create(
  session: Session,
  name: string,
  args: Json = {},
  task: Json = {},
  to = 0,
): Promise<Task & Json> {
  const { result, error } = await ask(session, 'tools/call', { name, arguments: args, task }, to);
  if (result === undefined) throw new Error(JSON.stringify(error));
  return (result as unknown as { task: Task & Json }).task;
}

const statusOf = async (session: Session, taskId: string, to = 0): Promise<string> =>
  (await ask(session, 'tasks/get', { taskId }, to)).result?.status as unknown as string;

const isFinal = ({ result }: Rpc): boolean => (result as Json | undefined)?.content !== undefined;
const textIn = (message: Rpc): string | undefined => message.result?.content?.[0]?.text;

describe('a task of 2025-11-25', () => {
  it('is waited for by as many requests as may be in work', async () => {
    await start({ limits: { callerCalls: 2, drain: 300 } });
    const session = await begin([served as Served], undefined, 'ann');
    const { taskId } = await create(session, 'ship');
    const wait = (id: number) => session.post(0, { id, method: 'tasks/result', params: { taskId } });
    const waits = [await wait(1), await wait(2)];
    await waits[0]?.next(asks('name'));
    await waits[1]?.next(asks('name'));
    expect((await wait(3)).status).toBe(503);
    for (const requestId of [1, 2])
      await session.post(0, { method: 'notifications/cancelled', params: { requestId } });
    await expect.poll(async () => (await wait(4)).status).toBe(200);
  });

  it('is made at once, asks on the stream of tasks/result, and is told of on the session’s', async () => {
    const session = await start();
    const standing = await session.get(0);
    const task = await create(session, 'ship', {}, { ttl: 60_000 });
    expect(task).toMatchObject({
      ttl: 60_000,
      pollInterval: 500,
      status: expect.stringMatching(/working|input_required/),
    });
    for (const name of ['createdAt', 'lastUpdatedAt']) expect(Date.parse(String(task[name]))).not.toBeNaN();
    const { taskId } = task;
    const result: Reader = await session.post(0, {
      id: 'result',
      method: 'tasks/result',
      params: { taskId },
    });
    for (const field of ['name', 'address']) {
      const asked = await result.next(asks(field));
      expect((asked.params as Json)._meta).toMatchObject({ [RELATED]: { taskId } });
      expect((await session.post(0, answer(asked, field))).status).toBe(202);
    }
    const final = await result.next(isFinal);
    expect([final.id, textIn(final)]).toEqual(['result', 'its name gets it at its address']);
    expect(final.result).toMatchObject({ _meta: { [RELATED]: { taskId } } });
    await expect.poll(() => result.over).toBe(true);
    expect(await statusOf(session, taskId)).toBe('completed');
    const told = (): Json[] =>
      standing.messages
        .filter(({ method }) => method === 'notifications/tasks/status')
        .map(({ params }) => params as Json);
    await expect.poll(() => told().at(-1)?.status).toBe('completed');
    expect(told().every((params) => params.taskId === taskId)).toBe(true);
    // Its result can be read again.
    expect(textIn(await ask(session, 'tasks/result', { taskId }))).toBe('its name gets it at its address');
  });

  it('is listed to its caller alone, the newest first, in pages', async () => {
    const session = await start();
    const other = await begin([served as Served]);
    const ids: string[] = [];
    for (let nth = 0; nth < 53; nth += 1) ids.unshift((await create(session, 'sleep', { ms: 1 })).taskId);
    await create(other, 'sleep', { ms: 1 });
    const listed: string[] = [];
    const sizes: number[] = [];
    for (let cursor: unknown; ; ) {
      const { result } = await ask(session, 'tasks/list', cursor === undefined ? {} : { cursor });
      const { tasks, nextCursor } = result as unknown as { tasks: Task[]; nextCursor?: string };
      listed.push(...tasks.map(({ taskId }) => taskId));
      sizes.push(tasks.length);
      if (nextCursor === undefined) break;
      cursor = nextCursor;
    }
    expect([listed, sizes]).toEqual([ids, [50, 3]]);
    for (const cursor of ['garbage', '', 7, null]) {
      expect((await ask(session, 'tasks/list', { cursor })).error).toMatchObject({ code: -32602 });
    }
  });

  it('is cancelled once: a finished one cannot be', async () => {
    const session = await start();
    const { taskId } = await create(session, 'sleep', { ms: 60_000 });
    expect((await ask(session, 'tasks/cancel', { taskId })).result).toMatchObject({
      taskId,
      status: 'cancelled',
    });
    expect((await ask(session, 'tasks/cancel', { taskId })).error).toMatchObject({ code: -32602 });
    expect((await ask(session, 'tasks/result', { taskId })).error).toBeDefined();
  });

  it('is unknown under a wrong id, to another session’s caller, and once it has expired, in one sentence', async () => {
    const session = await start();
    const { taskId } = await create(session, 'sleep', { ms: 1 }, { ttl: 1_000 });
    const unknown = { code: -32602, message: 'Unknown or expired taskId' };
    for (const method of ['tasks/get', 'tasks/result', 'tasks/cancel']) {
      for (const id of ['none', `${taskId}0`, 7]) {
        expect((await ask(session, method, { taskId: id })).error).toEqual(unknown);
      }
    }
    await expect.poll(async () => (await ask(session, 'tasks/get', { taskId })).error).toEqual(unknown);
  });

  it('is declared, and each tool says that it may be one', async () => {
    const session = await start({ tasks: ({ params }) => (params.name === 'throws' ? 'never' : 'now') });
    const { result } = await ask(session, 'tools/list');
    const { tools } = result as unknown as { tools: { name: string; execution: Json }[] };
    expect(Object.fromEntries(tools.map(({ name, execution }) => [name, execution.taskSupport]))).toEqual({
      ship: 'optional',
      both: 'optional',
      sleep: 'optional',
      throws: 'forbidden',
      wizard: 'optional',
    });
    const call = { name: 'throws', arguments: {}, task: {} };
    expect((await ask(session, 'tools/call', call)).error).toMatchObject({ code: -32601 });
    expect(await create(session, 'sleep', { ms: 1 }, { ttl: 0.5 })).toMatchObject({ ttl: 1_000 });
    for (const task of [7, 'now', { ttl: -1 }, { ttl: 'long' }]) {
      expect((await ask(session, 'tools/call', { ...call, name: 'sleep', task })).error).toMatchObject({
        code: -32602,
      });
    }
  });

  it('cannot be seen, answered or cancelled by another caller', async () => {
    served = await serveHere(() => buildTaskServer(() => {}), { tasks: 'optional' });
    const [ann, bob] = [await begin([served], undefined, 'ann'), await begin([served], undefined, 'bob')];
    const { taskId } = await create(ann, 'ship');
    const result = await ann.post(0, { id: 'result', method: 'tasks/result', params: { taskId } });
    const asked = await result.next(asks('name'));
    for (const method of ['tasks/get', 'tasks/result', 'tasks/cancel']) {
      const { error } = await ask(bob, method, { taskId });
      expect(error).toEqual({ code: -32602, message: 'Unknown or expired taskId' });
    }
    expect((await ask(bob, 'tasks/list')).result).toMatchObject({ tasks: [] });
    await bob.post(0, { id: asked.id, result: { action: 'accept', content: { name: 'bob' } } });
    for (const field of ['name', 'address']) await ann.post(0, answer(await result.next(asks(field)), field));
    expect(textIn(await result.next(isFinal))).toBe('its name gets it at its address');
  });

  it('asks under keys that are never used again', async () => {
    const session = await start();
    const { taskId } = await create(session, 'wizard', { pages: 4 });
    const result = await session.post(0, { id: 'result', method: 'tasks/result', params: { taskId } });
    const ids: unknown[] = [];
    for (let page = 1; page <= 4; page += 1) {
      const asked = await result.next(asks(`page${page}`));
      ids.push(asked.id);
      await session.post(0, answer(asked, `page${page}`));
    }
    await result.next(isFinal);
    expect(new Set(ids).size).toBe(4);
  });

  it('that ends in a JSON-RPC error has failed, and tasks/result is that error', async () => {
    served = await serveHere(
      () => {
        const server = new Server({ name: 'low', version: '1' }, { capabilities: { tools: {} } });
        server.setRequestHandler(CallToolRequestSchema, () => {
          throw new McpError(-32001, 'broken');
        });
        return server;
      },
      { tasks: 'optional' },
    );
    const session = await begin([served]);
    const { taskId } = await create(session, 'any');
    await expect.poll(() => statusOf(session, taskId)).toBe('failed');
    expect((await ask(session, 'tasks/result', { taskId })).error).toMatchObject({ code: -32001 });
  });

  it('that expires ends the requests that wait for it', async () => {
    const session = await start();
    const { taskId } = await create(session, 'ship', {}, { ttl: 1_000 });
    const { error } = await ask(session, 'tasks/result', { taskId });
    expect(error).toEqual({ code: -32602, message: 'Unknown or expired taskId' });
  });

  it('continues when its client cancels the request that waits for it', async () => {
    const session = await start();
    const { taskId } = await create(session, 'ship');
    const waiting = { id: 'wait', method: 'tasks/result', params: { taskId } };
    const first = await session.post(0, waiting);
    await first.next(asks('name'));
    await session.post(0, { method: 'notifications/cancelled', params: { requestId: 'wait' } });
    await expect.poll(() => first.over).toBe(true);
    expect(first.messages.filter(({ id }) => id === 'wait')).toEqual([]);
    const again = await session.post(0, waiting);
    for (const field of ['name', 'address']) {
      await session.post(0, answer(await again.next(asks(field)), field));
    }
    expect(textIn(await again.next(isFinal))).toBe('its name gets it at its address');
  });

  it('is made at once also where its author would have asks before it: this wire has no rounds', async () => {
    const session = await start({ tasks: () => 'after-asks' });
    const { taskId } = await create(session, 'ship');
    const result = await session.post(0, { id: 'result', method: 'tasks/result', params: { taskId } });
    for (const field of ['name', 'address']) {
      await session.post(0, answer(await result.next(asks(field)), field));
    }
    expect(textIn(await result.next(isFinal))).toBe('its name gets it at its address');
  });

  it('is no other request than tools/call: a wish for one is passed over', async () => {
    served = await serveHere(() => buildServer(() => {}), { tasks: 'optional' });
    const session = await begin([served]);
    for (const [method, params] of [
      ['prompts/get', { name: 'greet' }],
      ['resources/read', { uri: 'diary://today' }],
    ] as const) {
      const stream = await session.post(0, { id: 7, method, params: { ...params, task: { ttl: 1_000 } } });
      await session.post(0, answer(await stream.next(asks('name')), 'name'));
      const final = await stream.next(({ id }) => id === 7);
      expect(JSON.stringify(final.result)).toContain('its name');
    }
    expect((await ask(session, 'tools/list', { task: {} })).result).toHaveProperty('tools');
  });

  for (const [how, end] of [
    [
      'was ended',
      (session: Session) => fetch(served?.url ?? '', { method: 'DELETE', headers: session.headers }),
    ],
    ['was let go', () => new Promise((resolve) => setTimeout(resolve, 1_200))],
  ] as const) {
    it(`outlives its session, which ${how}`, async () => {
      const session = await start({ limits: { sessionIdle: how === 'was ended' ? 60_000 : 300 } });
      const { taskId } = await create(session, 'ship');
      await end(session);
      const next = how === 'was ended' ? await begin([served as Served]) : session;
      const result = await next.post(0, { id: 'result', method: 'tasks/result', params: { taskId } });
      for (const field of ['name', 'address']) {
        await next.post(0, answer(await result.next(asks(field)), field));
      }
      expect(textIn(await result.next(isFinal))).toBe('its name gets it at its address');
    });
  }

  it('whose store is away for longer than a request waits goes on for the request that waits for it', async () => {
    const flaky = flakyStore();
    const session = await start({ store: flaky.store, secrets: [SECRET], limits: { drain: 50, lease: 300 } });
    const { taskId } = await create(session, 'ship');
    const result = await session.post(0, { id: 'result', method: 'tasks/result', params: { taskId } });
    const asked = await result.next(asks('name'));
    flaky.fail = 'read';
    // More than three leases: then a request without a task would get an error.
    await new Promise((resolve) => setTimeout(resolve, 2_000));
    flaky.fail = undefined;
    await session.post(0, answer(asked, 'name'));
    await session.post(0, answer(await result.next(asks('address')), 'address'));
    expect(textIn(await result.next(isFinal))).toBe('its name gets it at its address');
  });

  it('whose store fails as a client comes back for it goes on there when the store is back', async () => {
    const records = new Map<string, string>();
    const [one, flaky] = [flakyStore(records), flakyStore(records)];
    const limits = { drain: 50, lease: 300 };
    const serve = ({ store }: Flaky) =>
      serveHere(() => buildTaskServer(() => {}), { tasks: 'optional', store, secrets: [SECRET], limits });
    const leaving = await serve(one);
    served = await serve(flaky);
    const session = await begin([leaving, served]);
    const { taskId } = await create(session, 'ship');
    const first = await session.post(0, { id: 'result', method: 'tasks/result', params: { taskId } });
    const asked = await first.next(asks('name'));
    const stream = first.last.slice(0, first.last.lastIndexOf('_'));
    await leaving.close();
    flaky.unreadable = new Names('mcp-await').label(`${stream}:request`);
    const second = await session.get(1, first.last);
    await expect.poll(() => served?.log.text).toContain('waits for the store');
    flaky.unreadable = undefined;
    await session.post(1, answer(asked, 'name'));
    await session.post(1, answer(await second.next(asks('address')), 'address'));
    expect(textIn(await second.next(isFinal))).toBe('its name gets it at its address');
  });

  it('is driven by the SDK’s own client for tasks', async () => {
    await start();
    const client = new Client({ name: 'tasks', version: '1' }, { capabilities: { elicitation: {} } });
    client.setRequestHandler(ElicitRequestSchema, ({ params }) => filledIn(params));
    await client.connect(new StreamableHTTPClientTransport(new URL(served?.url ?? '')) as Transport);
    expect(client.getServerCapabilities()?.tasks).toEqual({
      list: {},
      cancel: {},
      requests: { tools: { call: {} } },
    });
    const told: string[] = [];
    const call = { name: 'ship', arguments: {} };
    for await (const message of client.experimental.tasks.callToolStream(call, CallToolResultSchema, {
      task: { ttl: 60_000 },
    })) {
      told.push(message.type);
      if (message.type === 'error') throw message.error;
      if (message.type === 'result') {
        expect(message.result.content).toEqual([{ type: 'text', text: 'its name gets it at its address' }]);
      }
    }
    expect([told[0], told.at(-1)]).toEqual(['taskCreated', 'result']);
    await client.close();
  });
});

for (const kind of some([
  { name: REDIS.name, down: REDIS.down, args: () => ['--store', OWN_URL] },
  { name: SQLITE.name, down: false, args: () => ['--store', SQLITE.url()] },
])) {
  describe.skipIf(kind.down)(`tasks of 2025-11-25 at three processes on ${kind.name}`, () => {
    it('are asked about and answered at any of them', async () => {
      servers = await spawnServers('task-server.ts', 3, { args: [...kind.args(), '--tasks', 'optional'] });
      const session = await begin(servers);
      const { taskId } = await create(session, 'ship', {}, {}, 1);
      const result = await session.post(2, { id: 'result', method: 'tasks/result', params: { taskId } });
      for (const [nth, field] of ['name', 'address'].entries()) {
        const asked = await result.next(asks(field));
        expect(await statusOf(session, taskId, nth)).toBe('input_required');
        expect((await session.post(nth, answer(asked, field))).status).toBe(202);
      }
      expect(textIn(await result.next(isFinal))).toBe('its name gets it at its address');
      for (const to of [0, 1, 2]) expect(await statusOf(session, taskId, to)).toBe('completed');
      const { taskId: sleeping } = await create(session, 'sleep', { ms: 120_000 }, {}, 0);
      expect((await ask(session, 'tasks/cancel', { taskId: sleeping }, 2)).result).toMatchObject({
        status: 'cancelled',
      });
      const { result: list } = await ask(session, 'tasks/list', {}, 1);
      expect(
        (list as unknown as { tasks: Task[] }).tasks.map(({ taskId: id, status }) => [id, status]),
      ).toEqual([
        [sleeping, 'cancelled'],
        [taskId, 'completed'],
      ]);
    });
    it('are asked about again where the process ends that asked, as its client’s answer is on the way', async () => {
      servers = await spawnServers('task-server.ts', 2, { args: [...kind.args(), '--tasks', 'optional'] });
      const session = await begin(servers);
      const { taskId } = await create(session, 'ship');
      const first = await session.post(0, { id: 'result', method: 'tasks/result', params: { taskId } });
      await first.next(asks('name'));
      // Its client is to come back when the next process is up.
      expect(first.text).toContain('retry: 5000');
      await servers[0]?.kill();
      const second = await session.get(1, first.last);
      await expect.poll(() => second.messages.filter(asks('name')).length).toBe(1);
      for (const field of ['name', 'address'])
        expect((await session.post(1, answer(await second.next(asks(field)), field))).status).toBe(202);
      expect(textIn(await second.next(isFinal))).toBe('its name gets it at its address');
    });
    it.each(some(['is killed', 'lives on']))(
      'go on with the reply to tasks/result at another one, where the first %s',
      async (how) => {
        servers = await spawnServers('task-server.ts', 3, { args: [...kind.args(), '--tasks', 'optional'] });
        const session = await begin(servers);
        // The task is not run by the process that its client waits at.
        const { taskId } = await create(session, 'ship', {}, {}, 1);
        const first = await session.post(2, { id: 'result', method: 'tasks/result', params: { taskId } });
        const name = await first.next(asks('name'));
        const last = first.last;
        expect(last).not.toBe('');
        if (how === 'is killed') await servers[2]?.kill();
        const second = await session.get(0, last);
        expect((await session.post(0, answer(name, 'name'))).status).toBe(202);
        const address = await second.next(asks('address'));
        const third = await session.get(1, second.last);
        expect((await session.post(0, answer(address, 'address'))).status).toBe(202);
        expect(textIn(await third.next(isFinal))).toBe('its name gets it at its address');
        const questions = [first, second, third].flatMap(({ messages }) =>
          messages
            .filter(({ method }) => method === 'elicitation/create')
            .map(({ params }) => params?.message),
        );
        expect(questions).toEqual(['name?', 'address?']);
      },
    );
  });
}
