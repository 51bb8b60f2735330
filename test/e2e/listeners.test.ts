/** `subscriptions/listen` on 2026-07-28: what is said in one process is heard in the others, by those it is for. */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { SubscribeRequestSchema, UnsubscribeRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { afterEach, describe, expect, it } from 'vitest';
import { tuned } from '../../src/call/limits.ts';
import { openStore } from '../../src/checkpoint/open-store.ts';
import { type AwaitOptions, memoryRelay, type Relay } from '../../src/index.ts';
import { openRelay } from '../../src/relay/open-relay.ts';
import { some } from '../short.ts';
import { begin, type Session } from './anywhere.ts';
import { post } from './clients.ts';
import { SECRET, type Served, serveHere } from './harness.ts';
import { Reader } from './reader.ts';
import { NATS, NATS_URL, REDIS, REDIS_URL, STORES } from './services.ts';

const open: Served[] = [];
const streams: AbortController[] = [];
afterEach(async () => {
  for (const stream of streams.splice(0)) stream.abort();
  await Promise.all(open.splice(0).map((served) => served.close()));
});

function changing(): McpServer {
  const lists = { listChanged: true };
  const capabilities = { resources: { ...lists, subscribe: true }, tools: lists };
  const server = new McpServer({ name: 'changing', version: '1' }, { capabilities });
  server.server.setRequestHandler(SubscribeRequestSchema, () => ({}));
  server.server.setRequestHandler(UnsubscribeRequestSchema, () => ({}));
  server.registerTool('change', {}, async ({ sendNotification }) => {
    await sendNotification({ method: 'notifications/resources/updated', params: { uri: 'diary://today' } });
    server.registerTool('more', {}, async () => ({ content: [] }));
    return { content: [{ type: 'text', text: 'changed' }] };
  });
  return server;
}

const UPDATED = 'notifications/resources/updated';
const CHANGED = 'notifications/tools/list_changed';

async function listen({ url }: Served, caller: string | undefined): Promise<Reader> {
  const stream = new AbortController();
  streams.push(stream);
  const params = {
    notifications: { toolsListChanged: true, resourceSubscriptions: ['diary://today'] },
    _meta: {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientInfo': { name: 'e2e', version: '1' },
      'io.modelcontextprotocol/clientCapabilities': {},
    },
  };
  const response = await fetch(url, {
    method: 'POST',
    signal: stream.signal,
    headers: {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'mcp-protocol-version': '2026-07-28',
      'mcp-method': 'subscriptions/listen',
      ...(caller !== undefined && { authorization: `Bearer ${caller}` }),
    },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'subscriptions/listen', params }),
  });
  const reader = new Reader(response);
  await reader.next(({ method }) => method === 'notifications/subscriptions/acknowledged');
  return reader;
}

const heard = ({ messages }: Reader): string[] =>
  messages.flatMap(({ method }) => (method === UPDATED || method === CHANGED ? [method] : []));

/** A tool's notifications, and then one for all: whoever has that one has heard whatever else was for it. */
async function spread(speaker: Served, listeners: readonly Served[]): Promise<void> {
  const readers = await Promise.all(
    listeners.flatMap((at) => [listen(at, 'ann'), listen(at, 'ben'), listen(at, undefined)]),
  );
  await post(speaker.url, { tool: 'change', headers: { authorization: 'Bearer ann' } });
  for (const [nth, reader] of readers.entries())
    if (nth % 3 === 0) await expect.poll(() => heard(reader).sort()).toEqual([UPDATED, CHANGED]);
  await speaker.handler.notify.toolsChanged();
  for (const [nth, reader] of readers.entries()) {
    const own = nth % 3 === 0 ? [UPDATED, CHANGED] : [];
    await expect.poll(() => heard(reader).sort()).toEqual([...own, CHANGED].sort());
  }
}

async function processes(count: number, options: () => Promise<AwaitOptions>): Promise<Served[]> {
  for (let nth = 0; nth < count; nth += 1)
    open.push(await serveHere(changing, { ...(await options()), secrets: [SECRET] }));
  return [...open];
}

describe.each(some(STORES))('listeners of processes on $name', ({ url: placeOf, down }) => {
  it.skipIf(down)('hear what a tool of their caller says elsewhere, and what is said to all', async () => {
    const place = placeOf();
    const served = await processes(3, async () => ({ store: await openStore(place) }));
    const [first] = served;
    if (first !== undefined) await spread(first, served);
  });
});

const RELAYS = [
  { name: 'memory', down: false, open: () => Promise.resolve(memoryRelay()), isOne: true },
  { name: 'Redis', down: REDIS.down, open: () => openRelay(REDIS_URL), isOne: false },
  { name: 'NATS', down: NATS.down, open: () => openRelay(NATS_URL), isOne: false },
];

describe.each(RELAYS)('with a relay over $name', ({ down, open: openOne, isOne }) => {
  it.skipIf(down)('they hear it at once', async () => {
    const place = STORES[0]?.url() ?? '';
    const relays = isOne ? [await openOne()] : [await openOne(), await openOne()];
    // Without the relay they would look in an hour.
    const served = await processes(2, async () => ({
      store: await openStore(place),
      relay: relays[open.length % relays.length] ?? memoryRelay(),
      ...tuned({ streamPoll: 3_600_000 }),
    }));
    const [first] = served;
    if (first !== undefined) await spread(first, served);
    await Promise.all(open.splice(0).map((one) => one.close()));
    for (const relay of relays) await relay.close();
  });
});

it('hear it beside a relay that does not answer', async () => {
  const place = STORES[0]?.url() ?? '';
  const silent: Relay = { ...memoryRelay(), send: () => new Promise(() => {}) };
  const mute: Relay = { ...silent, listen: () => new Promise(() => {}) };
  for (const relay of [silent, mute]) {
    const [first, ...others] = await processes(2, async () => ({ store: await openStore(place), relay }));
    if (first !== undefined) await spread(first, [first, ...others]);
    await Promise.all(open.splice(0).map((one) => one.close()));
  }
});

it('hear it in one process without a store', async () => {
  const [only] = await processes(1, async () => ({}));
  if (only !== undefined) await spread(only, [only]);
});

it('read nothing once nobody listens', async () => {
  const place = STORES[0]?.url() ?? '';
  const [speaker, other] = await processes(2, async () => ({ store: await openStore(place) }));
  if (speaker === undefined || other === undefined) return;
  await spread(speaker, [other]);
  for (const stream of streams.splice(0)) stream.abort();
  await speaker.handler.notify.toolsChanged();
  const again = await listen(other, 'ann');
  await speaker.handler.notify.resourceUpdated('diary://today');
  await expect.poll(() => heard(again)).toEqual([UPDATED]);
});

describe.each([
  ['one process', 1],
  ['two processes', 2],
] as const)('sessions of 2025 at %s', (_, count) => {
  it('hear on their standing stream what is said to all, and of resources what they subscribed to', async () => {
    const place = STORES[0]?.url() ?? '';
    const served = await processes(count, async () => (count === 1 ? {} : { store: await openStore(place) }));
    const there = count - 1;
    const subscribe = (session: Session, method: string, id: number): Promise<Reader> =>
      session.post(0, { id, method, params: { uri: 'diary://today' } });
    const sessions = await Promise.all([begin(served), begin(served, {}, 'ann'), begin(served, {}, 'ben')]);
    const readers = await Promise.all(sessions.map((session) => session.get(there)));
    const [, left] = sessions;
    for (const session of sessions.slice(0, 2))
      await (await subscribe(session, 'resources/subscribe', 1)).next(({ id }) => id === 1);
    await (await subscribe(left as Session, 'resources/unsubscribe', 2)).next(({ id }) => id === 2);
    const { notify } = (served[0] as Served).handler;
    await notify.resourceUpdated('diary://today');
    await notify.resourceUpdated('diary://tomorrow');
    await notify.toolsChanged();
    const [one, ...others] = readers as [Reader, ...Reader[]];
    await expect.poll(() => heard(one).sort()).toEqual([UPDATED, CHANGED]);
    for (const other of others) await expect.poll(() => heard(other)).toEqual([CHANGED]);
  });

  it('hear it over HTTP+SSE, too', async () => {
    const place = STORES[0]?.url() ?? '';
    const served = await processes(count, async () => (count === 1 ? {} : { store: await openStore(place) }));
    const stream = new AbortController();
    streams.push(stream);
    const url = served[count - 1]?.url.replace('/mcp', '/sse') ?? '';
    const reader = new Reader(await fetch(url, { signal: stream.signal }));
    await expect.poll(() => reader.text).toContain('endpoint');
    await served[0]?.handler.notify.toolsChanged();
    await expect.poll(() => reader.text).toContain(CHANGED);
  });
});

it.each(['2025-11-25', 'DRAFT-SEP-1858', 'DRAFT-SEP-2322'])(
  'a session of %s is refused a subscription beyond what it may keep of URIs',
  async (version) => {
    const served = await processes(1, async () => ({}));
    const session = await begin(served, {}, undefined, version);
    const subscribed = async (id: number, uri: string): Promise<unknown> => {
      const reader = await session.post(0, { id, method: 'resources/subscribe', params: { uri } });
      await expect.poll(() => reader.over).toBe(true);
      return [reader.status, /"code":-?\d+/.exec(reader.text)?.[0]];
    };
    expect(await subscribed(1, 'x'.repeat(65_536))).toEqual([200, undefined]);
    expect(await subscribed(2, 'x')).toEqual([429, '"code":-32603']);
    expect(await subscribed(3, 'x'.repeat(65_536))).toEqual([200, undefined]);
  },
);
