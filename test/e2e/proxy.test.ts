/** Servers of any language behind `stdioHost` and `mcp-await proxy`, unmodified. */
import process from 'node:process';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { ResourceUpdatedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { type PeerHostOptions, stdioHost } from '../../src/index.ts';
import { SHORT } from '../short.ts';
import { accept, CAPABILITIES, legacy, modern, oldest, post, textOf } from './clients.ts';
import { type Served, serveHere } from './harness.ts';
import { effectsFile, fixture, node, PYTHON, startProxy } from './proxied.ts';
import { Reader } from './reader.ts';

const open: Served[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((served) => served.close()));
});

/** A command behind a handler in this process. */
async function behind(
  [command = '', ...args]: readonly string[],
  options: PeerHostOptions & { readonly env?: Readonly<Record<string, string>> } = {},
): Promise<Served> {
  const served = await serveHere(stdioHost({ command, args, ...options }), { limits: { drain: 300 } });
  open.push(served);
  return served;
}

describe('a Python server of nothing but the standard library', () => {
  let served: Served;
  beforeAll(async () => {
    const [command = '', ...args] = PYTHON;
    served = await serveHere(stdioHost({ command, args }));
  });
  afterAll(() => served.close());

  it.each([
    ['2026-07-28', modern],
    ['2025-11-25', legacy],
    ['2024-11-05', (url: string) => oldest(url.replace('/mcp', '/sse'))],
  ] as const)('completes its asking tools, prompts and resources on %s', async (revision, connect) => {
    const client = await connect(served.url);
    try {
      expect(await client.tool('greet')).toBe('Hello its name');
      expect(await client.tool('order')).toBe('its name of its city');
      expect(await client.tool('poem')).toBe('a poem');
      expect(await client.tool('roots')).toBe('file:///home/ann');
      expect(await client.tool('progress')).toBe('done');
      expect(await client.prompt('greeting')).toBe('Greet its name');
      expect(await client.resource('diary://today')).toBe('Dear diary');
      expect(client.asked).toEqual(['name?', 'name?', 'city?', 'sampling', 'roots', 'name?']);
      // The SDK's client forgets progress that comes in one chunk with the result, which HTTP+SSE may make of it.
      if (revision !== '2024-11-05') expect(client.progressed).toEqual([1, 2]);
      expect(client.logged).toEqual(['step 1', 'step 2']);
    } finally {
      await client.close();
    }
  });

  it('names the key of an ask as its author gave it', async () => {
    const first = await post(served.url, { tool: 'order' });
    const second = await post(served.url, {
      tool: 'order',
      state: first.state,
      responses: accept(first.keys, { name: 'Ann' }),
    });
    expect(second.keys).toEqual(['town']);
    const done = await post(served.url, {
      tool: 'order',
      state: second.state,
      responses: accept(second.keys, { city: 'Rome' }),
    });
    expect(textOf(done)).toBe('Ann of Rome');
  });

  it('keeps its memory for one session alone', async () => {
    const [ann, bob] = await Promise.all([legacy(served.url), legacy(served.url)]);
    expect([await ann.tool('count'), await ann.tool('count'), await bob.tool('count')]).toEqual([
      '1',
      '2',
      '1',
    ]);
    await Promise.all([ann.close(), bob.close()]);
  });

  it('is one process for a caller of 2026-07-28, and another for a client with other capabilities', async () => {
    const pidOf = async (
      headers: Record<string, string>,
      capabilities?: Record<string, unknown>,
    ): Promise<string> =>
      textOf(await post(served.url, { tool: 'pid', headers, ...(capabilities && { capabilities }) }));
    const ann = { authorization: 'Bearer ann' };
    const pid = await pidOf(ann);
    expect(await pidOf(ann)).toBe(pid);
    expect(await pidOf({ authorization: 'Bearer bob' })).not.toBe(pid);
    expect(await pidOf(ann, {})).not.toBe(pid);
  });

  it('is one process for callers of this machine, and one a call for those that were forwarded', async () => {
    const pidOf = async (headers: Record<string, string>): Promise<string> =>
      textOf(await post(served.url, { tool: 'pid', headers }));
    const pid = await pidOf({});
    expect(await pidOf({})).toBe(pid);
    const far = { 'x-forwarded-for': '203.0.113.9' };
    const other = await pidOf(far);
    expect(other).not.toBe(pid);
    expect(await pidOf(far)).not.toBe(other);
  });
});

describe('one call that may ask runs at a time', () => {
  it('and an ask goes to the client of its own call', async () => {
    const served = await behind(PYTHON);
    const client = await legacy(served.url);
    const texts = await Promise.all([client.tool('greet'), client.tool('order'), client.tool('greet')]);
    expect(texts).toEqual(['Hello its name', 'its name of its city', 'Hello its name']);
    await client.close();
  });

  it('with lists beside it', async () => {
    const served = await behind(PYTHON);
    const first = await post(served.url, { tool: 'greet' });
    expect(first.keys).toHaveLength(1);
    const client = await modern(served.url);
    expect(await client.toolNames()).toContain('greet');
    await client.close();
  });

  it('and one that waits too long gets an error', async () => {
    const served = await behind(PYTHON, { queueWait: 300 });
    await post(served.url, { tool: 'greet' });
    const late = await post(served.url, { tool: 'pid' });
    expect(JSON.stringify(late)).toContain('runs one call that may ask at a time');
  });

  it('and one more than may wait gets an error at once', async () => {
    const served = await behind(PYTHON, { queue: 1 });
    await post(served.url, { tool: 'greet' });
    const waiting = post(served.url, { tool: 'pid' });
    await expect
      .poll(async () => JSON.stringify(await post(served.url, { tool: 'pid' })))
      .toContain('wait for python3 already');
    await served.close();
    open.splice(0);
    await waiting.catch(() => {});
  });

  it('unless more children are allowed', async () => {
    const served = await behind(PYTHON, { children: 2 });
    const first = await post(served.url, { tool: 'greet' });
    expect(textOf(await post(served.url, { tool: 'pid' }))).toMatch(/^\d+$/);
    const done = await post(served.url, {
      tool: 'greet',
      state: first.state,
      responses: accept(first.keys, { name: 'Ann' }),
    });
    expect(textOf(done)).toBe('Hello Ann');
  });
});

describe('when its child is gone', () => {
  /** A call that waits for its answer, and how to kill its child as a crash would. */
  const suspended = async (tool: string, options: PeerHostOptions = {}) => {
    const [effects, pids] = [effectsFile(), effectsFile()];
    const served = await behind(PYTHON, { ...options, env: { EFFECTS: effects.path, PIDS: pids.path } });
    const first = await post(served.url, { tool });
    const kill = async (): Promise<void> => {
      for (const pid of pids.lines()) process.kill(Number(pid), 'SIGKILL');
      await expect.poll(() => served.log.text).toContain('a server ended');
    };
    return { served, first, effects, kill };
  };

  it('a tool that only reads is run again, and led through its answers', async () => {
    const effects = effectsFile();
    const served = await behind(node('stdio-server.mjs'), {
      env: { EFFECTS: effects.path },
      askTimeout: 600,
    });
    const first = await post(served.url, { tool: 'reads' });
    await expect.poll(() => served.handler.counters.calls).toBe(1);
    await new Promise((resolve) => setTimeout(resolve, 800));
    const done = await post(served.url, {
      tool: 'reads',
      state: first.state,
      responses: accept(first.keys, { name: 'Ann' }),
    });
    expect(textOf(done)).toBe('Hello Ann');
    expect(effects.lines()).toEqual(['asked', 'asked']);
    expect(served.handler.counters.replayed).toBe(1);
  });

  it('any other ends with an error that names its asks, never their answers', async () => {
    const { served, first, kill } = await suspended('order');
    const second = await post(served.url, {
      tool: 'order',
      state: first.state,
      responses: accept(first.keys, { name: 'a secret' }),
    });
    await kill();
    const done = await post(served.url, {
      tool: 'order',
      state: second.state,
      responses: accept(second.keys, { city: 'another secret' }),
    });
    const text = JSON.stringify(done);
    expect(text).toContain('may not be run again from its start');
    expect(text).toContain('elicitation/create');
    expect(text).not.toContain('secret');
  });

  it('any call is run again with replay allowed', async () => {
    const { served, first, effects, kill } = await suspended('order', { replay: 'allow' });
    await kill();
    const second = await post(served.url, {
      tool: 'order',
      state: first.state,
      responses: accept(first.keys, { name: 'Ann' }),
    });
    const done = await post(served.url, {
      tool: 'order',
      state: second.state,
      responses: accept(second.keys, { city: 'Rome' }),
    });
    expect(textOf(done)).toBe('Ann of Rome');
    expect(effects.lines()).toEqual(['order', 'order', 'ship']);
  });

  it('a live client is asked nothing twice', async () => {
    const effects = effectsFile();
    const served = await behind(node('stdio-server.mjs', '4000'), {
      env: { EFFECTS: effects.path },
      askTimeout: 800,
    });
    const client = await legacy(served.url, {
      answer: async () => {
        await expect.poll(() => effects.lines().length).toBeGreaterThan(1);
        await new Promise((resolve) => setTimeout(resolve, 300));
        return { action: 'accept', content: { name: 'Ann' } };
      },
    });
    expect(await client.tool('reads')).toBe('Hello Ann');
    expect(client.asked).toEqual(['name?']);
    expect(effects.lines()).not.toContain('catch');
    await client.close();
  });

  it("a tool that may not run again is told its own SDK's time-out, and so is its client", async () => {
    const effects = effectsFile();
    const served = await behind(node('stdio-server.mjs', '500'), {
      env: { EFFECTS: effects.path },
      askTimeout: 500,
    });
    const client = await legacy(served.url, { answer: () => new Promise(() => {}) });
    expect(await client.tool('writes')).toContain('Request timed out');
    expect(effects.lines()).toEqual(['asked', 'catch']);
    await client.close();
  });

  it('a call that waited for it is sent to the next one', async () => {
    const served = await behind(PYTHON, { replay: 'safe' });
    const client = await legacy(served.url);
    const [died, pid] = await Promise.all([client.tool('die').catch(String), client.tool('pid')]);
    expect(died).toContain('may not be run again');
    expect(pid).toMatch(/^\d+$/);
    await client.close();
  });
});

it('asks for the roots that a server wants to know at start-up before its first call', async () => {
  const served = await behind(node('stdio-server.mjs', '60000', 'roots'));
  const client = await modern(served.url);
  expect(await client.tool('known-roots')).toBe('file:///home/ann');
  expect(client.asked).toEqual(['roots']);
  await client.close();
});

it('tells a listening client of 2026-07-28 that a resource changed', async () => {
  const served = await behind(PYTHON);
  const controller = new AbortController();
  const reader = new Reader(await listening(served.url, ['diary://today'], controller.signal));
  expect(textOf(await post(served.url, { tool: 'touch' }))).toBe('touched');
  const { params } = await reader.next(({ method }) => method === 'notifications/resources/updated');
  expect(params).toMatchObject({ uri: 'diary://today' });
  controller.abort();
});

/** A server of 2025 whose tool says how often it was sent `resources/subscribe`, which it answers one by one. */
const COUNTING = `
let count = 0;
const send = (message) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\\n');
require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const result = {
    initialize: {
      protocolVersion: '2025-11-25',
      capabilities: { resources: { subscribe: true }, tools: {} },
      serverInfo: { name: 'counting', version: '1' },
    },
    'tools/list': { tools: [{ name: 'count', inputSchema: { type: 'object' } }] },
    'tools/call': { content: [{ type: 'text', text: String(count) }] },
    'resources/subscribe': {},
  }[method];
  if (method === 'resources/subscribe') count += 1;
  const reply = result ? { id, result } : { id, error: { code: -32601, message: 'unknown' } };
  setTimeout(send, method === 'resources/subscribe' ? 5 : 0, reply);
});`;

it('subscribes its server to the resources of a stream for as long as that is open', async () => {
  const served = await behind([process.execPath, '-e', COUNTING]);
  const count = async () => Number(textOf(await post(served.url, { tool: 'count' })));
  const controller = new AbortController();
  const uris = Array.from({ length: 1_500 }, (_, nth) => `diary://${nth}`);
  const response = listening(served.url, uris, controller.signal);
  await expect.poll(count).toBeGreaterThan(2);
  controller.abort();
  await expect(response).rejects.toThrow();
  const more = async () => {
    const before = await count();
    return (await count()) - before;
  };
  await expect.poll(more).toBe(0);
  expect(await count()).toBeLessThan(uris.length);
});

it('refuses a stream of so many resources that its server would get thousands of requests', async () => {
  const served = await behind([process.execPath, '-e', COUNTING]);
  const uris = Array.from({ length: 1_900 }, (_, nth) => `diary://${nth}`.padEnd(100, 'x'));
  const response = await listening(served.url, uris, new AbortController().signal);
  expect([response.status, await response.json()]).toMatchObject([413, { id: 1, error: { code: -32602 } }]);
  expect(textOf(await post(served.url, { tool: 'count' }))).toBe('0');
});

it('passes subscriptions and updates on in a session', async () => {
  const served = await behind(PYTHON);
  const updated: string[] = [];
  const client = new Client({ name: 'x', version: '1' });
  client.setNotificationHandler(
    ResourceUpdatedNotificationSchema,
    ({ params }) => void updated.push(params.uri),
  );
  await client.connect(new StreamableHTTPClientTransport(new URL(served.url)) as Transport);
  await client.subscribeResource({ uri: 'diary://today' });
  await client.callTool({ name: 'touch' });
  await expect.poll(() => updated).toEqual(['diary://today']);
  await client.close();
});

/** A stream of updates, from a client as `post` is one: it shares its server with it. */
function listening(url: string, uris: readonly string[], signal: AbortSignal): Promise<Response> {
  const _meta = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientCapabilities': CAPABILITIES,
    'io.modelcontextprotocol/clientInfo': { name: 'e2e', version: '1.0.0' },
  };
  const params = { _meta, notifications: { resourceSubscriptions: uris } };
  return fetch(url, {
    method: 'POST',
    signal,
    headers: {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'mcp-protocol-version': '2026-07-28',
      'mcp-method': 'subscriptions/listen',
    },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'subscriptions/listen', params }),
  });
}

it('passes changes of its lists on', async () => {
  const served = await behind(node('stdio-server.mjs'));
  const client = await legacy(served.url);
  await client.tool('adds-tool');
  expect(await client.toolNames()).toContain('added');
  expect(await client.tool('added')).toBe('added');
  await client.close();
});

describe('mcp-await proxy', () => {
  it('serves a command, and logs its stderr with its name', async () => {
    const proxy = await startProxy(PYTHON);
    try {
      const client = await modern(proxy.url);
      expect(await client.tool('greet')).toBe('Hello its name');
      await client.close();
      const line =
        proxy
          .stderr()
          .split('\n')
          .find((text) => text.includes('a Python server')) ?? '';
      expect(JSON.parse(line)).toMatchObject({ level: 'info', from: 'python3' });
    } finally {
      expect(await proxy.stop()).toBe(0);
    }
  });

  it.skipIf(SHORT).each([
    [
      '@modelcontextprotocol/server-everything/dist/index.js',
      ['stdio'],
      'echo',
      { message: 'hi' },
      'Echo: hi',
    ],
    ['@modelcontextprotocol/server-memory/dist/index.js', [], 'read_graph', {}, 'entities'],
    [
      '@modelcontextprotocol/server-filesystem/dist/index.js',
      [fixture('.')],
      'list_directory',
      { path: fixture('.') },
      'asking_server.py',
    ],
  ] as const)(
    'serves %s as it is published, to clients of both eras',
    async (path, args, tool, input, text) => {
      const entry = new URL(`../../node_modules/${path}`, import.meta.url).pathname;
      const proxy = await startProxy([process.execPath, entry, ...args]);
      try {
        for (const connect of [modern, legacy]) {
          const client = await connect(proxy.url);
          expect((await client.toolNames()).length).toBeGreaterThan(3);
          // server-filesystem takes the client's roots over its arguments, where the client has some.
          const answer = await client.tool(tool, { ...input });
          if (!path.includes('filesystem')) expect(answer).toContain(text);
          else expect(answer).toMatch(/asking_server\.py|Access denied/);
          await client.close();
        }
      } finally {
        await proxy.stop();
      }
    },
  );
});
