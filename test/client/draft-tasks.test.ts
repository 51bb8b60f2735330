/** Calls that become tasks under the drafts: the drafts' own examples, and what ends a task early. */
import { describe, expect, it } from 'vitest';
import { resuming, type SavedCall } from '../../src/client/index.ts';
import { connect, DRAFTS, type Draft, incomplete, LOGIN } from './round-trip-script.ts';
import { type Route, type Scripted, type Seen, serveVersion, sleep, until } from './script.ts';
import { FIRST, type Message, SEP, under } from './vectors.ts';

const TASK = { taskId: 'task-1', ttl: 60_000, pollInterval: 10, createdAt: '2026-01-27T03:32:48Z' };

/** A server of one task, which is in the given states, one for each time it is asked. */
function tasked(states: readonly string[], replies: Record<string, (seen: Seen) => unknown> = {}): Route {
  let nth = 0;
  const result = (seen: Seen, value: unknown) => ({ jsonrpc: '2.0', id: seen.body.id, result: value });
  return (seen, reply) => {
    const { method = 'an answer' } = seen.body;
    const own = replies[method];
    if (own !== undefined) reply.json(own(seen));
    else if (method === 'tools/call') reply.json(result(seen, { task: { ...TASK, status: 'working' } }));
    else if (method === 'tasks/get') {
      reply.json(result(seen, { ...TASK, status: states[Math.min(nth, states.length - 1)] }));
      nth += 1;
    } else if (method === 'tasks/result')
      reply.json(result(seen, { content: [{ type: 'text', text: 'done' }] }));
    else if (method === 'tasks/input_response' || method === 'tasks/cancel') reply.json(result(seen, {}));
    else return false;
    return true;
  };
}

const methods = (server: Scripted) =>
  server.turns().flatMap(({ verb, body }) => (verb === 'POST' ? [body.method ?? 'an answer'] : []));
const answerOf: Record<Draft, string> = {
  'DRAFT-SEP-2322': 'tasks/input_response',
  'DRAFT-MRTR-2026-02': 'an answer',
};

describe('the examples of the first draft, for persistent tools', () => {
  it('are what we write and what we read, apart from the ids', async () => {
    let got = 0;
    const server = await serveVersion('DRAFT-MRTR-2026-02', ({ body }, reply) => {
      const { id, method } = body;
      if (method === 'tools/call') reply.json(under(id, FIRST.taskCreated));
      else if (method === 'tasks/get') {
        got += 1;
        reply.json(under(id, got === 1 ? FIRST.taskAsks : FIRST.taskCompleted));
      } else if (method === 'tasks/result') {
        reply.json(under(id, got === 1 ? FIRST.taskInput : FIRST.taskOutcome));
      } else return false;
      return true;
    });
    const { client, asked, errors } = await connect(
      server.url,
      { revision: 'DRAFT-MRTR-2026-02', tasks: { ttl: 60_000 } },
      () => ({ action: 'accept', content: { input: 'Hello World!' } }),
    );
    expect(await client.callTool({ name: 'echo' })).toEqual(FIRST.taskOutcome.result);
    expect(asked).toEqual(['Please provide the input string to echo back']);
    const sent = server.turns().filter(({ verb }) => verb === 'POST');
    const theirs = [
      FIRST.taskCall,
      FIRST.taskGet,
      FIRST.taskResult,
      FIRST.taskAnswer,
      FIRST.taskGet,
      FIRST.taskResult,
    ];
    expect(sent.map(({ body }) => body)).toEqual(
      sent.map(({ body }, nth) => under(body.id, theirs[nth] ?? {})),
    );
    expect(new Set(sent.map(({ body }) => body.id)).size).toBe(6);
    expect(errors).toEqual([]);
  });
});

describe('the examples of SEP-2322, for a task whose answer does not help', () => {
  it('write theirs, and the user is asked again when tasks/result says so', async () => {
    const asks = { echo_input: (FIRST.taskInput.input_requests as Message).echo_input as Message };
    let answered = 0;
    const server = await serveVersion(
      'DRAFT-SEP-2322',
      tasked([], {
        'tasks/get': ({ body }) => under(body.id, answered < 2 ? FIRST.taskAsks : FIRST.taskCompleted),
        'tasks/result': ({ body }) =>
          answered < 2 ? incomplete('DRAFT-SEP-2322', body.id, { asks }) : under(body.id, FIRST.taskOutcome),
        'tasks/input_response': ({ body }) => {
          answered += 1;
          return under(body.id, SEP.taskAnswered);
        },
        'tools/call': ({ body }) => under(body.id, FIRST.taskCreated),
      }),
    );
    const { client, asked } = await connect(server.url, { revision: 'DRAFT-SEP-2322', tasks: {} }, () => ({
      action: 'accept',
      content: { not_requested_parameter: 'Information the server did not request.' },
    }));
    expect(await client.callTool({ name: 'echo' })).toEqual(FIRST.taskOutcome.result);
    expect(asked).toHaveLength(2);
    const answers = server.turns().filter(({ body }) => body.method === 'tasks/input_response');
    for (const { body } of answers) expect(body).toEqual(under(body.id, SEP.taskAnswer));
  });
});

describe.each(DRAFTS)('a task of %s', (revision) => {
  const asks = { login: LOGIN };
  const asking = (seen: Seen) => incomplete(revision, seen.body.id, { asks });

  it('is asked for only where the option says so', async () => {
    const server = await serveVersion(revision, tasked(['completed']));
    const { client } = await connect(server.url, { revision });
    expect(await client.callTool({ name: 'ask', arguments: {} }, undefined)).toHaveProperty('task');
    expect(server.turns()[0]?.body.params).not.toHaveProperty('task');
    // The client did not ask for a task, so it follows none.
    expect(methods(server)).toEqual(['tools/call']);
  });

  it('fails as tasks/result says, and knows its states in any case', async () => {
    const error = { code: -32603, message: 'out of paper' };
    const server = await serveVersion(
      revision,
      tasked(['Working', 'WORKING', 'Failed'], {
        'tasks/result': ({ body }) => ({ jsonrpc: '2.0', id: body.id, error }),
      }),
    );
    const { client } = await connect(server.url, { revision, tasks: {} });
    await expect(client.callTool({ name: 'ask', arguments: {} })).rejects.toThrow(/out of paper/);
    expect(methods(server).at(-1)).toBe('tasks/result');
  });

  it('is cancelled when its user will not answer, and when its client waits no longer', async () => {
    const server = await serveVersion(revision, tasked(['input_required'], { 'tasks/result': asking }));
    const refusing = await connect(server.url, { revision, tasks: {} }, () => {
      throw Object.assign(new Error('nobody is here'), { code: -32001 });
    });
    const refused = refusing.client.callTool({ name: 'ask', arguments: {} });
    await expect(refused).rejects.toMatchObject({ code: -32001, message: expect.stringContaining('nobody') });
    await until(() => methods(server).includes('tasks/cancel'));
    expect(methods(server)).not.toContain(answerOf[revision]);

    const before = server.seen.length;
    let aborted = false;
    const waiting = await connect(
      server.url,
      { revision, tasks: {} },
      (_, { signal }) =>
        new Promise(() => {
          signal.addEventListener('abort', () => {
            aborted = true;
          });
        }),
    );
    const controller = new AbortController();
    const called = waiting.client.callTool({ name: 'ask', arguments: {} }, undefined, controller);
    await until(() => waiting.asked.length === 1);
    controller.abort('enough');
    await expect(called).rejects.toThrow(/enough/);
    const cancels = () =>
      server.seen.slice(before).filter(({ body }) => body.method === 'tasks/cancel').length;
    await until(() => aborted && cancels() === 1);
    const quiet = server.seen.length;
    await sleep(60);
    expect(server.seen.length).toBe(quiet);
  });

  it('takes its question from the screen when it continues without', async () => {
    const server = await serveVersion(
      revision,
      tasked(['input_required', 'input_required', 'working', 'completed'], {
        'tasks/result': (seen) =>
          methods(server).filter((method) => method === 'tasks/get').length < 4
            ? asking(seen)
            : { jsonrpc: '2.0', id: seen.body.id, result: { content: [] } },
      }),
    );
    let aborted = false;
    const { client, asked } = await connect(
      server.url,
      { revision, tasks: {} },
      (_, { signal }) =>
        new Promise(() => {
          signal.addEventListener('abort', () => {
            aborted = true;
          });
        }),
    );
    expect(await client.callTool({ name: 'ask', arguments: {} })).toEqual({ content: [] });
    expect(asked).toHaveLength(1);
    expect(aborted).toBe(true);
    expect(methods(server)).not.toContain(answerOf[revision]);
  });

  it('asks before it is a task, with the task in each request, and is gone on with by another client', async () => {
    let isAsked = false;
    const states: (SavedCall | undefined)[] = [];
    const server = await serveVersion(
      revision,
      tasked(['working'], {
        'tools/call': (seen) => {
          if (isAsked)
            return { jsonrpc: '2.0', id: seen.body.id, result: { task: { ...TASK, status: 'working' } } };
          isAsked = true;
          return incomplete(revision, seen.body.id, { asks, state: 's' });
        },
        'tasks/get': ({ body }) => ({
          jsonrpc: '2.0',
          id: body.id,
          result: { ...TASK, status: states.length > 2 ? 'completed' : 'working' },
        }),
      }),
    );
    const { client } = await connect(server.url, {
      revision,
      tasks: { ttl: 5 },
      onState: (saved) => void states.push(saved),
    });
    const left = client.callTool({ name: 'ask', arguments: {} });
    left.catch(() => {});
    await until(() => states.length === 2);
    await client.close();
    for (const { body } of server.turns().slice(0, 2)) expect(body.params?.task).toEqual({ ttl: 5 });
    const saved = states[1] as SavedCall;
    expect(saved).toMatchObject({ call: states[0]?.call, taskId: 'task-1' });
    const next = await connect(server.url, { revision, onState: (state) => void states.push(state) });
    const over = next.client.callTool(resuming(JSON.parse(JSON.stringify(saved))));
    expect(await over).toEqual({ content: [{ type: 'text', text: 'done' }] });
    await until(() => states.length === 4);
    expect(states.at(-1)).toBeUndefined();
  });
});

it('SDK v1’s own stream of a task is answered under SEP-2322, too', async () => {
  const revision = 'DRAFT-SEP-2322';
  let answered = false;
  const server = await serveVersion(
    revision,
    tasked([], {
      'tasks/get': ({ body }) => ({
        jsonrpc: '2.0',
        id: body.id,
        result: { ...TASK, lastUpdatedAt: TASK.createdAt, status: answered ? 'completed' : 'input_required' },
      }),
      'tools/call': ({ body }) => ({
        jsonrpc: '2.0',
        id: body.id,
        result: { task: { ...TASK, lastUpdatedAt: TASK.createdAt, status: 'working' } },
      }),
      'tasks/result': (seen) =>
        answered
          ? { jsonrpc: '2.0', id: seen.body.id, result: { content: [{ type: 'text', text: 'done' }] } }
          : incomplete(revision, seen.body.id, { asks: { login: LOGIN } }),
      'tasks/input_response': ({ body }) => {
        answered = true;
        return { jsonrpc: '2.0', id: body.id, result: {} };
      },
    }),
  );
  const { client, asked } = await connect(server.url, { revision });
  const stream = client.experimental.tasks.callToolStream({ name: 'ask', arguments: {} }, undefined, {
    task: {},
  });
  const types = [];
  for await (const { type } of stream) types.push(type);
  expect(types).toEqual(['taskCreated', 'taskStatus', 'result']);
  expect(asked).toHaveLength(1);
});

it('a tool that runs as a task alone can be called, though Client itself would not', async () => {
  const required = { name: 'ask', inputSchema: { type: 'object' }, execution: { taskSupport: 'required' } };
  const server = await serveVersion(
    'DRAFT-SEP-2322',
    tasked(['completed'], {
      'tools/list': ({ body }) => ({ jsonrpc: '2.0', id: body.id, result: { tools: [required] } }),
    }),
  );
  const { client } = await connect(server.url, { revision: 'DRAFT-SEP-2322', tasks: {} });
  expect((await client.listTools()).tools[0]?.execution).toEqual({ taskSupport: 'optional' });
  expect(await client.callTool({ name: 'ask', arguments: {} })).toHaveProperty('content');
});
