/** `proxy` before servers of 2026-07-28 alone, over HTTP and as a child, for clients of every revision. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import process from 'node:process';
import {
  Client as ModernClient,
  StreamableHTTPClientTransport as ModernTransport,
} from '@modelcontextprotocol/client';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import {
  ElicitRequestSchema,
  LoggingMessageNotificationSchema,
  ResourceUpdatedNotificationSchema,
  ToolListChangedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { createMcpHandler } from '@modelcontextprotocol/server';
import { afterEach, describe, expect, it } from 'vitest';
import { openStore } from '../../src/checkpoint/open-store.ts';
import { AwaitClientTransport } from '../../src/client/index.ts';
import { createAwaitHandler, remoteHost, stdioHost } from '../../src/index.ts';
import { modernServer } from '../fixtures/modern-server.ts';
import { SHORT, some } from '../short.ts';
import { answer, asks, begin } from './anywhere.ts';
import { accept, legacy, modern, oldest, post, textOf } from './clients.ts';
import { listen, SECRET, serveHere, shut } from './harness.ts';
import { effectsFile, fixture, startProxy } from './proxied.ts';
import { REDIS, redisDatabase, SQLITE } from './services.ts';

const closing: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0)) await close();
});

interface UpstreamServer {
  readonly url: string;
  readonly methods: string[];
  /** Subscriptions that are open. */
  readonly listening?: () => number;
  readonly notify: ReturnType<typeof createMcpHandler>['notify'];
}

function nodeListener(
  handler: Pick<ReturnType<typeof createMcpHandler>, 'fetch'>,
  seen: (method: string) => void = () => {},
) {
  return async (req: IncomingMessage, res: ServerResponse): Promise<void> => {
    const chunks: Buffer[] = [];
    for await (const chunk of req) chunks.push(chunk as Buffer);
    const body = Buffer.concat(chunks).toString();
    if (body !== '') seen(String((JSON.parse(body) as { method?: string }).method));
    const gone = new AbortController();
    res.on('close', () => gone.abort());
    const response = await handler.fetch(
      new Request(`http://${req.headers.host}${req.url}`, {
        method: req.method ?? 'GET',
        headers: req.headers as Record<string, string>,
        signal: gone.signal,
        ...(body !== '' && { body }),
      }),
    );
    res.writeHead(response.status, Object.fromEntries(response.headers));
    res.flushHeaders();
    try {
      for await (const chunk of response.body ?? []) res.write(chunk);
    } catch {
      // The client went away.
    }
    res.end();
  };
}

/** The SDK's own endpoint; `both`: it serves the revisions of 2025 too, statelessly, as by default. */
async function upstream(
  legacySide: 'reject' | 'stateless' = 'reject',
  act: (effect: string) => void = () => {},
  refused: (method: unknown) => number | undefined = () => undefined,
): Promise<UpstreamServer> {
  const handler = createMcpHandler(() => modernServer(act), { legacy: legacySide });
  const methods: string[] = [];
  let open = 0;
  const listener = nodeListener(handler, (method) => void methods.push(method));
  const server = createServer((req, res) => {
    if (req.headers['mcp-method'] === 'subscriptions/listen') {
      open += 1;
      res.on('close', () => {
        open -= 1;
      });
    }
    const status = refused(req.headers['mcp-method']);
    if (status !== undefined) res.writeHead(status).end();
    else void listener(req, res);
  });
  const url = `${await listen(server)}/mcp`;
  closing.push(async () => {
    await handler.close();
    await shut(server);
  });
  return { url, methods, listening: () => open, notify: handler.notify };
}

/** A server that makes a task of each call of a client that takes them: this package's, of 2026-07-28 alone. */
async function taskServer(act: (effect: string) => void): Promise<UpstreamServer> {
  const methods: string[] = [];
  const handler = createAwaitHandler(() => modernServer(act), {
    store: await openStore(SQLITE.url()),
    secrets: [SECRET],
    revisions: ['2026-07-28'],
    tasks: () => 'now',
  });
  const server = createServer(nodeListener(handler, (method) => void methods.push(method)));
  const url = `${await listen(server)}/mcp`;
  closing.push(async () => {
    await handler.close();
    await shut(server);
  });
  return { url, methods, notify: handler.notify as never };
}

const CHILD = { command: process.execPath, args: ['--import', 'tsx', fixture('modern-server.ts')] };

describe.each(
  some([
    ['over HTTP', async () => remoteHost({ url: (await upstream()).url })],
    ['as a child', async () => stdioHost(CHILD)],
    ['over HTTP, of both eras', async () => remoteHost({ url: (await upstream('stateless')).url })],
  ] as const),
)('a server of 2026-07-28 %s', (_wire, start) => {
  it.each([
    ['2026-07-28', modern],
    ['2025-11-25', legacy],
    ['2024-11-05', (url: string) => oldest(url.replace('/mcp', '/sse'))],
  ] as const)('asks clients of %s', async (_revision, connect) => {
    const served = await serveHere(await start(), { limits: { drain: 300 } });
    closing.unshift(() => served.close());
    const client = await connect(served.url);
    expect(await client.toolNames()).toContain('wizard');
    expect(await client.tool('one')).toBe('Hello its name');
    expect(await client.tool('wizard')).toBe('its name of its city');
    expect(await client.tool('together')).toBe('its name of its city');
    expect(await client.prompt('greet')).toBe('Greet its name');
    expect(await client.resource('diary://today')).toBe('Dear its name');
    expect(await client.tool('noted')).toBe('its name');
    expect(client.asked).toEqual(['name?', 'name?', 'city?', 'name?', 'city?', 'name?', 'name?', 'name?']);
    expect(client.progressed.length).toBeGreaterThan(0);
    await client.close();
  });
});

describe('a remote server of 2026-07-28', () => {
  const serve = async (options: Parameters<typeof serveHere>[1] = {}, effects: string[] = []) => {
    const remote = await upstream('reject', (effect) => void effects.push(effect));
    const served = await serveHere(remoteHost({ url: remote.url }), {
      limits: { drain: 300 },
      ...options,
    });
    closing.unshift(() => served.close());
    return { ...served, remote, effects };
  };

  it.each(['DRAFT-SEP-1858', 'DRAFT-MRTR-2026-02', 'DRAFT-SEP-2322', '2026-07-28'] as const)(
    'asks this package’s client of %s',
    async (revision) => {
      const { url } = await serve({ revisions: [revision] });
      const client = await legacy(url, {}, new AwaitClientTransport(url, { revision }) as Transport);
      expect(await client.tool('wizard')).toBe('its name of its city');
      expect(await client.tool('together')).toBe('its name of its city');
      expect(client.asked).toHaveLength(4);
      await client.close();
    },
  );

  it('is asked by tasks', async () => {
    const store = await openStore(SQLITE.url());
    const { url } = await serve({ tasks: () => 'now', store, secrets: [SECRET] });
    const transport = new AwaitClientTransport(url, { revision: '2026-07-28', tasks: { ttl: 60_000 } });
    const client = await legacy(url, {}, transport as Transport);
    expect(await client.tool('wizard')).toBe('its name of its city');
    expect(client.asked).toEqual(['name?', 'city?']);
    await client.close();
  });

  it.each([
    ['2026-07-28', modern],
    ['2025-11-25', legacy],
  ] as const)('has its tasks followed for clients of %s', async (_revision, connect) => {
    const effects: string[] = [];
    const { url: remote, methods } = await taskServer((effect) => void effects.push(effect));
    const { url, close } = await serveHere(remoteHost({ url: remote }), { limits: { drain: 300 } });
    closing.unshift(() => close());
    const client = await connect(url);
    expect(await client.tool('wizard')).toBe('its name of its city');
    expect(await client.tool('order')).toBe('shipped to its name, charged');
    expect(client.asked).toEqual(['name?', 'city?', 'name?']);
    expect(effects).toEqual(['charge', 'ship']);
    expect(methods.filter((method) => method === 'tools/call')).toHaveLength(2);
    expect(methods.filter((method) => method === 'tasks/update')).toHaveLength(3);
    await client.close();
  });

  it('gets each round once, at the same time as other calls', async () => {
    const { url, remote, effects } = await serve();
    const client = await legacy(url);
    expect(await client.tool('order')).toBe('shipped to its name, charged');
    expect(effects.splice(0)).toEqual(['charge', 'ship']);
    expect(remote.methods.filter((method) => method === 'tools/call')).toHaveLength(2);
    const slow = Promise.all([client.tool('slow', { ms: 1_000 }), client.tool('slow', { ms: 1_000 })]);
    await expect.poll(() => effects).toEqual(['slow begins', 'slow begins']);
    expect(await client.tool('one')).toBe('Hello its name');
    expect(await slow).toEqual(['slow', 'slow']);
    await client.close();
  });

  it('has its errors passed with their data, and its log lines as they were asked for', async () => {
    const { url } = await serve();
    const failed = await post(url, { method: 'prompts/get', tool: 'broken' });
    expect(failed.message.error).toMatchObject({ code: -32055, message: 'out of paper', data: { tray: 2 } });
    const noted = await post(url, { tool: 'noted', logLevel: 'info', progressToken: 'p' });
    expect(noted.notifications.map(({ method }) => method)).toEqual([
      'notifications/progress',
      'notifications/message',
    ]);
    expect((await post(url, { tool: 'noted', logLevel: 'error' })).notifications).toEqual([]);
    const client = new Client({ name: 'logs', version: '1' }, { capabilities: { elicitation: {} } });
    const logged: unknown[] = [];
    client.setNotificationHandler(
      LoggingMessageNotificationSchema,
      ({ params }) => void logged.push(params.data),
    );
    client.setRequestHandler(ElicitRequestSchema, () => ({ action: 'accept', content: { name: 'Ann' } }));
    await client.connect(new StreamableHTTPClientTransport(new URL(url)) as Transport);
    await client.callTool({ name: 'noted' });
    expect(logged).toEqual([]);
    await client.setLoggingLevel('info');
    await client.callTool({ name: 'noted' });
    expect(logged).toEqual(['half way', 'half way']);
    await expect(client.getPrompt({ name: 'broken' })).rejects.toMatchObject({
      code: -32055,
      data: { tray: 2 },
    });
    await client.close();
  });

  it('gets the headers that repeat arguments, also of a tool that changed since it was listed', async () => {
    const { url } = await serve();
    const client = await legacy(url);
    expect(await client.tool('mirrored', { region: 'eu' })).toBe('in eu');
    await client.close();
    const calls: unknown[] = [];
    let lists = 0;
    const changing = createServer(async (req, res) => {
      const chunks: Buffer[] = [];
      for await (const chunk of req) chunks.push(chunk as Buffer);
      const { id, method } = JSON.parse(Buffer.concat(chunks).toString()) as { id: number; method: string };
      const send = (status: number, outcome: object): void =>
        void res
          .writeHead(status, { 'content-type': 'application/json' })
          .end(JSON.stringify({ jsonrpc: '2.0', id, ...outcome }));
      if (method === 'server/discover')
        return send(200, { result: { supportedVersions: ['2026-07-28'], capabilities: { tools: {} } } });
      if (method === 'tools/list') {
        lists += 1;
        const mark = lists === 1 ? {} : { 'x-mcp-header': 'Region' };
        const region = { type: 'string', ...mark };
        const inputSchema = { type: 'object', properties: { region } };
        return send(200, { result: { tools: [{ name: 'mirrored', inputSchema }] } });
      }
      calls.push(req.headers['mcp-param-region']);
      if (req.headers['mcp-param-region'] === undefined)
        return send(400, { error: { code: -32020, message: 'Mcp-Param-Region is missing' } });
      send(200, { result: { resultType: 'complete', content: [{ type: 'text', text: 'in eu' }] } });
    });
    // Where calls may be tasks the list of tools is read first.
    const served = await serveHere(remoteHost({ url: `${await listen(changing)}/mcp`, replay: 'allow' }), {
      tasks: 'optional',
    });
    closing.unshift(
      () => served.close(),
      () => shut(changing),
    );
    const other = await legacy(served.url);
    expect(await other.tool('mirrored', { region: 'eu' })).toBe('in eu');
    expect(calls).toEqual([undefined, 'eu']);
    await other.close();
  });

  it.each(['remote', 'child', 'task'])('is told that a call was cancelled: a %s one', async (kind) => {
    const file = effectsFile();
    const told: string[] = [];
    const act = (effect: string): void => void told.push(effect);
    const remote = await (kind === 'task' ? taskServer(act) : upstream('reject', act));
    const host =
      kind === 'child'
        ? stdioHost({ ...CHILD, env: { EFFECTS: file.path } })
        : remoteHost({ url: remote.url });
    const served = await serveHere(host, { limits: { drain: 300 } });
    closing.unshift(() => served.close());
    const { url } = served;
    const effects = (): string[] => (kind === 'child' ? file.lines() : told);
    const client = new Client({ name: 'stops', version: '1' });
    await client.connect(new StreamableHTTPClientTransport(new URL(url)) as Transport);
    const stop = new AbortController();
    const call = client.callTool({ name: 'slow', arguments: { ms: 20_000 } }, undefined, {
      signal: stop.signal,
    });
    call.catch(() => {});
    await expect.poll(effects).toEqual(['slow begins']);
    if (kind === 'task') await expect.poll(() => remote.methods).toContain('tasks/get');
    stop.abort();
    await expect.poll(effects).toEqual(['slow begins', 'slow stopped']);
    await client.close();
  });

  it('has its task cancelled where the call is cancelled while that asks', async () => {
    const remote = await taskServer(() => {});
    const served = await serveHere(remoteHost({ url: remote.url }), { limits: { drain: 300 } });
    closing.unshift(() => served.close());
    const client = new Client({ name: 'stops', version: '1' }, { capabilities: { elicitation: {} } });
    let isAsked = false;
    client.setRequestHandler(ElicitRequestSchema, () => {
      isAsked = true;
      return new Promise(() => {});
    });
    await client.connect(new StreamableHTTPClientTransport(new URL(served.url)) as Transport);
    const stop = new AbortController();
    client.callTool({ name: 'one', arguments: {} }, undefined, { signal: stop.signal }).catch(() => {});
    await expect.poll(() => isAsked).toBe(true);
    expect(remote.methods).not.toContain('tasks/cancel');
    stop.abort();
    await expect.poll(() => remote.methods).toContain('tasks/cancel');
    await client.close();
  });

  it('has one subscription for all sessions of a known caller, which hear what each of them wants', async () => {
    const { url, remote } = await serve();
    const connect = async (caller: string) => {
      const client = new Client({ name: caller, version: '1' });
      const updated: string[] = [];
      let changed = 0;
      client.setNotificationHandler(
        ResourceUpdatedNotificationSchema,
        ({ params }) => void updated.push(params.uri),
      );
      client.setNotificationHandler(ToolListChangedNotificationSchema, () => {
        changed += 1;
      });
      const requestInit = { headers: { authorization: `Bearer ${caller}` } };
      const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit });
      await client.connect(transport as Transport);
      return { client, updated, changed: () => changed };
    };
    const sessions = [await connect('ann'), await connect('ann'), await connect('ann')];
    const [one, two, three] = sessions as [(typeof sessions)[0], (typeof sessions)[0], (typeof sessions)[0]];
    await one.client.subscribeResource({ uri: 'diary://today' });
    await two.client.subscribeResource({ uri: 'diary://today' });
    await two.client.subscribeResource({ uri: 'diary://other' });
    await expect.poll(() => remote.listening?.()).toBe(1);
    const bens = await connect('ben');
    await bens.client.subscribeResource({ uri: 'diary://ben' });
    await expect.poll(() => remote.listening?.()).toBe(2);
    await expect
      .poll(() => {
        remote.notify.toolsChanged();
        return Math.min(...[...sessions, bens].map(({ changed }) => changed()));
      })
      .toBeGreaterThan(0);
    for (const name of ['today', 'other', 'ben']) remote.notify.resourceUpdated(`diary://${name}`);
    await expect.poll(() => two.updated).toEqual(['diary://today', 'diary://other']);
    await expect.poll(() => bens.updated).toEqual(['diary://ben']);
    await expect.poll(() => one.updated).toEqual(['diary://today']);
    expect(three.updated).toEqual([]);
    // What it wants ends with a session, and nobody else's does.
    await (two.client.transport as StreamableHTTPClientTransport).terminateSession();
    await expect
      .poll(() => {
        remote.notify.resourceUpdated('diary://today');
        return one.updated.length;
      })
      .toBeGreaterThan(1);
    expect(remote.listening?.()).toBe(2);
    for (const { client } of [one, three, bens])
      await (client.transport as StreamableHTTPClientTransport).terminateSession();
    await expect.poll(() => remote.listening?.()).toBe(0);
    for (const { client } of [...sessions, bens]) await client.close();
  });

  it('is heard by sessions that subscribed, and by listeners of 2026-07-28', async () => {
    const { url, remote } = await serve();
    const client = new Client({ name: 'listens', version: '1' });
    const updated: string[] = [];
    let changed = 0;
    client.setNotificationHandler(
      ResourceUpdatedNotificationSchema,
      ({ params }) => void updated.push(params.uri),
    );
    client.setNotificationHandler(ToolListChangedNotificationSchema, () => {
      changed += 1;
    });
    await client.connect(new StreamableHTTPClientTransport(new URL(url)) as Transport);
    await client.subscribeResource({ uri: 'diary://today' });
    await expect
      .poll(() => {
        remote.notify.toolsChanged();
        return changed;
      })
      .toBeGreaterThan(0);
    remote.notify.resourceUpdated('diary://other');
    remote.notify.resourceUpdated('diary://today');
    await expect.poll(() => updated).toEqual(['diary://today']);
    await client.unsubscribeResource({ uri: 'diary://today' });
    remote.notify.resourceUpdated('diary://today');
    const before = changed;
    remote.notify.toolsChanged();
    await expect.poll(() => changed).toBeGreaterThan(before);
    expect(updated).toEqual(['diary://today']);
    await client.close();
    const heard: string[] = [];
    const newer = new ModernClient(
      { name: 'listens', version: '1' },
      { versionNegotiation: { mode: { pin: '2026-07-28' } } },
    );
    newer.setNotificationHandler(
      'notifications/resources/updated',
      ({ params }) => void heard.push(params.uri),
    );
    await newer.connect(new ModernTransport(new URL(url)));
    const listening = await newer.listen({ resourceSubscriptions: ['diary://now'] });
    await expect
      .poll(() => {
        remote.notify.resourceUpdated('diary://now');
        return heard.length;
      })
      .toBeGreaterThan(0);
    await listening.close();
    await newer.close();
  });
});

describe.skipIf(REDIS.down)('two proxies before a server of 2026-07-28', () => {
  const start = async (pause = 0, hasTasks = false) => {
    const effects: string[] = [];
    const act = (effect: string): void => void effects.push(effect);
    const remote = hasTasks ? await taskServer(act) : await upstream('reject', act);
    const options = ['--url', remote.url, '--store', redisDatabase(10), '--limit', 'lease=2500'];
    const proxies = await Promise.all([startProxy([], options), startProxy([], options)]);
    closing.unshift(async () => void (await Promise.all(proxies.map((proxy) => proxy.stop('SIGKILL')))));
    return { effects, remote, proxies, args: { pause } };
  };
  const calls = ({ methods }: UpstreamServer) => methods.filter((method) => method === 'tools/call').length;

  it.skipIf(SHORT)(
    'go on with one another’s calls, and run no round twice, also when the first is killed',
    async () => {
      const { effects, remote, proxies } = await start();
      const [one, two] = proxies;
      const asked = await post(one.url, { tool: 'order' });
      await one.stop('SIGKILL');
      const done = await post(two.url, {
        tool: 'order',
        state: asked.state,
        responses: accept(asked.keys, { name: 'Ann' }),
      });
      expect(textOf(done)).toBe('shipped to Ann, charged');
      expect(effects).toEqual(['charge', 'ship']);
      expect(calls(remote)).toBe(2);
    },
  );

  it('go on with a call that asks live, when the first is killed', async () => {
    const { effects, remote, proxies } = await start();
    const session = await begin(proxies, { elicitation: {} });
    const stream = await session.post(0, {
      id: 7,
      method: 'tools/call',
      params: { name: 'order', arguments: {} },
    });
    const ask = await stream.next(asks('name'));
    const { last } = stream;
    await proxies[0].stop('SIGKILL');
    await session.post(1, answer(ask, 'name'));
    const resumed = await session.get(1, last);
    const { result } = await resumed.next(({ id }) => id === 7);
    expect(result?.content?.[0]?.text).toBe('shipped to its name, charged');
    expect(effects).toEqual(['charge', 'ship']);
    expect(calls(remote)).toBe(2);
  });

  it.skipIf(SHORT).each([
    ['while it runs', 1_500],
    ['while it asks', 0],
  ])(
    'go on with the task that a server made of a call, when the first is killed %s',
    async (_when, pause) => {
      const { effects, remote, proxies, args } = await start(pause, true);
      const session = await begin(proxies, { elicitation: {} });
      const params = { name: 'order', arguments: args };
      const stream = await session.post(0, { id: 7, method: 'tools/call', params });
      await expect.poll(() => remote.methods).toContain('tasks/get');
      let ask = pause === 0 ? await stream.next(asks('name')) : undefined;
      const { last } = stream;
      await proxies[0].stop('SIGKILL');
      const resumed = await session.get(1, last);
      ask ??= await resumed.next(asks('name'));
      await session.post(1, answer(ask, 'name'));
      const { result } = await resumed.next(({ id }) => id === 7);
      expect(result?.content?.[0]?.text).toBe('shipped to its name, charged');
      expect(effects).toEqual(['charge', 'ship']);
      expect(calls(remote)).toBe(1);
    },
  );

  it('do not repeat a round that was in the server when its proxy was killed', async () => {
    const { effects, proxies, args } = await start(1_500);
    const [one, two] = proxies;
    const asked = await post(one.url, { tool: 'order', args });
    const retry = { tool: 'order', args, state: asked.state, responses: accept(asked.keys, { name: 'Ann' }) };
    const cut = post(one.url, retry).catch(() => undefined);
    await expect.poll(() => effects).toEqual(['charge', 'ship']);
    await one.stop('SIGKILL');
    await cut;
    const told = await post(two.url, retry);
    expect(told.message.error?.message).toMatch(/may not be run again/);
    expect(effects).toEqual(['charge', 'ship']);
  });
});

it.each([429, 500, 502, 503, 504])(
  'a server of both eras that once replied %i is not taken for one of 2025',
  async (status) => {
    let left = 1;
    const { url, methods } = await upstream(
      'stateless',
      () => {},
      (method) => (method === 'server/discover' && left-- > 0 ? status : undefined),
    );
    const served = await serveHere(remoteHost({ url }));
    closing.unshift(() => served.close());
    await legacy(served.url).then(
      (client) => client.close(),
      () => {},
    );
    const client = await legacy(served.url);
    expect(await client.tool('order')).toBe('shipped to its name, charged');
    await client.close();
    expect(methods).toContain('server/discover');
  },
);

it('speaks the revision that it is told to', async () => {
  const { url, methods } = await upstream('stateless');
  expect(await remoteHost({ url, upstream: '2025-11-25' }).check()).toMatchObject({
    protocolVersion: '2025-11-25',
  });
  expect(methods).not.toContain('server/discover');
  const strict = await upstream('reject');
  await expect(remoteHost({ url: strict.url, upstream: '2025-11-25' }).check()).rejects.toThrow(
    /cannot be served/,
  );
  expect(() => remoteHost({ url, upstream: '2024-11-05' as never })).toThrow(/option upstream/);
});

it('outlasts a restart of a remote server', async () => {
  const first = await upstream();
  const served = await serveHere(remoteHost({ url: first.url }));
  closing.unshift(() => served.close());
  const client = await legacy(served.url);
  expect(await client.tool('one')).toBe('Hello its name');
  const [, close] = [closing.shift(), closing.shift()];
  await close?.();
  const during = client.tool('one');
  const again = createMcpHandler(() => modernServer(() => {}), { legacy: 'reject' });
  const server = createServer(nodeListener(again));
  await new Promise<void>((resolve) =>
    setTimeout(() => server.listen(Number(new URL(first.url).port), '127.0.0.1', resolve), 600),
  );
  closing.push(() => shut(server));
  expect(await during).toBe('Hello its name');
  await client.close();
  await served.close();
});
