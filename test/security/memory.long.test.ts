/**
 * One anonymous stranger against a process with a small heap: whatever it sends, in any amount, the process lives and
 * serves others meanwhile.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import process from 'node:process';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { accept, CAPABILITIES, modernHeaders, post, textOf } from '../e2e/clients.ts';
import { begin, call, HEADERS, initialize, inSession, Peer } from './peer.ts';

const SERVER = new URL('../fixtures/large-server.mts', import.meta.url).pathname;
/** In MiB; `receivedBytes` and `unreadBytes` are 32 there, `callerArgumentBytes` too. */
const HEAP = 192;

let child: ChildProcess;
let port = 0;
let url = '';
const sockets: { destroy(): void }[] = [];

async function start(env: Readonly<Record<string, string>> = {}): Promise<void> {
  const args = [`--max-old-space-size=${HEAP}`, '--import', 'tsx', SERVER];
  child = spawn(process.execPath, args, {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, ...env },
  });
  if (child.stdout === null) throw new Error('no output');
  const [line] = (await once(createInterface(child.stdout), 'line')) as [string];
  port = Number(line);
  url = `http://127.0.0.1:${port}/mcp`;
}

afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  child.kill('SIGKILL');
  if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
});

/** The process lives, and serves another client. */
async function lives(headers: Readonly<Record<string, string>> = {}): Promise<void> {
  expect([child.exitCode, child.signalCode]).toEqual([null, null]);
  expect(textOf(await post(url, { tool: 'small', headers }))).toBe('small');
}

/** Bytes outside of the heap: what sockets read, and do not give back. */
async function buffers(): Promise<number> {
  return Number(textOf(await post(url, { tool: 'buffers' })));
}

async function raw(): Promise<Socket> {
  const socket = connect(port, '127.0.0.1');
  sockets.push(socket);
  socket.on('error', () => {});
  await once(socket, 'connect');
  return socket;
}

async function webSocket(): Promise<{ socket: WebSocket; wire: Socket }> {
  const socket = new WebSocket(`ws://127.0.0.1:${port}/mcp`, ['mcp']);
  socket.on('error', () => {});
  sockets.push({ destroy: () => socket.terminate() });
  const [{ socket: wire }] = (await once(socket, 'upgrade')) as [{ socket: Socket }];
  if (socket.readyState !== socket.OPEN) await once(socket, 'open');
  return { socket, wire };
}

/** A session of HTTP+SSE, whose stream is read to its end. */
async function overSse(): Promise<Peer> {
  const { body } = await fetch(url.replace('/mcp', '/sse'), { headers: { accept: 'text/event-stream' } });
  const reader = body?.pipeThrough(new TextDecoderStream()).getReader();
  if (reader === undefined) throw new Error('no stream');
  const [, endpoint = ''] = /data: (\S+)/.exec((await reader.read()).value ?? '') ?? [];
  sockets.push({ destroy: () => void reader.cancel().catch(() => {}) });
  const end = (async () => {
    for (let read = await reader.read(); !read.done; ) read = await reader.read();
  })();
  end.catch(() => {});
  const peer = new Peer(new URL(endpoint, url).href, {});
  await peer.post(initialize('2024-11-05'));
  return peer;
}

const large = (id: number) => ({
  jsonrpc: '2.0',
  id,
  method: 'tools/call',
  params: {
    name: 'large',
    arguments: {},
    _meta: {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientInfo': { name: 'stranger', version: '1' },
      'io.modelcontextprotocol/clientCapabilities': {},
    },
  },
});

const VERSION = { 'mcp-protocol-version': '2026-07-28' };

/** A POST as it is written on a connection. */
function onWire(body: string, named: Readonly<Record<string, string>>): string {
  const headers = {
    host: 'localhost',
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    ...named,
    'content-length': String(Buffer.byteLength(body)),
  };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
  return `POST /mcp HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n${body}`;
}

function frame(opcode: number, content: Buffer, isLast: boolean, length = content.byteLength): Buffer {
  const first = (isLast ? 0x80 : 0) | opcode;
  if (length < 126) return Buffer.concat([Buffer.from([first, 0x80 | length, 0, 0, 0, 0]), content]);
  const head = Buffer.alloc(14);
  head[0] = first;
  head[1] = 0x80 | 127;
  head.writeBigUInt64BE(BigInt(length), 2);
  return Buffer.concat([head, content]);
}

/** Waits until the process has taken what it will, or has broken the connection off. */
const written = (socket: Socket, bytes: Buffer): Promise<void> =>
  new Promise((resolve) => {
    const done = (): void => {
      socket.off('close', done);
      resolve();
    };
    socket.once('close', done);
    if (socket.destroyed) done();
    else socket.write(bytes, done);
  });

describe('a stranger', () => {
  beforeEach(() => start());

  it.each(['2025-11-25', 'DRAFT-SEP-2322'])(
    'describes itself with 4 MB on %s, and deletes the session at once, 120 times',
    async (version) => {
      for (let nth = 0; nth < 120; nth += 1) {
        const { params, ...rest } = initialize(version);
        const clientInfo = { ...params.clientInfo, title: `${nth}`.padEnd(4_000_000, 'x') };
        const { headers } = await new Peer(url, {}).post({ ...rest, params: { ...params, clientInfo } });
        const session = headers.get('mcp-session-id');
        if (session === null) continue;
        await fetch(url, {
          method: 'DELETE',
          headers: { 'mcp-session-id': session, 'mcp-protocol-version': version },
        });
      }
      await lives();
    },
  );

  it('begins 2,000 sessions of 15 KB, and deletes none', async () => {
    for (let nth = 0; nth < 2_000; nth += 1) {
      const { params, ...rest } = initialize('2025-11-25');
      const clientInfo = { ...params.clientInfo, title: `${nth}`.padEnd(15_000, 'x') };
      await new Peer(url, {}).post({ ...rest, params: { ...params, clientInfo } });
    }
    await lives();
  }, 180_000);

  it('sends 3.9 MB on each of 80 connections, reads the reply, and keeps them open', async () => {
    const { params, ...rest } = large(1);
    const body = JSON.stringify({
      ...rest,
      params: { ...params, name: 'small', arguments: { filler: 'x'.repeat(3_900_000) } },
    });
    for (let nth = 0; nth < 80; nth += 1) {
      const socket = await raw();
      await written(socket, Buffer.from(onWire(body, modernHeaders('tools/call', 'small'))));
      await once(socket, 'data');
    }
    await lives();
  }, 180_000);

  it('listens to 1,900 resources with long names on each of 150 streams', async () => {
    const { _meta } = large(1).params;
    const uris = Array.from({ length: 1_900 }, (_, nth) => `file:///${nth}`.padEnd(379, 'x'));
    const notifications = { resourceSubscriptions: uris };
    const request = {
      jsonrpc: '2.0',
      id: 1,
      method: 'subscriptions/listen',
      params: { notifications, _meta },
    };
    const bytes = Buffer.from(onWire(JSON.stringify(request), { ...VERSION, 'mcp-method': request.method }));
    const statuses: string[] = [];
    for (let nth = 0; nth < 150; nth += 1) {
      const socket = await raw();
      await written(socket, bytes);
      const [reply] = (await once(socket, 'data')) as [Buffer];
      statuses.push(reply.toString().split(' ')[1] ?? '');
    }
    expect(new Set(statuses)).toEqual(new Set(['200', '503']));
    await lives();
  }, 180_000);

  it('sends 200 pipelined calls with results of 4 MB on each of ten connections, and reads nothing', async () => {
    const requests = Array.from({ length: 200 }, (_, id) =>
      onWire(JSON.stringify(large(id)), modernHeaders('tools/call', 'large')),
    );
    for (let nth = 0; nth < 10; nth += 1) {
      const socket = await raw();
      socket.pause();
      await written(socket, Buffer.from(requests.join('')));
      await lives();
    }
  }, 180_000);

  it.each(['2026-07-28', '2025-11-25'])(
    'sends two calls with results of 4 MB on each of 300 connections at once, and reads nothing, on %s',
    async (version) => {
      const isModern = version === '2026-07-28';
      const session = isModern ? '' : String((await begin(url, version)).headers.get('mcp-session-id'));
      const named = isModern ? modernHeaders('tools/call', 'large') : { 'mcp-session-id': session };
      const all = await Promise.all(Array.from({ length: 300 }, raw));
      for (const [nth, socket] of all.entries()) {
        socket.pause();
        const calls = [0, 1].map((at) => ({
          ...large(2 * nth + at),
          ...(!isModern && { params: { name: 'large', arguments: {} } }),
        }));
        socket.write(calls.map((body) => onWire(JSON.stringify(body), named)).join(''));
      }
      await sleep(500);
      await lives();
    },
    180_000,
  );

  it.each([
    [99, 'large', 'small', 99, 3],
    [99, 'large', 'form', 99, 3],
    // Results of 1 MB, which a log takes.
    [99, 'medium', 'form', 0, 12],
    // Their results take 100 MB at once, before this package sees them.
    [25, 'late', 'form', 25, 3],
  ])(
    'sends %i calls of %s and one of %s in one array, as its item %i, and reads nothing, %i times',
    async (count, name, other, at, times) => {
      const { headers } = await begin(url, '2025-03-26');
      const calls = Array.from({ length: count + 1 }, (_, id) => {
        const params = { name: id === at ? other : name, arguments: {} };
        return { jsonrpc: '2.0', id, method: 'tools/call', params };
      });
      const body = JSON.stringify(calls);
      const lines = [
        'POST /mcp HTTP/1.1',
        'host: localhost',
        'content-type: application/json',
        'accept: application/json, text/event-stream',
        `mcp-session-id: ${headers.get('mcp-session-id')}`,
        `content-length: ${body.length}`,
      ];
      for (let nth = 0; nth < times; nth += 1) {
        const socket = await raw();
        socket.pause();
        await written(socket, Buffer.from(`${lines.join('\r\n')}\r\n\r\n${body}`));
        await sleep(200);
      }
      for (let looks = 0; looks < 40; looks += 1) {
        await lives();
        await sleep(50);
      }
    },
  );

  it('begins 60 sessions of HTTP+SSE, and reads three answers of 4 MB in each', async () => {
    for (let nth = 0; nth < 60; nth += 1) {
      const peer = await overSse();
      for (let id = 0; id < 3; id += 1) await peer.post(call(id, 'large'));
    }
    await lives();
  }, 180_000);

  it('reads no reply on 120 WebSockets, and answers each ping', async () => {
    for (let nth = 0; nth < 120; nth += 1) {
      const { socket, wire } = await webSocket();
      wire.pause();
      for (let id = 0; id < 2; id += 1) socket.send(JSON.stringify(large(id)));
      wire.write(frame(10, Buffer.alloc(0), true));
    }
    for (let nth = 0; nth < 5; nth += 1) await lives();
    await expect.poll(buffers).toBeLessThan(64_000_000);
  }, 180_000);

  it('sends messages on 150 WebSockets, and ends none', async () => {
    for (let nth = 0; nth < 150; nth += 1) {
      const { wire } = await webSocket();
      await written(wire, frame(1, Buffer.alloc(3_900_000, 0x20), true, 4_000_000));
    }
    await expect.poll(buffers).toBeLessThan(64_000_000);
    await lives();
  }, 180_000);

  it('sends fragments of one byte between pongs, on 20 WebSockets', async () => {
    const pongs = Buffer.concat(Array.from({ length: 500 }, () => frame(10, Buffer.alloc(125), true)));
    for (let nth = 0; nth < 20; nth += 1) {
      const { wire } = await webSocket();
      for (let part = 0; part < 1_500 && !wire.destroyed; part += 1) {
        await written(wire, Buffer.concat([frame(part === 0 ? 1 : 0, Buffer.from('x'), false), pongs]));
      }
    }
    await expect.poll(buffers).toBeLessThan(64_000_000);
    await lives();
  }, 180_000);
});

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
    for (let nth = 0; nth < 70; nth += 1) {
      const [more, meta] = of(filler(nth));
      await opened('slow', more as object, meta);
    }
    await lives({ authorization: 'Bearer ann' });
  });

  it('counts what a call that became a task was sent with', async () => {
    await start({ TASKS: 'now' });
    for (let nth = 0; nth < 70; nth += 1) await opened('slow', { task: { junk: filler(nth) } });
    await lives({ authorization: 'Bearer ann' });
  });

  it('counts the answers of a call that goes on', async () => {
    await start();
    for (let nth = 0; nth < 70; nth += 1) {
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
    for (let nth = 0; nth < 70; nth += 1) {
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
      for (let id = 0; id < 120; id += 1) {
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
    for (let id = 0; id < 120; id += 1) {
      const running = await peer.send(call(id, id < 60 ? 'form' : 'race', { text: filler(id) }));
      void running.text().catch(() => {});
    }
    await lives({ authorization: 'Bearer ann' });
  });

  it('counts a call of 2026-07-28 whose tool runs on beside its question', async () => {
    await start();
    for (let nth = 0; nth < 120; nth += 1) await post(url, { tool: 'race', args: { text: filler(nth) } });
    await lives({ authorization: 'Bearer ann' });
  });

  it('counts a task that was cancelled as long as its tool runs', async () => {
    await start({ TASKS: 'now' });
    const peer = await inSession(url, '2025-11-25');
    for (let id = 0; id < 120; id += 1) {
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
    for (let id = 0; id < 120; id += 1) {
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
    for (let nth = 0; nth < 70; nth += 1) {
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
    for (let nth = 0; nth < 70; nth += 1) {
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
  }, 180_000);

  it('sends 100 answers of 4 MB on a WebSocket', async () => {
    const { socket } = await webSocket();
    for (const body of await answers()) {
      await new Promise((resolve) => socket.send(body, resolve));
      await lives(known);
    }
  }, 180_000);

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
  }, 180_000);
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
  ])(
    '%s',
    async (_what, act) => {
      for (let nth = 0; nth < 500; nth += 1) {
        await act(nth);
        if (nth % 100 === 99) await lives(known);
      }
    },
    180_000,
  );
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
