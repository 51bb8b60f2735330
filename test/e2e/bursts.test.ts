/** Much said at once, to a client that reads as fast as it can; and one that reads nothing of a response. */
import { connect } from 'node:net';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { LoggingMessageNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { afterEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { tuned } from '../../src/call/limits.ts';
import { countTurns, mostInOne } from '../loop-turns.ts';
import { begin, type Session } from './anywhere.ts';
import { type Served, serveHere } from './harness.ts';
import * as workspace from './workspace-wire.ts';

let served: Served;
afterEach(() => served.close());

const WIRES: readonly [string, (url: URL, by?: typeof fetch) => unknown][] = [
  [
    'HTTP+SSE',
    (url, by = fetch) => new SSEClientTransport(new URL(url.href.replace('/mcp', '/sse')), { fetch: by }),
  ],
  ['2025-11-25', (url, by = fetch) => new StreamableHTTPClientTransport(url, { fetch: by })],
];

function talkative(): McpServer {
  const server = new McpServer({ name: 'talkative', version: '1.0.0' }, { capabilities: { logging: {} } });
  server.registerTool('says', { inputSchema: { many: z.number() } }, async ({ many }, extra) => {
    const say = (data: number): Promise<void> =>
      extra.sendNotification({ method: 'notifications/message', params: { level: 'info', data } });
    for (let nth = 0; nth < many; nth += 1) {
      void say(nth);
      // Not more at once than may wait for the store.
      if (nth % 100 === 99) await new Promise(setImmediate);
    }
    return { content: [{ type: 'text', text: 'said' }] };
  });
  server.registerTool('reports', { inputSchema: { many: z.number() } }, async ({ many }, extra) => {
    const turns = countTurns();
    const sent: number[] = [];
    for (let data = 0; data < many; data += 1) {
      await extra.sendNotification({ method: 'notifications/message', params: { level: 'info', data } });
      sent.push(turns.now);
    }
    turns.stop();
    return { content: [{ type: 'text', text: String(mostInOne(sent)) }] };
  });
  server.registerTool('large', {}, () => ({ content: [{ type: 'text', text: 'x'.repeat(30_000_000) }] }));
  return server;
}

const says = (many: number) => ({
  id: 7,
  method: 'tools/call',
  params: { name: 'says', arguments: { many } },
});

describe('a tool that waits for each notification, and for nothing else', () => {
  it.each(WIRES)(
    'lets the event loop go on, and its client have them all: %s',
    async (_wire, transportTo) => {
      served = await serveHere(talkative);
      const client = new Client({ name: 'listener', version: '1' });
      await client.connect(transportTo(new URL(served.url)) as Transport);
      let heard = 0;
      client.setNotificationHandler(LoggingMessageNotificationSchema, () => {
        heard += 1;
      });
      const { content } = (await client.callTool({ name: 'reports', arguments: { many: 2_000 } })) as {
        content: { text: string }[];
      };
      expect(heard).toBe(2_000);
      expect(Number(content[0]?.text)).toBeLessThanOrEqual(32);
      await client.close();
    },
  );
});

it('a tool that waits for none of its notifications delays no other that does', async () => {
  let flood: (() => void) | undefined;
  let end = (): void => {};
  const over = new Promise<void>((resolve) => {
    end = resolve;
  });
  served = await serveHere(() => {
    const server = new McpServer({ name: 'two', version: '1.0.0' }, { capabilities: { logging: {} } });
    const said = { method: 'notifications/message', params: { level: 'info', data: 1 } } as const;
    server.registerTool('floods', {}, async (extra) => {
      flood = () => {
        for (let nth = 0; nth < 6_400; nth += 1) void extra.sendNotification(said);
      };
      await over;
      return { content: [] };
    });
    server.registerTool('waits', {}, async (extra) => {
      const turns = countTurns();
      flood?.();
      for (let nth = 0; nth < 10; nth += 1) await extra.sendNotification(said);
      turns.stop();
      end();
      return { content: [{ type: 'text', text: String(turns.now) }] };
    });
    return server;
  });
  const sessions = [await begin([served], {}), await begin([served], {})];
  const call = (name: string) => ({ id: 1, method: 'tools/call', params: { name, arguments: {} } });
  await sessions[0]?.post(0, call('floods'));
  await expect.poll(() => flood).toBeDefined();
  const stream = await sessions[1]?.post(0, call('waits'));
  const done = await stream?.next(({ id }) => id === 1);
  expect(Number((done?.result?.content as { text: string }[] | undefined)?.[0]?.text)).toBeLessThan(30);
});

it('streams that are resumed at once are sent an entry of a log in a turn of the event loop', async () => {
  const DATA = 'x'.repeat(2_000);
  served = await serveHere(() => {
    const server = new McpServer({ name: 'lengthy', version: '1.0.0' }, { capabilities: { logging: {} } });
    server.registerTool('tells', {}, async (extra) => {
      const params = { level: 'info' as const, data: DATA };
      for (let nth = 0; nth < 300; nth += 1)
        await extra.sendNotification({ method: 'notifications/message', params });
      return { content: [] };
    });
    return server;
  });
  const resumed = await Promise.all(
    Array.from({ length: 8 }, async () => {
      const session = await begin([served], {});
      const params = { name: 'tells', arguments: {} };
      const stream = await session.post(0, { id: 7, method: 'tools/call', params });
      await stream.next(({ id }) => id === 7);
      const first = /^id: (.*)$/m.exec(stream.text)?.[1] ?? '';
      const headers = { ...session.headers, accept: 'text/event-stream', 'last-event-id': first };
      return new Request(served.url, { headers });
    }),
  );
  const turns = countTurns();
  const sent = new Map<number, number>();
  let all = 0;
  await Promise.all(
    resumed.map(async (request) => {
      const { body } = await served.handler.fetch(request);
      for await (const chunk of body ?? []) {
        all += chunk.length;
        sent.set(turns.now, (sent.get(turns.now) ?? 0) + chunk.length);
      }
    }),
  );
  turns.stop();
  expect(all).toBeGreaterThan(8 * 250 * DATA.length);
  expect(Math.max(...sent.values())).toBeLessThan(200_000);
});

describe('many small calls at once', () => {
  it.each(
    WIRES.flatMap(([wire, transportTo]) => [
      [wire, 1, transportTo] as const,
      [wire, 30, transportTo] as const,
    ]),
  )('leave others their turns of the event loop: %s, %i in a body', async (_wire, many, transportTo) => {
    const turns = countTurns();
    const counted: number[] = [];
    const count = (): { content: [] } => {
      counted.push(turns.now);
      return { content: [] };
    };
    served = await serveHere(
      () => {
        const server = new McpServer({ name: 'counts', version: '1.0.0' });
        server.registerTool('count', {}, count);
        return server;
      },
      tuned({ streams: 1_000 }),
    );
    let last: [string, RequestInit?] = [''];
    const client = new Client({ name: 'hasty', version: '1' });
    const noting: typeof fetch = (input, init) => {
      if (init?.method !== 'POST') return fetch(input, init);
      last = [String(input), init];
      // The one revision with arrays.
      const body = String(init.body).replace(/"protocolVersion":"[^"]+"/, '"protocolVersion":"2025-03-26"');
      return fetch(input, { ...init, body });
    };
    await client.connect(transportTo(new URL(served.url), noting) as Transport);
    const [url, init] = last;
    const params = { name: 'count', arguments: {} };
    const calls = (first: number): object[] =>
      Array.from({ length: many }, (_, nth) => ({
        jsonrpc: '2.0',
        id: first + nth,
        method: 'tools/call',
        params,
      }));
    const replies = Array.from({ length: 300 / many }, (_, nth) => {
      const [only, ...others] = calls(100 + nth * many);
      const body = JSON.stringify(others.length > 0 ? [only, ...others] : only);
      return served.handler.fetch(new Request(url, { ...init, body }));
    });
    await expect.poll(() => counted.length).toBe(300);
    turns.stop();
    expect(mostInOne(counted)).toBeLessThanOrEqual(8);
    for (const reply of await Promise.all(replies)) await reply.body?.cancel();
    await client.close();
  });
});

describe('a burst of more events than are kept', () => {
  it.each(['2025-11-25', 'DRAFT-SEP-1858'])('reaches a client of %s, with its result', async (version) => {
    served = await serveHere(talkative);
    const session: Session = await begin([served], {}, undefined, version);
    const stream = await session.post(0, says(2_000));
    const done = await stream.next(({ id }) => id === 7);
    expect(done.result?.content).toEqual([{ type: 'text', text: 'said' }]);
    expect(stream.messages).toHaveLength(2_001);
  });

  it('reaches a client of workspace-sse, with its result', async () => {
    served = await serveHere(talkative);
    const body = await workspace.post(`${served.url}/acme`, says(2_000));
    expect(workspace.textOf(await body.response(7))).toBe('said');
    expect(body.events.filter(({ event }) => event === 'notification')).toHaveLength(2_000);
  });

  it('does not cost its client the result, where more is said at once than may wait', async () => {
    served = await serveHere(talkative, { ...tuned({ streamEvents: 20 }) });
    const session = await begin([served], {});
    const stream = await session.post(0, says(100));
    expect((await stream.next(({ id }) => id === 7)).result?.content).toEqual([
      { type: 'text', text: 'said' },
    ]);
  });
});

it('a client of workspace-sse that reads nothing of its response is disconnected', async () => {
  served = await serveHere(talkative, { ...tuned({ stalled: 500 }) });
  const { port, pathname } = new URL(`${served.url}/acme`);
  const body = JSON.stringify({ jsonrpc: '2.0', ...workspace.call(1, 'large') });
  const socket = connect(Number(port), '127.0.0.1');
  socket.pause();
  const head = `POST ${pathname} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n`;
  socket.write(`${head}accept: text/event-stream\r\ncontent-length: ${body.length}\r\n\r\n${body}`);
  await expect.poll(() => served.handler.counters.brokenStreams).toBe(1);
  socket.destroy();
});

it('says which limit is met where a session has too many streams', async () => {
  served = await serveHere(talkative, { ...tuned({ streams: 1 }) });
  const session = await begin([served], {});
  await session.post(0, { id: 1, method: 'ping' });
  const streams = await Promise.all([2, 3, 4].map((id) => session.post(0, { ...says(50_000), id })));
  for (const stream of streams) await expect.poll(() => stream.over).toBe(true);
  const refused = streams.find(({ status }) => status === 429);
  expect(JSON.parse(refused?.text ?? '{}').error?.message).toContain('exceeds a limit of the server');
});
