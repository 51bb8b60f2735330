/** Time that passes while a call is suspended: minutes, months, a change of keys. Nothing here waits for real. */
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import Keyv from 'keyv';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { buildServer } from '../fixtures/asking-server.ts';
import { accept, type ElicitAnswer, post, type RawCall, textOf } from './clients.ts';
import { CELLS, OLD_SECRET, optionsOf, SECRET, type Served, serveHere } from './harness.ts';
import { legacySession } from './legacy-session.ts';

const DAY = 86_400_000;
let served: Served;

beforeEach(() => {
  // Sockets and promises go on as ever; node's own HTTP does not use these.
  vi.useFakeTimers({ toFake: ['Date', 'setTimeout', 'clearTimeout', 'setInterval', 'clearInterval'] });
});
afterEach(async () => {
  vi.useRealTimers();
  await served.close();
});

describe.each(CELLS)('an answer that takes its time ($name)', (cell) => {
  const ask = async (call: RawCall): Promise<RawCall> => {
    served = await serveHere(() => buildServer(() => {}), optionsOf(cell));
    const { state, keys } = await post(served.url, call);
    return { ...call, state, responses: accept(keys, { name: 'Ann' }) };
  };

  it.each([61_000, 5 * 60_000, 30 * 60_000])('%i ms: is not timed out', async (later) => {
    const retry = await ask({ tool: 'one' });
    await vi.advanceTimersByTimeAsync(later);
    expect(textOf(await post(served.url, retry))).toBe('Hello Ann');
  });

  it('longer than the author of the ask gave it: gets the time-out error of the SDK', async () => {
    const retry = await ask({ tool: 'patient', args: { timeout: 120_000 } });
    await vi.advanceTimersByTimeAsync(120_001);
    expect(textOf(await post(served.url, retry))).toBe('-32001 MCP error -32001: Request timed out');
  });

  it('less long than the author of the ask gave it: is the answer', async () => {
    const retry = await ask({ tool: 'patient', args: { timeout: 120_000 } });
    await vi.advanceTimersByTimeAsync(119_000);
    expect(textOf(await post(served.url, retry))).toBe('Hello Ann');
  });

  it('90 days, over a change of keys and a restart, with a long ttl', async () => {
    const store = cell.state === 'stored' ? { store: new Keyv() } : {};
    const done: string[] = [];
    const serve = async (...secrets: string[]): Promise<string> => {
      const options = { ...optionsOf(cell), ...store, ttl: 200 * DAY, secrets };
      served = await serveHere(() => buildServer((effect) => done.push(effect)), options);
      return served.url;
    };
    const first = await post(await serve(OLD_SECRET), { tool: 'order' });
    await served.close();
    vi.setSystemTime(Date.now() + 90 * DAY);
    const placed = { state: first.state, responses: accept(first.keys, { address: 'Main St' }) };
    const second = await post(await serve(SECRET, OLD_SECRET), { tool: 'order', ...placed });
    expect(second.keys).toHaveLength(1);
    await served.close();
    vi.setSystemTime(Date.now() + 90 * DAY);
    // The old secret is removed; tokens sealed since then use the new one.
    const named = { state: second.state, responses: accept(second.keys, { name: 'Ann' }) };
    expect(textOf(await post(await serve(SECRET), { tool: 'order', ...named }))).toBe('Ann, Main St, 43');
    expect(done).toEqual(['charge', 'ship', 'finally']);
  });
});

describe('a 2025-11-25 client whose user takes his time', () => {
  /** Asks, lets `later` pass, answers; what the tool makes of it. */
  const answered = async (timeout: number | undefined, later: number): Promise<string> => {
    served = await serveHere(() => buildServer(() => {}), { ttl: 90 * DAY });
    const client = new Client({ name: 'e2e', version: '1' }, { capabilities: { elicitation: {} } });
    let asked = (): void => {};
    const isAsked = new Promise<void>((resolve) => {
      asked = resolve;
    });
    let reply = (_answer: ElicitAnswer): void => {};
    client.setRequestHandler(ElicitRequestSchema, () => {
      asked();
      return new Promise<ElicitAnswer>((resolve) => {
        reply = resolve;
      });
    });
    await client.connect(new StreamableHTTPClientTransport(new URL(served.url)) as Transport);
    const call = client.callTool(
      timeout === undefined ? { name: 'one' } : { name: 'patient', arguments: { timeout } },
      undefined,
      { timeout: 2 ** 31 - 1 },
    );
    await isAsked;
    await vi.advanceTimersByTimeAsync(later);
    reply({ action: 'accept', content: { name: 'Ann' } });
    const { content } = await call;
    await client.close();
    return (content as { text: string }[]).map(({ text }) => text).join();
  };

  it('is not timed out after 61 seconds', async () => {
    expect(await answered(undefined, 61_000)).toBe('Hello Ann');
  });

  it('is timed out where the author of the ask said so', async () => {
    expect(await answered(120_000, 120_001)).toBe('-32001 MCP error -32001: Request timed out');
  });

  it('is not timed out early, though no timer of Node is as long as the 60 days that the author gave', async () => {
    vi.useRealTimers();
    vi.useFakeTimers({ toFake: ['Date', 'setTimeout', 'clearTimeout'] });
    // Time passes at once, and no comment that keeps a connection open could be read in it.
    const limits = { keepAlive: 90 * DAY };
    served = await serveHere(() => buildServer(() => {}), { ttl: 200 * DAY, limits });
    // By hand, since the SDK's client has no timer that long either.
    const session = await legacySession(served.url, { elicitation: {} });
    const stream = await session.send({
      id: 7,
      method: 'tools/call',
      params: { name: 'patient', arguments: { timeout: 60 * DAY } },
    });
    const ask = await stream.next(({ method }) => method === 'elicitation/create');
    vi.advanceTimersByTime(30 * DAY);
    const result = { action: 'accept', content: { name: 'Ann' } };
    await session.send({ ...(ask.id != null && { id: ask.id }), result });
    const { result: outcome } = await stream.next(({ id }) => id === 7);
    expect(outcome?.content?.[0]?.text).toBe('Hello Ann');
  });
});
