/** The event streams of POSTs on the 2025 revisions: several at once, short ones, failing ones, compressed ones. */
import { createServer, request } from 'node:http';
import { connect } from 'node:net';
import { createGunzip } from 'node:zlib';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { afterEach, describe, expect, it } from 'vitest';
import { tuned } from '../../src/call/limits.ts';
import { createAwaitHandler } from '../../src/index.ts';
import { toNodeHandler } from '../../src/node.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { answer, asks, begin, call } from './anywhere.ts';
import { messagesIn } from './clients.ts';
import { LogBook, listen, type Served, serveHere, shut } from './harness.ts';

let served: Served | undefined;
afterEach(async () => {
  await served?.close();
  served = undefined;
});
const start = async (): Promise<Served> => {
  served = await serveHere(() => buildServer(() => {}));
  return served;
};

/** Says forty megabytes, far more than the sockets of a connection hold. */
function flooding(): McpServer {
  const server = new McpServer({ name: 'flooding', version: '1' }, { capabilities: { logging: {} } });
  server.registerTool('flood', {}, async () => {
    for (let nth = 0; nth < 400; nth += 1) {
      await server.sendLoggingMessage({ level: 'info', data: 'x'.repeat(100_000) });
    }
    return { content: [] };
  });
  return server;
}

describe('the streams of POSTs', () => {
  it('are each on their own, however many there are', async () => {
    const session = await begin([await start()]);
    const many = Array.from({ length: 20 }, (_, nth) => `n${nth}`);
    const streams = await Promise.all(
      many.map((id) =>
        session.post(0, { ...call('echo'), id, params: { name: 'echo', arguments: { word: id } } }),
      ),
    );
    const open = await Promise.all(streams.map((stream) => stream.next(asks('name'))));
    expect(new Set(open.map(({ id }) => id)).size).toBe(many.length);
    // Answered in another order than they were asked in.
    for (const ask of open.toReversed()) await session.post(0, answer(ask, 'name'));
    for (const [nth, stream] of streams.entries()) {
      const done = await stream.next(({ id }) => id === many[nth]);
      expect(done.result?.content?.[0]?.text).toBe(`n${nth} its name`);
      expect(stream.messages).toHaveLength(2);
      await expect.poll(() => stream.over).toBe(true);
    }
    expect(served?.handler.counters).toMatchObject({
      calls: 20,
      postStreams: 20,
      getStreams: 0,
      brokenStreams: 0,
    });
  });

  it('carry short replies and errors as well, as one event without an id', async () => {
    const session = await begin([await start()]);
    for (const [message, wanted] of [
      [{ method: 'tools/list', params: {} }, { result: { tools: expect.anything() } }],
      [{ method: 'ping', params: {} }, { result: {} }],
      [{ method: 'no/such', params: {} }, { error: { code: -32601 } }],
      [{ method: 'tools/call', params: { name: 'none' } }, { result: { isError: true } }],
      [{ method: 'tools/call', params: { name: 7 } }, { error: { code: expect.any(Number) } }],
    ] as const) {
      const stream = await session.post(0, { id: 3, ...message });
      expect(stream.status).toBe(200);
      await expect.poll(() => stream.over).toBe(true);
      const events = stream.text.split('\n\n').filter((block) => block !== '');
      expect(events).toHaveLength(1);
      expect(events[0]).not.toMatch(/^id:/m);
      expect(messagesIn(stream.text).at(-1)).toMatchObject({ id: 3, ...wanted });
    }
    expect(served?.handler.counters).toMatchObject({ postStreams: 5, errors: 2 });
  });

  it('end right after the response, resumed ones too; the standing one stays, and has nothing of a call', async () => {
    const session = await begin([await start()]);
    const standing = await session.get(0);
    const stream = await session.post(0, call('one'));
    const ask = await stream.next(asks('name'));
    const resumed = await session.get(0, stream.last);
    await session.post(0, answer(ask, 'name'));
    await resumed.next(({ id }) => id === 7);
    await expect.poll(() => [stream.over, resumed.over]).toEqual([true, true]);
    expect(resumed.text.trimEnd().endsWith('}')).toBe(true);
    // The newer connection has the stream, and each message goes to one alone.
    expect(stream.messages.some(({ id }) => id === 7)).toBe(false);
    const after = await session.get(0, resumed.last);
    await expect.poll(() => after.over).toBe(true);
    expect(after.messages).toEqual([]);
    expect([standing.over, standing.messages]).toEqual([false, []]);
  });

  it.each([0, 100])(
    'may be closed by their server after %i ms, and are gone on with by GET',
    async (wait) => {
      served = await serveHere(() => {
        const server = new McpServer({ name: 'polled', version: '1' });
        server.registerTool('long', {}, async (extra) => {
          if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait));
          extra.closeSSEStream?.();
          await new Promise((resolve) => setTimeout(resolve, 300));
          return { content: [{ type: 'text', text: 'at last' }] };
        });
        return server;
      });
      const session = await begin([served]);
      const stream = await session.post(0, call('long'));
      await expect.poll(() => stream.over).toBe(true);
      // It was primed, with an id and when to come back.
      expect(stream.text).toMatch(/^id: \S+\nretry: \d+\ndata: ?\n\n(: .*\n\n)?$/);
      const again = await session.get(0, stream.last);
      const { result } = await again.next(({ id }) => id === 7);
      expect(result?.content?.[0]?.text).toBe('at last');
      await expect.poll(() => again.over).toBe(true);
    },
  );

  it('are counted apart: of a POST, of a GET, resumed, and broken off', async () => {
    const session = await begin([await start()]);
    const stream = await session.post(0, call('one'));
    const ask = await stream.next(asks('name'));
    await session.get(0);
    const again = await session.get(0, stream.last);
    await session.post(0, answer(ask, 'name'));
    await again.next(({ id }) => id === 7);
    const { counters } = served?.handler ?? {};
    expect(counters).toMatchObject({ postStreams: 1, getStreams: 1, resumedStreams: 1, errors: 0 });
  });

  it('end for a client that never reads, with its memory bounded', async () => {
    served = await serveHere(flooding, { ...tuned({ stalled: 200 }) });
    const session = await begin([served]);
    const { port } = new URL(served.url);
    const body = JSON.stringify({ jsonrpc: '2.0', ...call('flood') });
    const headers = Object.entries({ ...session.headers, host: 'localhost', 'content-length': body.length });
    const socket = connect(Number(port), '127.0.0.1');
    socket.pause();
    const lines = headers.map(([name, value]) => `${name}: ${value}\r\n`).join('');
    socket.write(`POST /mcp HTTP/1.1\r\n${lines}\r\n${body}`);
    await expect.poll(() => served?.handler.counters.brokenStreams).toBe(1);
    socket.destroy();
  });
});

describe('a compressed stream', () => {
  it('gives each event as it is written, to those who take gzip', async () => {
    const handler = createAwaitHandler(() => buildServer(() => {}), { logger: new LogBook() });
    const server = createServer(toNodeHandler(handler, { compress: true }));
    const url = `${await listen(server)}/mcp`;
    const session = await begin([{ url }]);
    const read = (encoding: string) =>
      new Promise<{ coding: string; text: () => string; raw: () => number }>((resolve) => {
        const headers = { ...session.headers, 'accept-encoding': encoding };
        const req = request(url, { method: 'POST', headers }, (res) => {
          let text = '';
          let raw = 0;
          res.on('data', (chunk: Buffer) => {
            raw += chunk.length;
          });
          const coding = String(res.headers['content-encoding'] ?? '');
          const plain = coding === 'gzip' ? res.pipe(createGunzip()) : res;
          plain.on('data', (chunk: Buffer) => {
            text += chunk.toString();
          });
          resolve({ coding, text: () => text, raw: () => raw });
        });
        req.end(JSON.stringify({ jsonrpc: '2.0', ...call('in-turn'), id: encoding }));
      });
    for (const [encoding, coding] of [
      ['gzip', 'gzip'],
      ['br, gzip;q=0.5', 'gzip'],
      ['gzip;q=0', ''],
      ['identity', ''],
    ] as const) {
      const stream = await read(encoding);
      expect(stream.coding).toBe(coding);
      for (const field of ['name', 'city', 'street']) {
        // Nothing follows until it is answered, so it is here only if it was flushed.
        await expect.poll(() => messagesIn(stream.text()).some(asks(field))).toBe(true);
        const ask = messagesIn(stream.text()).find(asks(field));
        if (ask !== undefined) await session.post(0, answer(ask, field));
      }
      await expect.poll(() => stream.text()).toContain('its name, its city, its street');
      if (coding === 'gzip') expect(stream.raw()).toBeLessThan(stream.text().length);
    }
    await handler.close();
    await shut(server);
  });
});
