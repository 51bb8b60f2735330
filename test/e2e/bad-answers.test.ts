/** Unusable answers, invalid requests, and the reply to a tool that throws (issue, bad input). */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { CfWorkerJsonSchemaValidator } from '@modelcontextprotocol/server/validators/cf-worker';
import { afterEach, describe, expect, it } from 'vitest';
import { answerCheck } from '../../src/host/answer-check.ts';
import type { Validator } from '../../src/host/validator.ts';
import { step } from '../../src/index.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { accept, CAPABILITIES, modern, modernHeaders, post, type RawReply, send, textOf } from './clients.ts';
import { CELLS, optionsOf, type Served, serveHere } from './harness.ts';
import { legacySession } from './legacy-session.ts';

let served: Served;
afterEach(() => served.close());

describe.each(CELLS)('an answer that cannot be used ($name)', (cell) => {
  const first = async (tool: string): Promise<RawReply> => {
    served = await serveHere(() => buildServer(() => {}), optionsOf(cell));
    return post(served.url, { tool });
  };

  it.each([['a text'], [[]], [7], [null], [true]])('inputResponses is %j: -32602', async (responses) => {
    const { state, keys } = await first('one');
    const reply = await post(served.url, { tool: 'one', state, responses });
    expect(reply.message.error?.code).toBe(-32602);
    const again = await post(served.url, { tool: 'one', state, responses: accept(keys, { name: 'Ann' }) });
    expect(textOf(again)).toBe('Hello Ann');
  });

  it.each([
    ['one', 'a text'],
    ['one', null],
    ['one', []],
    ['one', { action: 'maybe' }],
    ['one', { action: 'accept', content: 'no object' }],
    ['one', { content: { name: 'Ann' } }],
    ['one', { action: 'accept', content: { name: 'Ann' }, _meta: 'none' }],
    ['one', { action: 'accept', content: { name: 'Ann' }, _meta: { progressToken: {} } }],
    ['sample', { role: 'assistant', content: { type: 'text', text: 'no model' } }],
    ['sample', { role: 'system', model: 'm', content: { type: 'text', text: 'x' } }],
    ['sample', { role: 'assistant', model: 'm', content: 'no block' }],
    ['sample', { role: 'assistant', model: 'm', content: { type: 'text' } }],
    ['sample', { role: 'assistant', model: 'm', content: { type: 'image', mimeType: 'image/png' } }],
    ['sample', { role: 'assistant', model: 'm', content: { type: 'image', data: '!', mimeType: 'a/b' } }],
    ['sample', { role: 'assistant', model: 'm', content: { type: 'hologram', data: '' } }],
    ['sample', { role: 'assistant', model: 'm', content: [{ type: 'text', text: 'x' }] }],
    ['sample', { role: 'assistant', model: 'm', content: { type: 'text', text: 'x' }, stopReason: 5 }],
    ['roots', { roots: [{ uri: 'https://a.example/' }] }],
    ['roots', { roots: [{ uri: 'file:///a', name: 7 }] }],
    ['roots', { roots: 'none' }],
    ['roots', { roots: [{ name: 'no uri' }] }],
    ['roots', { action: 'accept', content: {} }],
  ])('an answer to %s is %j: -32602, and not fed', async (tool, answer) => {
    const { state, keys } = await first(tool);
    const reply = await post(served.url, { tool, state, responses: { [keys[0] ?? '']: answer } });
    expect(reply.message.error?.code).toBe(-32602);
    expect(served.log.lines.map(({ detail }) => detail.code)).toContain('bad-answer');
  });

  it('an answer that breaks the schema is asked again, under a new key', async () => {
    const { state, keys } = await first('one');
    const again = await post(served.url, { tool: 'one', state, responses: accept(keys, { nam: 'Ann' }) });
    expect(again.message.result?.resultType).toBe('input_required');
    expect(again.keys).toHaveLength(1);
    expect(again.keys).not.toEqual(keys);
    expect(again.state).not.toBe(state);
    const stale = await post(served.url, {
      tool: 'one',
      state: again.state,
      responses: accept(keys, { name: 'A' }),
    });
    expect(stale.keys).toEqual(again.keys);
    const good = accept(again.keys, { name: 'Ann' });
    expect(textOf(await post(served.url, { tool: 'one', state: again.state, responses: good }))).toBe(
      'Hello Ann',
    );
  });

  it('an answer to an ask that its author named is asked again under that name', async () => {
    served = await serveHere(() => {
      const server = new McpServer({ name: 'named', version: '1.0.0' });
      server.registerTool('login', {}, async () => {
        const { content } = await server.server.elicitInput({
          message: 'Who?',
          requestedSchema: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] },
          _meta: { 'mcp-await/key': 'github_login' },
        });
        return { content: [{ type: 'text', text: `Hello ${String(content?.name)}` }] };
      });
      return server;
    }, optionsOf(cell));
    const { state, keys } = await post(served.url, { tool: 'login' });
    expect(keys).toEqual(['github_login']);
    const again = await post(served.url, { tool: 'login', state, responses: accept(keys, { nam: 'Ann' }) });
    expect(again.keys).toEqual(['github_login']);
    const good = { tool: 'login', state: again.state, responses: accept(again.keys, { name: 'Ann' }) };
    expect(textOf(await post(served.url, good))).toBe('Hello Ann');
    expect(textOf(await post(served.url, good))).toBe('Hello Ann');
  });

  it.each([
    ['a nested object', { inside: { of: 'it' } }],
    ['null', { extra: null }],
    ['a list of numbers', { list: [1] }],
  ])('content with %s, which no SDK takes, is asked again', async (_, extra) => {
    const { state, keys } = await first('one');
    const responses = accept(keys, { name: 'Ann', ...extra } as never);
    const again = await post(served.url, { tool: 'one', state, responses });
    expect(again.keys).not.toEqual(keys);
    const good = accept(again.keys, { name: 'Ann' });
    expect(textOf(await post(served.url, { tool: 'one', state: again.state, responses: good }))).toBe(
      'Hello Ann',
    );
  });

  it('a decline breaks no schema', async () => {
    const { state, keys } = await first('one');
    const responses = { [keys[0] ?? '']: { action: 'decline' } };
    expect(textOf(await post(served.url, { tool: 'one', state, responses }))).toBe('Hello decline');
  });

  it('a missing answer is asked for again, under its own key', async () => {
    const { state, keys } = await first('one');
    for (const responses of [{}, undefined, { nobody: { action: 'accept' } }]) {
      const again = await post(served.url, { tool: 'one', state, responses });
      expect(again.keys).toEqual(keys);
    }
    expect(
      textOf(await post(served.url, { tool: 'one', state, responses: accept(keys, { name: 'Ann' }) })),
    ).toBe('Hello Ann');
  });

  it('of three answers one is good, one breaks its schema, one is missing', async () => {
    const { state, keys } = await first('at-once');
    expect(keys).toHaveLength(3);
    const [name = '', city = '', street = ''] = keys;
    const responses = { ...accept([name], { name: 'Ann' }), ...accept([city], { city: 7 }) };
    const again = await post(served.url, { tool: 'at-once', state, responses });
    expect(again.keys).toHaveLength(2);
    expect(again.keys).toContain(street);
    expect(again.keys).not.toContain(city);
    const rest = Object.entries(again.message.result?.inputRequests ?? {}).map(([key, { params }]) => {
      const field = String(params?.message).replace('?', '');
      return [key, { action: 'accept', content: { [field]: `the ${field}` } }];
    });
    const done = await post(served.url, {
      tool: 'at-once',
      state: again.state,
      responses: Object.fromEntries(rest),
    });
    expect(textOf(done)).toBe('Ann, the city, the street');
  });

  it('answers without a requestState make a new call', async () => {
    await first('one');
    const reply = await post(served.url, {
      tool: 'one',
      responses: accept(['elicitation-1'], { name: 'Ann' }),
    });
    expect(reply.keys).toEqual(['elicitation-1']);
    const wrong = await post(served.url, { tool: 'one', responses: 'a text' });
    expect(wrong.message.error?.code).toBe(-32602);
  });

  it.each([
    ['one', { sampling: {} }, { elicitation: { form: {} } }],
    ['one', { elicitation: { url: {} } }, { elicitation: { form: {} } }],
    ['link', { elicitation: {} }, { elicitation: { url: {} } }],
    ['sample', { elicitation: {} }, { sampling: {} }],
    ['roots-by-extra', {}, { roots: {} }],
  ])('%s from a client with %j: it never goes out', async (tool, capabilities, requiredCapabilities) => {
    await first('echo');
    const reply = await post(served.url, { tool, capabilities });
    // Where the SDK raises an error of its own inside of the tool, that is what the client gets.
    if (reply.message.result !== undefined) {
      expect(reply.message.result.isError).toBe(true);
      expect(textOf(reply)).toMatch(/does not support/i);
    } else {
      expect(reply.status).toBe(400);
      expect(reply.message.error).toMatchObject({ code: -32021, data: { requiredCapabilities } });
    }
    expect(reply.keys).toEqual([]);
  });

  it('-32021 with HTTP 400 where a retry comes from a client that lost the capability; the token stays good', async () => {
    const { state, keys } = await first('one');
    const bare = await post(served.url, { tool: 'one', state, responses: {}, capabilities: {} });
    expect(bare.status).toBe(400);
    expect(bare.message.error?.code).toBe(-32021);
    const good = accept(keys, { name: 'Ann' });
    expect(textOf(await post(served.url, { tool: 'one', state, responses: good }))).toBe('Hello Ann');
  });

  it('a tool that throws is reported as the SDK does', async () => {
    await first('echo');
    const client = await modern(served.url);
    expect(await client.tool('throws')).toBe('error: out of paper');
    expect(await client.tool('throws-later')).toBe('error: out of ink');
    await client.close();
  });
});

describe('a 2025-11-25 client without the capability', () => {
  it.each(['by-extra', 'sample-by-extra', 'roots-by-extra', 'one', 'link', 'sample', 'roots'])(
    '%s: the await is rejected, nothing goes out',
    async (name) => {
      served = await serveHere(() => buildServer(() => {}));
      const session = await legacySession(served.url, {});
      const stream = await session.send({ id: 7, method: 'tools/call', params: { name, arguments: {} } });
      const first = await stream.next(({ id, method }) => id === 7 || method !== undefined);
      expect(first.result?.isError).toBe(true);
      expect(first.result?.content?.[0]?.text).toMatch(/does not support/);
    },
  );
});

describe('a request that is not one', () => {
  const start = async (options = {}): Promise<string> => {
    served = await serveHere(() => buildServer(() => {}), options);
    return served.url;
  };
  const body = (word: string): string =>
    JSON.stringify({
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: {
        name: 'echo',
        arguments: { word },
        _meta: {
          'io.modelcontextprotocol/protocolVersion': '2026-07-28',
          'io.modelcontextprotocol/clientInfo': { name: 'e2e', version: '1' },
          'io.modelcontextprotocol/clientCapabilities': CAPABILITIES,
        },
      },
    });
  const headers = modernHeaders('tools/call', 'echo');

  it('is longer than the limit: 413', async () => {
    const url = await start({ limits: { bodyBytes: 2_000 } });
    expect((await send(url, body('hi'), { headers })).keys).toHaveLength(1);
    expect((await send(url, body('x'.repeat(2_000)), { headers })).status).toBe(413);
  });

  it('is longer than the limit, and says no length: 413', async () => {
    const url = await start({ limits: { bodyBytes: 2_000 } });
    const chunks = new ReadableStream<Uint8Array>({
      start(controller) {
        for (let i = 0; i < 10; i += 1) controller.enqueue(new TextEncoder().encode('x'.repeat(1_000)));
        controller.close();
      },
    });
    const all = {
      ...headers,
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
    };
    const init = { method: 'POST', body: chunks, headers: all, duplex: 'half' };
    expect((await fetch(url, init)).status).toBe(413);
  });

  it.each([['{"jsonrpc": "2.0", '], [''], ['undefined']])('is %j, no JSON: -32700', async (text) => {
    const url = await start();
    for (const given of [headers, {}]) {
      const reply = await send(url, text, { headers: given });
      expect(reply.status).toBe(400);
      expect(reply.message.error?.code).toBe(-32700);
    }
  });

  it.each([['[]'], ['7'], ['null'], ['{}'], ['"text"'], ['{"jsonrpc":"2.0","id":{},"method":"tools/call"}']])(
    'is %s: an error, and nothing breaks',
    async (text) => {
      const url = await start();
      const reply = await send(url, text, { headers });
      expect(reply.status).toBe(400);
      expect([-32600, -32602]).toContain(reply.message.error?.code);
      expect((await send(url, body('hi'), { headers })).keys).toHaveLength(1);
    },
  );

  it('comes from a foreign Origin: 403', async () => {
    const url = await start({ allowedOrigins: ['https://app.example'] });
    const from = async (origin: string): Promise<number> =>
      (await send(url, body('hi'), { headers: { ...headers, origin } })).status;
    expect(await from('https://evil.example')).toBe(403);
    expect(await from('https://app.example.evil.example')).toBe(403);
    expect(await from('null')).toBe(403);
    expect(await from('https://app.example')).toBe(200);
    expect(await from('http://localhost:1234')).toBe(200);
  });

  it('names a tool that is not there: as the SDK reports it', async () => {
    const reply = await post(await start(), { tool: 'nothing' });
    expect(JSON.stringify(reply.message)).toContain('nothing');
    expect(reply.message.error !== undefined || reply.message.result?.isError === true).toBe(true);
  });
});

describe('an ask whose schema cannot be compiled', () => {
  const asking = (requestedSchema: object) => {
    const server = new McpServer({ name: 'odd', version: '1.0.0' });
    server.registerTool('asks', {}, async () => {
      const params = { message: 'name?', requestedSchema: requestedSchema as typeof EMPTY };
      const told = await server.server.elicitInput(params).then(
        ({ content }) => `got ${JSON.stringify(content)}`,
        (error: unknown) => `caught ${String(error)}`,
      );
      return { content: [{ type: 'text', text: told }] };
    });
    return server;
  };

  it('is refused before it goes out where the evaluator cannot judge it either', async () => {
    served = await serveHere(() =>
      asking({ type: 'object', properties: { name: { type: 'string', pattern: '(' } } }),
    );
    const reply = await post(served.url, { tool: 'asks' });
    expect(reply.keys).toEqual([]);
    expect(textOf(reply)).toContain(
      'caught McpError: MCP error -32603: Error validating elicitation response',
    );
  });

  it('has its answers judged by the evaluator where that can', () => {
    const broken: Validator = {
      getValidator: () => {
        throw new EvalError('code generation from strings disallowed');
      },
    };
    const check = answerCheck(broken, new CfWorkerJsonSchemaValidator(), {
      longest: 1_000_000,
      isForeign: false,
    });
    const schema = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] };
    expect([check.keeps(schema, {}), check.keeps(schema, { name: 'Ann' })]).toEqual([false, true]);
    expect([check.unfit(schema), check.unfit({ $ref: '#/nowhere' })]).toEqual([
      undefined,
      expect.any(String),
    ]);
  });
});

it('content whose JSON is longer than a journal may be breaks its schema', async () => {
  served = await serveHere(() => buildServer(() => {}), { limits: { journalBytes: 10_000 } });
  const first = await post(served.url, { tool: 'one' });
  const long = { name: '\u0001'.repeat(2_000) };
  const { state, keys } = await post(served.url, {
    tool: 'one',
    state: first.state,
    responses: accept(first.keys, long),
  });
  const again = await post(served.url, { tool: 'one', state, responses: accept(keys, { name: 'Ann' }) });
  expect(textOf(again)).toBe('Hello Ann');
});

it('a call whose sealed state would be too long to come back ends with its limit', async () => {
  let runs = 0;
  served = await serveHere(
    () => {
      const server = new McpServer({ name: 'large', version: '1.0.0' });
      server.registerTool('large', {}, async () => {
        await step('charge', () => {
          runs += 1;
          return 'x'.repeat(800_000);
        });
        await server.server.elicitInput({ message: 'go on?', requestedSchema: EMPTY });
        return { content: [] };
      });
      return server;
    },
    { state: 'sealed', secrets: ['a secret of this test that is longer than 32 bytes'] },
  );
  const reply = await post(served.url, { tool: 'large' });
  expect(reply.message.error?.message).toBe('Internal error: this call exceeds a limit of the server');
  expect([runs, reply.state]).toEqual([1, '']);
});

const EMPTY = { type: 'object' as const, properties: {} };
