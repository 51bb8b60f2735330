/** HTTP+SSE of 2024-11-05 in one process: the wire, the refusals, and mount points. */
import { createServer } from 'node:http';
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import express from 'express';
import Keyv from 'keyv';
import { afterEach, describe, expect, it } from 'vitest';
import booking from '../../examples/booking/server.ts';
import { tuned } from '../../src/call/limits.ts';
import { type AwaitOptions, createAwaitHandler, type HostFactory } from '../../src/index.ts';
import { toNodeHandler } from '../../src/node.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import early from '../fixtures/early-server.ts';
import { v2Server } from '../fixtures/v2-server.ts';
import { CAPABILITIES, legacy, oldest, type Rpc, type TestClient } from './clients.ts';
import { CELLS, LogBook, listen, optionsOf, SECRET, type Served, serveHere, shut } from './harness.ts';
import { Reader } from './reader.ts';
import { TOOLS } from './tools.ts';

const ends: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

interface Here extends Served {
  readonly root: string;
}

async function serve(
  options: AwaitOptions = {},
  factory: HostFactory = () => buildServer(() => {}),
): Promise<Here> {
  const served = await serveHere(factory, {
    secrets: [SECRET],
    ...options,
    limits: { drain: 300, ...options.limits },
  });
  ends.push(() => served.close());
  return { ...served, root: served.url.slice(0, -'/mcp'.length) };
}

interface Line {
  readonly reader: Reader;
  /** Where it posts to. */
  readonly endpoint: string;
  readonly id: string;
  post(body: unknown, headers?: Record<string, string>): Promise<Refusal>;
  close(): Promise<void>;
}

interface Refusal {
  readonly status: number;
  readonly text: string;
  readonly error?: { code: number; message: string };
}

async function open(root: string, headers: Record<string, string> = {}, path = '/sse'): Promise<Line> {
  const gone = new AbortController();
  const response = await fetch(`${root}${path}`, { headers, signal: gone.signal });
  const reader = new Reader(response);
  const close = async (): Promise<void> => {
    gone.abort();
    await expect.poll(() => reader.over).toBe(true);
  };
  ends.push(close);
  await expect.poll(() => reader.over || reader.text.includes('\n\n')).toBe(true);
  const endpoint = /^event: endpoint\n(?:.+\n)*data: (.+)$/m.exec(reader.text)?.[1] ?? '';
  const id = new URLSearchParams(endpoint.split('?')[1]).get('sessionId') ?? '';
  return {
    reader,
    endpoint,
    id,
    close,
    post: (body, more) => post(`${root}${endpoint}`, body, { ...headers, ...more }),
  };
}

async function post(url: string, body: unknown, headers: Record<string, string> = {}): Promise<Refusal> {
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
  const text = await response.text();
  const error = text.startsWith('{') ? (JSON.parse(text) as { error: Refusal['error'] }).error : undefined;
  return { status: response.status, text, ...(error !== undefined && { error }) };
}

function initialize(protocolVersion = '2024-11-05', capabilities: object = CAPABILITIES): object {
  const params = { protocolVersion, capabilities, clientInfo: { name: 'raw', version: '1' } };
  return { jsonrpc: '2.0', id: 'begin', method: 'initialize', params };
}

async function begin(root: string, version?: string, headers?: Record<string, string>): Promise<Line> {
  const line = await open(root, headers);
  expect(await line.post(initialize(version))).toEqual({ status: 202, text: 'Accepted' });
  await line.reader.next(({ id }) => id === 'begin');
  return line;
}

const call = (name: string, id: string | number = 7) => ({
  jsonrpc: '2.0',
  id,
  method: 'tools/call',
  params: { name, arguments: {} },
});
const answer = ({ id }: Rpc, field = 'name') => ({
  jsonrpc: '2.0',
  id,
  result: { action: 'accept', content: { [field]: `its ${field}` } },
});
const isAsk = ({ method }: Rpc): boolean => method === 'elicitation/create';
const has = (id: string | number) => (message: Rpc) => message.id === id;
const textIn = ({ result }: Rpc): string | undefined => result?.content?.[0]?.text;

async function connected(root: string, path = '/sse'): Promise<TestClient> {
  const client = await oldest(`${root}${path}`);
  ends.push(() => client.close());
  return client;
}

for (const cell of CELLS) {
  describe(`the SDK's client over HTTP+SSE, ${cell.name}`, () => {
    it.each(TOOLS)('%s', async (tool, result, asked) => {
      const { root } = await serve(optionsOf(cell));
      const client = await connected(root);
      expect(await client.tool(tool)).toBe(result);
      expect([...client.asked].sort()).toEqual([...asked].sort());
    });
  });
}

it('acknowledges no call whose response is still on its way into the store', async () => {
  const records = new Map<string, string>();
  let delay = 0;
  const adapter = {
    opts: {},
    get: (key: string) => records.get(key),
    set: async (key: string, value: string) => {
      await sleep(delay);
      records.set(key, value);
      return true;
    },
    delete: (key: string) => records.delete(key),
    clear: () => records.clear(),
  };
  const word = 'acknowledged';
  const { root } = await serve({ store: new Keyv({ store: adapter }) }, () => {
    const server = new McpServer({ name: 'quick', version: '1' });
    server.registerTool('quick', {}, () => ({ content: [{ type: 'text', text: word }] }));
    return server;
  });
  const line = await begin(root);
  // Longer than a call may last that is no entry of its stream.
  delay = 400;
  const { status } = await line.post(call('quick'));
  expect([status, [...records.values()].filter((value) => value.includes(word)).length]).toEqual([202, 1]);
});

describe("the SDK's client over HTTP+SSE", () => {
  it('books a flight with the tool of the example', async () => {
    const { root } = await serve({}, () => booking());
    const client = await connected(root);
    expect(await client.tool('book_flight', { to: 'Rome' })).toBe('Booked a flight to Rome on its day.');
    expect(client.asked).toEqual([
      'When do you want to fly to Rome?',
      'The flight to Rome on its day is 120 €. Book it?',
    ]);
  });

  it('gets prompts, resources, log messages and progress', async () => {
    const { root } = await serve();
    const client = await connected(root);
    expect(await client.prompt('greet')).toBe('Greet its name');
    expect(await client.resource('diary://today')).toBe('Dear its name');
    expect(await client.tool('notes')).toBe('its name of its city');
    expect(client.logged).toEqual(['note 1', 'note 2', 'note 3']);
    // The SDK's client forgets the progress that comes in one chunk with the result.
    expect(client.progressed.slice(0, 2)).toEqual([1, 2]);
  });

  it('is asked outside of calls, too', async () => {
    const { root } = await serve({}, () => early());
    const client = await connected(root);
    await expect.poll(() => client.asked).toEqual(['roots']);
    await expect.poll(() => client.tool('root')).toBe('file:///home/ann');
  });

  it('calls a tool in an instance of its own, and a server of SDK v2', async () => {
    const each = await serve({ instance: 'call' });
    expect(await (await connected(each.root)).tool('in-turn')).toBe('its name, its city, its street');
    const second = await serve({}, () => v2Server(() => {}));
    const client = await connected(second.root);
    expect(await client.tool('both-at-once')).toBe('its name in file:///home/ann');
    const { reader } = await begin(second.root);
    expect(reader.messages[0]?.result?.protocolVersion).toBe('2024-11-05');
  });

  it('is served beside the later revisions, each at its own path', async () => {
    const { root, url } = await serve();
    const later = await legacy(url);
    ends.push(() => later.close());
    expect(await Promise.all([(await connected(root)).tool('one'), later.tool('one')])).toEqual([
      'Hello its name',
      'Hello its name',
    ]);
  });
});

describe('the stream', () => {
  it('begins with the endpoint, and has each message as an event, byte by byte', async () => {
    const { root } = await serve();
    const { hostname, port } = new URL(root);
    const socket = connect(Number(port), hostname);
    ends.push(async () => socket.destroy());
    let text = '';
    socket.on('data', (chunk) => {
      text += chunk.toString();
    });
    socket.write('GET /sse HTTP/1.0\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n');
    await expect.poll(() => text).toContain('sessionId=');
    const [head = '', body = ''] = text.split('\r\n\r\n');
    expect(head).toMatch(/^HTTP\/1\.\d 200 OK\r\n/);
    expect(head.toLowerCase()).toContain('\r\ncontent-type: text/event-stream\r\n');
    const id = /sessionId=(\S+)\n/.exec(body)?.[1] ?? '';
    expect(id).toMatch(/^[0-9a-z]+\.[0-9a-f-]{36}$/);
    const endpoint = `event: endpoint\nid: ${id}_0\nretry: 1000\ndata: /messages?sessionId=${id}\n\n`;
    expect(body).toBe(endpoint);
    await post(`${root}/messages?sessionId=${id}`, { jsonrpc: '2.0', id: 1, method: 'ping' });
    await post(`${root}/messages?sessionId=${id}`, { jsonrpc: '2.0', id: 2, method: 'ping' });
    await expect.poll(() => text).toContain('"id":2');
    const rest = text.slice(text.indexOf(endpoint) + endpoint.length);
    const event = (nth: number): string => `event: message\nid: ${id}_(\\d+)\ndata: (.*"id":${nth}.*)\n\n`;
    const [, first, one = '', second, two = ''] = new RegExp(`^${event(1)}${event(2)}$`).exec(rest) ?? [];
    expect([JSON.parse(one), JSON.parse(two)]).toEqual([
      { jsonrpc: '2.0', id: 1, result: {} },
      { jsonrpc: '2.0', id: 2, result: {} },
    ]);
    expect(Number(second)).toBe(Number(first) + 1);
  });

  it('continues from Last-Event-ID, with the endpoint first, what was missed, and nothing twice', async () => {
    const { root } = await serve();
    const line = await begin(root);
    const { last } = line.reader;
    await line.close();
    await line.post(call('one'));
    const again = await open(root, { 'last-event-id': last });
    expect(again.endpoint).toBe(line.endpoint);
    expect(again.reader.text).toMatch(new RegExp(`^event: endpoint\nid: ${last}\n`));
    const ask = await again.reader.next(isAsk);
    await again.post(answer(ask));
    expect(textIn(await again.reader.next(has(7)))).toBe('Hello its name');
    expect(again.reader.messages.map(({ id }) => id)).toEqual([ask.id, 7]);
    // Even who had nothing but the endpoint comes back to its session.
    const whole = await open(root, { 'last-event-id': `${line.id}_0` });
    await whole.reader.next(has(7));
    expect(whole.reader.messages.map(({ id }) => id)).toEqual(['begin', ask.id, 7]);
    await expect.poll(() => again.reader.over).toBe(true);
  });

  it('without Last-Event-ID is a new session', async () => {
    const { root } = await serve();
    const [one, two] = [await begin(root), await begin(root)];
    expect(one.id).not.toBe(two.id);
    await one.post(call('one'));
    await one.reader.next(isAsk);
    expect(two.reader.messages.filter(isAsk)).toEqual([]);
  });

  it.each([
    ['nonsense', 400],
    ['x'.repeat(5_000), 400],
    [(id: string) => `${id}_999`, 400],
    [(id: string) => `${id.slice(0, -1)}${id.endsWith('0') ? 1 : 0}_0`, 404],
  ])('is refused for a Last-Event-ID that is none (%#)', async (made, status) => {
    const { root } = await serve();
    const { id } = await begin(root);
    const last = typeof made === 'string' ? made : made(id);
    const refused = await fetch(`${root}/sse`, { headers: { 'last-event-id': last } });
    expect(refused.status).toBe(status);
    expect(await refused.json()).toMatchObject({
      jsonrpc: '2.0',
      error: { code: status === 404 ? -32001 : -32602 },
    });
  });

  it('whose client never reads is broken off', async () => {
    const factory = (): McpServer => {
      const server = new McpServer({ name: 'long', version: '1' }, { capabilities: { logging: {} } });
      server.registerTool('long', {}, async () => ({
        content: [{ type: 'text', text: 'x'.repeat(3_000_000) }],
      }));
      return server;
    };
    const { root } = await serve({ ...tuned({ stalled: 300, keepAlive: 50 }) }, factory);
    const { hostname, port } = new URL(root);
    const socket = connect(Number(port), hostname);
    let head = '';
    socket.on('data', (chunk) => {
      head += chunk.toString();
    });
    socket.write('GET /sse HTTP/1.1\r\nHost: localhost\r\n\r\n');
    await expect.poll(() => head).toContain('sessionId=');
    socket.pause();
    const gone = new Promise((resolve) => socket.once('close', resolve).once('error', resolve));
    const url = `${root}/messages?sessionId=${/sessionId=(\S+)/.exec(head)?.[1]}`;
    await post(url, initialize());
    for (const id of [1, 2, 3, 4, 5, 6]) expect((await post(url, call('long', id))).status).toBe(202);
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    socket.resume();
    await gone;
    expect(head).not.toContain('"id":6');
  });
});

describe('initialize', () => {
  it.each([
    ['2024-11-05', '2024-11-05'],
    ['2025-11-25', '2025-11-25'],
    ['2025-06-18', '2025-06-18'],
    ['2099-01-01', '2025-11-25'],
    ['DRAFT-SEP-1858', '2025-11-25'],
  ])('%s gets %s', async (asked, got) => {
    const { root } = await serve();
    const line = await begin(root, asked);
    expect(line.reader.messages[0]?.result?.protocolVersion).toBe(got);
  });

  it('is refused the second time, at any process, and without what it needs', async () => {
    const store = new Keyv();
    const [here, there] = [await serve({ store }), await serve({ store })];
    const line = await open(here.root);
    await line.post({ jsonrpc: '2.0', id: 'bare', method: 'initialize', params: {} });
    expect((await line.reader.next(has('bare'))).error).toEqual({
      code: -32602,
      message: 'Invalid params: initialize needs protocolVersion, capabilities and clientInfo',
    });
    await line.post(initialize());
    await line.reader.next(({ result }) => result !== undefined);
    for (const [nth, root] of [here.root, there.root].entries()) {
      const again = { ...initialize(), id: `again ${nth}` };
      expect((await post(`${root}${line.endpoint}`, again)).status).toBe(202);
      expect((await line.reader.next(has(`again ${nth}`))).error).toEqual({
        code: -32600,
        message: 'Invalid Request: this session was initialized already',
      });
    }
    expect((await line.post([initialize(), call('one')])).error?.code).toBe(-32600);
    await line.post(call('one'));
    await line.reader.next(isAsk);
  });

  it('may be sent again when the server did not take its client', async () => {
    const { root } = await serve();
    const line = await open(root);
    await line.post({ ...initialize('2025-11-25', { elicitation: 7 }), id: 'odd' });
    expect((await line.reader.next(has('odd'))).error?.code).toBe(-32602);
    await line.post(initialize());
    expect((await line.reader.next(has('begin'))).result?.protocolVersion).toBe('2024-11-05');
  });

  it('comes first: what is sent before gets an error that says so, but for a ping', async () => {
    const { root } = await serve();
    const line = await open(root);
    expect((await line.post(call('one'))).status).toBe(202);
    expect((await line.reader.next(has(7))).error).toEqual({
      code: -32600,
      message: 'Invalid Request: send initialize first',
    });
    await line.post({ jsonrpc: '2.0', id: 'there?', method: 'ping' });
    expect((await line.reader.next(has('there?'))).result).toEqual({});
    expect((await line.post({ jsonrpc: '2.0', method: 'notifications/initialized' })).status).toBe(202);
  });
});

describe('a POST', () => {
  it('that is no JSON-RPC is refused, and nothing is lost by it', async () => {
    const { root } = await serve();
    const line = await begin(root);
    await line.post(call('one'));
    const ask = await line.reader.next(isAsk);
    expect(await line.post('{"jsonrpc": ')).toMatchObject({ status: 400, error: { code: -32700 } });
    for (const body of [
      [],
      [1],
      'null',
      '7',
      { jsonrpc: '1.0', id: 1, method: 'ping' },
      { jsonrpc: '2.0', id: 1 },
    ]) {
      expect(await line.post(body)).toMatchObject({ status: 400, error: { code: -32600 } });
    }
    expect((await line.post('x', { 'content-type': 'text/plain' })).status).toBe(415);
    expect(await line.post(call('one'))).toMatchObject({ status: 400, error: { code: -32600 } });
    await line.post({ ...answer(ask), id: 'nobody asked' });
    await line.post({ ...answer(ask), id: `${line.id}/nor here` });
    await line.post(answer(ask));
    expect(textIn(await line.reader.next(has(7)))).toBe('Hello its name');
  });

  it('may be a batch on 2025-03-26, and on no other revision', async () => {
    const { root } = await serve();
    const other = await begin(root);
    expect((await other.post([initialize()])).status).toBe(400);
    expect((await other.post([{ jsonrpc: '2.0', id: 1, method: 'ping' }])).status).toBe(400);
    const line = await begin(root, '2025-03-26');
    const ping = (id: string) => ({ jsonrpc: '2.0', id, method: 'ping' });
    expect((await line.post([ping('a'), ping('b')])).status).toBe(202);
    await Promise.all(['a', 'b'].map((id) => line.reader.next(has(id))));
  });

  it('without a session is refused by 400, to an unknown, expired or foreign one by 404', async () => {
    const { root } = await serve();
    const line = await begin(root, undefined, { authorization: 'Bearer ann' });
    expect(await post(`${root}/messages`, call('one'))).toMatchObject({
      status: 400,
      error: { code: -32000 },
    });
    expect((await post(`${root}/messages?sessionId=`, call('one'))).status).toBe(400);
    const expired = `${(1_000_000).toString(36)}.${line.id.split('.')[1]}`;
    for (const [id, headers] of [
      ['nonsense', {}],
      [expired, { authorization: 'Bearer ann' }],
      [line.id, {}],
      [line.id, { authorization: 'Bearer eve' }],
    ] as const) {
      const refused = await post(`${root}/messages?sessionId=${id}`, call('one'), headers);
      expect(refused).toMatchObject({ status: 404, error: { code: -32001 } });
      expect(refused.error?.message).toMatch(/^Session not found/);
    }
    const foreign = { 'last-event-id': line.reader.last, authorization: 'Bearer eve' };
    expect((await fetch(`${root}/sse`, { headers: foreign })).status).toBe(404);
    expect((await line.post(call('one'))).status).toBe(202);
  });

  it('that is too much for one session is an error, and what is in work continues', async () => {
    const { root } = await serve({ ...tuned({ streams: 2 }) });
    const line = await begin(root);
    for (const id of [1, 2]) expect((await line.post(call('one', id))).status).toBe(202);
    expect((await line.post(call('one', 3))).status).toBe(429);
    await expect.poll(() => line.reader.messages.filter(isAsk).length).toBe(2);
    for (const ask of line.reader.messages.filter(isAsk)) await line.post(answer(ask));
    await line.reader.next(has(1));
    await line.reader.next(has(2));
    expect((await line.post(call('one', 3))).status).toBe(202);
  });

  it('of a cancellation ends its call', async () => {
    const { root } = await serve();
    const line = await begin(root);
    await line.post(call('one'));
    await line.reader.next(isAsk);
    await line.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 7 } });
    await expect.poll(async () => (await line.post(call('in-turn'))).status).toBe(202);
  });
});

describe('other methods, and what is not served', () => {
  it('are 405 with what is allowed', async () => {
    const { root } = await serve();
    const { endpoint } = await begin(root);
    const statusOf = async (method: string, path: string): Promise<readonly unknown[]> => {
      const body = method === 'POST' ? { body: '{}', headers: { 'content-type': 'application/json' } } : {};
      const { status, headers } = await fetch(`${root}${path}`, { method, ...body });
      return [status, headers.get('allow')];
    };
    expect(await statusOf('POST', '/sse')).toEqual([405, 'GET']);
    expect(await statusOf('DELETE', '/sse')).toEqual([405, 'GET']);
    expect(await statusOf('GET', endpoint)).toEqual([405, 'POST']);
    expect(await statusOf('DELETE', endpoint)).toEqual([405, 'POST']);
    expect(await statusOf('PUT', endpoint)).toEqual([405, 'POST']);
  });

  it('2024-11-05 alone: Streamable HTTP is not there, and the latest that is spoken is its own', async () => {
    const { root, url } = await serve({ revisions: ['2024-11-05'] });
    const refused = await post(url, initialize('2025-11-25'), {
      accept: 'application/json, text/event-stream',
    });
    expect(refused).toMatchObject({ status: 404, error: { code: -32000 } });
    const line = await begin(root, '2025-11-25');
    expect(line.reader.messages[0]?.result?.protocolVersion).toBe('2024-11-05');
    expect(await (await connected(root)).tool('in-turn')).toBe('its name, its city, its street');
  });

  it('2024-11-05 left out: there is no such stream', async () => {
    const { root } = await serve({ revisions: ['2026-07-28', '2025-11-25'] });
    const refused = await fetch(`${root}/sse`, { headers: { accept: 'text/event-stream' } });
    expect(refused.status).toBe(400);
    expect(await refused.text()).not.toContain('endpoint');
  });

  it('a foreign Origin is refused', async () => {
    const { root } = await serve();
    expect((await fetch(`${root}/sse`, { headers: { origin: 'https://evil.example' } })).status).toBe(403);
  });
});

/** Name, mount function, paths of stream and messages, and the option. */
type Mount = readonly [
  string,
  (app: express.Express, listener: express.RequestHandler) => void,
  string,
  string,
  NonNullable<AwaitOptions['paths']>,
];

describe('mounted', () => {
  const mounts: readonly Mount[] = [
    ['at the root', (app, listener) => app.use(listener), '/sse', '/messages', {}],
    ['under a base', (app, listener) => app.use('/api', listener), '/api/sse', '/api/messages', {}],
    [
      'by two routes',
      (app, listener) => app.all('/sse', listener).all('/messages', listener),
      '/sse',
      '/messages',
      {},
    ],
    [
      'at its two paths',
      (app, listener) => app.use('/sse', listener).use('/messages', listener),
      '/sse',
      '/messages',
      {},
    ],
    [
      'under paths of its own',
      (app, listener) => app.use(listener),
      '/a/stream',
      '/b/in',
      { sse: '/a/stream', messages: '/b/in' },
    ],
    [
      'under a base that its paths name',
      (app, listener) => app.use('/api', listener),
      '/api/s',
      '/api/m',
      { sse: '/api/s', messages: '/api/m' },
    ],
  ];
  it.each(mounts)('in Express %s', async (_name, mount, sse, messages, paths) => {
    const handler = createAwaitHandler(() => buildServer(() => {}), {
      secrets: [SECRET],
      logger: new LogBook(),
      paths,
    });
    const app = express();
    app.use(express.json());
    mount(app, toNodeHandler(handler));
    const server = createServer(app);
    const root = await listen(server);
    ends.push(() => shut(server), handler.close);
    expect((await open(root, {}, sse)).endpoint).toMatch(new RegExp(`^${messages}\\?sessionId=`));
    expect(await (await connected(root, sse)).tool('one')).toBe('Hello its name');
  });

  it('behind handler.fetch', async () => {
    const handler = createAwaitHandler(() => buildServer(() => {}), {
      secrets: [SECRET],
      logger: new LogBook(),
    });
    ends.push(handler.close);
    const client = await oldest(
      'http://localhost/sse',
      {},
      {
        fetch: (url, init) => handler.fetch(new Request(url, init as RequestInit)),
      },
    );
    ends.push(() => client.close());
    expect(await client.tool('in-turn')).toBe('its name, its city, its street');
  });
});

describe('handler.close', () => {
  it('serves on while calls come to their end, ends the stream, and then refuses', async () => {
    const { root, handler } = await serve();
    const line = await begin(root);
    await line.post(call('one'));
    const ask = await line.reader.next(isAsk);
    const closed = handler.close();
    expect((await line.post({ jsonrpc: '2.0', id: 8, method: 'tools/list' })).status).toBe(202);
    await line.reader.next(has(8));
    expect((await line.post(answer(ask))).status).toBe(202);
    expect(textIn(await line.reader.next(has(7)))).toBe('Hello its name');
    await closed;
    await expect.poll(() => line.reader.over).toBe(true);
    expect((await line.post(call('one', 9))).status).toBe(503);
    expect((await fetch(`${root}/sse`)).status).toBe(503);
  });
});

describe('a session', () => {
  it('without a connection is closed once its calls have expired, with its running calls', async () => {
    const { root, handler } = await serve({ ttl: 300, limits: { sessionIdle: 200, frames: 10 } });
    const line = await begin(root);
    await line.post(call('one'));
    const ask = await line.reader.next(isAsk);
    await new Promise((resolve) => setTimeout(resolve, 600));
    // For as long as there is a connection it is not.
    expect(line.reader.over).toBe(false);
    await line.close();
    await new Promise((resolve) => setTimeout(resolve, 800));
    await line.post(answer(ask));
    // Its stream was in this process's memory.
    expect((await fetch(`${root}/sse`, { headers: { 'last-event-id': line.reader.last } })).status).toBe(400);
    expect(handler.parked).toBe(0);
  });
});
