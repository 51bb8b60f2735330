/** Calls that are given up between two steps, by their tool and by a process that has too much to do. */
import { setTimeout as sleep } from 'node:timers/promises';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import Keyv from 'keyv';
import { afterEach, describe, expect, it } from 'vitest';
import { shed, step } from '../../src/index.ts';
import { legacy, modern, post } from './clients.ts';
import { SECRET, type Served, serveHere } from './harness.ts';

type Json = Record<string, unknown>;

let servers: Served[] = [];
afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()));
});

/** The event loop does not turn for most of two seconds. */
async function overload(): Promise<void> {
  for (const end = Date.now() + 2_000; Date.now() < end; ) {
    for (const late = Date.now() + 200; Date.now() < late; );
    await sleep(1);
  }
}

function build(done: string[], who: string): McpServer {
  const server = new McpServer({ name: 'shedding', version: '1' });
  const act = (name: string, work: () => Promise<void> = async () => {}) =>
    step(name, async () => {
      done.push(`${name} at ${who}`);
      await work();
    });
  const text = (value: string) => ({ content: [{ type: 'text' as const, text: value }] });
  server.registerTool('gives-up', {}, async () => {
    for (const name of ['a', 'b', 'c']) {
      await act(name);
      await shed();
    }
    return text('all done');
  });
  server.registerTool('works', {}, async () => {
    await act('a', overload);
    await act('b');
    await act('c');
    return text('all done');
  });
  server.registerTool('wrong', {}, async () => {
    await step('a', () => shed());
    return text('never');
  });
  return server;
}

const start = async (shedAbove?: number): Promise<{ done: string[]; urls: string[] }> => {
  const done: string[] = [];
  const store = new Keyv();
  servers = await Promise.all(
    ['A', 'B'].map((who) =>
      serveHere(() => build(done, who), {
        store,
        secrets: [SECRET],
        ...(shedAbove !== undefined && who === 'A' && { limits: { shedAbove } }),
      }),
    ),
  );
  return { done, urls: servers.map(({ url }) => url) };
};

const call = async (url: string, tool: string, state?: string): Promise<Json> =>
  (await post(url, { tool, ...(state !== undefined && { state }) })).message.result as unknown as Json;

describe('a call that is given up', () => {
  it('continues after its last step, wherever its client comes to', async () => {
    const { done, urls } = await start();
    let reply = await call(urls[0] ?? '', 'gives-up');
    for (const nth of [1, 0, 1]) {
      expect(reply).toMatchObject({ resultType: 'input_required', requestState: expect.any(String) });
      expect(reply).not.toHaveProperty('inputRequests');
      const { requestState } = reply as { requestState: string };
      reply = await call(urls[nth] ?? '', 'gives-up', requestState);
    }
    expect(reply).toMatchObject({ content: [{ text: 'all done' }] });
    expect(done).toEqual(['a at A', 'b at B', 'c at A']);
    expect(servers[0]?.handler.counters.shed).toBe(2);
  });

  it('is carried on by the official client, and stays where it is for a client with a session', async () => {
    const { done, urls } = await start();
    const client = await modern(urls[0] ?? '');
    expect(await client.tool('gives-up')).toBe('all done');
    await client.close();
    expect(done).toEqual(['a at A', 'b at A', 'c at A']);
    const old = await legacy(urls[1] ?? '');
    expect(await old.tool('gives-up')).toBe('all done');
    await old.close();
    expect(servers[1]?.handler.counters.shed).toBe(0);
  });

  it('is not given up inside of a step', async () => {
    const { urls } = await start();
    const client = await modern(urls[0] ?? '');
    expect(await client.tool('wrong')).toMatch(/step 'a' calls shed\(\) inside of itself/);
    await client.close();
  });
});

describe('limits.shedAbove', () => {
  it('gives calls up where the event loop is late, and not before a step is done', async () => {
    const { done, urls } = await start(100);
    const first = (await call(urls[0] ?? '', 'works')) as { requestState: string };
    expect(first).toMatchObject({ resultType: 'input_required' });
    const { requestState } = first;
    expect(await call(urls[1] ?? '', 'works', requestState)).toMatchObject({
      content: [{ text: 'all done' }],
    });
    expect(done).toEqual(['a at A', 'b at B', 'c at B']);
  });
});
