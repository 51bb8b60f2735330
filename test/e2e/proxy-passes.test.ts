/** What the proxy passes both ways beside plain asks, and what its flags `--shared` and `--replay` change. */
import process from 'node:process';
import { Client as ModernClient, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as LegacyTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import {
  CallToolResultSchema,
  CreateMessageRequestSchema,
  CreateTaskResultSchema,
  ElicitRequestSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { stdioHost } from '../../src/index.ts';
import { SHORT } from '../short.ts';
import { accept, filledIn, post, type RawCall, type RawReply, textOf } from './clients.ts';
import { type Served, serveHere } from './harness.ts';
import { effectsFile, fixture, PYTHON, type RunningProxy, startProxy } from './proxied.ts';

const [command = '', ...args] = PYTHON;
const EVERYTHING = new URL(
  '../../node_modules/@modelcontextprotocol/server-everything/dist/index.js',
  import.meta.url,
).pathname;
const INFO = { name: 'passes', version: '1' };
const CAPABILITIES = { elicitation: { form: {}, url: {} }, sampling: { tools: {} }, roots: {} };
const RAIN = {
  role: 'assistant' as const,
  model: 'none',
  stopReason: 'toolUse',
  content: [{ type: 'tool_use' as const, name: 'weather', id: '-1', input: {} }],
};

/** What both official clients do here. */
interface Passing {
  readonly asked: unknown[];
  call(name: string, meta?: Record<string, unknown>, signal?: AbortSignal): Promise<Record<string, unknown>>;
  complete(): Promise<readonly string[]>;
  tools(
    cursor?: string,
  ): Promise<{ readonly tools: readonly unknown[]; readonly nextCursor?: string | undefined }>;
  close(): Promise<void>;
}

async function modernClient(url: string): Promise<Passing> {
  const client = new ModernClient(INFO, {
    capabilities: CAPABILITIES,
    versionNegotiation: { mode: { pin: '2026-07-28' } },
  });
  const asked: unknown[] = [];
  client.setRequestHandler('elicitation/create', ({ params }) => {
    asked.push(params);
    return filledIn(params);
  });
  client.setRequestHandler('sampling/createMessage', ({ params }) => {
    asked.push(params);
    return RAIN;
  });
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  return {
    asked,
    tools: (cursor) =>
      client.request({ method: 'tools/list', params: cursor === undefined ? {} : { cursor } }),
    call: (name, _meta = {}, signal) => client.callTool({ name, _meta }, { ...(signal && { signal }) }),
    complete: async () => {
      const argument = { name: 'name', value: 'An' };
      return (await client.complete({ ref: { type: 'ref/prompt', name: 'greeting' }, argument })).completion
        .values;
    },
    close: () => client.close(),
  };
}

async function legacyClient(url: string): Promise<Passing> {
  const client = new Client(INFO, { capabilities: CAPABILITIES });
  const asked: unknown[] = [];
  client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
    asked.push(params);
    return filledIn(params);
  });
  client.setRequestHandler(CreateMessageRequestSchema, ({ params }) => {
    asked.push(params);
    return RAIN;
  });
  await client.connect(new LegacyTransport(new URL(url)) as Transport);
  return {
    asked,
    tools: (cursor) => client.listTools(cursor === undefined ? {} : { cursor }),
    call: (name, _meta = {}, signal) =>
      client.callTool({ name, _meta }, undefined, { ...(signal && { signal }) }),
    complete: async () => {
      const argument = { name: 'name', value: 'An' };
      return (await client.complete({ ref: { type: 'ref/prompt', name: 'greeting' }, argument })).completion
        .values;
    },
    close: () => client.close(),
  };
}

const textIn = ({ content }: Record<string, unknown>): string =>
  (content as { text: string }[]).map(({ text }) => text).join();

describe.each([
  ['2026-07-28', modernClient],
  ['2025-11-25', legacyClient],
] as const)('the proxy passes on %s', (_revision, connect) => {
  const effects = effectsFile();
  let served: Served;
  let client: Passing;
  beforeAll(async () => {
    served = await serveHere(stdioHost({ command, args, env: { EFFECTS: effects.path }, cancelGrace: 200 }));
    client = await connect(served.url);
  });
  afterAll(async () => {
    await client.close();
    await served.close();
  });

  it('completion', async () => {
    expect(await client.complete()).toEqual(['Ann', 'Anton']);
  });

  it('pages of a list, with the cursors of the server', async () => {
    const sizes: number[] = [];
    let cursor: string | undefined;
    do {
      const page = await client.tools(cursor);
      sizes.push(page.tools.length);
      cursor = page.nextCursor;
    } while (cursor !== undefined && sizes.length < 100);
    expect(sizes.length).toBeGreaterThan(10);
    expect(new Set(sizes)).toEqual(new Set([1]));
  });

  it('an ask with a URL', async () => {
    expect(textIn(await client.call('link'))).toBe('link: accept');
    expect(client.asked.at(-1)).toMatchObject({ mode: 'url', url: 'https://example.com/pay' });
  });

  it('sampling with tools', async () => {
    expect(textIn(await client.call('consult'))).toBe('toolUse weather-1');
    expect(client.asked.at(-1)).toMatchObject({
      tools: [{ name: 'weather' }],
      toolChoice: { mode: 'required' },
    });
  });

  it('_meta of requests and results', async () => {
    const result = await client.call('meta', { 'example.com/there': [1, 'two'] });
    expect(JSON.parse(textIn(result))).toEqual({ 'example.com/there': [1, 'two'] });
    expect(result._meta).toMatchObject({ 'example.com/back': 7 });
  });

  it('cancellation, after which the next call is served', async () => {
    const abort = new AbortController();
    const call = client.call('slow', {}, abort.signal);
    await expect.poll(effects.lines).toContain('slow begins');
    abort.abort();
    await expect(call).rejects.toThrow();
    await expect.poll(effects.lines).toContain('cancelled');
    expect(JSON.parse(textIn(await client.call('meta')))).toEqual({});
  });
});

describe("a child's own tasks", () => {
  it.skipIf(SHORT)('stay its own on 2025-11-25: created, looked at, and their result fetched', async () => {
    const everything = stdioHost({ command: process.execPath, args: [EVERYTHING, 'stdio'] });
    const served = await serveHere(everything, { limits: { drain: 300 } });
    const client = new Client(INFO, { capabilities: CAPABILITIES });
    client.setRequestHandler(ElicitRequestSchema, ({ params }) => filledIn(params));
    await client.connect(new LegacyTransport(new URL(served.url)) as Transport);
    await client.listTools();
    const query = { name: 'simulate-research-query', arguments: { topic: 'python', ambiguous: false } };
    const stream = client.experimental.tasks.callToolStream(query, CallToolResultSchema, {
      task: { ttl: 60_000 },
    });
    const seen: string[] = [];
    for await (const message of stream) {
      if (message.type === 'error') throw message.error;
      seen.push(message.type);
      if (message.type === 'result') expect(JSON.stringify(message.result)).toContain('Research Report');
      // Ours begin with the time of their end; the SDK's ids are hexadecimal.
      if (message.type === 'taskCreated') expect(message.task.taskId).toMatch(/^[0-9a-f]+$/);
    }
    expect([seen[0], seen.at(-1)]).toEqual(['taskCreated', 'result']);
    await client.close();
    await served.close();
  });

  it('are made for it where it has none, though SDK v1 lists each tool as none', async () => {
    const v1 = stdioHost({ command: process.execPath, args: [fixture('stdio-server.mjs')] });
    const served = await serveHere(v1, { tasks: 'optional', limits: { drain: 300 } });
    const client = new Client(INFO, { capabilities: CAPABILITIES });
    await client.connect(new LegacyTransport(new URL(served.url)) as Transport);
    const { tools } = await client.listTools();
    expect(tools.find(({ name }) => name === 'known-roots')?.execution).toEqual({ taskSupport: 'optional' });
    const params = { name: 'known-roots', arguments: {}, task: { ttl: 60_000 } };
    const { task } = await client.request({ method: 'tools/call', params }, CreateTaskResultSchema);
    const done = await client.experimental.tasks.getTaskResult(task.taskId, CallToolResultSchema);
    expect(done.content).toEqual([{ type: 'text', text: expect.any(String) }]);
    await client.close();
    await served.close();
  });
});

describe('flags of mcp-await proxy', () => {
  let proxy: RunningProxy;
  const pids = effectsFile();
  const start = async (...options: string[]): Promise<(call: RawCall) => Promise<RawReply>> => {
    proxy = await startProxy(PYTHON, options, { PIDS: pids.path });
    return (call) => post(proxy.url, call);
  };
  afterEach(() => proxy.stop());
  const FAR = { 'x-forwarded-for': '203.0.113.9' };

  it.skipIf(SHORT)(
    '--shared: callers that are not known share a process, wherever they come from',
    async () => {
      const call = await start('--shared');
      const pidOf = async (headers: Record<string, string>): Promise<string> =>
        textOf(await call({ tool: 'pid', headers }));
      const pid = await pidOf(FAR);
      expect(pid).toMatch(/^\d+$/);
      expect(await pidOf({ 'x-forwarded-for': '198.51.100.1' })).toBe(pid);
      expect(await pidOf({})).toBe(pid);
    },
  );

  /** A call whose process is killed while it waits for an answer, and what its client is told then. */
  const afterKill = async (
    call: (call: RawCall) => Promise<RawReply>,
    request: RawCall,
    content: Record<string, string>,
  ): Promise<RawReply> => {
    const first = await call(request);
    expect(first.keys).toHaveLength(1);
    process.kill(Number(pids.lines().at(-1)), 'SIGKILL');
    await expect.poll(proxy.stderr).toContain('a server ended');
    return call({ ...request, state: first.state, responses: accept(first.keys, content) });
  };

  it.skipIf(SHORT)(
    '--replay never: no call that was sent is run again, and its error names no answer',
    async () => {
      const call = await start('--replay', 'never');
      const done = await afterKill(call, { tool: 'greet' }, { name: 'a secret' });
      expect(JSON.stringify(done.message)).toContain('may not be run again');
      expect(JSON.stringify(done.message)).not.toContain('secret');
      // One that waits for the process of another call is not sent yet: it runs in the next one.
      const [died, pid] = await Promise.all([call({ tool: 'die' }), call({ tool: 'pid' })]);
      expect(JSON.stringify(died.message)).toContain('may not be run again');
      expect(textOf(pid)).toMatch(/^\d+$/);
    },
  );

  it.skipIf(SHORT)('by default a prompt is run again, and led through its answers', async () => {
    const call = await start();
    const request = { method: 'prompts/get', tool: 'greeting', headers: {} };
    const done = await afterKill(call, request, { name: 'Ann' });
    expect(JSON.stringify(done.message.result)).toContain('Greet Ann');
  });
});
