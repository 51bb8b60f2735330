/** Streams on the wire: their bytes, and clients that do not read. */
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { Budget } from '../../src/base/budget.ts';
import { type Clock, systemClock } from '../../src/base/values.ts';
import { Backlog } from '../../src/doors/http/backlog.ts';
import type { Writer } from '../../src/doors/http/exchange.ts';
import { responseOf } from '../../src/doors/http/fetch.ts';
import { toNodeHandler } from '../../src/node.ts';
import { sseSink } from '../../src/stream/sse-sink.ts';
import type { Sink } from '../../src/stream/tail.ts';
import { FakeClock, SCOPE, startProcess, until } from './workbench.ts';

/** A sink on a writer that has a backlog to itself. */
function sinkOn(
  writer: Writer,
  { clock, keepAlive, stalled, retry }: { clock: Clock; keepAlive: number; stalled: number; retry?: number },
): Sink {
  const backlog = new Backlog({ clock, stalled, budget: new Budget(Infinity) });
  return sseSink(backlog.guard(writer, {}), { clock, keepAlive, ...(retry !== undefined && { retry }) });
}

class Wire implements Writer {
  text = '';
  unsent = 0;
  full = false;
  ended: 'end' | 'destroy' | undefined;
  drain: () => void = () => {};
  close: () => void = () => {};

  write(text: string): boolean {
    this.text += text;
    return !this.full;
  }

  onDrain(fn: () => void): void {
    this.drain = fn;
  }

  onClose(fn: () => void): void {
    this.close = fn;
  }

  end(): void {
    this.ended ??= 'end';
  }

  destroy(): void {
    this.ended ??= 'destroy';
  }
}

describe('an SSE connection', () => {
  const options = { keepAlive: 1_000, stalled: 5_000 };

  it('says when to come back, writes events, keeps itself open, and says why it ends', async () => {
    const clock = new FakeClock();
    const wire = new Wire();
    const sink = sinkOn(wire, { ...options, clock, retry: 250 });
    sink.send({ data: '', retry: 10 }, 'a_1');
    await clock.pass(2_000);
    sink.send({ event: 'message', data: '{}' }, 'a_2');
    sink.end('replaced');
    await clock.pass(10_000);
    expect(wire.text).toBe(
      'retry: 250\n\nid: a_1\nretry: 10\ndata: \n\n: keep-alive\n\n: keep-alive\n\n' +
        'event: message\nid: a_2\ndata: {}\n\n: closing, a newer connection has this stream\n\n',
    );
    expect(wire.ended).toBe('end');
  });

  it('says nothing more after the last event', () => {
    const wire = new Wire();
    const sink = sinkOn(wire, { ...options, clock: new FakeClock() });
    sink.end('finished');
    expect(wire).toMatchObject({ text: '', ended: 'end' });
  });

  it('is broken off when its client reads nothing, and not when it is only slow', async () => {
    const clock = new FakeClock();
    const wire = new Wire();
    const sink = sinkOn(wire, { ...options, clock });
    wire.full = true;
    wire.unsent = 20_000;
    expect(sink.send({ data: '1' }, 'a_1')).toBe(false);
    const sent = wire.text;
    for (wire.unsent = 19_000; wire.unsent > 15_000; wire.unsent -= 1_000) await clock.pass(5_000);
    expect(wire.ended).toBeUndefined();
    expect(wire.text, 'nothing is added to what it does not read').toBe(sent);
    await clock.pass(10_000);
    expect(wire.ended).toBe('destroy');
  });

  it('is watched beyond the end of its stream', async () => {
    const clock = new FakeClock();
    const wire = new Wire();
    const sink = sinkOn(wire, { ...options, clock });
    wire.full = true;
    wire.unsent = 20_000;
    sink.send({ data: '1' }, 'a_1');
    wire.end = () => {};
    sink.end('finished');
    await clock.pass(5_000);
    expect(wire.ended).toBe('destroy');
  });

  it('has patience anew once its client has caught up', async () => {
    const clock = new FakeClock();
    const wire = new Wire();
    const sink = sinkOn(wire, { ...options, clock });
    let ready = 0;
    sink.onReady(() => {
      ready += 1;
    });
    wire.full = true;
    wire.unsent = 1;
    sink.send({ data: '1' }, 'a_1');
    await clock.pass(4_000);
    wire.full = false;
    wire.unsent = 0;
    wire.drain();
    await clock.pass(20_000);
    expect(ready).toBe(1);
    expect(wire.ended).toBeUndefined();
  });
});

/** 16 MB in events of 16 KB. */
const EVENTS = 1_000;
const DATA = 'x'.repeat(16_000);

describe('a client that never reads', () => {
  const servers: Server[] = [];
  afterEach(() => {
    for (const server of servers.splice(0)) {
      server.closeAllConnections();
      server.close();
    }
  });

  async function serve(stalled: number) {
    const streams = startProcess({ limits: { streamEvents: 2_000 } });
    const stream = streams.open(SCOPE);
    const seen = { unsent: 0, closed: false, writers: 0 };
    const server = createServer(
      toNodeHandler({
        serve: async () => ({
          status: 200,
          headers: { 'content-type': 'text/event-stream' },
          body: (writer) => {
            seen.writers += 1;
            writer.onClose(() => {
              seen.closed = true;
            });
            const sink = sinkOn(writer, { clock: systemClock, keepAlive: 15_000, stalled });
            const { send } = sink;
            sink.send = (event, id) => {
              const keepsUp = send(event, id);
              seen.unsent = Math.max(seen.unsent, writer.unsent);
              return keepsUp;
            };
            void streams.find(stream.id, 0, SCOPE).then((found) => found.follow(sink));
          },
        }),
      }),
    );
    servers.push(server);
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    return { streams, stream, seen, port };
  }

  it('of Node is released after a while, and costs an event until then', async () => {
    const { streams, stream, seen, port } = await serve(300);
    const socket = connect(port, '127.0.0.1');
    socket.on('error', () => {});
    socket.pause();
    socket.write('GET / HTTP/1.1\r\nhost: here\r\n\r\n');
    await until(() => seen.writers === 1);
    for (let nth = 0; nth < EVENTS; nth += 1) await stream.append({ data: DATA });
    await until(() => seen.closed, 'the disconnect');
    expect(seen.unsent).toBeLessThan(100_000);
    socket.destroy();
    await streams.close();
  });

  it('and one that reads gets all of it, in order', async () => {
    const { streams, stream, port } = await serve(5_000);
    const response = await fetch(`http://127.0.0.1:${port}/`);
    const appending = (async () => {
      for (let nth = 0; nth < EVENTS; nth += 1) await stream.append({ data: DATA }, nth === EVENTS - 1);
    })();
    const text = await response.text();
    await appending;
    const ids = [...text.matchAll(/^id: .*_(\d+)$/gm)].map(([, nth]) => Number(nth));
    expect(ids).toEqual(Array.from({ length: EVENTS }, (_, index) => index + 1));
    await streams.close();
  });

  it('of the web’s streams is released too; one that reads gets all of it', async () => {
    const streams = startProcess({ limits: { streamEvents: 2_000 } });
    for (const reads of [true, false]) {
      const stream = streams.open(SCOPE);
      let unsent = 0;
      let closed = false;
      const response = responseOf(
        {
          status: 200,
          headers: {},
          body: (writer) => {
            writer.onClose(() => {
              closed = true;
            });
            const sink = sinkOn(writer, { clock: systemClock, keepAlive: 15_000, stalled: 200 });
            const { send } = sink;
            sink.send = (event, id) => {
              const keepsUp = send(event, id);
              unsent = Math.max(unsent, writer.unsent);
              return keepsUp;
            };
            void streams.find(stream.id, 0, SCOPE).then((found) => found.follow(sink));
          },
        },
        () => {},
      );
      let text: Promise<string> | undefined;
      for (let nth = 0; nth < EVENTS; nth += 1) {
        await stream.append({ data: DATA }, nth === EVENTS - 1);
        // It begins late, so it has to catch up.
        if (reads && nth === 10) text = response.text();
      }
      if (text !== undefined) expect((await text).match(/^id: /gm)).toHaveLength(EVENTS);
      await until(() => closed, 'the end');
      expect(unsent).toBeLessThan(100_000);
      if (!reads) await expect(response.text()).rejects.toThrow(/does not read/);
    }
    await streams.close();
  });
});

it('a long body is given to a runtime in pieces, and those count that it has not taken', async () => {
  let unsent = (): number => 0;
  const waits = (writer: Writer): void => {
    unsent = () => writer.unsent;
  };
  const { body } = responseOf({ status: 200, headers: {}, body: 'x'.repeat(4_000_000), waits }, () => {});
  const reader = body?.getReader();
  const first = await reader?.read();
  expect(first?.value?.byteLength).toBeLessThanOrEqual(65_536);
  expect(unsent()).toBeGreaterThan(3_800_000);
  let bytes = first?.value?.byteLength ?? 0;
  for (let next = await reader?.read(); next?.done === false; next = await reader?.read())
    bytes += next.value.byteLength;
  expect(bytes).toBe(4_000_000);
});
