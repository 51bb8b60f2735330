/** Streamable HTTP of the 2025 revisions, by hand: sessions at any process, streams, and refusals. */
import Keyv from 'keyv';
import { afterEach, describe, expect, it } from 'vitest';
import { tuned } from '../../src/call/limits.ts';
import { createAwaitHandler } from '../../src/index.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { CAPABILITIES, messagesIn, type Rpc } from './clients.ts';
import { LogBook, SECRET, type Served, serveHere } from './harness.ts';

const servers: Served[] = [];
afterEach(async () => {
  for (const served of servers.splice(0)) await served.close();
});

async function serve(options: Parameters<typeof createAwaitHandler>[1] = {}): Promise<Served> {
  const served = await serveHere(() => buildServer(() => {}), { secrets: [SECRET], ...options });
  servers.push(served);
  return served;
}

const BOTH = 'application/json, text/event-stream';

interface Reply {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  readonly messages: Rpc[];
}

async function request(
  url: string,
  method: string,
  body?: unknown,
  headers: Record<string, string> = {},
): Promise<Reply> {
  const response = await fetch(url, {
    method,
    headers: { accept: BOTH, ...(body !== undefined && { 'content-type': 'application/json' }), ...headers },
    ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  });
  const text = await response.text();
  return { status: response.status, headers: response.headers, text, messages: messagesIn(text) };
}

function initialize(version = '2025-11-25', capabilities: object = CAPABILITIES) {
  const params = { protocolVersion: version, capabilities, clientInfo: { name: 'raw', version: '1' } };
  return { jsonrpc: '2.0', id: 1, method: 'initialize', params };
}

async function startSession(url: string, version?: string, capabilities?: object): Promise<string> {
  const { headers, status } = await request(url, 'POST', initialize(version, capabilities));
  expect(status).toBe(200);
  return headers.get('mcp-session-id') ?? '';
}

const LIST = { jsonrpc: '2.0', id: 2, method: 'tools/list' };

describe('a session', () => {
  it.each(['2025-03-26', '2025-06-18', '2025-11-25'])('of %s is served, by its own word', async (version) => {
    const { url } = await serve();
    const reply = await request(url, 'POST', initialize(version));
    expect(reply.messages[0]?.result?.protocolVersion).toBe(version);
    expect(reply.headers.get('mcp-session-id')).toMatch(/^[\x21-\x7e]+$/);
  });

  it('of an unknown version gets the latest one', async () => {
    const { url } = await serve();
    const reply = await request(url, 'POST', initialize('2099-01-01'));
    expect(reply.messages[0]?.result?.protocolVersion).toBe('2025-11-25');
  });

  it.each([
    ['in its id', CAPABILITIES],
    [
      'by reference, where its client tells much',
      { ...CAPABILITIES, experimental: { much: { text: 'x'.repeat(4_000) } } },
    ],
  ])(
    'is served by a process that has never seen it (%s), and not after its end',
    async (_name, capabilities) => {
      const store = new Keyv();
      const [here, there] = [await serve({ store }), await serve({ store })];
      const session = await startSession(here.url, '2025-11-25', capabilities);
      expect(session.length).toBeLessThan(3_000);
      const headers = { 'mcp-session-id': session, 'mcp-protocol-version': '2025-11-25' };
      const listed = await request(there.url, 'POST', LIST, headers);
      expect(listed.messages.at(-1)?.result?.tools).toBeDefined();
      expect((await request(here.url, 'DELETE', undefined, headers)).status).toBe(200);
      expect((await request(here.url, 'POST', LIST, headers)).status).toBe(404);
      const fresh = await serve({ store });
      expect((await request(fresh.url, 'POST', LIST, headers)).status).toBe(404);
    },
  );

  it('of another caller, damaged, or of another secret is not found', async () => {
    const { url } = await serve();
    const other = await serve({ secrets: ['another secret, just as long as the first'] });
    const session = await startSession(url);
    const of = (id: string, more = {}) => ({ 'mcp-session-id': id, ...more });
    expect((await request(url, 'POST', LIST, of(session, { authorization: 'Bearer eve' }))).status).toBe(404);
    expect((await request(url, 'POST', LIST, of(`${session}x`))).status).toBe(404);
    expect((await request(other.url, 'POST', LIST, of(session))).status).toBe(404);
    expect((await request(url, 'POST', LIST, of(session))).status).toBe(200);
  });
});

describe('a request', () => {
  it('without a session, with another version, or that accepts no stream, is refused', async () => {
    const { url } = await serve();
    const session = await startSession(url);
    const of = (more: Record<string, string>) => ({ 'mcp-session-id': session, ...more });
    expect((await request(url, 'POST', LIST)).status).toBe(400);
    expect((await request(url, 'POST', LIST, of({ 'mcp-protocol-version': '1999-01-01' }))).status).toBe(400);
    expect((await request(url, 'POST', LIST, of({ accept: 'application/json' }))).status).toBe(406);
    expect((await request(url, 'POST', 'x', of({ 'content-type': 'text/plain' }))).status).toBe(415);
    expect((await request(url, 'PUT', LIST, of({}))).status).toBe(405);
    for (const body of [
      [],
      [1],
      { jsonrpc: '1.0', id: 1, method: 'ping' },
      { jsonrpc: '2.0', id: 1 },
      'null',
      '7',
    ]) {
      const refused = await request(url, 'POST', body, of({}));
      expect({ status: refused.status, code: refused.messages[0]?.error?.code }).toEqual({
        status: 400,
        code: -32600,
      });
    }
  });

  it('is answered on its own stream, each event with an id, primed on 2025-11-25', async () => {
    const { url } = await serve({ ...tuned({ heldReply: 0 }) });
    const session = await startSession(url);
    const replies = await Promise.all(
      [5, 6, 7].map((id) => request(url, 'POST', { ...LIST, id }, { 'mcp-session-id': session })),
    );
    const streams = replies.map(({ text }) => [...text.matchAll(/^id: (.+)_(\d+)$/gm)]);
    for (const ids of streams) expect(ids.map((match) => match[2])).toEqual(['1', '2']);
    expect(new Set(streams.map((ids) => ids[0]?.[1])).size).toBe(3);
    expect(replies.map(({ messages }) => messages.at(-1)?.id)).toEqual([5, 6, 7]);
    expect(replies[0]?.text).toMatch(/retry: \d+\n/);
  });

  it('in a batch shares one stream with the others (2025-03-26)', async () => {
    const { url } = await serve();
    const session = await startSession(url, '2025-03-26');
    const batch = [
      { ...LIST, id: 'a' },
      { jsonrpc: '2.0', id: 'b', method: 'ping' },
    ];
    const reply = await request(url, 'POST', batch, { 'mcp-session-id': session });
    expect(reply.messages.map(({ id }) => id).sort()).toEqual(['a', 'b']);
  });

  it('under an id that is in work is refused', async () => {
    const { url } = await serve();
    const session = await startSession(url);
    const twice = [LIST, LIST];
    const reply = await request(url, 'POST', twice, { 'mcp-session-id': session });
    expect({ status: reply.status, code: reply.messages[0]?.error?.code }).toEqual({
      status: 400,
      code: -32600,
    });
  });
});

describe('a stream', () => {
  it('continues under a GET with Last-Event-ID, from where it was, and within its session alone', async () => {
    const { url } = await serve({ ...tuned({ heldReply: 0 }) });
    const session = await startSession(url);
    const headers = { 'mcp-session-id': session };
    const { text } = await request(url, 'POST', LIST, headers);
    const [first] = text.match(/^id: (.+)$/m)?.slice(1) ?? [];
    const again = await request(url, 'GET', undefined, { ...headers, 'last-event-id': first ?? '' });
    expect(again.messages.map(({ id }) => id)).toEqual([2]);
    const other = await startSession(url);
    for (const id of [first ?? '', `${first}9`, 'x_1', 'nonsense', `${'x'.repeat(5_000)}_1`]) {
      const refused = await request(url, 'GET', undefined, { 'mcp-session-id': other, 'last-event-id': id });
      expect({ status: refused.status, error: refused.messages[0]?.error }).toEqual({
        status: 400,
        error: { code: -32602, message: 'Invalid or expired Last-Event-ID' },
      });
    }
  });

  it('without Last-Event-ID is the standing one, which a newer one ends', async () => {
    const { url } = await serve();
    const session = await startSession(url);
    const headers = { accept: 'text/event-stream', 'mcp-session-id': session };
    const older = await fetch(url, { headers });
    const newer = await fetch(url, { headers });
    expect(await older.text()).not.toContain('data: {');
    const gone = new AbortController();
    expect(newer.status).toBe(200);
    gone.abort();
    await newer.body?.cancel();
  });
});

describe('handler.close', () => {
  it('ends streams, and refuses what comes after', async () => {
    const log = new LogBook();
    const handler = createAwaitHandler(() => buildServer(() => {}), { secrets: [SECRET], logger: log });
    await handler.close();
    const reply = await handler.fetch(new Request('http://localhost/mcp', { method: 'POST' }));
    expect(reply.status).toBe(503);
  });
});
