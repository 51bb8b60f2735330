/**
 * A task whose client cannot reach it for a while: which requests are sent again, and which state stays if none
 * succeeds.
 */
import { describe, expect, it } from 'vitest';
import { resuming, type SavedCall } from '../../src/client/index.ts';
import { CLOSING, STORE } from '../fixtures/frozen.ts';
import { connect, incomplete, LOGIN, RESULT, REVISIONS, type Revision, serve } from './round-trip-script.ts';
import type { Reply, Route, Scripted, Seen } from './script.ts';
import { until } from './script.ts';

const TASK = { taskId: 'task-1', ttl: 60_000, ttlMs: 60_000, pollInterval: 10, pollIntervalMs: 10 };
const asks = { login: LOGIN };

/** How a request fails, each in another way. */
const FAILURES: readonly ((seen: Seen, reply: Reply) => void)[] = [
  (_, reply) => reply.res.writeHead(502).end('<h1>Bad gateway</h1>'),
  (_, reply) => void reply.res.destroy(),
  // The advice counts, not the words.
  ({ body }, reply) =>
    reply.json(
      { jsonrpc: '2.0', id: body.id, error: { ...STORE, message: 'Pardon?' } },
      body.method === undefined ? 500 : 200,
    ),
  // To a message without a method, the status alone is read.
  ({ body }, reply) =>
    reply.json({ jsonrpc: '2.0', id: body.id, error: STORE }, body.method === undefined ? 500 : 200),
  ({ body }, reply) => reply.json({ jsonrpc: '2.0', id: body.id, error: CLOSING }, 503),
  (_, reply) => reply.res.writeHead(429).end(),
];

const isAnswer = ({ body }: Seen): boolean =>
  body.method === 'tasks/update' ||
  body.method === 'tasks/input_response' ||
  (body.method === undefined && body.input_responses !== undefined);
const isOfTask = (seen: Seen): boolean =>
  seen.verb === 'POST' && (isAnswer(seen) || String(seen.body.method).startsWith('tasks/'));
const sent = (server: Scripted, method: string) =>
  server.turns().filter(({ body }) => body.method === method).length;

/** A task that asks once, and is completed when it is answered. */
function tasked(revision: Revision): Route {
  let isAnswered = false;
  return (seen, reply) => {
    const { id, method } = seen.body;
    const is2026 = revision === '2026-07-28';
    const result = (value: unknown): boolean => {
      reply.json({ jsonrpc: '2.0', id, result: value });
      return true;
    };
    const status = isAnswered ? 'completed' : 'input_required';
    if (method === 'tools/call') {
      return result(is2026 ? { resultType: 'task', ...TASK, status: 'working' } : { task: TASK });
    }
    if (method === 'tasks/get') {
      return result({
        ...TASK,
        status,
        ...(is2026 && (isAnswered ? { result: RESULT } : { inputRequests: asks })),
      });
    }
    if (method === 'tasks/result') {
      if (isAnswered) return result(RESULT);
      if (revision === 'DRAFT-SEP-2322') {
        return result({ resultType: 'input_required', inputRequests: asks });
      }
      reply.json({ jsonrpc: '2.0', id, input_requests: asks });
      return true;
    }
    if (isAnswer(seen)) {
      isAnswered = true;
      if (method !== undefined) return result({});
      reply.res.writeHead(202).end();
      return true;
    }
    return method === 'tasks/cancel' ? result({}) : false;
  };
}

describe.each(REVISIONS)('a task of %s', (revision) => {
  it('is gone on with, however the first request of each kind fails', async () => {
    for (const fail of FAILURES) {
      const failed = new Set<string>();
      const server = await serve(
        revision,
        (seen, reply) => {
          const kind = seen.body.method ?? 'an answer';
          if (!isOfTask(seen) || failed.has(kind)) return false;
          failed.add(kind);
          fail(seen, reply);
          return true;
        },
        tasked(revision),
      );
      const states: (SavedCall | undefined)[] = [];
      const { client, asked } = await connect(server.url, {
        revision,
        tasks: {},
        onState: (saved) => void states.push(saved),
      });
      expect(await client.callTool({ name: 'ask', arguments: {} })).toEqual(RESULT);
      expect(asked).toHaveLength(1);
      expect(failed.size).toBe(revision === '2026-07-28' ? 2 : 3);
      await until(() => states.length === 2);
      expect(states[0]).toMatchObject({ taskId: TASK.taskId });
      expect(states[1]).toBeUndefined();
    }
  });

  it('fails its call once it was asked often enough, and can still be gone on with', async () => {
    for (const [fail, why] of [
      [FAILURES[0], /502|Bad gateway/],
      // A server may advise it for ever.
      [FAILURES[2], /Pardon/],
    ] as const) {
      let isDown = true;
      const server = await serve(
        revision,
        (seen, reply) => {
          if (!isDown || seen.body.method !== 'tasks/get') return false;
          fail?.(seen, reply);
          return true;
        },
        tasked(revision),
      );
      const states: (SavedCall | undefined)[] = [];
      const { client } = await connect(server.url, {
        revision,
        tasks: {},
        onState: (saved) => void states.push(saved),
      });
      await expect(client.callTool({ name: 'ask', arguments: {} })).rejects.toThrow(why);
      expect(sent(server, 'tasks/get')).toBe(6);
      expect(sent(server, 'tasks/cancel')).toBe(0);
      expect(states.map((saved) => saved?.taskId)).toEqual([TASK.taskId]);
      isDown = false;
      expect(await client.callTool(resuming(states[0] as SavedCall))).toEqual(RESULT);
    }
  });

  it('is asked no more once its client waits no longer', async () => {
    const server = await serve(
      revision,
      (seen, reply) => {
        if (seen.body.method !== 'tasks/get') return false;
        reply.res.writeHead(502).end();
        return true;
      },
      tasked(revision),
    );
    const { client } = await connect(server.url, {
      revision,
      tasks: {},
      reconnectionOptions: { initialReconnectionDelay: 60_000, maxReconnectionDelay: 60_000 },
    });
    const controller = new AbortController();
    const called = client.callTool({ name: 'ask', arguments: {} }, undefined, controller);
    await until(() => sent(server, 'tasks/get') === 1);
    controller.abort('enough');
    await expect(called).rejects.toThrow(/enough/);
    await until(() => sent(server, 'tasks/cancel') === 1);
    expect(sent(server, 'tasks/get')).toBe(1);
  });

  it('that is not known fails its call at once', async () => {
    const error = { code: -32602, message: 'Unknown or expired taskId' };
    const server = await serve(
      revision,
      ({ body }, reply) => {
        if (body.method !== 'tasks/get') return false;
        reply.json({ jsonrpc: '2.0', id: body.id, error });
        return true;
      },
      tasked(revision),
    );
    const states: (SavedCall | undefined)[] = [];
    const { client } = await connect(server.url, {
      revision,
      tasks: {},
      onState: (saved) => void states.push(saved),
    });
    await expect(client.callTool({ name: 'ask', arguments: {} })).rejects.toThrow(/Unknown or expired/);
    expect(sent(server, 'tasks/get')).toBe(1);
    await until(() => states.length === 2);
    expect(states[1]).toBeUndefined();
  });
});

const told = (data: unknown, code = -32000) => ({ code, message: CLOSING.message, data });

it.each<[string, object, number]>([
  ['no advice', told(undefined), 1],
  ['an advice that is a text', told({ 'mcp-await': 'retry' }), 1],
  ['a retry that is a text', told({ 'mcp-await': { retry: 'true' } }), 1],
  ['no advice for an internal error', told(undefined, -32603), 6],
  ['the advice not to, for an internal error', told({ 'mcp-await': { retry: false } }, -32603), 1],
])(
  'an error with the sentence of one that passes and %s is tried as often as it should',
  async (_, error, times) => {
    const server = await serve(
      '2026-07-28',
      ({ body }, reply) => {
        if (body.method !== 'tasks/get') return false;
        reply.json({ jsonrpc: '2.0', id: body.id, error });
        return true;
      },
      tasked('2026-07-28'),
    );
    const { client } = await connect(server.url, { revision: '2026-07-28' });
    await expect(client.callTool({ name: 'ask', arguments: {} })).rejects.toThrow(CLOSING.message);
    expect(sent(server, 'tasks/get')).toBe(times);
  },
);

describe.each(REVISIONS)('a call of %s', (revision) => {
  it('of a tool is not sent again on a failure that may have been one of its server', async () => {
    const server = await serve(revision, ({ body }, reply) => {
      if (body.method !== 'tools/call') return false;
      reply.res.writeHead(502).end();
      return true;
    });
    const { client } = await connect(server.url, { revision, tasks: {} });
    await expect(client.callTool({ name: 'ask', arguments: {} })).rejects.toThrow();
    expect(sent(server, 'tools/call')).toBe(1);
  });

  it.each([
    [200, 2, RESULT],
    [503, 2, RESULT],
    [200, Infinity, CLOSING],
  ] as const)('sends its answers again as advised (%i, %d times)', async (status, failures, outcome) => {
    let failed = 0;
    const server = await serve(revision, ({ body }, reply) => {
      if (body.method !== 'tools/call') return false;
      const isFirst = sent(server, 'tools/call') === 1;
      if (isFirst) reply.json(incomplete(revision, body.id, { asks, state: 's' }));
      else if (failed++ < failures) reply.json({ jsonrpc: '2.0', id: body.id, error: CLOSING }, status);
      else reply.json({ jsonrpc: '2.0', id: body.id, result: RESULT });
      return true;
    });
    const { client, asked } = await connect(server.url, { revision });
    const called = client.callTool({ name: 'ask', arguments: {} });
    if (outcome === CLOSING)
      await expect(called).rejects.toMatchObject({ code: CLOSING.code, data: CLOSING.data });
    else expect(await called).toEqual(RESULT);
    expect(asked).toHaveLength(1);
    const [, ...retries] = server.turns().filter(({ body }) => body.method === 'tools/call');
    expect(retries).toHaveLength(Math.min(failures, 5) + 1);
    expect(new Set(retries.map(({ body }) => body.id)).size).toBe(retries.length);
    expect(new Set(retries.map(({ body: { id: _, ...same } }) => JSON.stringify(same))).size).toBe(1);
  });
});

it('a task in reply to what is no call of a tool is no answer', async () => {
  const server = await serve('2026-07-28', ({ body }, reply) => {
    if (body.method !== 'tools/list' && body.method !== 'tasks/get') return false;
    const result = { resultType: 'task', ...TASK, status: 'completed', result: { tools: [] } };
    reply.json({ jsonrpc: '2.0', id: body.id, result });
    return true;
  });
  const { client } = await connect(server.url, { revision: '2026-07-28' });
  await expect(client.listTools()).rejects.toThrow(/unknown type "task"/);
  expect(sent(server, 'tasks/get')).toBe(0);
});
