/** SEP-1858 over our server: its frames byte for byte, and SDK v1's Client with our transport. */
import { connect } from 'node:net';
import { join } from 'node:path';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
  ListToolsRequestSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { AwaitClientTransport } from '../../src/client/index.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import sessionServer from '../fixtures/session-server.ts';
import { some } from '../short.ts';
import { CAPABILITIES, filledIn } from './clients.ts';
import { balance, effectsIn, type Spawned, scratch, serveHere, spawnServers } from './harness.ts';
import { Reader } from './reader.ts';
import { REDIS, REDIS_URL, SQLITE } from './services.ts';
import { TOOLS } from './tools.ts';

const DRAFT = 'DRAFT-SEP-1858';
const KINDS = [
  { name: REDIS.name, down: REDIS.down, args: () => ['--store', REDIS_URL] },
  {
    name: `${REDIS.name}, with a relay`,
    down: REDIS.down,
    args: () => ['--store', REDIS_URL, '--relay', REDIS_URL],
  },
  { name: SQLITE.name, down: false, args: () => ['--store', SQLITE.url()] },
];

interface Raw {
  readonly status: number;
  readonly headers: string;
  readonly body: string;
}

/** One HTTP exchange on a socket of its own; chunked bodies are put together. */
function exchange(url: string, verb: string, headers: Record<string, string>, body = ''): Promise<Raw> {
  const { port, host, pathname } = new URL(url);
  const lines = Object.entries({
    host,
    connection: 'close',
    'content-length': String(Buffer.byteLength(body)),
    ...headers,
  }).map(([name, value]) => `${name}: ${value}`);
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), '127.0.0.1');
    let text = '';
    socket.setEncoding('utf8');
    socket.on('data', (chunk: string) => {
      text += chunk;
      // A server of streams keeps the connection for the next turn.
      if (text.endsWith('\r\n0\r\n\r\n')) socket.end();
    });
    socket.once('error', reject);
    socket.once('close', () => {
      const [head = '', rest = ''] = split(text, '\r\n\r\n');
      const chunked = /transfer-encoding: chunked/i.test(head);
      const status = Number(/^HTTP\/1.1 (\d+)/.exec(head)?.[1]);
      resolve({ status, headers: head, body: chunked ? unchunked(rest) : rest });
    });
    socket.write(`${verb} ${pathname} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n${body}`);
  });
}

function split(text: string, by: string): [string, string] {
  const at = text.indexOf(by);
  return at < 0 ? [text, ''] : [text.slice(0, at), text.slice(at + by.length)];
}

function unchunked(text: string): string {
  let rest = text;
  let body = '';
  for (;;) {
    const [size, after] = split(rest, '\r\n');
    const length = Number.parseInt(size, 16);
    if (!(length > 0)) return body;
    const bytes = Buffer.from(after);
    body += bytes.subarray(0, length).toString();
    rest = bytes.subarray(length + 2).toString();
  }
}

for (const kind of some(KINDS)) {
  describe.skipIf(kind.down)(`SEP-1858 through two processes on ${kind.name}`, () => {
    const effects = join(scratch(), 'effects');
    let servers: Spawned[] = [];
    beforeAll(async () => {
      servers = await spawnServers('asking-server.ts', 2, { args: kind.args(), env: { EFFECTS: effects } });
    });
    afterAll(() => Promise.all(servers.map((server) => server.kill())));
    const url = (nth: number): string => servers[nth % 2]?.url ?? '';

    /** A session whose requests go to the two processes in turn. */
    const session = async (version = DRAFT) => {
      let nth = 0;
      const base = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };
      const params = {
        protocolVersion: version,
        capabilities: { elicitation: {} },
        clientInfo: { name: 'raw', version: '1' },
      };
      const begun = await exchange(
        url(nth++),
        'POST',
        base,
        JSON.stringify({ jsonrpc: '2.0', id: 0, method: 'initialize', params }),
      );
      const id = /mcp-session-id: (\S+)/i.exec(begun.headers)?.[1] ?? '';
      const own = { ...base, 'mcp-session-id': id, 'mcp-protocol-version': version };
      return {
        begun: JSON.parse(begun.body) as { result: { protocolVersion: string } },
        post: (body: unknown, headers: Record<string, string> = {}, to = nth++) =>
          exchange(url(to), 'POST', { ...own, ...headers }, JSON.stringify(body)),
        get: (headers: Record<string, string>, to = nth++) =>
          exchange(url(to), 'GET', { ...own, accept: 'text/event-stream', ...headers }),
      };
    };
    const call = (name: string, id: string | number = 7) => ({
      jsonrpc: '2.0',
      id,
      method: 'tools/call',
      params: { name, arguments: {}, _meta: { progressToken: 'p' } },
    });
    /** The events of a turn that asks for one field. */
    const asked = (body: string, field: string) => {
      const pattern = new RegExp(
        `event: buffer_input\\nid: (\\S+?)_\\d+\\.1\\ndata: \\n\\nevent: message\\nid: \\1_\\d+\\.2\\ndata: (\\{[^\\n]*"message":"${field}\\?"[^\\n]*\\})\\n\\nevent: input_required\\nid: (\\1_\\d+(?:\\.3)?)\\ndata: \\n\\n$`,
      );
      const match = pattern.exec(body);
      if (match === null) throw new Error(`no turn that asks for ${field}: ${body}`);
      const ask = JSON.parse(match[2] ?? '') as { id: string; method: string };
      expect(ask.method).toBe('elicitation/create');
      return { id: ask.id, last: match[3] ?? '', before: body.slice(0, match.index) };
    };
    const answered = (id: string, field: string) => [
      { jsonrpc: '2.0', id, result: { action: 'accept', content: { [field]: `its ${field}` } } },
    ];

    it('asks, disconnects, and continues with an array in the other process, byte for byte', async () => {
      const { begun, post } = await session();
      expect(begun.result.protocolVersion).toBe(DRAFT);
      const first = asked((await post(call('in-turn'))).body, 'name');
      expect(first.before).toBe('');
      const second = asked(
        (await post(answered(first.id, 'name'), { 'last-event-id': first.last })).body,
        'city',
      );
      const third = asked(
        (await post(answered(second.id, 'city'), { 'last-event-id': second.last })).body,
        'street',
      );
      const answer = answered(third.id, 'street');
      const done = await post(answer, { 'last-event-id': third.last });
      const text = 'its name, its city, its street';
      const result = { jsonrpc: '2.0', id: 7, result: { content: [{ type: 'text', text }] } };
      expect(done.headers).toMatch(/content-type: application\/json/i);
      expect(JSON.parse(done.body)).toEqual(result);
      // The same POST again, in either process, and as a stream.
      for (const to of [0, 1]) {
        const again = await post(answer, { 'last-event-id': third.last }, to);
        expect(JSON.parse(again.body)).toEqual(result);
      }
      const streamed = await post(answer, { 'last-event-id': third.last, accept: 'text/event-stream' });
      expect(streamed.body).toMatch(/^event: message\nid: \S+\ndata: \{.*"id":7.*\}\n\n$/);
    });

    it('says what it has to say before, between and after, under the token of the call', async () => {
      const { post } = await session();
      const first = asked((await post(call('notes'))).body, 'name');
      expect(first.before).toContain('"progressToken":"p","progress":1');
      const second = asked(
        (await post(answered(first.id, 'name'), { 'last-event-id': first.last })).body,
        'city',
      );
      expect(second.before).toContain('"progressToken":"p","progress":2');
      expect(second.before).not.toContain('"progress":1');
      const done = await post(answered(second.id, 'city'), { 'last-event-id': second.last });
      expect(done.headers).toMatch(/content-type: text\/event-stream/i);
      expect(done.body).toMatch(/"progress":3[\s\S]*"id":7/);
    });

    it('asks again for missing answers, ignores answers without an ask, and rejects with errors', async () => {
      const { post } = await session();
      const first = await post(call('at-once'));
      const ids = [...first.body.matchAll(/"id":"([^"]+)","method":"elicitation/g)].map(
        (match) => match[1] ?? '',
      );
      const last = /event: input_required\nid: (\S+)/.exec(first.body)?.[1] ?? '';
      expect(ids).toHaveLength(3);
      const some = [...answered(ids[0] ?? '', 'name'), { jsonrpc: '2.0', id: 'nobody', result: {} }];
      const refused = await post(some, { 'last-event-id': last, accept: 'application/json' });
      expect(refused.status).toBe(406);
      const again = await post(some, { 'last-event-id': last });
      expect([...again.body.matchAll(/"method":"elicitation/g)]).toHaveLength(2);
      const one = asked((await post(call('one', 8))).body, 'name');
      const error = { jsonrpc: '2.0', id: one.id, error: { code: -32000, message: 'no user here' } };
      const failed = await post([error], { 'last-event-id': one.last });
      expect(failed.body).toContain('no user here');
      expect(JSON.parse(failed.body)).toMatchObject({ id: 8, result: { isError: true } });
    });

    it('refuses ids that are not good with one sentence, and bodies that are no answers', async () => {
      const { post, get } = await session();
      const other = await session();
      const { id, last } = asked((await post(call('one'))).body, 'name');
      const answer = answered(id, 'name');
      const sentence = 'Invalid or expired Last-Event-ID';
      const before = last.replace(/_(\d+)$/, (_, number) => `_${Number(number) - 1}`);
      for (const [whose, bad] of [
        [{ post, get }, `${last}1`],
        [{ post, get }, 'nonsense'],
        [{ post, get }, 'x'.repeat(2_000)],
        [other, last],
      ] as const) {
        for (const refused of [
          await whose.post(answer, { 'last-event-id': bad }),
          await whose.get({ 'last-event-id': bad }),
        ]) {
          expect([refused.status, JSON.parse(refused.body).error]).toEqual([
            400,
            { code: -32602, message: sentence },
          ]);
        }
      }
      expect((await post(answer, { 'last-event-id': before })).body).toContain(sentence);
      for (const body of [[], { jsonrpc: '2.0', id, result: {} }, [...answer, call('one')]]) {
        const refused = await post(body, { 'last-event-id': last });
        expect([refused.status, JSON.parse(refused.body).error.code]).toEqual([400, -32600]);
      }
      // Nothing of that touched the call.
      const done = await post(answer, { 'last-event-id': last });
      expect(done.body).toContain('Hello its name');
    });

    it('gives the same POST the same stream, at once, afterwards and elsewhere, and repeats no step', async () => {
      const { post } = await session();
      const before = effectsIn(effects).length;
      const first = asked((await post(call('order'))).body, 'address');
      const one = answered(first.id, 'address');
      const twice = await Promise.all([0, 1, 0].map((to) => post(one, { 'last-event-id': first.last }, to)));
      // A newer connection of a stream ends the older one, which may have had nothing by then.
      const whole = twice.filter(({ body }) => body.includes('event: input_required'));
      expect(whole.length).toBeGreaterThan(0);
      const turns = whole.map(({ body }) => asked(body, 'name'));
      const [second = turns[0]] = turns;
      for (const turn of turns) expect(turn).toEqual(second);
      for (const to of [0, 1]) {
        expect(asked((await post(one, { 'last-event-id': first.last }, to)).body, 'name')).toEqual(second);
      }
      const done = await post(answered(second?.id ?? '', 'name'), { 'last-event-id': second?.last ?? '' });
      expect(done.body).toContain('its name, its address, 43');
      // Answered asks are not repeated: the stream continues to its end.
      const late = await post(one, { 'last-event-id': first.last, accept: 'text/event-stream' });
      expect([late.status, late.body]).toEqual([200, expect.stringContaining('"message":"name?"')]);
      const acted = effectsIn(effects).slice(before);
      expect(acted.filter((effect) => effect !== 'finally')).toEqual(['charge', 'ship']);
    });

    it('says 406 where the next ask needs a stream, and loses nothing by it', async () => {
      const { post } = await session();
      const before = effectsIn(effects).length;
      const { id, last } = asked((await post(call('order'))).body, 'address');
      const answer = answered(id, 'address');
      const refused = await post(answer, { 'last-event-id': last, accept: 'application/json' });
      expect(refused.status).toBe(406);
      const next = asked((await post(answer, { 'last-event-id': last })).body, 'name');
      const final = { 'last-event-id': next.last, accept: 'application/json' };
      const done = await post(answered(next.id, 'name'), final);
      expect([done.status, JSON.parse(done.body).id]).toEqual([200, 7]);
      const acted = effectsIn(effects).slice(before);
      expect(acted.filter((effect) => effect !== 'finally')).toEqual(['charge', 'ship']);
    });

    it('tells unknown sessions by 404, and whatever is no array of responses by -32600', async () => {
      const { post, get } = await session();
      const { id, last } = asked((await post(call('one'))).body, 'name');
      const unknown = { 'last-event-id': last, 'mcp-session-id': 'nobody' };
      expect((await post(answered(id, 'name'), unknown)).status).toBe(404);
      expect((await get(unknown)).status).toBe(404);
      const answer = { jsonrpc: '2.0', id, result: {} };
      const note = { jsonrpc: '2.0', method: 'notifications/initialized' };
      for (const body of ['text', null, 7, [5], [[answer]], [answer, note], [{ ...answer, id: null }]]) {
        const refused = await post(body, { 'last-event-id': last });
        expect([refused.status, JSON.parse(refused.body).error.code]).toEqual([400, -32600]);
      }
      // An array is nothing without the id that it answers to.
      for (const body of [[], answered(id, 'name')]) {
        const refused = await post(body);
        expect([refused.status, JSON.parse(refused.body).error.code]).toEqual([400, -32600]);
      }
      expect((await post(answered(id, 'name'), { 'last-event-id': last })).body).toContain('Hello its name');
    });

    it('refuses a request under another version, or none, and a 2025 session under the draft’s', async () => {
      const { post } = await session();
      const { id, last } = asked((await post(call('one'))).body, 'name');
      for (const version of ['2025-11-25', '1999-01-01']) {
        const headers = { 'last-event-id': last, 'mcp-protocol-version': version };
        expect((await post(answered(id, 'name'), headers)).status).toBe(400);
      }
      const old = await session('2025-11-25');
      expect((await old.post(call('one'), { 'mcp-protocol-version': DRAFT })).status).toBe(400);
      expect((await post(answered(id, 'name'), { 'last-event-id': last })).body).toContain('Hello its name');
    });

    it('serves SDK v1’s Client with our transport: every tool, each POST to the other process', async () => {
      const balancer = await balance(servers.map((server) => server.url));
      const client = new Client({ name: 'turns', version: '1' }, { capabilities: CAPABILITIES });
      const users: string[] = [];
      client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
        users.push(params.message);
        return filledIn(params);
      });
      client.setRequestHandler(CreateMessageRequestSchema, () => ({
        role: 'assistant' as const,
        model: 'test',
        content: { type: 'text' as const, text: 'a poem' },
      }));
      client.setRequestHandler(ListRootsRequestSchema, () => ({
        roots: [{ uri: 'file:///home/ann', name: 'home' }],
      }));
      await client.connect(new AwaitClientTransport(new URL(balancer.url), { revision: DRAFT }));
      for (const [tool, text] of TOOLS) {
        const { content } = await client.callTool({ name: tool, arguments: {} });
        expect((content as { text: string }[])[0]?.text).toBe(text);
      }
      const before = effectsIn(effects).length;
      const { content } = await client.callTool({ name: 'order', arguments: {} });
      expect((content as { text: string }[])[0]?.text).toBe('its name, its address, 43');
      const acted = effectsIn(effects).slice(before);
      expect(acted.filter((effect) => effect !== 'finally')).toEqual(['charge', 'ship']);
      // Several calls at once, each on its own stream.
      const many = await Promise.all(
        Array.from({ length: 5 }, () => client.callTool({ name: 'in-turn', arguments: {} })),
      );
      expect(many.map(({ content: blocks }) => (blocks as { text: string }[])[0]?.text)).toEqual(
        Array.from({ length: 5 }, () => 'its name, its city, its street'),
      );
      await client.close();
      await balancer.close();
    });
  });
}

describe('SEP-1858 in one process', () => {
  const HEADERS = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };
  const open = async (url: string, capabilities: object) => {
    const clientInfo = { name: 'raw', version: '1' };
    const params = { protocolVersion: DRAFT, capabilities, clientInfo };
    const body = JSON.stringify({ jsonrpc: '2.0', id: 0, method: 'initialize', params });
    const begun = await fetch(url, { method: 'POST', headers: HEADERS, body });
    const id = begun.headers.get('mcp-session-id') ?? '';
    const headers = { ...HEADERS, 'mcp-session-id': id, 'mcp-protocol-version': DRAFT };
    const post = (message: unknown, more: object = {}) =>
      fetch(url, { method: 'POST', headers: { ...headers, ...more }, body: JSON.stringify(message) });
    return { headers, post };
  };
  const call = (name: string) => ({ jsonrpc: '2.0', id: 7, method: 'tools/call', params: { name } });

  it('has what is asked outside of calls on the standing stream, answered at once by a POST of its own', async () => {
    const served = await serveHere(sessionServer);
    const { headers, post } = await open(served.url, { elicitation: {}, roots: {} });
    await post({ jsonrpc: '2.0', method: 'notifications/initialized' });
    const standing = new Reader(await fetch(served.url, { headers }));
    const { id } = await standing.next(({ method }) => method === 'roots/list');
    expect(standing.text).not.toContain('buffer_input');
    const result = { roots: [{ uri: 'file:///here' }] };
    expect((await post({ jsonrpc: '2.0', id, result })).status).toBe(202);
    const say = async (): Promise<string> => (await post(call('roots'))).text();
    await expect.poll(say).toContain('file:///here');
    expect(standing.over).toBe(false);
    await served.close();
  });

  it('asks between its events in every request in which a server asks', async () => {
    const served = await serveHere(() => {
      const server = new Server({ name: 'lists', version: '1' }, { capabilities: { tools: {} } });
      server.setRequestHandler(ListToolsRequestSchema, async () => {
        const { roots } = await server.listRoots();
        return { tools: [{ name: roots[0]?.name ?? '', inputSchema: { type: 'object' } }] };
      });
      return server;
    });
    const { post } = await open(served.url, { roots: {} });
    const text = await (await post({ jsonrpc: '2.0', id: 8, method: 'tools/list' })).text();
    const events = [...text.matchAll(/^event: (\S+)$/gm)].map(([, name]) => name);
    expect(events).toEqual(['buffer_input', 'message', 'input_required']);
    const id = /"id":"([^"]+)"/.exec(text)?.[1];
    const last = /event: input_required\nid: (\S+)/.exec(text)?.[1] ?? '';
    const answer = [{ jsonrpc: '2.0', id, result: { roots: [{ uri: 'file:///a', name: 'home' }] } }];
    const done = await post(answer, { 'last-event-id': last, accept: 'application/json' });
    expect(await done.json()).toMatchObject({ id: 8, result: { tools: [{ name: 'home' }] } });
    const level = { jsonrpc: '2.0', id: 9, method: 'ping' };
    expect(await (await post(level)).text()).toContain('"id":9');
    await served.close();
  });

  it('gives a response to the POST of the answers alone, and none to a GET with the id of input_required', async () => {
    const served = await serveHere(() => buildServer(() => {}));
    const { headers, post } = await open(served.url, { elicitation: {} });
    const text = await (await post(call('one'))).text();
    const id = /"id":"([^"]+)"/.exec(text)?.[1];
    const last = /event: input_required\nid: (\S+)/.exec(text)?.[1] ?? '';
    const get = async (): Promise<[number, string]> => {
      const reply = await fetch(served.url, { headers: { ...headers, 'last-event-id': last } });
      return [reply.status, await reply.text()];
    };
    expect(await get()).toEqual([200, '']);
    const answers = [{ jsonrpc: '2.0', id, result: { action: 'accept', content: { name: 'Ann' } } }];
    expect(await (await post(answers, { 'last-event-id': last })).text()).toContain('Hello Ann');
    expect(await get()).toEqual([200, '']);
    // The same POST is the same turn, and gets its response.
    expect(await (await post(answers, { 'last-event-id': last })).text()).toContain('Hello Ann');
    await served.close();
  });

  it('is not negotiated where tokens alone keep calls: it has none', async () => {
    const secrets = ['a secret of this test that is longer than 32 bytes'];
    const served = await serveHere(() => buildServer(() => {}), { state: 'sealed', secrets });
    const clientInfo = { name: 'raw', version: '1' };
    const params = { protocolVersion: DRAFT, capabilities: {}, clientInfo };
    const body = JSON.stringify({ jsonrpc: '2.0', id: 0, method: 'initialize', params });
    const begun = await fetch(served.url, { method: 'POST', headers: HEADERS, body });
    expect(await begun.json()).toMatchObject({ result: { protocolVersion: '2025-11-25' } });
    await served.close();
  });

  it('keeps an id of input_required as long as the call lives, and refuses answers without an ask', async () => {
    vi.useFakeTimers({ toFake: ['Date'] });
    const served = await serveHere(() => buildServer(() => {}), { limits: { drain: 50 } });
    const { post } = await open(served.url, { elicitation: {} });
    const text = await (await post(call('one'))).text();
    const last = /event: input_required\nid: (\S+)/.exec(text)?.[1] ?? '';
    const answers = [{ jsonrpc: '2.0', id: 'nobody', result: {} }];
    const again = await (await post(answers, { 'last-event-id': last })).text();
    expect(served.log.text).toContain('"id":"nobody"');
    const next = /event: input_required\nid: (\S+)/.exec(again)?.[1] ?? '';
    expect(next).not.toBe(last);
    vi.setSystemTime(Date.now() + 3_600_001);
    const refused = await post(answers, { 'last-event-id': next });
    expect([refused.status, JSON.parse(await refused.text())]).toMatchObject([
      400,
      { error: { code: -32602, message: 'Invalid or expired Last-Event-ID' } },
    ]);
    vi.useRealTimers();
    await served.close();
  });
});

describe('SEP-1858 with the option literal', () => {
  it('writes its two events as the draft prints them, and our client sees them', async () => {
    const served = await serveHere(() => buildServer(() => {}), {
      revisions: [{ name: DRAFT, literal: true }],
    });
    const balancer = await balance([served.url]);
    const client = new Client({ name: 'literal', version: '1' }, { capabilities: CAPABILITIES });
    client.setRequestHandler(ElicitRequestSchema, ({ params }) => filledIn(params));
    await client.connect(new AwaitClientTransport(new URL(balancer.url), { revision: DRAFT }));
    const { content } = await client.callTool({ name: 'in-turn', arguments: {} });
    expect((content as { text: string }[])[0]?.text).toBe('its name, its city, its street');
    const asked = balancer.posts.find(({ reply }) => reply.includes('buffer_input'))?.reply ?? '';
    expect(asked).toMatch(/^event: buffer_input\nid: \S+\n\nevent: message\n/);
    expect(asked).toMatch(/\n\nevent: input_required\nid: \S+\n\n$/);
    await client.close();
    await balancer.close();
    await served.close();
  });
});
