/**
 * A stranger: an attacker without credentials who reaches the endpoint and sends anything, in any amount. Must not end
 * the process, or take from callers that have a name. Asserted by counts, never by time.
 */
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { afterEach, describe, expect, it } from 'vitest';
import { tuned } from '../../src/call/limits.ts';
import type { AwaitOptions } from '../../src/index.ts';
import { accept, legacyOver, messagesIn, post, textOf } from '../e2e/clients.ts';
import { SECRET, type Served, serveHere } from '../e2e/harness.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { SHORT } from '../short.ts';
import { answer, begin, call, inSession, Peer } from './peer.ts';

let served: Served;
let begun = 0;
/** Lets the tools that are waiting go on. */
let release = (): void => {};
afterEach(async () => {
  release();
  begun = 0;
  await served.close();
});

/** `wait` begins and waits; the tools of the asking server ask. */
function server(): McpServer {
  const built = buildServer(() => {});
  const released = new Promise<void>((resolve) => {
    const before = release;
    release = () => {
      before();
      resolve();
    };
  });
  built.registerTool('wait', { description: 'waits' }, async () => {
    begun += 1;
    await released;
    return { content: [{ type: 'text', text: 'done' }] };
  });
  built.registerTool('large', {}, () => ({ content: [{ type: 'text', text: 'x'.repeat(1_500_000) }] }));
  built.registerTool('ask-and-wait', {}, async () => {
    const { content } = await built.server.elicitInput({
      message: 'name?',
      requestedSchema: { type: 'object', properties: { name: { type: 'string' } } },
    });
    begun += 1;
    await released;
    return { content: [{ type: 'text', text: String(content?.name) }] };
  });
  return built;
}

async function serve(options: AwaitOptions = {}): Promise<string> {
  served = await serveHere(server, { secrets: [SECRET], ...options });
  return served.url;
}

const as = (caller: string) => ({ authorization: `Bearer ${caller}` });
const many = <T>(count: number, make: (nth: number) => T): T[] =>
  Array.from({ length: count }, (_, nth) => make(nth));

describe('an array of messages', () => {
  it.each(['2025-06-18', '2025-11-25', 'DRAFT-MRTR-2026-02', 'DRAFT-SEP-2322', 'DRAFT-SEP-1858'])(
    'is refused on %s, and begins nothing',
    async (version) => {
      const peer = await inSession(await serve(), version);
      const { status, messages } = await peer.post(many(3, (id) => call(id, 'wait')));
      expect([status, messages[0]?.error?.code, begun]).toEqual([400, -32600, 0]);
    },
  );

  it('is refused on 2026-07-28 and by a workspace, and begins nothing', async () => {
    const url = await serve();
    const envelope = { 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/call', 'mcp-name': 'wait' };
    const calls = many(3, (id) => call(id, 'wait'));
    expect((await new Peer(url, envelope).post(calls)).status).toBe(400);
    expect((await new Peer(`${url}/acme`, {}).post(calls)).status).toBe(400);
    expect(begun).toBe(0);
  });

  it.each([
    [1_000, 400, 'at most 100 messages'],
    [40_000, 413, 'more than 100000 values'],
  ])('of %i calls begins none, and its refusal names the limit', async (count, refusal, limit) => {
    const url = await serve();
    const peer = await inSession(url, '2025-03-26');
    const { status, messages } = await peer.post(many(count, (id) => call(id, 'wait')));
    expect(status).toBe(refusal);
    expect(messages[0]?.error).toMatchObject({ message: expect.stringContaining(limit) });
    expect([begun, served.handler.counters.calls]).toEqual([0, 0]);
  });

  it('may hold up to 100 messages on 2025-03-26', async () => {
    const url = await serve({ ...tuned({ batch: 3 }) });
    const peer = await inSession(url, '2025-03-26');
    release();
    const ping = (id: number) => ({ jsonrpc: '2.0', id, method: 'ping' });
    expect((await peer.post(many(4, ping))).status).toBe(400);
    const { status, text } = await peer.post(many(3, ping));
    expect([status, messagesIn(text).filter(({ id }) => id !== undefined).length]).toEqual([200, 3]);
    expect((await peer.post([])).status).toBe(400);
    expect((await peer.post([{ jsonrpc: '2.0', id: 9, method: 'initialize', params: {} }])).status).toBe(400);
  });

  it('gets its results on a stream where they are large, in no text of all of them', async () => {
    const peer = await inSession(await serve(), '2025-03-26');
    const { messages, headers } = await peer.post(many(4, (nth) => call(nth, 'large')));
    expect(messages.map(({ id }) => id).sort()).toEqual([0, 1, 2, 3]);
    // A text of more than 512 MB cannot be made, and ended the process; a stream has no length.
    expect(headers.get('content-length')).toBeNull();
  });

  it('counts as many times as it has messages, of whatever kind', async () => {
    const rate = { most: 10, per: 60_000 };
    const url = await serve({ rateLimit: { calls: rate, resumes: rate } });
    const peer = await inSession(url, '2025-03-26', as('ann'));
    const notes = many(8, () => ({ jsonrpc: '2.0', method: 'notifications/initialized' }));
    expect((await peer.post(notes)).status).toBe(202);
    expect((await peer.post(notes)).status).toBe(429);
    expect((await peer.post(many(10, (id) => call(id, 'wait')))).status).toBe(429);
    expect(begun).toBe(0);
  });

  it('of answers is bounded on SEP-1858, too', async () => {
    const url = await serve({ ...tuned({ batch: 5 }) });
    const peer = await inSession(url, 'DRAFT-SEP-1858');
    const { text } = await peer.post(call(1, 'one'));
    const id = [...text.matchAll(/^id: (.+)$/gm)].at(-1)?.[1] ?? '';
    const answers = many(6, (nth) => answer(`nobody ${nth}`, {}));
    const { status, messages } = await peer.post(answers, { 'last-event-id': id });
    expect([status, messages[0]?.error?.message]).toEqual([
      400,
      expect.stringContaining('at most 5 messages'),
    ]);
  });
});

describe('calls in work', () => {
  it('are never more of strangers than their part of limits.calls, however they are sent', async () => {
    const url = await serve({ ...tuned({ calls: 20, callerCalls: 10, anonymousCalls: 5 }) });
    const stranger = await inSession(url, '2025-03-26');
    const sent = many(4, (nth) => stranger.send(many(2, (id) => call(`${nth} ${id}`, 'wait'))));
    const statuses = (await Promise.all(sent)).map(({ status }) => status);
    await expect.poll(() => begun).toBe(4);
    expect(statuses.sort()).toEqual([200, 200, 503, 503]);
    const refused = await stranger.post(many(2, (id) => call(`more ${id}`, 'wait')));
    expect([refused.status, refused.headers.get('retry-after')]).toEqual([
      503,
      expect.stringMatching(/^\d+$/),
    ]);
    // A known caller has the rest, and not all of it.
    const ann = await inSession(url, '2025-11-25', as('ann'));
    const hers = await Promise.all(many(11, (id) => ann.send(call(id, 'wait'))));
    expect(hers.filter(({ status }) => status === 200)).toHaveLength(10);
    const bob = await inSession(url, '2025-11-25', as('bob'));
    expect((await bob.send(call(1, 'wait'))).status).toBe(200);
    await expect.poll(() => begun).toBe(15);
    release();
    await expect.poll(async () => (await stranger.send(call('again', 'wait'))).status).toBe(200);
  });
});

describe('suspended calls that are continued', () => {
  it('are never more at once than limits.calls, and the rest is continued when there is room', async () => {
    const url = await serve({ ...tuned({ calls: 20, callerCalls: 10, anonymousCalls: 5 }) });
    const held = [];
    for (let nth = 0; nth < 12; nth += 1) held.push(await post(url, { tool: 'ask-and-wait' }));
    const resume = ({ state, keys }: Awaited<ReturnType<typeof post>>) =>
      post(url, { tool: 'ask-and-wait', state, responses: accept(keys, { name: 'Ann' }) });
    const turns = held.map(resume);
    const settled: Promise<unknown>[] = turns.map((turn, nth) => turn.then(() => nth));
    const refused = new Set<unknown>();
    while (refused.size < 7) {
      const waiting = settled.filter((_, nth) => !refused.has(nth));
      refused.add(await Promise.race(waiting));
    }
    await expect.poll(() => begun).toBe(5);
    release();
    for (const [nth, turn] of turns.entries()) {
      const reply = await turn;
      expect(refused.has(nth)).toBe(reply.status === 503 || textOf(reply) !== 'Ann');
    }
    for (const nth of refused) {
      const call = held[Number(nth)];
      if (call !== undefined) expect(textOf(await resume(call))).toBe('Ann');
    }
    expect(begun).toBe(12);
  });
});

describe('sessions of strangers', () => {
  it('never evict one whose call is suspended: its client comes back, and its answer arrives', async () => {
    const url = await serve({ ...tuned({ sessions: 8, callerSessions: 4, anonymousSessions: 4 }) });
    const victim = await inSession(url, '2025-11-25');
    const controller = new AbortController();
    const response = await fetch(url, {
      method: 'POST',
      headers: {
        ...victim.headers,
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
      },
      body: JSON.stringify(call(1, 'one')),
      signal: controller.signal,
    });
    const reader = response.body?.getReader();
    let text = '';
    while (!text.includes('elicitation/create')) {
      text += new TextDecoder().decode((await reader?.read())?.value);
    }
    controller.abort();
    const statuses = await Promise.all(many(40, async () => (await begin(url, '2025-11-25')).status));
    // Idle streams make room for one another; the stream of the suspended call is unowned.
    expect(new Set(statuses)).toEqual(new Set([200]));
    const ask = messagesIn(text).find(({ method }) => method === 'elicitation/create');
    const last = [...text.matchAll(/^id: (.+)$/gm)].at(-1)?.[1] ?? '';
    expect((await victim.post(answer(ask?.id, { name: 'Ann' }))).status).toBe(202);
    const resumed = await fetch(url, {
      headers: { ...victim.headers, accept: 'text/event-stream', 'last-event-id': last },
    });
    expect(resumed.status).toBe(200);
    expect(await resumed.text()).toContain('Hello Ann');
  });

  it('are refused where theirs are all in work, and known callers begin theirs all the same', async () => {
    const url = await serve({ ...tuned({ sessions: 6, callerSessions: 2, anonymousSessions: 3 }) });
    for (let nth = 0; nth < 3; nth += 1) {
      await (await inSession(url, '2025-11-25')).send(call(1, 'wait'));
    }
    const refused = await begin(url, '2025-11-25');
    expect([refused.status, refused.headers.get('retry-after')]).toEqual([
      503,
      expect.stringMatching(/^\d+$/),
    ]);
    expect(served.log.text).toContain('anonymous callers');
    // Connected ones count, also of one known caller.
    for (let nth = 0; nth < 2; nth += 1) {
      await (await inSession(url, '2025-11-25', as('ann'))).send(call(1, 'wait'));
    }
    expect((await begin(url, '2025-11-25', as('ann'))).status).toBe(503);
    expect((await begin(url, '2025-11-25', as('bob'))).status).toBe(200);
    // One that is idle makes room for its own caller.
    expect((await begin(url, '2025-11-25', as('cid'))).status).toBe(200);
  });

  it('of SDK clients that closed make room, those that closed first', async () => {
    const url = await serve({ ...tuned({ sessions: 6, callerSessions: 3, anonymousSessions: 3 }) });
    const requestInit = { headers: as('ann') };
    const open = () => legacyOver(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
    const first = await open();
    for (let nth = 0; nth < 8; nth += 1) {
      const client = await open();
      expect(await client.tool('one')).toBe('Hello its name');
      // It sends no `DELETE`.
      await client.close();
    }
    // Its standing stream is open.
    expect(await first.tool('one')).toBe('Hello its name');
    await first.close();
  });

  it('that have just begun stay, where others closed', async () => {
    let built = 0;
    served = await serveHere(
      () => {
        built += 1;
        return server();
      },
      { secrets: [SECRET], ...tuned({ sessions: 6, callerSessions: 3, anonymousSessions: 3 }) },
    );
    const { url } = served;
    const requestInit = { headers: as('ann') };
    for (let nth = 0; nth < 3; nth += 1)
      await (await legacyOver(new StreamableHTTPClientTransport(new URL(url), { requestInit }))).close();
    const begun = [
      await inSession(url, '2025-11-25', as('ann')),
      await inSession(url, '2025-11-25', as('ann')),
    ];
    const before = built;
    for (const session of begun)
      expect((await session.post({ jsonrpc: '2.0', id: 1, method: 'ping' })).status).toBe(200);
    expect(built).toBe(before);
  });

  it('take no place of a known caller’s, however many are begun', async () => {
    const url = await serve({ ...tuned({ sessions: 4, callerSessions: 2, anonymousSessions: 2 }) });
    const ann = await inSession(url, '2025-11-25', as('ann'));
    const before = await ann.post({ jsonrpc: '2.0', id: 1, method: 'ping' });
    for (let nth = 0; nth < 10; nth += 1) await begin(url, '2025-11-25');
    expect(before.status).toBe(200);
    const sse = url.replace(/mcp$/, 'sse');
    const held = await Promise.all(many(3, () => fetch(sse)));
    expect(held.map(({ status }) => status)).toEqual([200, 200, 503]);
    expect((await fetch(sse, { headers: as('ann') })).status).toBe(200);
  });
});

describe('an answer', () => {
  it.each(['2025-03-26', '2025-06-18', '2025-11-25'])(
    'that reaches nobody is not acknowledged on %s, and one that comes twice is acknowledged twice',
    async (version) => {
      const peer = await inSession(await serve(), version);
      const stream = await peer.stream(call(1, 'one'));
      const ask = await stream.next(({ method }) => method === 'elicitation/create');
      expect((await peer.post(answer('nobody', {}))).status).toBe(400);
      expect((await peer.post(answer(`${String(ask.id)}x`, {}))).status).toBe(400);
      const other = await inSession(peer.url, version, as('bob'));
      expect((await other.post(answer(ask.id, { name: 'Bob' }))).status).toBe(400);
      // Nobody would fetch it from there, and it would stay in the store, where no limit counted it.
      const elsewhere = await inSession(peer.url, version);
      expect((await elsewhere.post(answer(ask.id, { name: 'Eve' }))).status).toBe(400);
      expect((await peer.post(answer(ask.id, { name: 'Ann' }))).status).toBe(202);
      expect((await peer.post(answer(ask.id, { name: 'Ann' }))).status).toBe(202);
      expect((await stream.next(({ id }) => id === 1)).result?.content?.[0]?.text).toBe('Hello Ann');
      expect((await peer.post(answer('nobody', {}))).status).toBe(400);
    },
  );

  it('to a session that was evicted is refused, not swallowed', async () => {
    const url = await serve({ ...tuned({ sessions: 4, anonymousSessions: 2 }) });
    const gone = await inSession(url, '2025-11-25');
    for (let nth = 0; nth < 3; nth += 1) await begin(url, '2025-11-25');
    expect((await gone.post(answer('1.x/ask:1', {}))).status).toBe(400);
  });
});

describe('tasks of strangers', () => {
  const task = (id: number) => {
    const { params, ...rest } = call(id, 'one');
    return { ...rest, params: { ...params, task: { ttl: 60_000 } } };
  };
  const isTask = (text: string): boolean => text.includes('"taskId"');

  it.skipIf(SHORT)(
    'fill their own part, and never a known caller’s, also after their session ended',
    async () => {
      const url = await serve({
        tasks: 'optional',
        ...tuned({ tasks: 10, callerTasks: 4, anonymousTasks: 3 }),
      });
      const stranger = await inSession(url, '2025-11-25');
      const theirs = [];
      for (let id = 1; id <= 12; id += 1) theirs.push(isTask((await stranger.post(task(id))).text));
      expect(theirs.filter(Boolean)).toHaveLength(3);
      await fetch(url, { method: 'DELETE', headers: stranger.headers });
      for (const caller of ['ann', 'bob']) {
        const known = await inSession(url, '2025-11-25', as(caller));
        const hers = [];
        for (let id = 1; id <= 5; id += 1) hers.push(isTask((await known.post(task(id))).text));
        expect(hers).toEqual(caller === 'ann' ? [true, true, true, true, false] : hers);
        expect(hers[0]).toBe(true);
      }
    },
  );
});
