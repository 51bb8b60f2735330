/**
 * A stranger whose messages are small in bytes and large in everything else: very many values, which schemas check one
 * by one, and empty objects, which take twenty times as much memory as text. Asserted by counts, never by time.
 */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { z } from 'zod';
import { shapeOfText } from '../../src/base/shape.ts';
import { tuned } from '../../src/call/limits.ts';
import { type AwaitHandler, type AwaitOptions, createAwaitHandler } from '../../src/index.ts';
import { type Json, modernTalk } from '../differential/talk.ts';
import { LogBook } from '../e2e/harness.ts';

let handler: AwaitHandler;
let release = (): void => {};
let aborted = 0;
afterEach(async () => {
  release();
  aborted = 0;
  await handler.close();
});

function serve(options: AwaitOptions = {}): void {
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  const factory = () => {
    const server = new McpServer({ name: 'shaped', version: '1.0.0' });
    const inputSchema = z.looseObject({}).shape;
    server.registerTool('echo', { inputSchema }, () => ({ content: [{ type: 'text', text: 'echo' }] }));
    server.registerTool('fail', { inputSchema }, () => Promise.reject(new Error('failed')));
    server.registerTool('wait', { inputSchema }, async (_args, { signal }) => {
      signal.addEventListener('abort', () => {
        aborted += 1;
      });
      await released;
      return { content: [{ type: 'text', text: 'waited' }] };
    });
    server.registerTool('ask', { inputSchema }, async () => {
      await server.server.elicitInput({
        message: 'Go on?',
        requestedSchema: { type: 'object', properties: {} },
      });
      return { content: [{ type: 'text', text: 'asked' }] };
    });
    return server;
  };
  handler = createAwaitHandler(factory, { logger: new LogBook(), ...options });
}

async function post(body: Json | string, headers: Readonly<Record<string, string>> = {}): Promise<number> {
  const request = new Request('http://127.0.0.1/mcp', {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      ...headers,
    },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
  return (await handler.fetch(request)).status;
}

const ann = { token: 'ann', clientId: 'ann', scopes: [], extra: { sub: 'ann' } };
const talk = (authInfo?: typeof ann) =>
  modernTalk((request) => handler.fetch(request, authInfo === undefined ? {} : { authInfo }));
const objects = (count: number): Json[] => Array.from({ length: count }, () => ({}));
const members = (count: number): Json =>
  Object.fromEntries(Array.from({ length: count }, (_, nth) => [`name${nth}`, 0]));
const initialize = (experimental: Json): Json => ({
  jsonrpc: '2.0',
  id: 1,
  method: 'initialize',
  params: {
    protocolVersion: '2025-11-25',
    capabilities: { experimental },
    clientInfo: { name: 'shape', version: '1' },
  },
});
const call = (talking: ReturnType<typeof talk>, name: string, given: Json = {}) =>
  talking.request('tools/call', { name, arguments: given });

describe('a body', () => {
  it('of more than 100,000 values is refused, whatever revision it is for', async () => {
    serve();
    expect(await post({ jsonrpc: '2.0', id: 1, method: 'ping', params: { list: objects(100_001) } })).toBe(
      413,
    );
    expect(await post(initialize(members(100_001)))).toBe(413);
    expect((await call(talk(), 'echo', { list: Array.from({ length: 100_001 }, () => 1) })).status).toBe(413);
  });

  it('of as many commas inside of a text is not', async () => {
    serve();
    const { response } = await call(talk(), 'echo', { csv: 'a,b,"c",[d],{e}\n'.repeat(50_000) });
    expect(response).toMatchObject({ result: { content: [{ text: 'echo' }] } });
  });

  it('may hold a tenth of them where schemas check each one', async () => {
    serve();
    expect(await post(initialize(members(10_101)))).toBe(413);
    const asked = await talk().request('tools/call', {
      name: 'echo',
      arguments: {},
      _meta: members(10_101),
    });
    expect(asked.status).toBe(413);
    // The SDK's schema checks each name of the arguments, twice.
    const named = await talk().request('tools/call', { name: 'echo', arguments: members(10_101) });
    expect(named.status).toBe(413);
    expect((await call(talk(), 'echo', members(10_000))).response).toMatchObject({ result: {} });
  });

  it('of many colons is read without cutting the text before them again', () => {
    const text = `"${'a'.repeat(100)}"${':'.repeat(10_000)}`;
    const cut = vi.spyOn(String.prototype, 'slice');
    const { names } = shapeOfText(text, 100_000, 10_000);
    const times = cut.mock.calls.length;
    cut.mockRestore();
    expect(names).toBe(1);
    expect(times).toBeLessThan(10);
  });

  it('holds few values that a schema describes one by one when it refuses them', async () => {
    serve();
    const many = members(2_008);
    const rpc = { jsonrpc: '2.0', id: 1 };
    const echo = { name: 'echo', arguments: {} };
    const described = { name: 'shape', version: '1', icons: Array.from({ length: 2_008 }, () => 1) };
    const bodies: Json[] = [
      { ...rpc, result: { action: 'accept', content: many } },
      { ...rpc, result: { roots: objects(2_008) } },
      { ...rpc, method: 'tools/call', params: { ...echo, ...many } },
      { ...rpc, method: 'tools/call', params: { ...echo, inputResponses: many } },
      { ...rpc, method: 'tools/call', params: { ...echo, _meta: { 'io.x/clientInfo': described } } },
      { ...rpc, method: 'completion/complete', params: { context: { arguments: many } } },
      {
        ...rpc,
        method: 'subscriptions/listen',
        params: { notifications: { resourceSubscriptions: objects(2_008) } },
      },
      { jsonrpc: '2.0', method: 'notifications/progress', params: many },
      { ...rpc, method: 'x'.repeat(65_537) },
      { ...rpc, method: 'tools/call', params: { ...echo, name: '\ud800'.repeat(65_537) } },
      { ...rpc, method: 'resources/read', params: { uri: 'x'.repeat(65_537) } },
      // The SDKs' schema of a prompt's arguments describes each that is not a text.
      { ...rpc, method: 'prompts/get', params: { name: 'p', arguments: many } },
    ];
    for (const body of bodies) expect(await post(body)).toBe(413);
    // An array is one body.
    const half = (id: number): Json => ({ ...rpc, id, method: 'ping', params: members(1_100) });
    expect(await post([half(1), half(2)] as unknown as Json)).toBe(413);
    // Different names count wherever they are.
    expect((await call(talk(), 'echo', { deep: members(10_101) })).status).toBe(413);
    expect(
      (await call(talk(), 'echo', { list: Array.from({ length: 20_000 }, () => ({ a: 1 })) })).status,
    ).toBe(200);
    // What is inside of one argument is free.
    const list = Array.from({ length: 90_000 }, () => 1);
    expect((await call(talk(), 'echo', { list })).response).toMatchObject({ result: {} });
  });
});

describe('arguments that take far more memory than bytes', () => {
  it('are bounded in running calls, of strangers apart from known callers', async () => {
    serve({ ...tuned({ argumentBytes: 20_000_000, callerArgumentBytes: 6_000_000 }) });
    const calls = Array.from({ length: 6 }, () => call(talk(), 'wait', { z: objects(20_000) }));
    const known = call(talk(ann), 'wait', { z: objects(20_000) });
    // Half of it is for requests that have no reply yet. Those beyond are refused while the others wait.
    const refused: unknown[] = [];
    for (const one of calls) void one.then(({ response }) => refused.push(response));
    await expect.poll(() => refused.length).toBe(4);
    for (const response of refused)
      expect(response).toMatchObject({ error: { message: expect.stringContaining('busy') } });
    release();
    const ended = await Promise.all(calls);
    expect(ended.filter(({ response }) => response?.result !== undefined)).toHaveLength(2);
    expect((await known).response).toMatchObject({ result: {} });
  });

  it('count for what keeps a suspended tool in memory', async () => {
    serve({ ...tuned({ callerBytes: 3_000_000 }) });
    for (let nth = 0; nth < 6; nth += 1) await call(talk(), 'ask', { z: objects(20_000) });
    expect(handler.parked).toBe(2);
  });
});

describe('a call of which nothing is written', () => {
  it('is ended when its caller is erased', async () => {
    serve({ principal: (authInfo) => authInfo?.clientId as string | undefined });
    const waiting = call(talk(ann), 'wait');
    await expect.poll(() => handler.counters.calls).toBe(1);
    expect(await handler.forget('ann')).toBe(1);
    await waiting;
    expect(aborted).toBe(1);
  });

  it('is reported to the audit as it ends, and its target is short', async () => {
    const events: { readonly what: string; readonly target: string }[] = [];
    serve({ audit: (event) => events.push(event) });
    await call(talk(), 'echo');
    await call(talk(), `n\u001b[31m\u009b${'x'.repeat(1_000)}`);
    await talk().request('resources/read', { uri: 'mem://notes?token=secret' });
    expect(events.map(({ what, target }) => [what, target.slice(0, 20)])).toEqual([
      ['called', 'echo'],
      ['completed', 'echo'],
      ['called', 'n\\u001b[31m\\u009bxxx'],
      ['completed', 'n\\u001b[31m\\u009bxxx'],
      ['called', 'mem://notes'],
      ['failed', 'mem://notes'],
    ]);
    expect(Math.max(...events.map(({ target }) => target.length))).toBeLessThan(250);
  });
});

describe('streams of workspaces', () => {
  it('are bounded for strangers, as sessions are', async () => {
    serve({ ...tuned({ anonymousSessions: 3 }) });
    const gone = new AbortController();
    const open = (nth: number) =>
      handler.fetch(
        new Request(`http://127.0.0.1/mcp/w${nth}`, {
          headers: { accept: 'text/event-stream' },
          signal: gone.signal,
        }),
      );
    const replies = await Promise.all([1, 2, 3, 4, 5].map(open));
    expect(replies.map(({ status }) => status).sort()).toEqual([200, 200, 200, 503, 503]);
    gone.abort();
    await expect.poll(async () => (await open(6)).status).toBe(200);
  });
});
