/** Replies that are held back: what has something to lose becomes a stream, all else is one response. */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js';
import { afterEach, describe, expect, it } from 'vitest';
import { type Limits, tuned } from '../../src/call/limits.ts';
import { step } from '../../src/index.ts';
import { type Flaky, flakyStore } from '../fixtures/flaky-store.ts';
import { type Gate, gate } from '../fixtures/gate.ts';
import { answer, asks, begin, call, type Session } from './anywhere.ts';
import { SECRET, type Served, serveHere } from './harness.ts';
import type { Reader } from './reader.ts';

/** Longer than a test: only an ask, a step or an event ends it. */
const LONG = { heldReply: 600_000 };
const WITHOUT_PRIMING = ['2025-06-18', 'DRAFT-SEP-1858'];
const done: CallToolResult = { content: [{ type: 'text', text: 'done' }] };

let flaky: Flaky;
let work: Gate;
let keysInStep: string[];
const servers: Served[] = [];
afterEach(async () => {
  work?.open();
  for (const served of servers.splice(0)) await served.close();
});

function build(): McpServer {
  const server = new McpServer({ name: 'held', version: '1' }, { capabilities: { logging: {} } });
  server.registerTool('plain', {}, async () => done);
  server.registerTool('works', {}, async () => {
    await work.opened;
    return done;
  });
  server.registerTool('steps', {}, async () => {
    await step('charge', async () => {
      keysInStep = flaky.entries('called');
      await work.opened;
    });
    return done;
  });
  server.registerTool('says', {}, async (extra) => {
    const params = { level: 'info' as const, data: 'on the way' };
    await extra.sendNotification({ method: 'notifications/message', params });
    await work.opened;
    return done;
  });
  server.registerTool('works_and_says', {}, async (extra) => {
    const params = { level: 'info' as const, data: 'on the way' };
    await extra.sendNotification({ method: 'notifications/message', params });
    await work.opened;
    await extra.sendNotification({ method: 'notifications/message', params });
    return done;
  });
  server.registerTool('says_and_asks', {}, async (extra) => {
    const params = { level: 'info' as const, data: 'on the way' };
    await extra.sendNotification({ method: 'notifications/message', params });
    await work.opened;
    const requestedSchema = { type: 'object' as const, properties: { name: { type: 'string' as const } } };
    const { content } = await server.server.elicitInput({ message: 'name?', requestedSchema });
    return { content: [{ type: 'text', text: String(content?.name) }] };
  });
  server.registerTool('large', {}, () => ({ content: [{ type: 'text', text: 'x'.repeat(100_000) }] }));
  server.registerTool('one', {}, async () => {
    const requestedSchema = { type: 'object' as const, properties: { name: { type: 'string' as const } } };
    const { content } = await server.server.elicitInput({ message: 'name?', requestedSchema });
    return { content: [{ type: 'text', text: String(content?.name) }] };
  });
  return server;
}

/** Two handlers on one store. */
async function start(limits: Partial<Limits> = LONG, version?: string): Promise<Session> {
  flaky = flakyStore();
  work = gate();
  keysInStep = [];
  for (const _ of [0, 1]) {
    servers.push(
      await serveHere(build, {
        store: flaky.store,
        secrets: [SECRET],
        ...tuned({ lease: 1_000, ...limits }),
      }),
    );
  }
  return begin(servers, { elicitation: {} }, undefined, version);
}

const isOver = (stream: Reader) => expect.poll(() => stream.over).toBe(true);
const text = (stream: Reader) => stream.messages.at(-1)?.result?.content?.[0]?.text;

describe.each(['2025-06-18', '2025-11-25'])('a call that another process took over (%s)', (version) => {
  it('has its response on the stream of the client that came back', async () => {
    const session = await start({ ...LONG, drain: 50 }, version);
    const stream = await session.post(0, call('says'));
    await expect.poll(() => stream.last).not.toBe('');
    // The other one is the first from here on.
    await servers.shift()?.close();
    const again = await session.get(0, stream.last);
    await expect.poll(() => again.last).not.toBe('');
    work.open();
    await isOver(again);
    expect(text(again)).toBe('done');
  });
});

describe('a call that is over at once', () => {
  it.each(['2025-03-26', '2025-11-25', 'DRAFT-SEP-1858'])(
    'is one event without an id, and nothing is kept of it (%s)',
    async (version) => {
      const session = await start(LONG, version);
      const before = flaky.size;
      const stream = await session.post(0, call('plain'));
      await isOver(stream);
      expect(text(stream)).toBe('done');
      expect(stream.messages).toHaveLength(1);
      expect(stream.text).not.toMatch(/^id:/m);
      expect(flaky.size).toBe(before);
    },
  );

  it('is refused beside others whose responses take more than may wait for clients', async () => {
    const session = await start({ ...LONG, unreadBytes: 800_000 }, '2025-03-26');
    const array = (count: number): object[] =>
      Array.from({ length: count }, (_, id) => ({ jsonrpc: '2.0', ...call('large'), id }));
    const stream = await session.post(0, array(2));
    await isOver(stream);
    expect(stream.messages.map(({ id }) => id)).toEqual([0, 1]);
    const refused = await session.post(0, array(9));
    await isOver(refused);
    expect(refused.status).toBe(429);
    expect(JSON.parse(refused.text)).toMatchObject({
      error: { data: { 'mcp-await': { reason: 'limit', retry: false } } },
    });
    // Nothing of it is left.
    const again = await session.post(0, array(2));
    await isOver(again);
    expect(again.messages.map(({ id }) => id)).toEqual([0, 1]);
  });

  it('may have the id of one before it', async () => {
    const session = await start();
    for (let nth = 0; nth < 3; nth += 1) {
      const stream = await session.post(0, call('plain'));
      await isOver(stream);
      expect(text(stream)).toBe('done');
    }
  });

  it('is cancelled without a trace', async () => {
    const session = await start();
    const before = flaky.size;
    const posted = session.post(0, call('works'));
    const cancelled = { method: 'notifications/cancelled', params: { requestId: 7 } };
    await expect
      .poll(async () => {
        await session.post(0, cancelled);
        return Promise.race([
          posted.then(() => true),
          new Promise((resolve) => setTimeout(resolve, 50, false)),
        ]);
      })
      .toBe(true);
    const stream = await posted;
    await isOver(stream);
    expect(stream.messages).toEqual([]);
    expect(flaky.size).toBe(before);
  });
});

describe('a call becomes durable', () => {
  it('after a moment, and its client comes back for it at another process', async () => {
    const session = await start({ heldReply: 10 });
    const stream = await session.post(0, call('works'));
    await expect.poll(() => stream.last).not.toBe('');
    const elsewhere = await session.get(1, stream.last);
    work.open();
    await isOver(elsewhere);
    expect(text(elsewhere)).toBe('done');
  });

  it('before a step of it runs: it is in its journal, and its client has an id', async () => {
    const session = await start();
    const stream = await session.post(0, call('steps'));
    // The step waits for this client, so its id is not one of after the step.
    await expect.poll(() => stream.last).not.toBe('');
    await expect.poll(() => keysInStep).toHaveLength(1);
    work.open();
    await isOver(stream);
    expect(text(stream)).toBe('done');
  });

  it.each(WITHOUT_PRIMING)(
    'with its first event, on a revision without priming events (%s)',
    async (version) => {
      const session = await start(LONG, version);
      const stream = await session.post(0, call('says'));
      await stream.next(({ method }) => method === 'notifications/message');
      expect(stream.last).not.toBe('');
      expect(flaky.entries('called')).toHaveLength(1);
      work.open();
      await isOver(stream);
      expect(text(stream)).toBe('done');
    },
  );

  it('after a moment of SEP-1858, whose next event has an id', async () => {
    const session = await start({ heldReply: 10 }, 'DRAFT-SEP-1858');
    const stream = await session.post(0, call('works'));
    expect(flaky.entries('called')).toHaveLength(1);
    work.open();
    await isOver(stream);
    expect(text(stream)).toBe('done');
    expect(stream.last).not.toBe('');
  });

  it('with its first ask of SEP-1858, whose answer goes to another process', async () => {
    const session = await start(LONG, 'DRAFT-SEP-1858');
    const stream = await session.post(0, call('one'));
    await isOver(stream);
    expect(flaky.entries('suspended')).toHaveLength(1);
    const ask = stream.messages.find(asks('name'));
    const answers = [{ jsonrpc: '2.0', ...answer(ask ?? {}, 'name') }];
    const next = await session.post(1, answers, { 'last-event-id': stream.last });
    await isOver(next);
    expect(JSON.parse(next.text).result.content[0].text).toBe('its name');
  });

  it('with its first ask, which is answered at another process', async () => {
    const session = await start();
    const stream = await session.post(0, call('one'));
    const ask = await stream.next(asks('name'));
    expect(flaky.entries('called')).toHaveLength(1);
    expect((await session.post(1, answer(ask, 'name'))).status).toBe(202);
    await isOver(stream);
    expect(text(stream)).toBe('its name');
  });

  it('in a batch with those that are in work, not with those that are over', async () => {
    const session = await start(LONG, '2025-03-26');
    const stream = await session.post(0, [
      { jsonrpc: '2.0', ...call('plain'), id: 'over' },
      { jsonrpc: '2.0', ...call('one'), id: 'asks' },
    ]);
    const ask = await stream.next(asks('name'));
    await stream.next(({ id }) => id === 'over');
    const kept = flaky.entries('called');
    expect(kept).toHaveLength(1);
    expect(kept[0]).toContain('"asks"');
    await session.post(0, answer(ask, 'name'));
    await stream.next(({ id }) => id === 'asks');
    await isOver(stream);
  });

  it('in a batch whose client comes back to another process, where each call goes on from where it was', async () => {
    const session = await start(LONG, '2025-03-26');
    const stream = await session.post(0, [
      { jsonrpc: '2.0', ...call('plain'), id: 'over' },
      { jsonrpc: '2.0', ...call('one'), id: 'first' },
      { jsonrpc: '2.0', ...call('one'), id: 'second' },
    ]);
    await expect.poll(() => stream.messages.filter(asks('name')).length).toBe(2);
    const [ask, other] = stream.messages.filter(asks('name'));
    await session.post(0, answer(ask ?? {}, 'name'));
    await stream.next(({ result }) => result?.content?.[0]?.text === 'its name');
    const again = await session.get(1, stream.last);
    await session.post(1, answer(other ?? {}, 'name'));
    await isOver(again);
    const [had, got] = [stream, again].map(({ messages }) => messages.filter(({ method }) => !method));
    expect(got).toHaveLength(1);
    const ids = [...(had ?? []), ...(got ?? [])].map(({ id }) => id);
    expect(ids.sort()).toEqual(['first', 'over', 'second']);
    expect(again.messages.filter(asks('name'))).toEqual([]);
    const once = await session.get(0, again.last);
    await isOver(once);
    expect(once.messages).toEqual([]);
    expect((await session.get(0, `${again.last}-1`)).messages).toEqual([]);
  });

  it.each(['2025-11-25', 'DRAFT-SEP-1858'])(
    'once its store is back, and continues meanwhile (%s)',
    async (version) => {
      const session = await start({ heldReply: 10 }, version);
      flaky.fail = 'called';
      const posted = session.post(0, call('works'));
      const held = servers[0]?.log;
      await expect.poll(() => held?.text).toContain('the store fails');
      work.open();
      const stream = await posted;
      await isOver(stream);
      expect(text(stream)).toBe('done');
      expect(flaky.entries('called')).toEqual([]);
    },
  );

  it.each([
    ['2025-11-25', 'steps', 'called'],
    ['DRAFT-SEP-1858', 'steps', 'called'],
    ['DRAFT-SEP-1858', 'one', 'called'],
  ] as const)('or no step of it runs, and nothing is asked (%s, %s)', async (version, tool, entry) => {
    const session = await start({ ...LONG, lease: 100 }, version);
    flaky.fail = entry;
    const stream = await session.post(0, call(tool));
    await isOver(stream);
    expect(stream.messages.at(-1)?.error?.code).toBe(-32603);
    expect(keysInStep).toEqual([]);
    flaky.fail = undefined;
  });

  it('DRAFT-SEP-1858: and waits with its question for the store', async () => {
    const session = await start({ ...LONG, lease: 100 }, 'DRAFT-SEP-1858');
    flaky.fail = 'suspended';
    const posted = session.post(0, call('one'));
    await expect.poll(() => servers[0]?.log.text).toContain('the store fails');
    flaky.fail = undefined;
    const stream = await posted;
    await isOver(stream);
    expect(stream.text).toContain('event: input_required');
  });
});
