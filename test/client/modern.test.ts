/**
 * 2026-07-28 against a server written by hand: the members of each request, the methods that the client answers itself,
 * tasks.
 */
import { ErrorCode, ResourceUpdatedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { describe, expect, it } from 'vitest';
import { type AwaitClientOptions, AwaitClientTransport } from '../../src/client/index.ts';
import { headerValue } from '../../src/client/modern/headers.ts';
import { connect as connectDraft, done, type Elicit, LOGIN, RESULT } from './round-trip-script.ts';
import {
  message,
  onCall,
  type Reply,
  type Route,
  routes,
  type Scripted,
  type Seen,
  serveVersion,
  sleep,
  until,
} from './script.ts';
import type { Message } from './vectors.ts';

const REVISION = '2026-07-28';
const META = 'io.modelcontextprotocol';
const TASK = { taskId: 'tâche-1', ttlMs: 60_000, pollIntervalMs: 20, createdAt: '2026-07-28T00:00:00Z' };

/** Answers a method with a result. */
function on(method: string, result: (seen: Seen) => unknown): Route {
  return (seen, reply) => {
    if (seen.body.method !== method) return false;
    reply.json({ jsonrpc: '2.0', id: seen.body.id, result: result(seen) });
    return true;
  };
}

const discovered = {
  resultType: 'complete',
  supportedVersions: [REVISION],
  capabilities: { tools: {} },
  instructions: 'Be kind.',
  _meta: { [`${META}/serverInfo`]: { name: 'scripted', version: '2.0.0' } },
};

function serve(...all: Route[]): Promise<Scripted> {
  return serveVersion(
    REVISION,
    routes(
      ...all,
      on('server/discover', () => discovered),
    ),
  );
}

const connect = (url: string, options: Partial<AwaitClientOptions> = {}, elicit?: Elicit) =>
  connectDraft(url, { revision: REVISION, ...options }, elicit);
const methods = (server: Scripted) => server.seen.map(({ verb, body }) => body.method ?? verb);
const sent = (server: Scripted, method: string) => server.seen.filter(({ body }) => body.method === method);

describe('a connection', () => {
  it('is made of server/discover, and tells Client what it wants to know', async () => {
    const server = await serve();
    const { client, transport } = await connect(server.url);
    expect(methods(server)).toEqual(['server/discover']);
    expect(client.getServerVersion()).toEqual({ name: 'scripted', version: '2.0.0' });
    expect(client.getServerCapabilities()).toEqual({ tools: {} });
    expect(client.getInstructions()).toBe('Be kind.');
    expect(transport.protocolVersion).toBe(REVISION);
    expect(transport.sessionId).toBeUndefined();
  });

  it('fails where the server does not speak it', async () => {
    const error = { code: -32022, message: 'Unsupported protocol version' };
    const old = await serveVersion(REVISION, ({ body }, reply) => {
      reply.json({ jsonrpc: '2.0', id: body.id, error }, 400);
      return true;
    });
    await expect(connect(old.url)).rejects.toMatchObject({ name: 'EndpointError', code: 400 });
    const later = await serveVersion(
      REVISION,
      on('server/discover', () => ({ ...discovered, supportedVersions: ['2027-01-01'] })),
    );
    await expect(connect(later.url)).rejects.toThrow(/does not support 2026-07-28. It supports: 2027-01-01/);
  });

  it('names the versions of a server that refuses this one, and repeats once where it is among them', async () => {
    const refusal = (supported: readonly string[]) => ({
      code: -32022,
      message: 'Unsupported protocol version',
      data: { supported, requested: REVISION },
    });
    const refusing = (supported: readonly string[], times: number): Route => {
      let left = times;
      return ({ body }, reply) => {
        if (left === 0) return false;
        left -= 1;
        reply.json({ jsonrpc: '2.0', id: body.id, error: refusal(supported) }, 400);
        return true;
      };
    };
    const other = await serve(refusing(['2027-01-01', '2025-11-25'], 9));
    await expect(connect(other.url)).rejects.toThrow(
      /does not support 2026-07-28. It supports: 2027-01-01, 2025-11-25/,
    );
    expect(methods(other)).toEqual(['server/discover']);
    const once = await serve(refusing([REVISION], 1));
    await connect(once.url);
    expect(methods(once)).toEqual(['server/discover', 'server/discover']);
    const always = await serve(refusing([REVISION], 9));
    await expect(connect(always.url)).rejects.toMatchObject({ name: 'EndpointError', code: 400 });
    expect(methods(always)).toHaveLength(2);
  });

  it('refuses options that make no sense', () => {
    const make = (options: Partial<AwaitClientOptions>) => () =>
      new AwaitClientTransport('http://127.0.0.1/mcp', { revision: REVISION, ...options });
    for (const options of [
      { maxRounds: 0 },
      { maxRounds: 1.5 },
      { tasks: true as unknown as false },
      { sessionId: 'session-1' },
    ]) {
      expect(make(options)).toThrow(expect.objectContaining({ code: 'bad-option' }));
    }
  });
});

describe('each request', () => {
  it('says who asks, and its headers what its body says', async () => {
    const server = await serve(
      onCall(({ body }, reply) => reply.json(done(body.id))),
      on('prompts/get', () => ({ messages: [] })),
      on('resources/read', () => ({ contents: [] })),
      on('tools/list', () => ({ tools: [], ttlMs: 0, cacheScope: 'private' })),
    );
    const { client } = await connect(server.url);
    await client.callTool({ name: 'Grüße ', arguments: {} }, undefined, { onprogress: () => {} });
    await client.getPrompt({ name: 'greet' });
    await client.readResource({ uri: 'diary://today' });
    await client.listTools();
    for (const { body, headers } of server.seen) {
      const { progressToken, ...envelope }: Message = body.params?._meta ?? {};
      expect(progressToken).toBe(body.method === 'tools/call' ? body.id : undefined);
      expect(envelope).toEqual({
        [`${META}/protocolVersion`]: REVISION,
        [`${META}/clientInfo`]: { name: 'test', version: '1.0.0' },
        [`${META}/clientCapabilities`]: {
          elicitation: { form: {}, url: {} },
          sampling: {},
          extensions: { [`${META}/tasks`]: {} },
        },
      });
      expect(headers['mcp-protocol-version']).toBe(REVISION);
      expect(headers['mcp-method']).toBe(body.method);
      expect(headers['mcp-session-id']).toBeUndefined();
    }
    expect(server.seen.map(({ headers }) => headers['mcp-name'])).toEqual([
      undefined,
      `=?base64?${Buffer.from('Grüße ').toString('base64')}?=`,
      'greet',
      'diary://today',
      undefined,
    ]);
  });

  it.each([
    ['plain', 'plain'],
    ['with space\tand tab', 'with space\tand tab'],
    [' leading', '=?base64?IGxlYWRpbmc=?='],
    ['', '=?base64??='],
    ['日本', '=?base64?5pel5pys?='],
    ['=?base64?eA==?=', '=?base64?PT9iYXNlNjQ/ZUE9PT89?='],
    ['line\nfeed', '=?base64?bGluZQpmZWVk?='],
  ])('has %j in a header as %j', (value, header) => {
    expect(headerValue(value)).toBe(header);
  });

  it('leaves tools out of the list whose x-mcp-header is invalid, and says why', async () => {
    const marked = { type: 'string', 'x-mcp-header': 'Region' };
    const schemas: Record<string, object> = {
      valid: { type: 'object', properties: { at: { type: 'object', properties: { region: marked } } } },
      'as data': { type: 'object', properties: { 'x-mcp-header': { const: { 'x-mcp-header': 1 } } } },
      empty: { type: 'object', properties: { a: { type: 'string', 'x-mcp-header': '' } } },
      'no token': { type: 'object', properties: { a: { type: 'string', 'x-mcp-header': 'My Region' } } },
      'a line': { type: 'object', properties: { a: { type: 'string', 'x-mcp-header': 'a\r\nb: c' } } },
      twice: { type: 'object', properties: { a: marked, b: { type: 'string', 'x-mcp-header': 'REGION' } } },
      'an object': { type: 'object', properties: { a: { type: 'object', 'x-mcp-header': 'A' } } },
      'a number': { type: 'object', properties: { a: { type: 'number', 'x-mcp-header': 'A' } } },
      'no type': { type: 'object', properties: { a: { 'x-mcp-header': 'A' } } },
      'in items': { type: 'object', properties: { a: { type: 'array', items: marked } } },
      'in a choice': { type: 'object', anyOf: [{ properties: { a: marked } }] },
      'at the root': { type: 'object', 'x-mcp-header': 'A' },
    };
    const tools = Object.entries(schemas).map(([name, inputSchema]) => ({ name, inputSchema }));
    const server = await serve(on('tools/list', () => ({ tools, ttlMs: 0, cacheScope: 'private' })));
    const { client } = await connect(server.url);
    const errors: string[] = [];
    client.onerror = ({ message: text }) => errors.push(text);
    const listed = await client.listTools();
    expect(listed.tools.map(({ name }) => name)).toEqual(['valid', 'as data']);
    expect(errors).toHaveLength(tools.length - 2);
    expect(errors[0]).toBe(
      'The tool empty is left out of the list: each x-mcp-header must name another header, on a string, integer or boolean argument.',
    );
  });

  it('mirrors the arguments that a tool wants in headers, once the tool is known', async () => {
    const marked = (type: string, name: string) => ({ type, 'x-mcp-header': name });
    const properties = {
      region: marked('string', 'Region'),
      count: marked('integer', 'Count'),
      deep: { type: 'object', properties: { dry: marked('boolean', 'Dry-Run') } },
      absent: marked('string', 'Absent'),
      odd: marked('string', 'no token'),
      list: { type: 'array', items: marked('string', 'Item') },
    };
    const server = await serve(
      onCall(({ body }, reply) => reply.json(done(body.id))),
      on('tools/list', () => ({ tools: [{ name: 'ask', inputSchema: { type: 'object', properties } }] })),
    );
    const { client } = await connect(server.url);
    const call = {
      name: 'ask',
      arguments: { region: 'Zürich', count: 3, deep: { dry: false }, absent: null, odd: 'x', list: ['y'] },
    };
    await client.callTool(call);
    await client.listTools();
    await client.callTool(call);
    const mirrored = sent(server, 'tools/call').map(({ headers }) =>
      Object.fromEntries(Object.entries(headers).filter(([name]) => name.startsWith('mcp-param-'))),
    );
    expect(mirrored).toEqual([
      {},
      {
        'mcp-param-region': headerValue('Zürich'),
        'mcp-param-count': '3',
        'mcp-param-dry-run': 'false',
      },
    ]);
  });

  it('names the log level that was set, and what the revision has not goes nowhere', async () => {
    const server = await serve(onCall(({ body }, reply) => reply.json(done(body.id))));
    const { client } = await connect(server.url);
    await client.ping();
    await client.setLoggingLevel('warning');
    await client.sendRootsListChanged().catch(() => {});
    await client.callTool({ name: 'ask', arguments: {} });
    expect(methods(server)).toEqual(['server/discover', 'tools/call']);
    const [, call] = server.seen;
    expect(call?.body.params?._meta).toMatchObject({ [`${META}/logLevel`]: 'warning' });
  });

  it('is retried with its client’s declaration, and without answers', async () => {
    const inputRequests = { login: LOGIN };
    const server = await serve(
      onCall(({ body }, reply) => {
        const result = { resultType: 'input_required', inputRequests, requestState: 'ß' };
        reply.json(
          body.params?.requestState === undefined ? { jsonrpc: '2.0', id: body.id, result } : done(body.id),
        );
      }),
    );
    const { client } = await connect(server.url);
    expect(await client.callTool({ name: 'ask', arguments: {} })).toEqual(RESULT);
    const [first, retry] = sent(server, 'tools/call');
    const login = { action: 'accept', content: { name: 'octocat' } };
    expect(retry?.body.params).toEqual({
      ...first?.body.params,
      requestState: 'ß',
      inputResponses: { login },
    });
    expect(retry?.headers['mcp-name']).toBe('ask');
  });

  it('is cancelled by a disconnect, and by nothing else', async () => {
    let isGone = false;
    let hasHead = true;
    const server = await serve(
      onCall((_, reply) => {
        reply.res.on('close', () => {
          isGone = true;
        });
        if (hasHead) reply.write(': wait\n\n');
      }),
    );
    const { client, errors } = await connect(server.url);
    for (const begins of ['with its reply', 'before it']) {
      isGone = false;
      hasHead = begins === 'with its reply';
      const controller = new AbortController();
      const called = client.callTool({ name: 'ask', arguments: {} }, undefined, controller);
      await until(() => sent(server, 'tools/call').length === (hasHead ? 1 : 2));
      controller.abort('enough');
      await expect(called).rejects.toThrow(/enough/);
      await until(() => isGone);
    }
    expect(errors).toEqual([]);
    expect(methods(server)).toEqual(['server/discover', 'tools/call', 'tools/call']);
  });

  it('fails as the body of its refusal says, else as its status does; a stream that breaks is told', async () => {
    const answers: ((reply: Reply, id: unknown) => void)[] = [
      (reply, id) =>
        reply.json({ jsonrpc: '2.0', id, error: { code: -32020, message: 'Header mismatch' } }, 400),
      (reply) => reply.res.writeHead(403).end('no'),
      (reply) => reply.write(message({ jsonrpc: '2.0', method: 'notifications/message', params: {} })).end(),
    ];
    const server = await serve(onCall(({ body }, reply) => answers.shift()?.(reply, body.id)));
    const { client } = await connect(server.url);
    const call = () => client.callTool({ name: 'ask', arguments: {} });
    await expect(call()).rejects.toMatchObject({ name: 'McpError', code: -32020 });
    await expect(call()).rejects.toMatchObject({ name: 'EndpointError', code: 403 });
    await expect(call()).rejects.toThrow(/ended without its result/);
    // The SDK's own number for a connection that closed.
    expect(ErrorCode.ConnectionClosed).toBe(-32000);
  });
});

/** A task that is in the given states, one for each time it is asked for. */
function task(...states: Record<string, unknown>[]): Route {
  let nth = 0;
  return routes(
    on('tools/call', () => ({ resultType: 'task', ...TASK, status: 'working' })),
    on('tasks/get', () => {
      const state = states[Math.min(nth, states.length - 1)];
      nth += 1;
      return { resultType: 'complete', ...TASK, ...state };
    }),
    on('tasks/update', () => ({ resultType: 'complete' })),
    on('tasks/cancel', () => ({ resultType: 'complete' })),
  );
}

describe('a task', () => {
  const asking = (...keys: string[]) => ({
    status: 'input_required',
    inputRequests: Object.fromEntries(keys.map((key) => [key, LOGIN])),
  });
  const completed = { status: 'completed', result: { ...RESULT, resultType: 'complete' } };

  it('is asked for at the server’s pace, by its name, until it is over', async () => {
    const server = await serve(task({ status: 'working' }, { status: 'working' }, completed));
    const { client } = await connect(server.url);
    expect(await client.callTool({ name: 'ask', arguments: {} })).toEqual(RESULT);
    const times = server.seen.slice(1).map(({ at }) => at);
    for (const [nth, at] of times.slice(1).entries()) expect(at - (times[nth] ?? 0)).toBeGreaterThan(15);
    for (const { body, headers } of sent(server, 'tasks/get')) {
      expect(body.params?.taskId).toBe(TASK.taskId);
      expect(headers['mcp-name']).toBe(headerValue(TASK.taskId));
      expect(headers['mcp-method']).toBe('tasks/get');
    }
  });

  it('asks once for each key, while the server still names it', async () => {
    const server = await serve(
      task(asking('a'), asking('a'), asking('a', 'b'), asking('a', 'b'), asking('b'), completed),
    );
    const { client, asked } = await connect(server.url);
    expect(await client.callTool({ name: 'ask', arguments: {} })).toEqual(RESULT);
    expect(asked).toHaveLength(2);
    const updates = sent(server, 'tasks/update');
    expect(updates.map(({ body }) => Object.keys(body.params?.inputResponses as object))).toEqual([
      ['a'],
      ['b'],
    ]);
    expect(updates[0]?.headers['mcp-name']).toBe(headerValue(TASK.taskId));
    expect(updates[0]?.body.params).toMatchObject({
      taskId: TASK.taskId,
      inputResponses: { a: { action: 'accept', content: { name: 'octocat' } } },
    });
  });

  it('asks what is new while its user still thinks about the rest, and takes back what is gone', async () => {
    const server = await serve(task(asking('a'), asking('a', 'b'), asking('b'), completed));
    let aborted = 0;
    const { client, asked } = await connect(
      server.url,
      {},
      (_, { signal }) =>
        new Promise(() => {
          signal.addEventListener('abort', () => {
            aborted += 1;
          });
        }),
    );
    expect(await client.callTool({ name: 'ask', arguments: {} })).toEqual(RESULT);
    expect(asked).toHaveLength(2);
    expect(aborted).toBe(2);
    expect(sent(server, 'tasks/update')).toEqual([]);
  });

  it.each([
    ['failed', { status: 'failed', error: { code: -32603, message: 'out of paper' } }, /out of paper/],
    ['cancelled by the server', { status: 'cancelled', statusMessage: 'too late' }, /cancelled: too late/],
    ['over without a word', { status: 'completed', result: 7 }, /tells neither result nor error/],
  ])('that is %s fails its call', async (_, state, why) => {
    const server = await serve(task({ status: 'working' }, state));
    const { client } = await connect(server.url);
    await expect(client.callTool({ name: 'ask', arguments: {} })).rejects.toThrow(why);
    await sleep(30);
    expect(sent(server, 'tasks/cancel')).toEqual([]);
  });

  it('is cancelled when its user will not answer', async () => {
    const server = await serve(task(asking('a')));
    const { client } = await connect(server.url, {}, () => {
      throw new Error('nobody is here');
    });
    await expect(client.callTool({ name: 'ask', arguments: {} })).rejects.toThrow(/nobody is here/);
    await until(() => sent(server, 'tasks/cancel').length === 1);
    expect(sent(server, 'tasks/update')).toEqual([]);
  });

  it('a decline is an answer, and cancels nothing', async () => {
    const server = await serve(task(asking('a'), asking('a'), completed));
    const { client } = await connect(server.url, {}, () => ({ action: 'decline' }));
    await client.callTool({ name: 'ask', arguments: {} });
    expect(sent(server, 'tasks/update')[0]?.body.params?.inputResponses).toEqual({
      a: { action: 'decline' },
    });
    expect(sent(server, 'tasks/cancel')).toEqual([]);
  });

  it('is no result to a client that takes none', async () => {
    const server = await serve(task(completed));
    const { client } = await connect(server.url, { tasks: false });
    await expect(client.callTool({ name: 'ask', arguments: {} })).rejects.toThrow(/unknown type "task"/);
    const [{ body } = {}] = sent(server, 'tools/call');
    const { [`${META}/clientCapabilities`]: said }: Message = body?.params?._meta ?? {};
    expect(said).not.toHaveProperty('extensions');
  });

  it('is not polled once the client is closed', async () => {
    const server = await serve(task({ status: 'working' }));
    const { client } = await connect(server.url);
    client.callTool({ name: 'ask', arguments: {} }).catch(() => {});
    await until(() => sent(server, 'tasks/get').length === 2);
    await client.close();
    const before = server.seen.length;
    await sleep(80);
    expect(server.seen.length).toBe(before);
    expect(sent(server, 'tasks/cancel')).toEqual([]);
  });
});

describe('subscriptions', () => {
  const listening = (capabilities: unknown): Route =>
    on('server/discover', () => ({ ...discovered, capabilities }));
  const acknowledged = (notifications: unknown) =>
    message({
      jsonrpc: '2.0',
      method: 'notifications/subscriptions/acknowledged',
      params: { notifications },
    });
  const onListen =
    (answer: (seen: Seen, reply: Reply) => void): Route =>
    (seen, reply) => {
      if (seen.body.method !== 'subscriptions/listen') return false;
      answer(seen, reply);
      return true;
    };

  it('none is opened where the server tells of no changes', async () => {
    const server = await serve();
    const { errors } = await connect(server.url);
    await sleep(30);
    expect(methods(server)).toEqual(['server/discover']);
    expect(errors).toEqual([]);
  });

  it('are one stream for all, which is opened again when it breaks', async () => {
    let open = 0;
    const server = await serve(
      listening({ tools: { listChanged: true }, resources: { subscribe: true } }),
      onListen(({ body }, reply) => {
        open += 1;
        reply.res.on('close', () => {
          open -= 1;
        });
        reply.write(acknowledged(body.params?.notifications));
        const { resourceSubscriptions: uris }: Message = body.params?.notifications ?? {};
        for (const uri of uris ?? []) {
          reply.write(
            message({ jsonrpc: '2.0', method: 'notifications/resources/updated', params: { uri } }),
          );
        }
        if (uris !== undefined && sent(server, 'subscriptions/listen').length === 2) reply.cut();
      }),
    );
    const { client } = await connect(server.url);
    const heard: string[] = [];
    client.setNotificationHandler(
      ResourceUpdatedNotificationSchema,
      ({ params }) => void heard.push(params.uri),
    );
    await until(() => open === 1);
    await client.subscribeResource({ uri: 'diary://today' });
    await until(() => heard.length === 2 && open === 1);
    expect(sent(server, 'subscriptions/listen').map(({ body }) => body.params?.notifications)).toEqual([
      { toolsListChanged: true },
      { toolsListChanged: true, resourceSubscriptions: ['diary://today'] },
      { toolsListChanged: true, resourceSubscriptions: ['diary://today'] },
    ]);
    await client.close();
    await until(() => open === 0);
  });

  it('are refused where the server honours none', async () => {
    const server = await serve(
      onListen(({ body }, reply) =>
        reply.write(acknowledged({}), message({ jsonrpc: '2.0', id: body.id, result: {} })).end(),
      ),
    );
    const { client } = await connect(server.url);
    await expect(client.subscribeResource({ uri: 'diary://today' })).rejects.toThrow(/refuses subscriptions/);
    await sleep(50);
    expect(sent(server, 'subscriptions/listen')).toHaveLength(1);
  });
});
