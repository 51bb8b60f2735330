/**
 * One anonymous stranger against a process with a small heap: whatever it sends, in any amount, the process lives and
 * serves others meanwhile.
 */
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { beforeEach, describe, expect, it } from 'vitest';
import { modernHeaders } from '../e2e/clients.ts';
import { frame } from './frames.ts';
import { begin, call, initialize, Peer } from './peer.ts';
import {
  buffers,
  large,
  lives,
  onWire,
  overSse,
  raw,
  start,
  url,
  VERSION,
  webSocket,
  written,
} from './small-heap.ts';

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
  });

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
  });

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
  });

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
  });

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
  );

  it.each([
    [99, 'large', 'small', 99, 3],
    [99, 'large', 'form', 99, 3],
    // Results of 1 MB, which a log takes.
    [99, 'medium', 'form', 0, 12],
    // Their results take 100 MB at once, before this package sees them: a collection then may find the heap full.
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
      const headersOf = name === 'late' ? { authorization: 'Bearer ann' } : {};
      for (let looks = 0; looks < 40; looks += 1) {
        await lives(headersOf);
        await sleep(50);
      }
      const again = (): Promise<boolean> =>
        lives().then(
          () => true,
          () => false,
        );
      await expect.poll(again).toBe(true);
    },
  );

  it('begins 60 sessions of HTTP+SSE, and reads three answers of 4 MB in each', async () => {
    for (let nth = 0; nth < 60; nth += 1) {
      const peer = await overSse();
      for (let id = 0; id < 3; id += 1) await peer.post(call(id, 'large'));
    }
    await lives();
  });

  it('reads no reply on 120 WebSockets, and answers each ping', async () => {
    for (let nth = 0; nth < 120; nth += 1) {
      const { socket, wire } = await webSocket();
      wire.pause();
      for (let id = 0; id < 2; id += 1) socket.send(JSON.stringify(large(id)));
      wire.write(frame(10, Buffer.alloc(0), true));
    }
    for (let nth = 0; nth < 5; nth += 1) await lives();
    await expect.poll(buffers).toBeLessThan(64_000_000);
  });

  it('sends messages on 150 WebSockets, and ends none', async () => {
    for (let nth = 0; nth < 150; nth += 1) {
      const { wire } = await webSocket();
      await written(wire, frame(1, Buffer.alloc(3_900_000, 0x20), true, 4_000_000));
    }
    await expect.poll(buffers).toBeLessThan(64_000_000);
    await lives();
  });

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
  });
});
