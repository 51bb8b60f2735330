/** As `memory.long.test.ts`, with a store that is down, instances that are large, or a parser in front. */
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { beforeEach, describe, expect, it } from 'vitest';
import { accept, CAPABILITIES, modernHeaders, post, textOf } from '../e2e/clients.ts';
import { begin, HEADERS, initialize, Peer } from './peer.ts';
import { large, lives, onWire, overSse, raw, start, url, webSocket, written } from './small-heap.ts';

describe('a stranger, while the store is down,', () => {
  beforeEach(() => start({ STORE: 'fails' }));

  const known = { authorization: 'Bearer ann' };
  /** Answers of 4 MB, each another one; one character beyond Latin letters makes each take two bytes. */
  const answers = async (): Promise<string[]> => {
    const { state, keys } = await post(url, { tool: 'form' });
    expect(textOf(await post(url, { tool: 'outage' }))).toBe('down');
    return Array.from({ length: 100 }, (_, id) => {
      const { params, ...call } = large(id);
      const inputResponses = accept(keys, { url: `€${id}${'x'.repeat(4_000_000)}` });
      const _meta = { ...params._meta, 'io.modelcontextprotocol/clientCapabilities': CAPABILITIES };
      const answered = { ...params, name: 'form', _meta, requestState: state, inputResponses };
      return JSON.stringify({ ...call, params: answered });
    });
  };

  it('sends 100 answers of 4 MB', async () => {
    let refused = 0;
    for (const body of await answers()) {
      const headers = { ...HEADERS, ...modernHeaders('tools/call', 'form') };
      void fetch(url, { method: 'POST', headers, body }).then(
        ({ status }) => {
          if (status === 503) refused += 1;
        },
        () => {},
      );
      await lives(known);
    }
    // Refused at once, and not after the three leases that an answer waits for the store.
    await expect.poll(() => refused).toBeGreaterThan(90);
  });

  it('sends 100 answers of 4 MB on a WebSocket', async () => {
    const { socket } = await webSocket();
    for (const body of await answers()) {
      await new Promise((resolve) => socket.send(body, resolve));
      await lives(known);
    }
  });

  it('pipelines 10,000 requests for a stream, with headers of 14 KB', async () => {
    const { headers } = await begin(url, '2025-11-25');
    expect(textOf(await post(url, { tool: 'outage' }))).toBe('down');
    const lines = [
      'GET /mcp HTTP/1.1',
      'host: localhost',
      'accept: text/event-stream',
      `mcp-session-id: ${headers.get('mcp-session-id')}`,
      'mcp-protocol-version: 2025-11-25',
      'last-event-id: unknown',
      `x-more: ${'x'.repeat(14_000)}`,
    ];
    const request = Buffer.from(`${lines.join('\r\n')}\r\n\r\n`);
    const socket = await raw();
    socket.resume();
    const sent = (async () => {
      for (let nth = 0; nth < 10_000; nth += 1) await written(socket, request);
    })();
    // What waits is refused, so its connection is read no further.
    await Promise.race([sent, sleep(15_000)]);
    await lives(known);
  });
});

describe('a server whose every instance holds a megabyte', () => {
  const known = { authorization: 'Bearer ann' };
  beforeEach(() => start({ HELD_BYTES: '1000000' }));

  it.each<[string, (nth: number) => Promise<unknown>]>([
    ['parks 500 calls', () => post(url, { tool: 'form' })],
    ['lets 500 calls run', async () => void post(url, { tool: 'slow' }).catch(() => {})],
    ['begins 500 sessions', () => new Peer(url, {}).post(initialize('2025-11-25'))],
    ['begins 500 sessions of HTTP+SSE', () => overSse().catch(() => {})],
    [
      'begins 500 sessions on WebSockets',
      async () => {
        const { socket } = await webSocket();
        socket.send(JSON.stringify(initialize('2025-11-25')));
        await once(socket, 'message');
      },
    ],
  ])('%s', async (_what, act) => {
    for (let nth = 0; nth < 500; nth += 1) {
      await act(nth);
      if (nth % 100 === 99) await lives(known);
    }
  });
});

describe('a stranger’s answer', () => {
  beforeEach(() => start());

  it.each([
    ['a URL of 900 KB', { url: `http://a:${':'.repeat(900_000)}` }, 200],
    ['1,900 items that must be unique', { all: Array.from({ length: 1_900 }, (_, nth) => nth) }, 200],
    // More than a body may have beside a call's arguments.
    ['90,000 items that must be unique', { all: Array.from({ length: 90_000 }, (_, nth) => nth) }, 413],
  ])('with %s holds up nobody', async (_what, content, status) => {
    const asked = await post(url, { tool: 'form' });
    const answered = post(url, {
      tool: 'form',
      state: asked.state,
      responses: accept(asked.keys, content),
    });
    // Served before or while the answer is checked: with a quadratic check the first of these waits for minutes.
    for (let nth = 0; nth < 20; nth += 1) await lives();
    expect((await answered).status).toBe(status);
  });
});

describe('behind a parser that Fastify has in front', () => {
  beforeEach(() => start({ FASTIFY: '1' }));

  const statusOn = async (socket: Socket): Promise<string> => {
    const [reply] = (await Promise.race([once(socket, 'data'), once(socket, 'close')])) as unknown[];
    return String(reply).slice(9, 12);
  };

  it('bodies of half a million brackets end nothing: none waits for a turn, or outlives its reply', async () => {
    const body = '['.repeat(520_000) + ']'.repeat(520_000);
    const refused = Array.from({ length: 60 }, async () => {
      const socket = await raw();
      socket.write(onWire(body, {}));
      return statusOn(socket);
    });
    expect(new Set(await Promise.all(refused))).toEqual(new Set(['400']));
    await lives();
  });

  it('bodies that wait for a turn count as arguments do', async () => {
    const values = Array.from({ length: 40_000 }, () => ({}));
    const body = JSON.stringify({ ...large(1), params: { ...large(1).params, arguments: { values } } });
    const text = onWire(body, modernHeaders('tools/call', 'large'));
    const all = await Promise.all(Array.from({ length: 100 }, raw));
    await Promise.all(all.map((socket) => written(socket, Buffer.from(text.slice(0, -1)))));
    // The bodies are whole at once, however late this process is.
    const statuses = all.map(statusOn);
    for (const socket of all) socket.write(text.slice(-1));
    expect(await Promise.all(statuses)).toContain('503');
    await lives();
  });
});
