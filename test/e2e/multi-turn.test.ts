/** SEP-1858 over our server: its frames byte for byte, and SDK v1's Client with our transport. */
import { connect } from 'node:net';
import { join } from 'node:path';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { AwaitClientTransport } from '../../src/client/index.ts';
import { CAPABILITIES, filledIn } from './clients.ts';
import { balance, effectsIn, type Spawned, scratch, spawnServers } from './harness.ts';
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

for (const kind of KINDS) {
  describe.skipIf(kind.down)(`SEP-1858 through two processes on ${kind.name}`, () => {
    const effects = join(scratch(), 'effects');
    let servers: Spawned[] = [];
    beforeAll(async () => {
      servers = await spawnServers('asking-server.ts', 2, { args: kind.args(), env: { EFFECTS: effects } });
    });
    afterAll(() => Promise.all(servers.map((server) => server.kill())));
    const url = (nth: number): string => servers[nth % 2]?.url ?? '';

    /** A session, and what it sends: each request to the other process. */
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
        `event: buffer_input\\nid: (\\S+)_\\d+\\ndata: \\n\\nevent: message\\nid: \\1_\\d+\\ndata: (\\{[^\\n]*"message":"${field}\\?"[^\\n]*\\})\\n\\nevent: input_required\\nid: (\\1_\\d+)\\ndata: \\n\\n$`,
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

    it('asks, disconnects, and goes on with an array in the other process, byte for byte', async () => {
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

    it('asks again for what is missing, ignores what nobody asked, and rejects with errors', async () => {
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
