/** The tasks extension of 2026-07-28: a call that outlives its request, at any process. */
import { join } from 'node:path';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import {
  CallToolRequestSchema,
  ListToolsRequestSchema,
  McpError,
  UrlElicitationRequiredError,
} from '@modelcontextprotocol/sdk/types.js';
import Keyv from 'keyv';
import { afterEach, describe, expect, it } from 'vitest';
import { TASKS_META } from '../../compat/tasks/marks.ts';
import { type AwaitOptions, memoryRelay, step } from '../../src/index.ts';
import { buildTaskServer } from '../fixtures/task-server.ts';
import { SHORT, some } from '../short.ts';
import { post, type Rpc, send } from './clients.ts';
import {
  effectsIn,
  LEASE,
  SECRET,
  type Served,
  type Spawned,
  scratch,
  serveHere,
  spawnServers,
} from './harness.ts';
import { Reader } from './reader.ts';
import { REDIS, redisDatabase, SQLITE } from './services.ts';

const OWN_URL = redisDatabase(6);

const EXTENSION = 'io.modelcontextprotocol/tasks';
type Json = Record<string, unknown>;
interface Task extends Json {
  readonly taskId: string;
  readonly status: string;
  readonly inputRequests?: Record<string, { params: { message: string } }>;
  readonly result?: { content: { text: string }[]; isError?: boolean };
}

let served: Served | undefined;
let servers: Spawned[] = [];
afterEach(async () => {
  await served?.close();
  served = undefined;
  await Promise.all(servers.splice(0).map((server) => server.kill()));
});

/** A client that posts by hand, each request to a given URL. */
function clientOf(
  urls: readonly string[],
  capabilities: Json = { extensions: { [EXTENSION]: {} } },
  caller?: string,
) {
  let id = 0;
  const request = async (method: string, params: Json, to = 0) => {
    id += 1;
    const _meta = {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientInfo': { name: 'tasks', version: '1' },
      'io.modelcontextprotocol/clientCapabilities': { elicitation: { form: {} }, ...capabilities },
    };
    const headers = {
      'mcp-protocol-version': '2026-07-28',
      'mcp-method': method,
      'mcp-name': String(params.name ?? params.taskId ?? ''),
      ...(caller !== undefined && { authorization: `Bearer ${caller}` }),
    };
    const body = JSON.stringify({ jsonrpc: '2.0', id, method, params: { ...params, _meta } });
    const reply = await send(urls[to % urls.length] ?? '', body, { headers });
    return reply.message as unknown as {
      result?: Task & Json;
      error?: { code: number; message: string; data?: unknown };
    };
  };
  const call = async (name: string, args: Json = {}, extra: Json = {}, to = 0) =>
    request('tools/call', { name, arguments: args, ...extra }, to);
  const get = async (taskId: string, to = 0): Promise<Task> => {
    const { result, error } = await request('tasks/get', { taskId }, to);
    if (result === undefined) throw new Error(JSON.stringify(error));
    return result;
  };
  return {
    request,
    call,
    get,
    until: async (taskId: string, status: string, to = 0, timeout = 20_000): Promise<Task> => {
      await expect.poll(async () => (await get(taskId, to)).status, { timeout, interval: 50 }).toBe(status);
      return get(taskId, to);
    },
    answer: (taskId: string, inputResponses: unknown, to = 0) =>
      request('tasks/update', { taskId, inputResponses }, to),
  };
}

const accept = (field: string, value = `its ${field}`) => ({ action: 'accept', content: { [field]: value } });
const open = ({ inputRequests = {} }: Task): [string, string][] =>
  Object.entries(inputRequests).map(([key, { params }]) => [key, params.message]);
const textOf = ({ result }: Task): string | undefined => result?.content[0]?.text;

const start = async (options: AwaitOptions = {}): Promise<string[]> => {
  served = await serveHere(() => buildTaskServer(() => {}), { tasks: () => 'now', ...options });
  return [served.url];
};

/** Tools that fail in each way, that ask twice under one key, and that run as a task alone. */
function buildTrouble(): Server {
  const server = new Server({ name: 'trouble', version: '1' }, { capabilities: { tools: {} } });
  const inputSchema = { type: 'object' as const };
  server.setRequestHandler(ListToolsRequestSchema, () => ({
    tools: [
      ...['needs-url', 'breaks', 'asks-again'].map((name) => ({ name, inputSchema })),
      { name: 'only-as-task', inputSchema, _meta: { [TASKS_META]: { support: 'required' } } },
    ],
  }));
  server.setRequestHandler(CallToolRequestSchema, async ({ params: { name } }) => {
    if (name === 'breaks') throw new McpError(-32001, 'broken', { why: 'paper' });
    if (name === 'needs-url') {
      const url = 'https://example.com/pay';
      throw new UrlElicitationRequiredError([{ mode: 'url', message: 'open it', url, elicitationId: 'pay' }]);
    }
    if (name === 'only-as-task') {
      ran += 1;
      return { content: [] };
    }
    const names = [];
    for (let nth = 1; nth <= 3; nth += 1) {
      const { content } = await server.elicitInput({
        message: `name ${nth}?`,
        requestedSchema: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] },
        _meta: { 'mcp-await/key': 'name' },
      });
      names.push(content?.name);
    }
    return { content: [{ type: 'text', text: names.join(', ') }] };
  });
  return server;
}

/** Runs as a task alone, once it has asked. */
function buildAfterAsks(effects: string[]): McpServer {
  const server = new McpServer({ name: 'after-asks', version: '1' });
  const _meta = { [TASKS_META]: { support: 'required', when: 'after-asks' } };
  server.registerTool('only-as-task', { _meta }, async () => {
    await server.server.elicitInput({
      message: 'name?',
      requestedSchema: { type: 'object', properties: { name: { type: 'string' } } },
    });
    await step('act', () => void effects.push('act'));
    return { content: [] };
  });
  return server;
}

let ran = 0;
const serveTrouble = async (): Promise<string[]> => {
  ran = 0;
  served = await serveHere(buildTrouble, { tasks: () => 'now' });
  return [served.url];
};

describe('a task of 2026-07-28', () => {
  it('asks, is answered, and is completed, with every field of a task', async () => {
    const client = clientOf(await start());
    const { result } = await client.call('ship');
    expect(result).toMatchObject({
      resultType: 'task',
      status: expect.stringMatching(/working|input_required/),
      ttlMs: 3_600_000,
      pollIntervalMs: 500,
    });
    for (const name of ['createdAt', 'lastUpdatedAt'])
      expect(Date.parse(String(result?.[name]))).not.toBeNaN();
    expect(result).not.toHaveProperty('inputRequests');
    const { taskId } = result as Task;
    for (const field of ['name', 'address']) {
      const task = await client.until(taskId, 'input_required');
      const [[key, message]] = open(task) as [[string, string]];
      expect(message).toBe(`${field}?`);
      // A second look sees the same question under the same key.
      expect(open(await client.get(taskId))).toEqual([[key, message]]);
      const { result: ack } = await client.answer(taskId, { [key]: accept(field) });
      expect(ack).toEqual({ resultType: 'complete', _meta: expect.anything() });
    }
    const task = await client.until(taskId, 'completed');
    expect(textOf(task)).toBe('its name gets it at its address');
    expect(task).toMatchObject({ resultType: 'complete' });
  });

  it('takes answers one by one, ignores unknown and answered keys, and asks bad ones again', async () => {
    const client = clientOf(await start());
    const { taskId } = (await client.call('both')).result as Task;
    const first = await client.until(taskId, 'input_required');
    const [[name], [city]] = open(first) as [[string, string], [string, string]];
    expect((await client.answer(taskId, { nobody: accept('x') })).error).toBeUndefined();
    expect(
      (await client.answer(taskId, { [name]: { action: 'accept', content: { name: 7 } } })).error,
    ).toBeUndefined();
    const keysNow = async () => open(await client.get(taskId)).map(([key]) => key);
    await expect.poll(keysNow).toEqual([city, expect.not.stringMatching(`^${name}$`)]);
    const [, again = ''] = await keysNow();
    // An answer under the key of a bad one is too late.
    await client.answer(taskId, { [name]: accept('name', 'too late') });
    expect(await keysNow()).toEqual([city, again]);
    await client.answer(taskId, { [again]: accept('name') });
    expect(await keysNow()).toEqual([city]);
    await client.answer(taskId, { [again]: accept('name', 'another') });
    for (const bad of ['text', 7, null, [1]]) {
      expect((await client.answer(taskId, bad)).error).toMatchObject({ code: -32602 });
    }
    expect((await client.answer(taskId, { [city]: 'Rome' })).error).toMatchObject({ code: -32602 });
    await Promise.all(
      ['Rome', 'Oslo'].map((value) => client.answer(taskId, { [city]: accept('city', value) })),
    );
    expect(textOf(await client.until(taskId, 'completed'))).toMatch(/^its name in (Rome|Oslo)$/);
  });

  it('is cancelled: its tool is told, and it stays cancelled', async () => {
    const effects: string[] = [];
    served = await serveHere(() => buildTaskServer((effect) => void effects.push(effect)), {
      tasks: () => 'now',
    });
    const client = clientOf([served.url]);
    const { taskId } = (await client.call('sleep', { ms: 60_000 })).result as Task;
    expect((await client.request('tasks/cancel', { taskId })).result).toMatchObject({
      resultType: 'complete',
    });
    expect((await client.get(taskId)).status).toBe('cancelled');
    expect(effects).toEqual(['stopped']);
    expect((await client.request('tasks/cancel', { taskId })).error).toBeUndefined();
    expect((await client.get(taskId)).status).toBe('cancelled');
  });

  it('that throws is completed with isError', async () => {
    const client = clientOf(await start());
    const { taskId } = (await client.call('throws')).result as Task;
    expect(await client.until(taskId, 'completed')).toMatchObject({ result: { isError: true } });
  });

  it('that throws -32042 asks for the URL that it names, and its tool is run again', async () => {
    const urls = await serveTrouble();
    const client = clientOf(urls, { elicitation: { url: {} }, extensions: { [EXTENSION]: {} } });
    const { taskId } = (await client.call('needs-url')).result as Task;
    const { inputRequests = {} } = await client.until(taskId, 'input_required');
    const [[key, ask] = ['', undefined]] = Object.entries(inputRequests);
    expect(ask).toMatchObject({ method: 'elicitation/create', params: { url: 'https://example.com/pay' } });
    await client.answer(taskId, { [key]: { action: 'decline' } });
    const task = await client.until(taskId, 'completed');
    expect(task).toMatchObject({ result: { isError: true } });
    expect(JSON.stringify(task)).not.toContain('32042');
  });

  it('that ends in a JSON-RPC error has failed, with that error in it', async () => {
    const client = clientOf(await serveTrouble());
    const { taskId } = (await client.call('breaks')).result as Task;
    const task = await client.until(taskId, 'failed');
    expect(task.error).toMatchObject({ code: -32001, data: { why: 'paper' } });
    expect(task).not.toHaveProperty('result');
  });

  it('asks under keys that are never used again, explicit ones too', async () => {
    const client = clientOf(await serveTrouble());
    const { taskId } = (await client.call('asks-again')).result as Task;
    const used: string[] = [];
    for (let nth = 1; nth <= 3; nth += 1) {
      await expect.poll(async () => open(await client.get(taskId))[0]?.[1]).toBe(`name ${nth}?`);
      const [[key]] = open(await client.get(taskId)) as [[string, string]];
      used.push(key);
      // Earlier keys no longer accept an answer.
      for (const earlier of used.slice(0, -1))
        await client.answer(taskId, { [earlier]: accept('name', 'old') });
      expect(open(await client.get(taskId)).map(([still]) => still)).toEqual([key]);
      await client.answer(taskId, { [key]: accept('name', String(nth)) });
    }
    expect(new Set(used).size).toBe(3);
    expect(textOf(await client.until(taskId, 'completed'))).toBe('1, 2, 3');
  });

  it('is unknown to others, to everybody once it has expired, and under a wrong id, in one sentence', async () => {
    const urls = await start({ ttl: 1_500 });
    const ann = clientOf(urls, undefined, 'ann');
    const { taskId } = (await ann.call('sleep', { ms: 10 })).result as Task;
    const bob = clientOf(urls, undefined, 'bob');
    const refused = { code: -32602, message: 'Unknown or expired taskId' };
    for (const method of ['tasks/get', 'tasks/update', 'tasks/cancel']) {
      for (const [client, id] of [
        [bob, taskId],
        [ann, `${taskId}x`],
        [ann, 'none'],
      ] as const) {
        expect((await client.request(method, { taskId: id, inputResponses: {} })).error).toEqual(refused);
      }
    }
    expect((await ann.get(taskId)).taskId).toBe(taskId);
    await expect.poll(async () => (await ann.request('tasks/get', { taskId })).error).toEqual(refused);
  });

  it('is the only way to run a tool that says so: -32021 for a client that takes none, and nothing runs', async () => {
    const urls = await serveTrouble();
    for (const _ of ['before the tool is known', 'after']) {
      const { error } = await clientOf(urls, {}).call('only-as-task');
      expect(error).toMatchObject({
        code: -32021,
        data: { requiredCapabilities: { extensions: { [EXTENSION]: {} } } },
      });
    }
    expect(ran).toBe(0);
    const client = clientOf(urls);
    const { taskId } = (await client.call('only-as-task')).result as Task;
    await client.until(taskId, 'completed');
    expect(ran).toBe(1);
  });

  it.each<[string, AwaitOptions]>([
    ['its frame is here', {}],
    ['it is replayed', { limits: { frames: 0 } }],
    ['its frame is reached over a relay', { relay: memoryRelay() }],
  ])('is no plain call where its retry does not declare the extension (%s)', async (_, options) => {
    const effects: string[] = [];
    const build = () => buildAfterAsks(effects);
    const shared: AwaitOptions = { store: new Keyv(), secrets: [SECRET], tasks: 'optional', ...options };
    served = await serveHere(build, shared);
    const other = await serveHere(build, shared);
    const urls = [served.url, other.url];
    const declared = clientOf(urls);
    const plain = clientOf(urls, {});
    const missing = { code: -32021, data: { requiredCapabilities: { extensions: { [EXTENSION]: {} } } } };
    const { result } = await declared.call('only-as-task');
    const inputResponses = Object.fromEntries(open(result as Task).map(([key]) => [key, accept('name')]));
    const retry = { requestState: result?.requestState, inputResponses };
    // The other process never saw the tool.
    for (const to of [1, 0]) {
      expect((await plain.call('only-as-task', {}, retry, to)).error).toMatchObject(missing);
    }
    expect(effects).toEqual([]);
    const made = await declared.call('only-as-task', {}, retry, 1);
    expect(made.result).toMatchObject({ resultType: 'task' });
    await declared.until(String(made.result?.taskId), 'completed');
    expect(effects).toEqual(['act']);
    await other.close();
  });

  it('is told to no retry that does not declare the extension, and to the same one that does', async () => {
    served = await serveHere(() => buildTaskServer(() => {}), {
      tasks: () => 'after-asks',
      limits: { drain: 50 },
    });
    const declared = clientOf([served.url]);
    const { result } = await declared.call('ship');
    const inputResponses = Object.fromEntries(open(result as Task).map(([key]) => [key, accept('name')]));
    const retry = { requestState: result?.requestState, inputResponses };
    const made = await declared.call('ship', {}, retry);
    expect(made.result).toMatchObject({ resultType: 'task' });
    const { status, message } = await post(served.url, {
      tool: 'ship',
      state: retry.requestState,
      responses: inputResponses,
    });
    expect(status).toBe(400);
    expect(message.error).toMatchObject({
      code: -32021,
      data: { requiredCapabilities: { extensions: { [EXTENSION]: {} } } },
    });
    const again = await declared.call('ship', {}, retry);
    expect(again.result).toMatchObject({ resultType: 'task', taskId: made.result?.taskId });
  });

  it('follows the declaration of its own caller’s tools, whichever caller came before', async () => {
    const required = { [TASKS_META]: { support: 'required' } };
    served = await serveHere(
      ({ authInfo }) => {
        const server = new McpServer({ name: 'reports', version: '1' });
        server.registerTool('other', {}, () => ({ content: [] }));
        if (authInfo?.clientId === 'ann') {
          server.registerTool('report', { _meta: required }, () => ({ content: [] }));
        }
        return server;
      },
      { tasks: 'optional' },
    );
    const bob = clientOf([served.url], {}, 'bob');
    expect((await bob.call('report')).result).toMatchObject({ isError: true });
    const { error } = await clientOf([served.url], {}, 'ann').call('report');
    expect(error).toMatchObject({ code: -32021 });
    expect((await bob.call('report')).result).toMatchObject({ isError: true });
  });

  it('is not what a client of 2025 would wish for: params.task is passed over', async () => {
    served = await serveHere(() => buildTaskServer(() => {}), { tasks: 'optional' });
    const client = clientOf([served.url]);
    const { result } = await client.call('sleep', { ms: 1 }, { task: { ttl: 1_000 } });
    expect(result).toMatchObject({ resultType: 'complete', content: [{ text: 'slept 1' }] });
  });

  it('does not exist for a client without the extension', async () => {
    const client = clientOf(await start(), {});
    expect((await client.call('sleep', { ms: 1 })).result).toMatchObject({ resultType: 'complete' });
    const missing = { code: -32021, data: { requiredCapabilities: { extensions: { [EXTENSION]: {} } } } };
    expect((await client.request('tasks/get', { taskId: 'any' })).error).toMatchObject(missing);
    const listen = { notifications: { taskIds: ['any'] } };
    expect((await client.request('subscriptions/listen', listen)).error).toMatchObject(missing);
  });
});

describe('a call of 2026-07-28', () => {
  it('with after-asks asks in rounds, and is a task from its first step on', async () => {
    const client = clientOf(await start({ tasks: () => 'after-asks' }));
    const first = (await client.call('ship')).result as Task & { requestState: string };
    expect(first).toMatchObject({ resultType: 'input_required' });
    const [[key]] = open(first) as [[string, string]];
    const again = { inputResponses: { [key]: accept('name') }, requestState: first.requestState };
    const { taskId, resultType } = (await client.call('ship', {}, again)).result as Task;
    expect(resultType).toBe('task');
    // The same POST again gets the same task.
    expect((await client.call('ship', {}, again)).result).toMatchObject({ resultType: 'task', taskId });
    const asking = await client.until(taskId, 'input_required');
    const [[later, message]] = open(asking) as [[string, string]];
    expect(message).toBe('address?');
    await client.answer(taskId, { [later]: accept('address') });
    expect(textOf(await client.until(taskId, 'completed'))).toBe('its name gets it at its address');
  });

  it('that takes long becomes a task, and one that does not, does not', async () => {
    served = await serveHere(() => buildTaskServer(() => {}), {
      tasks: 'optional',
      limits: { taskAfter: 150 },
    });
    const client = clientOf([served.url]);
    expect((await client.call('sleep', { ms: 10 })).result).toMatchObject({ resultType: 'complete' });
    const { taskId, resultType } = (await client.call('sleep', { ms: 600 })).result as Task;
    expect(resultType).toBe('task');
    expect(textOf(await client.until(taskId, 'completed'))).toBe('slept 600');
  });

  it('that asks more often than its client comes back becomes a task before that', async () => {
    served = await serveHere(() => buildTaskServer(() => {}), { tasks: 'optional' });
    const client = clientOf([served.url]);
    const pages = 12;
    let reply = (await client.call('wizard', { pages })).result as Task & { requestState: string };
    let rounds = 1;
    for (; reply.resultType === 'input_required'; rounds += 1) {
      const [[key, message]] = open(reply) as [[string, string]];
      const inputResponses = { [key]: accept(message.slice(0, -1)) };
      const again = { inputResponses, requestState: reply.requestState };
      reply = (await client.call('wizard', { pages }, again)).result as typeof reply;
    }
    expect([reply.resultType, rounds]).toEqual(['task', 9]);
    const { taskId } = reply;
    for (let page = 9; page <= pages; page += 1) {
      await expect.poll(async () => open(await client.get(taskId))[0]?.[1]).toBe(`page${page}?`);
      const [[key]] = open(await client.get(taskId)) as [[string, string]];
      await client.answer(taskId, { [key]: accept(`page${page}`) });
    }
    const all = Array.from({ length: pages }, (_, nth) => `its page${nth + 1}`).join(', ');
    expect(textOf(await client.until(taskId, 'completed'))).toBe(all);
  });
});

describe('subscriptions/listen', () => {
  it.each(['x', [1], ['a', null], {}, null])('takes no %j for tasks', async (taskIds) => {
    const { request } = clientOf(await start());
    const { error } = await request('subscriptions/listen', { notifications: { taskIds } });
    expect(error).toMatchObject({ code: -32602, message: expect.stringContaining('taskIds') });
  });

  it.skipIf(SHORT)('tells where a task is, and each time it continues, as tasks/get would', async () => {
    const urls = await start();
    const client = clientOf(urls);
    const { taskId } = (await client.call('both')).result as Task;
    const foreign = clientOf(urls, undefined, 'bob');
    const other = ((await foreign.call('both')).result as Task).taskId;
    await client.until(taskId, 'input_required');
    const params = {
      notifications: { taskIds: [taskId, other, 'none', taskId] },
      _meta: {
        'io.modelcontextprotocol/protocolVersion': '2026-07-28',
        'io.modelcontextprotocol/clientInfo': { name: 'tasks', version: '1' },
        'io.modelcontextprotocol/clientCapabilities': { extensions: { [EXTENSION]: {} } },
      },
    };
    const response = await fetch(urls[0] ?? '', {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        'mcp-protocol-version': '2026-07-28',
        'mcp-method': 'subscriptions/listen',
      },
      body: JSON.stringify({ jsonrpc: '2.0', id: 'sub', method: 'subscriptions/listen', params }),
    });
    const stream = new Reader(response);
    const isAck = ({ method }: Rpc): boolean => method === 'notifications/subscriptions/acknowledged';
    const ack = await stream.next(isAck);
    expect(ack.params).toMatchObject({ notifications: { taskIds: [taskId] } });
    const told = (): Task[] =>
      stream.messages
        .filter(({ method }) => method === 'notifications/tasks')
        .map(({ params: task }) => task as unknown as Task);
    await expect.poll(() => told().at(-1)?.status).toBe('input_required');
    const [[name], [city]] = open(told().at(-1) as Task) as [[string, string], [string, string]];
    await client.answer(taskId, { [name]: accept('name') });
    await expect.poll(() => open(told().at(-1) as Task).map(([key]) => key)).toEqual([city]);
    await client.answer(taskId, { [city]: accept('city') });
    await expect.poll(() => told().at(-1)?.status).toBe('completed');
    const { _meta, ...last } = told().at(-1) as Task;
    expect(_meta).toEqual({ 'io.modelcontextprotocol/subscriptionId': 'sub' });
    expect(await client.get(taskId)).toMatchObject(last);
    expect(new Set(told().map((task) => task.taskId))).toEqual(new Set([taskId]));
    // Nothing more can happen: the subscription is over.
    await expect.poll(() => stream.over).toBe(true);
    expect(stream.messages.at(-1)).toMatchObject({ id: 'sub', result: { resultType: 'complete' } });
  });
});

describe('streams that name tasks', () => {
  it('count by the tasks of each, and strangers take strangers’ places alone', async () => {
    const [url = ''] = await start();
    let streams = new AbortController();
    /** A response that is collected as garbage is closed. */
    const responses: Response[] = [];
    const taskIds = Array.from({ length: 100 }, (_, nth) => `task ${nth}`);
    const listen = async (notifications: Json, caller?: string): Promise<number> => {
      const _meta = {
        'io.modelcontextprotocol/protocolVersion': '2026-07-28',
        'io.modelcontextprotocol/clientInfo': { name: 'tasks', version: '1' },
        'io.modelcontextprotocol/clientCapabilities': { extensions: { [EXTENSION]: {} } },
      };
      const params = { notifications: { toolsListChanged: true, ...notifications }, _meta };
      const response = await fetch(url, {
        method: 'POST',
        signal: streams.signal,
        headers: {
          'content-type': 'application/json',
          accept: 'application/json, text/event-stream',
          'mcp-protocol-version': '2026-07-28',
          'mcp-method': 'subscriptions/listen',
          ...(caller !== undefined && { authorization: `Bearer ${caller}` }),
        },
        body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'subscriptions/listen', params }),
      });
      responses.push(response);
      return response.status;
    };
    for (let nth = 0; nth < 45; nth += 1) expect(await listen({ taskIds })).toBe(200);
    expect(await listen({ taskIds })).toBe(503);
    expect(served?.log.text).toContain('taskIds');
    // One without tasks still has room.
    expect(await listen({})).toBe(200);
    for (let nth = 0; nth < 18; nth += 1) expect(await listen({ taskIds }, 'ann')).toBe(200);
    expect(await listen({ taskIds }, 'ann')).toBe(503);
    expect(await listen({ taskIds }, 'bob')).toBe(200);
    streams.abort();
    streams = new AbortController();
    await expect.poll(() => listen({ taskIds }, 'ann')).toBe(200);
    streams.abort();
  });
});

describe('two handlers over one store', () => {
  it('tell of a task that runs in the other one, and take its cancellation', async () => {
    const options = { store: new Keyv(), secrets: [SECRET], tasks: () => 'now' as const };
    const effects: string[] = [];
    const build = () => buildTaskServer((effect) => void effects.push(effect));
    served = await serveHere(build, options);
    const other = await serveHere(build, options);
    const client = clientOf([served.url, other.url]);
    const { taskId } = (await client.call('sleep', { ms: 60_000 })).result as Task;
    const params = {
      notifications: { taskIds: [taskId] },
      _meta: {
        'io.modelcontextprotocol/protocolVersion': '2026-07-28',
        'io.modelcontextprotocol/clientInfo': { name: 'tasks', version: '1' },
        'io.modelcontextprotocol/clientCapabilities': { extensions: { [EXTENSION]: {} } },
      },
    };
    const stream = new Reader(
      await fetch(other.url, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          accept: 'application/json, text/event-stream',
          'mcp-protocol-version': '2026-07-28',
          'mcp-method': 'subscriptions/listen',
        },
        body: JSON.stringify({ jsonrpc: '2.0', id: 'sub', method: 'subscriptions/listen', params }),
      }),
    );
    await stream.next(({ method }) => method === 'notifications/tasks');
    await client.request('tasks/cancel', { taskId }, 1);
    const told = (): unknown[] =>
      stream.messages
        .filter(({ method }) => method === 'notifications/tasks')
        .map(({ params: task }) => (task as unknown as Task).status);
    await expect.poll(told).toEqual(['working', 'cancelled']);
    // Where it runs it is read at the next sign of life.
    await expect.poll(() => effects).toEqual(['stopped']);
    await other.close();
  });
});

describe('the option tasks', () => {
  const DECLARED = { extensions: { [EXTENSION]: {} } };
  const declaring = (capabilities: object) => () =>
    new McpServer({ name: 'declares', version: '1' }, { capabilities: { tools: {}, ...capabilities } });
  const OWN = { tasks: { list: {}, requests: { tools: { call: {} } } } };

  it.each<[string, AwaitOptions, object, { extension: boolean; session: boolean }]>([
    ['left out', {}, {}, { extension: false, session: false }],
    ['never', { tasks: 'never' }, {}, { extension: false, session: false }],
    [
      'never, of a server that declares the extension',
      { tasks: 'never' },
      DECLARED,
      { extension: true, session: false },
    ],
    ['optional', { tasks: 'optional' }, {}, { extension: true, session: true }],
    ['a function', { tasks: () => 'never' }, {}, { extension: true, session: true }],
    ['left out, of a server that declares the extension', {}, DECLARED, { extension: true, session: true }],
    ['left out, of a server with tasks of its own', {}, OWN, { extension: true, session: true }],
  ])('decides what clients are told of tasks: %s', async (_, options, capabilities, told) => {
    served = await serveHere(declaring(capabilities), options);
    const { result } = await clientOf([served.url]).request('server/discover', {});
    const discovered = (result as Json | undefined)?.capabilities;
    if (told.extension) expect(discovered).toMatchObject(DECLARED);
    else expect(discovered).not.toHaveProperty('extensions');
    for (const revision of ['2025-11-25', 'DRAFT-SEP-2322']) {
      const params = { protocolVersion: revision, capabilities: {}, clientInfo: { name: 'c', version: '1' } };
      const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'initialize', params });
      const { message } = await send(served.url, body);
      const { capabilities: said } = (message as unknown as { result: { capabilities: Json } }).result;
      if (told.session) expect(said, revision).toHaveProperty('tasks');
      else expect(said, revision).not.toHaveProperty('tasks');
    }
  });

  it('left out leaves calls what they are, however long, and however their client asks', async () => {
    served = await serveHere(() => buildTaskServer(() => {}), { limits: { taskAfter: 50 } });
    const client = clientOf([served.url]);
    const { result } = await client.call('sleep', { ms: 300 });
    expect(result).toMatchObject({ resultType: 'complete', content: [{ text: 'slept 300' }] });
    expect((await client.request('tasks/get', { taskId: 'any' })).error).toMatchObject({ code: -32601 });
  });

  it('needs a store', async () => {
    const refused = serveHere(() => buildTaskServer(() => {}), {
      tasks: () => 'now',
      state: 'sealed',
      secrets: [SECRET],
    });
    await expect(refused).rejects.toMatchObject({
      code: 'bad-option',
      message: expect.stringContaining('store'),
    });
    served = await serveHere(() => buildTaskServer(() => {}), {
      tasks: () => 'now',
      state: 'sealed',
      secrets: [SECRET],
      store: new Keyv(),
    });
    expect((await clientOf([served.url]).call('sleep', { ms: 1 })).result).toMatchObject({
      resultType: 'task',
    });
  });
});

for (const kind of some([
  { name: REDIS.name, down: REDIS.down, args: () => ['--store', OWN_URL] },
  {
    name: `${REDIS.name}, with a relay`,
    down: REDIS.down,
    args: () => ['--store', OWN_URL, '--relay', OWN_URL],
  },
  { name: SQLITE.name, down: false, args: () => ['--store', SQLITE.url()] },
])) {
  describe.skipIf(kind.down)(`tasks at three processes on ${kind.name}`, () => {
    const effects = join(scratch(), 'effects');
    const begin = async () => {
      servers = await spawnServers('marked-task-server.ts', 3, {
        args: [...kind.args(), '--tasks', 'optional'],
        env: { EFFECTS: effects },
      });
      return clientOf(servers.map(({ url }) => url));
    };

    it('are asked about, answered and cancelled at any of them', async () => {
      const client = await begin();
      const { taskId } = (await client.call('ship')).result as Task;
      for (const [nth, field] of ['name', 'address'].entries()) {
        await expect.poll(async () => open(await client.get(taskId, 1))[0]?.[1]).toBe(`${field}?`);
        const [[key]] = open(await client.get(taskId, 2)) as [[string, string]];
        await client.answer(taskId, { [key]: accept(field) }, nth + 1);
        // At once, wherever it is asked for.
        for (const to of [0, 1, 2])
          expect(open(await client.get(taskId, to)).map(([open]) => open)).not.toContain(key);
      }
      expect(textOf(await client.until(taskId, 'completed', 2))).toBe('its name gets it at its address');
      const before = effectsIn(effects).length;
      const { taskId: sleeping } = (await client.call('sleep', { ms: 120_000 })).result as Task;
      await client.request('tasks/cancel', { taskId: sleeping }, 1);
      for (const to of [0, 1, 2]) expect((await client.get(sleeping, to)).status).toBe('cancelled');
      await expect.poll(() => effectsIn(effects).slice(before)).toEqual(['stopped']);
    });

    // Each run waits for three leases.
    it.skipIf(kind.name !== REDIS.name)(
      'are taken up, though nobody asks, when their process is killed',
      async () => {
        const client = await begin();
        const before = effectsIn(effects).length;
        const { taskId } = (await client.call('ship')).result as Task;
        await client.until(taskId, 'input_required', 1);
        const [[key]] = open(await client.get(taskId, 1)) as [[string, string]];
        await client.answer(taskId, { [key]: accept('name') }, 0);
        await expect.poll(async () => open(await client.get(taskId, 0))[0]?.[1]).toBe('address?');
        await servers[0]?.kill();
        const [[later]] = open(await client.get(taskId, 1)) as [[string, string]];
        await client.answer(taskId, { [later]: accept('address') }, 2);
        // Longer than a sweeper waits.
        await new Promise((resolve) => setTimeout(resolve, 3.2 * LEASE));
        const task = await client.get(taskId, 1);
        expect([task.status, textOf(task)]).toEqual(['completed', 'its name gets it at its address']);
        const acted = effectsIn(effects).slice(before);
        expect(acted.map((effect) => effect.split(' ')[0])).toEqual(['pack', 'send']);
      },
    );
  });
}
