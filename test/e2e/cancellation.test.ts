/** A client that cancels, or goes away: what ends, and what stays good (invariant 10). */
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { afterEach, describe, expect, it } from 'vitest';
import { BAD_TOKEN } from '../fixtures/frozen.ts';
import { watchedServer } from '../fixtures/watched-server.ts';
import { accept, type ElicitAnswer, post, textOf } from './clients.ts';
import { CELLS, optionsOf, SECRET, type Served, serveHere } from './harness.ts';

let served: Served;
afterEach(() => served.close());

describe.each(CELLS)('a response that its client closed ($name)', (cell) => {
  it('in the first turn: the signal of the tool aborts', async () => {
    const watch = watchedServer();
    served = await serveHere(watch.build, optionsOf(cell));
    const gone = new AbortController();
    const call = post(served.url, { tool: 'waits', signal: gone.signal });
    await watch.until('began');
    gone.abort();
    await expect(call).rejects.toThrow();
    await watch.until('aborted');
    expect(watch.seen).toEqual(['began', 'aborted']);
  });

  it('while somebody else waits for the same turn: that one gets the outcome', async () => {
    const watch = watchedServer();
    served = await serveHere(watch.build, optionsOf(cell));
    const { state, keys } = await post(served.url, { tool: 'works' });
    const retry = { tool: 'works', state, responses: accept(keys, { name: 'Ann' }) };
    const gone = new AbortController();
    const left = post(served.url, { ...retry, signal: gone.signal });
    await watch.until('waiting');
    const stayed = post(served.url, retry);
    await expect.poll(() => served.handler.counters.resumes).toBe(2);
    gone.abort();
    await expect(left).rejects.toThrow();
    watch.open();
    expect(textOf(await stayed)).toBe('Ann, aborted: false');
    expect(watch.seen.filter((item) => item === 'charge')).toHaveLength(1);
  });
});

/** Where a completed step is kept beyond its turn: in the parked frame, or in a store. */
const KEEPING = CELLS.filter(({ frames, state }) => frames === 'kept' || state === 'stored');

describe.each(KEEPING)('a response of a later turn that its client closed ($name)', (cell) => {
  it('the same POST continues after the last completed step', async () => {
    const watch = watchedServer();
    served = await serveHere(watch.build, optionsOf(cell));
    const { state, keys } = await post(served.url, { tool: 'works' });
    const retry = { tool: 'works', state, responses: accept(keys, { name: 'Ann' }) };
    const gone = new AbortController();
    const call = post(served.url, { ...retry, signal: gone.signal });
    await watch.until('waiting');
    gone.abort();
    await expect(call).rejects.toThrow();
    watch.open();
    expect(textOf(await post(served.url, retry))).toBe('Ann, aborted: false');
    for (const effect of ['reserve', 'charge', 'ship']) {
      expect(watch.seen.filter((item) => item === effect)).toHaveLength(1);
    }
    expect(watch.seen).not.toContain('aborted');
  });

  it('again and again: other answers are refused, the token stays good', async () => {
    const watch = watchedServer();
    served = await serveHere(watch.build, optionsOf(cell));
    const { state, keys } = await post(served.url, { tool: 'works' });
    const retry = { tool: 'works', state, responses: accept(keys, { name: 'Ann' }) };
    for (let time = 1; time <= 3; time += 1) {
      const gone = new AbortController();
      const call = post(served.url, { ...retry, signal: gone.signal });
      if (time === 1) await watch.until('waiting');
      else await expect.poll(() => served.requests()).toBe(time + 1);
      gone.abort();
      await expect(call).rejects.toThrow();
    }
    const other = await post(served.url, { ...retry, responses: accept(keys, { name: 'Bob' }) });
    expect(other.message.error).toEqual(BAD_TOKEN);
    watch.open();
    expect(textOf(await post(served.url, retry))).toBe('Ann, aborted: false');
    expect(watch.seen.filter((item) => item === 'charge')).toHaveLength(1);
  });
});

describe('a response of a later turn that its client closed, sealed, with neither frame nor store', () => {
  it('the same POST continues from the token: its steps run again, under the same idempotency key', async () => {
    const watch = watchedServer();
    served = await serveHere(watch.build, { state: 'sealed', secrets: [SECRET], limits: { frames: 0 } });
    const { state, keys } = await post(served.url, { tool: 'works' });
    const retry = { tool: 'works', state, responses: accept(keys, { name: 'Ann' }) };
    const gone = new AbortController();
    const call = post(served.url, { ...retry, signal: gone.signal });
    await watch.until('waiting');
    gone.abort();
    await expect(call).rejects.toThrow();
    watch.open();
    expect(textOf(await post(served.url, retry))).toBe('Ann, aborted: false');
    expect(watch.seen.filter((item) => item === 'reserve')).toHaveLength(1);
    expect(new Set(watch.keys).size).toBe(1);
  });
});

describe('notifications/cancelled of a 2025-11-25 client', () => {
  const connect = async (answer: () => Promise<ElicitAnswer>): Promise<Client> => {
    const client = new Client({ name: 'e2e', version: '1' }, { capabilities: { elicitation: {} } });
    client.setRequestHandler(ElicitRequestSchema, answer);
    await client.connect(new StreamableHTTPClientTransport(new URL(served.url)) as Transport);
    return client;
  };

  it('ends a call that is running: its signal aborts', async () => {
    const watch = watchedServer();
    served = await serveHere(watch.build);
    const client = await connect(() => Promise.reject(new Error('nobody asks')));
    const gone = new AbortController();
    const call = client.callTool({ name: 'waits' }, undefined, { signal: gone.signal });
    await watch.until('began');
    gone.abort('no more');
    await expect(call).rejects.toThrow(/no more/);
    await watch.until('aborted');
    await client.close();
  });

  it('ends a call that waits for its answer: its signal aborts, there is no response, a late answer is nothing', async () => {
    const watch = watchedServer();
    served = await serveHere(watch.build);
    let asked = (): void => {};
    const isAsked = new Promise<void>((resolve) => {
      asked = resolve;
    });
    let reply = (_answer: ElicitAnswer): void => {};
    const client = await connect(() => {
      asked();
      return new Promise((resolve) => {
        reply = resolve;
      });
    });
    const responses: unknown[] = [];
    const { transport } = client;
    const onmessage = transport?.onmessage;
    if (transport === undefined || onmessage === undefined) throw new Error('the client is connected');
    transport.onmessage = (message) => {
      if (!('method' in message)) responses.push(message);
      onmessage(message);
    };
    const gone = new AbortController();
    const call = client.callTool({ name: 'asks' }, undefined, { signal: gone.signal });
    await isAsked;
    gone.abort('no more');
    await expect(call).rejects.toThrow(/no more/);
    await watch.until('aborted');
    reply({ action: 'accept', content: { name: 'Ann' } });
    await client.ping();
    // The answer to the ping is the only response; what the tool awaits never settles.
    expect(responses).toHaveLength(1);
    expect(watch.seen).toEqual(['began', 'aborted']);
    await client.close();
  });
});
