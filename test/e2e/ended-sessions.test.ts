/** A session that ends while requests of it are on their way: nothing of them starts, and nothing of them stays. */
import { randomUUID } from 'node:crypto';
import type KeyvRedis from '@keyv/redis';
import type { RedisClientType } from '@keyv/redis';
import type { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { openStore } from '../../src/checkpoint/open-store.ts';
import type { AwaitOptions } from '../../src/index.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { call, inSession, type Peer } from '../security/peer.ts';
import { SECRET, type Served, serveHere } from './harness.ts';
import { REDIS } from './services.ts';

let served: Served;
afterEach(() => served.close());

/** Tools that began, and neither returned nor were cancelled. */
let open = 0;
let closed = 0;
let made = 0;

function server(): { server: McpServer; cleanup: () => void } {
  const built = buildServer(() => {});
  made += 1;
  built.registerTool('wait', { description: 'waits until it is cancelled' }, ({ signal }) => {
    open += 1;
    return new Promise((resolve) => {
      const stop = (): void => {
        open -= 1;
        resolve({ content: [] });
      };
      if (signal.aborted) stop();
      else signal.addEventListener('abort', stop, { once: true });
    });
  });
  return {
    server: built,
    cleanup: () => {
      closed += 1;
    },
  };
}

async function serve(options: AwaitOptions): Promise<string> {
  [open, closed, made] = [0, 0, 0];
  served = await serveHere(server, { secrets: [SECRET], warnUnjournaled: false, ...options });
  return served.url;
}

/** Stands for a reply that does not end. */
const LEAKED = 599;

/** Requests, and the end of their session right behind them; resolves when all replies are over. */
async function endedAtOnce(peer: Peer, requests: number, tool: string): Promise<number[]> {
  const posts = Array.from({ length: requests }, async (_, id) => {
    const response = await peer.send(call(id, tool));
    // It must end by itself: a stream that stays open is the leak.
    const text = await Promise.race([response.text(), new Promise((resolve) => setTimeout(resolve, 5_000))]);
    return text === undefined ? LEAKED : response.status;
  });
  await new Promise((resolve) => setTimeout(resolve, requests % 4));
  const gone = await fetch(peer.url, { method: 'DELETE', headers: peer.headers });
  expect([200, 404]).toContain(gone.status);
  return Promise.all(posts);
}

for (const [store, down, options] of [
  ['in memory', false, async () => ({})],
  ['on Redis', REDIS.down, async () => ({ store: await openStore(REDIS.url()) })],
] as const) {
  for (const version of [
    '2025-11-25',
    '2025-03-26',
    'DRAFT-SEP-1858',
    'DRAFT-SEP-2322',
    'DRAFT-MRTR-2026-02',
  ]) {
    describe.skipIf(down)(`a session of ${version} that ends right after its requests, ${store}`, () => {
      it('leaves no tool running, no stream open and no instance behind', async () => {
        const url = await serve(await options());
        const statuses: number[] = [];
        for (let round = 0; round < 6; round += 1) {
          const peer = await inSession(url, version);
          statuses.push(...(await endedAtOnce(peer, 4 + round, 'wait')));
          const asking = await inSession(url, version);
          statuses.push(...(await endedAtOnce(asking, 4 + round, 'in-turn')));
        }
        expect(statuses.filter((status) => ![200, 202, 404].includes(status))).toEqual([]);
        await expect.poll(() => [open, made - closed]).toEqual([0, 0]);
      });
    });
  }
}

it.skipIf(REDIS.down)(
  'is refused for as long as it would have lasted, where calls wait for days',
  async () => {
    const days = 86_400_000;
    const store = await openStore(REDIS.url());
    const { client } = store.store as KeyvRedis<string>;
    const keys = async (): Promise<string[]> =>
      (await (client as RedisClientType).keys('*mcp-await*')).sort();
    const url = await serve({ store, ttl: 14 * days, audience: randomUUID() });
    const peer = await inSession(url, '2025-11-25');
    const before = new Set(await keys());
    await fetch(url, { method: 'DELETE', headers: peer.headers });
    const marks = (await keys()).filter((key) => !before.has(key));
    const lives = await Promise.all(marks.map((key) => (client as RedisClientType).pTTL(key)));
    expect(Math.max(...lives)).toBeGreaterThan(13 * days);
    await served.close();
    await store.disconnect();
  },
);

it('is refused, and its id is not kept, which is as long as its client describes itself', async () => {
  const url = await serve({ state: 'sealed' });
  const headers = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };
  const clientInfo = { name: 'c', version: '1', title: 'x'.repeat(8_000) };
  const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo };
  const send = async (message: object, session: object = {}) =>
    fetch(url, {
      method: 'POST',
      headers: { ...headers, ...session },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, ...message }),
    });
  const begun = await send({ method: 'initialize', params });
  const id = begun.headers.get('mcp-session-id') ?? '';
  expect(id.length).toBeGreaterThan(8_000);
  const added = vi.spyOn(Set.prototype, 'add');
  const session = { 'mcp-session-id': id, 'mcp-protocol-version': '2025-11-25' };
  const gone = await fetch(url, { method: 'DELETE', headers: session });
  const kept = added.mock.calls.filter(([value]) => value === id);
  added.mockRestore();
  expect(gone.status).toBe(200);
  expect(kept).toEqual([]);
  expect((await send({ method: 'ping' }, session)).status).toBe(404);
});
