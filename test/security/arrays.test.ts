/** What arrays of a stranger's messages set going before anything is counted. */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import Keyv from 'keyv';
import { afterEach, expect, it } from 'vitest';
import { tuned } from '../../src/call/limits.ts';
import { SECRET, type Served, serveHere } from '../e2e/harness.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { countTurns } from '../loop-turns.ts';
import { call, inSession } from './peer.ts';

let served: Served | undefined;
let open: () => void = () => {};
afterEach(async () => {
  open();
  await served?.close();
});

/** A shared store whose reads take until they are let go on; it counts those that wait. */
function heldStore() {
  const kept = new Map<string, string>();
  const held = { isHeld: false, reads: 0 };
  let opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  const release = (): void => {
    open();
    held.isHeld = false;
    opened = new Promise((resolve) => {
      open = resolve;
    });
  };
  const store = new Keyv({
    store: {
      opts: {},
      async get(key: string) {
        held.reads += Number(held.isHeld);
        if (held.isHeld) await opened;
        return kept.get(key);
      },
      set: (key: string, value: string) => void kept.set(key, value),
      insertIfAbsent: async (key: string, value: string) => !kept.has(key) && !!kept.set(key, value),
      delete: (key: string) => kept.delete(key),
      clear: () => kept.clear(),
    },
  });
  return { store, held, release };
}

it('looks for no more requests to cancel than a stranger may have', async () => {
  const { store, held, release } = heldStore();
  const limits = { ...tuned({ anonymousCalls: 50 }), secrets: [SECRET], store };
  served = await serveHere(() => buildServer(() => {}), limits);
  const peer = await inSession(served.url, '2025-03-26');
  const cancelled = (nth: number) => ({
    jsonrpc: '2.0',
    method: 'notifications/cancelled',
    params: { requestId: `none ${nth}` },
  });
  const body = Array.from({ length: 100 }, (_, nth) => cancelled(nth));
  await Promise.all([peer.send(body), peer.send(body)]);
  // Each is looked for again a little later: those looks are held.
  held.isHeld = true;
  let before = 0;
  const isAll = (): boolean => {
    const isSame = held.reads > 0 && held.reads === before;
    before = held.reads;
    return isSame;
  };
  await expect.poll(isAll).toBe(true);
  release();
  // The process looks for messages from others, too.
  expect(before).toBeLessThanOrEqual(55);
});

it('refuses arrays of calls beyond a stranger’s share, also while those before are read', async () => {
  const { store, held, release } = heldStore();
  const limits = { ...tuned({ anonymousCalls: 150 }), secrets: [SECRET], store };
  served = await serveHere(() => buildServer(() => {}), limits);
  const { url } = served;
  const peers = await Promise.all(Array.from({ length: 6 }, () => inSession(url, '2025-03-26')));
  held.isHeld = true;
  const calls = Array.from({ length: 100 }, (_, nth) => call(`c${nth}`, 'plain'));
  const replies = peers.map((peer) => peer.send(calls).then(({ status }) => status));
  const refused: number[] = [];
  for (const reply of replies) void reply.then((status) => status === 503 && refused.push(status));
  await expect.poll(() => refused.length).toBe(5);
  release();
  expect((await Promise.all(replies)).toSorted()).toEqual([200, 503, 503, 503, 503, 503]);
});

it('begins one call of an array in a turn of the event loop', async () => {
  const turns: number[] = [];
  const counted = countTurns();
  const build = () => {
    const server = new McpServer({ name: 'arrays', version: '1' });
    server.registerTool('plain', {}, () => {
      turns.push(counted.now);
      return { content: [] };
    });
    return server;
  };
  served = await serveHere(build, {});
  const peer = await inSession(served.url, '2025-03-26');
  const { messages } = await peer.post(Array.from({ length: 50 }, (_, nth) => call(`c${nth}`, 'plain')));
  counted.stop();
  expect(messages).toHaveLength(50);
  expect(turns).toHaveLength(50);
  expect(new Set(turns).size).toBeGreaterThan(40);
});
