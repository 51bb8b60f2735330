/** workspace-sse over real sockets: its events, its headers, where a response goes, and its lifecycle. */
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { CallToolRequestSchema, ListToolsRequestSchema, McpError } from '@modelcontextprotocol/sdk/types.js';
import { afterEach, expect, it } from 'vitest';
import type { AwaitOptions, FactoryContext } from '../../src/index.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { SECRET, type Served, serveHere } from './harness.ts';
import { answer, call, get, initialize, post, textOf } from './workspace-wire.ts';

const open: Served[] = [];
afterEach(() => Promise.all(open.splice(0).map((served) => served.close())));

const asking = () => buildServer(() => {});
const CAN_BE_ASKED: AwaitOptions = {
  revisions: ['*', { name: 'workspace-sse', capabilities: { elicitation: {} } }],
};

async function serve(
  options: AwaitOptions = CAN_BE_ASKED,
  factory: Parameters<typeof serveHere>[0] = asking,
) {
  const served = await serveHere(factory, options);
  open.push(served);
  return { ...served, url: `${served.url}/acme` };
}

/** The server of the wire's own examples. */
function examples(): Server {
  const server = new Server({ name: 'github', version: '1.0.0' }, { capabilities: { tools: {} } });
  server.setRequestHandler(ListToolsRequestSchema, () => ({
    tools: [{ name: 'github/list_issues', description: 'List GitHub issues' }] as never,
  }));
  server.setRequestHandler(CallToolRequestSchema, ({ params }) => {
    if (params.name === 'github/list_issues') return { content: [{ type: 'text', text: 'Issue list: ...' }] };
    throw Object.assign(new McpError(-32603, ''), {
      message: 'GitHub API rate limit exceeded',
      data: { retry_after: 3600 },
    });
  });
  return server;
}

it.each([
  [
    'a list of tools',
    { id: '1', method: 'tools/list' },
    '{"jsonrpc":"2.0","id":"1","result":{"tools":[{"name":"github/list_issues","description":"List GitHub issues"}]}}',
  ],
  [
    'a call of a tool',
    call('2', 'github/list_issues', { repo: 'user/repo' }),
    '{"jsonrpc":"2.0","id":"2","result":{"content":[{"type":"text","text":"Issue list: ..."}]}}',
  ],
  [
    'an error with its data',
    call('3', 'github/other'),
    '{"jsonrpc":"2.0","id":"3","error":{"code":-32603,"message":"GitHub API rate limit exceeded","data":{"retry_after":3600}}}',
  ],
])('answers %s on its own body, byte for byte', async (_name, request, data) => {
  const { url } = await serve({}, examples);
  const body = await (await post(url, request)).end();
  expect([body.status, body.text]).toEqual([200, `event: response\ndata: ${data}\n\n`]);
});

it('has the three headers of its event streams, on a GET and on a POST', async () => {
  const { url } = await serve();
  for (const body of [await post(url, { id: '1', method: 'tools/list' }), await get(url)]) {
    expect(body.status).toBe(200);
    expect(body.headers.get('content-type')).toBe('text/event-stream');
    expect(body.headers.get('cache-control')).toBe('no-cache');
    expect(body.headers.get('connection')).toBe('keep-alive');
    if (!body.over) await body.cancel();
  }
});

it('opens a GET with streamOpened, and says when', async () => {
  const { url } = await serve();
  const stream = await get(url);
  await stream.lifecycle('streamOpened');
  expect(stream.text).toMatch(
    /^event: lifecycle\ndata: \{"jsonrpc":"2.0","method":"streamOpened","params":\{"timestamp":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"\}\}\n\n/,
  );
});

it('answers 202 where the caller has a GET open, and the response comes there, with an id', async () => {
  const { url } = await serve();
  const stream = await get(url);
  await stream.lifecycle('streamOpened');
  const posted = await (await post(url, { id: '1', method: 'ping' })).end();
  expect([posted.status, posted.text]).toEqual([202, '']);
  const response = await stream.response('1');
  expect(response.message).toEqual({ jsonrpc: '2.0', id: '1', result: {} });
  expect(stream.text).toContain(
    `event: response\ndata: {"jsonrpc":"2.0","id":"1","result":{}}\nid: ${response.id}\n\n`,
  );
});

it('asks on the own body, and continues', async () => {
  const { url } = await serve();
  const body = await post(url, call('1', 'in-turn'));
  for (const field of ['name', 'city', 'street']) {
    const ask = await body.ask(field);
    expect(ask.event).toBe('notification');
    expect(ask.message.method).toBe('elicitation/create');
    expect((await post(url, answer(ask, field))).status).toBe(202);
  }
  expect(textOf(await body.response('1'))).toBe('its name, its city, its street');
  await body.end();
});

it('asks on the GET stream', async () => {
  const { url } = await serve();
  const stream = await get(url);
  expect((await post(url, call(7, 'one'))).status).toBe(202);
  const ask = await stream.ask('name');
  expect(ask.event).toBe('notification');
  expect((await post(url, answer(ask, 'name'))).status).toBe(202);
  expect(textOf(await stream.response(7))).toBe('Hello its name');
});

it('says what a tool says on the way as notifications, in order, before the response', async () => {
  const { url } = await serve();
  const params = { name: 'notes', arguments: {}, _meta: { progressToken: 'mine' } };
  const body = await post(url, { id: 1, method: 'tools/call', params });
  for (const field of ['name', 'city']) await post(url, answer(await body.ask(field), field));
  await body.end();
  const said = body.events.map(({ event, message: { method, params } }) => [
    event,
    method ?? 'response',
    params?.data ?? params?.progress ?? params?.message ?? '',
  ]);
  const note = (nth: number) => [
    ['notification', 'notifications/message', `note ${nth}`],
    ['notification', 'notifications/progress', nth],
  ];
  const ask = (field: string) => [['notification', 'elicitation/create', `${field}?`]];
  expect(said).toEqual([
    ...note(1),
    ...ask('name'),
    ...note(2),
    ...ask('city'),
    ...note(3),
    ['response', 'response', ''],
  ]);
});

it('keeps a stream alive with pings that say when, on a GET and on the own body of a POST', async () => {
  const { url } = await serve({ ...CAN_BE_ASKED, limits: { keepAlive: 60, drain: 50 } });
  const body = await post(url, call('1', 'one'));
  const stream = await get(url);
  for (const reader of [body, stream]) {
    const ping = await reader.lifecycle('ping');
    expect(Date.parse(String(ping.message.params?.timestamp))).not.toBeNaN();
    expect(ping.id).toBeUndefined();
    await expect.poll(() => reader.text.match(/"ping"/g)?.length ?? 0).toBeGreaterThan(1);
    expect(reader.text).not.toContain('\n:');
  }
});

it('closes its streams with streamClosed and the reason when the handler is closed', async () => {
  const { url, handler } = await serve();
  const stream = await get(url);
  await stream.lifecycle('streamOpened');
  await handler.close();
  await stream.end();
  expect(stream.text).toMatch(
    /event: lifecycle\ndata: \{"jsonrpc":"2.0","method":"streamClosed","params":\{"reason":"shutdown"\}\}\n\n$/,
  );
});

it('serves on at a shutdown while calls end, and then refuses', async () => {
  const { url, handler } = await serve();
  const stream = await get(url);
  await post(url, call(1, 'one'));
  const ask = await stream.ask('name');
  const closed = handler.close();
  expect((await post(url, { id: 2, method: 'ping' })).status).toBe(202);
  expect((await post(url, answer(ask, 'name'))).status).toBe(202);
  await closed;
  await stream.end();
  expect(await stream.response(2)).toMatchObject({ message: { result: {} } });
  expect(textOf(await stream.response(1))).toBe('Hello its name');
  expect((await post(url, call(3, 'one'))).status).toBe(503);
  expect((await get(url)).status).toBe(503);
  expect(stream.events.at(-1)?.message.params).toEqual({ reason: 'shutdown' });
});

it('closes the older connection of a stream, and says why', async () => {
  const { url } = await serve();
  const first = await get(url);
  await first.lifecycle('streamOpened');
  const second = await get(url, { last: first.last });
  await first.end();
  expect(first.events.at(-1)?.message.params).toEqual({ reason: 'replaced' });
  expect(second.stream).toBe(first.stream);
  await post(url, { id: 'a', method: 'ping' });
  await second.response('a');
});

it('closes a stream that is over, and says why', async () => {
  // Without a store: with one, an id that was never opened is unknown at once.
  const { url } = await serve({ state: 'sealed', secrets: [SECRET] });
  const stream = await get(url);
  await stream.lifecycle('streamOpened');
  // Its id says when a stream is over; one that was over a moment ago is unknown.
  const old = stream.last.replace(/^[0-9a-z]+/, (Date.now() - 1_000).toString(36));
  expect((await get(url, { last: old })).status).toBe(400);
  const soon = stream.last.replace(/^[0-9a-z]+/, (Date.now() + 700).toString(36));
  const short = await (await get(url, { last: soon })).end();
  expect(short.events.at(-1)?.message.params).toEqual({ reason: 'expired' });
});

it('resumes a GET that broke, by Last-Event-ID, and sends nothing twice', async () => {
  const { url } = await serve();
  const first = await get(url);
  await post(url, call(1, 'in-turn'));
  const ask = await first.ask('name');
  await first.cancel();
  await post(url, answer(ask, 'name'));
  const again = await get(url, { last: first.last });
  const city = await again.ask('city');
  expect(again.text).not.toContain('name?');
  await post(url, answer(city, 'city'));
  await post(url, answer(await again.ask('street'), 'street'));
  expect(textOf(await again.response(1))).toBe('its name, its city, its street');
});

it('resumes a GET that broke before its first event, by the id that it opened with', async () => {
  const { url } = await serve();
  const first = await get(url);
  await first.lifecycle('streamOpened');
  await post(url, call(1, 'one'));
  await first.cancel();
  expect(first.last).toBe(`${first.stream}_0`);
  const again = await get(url, { last: first.last });
  await post(url, answer(await again.ask('name'), 'name'));
  expect(textOf(await again.response(1))).toBe('Hello its name');
});

it('resumes the own body of a POST that broke after an ask', async () => {
  const { url } = await serve();
  const body = await post(url, call('x', 'one'));
  const ask = await body.ask('name');
  await body.cancel();
  const again = await get(url, { last: body.last });
  expect(again.stream).toBe('');
  await post(url, answer(ask, 'name'));
  expect(textOf(await again.response('x'))).toBe('Hello its name');
  await again.end();
});

it('cancels a call whose client disconnects without an id to resume by', async () => {
  const { url, handler } = await serve({}, () => {
    const server = new Server({ name: 'slow', version: '1' }, { capabilities: { tools: {} } });
    server.setRequestHandler(CallToolRequestSchema, (_request, { signal }) => {
      started();
      return new Promise(() => signal.addEventListener('abort', () => aborted()));
    });
    return server;
  });
  void handler;
  let started = (): void => {};
  let aborted = (): void => {};
  const isStarted = new Promise<void>((resolve) => {
    started = resolve;
  });
  const isAborted = new Promise<void>((resolve) => {
    aborted = resolve;
  });
  const body = await post(url, call(1, 'any'));
  await isStarted;
  await body.cancel();
  await isAborted;
});

it('closes a stream without a connection: its calls are cancelled, its streams deleted', async () => {
  const { url, handler } = await serve({ ...CAN_BE_ASKED, limits: { sessionIdle: 150, drain: 600_000 } });
  const [body, stream] = [await post(url, call(1, 'one')), await get(url)];
  await post(url, call(2, 'one'));
  for (const reader of [body, stream]) await reader.ask('name');
  // As long as its client is there it stays.
  await new Promise((resolve) => setTimeout(resolve, 400));
  for (const reader of [body, stream]) {
    await reader.cancel();
    const isGone = async () => {
      const again = await get(url, { last: reader.last });
      if (again.status === 200) await again.cancel();
      return again.status;
    };
    await expect.poll(isGone, { interval: 500 }).toBe(400);
  }
  // Nothing is left to be waited for.
  await handler.close();
});

it('cancels by notifications/cancelled, on the stream that the request was sent on, and answers it no more', async () => {
  const { url } = await serve();
  const stream = await get(url);
  await post(url, call(1, 'one'));
  const ask = await stream.ask('name');
  const cancelled = { method: 'notifications/cancelled', params: { requestId: 1 } };
  expect((await post(url, cancelled)).status).toBe(202);
  await post(url, answer(ask, 'name'));
  await post(url, { id: 2, method: 'ping' });
  await stream.response(2);
  expect(stream.responses().map(({ id }) => id)).toEqual([2]);
});

it('answers in JSON where no event stream is accepted and no GET is open', async () => {
  const { url } = await serve();
  for (const accept of ['application/json', '*/*']) {
    const body = await (await post(url, { id: '1', method: 'ping' }, { accept })).end();
    expect(body.headers.get('content-type')).toBe('application/json');
    expect([body.status, body.text]).toEqual([200, '{"jsonrpc":"2.0","id":"1","result":{}}']);
  }
  expect((await post(url, { id: '1', method: 'ping' }, { accept: 'text/html' })).status).toBe(406);
  expect((await get(url, { accept: 'application/json' })).status).toBe(406);
});

const UNABLE = /Client does not support .*elicitation/;

it('fails an ask of a client that takes JSON alone with the SDK’s own error', async () => {
  const { url } = await serve();
  const body = await (await post(url, call(1, 'one'), { accept: 'application/json' })).end();
  expect(body.json.result?.content?.[0]?.text).toMatch(UNABLE);
});

it('takes the capabilities of a client that sent no initialize from an option: none by default', async () => {
  const { url } = await serve({});
  const body = await (await post(url, call(1, 'one'))).end();
  expect(textOf(await body.response(1))).toMatch(UNABLE);
});

it('takes initialize, and what it says holds on the stream that it was sent on', async () => {
  const seen: FactoryContext[] = [];
  const { url } = await serve({}, (context) => {
    seen.push(context);
    return asking();
  });
  const alone = await (await post(url, initialize('i', { elicitation: {} }))).end();
  expect((await alone.response('i')).message.result).toMatchObject({
    protocolVersion: '2025-11-25',
    serverInfo: { name: 'asking' },
  });
  expect((await post(url, { method: 'notifications/initialized' })).status).toBe(202);
  const unheld = await (await post(url, call(1, 'one'))).end();
  expect(textOf(await unheld.response(1))).toMatch(UNABLE);

  const stream = await get(url);
  expect((await post(url, initialize('i', { elicitation: {} }))).status).toBe(202);
  await stream.response('i');
  await post(url, call(1, 'one'));
  await post(url, answer(await stream.ask('name'), 'name'));
  expect(textOf(await stream.response(1))).toBe('Hello its name');
  expect(seen.at(-1)).toMatchObject({
    era: 'legacy',
    revision: 'workspace-sse',
    workspace: 'acme',
    clientCapabilities: { elicitation: {} },
    clientInfo: { name: 'by hand' },
  });
});

it('tells the server which workspace, as it is written in the path', async () => {
  const seen: (string | undefined)[] = [];
  const { url } = await serve({}, ({ workspace }) => {
    seen.push(workspace);
    return asking();
  });
  await (await post(url.replace('acme', 'a%20b%C3%BC'), { id: 1, method: 'ping' })).end();
  expect(seen).toEqual(['a bü']);
});

it('is not there where the revision is not served', async () => {
  const { url } = await serve({ revisions: ['2025-11-25'] });
  expect((await get(url)).status).toBe(400);
});
