/** The reference server as published, through two processes, from a client pinned to 2026-07-28. */
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { CallToolResultSchema, ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { some } from '../short.ts';
import {
  accept,
  type ElicitAnswer,
  filledIn,
  legacy,
  modern,
  post,
  send,
  type TestClient,
} from './clients.ts';
import { asking, type Balancer, balance, type Spawned, spawnServers } from './harness.ts';
import { SQLITE } from './services.ts';

/** The tools that ask, with what makes them ask. */
const ASKING_TOOLS: readonly (readonly [string, Record<string, unknown>, RegExp])[] = [
  ['get-roots-list', {}, /1\. home\n {3}URI: file:\/\/\/home\/ann/],
  ['trigger-elicitation-request', {}, /Name: its name/],
  ['trigger-sampling-request', { prompt: 'a poem' }, /"model": "test"/],
  ['trigger-url-elicitation', { url: 'https://example.com/pay' }, /accept/],
];

describe.each(
  some([
    ['SQLite', () => ['--store', SQLITE.url()]],
    ['no store, state sealed', () => ['--state', 'sealed']],
  ] as const),
)('@modelcontextprotocol/server-everything in two processes, %s', (_name, args) => {
  let servers: Spawned[] = [];
  let balancer: Balancer;
  let client: TestClient;

  const connect = async (
    answer?: (params: Readonly<Record<string, unknown>>) => ElicitAnswer,
  ): Promise<void> => {
    balancer = await balance(servers.map(({ url }) => url));
    client = await modern(balancer.url, answer === undefined ? {} : { answer });
  };
  beforeAll(async () => {
    servers = await spawnServers('everything.mjs', 2, { args: args() });
  });
  afterEach(async () => {
    await client.close();
    await balancer.close();
  });
  afterAll(() => Promise.all(servers.map((server) => server.kill())));

  it('registers the tools that ask for the clients that can be asked, and for no others', async () => {
    await connect();
    const all = await client.toolNames();
    const meta = (capabilities: object) => ({
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientInfo': { name: 'bare', version: '1' },
      'io.modelcontextprotocol/clientCapabilities': capabilities,
    });
    const body = { jsonrpc: '2.0', id: 1, method: 'tools/list', params: { _meta: meta({}) } };
    const headers = { 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/list' };
    const bare = await send(balancer.url, JSON.stringify(body), { headers });
    const without = ((bare.message.result?.tools ?? []) as { name: string }[]).map(({ name }) => name);
    expect(all.filter((name) => !without.includes(name)).sort()).toEqual(
      ASKING_TOOLS.map(([name]) => name).sort(),
    );
  });

  it.each(ASKING_TOOLS)('%s', async (tool, input, text) => {
    await connect();
    expect(await client.tool(tool, input)).toMatch(text);
    expect(client.asked.length).toBeGreaterThan(0);
    const went = asking(balancer.posts).map(({ to }) => to);
    expect(went.length).toBeGreaterThan(1);
    expect(went.every((to, nth) => nth === 0 || to !== went[nth - 1])).toBe(true);
  });

  it('the tool that throws -32042: its URL is asked for, and it is run again', async () => {
    const opened: unknown[] = [];
    await connect((params) => {
      opened.push(params.url);
      return filledIn(params);
    });
    const input = { url: 'https://example.com/deploy', errorPath: true };
    expect(await client.tool('trigger-url-elicitation', input)).toMatch(/accept/);
    expect(opened.length).toBeGreaterThan(1);
    expect(opened.at(-1)).toBe('https://example.com/deploy');
    expect(opened[0]).not.toBe('https://example.com/deploy');
  });

  it('the tool that throws -32042, declined: ends, and is not run again', async () => {
    await connect(() => ({ action: 'decline' }));
    const input = { url: 'https://example.com/declined', errorPath: true };
    expect(await client.tool('trigger-url-elicitation', input)).toMatch(/^error: .*declined/);
    expect(client.asked).toHaveLength(1);
  });

  it('an elicitation that was declined', async () => {
    await connect(() => ({ action: 'decline' }));
    expect(await client.tool('trigger-elicitation-request')).toContain('User declined');
  });

  it('tools that do not ask', async () => {
    await connect();
    expect(await client.tool('echo', { message: 'hi' })).toBe('Echo: hi');
    expect(await client.tool('get-sum', { a: 2, b: 3 })).toContain('5');
    expect(client.asked).toEqual([]);
  });

  it('a name that breaks the schema is not fed', async () => {
    await connect();
    const tool = 'trigger-elicitation-request';
    const { state, keys } = await post(balancer.url, { tool });
    const again = await post(balancer.url, { tool, state, responses: accept(keys, { name: 5 }) });
    expect(again.message.result?.resultType).toBe('input_required');
    expect(again.keys).not.toEqual(keys);
  });

  it('a 2025-11-25 client’s task at one of them: the server runs it itself, and asks in it', async () => {
    await connect();
    const old = new Client({ name: 'tasks', version: '1' }, { capabilities: { elicitation: {}, tasks: {} } });
    const asked: string[] = [];
    old.setRequestHandler(ElicitRequestSchema, ({ params }) => {
      asked.push(params.message);
      return { action: 'accept', content: { interpretation: 'technical' } };
    });
    const url = new URL(servers[0]?.url ?? '');
    await old.connect(new StreamableHTTPClientTransport(url) as Transport);
    const told: string[] = [];
    const call = { name: 'simulate-research-query', arguments: { topic: 'python', ambiguous: true } };
    for await (const message of old.experimental.tasks.callToolStream(call, CallToolResultSchema, {
      task: { ttl: 60_000 },
    })) {
      told.push(message.type);
      if (message.type === 'error') throw message.error;
      // Its ids are its own: ours begin with a time.
      if (message.type === 'taskCreated') expect(message.task.taskId).toMatch(/^[0-9a-f]{32}$/);
      if (message.type === 'result') expect(JSON.stringify(message.result)).toContain('python');
    }
    expect([told[0], told.at(-1), asked.length]).toEqual(['taskCreated', 'result', 1]);
    await old.close();
  });

  it('a 2025-11-25 client at one of them, as ever', async () => {
    await connect();
    const old = await legacy(servers[0]?.url ?? '');
    for (const [tool, input, text] of ASKING_TOOLS) expect(await old.tool(tool, input)).toMatch(text);
    const thrown = old.tool('trigger-url-elicitation', { url: 'https://example.com/old', errorPath: true });
    await expect(thrown).rejects.toMatchObject({ code: -32042 });
    await old.close();
  });
});
