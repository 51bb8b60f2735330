/** Replies that are held back: what has something to lose becomes a stream, all else is one response. */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js';
import { afterEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { KeyvCallStore } from '../../src/checkpoint/call-store.ts';
import { KeyRing } from '../../src/checkpoint/key-ring.ts';
import { Names } from '../../src/checkpoint/names.ts';
import { plainRecords } from '../../src/checkpoint/records.ts';
import { type AwaitOptions, step } from '../../src/index.ts';
import { type Flaky, flakyStore } from '../fixtures/flaky-store.ts';
import { startProcess } from '../stream/workbench.ts';
import { answer, asks, begin, call, type Session } from './anywhere.ts';
import { SECRET, type Served, serveHere } from './harness.ts';
import type { Reader } from './reader.ts';

/** What the tools wait for. */
interface Gate {
  readonly opened: Promise<void>;
  open(): void;
}

function gate(): Gate {
  let open = (): void => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}

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
  server.registerTool('one', {}, async () => {
    const requestedSchema = { type: 'object' as const, properties: { name: { type: 'string' as const } } };
    const { content } = await server.server.elicitInput({ message: 'name?', requestedSchema });
    return { content: [{ type: 'text', text: String(content?.name) }] };
  });
  return server;
}

/** Two handlers on one store. */
async function start(limits: AwaitOptions['limits'] = LONG, version?: string): Promise<Session> {
  flaky = flakyStore();
  work = gate();
  keysInStep = [];
  for (const _ of [0, 1]) {
    servers.push(
      await serveHere(build, { store: flaky.store, secrets: [SECRET], limits: { lease: 1_000, ...limits } }),
    );
  }
  return begin(servers, { elicitation: {} }, undefined, version);
}

/** A process that slept since it had a call's turn, and takes the call's stream over as it wakes. */
async function takeStream(session: Session, { last }: Reader): Promise<void> {
  const ring = new KeyRing([SECRET]);
  const parts = { names: new Names('mcp-await', ring), cipher: plainRecords('mcp-await', ring) };
  const streams = startProcess({ records: new KeyvCallStore(flaky.store, systemClock, 1_000, parts) });
  await streams.takeOver(last.slice(0, last.lastIndexOf('_')), session.headers['mcp-session-id'] ?? '');
  await streams.close();
}

/** A call that goes on, and whose stream was taken over after its first event. */
async function taken(tool: string, version: string): Promise<{ session: Session; stream: Reader }> {
  const session = await start(LONG, version);
  const stream = await session.post(0, call(tool));
  await expect.poll(() => stream.last).not.toBe('');
  await takeStream(session, stream);
  work.open();
  return { session, stream };
}

const isOver = (stream: Reader) => expect.poll(() => stream.over).toBe(true);
const text = (stream: Reader) => stream.messages.at(-1)?.result?.content?.[0]?.text;

describe.each(['2025-06-18', '2025-11-25'])(
  'a stream that a process takes over as it wakes (%s)',
  (version) => {
    it('is taken back by the process that runs its call', async () => {
      const { session, stream } = await taken('says_and_asks', version);
      await session.post(1, answer(await stream.next(asks('name')), 'name'));
      await isOver(stream);
      expect(text(stream)).toBe('its name');
    });

    it('has the call’s response all the same', async () => {
      const { stream } = await taken('says', version);
      await isOver(stream);
      expect(text(stream)).toBe('done');
      expect(stream.messages.filter(({ id }) => id === 7)).toHaveLength(1);
    });

    it('has it from a process that took the call over, too', async () => {
      const session = await start({ ...LONG, drain: 50 }, version);
      const stream = await session.post(0, call('says'));
      await expect.poll(() => stream.last).not.toBe('');
      // The other one is the first from here on.
      await servers.shift()?.close();
      const again = await session.get(0, stream.last);
      await expect.poll(() => again.last, { timeout: 10_000 }).not.toBe('');
      await takeStream(session, again);
      work.open();
      await isOver(again);
      expect(text(again)).toBe('done');
    });

    it('has it after a notification that came too late', async () => {
      const { stream } = await taken('works_and_says', version);
      await isOver(stream);
      expect(text(stream)).toBe('done');
    });
  },
);

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
