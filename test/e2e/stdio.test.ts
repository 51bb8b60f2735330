/** One pipe, every revision: `serve --stdio`, `proxy --stdio` and `createStdio`, for the official clients. */

import process from 'node:process';
import { createInterface } from 'node:readline';
import { PassThrough } from 'node:stream';
import { StdioClientTransport as ModernStdio } from '@modelcontextprotocol/client/stdio';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { describe, expect, it } from 'vitest';
import { createStdio } from '../../src/stdio.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { SHORT, some } from '../short.ts';
import { legacyOver, modernOver, type TestClient } from './clients.ts';
import { LogBook } from './harness.ts';
import { fixture, PYTHON } from './proxied.ts';

const CLI = new URL('../../dist/src/cli/main.js', import.meta.url).pathname;

/** The asking tools of the examples, with what each comes to. */
const EXAMPLES: readonly (readonly [
  string,
  readonly (readonly [string, Record<string, unknown>, string])[],
])[] = [
  ['booking/server.ts', [['book_flight', { to: 'Rome' }, 'Booked a flight to Rome on its day.']]],
  ['booking/with-steps.ts', [['book_flight', { to: 'Rome' }, 'Booked seat 12A to Rome on its day']]],
  [
    'work-item/server.ts',
    [
      [
        'update_work_item',
        { id: 4522, fields: { State: 'Resolved' } },
        'State = Resolved, Resolution = Duplicate, DuplicateOf = its DuplicateOf.',
      ],
    ],
  ],
  [
    'side-by-side.ts',
    [
      ['greet_await', {}, 'Hello, its name!'],
      ['greet_input_required', {}, 'Hello, its name!'],
    ],
  ],
];

type Connect = (args: readonly string[]) => Promise<TestClient>;
const params = (args: readonly string[]) => ({
  command: process.execPath,
  args: [CLI, ...args],
  stderr: 'ignore' as const,
});
const CLIENTS: readonly (readonly [string, Connect])[] = [
  ['SDK v1', (args) => legacyOver(new StdioClientTransport(params(args)))],
  ['SDK v2 pinned to 2026-07-28', (args) => modernOver(new ModernStdio(params(args)))],
  ['SDK v2 that finds out', (args) => modernOver(new ModernStdio(params(args)), {}, 'auto')],
  ['SDK v2 as it meets servers of 2025', (args) => modernOver(new ModernStdio(params(args)), {}, 'legacy')],
];

describe.concurrent.each(some(CLIENTS))('on stdio %s', (_name, connect) => {
  it('completes every asking tool, prompt and resource of a module', async () => {
    const client = await connect(['serve', fixture('asking-server.ts'), '--stdio']);
    expect(await client.tool('one')).toBe('Hello its name');
    expect(await client.tool('in-turn')).toBe('its name, its city, its street');
    expect(await client.tool('at-once')).toBe('its name, its city, its street');
    expect(await client.tool('by-extra')).toBe('Hello its name');
    expect(await client.tool('link')).toBe('link: accept');
    expect(await client.tool('sample')).toBe('a poem');
    expect(await client.tool('roots')).toBe('file:///home/ann');
    expect(await client.tool('order')).toContain('its name, its address');
    expect(await client.tool('throws')).toContain('out of paper');
    expect(await client.tool('notes')).toBe('its name of its city');
    // The SDKs' clients forget progress that comes in one chunk with the result.
    expect(client.logged).toEqual(['note 1', 'note 2', 'note 3']);
    expect(await client.prompt('greet')).toBe('Greet its name');
    expect(await client.resource('diary://today')).toBe('Dear its name');
    await client.close();
  });

  it.skipIf(SHORT)('completes the asking tools of a Python server behind the proxy', async () => {
    const client = await connect(['proxy', '--stdio', '--', ...PYTHON]);
    expect(await client.tool('order')).toBe('its name of its city');
    expect(await client.tool('poem')).toBe('a poem');
    expect(await client.prompt('greeting')).toBe('Greet its name');
    await client.close();
  });
});

// The clients pinned and automatic; the fourth one speaks as the first does.
describe.concurrent.each(CLIENTS.slice(0, 3))('on stdio %s', (_name, connect) => {
  it.skipIf(SHORT).each(EXAMPLES)('completes the asking tools of examples/%s', async (example, calls) => {
    const client = await connect(['serve', fixture(`../../examples/${example}`), '--stdio']);
    for (const [tool, args, text] of calls) expect(await client.tool(tool, args)).toContain(text);
    await client.close();
  });
});

it('carries nothing but the protocol, whatever a tool prints', async () => {
  const transport = new StdioClientTransport(params(['serve', fixture('printing-server.mjs'), '--stdio']));
  const client = await legacyOver(transport);
  const errors: unknown[] = [];
  const { onerror } = transport;
  transport.onerror = (error) => {
    errors.push(error);
    onerror?.(error);
  };
  expect(await client.tool('prints')).toBe('printed');
  expect(errors).toEqual([]);
  await client.close();
});

describe('createStdio', () => {
  const served = () => {
    const [stdin, stdout, log] = [new PassThrough(), new PassThrough(), new LogBook()];
    const server = createStdio(() => buildServer(() => {}), { stdin, stdout, logger: log });
    let text = '';
    stdout.on('data', (chunk) => {
      text += String(chunk);
    });
    const messages = (): Record<string, unknown>[] =>
      text
        .trim()
        .split('\n')
        .filter(Boolean)
        .map((line) => JSON.parse(line));
    return {
      server,
      stdin,
      stdout,
      messages,
      say: (message: unknown) =>
        stdin.write(`${typeof message === 'string' ? message : JSON.stringify(message)}\n`),
    };
  };

  it('answers what is no JSON, no message, and comes too early', async () => {
    const { server, say, messages, stdin } = served();
    say('{"not json');
    await expect.poll(messages).toMatchObject([{ id: null, error: { code: -32700 } }]);
    say({ jsonrpc: '2.0', id: 1, method: 'tools/list' });
    await expect.poll(() => messages().length).toBe(2);
    expect(messages()[1]).toMatchObject({ id: 1, error: { code: -32000 } });
    stdin.end();
    await server.closed;
  });

  it('ends when its client closes its end, with a call that waits for an answer', async () => {
    const { server, say, messages, stdin } = served();
    const clientInfo = { name: 'x', version: '1' };
    const capabilities = { elicitation: {} };
    say({
      jsonrpc: '2.0',
      id: 0,
      method: 'initialize',
      params: { protocolVersion: '2025-06-18', capabilities, clientInfo },
    });
    await expect.poll(messages).toHaveLength(1);
    say({ jsonrpc: '2.0', method: 'notifications/initialized' });
    say({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'one', arguments: {} } });
    await expect.poll(() => messages().some(({ method }) => method === 'elicitation/create')).toBe(true);
    stdin.end();
    await server.closed;
  });

  it('waits once for stdout to drain, however many streams its client has open', async () => {
    const { server, say, messages, stdin, stdout } = served();
    const params = {
      protocolVersion: '2025-06-18',
      capabilities: { elicitation: {} },
      clientInfo: { name: 'x', version: '1' },
    };
    say({ jsonrpc: '2.0', id: 0, method: 'initialize', params });
    await expect.poll(messages).toHaveLength(1);
    const before = stdout.listenerCount('drain');
    for (let id = 1; id <= 20; id += 1)
      say({ jsonrpc: '2.0', id, method: 'tools/call', params: { name: 'one', arguments: {} } });
    await expect
      .poll(() => messages().filter(({ method }) => method === 'elicitation/create').length)
      .toBe(20);
    expect(stdout.listenerCount('drain')).toBe(before);
    stdin.end();
    await server.closed;
  });

  it.each([
    ['a method', '\u0000', '2026-07-28'],
    ['a revision', 'tools/list', '\ud800'],
  ])('refuses %s that no header can hold, without an internal error', async (_what, method, revision) => {
    const { server, say, messages, stdin } = served();
    const _meta = {
      'io.modelcontextprotocol/protocolVersion': revision,
      'io.modelcontextprotocol/clientInfo': { name: 'x', version: '1' },
      'io.modelcontextprotocol/clientCapabilities': {},
    };
    say({ jsonrpc: '2.0', id: 1, method, params: { _meta } });
    await expect.poll(messages).toMatchObject([{ id: 1, error: { code: -32020 } }]);
    stdin.end();
    await server.closed;
  });

  it('carries a result longer than 64 KiB, on both eras', async () => {
    const [stdin, stdout] = [new PassThrough(), new PassThrough()];
    const long = 'x'.repeat(200_000);
    const server = createStdio(
      () => {
        const made = new McpServer({ name: 'long', version: '1.0.0' });
        made.registerTool('talk', { description: long }, () => ({ content: [{ type: 'text', text: long }] }));
        return made;
      },
      { stdin, stdout, logger: new LogBook() },
    );
    const answers = createInterface({ input: stdout })[Symbol.asyncIterator]();
    const ask = async (id: number, method: string, params: object): Promise<unknown> => {
      stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id, method, params })}\n`);
      return JSON.parse((await answers.next()).value ?? '');
    };
    const clientInfo = { name: 'x', version: '1' };
    const _meta = {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientInfo': clientInfo,
      'io.modelcontextprotocol/clientCapabilities': {},
    };
    const tools = { result: { tools: [{ name: 'talk', description: long }] } };
    const result = { result: { content: [{ text: long }] } };
    expect(await ask(1, 'tools/list', { _meta })).toMatchObject({ id: 1, ...tools });
    expect(await ask(2, 'tools/call', { name: 'talk', _meta })).toMatchObject({ id: 2, ...result });
    await ask(3, 'initialize', { protocolVersion: '2025-11-25', capabilities: {}, clientInfo });
    expect(await ask(4, 'tools/list', {})).toMatchObject({ id: 4, ...tools });
    expect(await ask(5, 'tools/call', { name: 'talk' })).toMatchObject({ id: 5, ...result });
    stdin.end();
    await server.closed;
  });

  it('refuses a message that is too long, and ends', async () => {
    const [stdin, stdout] = [new PassThrough(), new PassThrough()];
    const server = createStdio(() => buildServer(() => {}), {
      stdin,
      stdout,
      logger: new LogBook(),
      limits: { bodyBytes: 1_000 },
    });
    stdin.write(`"${'x'.repeat(5_000)}`);
    await server.closed;
    expect(String(stdout.read())).toContain('too long');
  });
});
