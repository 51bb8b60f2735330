/** What a stranger makes a process with a small heap keep counts against the stranger, for as long as it is kept. */
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { accept, CAPABILITIES, modernHeaders, post, textOf } from '../e2e/clients.ts';
import { begin, call, HEADERS, initialize, inSession, Peer } from './peer.ts';
import { large, lives, onWire, overSse, raw, start, url, VERSION, webSocket, written } from './small-heap.ts';

/** Texts of 3.9 MB that the heap has no room for. */
const MANY = 60;
/** 3.9 MB that differ. */
const filler = (nth: number): string => `${nth}`.padEnd(3_900_000, 'x');

describe('of a stranger', () => {
  /** Sends a call of 2026-07-28, and resolves with the first part of its reply, or nothing; the reply stays open. */
  async function opened(name: string, more: object, meta: object = {}): Promise<string> {
    const { params } = large(1);
    const _meta = {
      ...params._meta,
      progressToken: 1,
      'io.modelcontextprotocol/clientCapabilities': {
        ...CAPABILITIES,
        extensions: { 'io.modelcontextprotocol/tasks': {} },
      },
      ...meta,
    };
    const body = {
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: { name, arguments: {}, ...more, _meta },
    };
    const socket = await raw();
    const first = once(socket, 'data').then(([data]) => String(data));
    await written(socket, Buffer.from(onWire(JSON.stringify(body), modernHeaders('tools/call', name))));
    const part = await Promise.race([first, sleep(2_000, '')]);
    socket.resume();
    return part;
  }

  it.each([
    ['an unknown task', (text: string) => [{ task: { junk: text } }]],
    [
      'inputResponses',
      (text: string) => [{ inputResponses: { a: { action: 'accept', content: { text } } } }],
    ],
    [
      'icons',
      (text: string) => [
        {},
        {
          'io.modelcontextprotocol/clientInfo': {
            name: 'x',
            version: '1',
            icons: [{ src: `data:,${text}` }],
          },
        },
      ],
    ],
  ] as const)('counts %s of a call that runs', async (_what, of) => {
    await start();
    for (let nth = 0; nth < MANY; nth += 1) {
      const [more, meta] = of(filler(nth));
      await opened('slow', more as object, meta);
    }
    await lives({ authorization: 'Bearer ann' });
  });

  it('counts what a call that became a task was sent with', async () => {
    await start({ TASKS: 'now' });
    for (let nth = 0; nth < MANY; nth += 1) await opened('slow', { task: { junk: filler(nth) } });
    await lives({ authorization: 'Bearer ann' });
  });

  it('counts the answers of a call that goes on', async () => {
    await start();
    for (let nth = 0; nth < MANY; nth += 1) {
      const { state, keys } = await post(url, { tool: 'slow-after' });
      if (state === undefined) continue;
      await opened('slow-after', {
        requestState: state,
        inputResponses: { ...accept(keys, {}), junk: { action: 'decline', text: filler(nth) } },
      });
    }
    await lives({ authorization: 'Bearer ann' });
  });

  it('counts all of a message of HTTP+SSE', async () => {
    await start();
    for (let nth = 0; nth < MANY; nth += 1) {
      const peer = await overSse();
      await peer.post({ ...call(1, 'form'), junk: filler(nth) });
    }
    await lives({ authorization: 'Bearer ann' });
  });

  it.each(['slow', 'form'])(
    'counts calls that were cancelled as long as their tools run: %s',
    async (name) => {
      await start();
      const peer = await inSession(url, '2025-11-25');
      for (let id = 0; id < MANY; id += 1) {
        const running = await peer.send(call(id, name, { text: filler(id) }));
        const cancelled = { method: 'notifications/cancelled', params: { requestId: id } };
        await peer.post({ jsonrpc: '2.0', ...cancelled });
        await running.body?.cancel();
      }
      await lives({ authorization: 'Bearer ann' });
    },
  );

  it('keeps no call that it could not store, nor one that ends while its tool runs', async () => {
    await start({ STORED_BYTES: '33554432' });
    const peer = await inSession(url, '2025-11-25');
    for (let id = 0; id < 2 * MANY; id += 1) {
      const running = await peer.send(call(id, id < MANY ? 'form' : 'race', { text: filler(id) }));
      void running.text().catch(() => {});
    }
    await lives({ authorization: 'Bearer ann' });
  });

  it('counts a call of 2026-07-28 whose tool runs on beside its question', async () => {
    await start();
    for (let nth = 0; nth < MANY; nth += 1) await post(url, { tool: 'race', args: { text: filler(nth) } });
    await lives({ authorization: 'Bearer ann' });
  });

  it('counts a task that was cancelled as long as its tool runs', async () => {
    await start({ TASKS: 'now' });
    const peer = await inSession(url, '2025-11-25');
    for (let id = 0; id < MANY; id += 1) {
      const request = call(id, 'race', { text: filler(id) });
      const begun = await peer.post({ ...request, params: { ...request.params, task: {} } });
      const taskId = /"taskId":"([^"]+)"/.exec(begun.text)?.[1];
      if (taskId === undefined) continue;
      const cancel = { method: 'tasks/cancel', params: { taskId } };
      await peer.post({ jsonrpc: '2.0', id: `cancel ${id}`, ...cancel });
    }
    await lives({ authorization: 'Bearer ann' });
  });

  it('counts tools that run on after their clients have gone, also those that were sent nothing', async () => {
    await start();
    const { params } = large(1);
    const _meta = { ...params._meta, progressToken: 1 };
    const slow = { ...large(1), params: { name: 'slow', arguments: {}, _meta } };
    const dropped = async (): Promise<void> => {
      const stop = new AbortController();
      const headers = { ...HEADERS, ...modernHeaders('tools/call', 'slow') };
      const init = { method: 'POST', headers, body: JSON.stringify(slow), signal: stop.signal };
      const { body } = await fetch(url, init);
      await body?.getReader().read();
      stop.abort();
    };
    for (let nth = 0; nth < 500; nth += 1) await Promise.all(Array.from({ length: 10 }, dropped));
    await lives({ authorization: 'Bearer ann' });
  });

  it('serves a caller whose cancelled calls are over, however many they were', async () => {
    await start();
    const ann = { authorization: 'Bearer ann' };
    const { params } = large(1);
    const late = { ...large(1), params: { ...params, name: 'late' } };
    for (let nth = 0; nth < 100; nth += 1) {
      const dropped = Array.from({ length: 30 }, async () => {
        const init = {
          method: 'POST',
          headers: { ...HEADERS, ...modernHeaders('tools/call', 'late'), ...ann },
        };
        await fetch(url, { ...init, body: JSON.stringify(late), signal: AbortSignal.timeout(40) }).catch(
          () => {},
        );
      });
      await Promise.all(dropped);
    }
    await sleep(1_000);
    await lives(ann);
  });

  it('counts what the tool of a cancelled call was answered, as long as it runs', async () => {
    await start();
    const { socket } = await webSocket();
    const send = (message: object): void => socket.send(JSON.stringify({ jsonrpc: '2.0', ...message }));
    const answer = { action: 'accept', content: { text: 'ж'.repeat(900_000) } };
    let next = (): void => {};
    socket.on('message', (data) => {
      const { id, method } = JSON.parse(String(data)) as { id?: string; method?: string };
      if (method === 'elicitation/create') send({ id, result: answer });
      // The tool has the answer, or its call was refused.
      else next();
    });
    const turn = (): Promise<void> => new Promise((resolve) => (next = resolve));
    send(initialize('2025-11-25'));
    await turn();
    send({ method: 'notifications/initialized' });
    for (let id = 1; id <= 120; id += 1) {
      const over = turn();
      send({
        id,
        method: 'tools/call',
        params: { name: 'keeps', arguments: {}, _meta: { progressToken: id } },
      });
      await over;
      send({ method: 'notifications/cancelled', params: { requestId: id } });
    }
    await lives({ authorization: 'Bearer ann' });
  });

  it('cancels a list whose client has gone, and counts it as long as its handler runs', async () => {
    await start();
    const { _meta } = large(1).params;
    for (let id = 0; id < MANY; id += 1) {
      const params = { cursor: filler(id), _meta };
      const body = JSON.stringify({ jsonrpc: '2.0', id, method: 'resources/list', params });
      const socket = await raw();
      await written(socket, Buffer.from(onWire(body, { ...VERSION, 'mcp-method': 'resources/list' })));
      await sleep(40);
      socket.destroy();
    }
    await lives({ authorization: 'Bearer ann' });
    const stopped = Number(
      textOf(await post(url, { tool: 'stopped', headers: { authorization: 'Bearer ann' } })),
    );
    expect(stopped).toBeGreaterThan(3);
  });

  it('counts each request of an array whole', async () => {
    await start({ STORED_BYTES: '4000000000' });
    const peer = await inSession(url, '2025-03-26');
    for (let nth = 0; nth < MANY; nth += 1) {
      const pings = Array.from({ length: 9 }, (_, id) => ({
        jsonrpc: '2.0',
        id: `${nth} ${id}`,
        method: 'ping',
      }));
      const running = await peer.send([call(nth, 'form', { text: filler(nth) }), ...pings]);
      void running.text().catch(() => {});
    }
    await lives({ authorization: 'Bearer ann' });
  });

  it('keeps no request of a session that was answered', async () => {
    await start();
    for (let nth = 0; nth < MANY; nth += 1) {
      const begun = await begin(url, '2025-11-25');
      const session = begun.headers.get('mcp-session-id') ?? '';
      const own = { 'mcp-session-id': session, 'mcp-protocol-version': '2025-11-25' };
      await new Peer(url, own).post(call(1, 'small', { text: filler(nth) }));
    }
    await lives();
  });

  it('refuses a description of 3.9 MB beside a short one under another name', async () => {
    await start();
    const clientInfo = { name: 'x', version: '1', title: filler(0) };
    const head = await opened(
      'slow',
      {},
      { clientInfo: {}, 'io.modelcontextprotocol/clientInfo': clientInfo },
    );
    expect(head).toMatch(/^HTTP\/1.1 413/);
  });
});
