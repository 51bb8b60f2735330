/** A pipe whose streams break while it is open: it reads on itself, since its client sees nothing of that. */
import { expect, it, vi } from 'vitest';
import type { Inbound, SentReply, Writer } from '../../../src/doors/http/exchange.ts';
import { Pipe } from '../../../src/doors/pipe/pipe.ts';

interface Stream {
  readonly last: string | undefined;
  readonly writer: Writer;
}

/** A pipe to a server that replies to each GET as `replies` says, by turns; then by a stream. */
function opened(replies: readonly number[] = []) {
  const sent: string[] = [];
  const streams: Stream[] = [];
  const statuses = [...replies];
  const serve = async (inbound: Inbound): Promise<SentReply> => {
    if (inbound.method === 'GET') {
      const status = statuses.shift() ?? 200;
      if (status !== 200) return { status, headers: {}, body: '' };
      const body = (writer: Writer): void => {
        streams.push({ last: inbound.header('last-event-id'), writer });
      };
      return { status, headers: {}, body } as unknown as SentReply;
    }
    const result = { protocolVersion: '2025-11-25', capabilities: {}, serverInfo: {} };
    const begins = (await inbound.text(100_000, (() => {}) as never)).includes('"initialize"');
    const body = begins ? JSON.stringify({ jsonrpc: '2.0', id: 1, result }) : '';
    return { status: begins ? 200 : 202, headers: { 'mcp-session-id': 's' }, body } as SentReply;
  };
  const end = {
    send: (text: string) => sent.push(text) > 0,
    unsent: 0,
    onDrain: () => {},
    destroy: () => {},
  };
  const pipe = new Pipe({ serve, source: {} as never, end, resumable: false });
  const begin = async (): Promise<void> => {
    pipe.receive('{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}');
    await vi.waitFor(() => expect(sent).toHaveLength(1));
    pipe.receive('{"jsonrpc":"2.0","method":"notifications/initialized"}');
    await vi.waitFor(() => expect(streams.length + replies.length - statuses.length).toBeGreaterThan(0));
  };
  return { pipe, sent, streams, begin };
}

/** A pipe whose messages hold ten values at most, to a server that is too busy to read any. */
function refusing(): { pipe: Pipe; sent: { id: unknown; error: { code: number; message: string } }[] } {
  const sent: ReturnType<typeof refusing>['sent'] = [];
  const busy = JSON.stringify({ jsonrpc: '2.0', id: null, error: { code: -32000, message: 'busy' } });
  const serve = async (): Promise<SentReply> => ({ status: 503, headers: {}, body: busy }) as SentReply;
  const send = (text: string) => sent.push(JSON.parse(text)) > 0;
  const end = { send, unsent: 0, onDrain: () => {}, destroy: () => {} };
  return { pipe: new Pipe({ serve, source: {} as never, end, resumable: false, mostValues: 10 }), sent };
}

const MANY = { name: 'any', arguments: { id: 5, more: Array.from({ length: 400 }, () => 1) } };
it.each([
  ['before all else', (id: unknown) => ({ id, jsonrpc: '2.0', method: 'tools/call', params: MANY })],
  ['before its params', (id: unknown) => ({ jsonrpc: '2.0', method: 'tools/call', id, params: MANY })],
  ['after them', (id: unknown) => ({ method: 'tools/call', params: MANY, jsonrpc: '2.0', id })],
  ['last but one', (id: unknown) => ({ method: 'tools/call', params: MANY, id, jsonrpc: '2.0' })],
])('tells whose request it refuses before it is parsed: its id is %s', (_where, requestOf) => {
  for (const id of [7, 0, -3, 'a', 'é "quoted"', `x${'y'.repeat(300)}`]) {
    for (const space of [0, 2]) {
      const { pipe, sent } = refusing();
      pipe.receive(JSON.stringify(requestOf(id), undefined, space));
      expect(sent).toMatchObject([{ id, error: { message: expect.stringContaining('Too Large') } }]);
    }
  }
});

it('tells whose request could not be read, and nothing of an id that stands elsewhere', async () => {
  const { pipe, sent } = refusing();
  pipe.receive('{"jsonrpc":"2.0","id":"a","method":"tools/list"}');
  await vi.waitFor(() => expect(sent).toMatchObject([{ id: 'a', error: { message: 'busy' } }]));
  for (const params of [MANY, { ...MANY, id: 6 }]) {
    pipe.receive(JSON.stringify({ jsonrpc: '2.0', method: 'tools/call', params, more: 1 }));
    pipe.receive(JSON.stringify([{ jsonrpc: '2.0', id: 3, method: 'tools/call', params }]));
  }
  expect(sent.slice(1).map(({ id }) => id)).toEqual([null, null, null, null]);
});

const event = (id: string, data: object): string =>
  `id: ${id}\nevent: message\ndata: ${JSON.stringify(data)}\n\n`;

it('reads a session’s own stream on where the store failed, from what came last', async () => {
  const { pipe, sent, streams, begin } = opened();
  await begin();
  streams[0]?.writer.write(event('x_1', { jsonrpc: '2.0', method: 'notifications/one' }));
  streams[0]?.writer.end(true);
  await vi.waitFor(() => expect(streams).toHaveLength(2), { timeout: 60_000 });
  expect(streams[1]?.last).toBe('x_1');
  streams[1]?.writer.write(event('x_2', { jsonrpc: '2.0', method: 'notifications/two' }));
  expect(sent.at(-1)).toContain('notifications/two');
  await pipe.end(false);
});

it('tries again while the server cannot, and from new events where the last was deleted', async () => {
  const { pipe, streams, begin } = opened([200, 503, 400]);
  await begin();
  streams[0]?.writer.write(event('x_1', { jsonrpc: '2.0', method: 'notifications/one' }));
  streams[0]?.writer.end(true);
  await vi.waitFor(() => expect(streams).toHaveLength(2), { timeout: 60_000 });
  expect(streams[1]?.last).toBeUndefined();
  await pipe.end(false);
});

it('reads nothing on that another connection has, nor once it is over', async () => {
  const { pipe, streams, begin } = opened();
  await begin();
  streams[0]?.writer.end();
  const other = opened();
  await other.begin();
  other.streams[0]?.writer.end(true);
  await other.pipe.end(false);
  await new Promise((resolve) => setTimeout(resolve, 1_300));
  expect([streams.length, other.streams.length]).toEqual([1, 1]);
  await pipe.end(false);
});
