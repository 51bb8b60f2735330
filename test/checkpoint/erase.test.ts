/** A call is erased by a process that is killed between any two of its writes. */
import { randomUUID } from 'node:crypto';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { describe, expect, it } from 'vitest';
import * as z from 'zod';
import { systemClock } from '../../src/base/values.ts';
import type { CallRecord, Entry } from '../../src/call/journal/entries.ts';
import { Folding } from '../../src/call/journal/fold.ts';
import { tuned } from '../../src/call/limits.ts';
import { CallBook } from '../../src/checkpoint/call-book.ts';
import { KeyvCallStore } from '../../src/checkpoint/call-store.ts';
import { Names } from '../../src/checkpoint/names.ts';
import { openStore } from '../../src/checkpoint/open-store.ts';
import { step } from '../../src/index.ts';
import { accept, post, textOf } from '../e2e/clients.ts';
import { SECRET, type Served, serveHere } from '../e2e/harness.ts';
import { SQLITE } from '../e2e/services.ts';
import { answer, inSession, Peer, call as sessionCall } from '../security/peer.ts';

const STEPS = 4;
const KILLED = new Error('killed');

async function logOf(store: KeyvCallStore, id: string): Promise<Entry[]> {
  const entries: Entry[] = [];
  for (let entry = await store.read(id, 0); entry; entry = await store.read(id, entries.length))
    entries.push(entry);
  return entries;
}

describe.each(['', '~'])('a call whose id ends with "%s"', (end) => {
  it('is not continued, whichever write was the last, and can be erased again', async () => {
    const keyv = await openStore(SQLITE.url());
    const store = new KeyvCallStore(keyv, systemClock, 1_000);
    for (let writes = 0; ; writes += 1) {
      const expires = Date.now() + 60_000;
      const call: CallRecord = {
        id: `${expires.toString(36)}.${randomUUID()}${end}`,
        method: 'tools/call',
        params: { name: 'charge' },
        requestId: 1,
        revision: '2026-07-28',
        client: { capabilities: {}, info: { name: 'x', version: '1' }, protocolVersion: '2026-07-28' },
        created: Date.now(),
        expires,
      };
      await store.insertEntry(call, 0, { type: 'called', call, owner: 'one', when: 1 } as unknown as Entry);
      for (let nth = 1; nth <= STEPS; nth += 1)
        await store.insertEntry(call, nth, {
          type: 'completed',
          completion: { kind: 'step', path: `charge ${nth}`, result: nth },
        } as unknown as Entry);
      let left = writes;
      const dying = new Proxy(store, {
        get: (target, name) => {
          const own: unknown = Reflect.get(target, name, target);
          if (typeof own !== 'function') return own;
          const isWrite = ['insertEntry', 'replace', 'remove'].includes(String(name));
          return (...args: unknown[]): unknown => {
            if (isWrite && left === 0) return Promise.reject(KILLED);
            left -= Number(isWrite);
            return own.apply(target, args);
          };
        },
      });
      const entries = await logOf(store, call.id);
      const story = {
        call,
        entries,
        label: '',
        isTask: false,
        folded: new Folding(),
        status: 'running',
      } as const;
      const names = new Names('mcp-await');
      const died = await new CallBook(dying, names, systemClock)
        .erase(story)
        .catch((error: unknown) => error);
      const after = await logOf(store, call.id);
      // Whole, or gone, or one that says that it is over: a log that ends before its steps do would run them again.
      const isWhole = after.filter(({ type }) => type === 'completed').length === STEPS;
      expect(isWhole || after.length === 0 || after.some(({ type }) => type === 'cancelled')).toBe(true);
      await new CallBook(store, names, systemClock).erase(story);
      const rest = await logOf(store, call.id);
      expect(rest.filter(({ type }) => type !== 'cancelled')).toEqual([]);
      if (died === undefined) break;
      expect(died).toBe(KILLED);
    }
    await keyv.disconnect();
  });
});

/** Two processes on one store, whose callers are named by their bearers. */
async function twoProcesses(build: () => McpServer, options: object = {}) {
  const url = SQLITE.url();
  const stores = [await openStore(url), await openStore(url)];
  const served: Served[] = [];
  for (const store of stores)
    served.push(
      await serveHere(build, {
        store,
        secrets: [SECRET],
        principal: (authInfo) => authInfo?.clientId as string | undefined,
        ...options,
      }),
    );
  const [here, there] = served as [Served, Served];
  const close = async (): Promise<void> => {
    for (const one of served) await one.close();
    for (const store of stores) await store.disconnect();
  };
  return { here, there, close };
}

it('is told to an older client whose answer its process has not read', async () => {
  const build = (): McpServer => {
    const server = new McpServer({ name: 'payments', version: '1' });
    server.registerTool('pay', {}, async () => {
      await server.server.elicitInput({
        message: 'Pay?',
        requestedSchema: { type: 'object', properties: {} },
      });
      await new Promise((resolve) => setTimeout(resolve, 2_000));
      return { content: [] };
    });
    return server;
  };
  const { here, there, close } = await twoProcesses(build);
  const peer = await inSession(here.url, '2025-11-25', { authorization: 'Bearer ann' });
  const stream = await peer.stream(sessionCall('c', 'pay'));
  const { id } = await stream.next(({ method }) => method === 'elicitation/create');
  const given = answer(id, {});
  expect((await new Peer(there.url, peer.headers).post(given)).status).toBe(202);
  expect(await there.handler.forget('ann')).toBe(1);
  expect(await stream.next((message) => message.id === 'c')).toMatchObject({ error: { code: -32000 } });
  await close();
});

/** A tool that waits parked at one process, is completed at another, and is then deleted. */
describe.each(['erased', 'evicted'])('a call that is %s', (how) => {
  it.each(['at once', 'after a lease'])('is not gone on with where its tool is parked: %s', async (when) => {
    let paid = 0;
    const build = (): McpServer => {
      const server = new McpServer({ name: 'payments', version: '1' });
      server.registerTool('pay', { inputSchema: { much: z.string() } }, async () => {
        const requestedSchema = {
          type: 'object' as const,
          properties: { yes: { type: 'boolean' as const } },
        };
        await server.server.elicitInput({ message: 'Pay?', requestedSchema });
        const nth = await step('pay', () => {
          paid += 1;
          return paid;
        });
        return { content: [{ type: 'text', text: `paid ${nth}` }] };
      });
      return server;
    };
    const lease = 200;
    const { here, there, close } = await twoProcesses(build, tuned({ lease, callerStoredBytes: 100_000 }));
    const headers = { authorization: 'Bearer ann' };
    const call = { tool: 'pay', args: { much: 'x' }, headers };
    const asked = await post(here.url, call);
    const again = { ...call, state: asked.state, responses: accept(asked.keys, { yes: true }) };
    expect(textOf(await post(there.url, again))).toBe('paid 1');
    if (how === 'erased') expect(await there.handler.forget('ann')).toBe(1);
    else {
      // Others of the same caller need the room.
      await new Promise((resolve) => setTimeout(resolve, 7 * lease));
      for (let nth = 0; nth < 12; nth += 1)
        await post(there.url, { ...call, args: { much: 'x'.repeat(20_000) } });
    }
    if (when === 'after a lease') await new Promise((resolve) => setTimeout(resolve, 2 * lease));
    const reply = await post(here.url, again);
    expect(reply.message.error).toMatchObject({ code: -32602 });
    expect(paid).toBe(1);
    await close();
  });
});
