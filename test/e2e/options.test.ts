/** What options change in the life of a call, seen from a client. */
import { afterEach, describe, expect, it } from 'vitest';
import type { AwaitOptions } from '../../src/index.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { LIMIT } from '../fixtures/frozen.ts';
import { accept, legacy, modern, post, send, textOf } from './clients.ts';
import { CELLS, optionsOf, SECRET, type Served, serveHere } from './harness.ts';

let served: Served;
afterEach(() => served.close());

async function start(options: AwaitOptions): Promise<string[]> {
  const done: string[] = [];
  served = await serveHere(() => buildServer((effect) => done.push(effect)), {
    secrets: [SECRET],
    ...options,
  });
  return done;
}

describe("instance: 'call' gives each call of a 2025-11-25 session a server of its own", () => {
  it.each([
    ['one', 'Hello its name'],
    ['at-once', 'its name, its city, its street'],
    ['by-extra', 'Hello its name'],
    ['sample', 'a poem'],
    ['roots', 'file:///home/ann'],
    ['notes', 'its name of its city'],
  ])('%s', async (tool, text) => {
    await start({ instance: 'call' });
    const client = await legacy(served.url);
    expect(await client.tool(tool)).toBe(text);
    if (tool === 'notes') expect(client.progressed).toEqual([1, 2, 3]);
    expect(await client.toolNames()).toContain(tool);
    await client.close();
  });
});

describe.each(CELLS)('steps: false leaves the async context out ($name)', (cell) => {
  it.each([
    ['in-turn', 'its name, its city, its street'],
    ['at-once', 'its name, its city, its street'],
    ['by-extra', 'Hello its name'],
  ])('%s', async (tool, text) => {
    await start({ ...optionsOf(cell), steps: false });
    for (const connect of [modern, legacy]) {
      const client = await connect(served.url);
      expect(await client.tool(tool)).toBe(text);
      await client.close();
    }
  });
});

describe.each(['stored', 'sealed'] as const)("onDrop: 'unwind' (%s)", (state) => {
  it('lets the finally of a dropped frame run, whose call continues all the same', async () => {
    const done = await start({ state, onDrop: 'unwind', limits: { frames: 0 } });
    const client = await modern(served.url);
    expect(await client.tool('order')).toBe('its name, its address, 43');
    expect(done.filter((effect) => effect === 'finally').length).toBeGreaterThan(1);
    expect(done.filter((effect) => effect === 'charge')).toHaveLength(1);
    expect(done.filter((effect) => effect === 'ship')).toHaveLength(1);
    await client.close();
  });
});

describe('limits', () => {
  const tooMuch = async (options: AwaitOptions, tool: string, args = {}): Promise<void> => {
    await start(options);
    let reply = await post(served.url, { tool, args });
    for (let round = 0; round < 5 && reply.message.result?.resultType === 'input_required'; round += 1) {
      const asks = Object.entries(reply.message.result.inputRequests ?? {});
      const responses = Object.fromEntries(
        asks.map(([key, { params }]) => {
          const field = String(params?.message).replace('?', '');
          return [key, { action: 'accept', content: { [field]: 'x' } }];
        }),
      );
      reply = await post(served.url, { tool, args, state: reply.state, responses });
    }
    expect(reply.message.error).toEqual(LIMIT);
    expect(served.log.lines.map(({ detail }) => detail.code)).toContain('limit');
  };

  it('asks', () => tooMuch({ limits: { asks: 2 } }, 'in-turn'));
  it('asks that go out at once', () => tooMuch({ limits: { asks: 2 } }, 'at-once'));
  it('rounds', () => tooMuch({ limits: { rounds: 2 } }, 'in-turn'));
  it('journalBytes', () => tooMuch({ limits: { journalBytes: 3_000 } }, 'echo', { word: 'x'.repeat(4_000) }));

  it('frames: the least recently parked are dropped, and their calls continue', async () => {
    await start({ limits: { frames: 2 } });
    const firsts = await Promise.all(Array.from({ length: 6 }, () => post(served.url, { tool: 'one' })));
    expect(served.handler.parked).toBe(2);
    for (const { state, keys } of firsts) {
      const responses = accept(keys, { name: 'Ann' });
      expect(textOf(await post(served.url, { tool: 'one', state, responses }))).toBe('Hello Ann');
    }
    expect(served.handler.parked).toBe(0);
  });
});

describe('revisions', () => {
  it('2026-07-28 alone: no session can be had', async () => {
    await start({ revisions: ['2026-07-28'] });
    await expect(legacy(served.url)).rejects.toThrow();
    expect((await post(served.url, { tool: 'one' })).keys).toHaveLength(1);
  });

  it('2025-11-25 alone: a 2026-07-28 request is an error, not a call', async () => {
    const done = await start({ revisions: ['2025-11-25'] });
    const reply = await post(served.url, { tool: 'order' });
    expect(reply.status).toBe(400);
    expect(reply.message.error).toBeDefined();
    expect(done).toEqual([]);
    const client = await legacy(served.url);
    expect(await client.tool('one')).toBe('Hello its name');
    await client.close();
  });

  it.each(['2025-03-26', '2025-06-18', '2025-11-25'])(
    '%s is negotiated as it was asked for',
    async (wanted) => {
      await start({});
      const params = { protocolVersion: wanted, capabilities: {}, clientInfo: { name: 'e2e', version: '1' } };
      const reply = await send(
        served.url,
        JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'initialize', params }),
      );
      expect(reply.message.result?.protocolVersion).toBe(wanted);
    },
  );
});

it('a handler that is closed answers 503, and its calls stay good for another on the same secret', async () => {
  await start({ state: 'sealed' });
  const { state, keys } = await post(served.url, { tool: 'one' });
  const url = served.url;
  const first = served;
  await first.handler.close();
  const retry = { tool: 'one', state, responses: accept(keys, { name: 'Ann' }) };
  expect((await post(url, retry)).status).toBe(503);
  await first.close();
  await start({ state: 'sealed' });
  expect(textOf(await post(served.url, retry))).toBe('Hello Ann');
});
