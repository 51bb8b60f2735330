/** Tasks on both drafts of multi round-trip requests, in one process. */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { TASKS_META } from '../../compat/tasks/marks.ts';
import type { AwaitOptions } from '../../src/index.ts';
import { roundsServer } from '../fixtures/rounds-server.ts';
import { CELLS, optionsOf, SECRET, type Served, serveHere } from './harness.ts';
import { Reader } from './reader.ts';
import {
  APPROVED,
  accepted,
  again,
  call,
  DRAFTS,
  errorIn,
  FIRST,
  type Json,
  openSession,
  type RawSession,
  RELATED,
  request,
  resultIn,
  serveRounds,
  textIn,
  until,
} from './rounds.ts';

const UNKNOWN = { code: -32602, message: 'Unknown or expired taskId' };
const STORED = CELLS.filter(({ state }) => state === 'stored');
const MATRIX = DRAFTS.flatMap((words) => STORED.map((cell) => ({ words, cell, name: cell.name })));
const TASK = { task: { ttl: 60_000 } };

let served: Served;
const effects: string[] = [];

afterEach(async () => {
  vi.useRealTimers();
  effects.length = 0;
  await served.close();
});

async function newTask(session: RawSession, message: Json): Promise<string> {
  const { task } = resultIn(await session.post(message));
  return (task as { taskId: string }).taskId;
}

describe.each(MATRIX)('tasks of $words.revision ($name)', ({ words, cell }) => {
  const start = async (options: AwaitOptions = {}): Promise<RawSession> => {
    served = await serveRounds(
      cell,
      { tasks: 'optional', ...options },
      { act: (effect) => effects.push(effect) },
    );
    return openSession(served.url, words.revision);
  };
  const answer = (session: RawSession, taskId: string, results: unknown) =>
    session.post(words.taskAnswer(900, taskId, results));
  const resultOf = (session: RawSession, taskId: string) => session.post(request('tasks/result', { taskId }));
  const related = (taskId: string): Json => ({ [RELATED]: { taskId } });

  it('are declared, made, asked about, answered and told', async () => {
    const session = await start();
    expect(session.begun.message).toMatchObject({
      result: { capabilities: { tasks: { list: {}, cancel: {}, requests: { tools: { call: {} } } } } },
    });
    const created = await session.post(call('echo', TASK));
    const { task } = resultIn(created) as { task: Json };
    expect(task).toMatchObject({ status: words.status('working'), ttl: 60_000, pollInterval: 500 });
    const taskId = String(task.taskId);
    // It waits for the ask, and has it.
    const asks = await resultOf(session, taskId);
    expect(Object.keys(words.asked(asks.message))).toEqual(['echo_input']);
    expect((words === FIRST ? asks.message : resultIn(asks))._meta).toEqual(related(taskId));
    if (words === APPROVED) expect(resultIn(asks).resultType).toBe('input_required');
    await until(session, taskId, 'input_required');
    const waiting = words.answers({ echo_input: accepted({ input: 'hi' }) });
    const taken = await answer(session, taskId, waiting);
    expect(taken.status).toBe(words === FIRST ? 202 : 200);
    const final = await resultOf(session, taskId);
    expect(textIn(final)).toBe('Echo: hi');
    expect(resultIn(final)._meta).toEqual(related(taskId));
    const over = await until(session, taskId, words.status('completed'));
    expect(over.task).toBeUndefined();
    const { tasks } = resultIn(await session.post(request('tasks/list'))) as { tasks: Json[] };
    expect(tasks).toEqual([Object.fromEntries(Object.entries(over).filter(([key]) => key !== 'resultType'))]);
    const late = await session.post(request('tasks/cancel', { taskId }));
    expect([late.status, errorIn(late).code]).toEqual([200, -32602]);
  });

  it('wait on, whatever is bad, missing or unknown in their answers', async () => {
    const session = await start();
    const taskId = await newTask(session, call('login', TASK));
    await until(session, taskId, 'input_required');
    const sent = [
      {},
      { nobody: accepted({ name: 'x' }) },
      { github_login: accepted({ other: 'x' }), google_login: accepted({ name: 5 }) },
    ];
    for (const results of sent) {
      expect((await answer(session, taskId, words.answers(results))).status).toBeLessThan(300);
      await until(session, taskId, 'input_required');
      const asks = words.asked((await resultOf(session, taskId)).message);
      expect(Object.keys(asks)).toEqual(['github_login', 'google_login']);
    }
    for (const bad of ['text', 7, [], { github_login: 'text' }, { github_login: { other: {} } }]) {
      const refused = await answer(session, taskId, bad);
      expect([refused.status, errorIn(refused).code]).toEqual([words === FIRST ? 400 : 200, -32602]);
    }
    await answer(session, taskId, words.answers({ github_login: accepted({ name: 'octocat' }) }));
    const left = words.asked((await resultOf(session, taskId)).message);
    expect(Object.keys(left)).toEqual(['google_login']);
    await answer(session, taskId, words.answers({ google_login: accepted({ name: 'ann' }) }));
    expect(textIn(await resultOf(session, taskId))).toBe('octocat & ann');
  });

  it('count each answer once, when two come at once', async () => {
    const session = await start();
    const taskId = await newTask(session, call('login', TASK));
    await until(session, taskId, 'input_required');
    const names = ['one', 'two', 'three'];
    await Promise.all(
      names.map((name) =>
        answer(
          session,
          taskId,
          words.answers({ github_login: accepted({ name }), google_login: accepted({ name }) }),
        ),
      ),
    );
    const [github, google] = textIn(await resultOf(session, taskId)).split(' & ');
    expect(names).toContain(github);
    expect(names).toContain(google);
  });

  it('are unknown in one sentence', async () => {
    const session = await start();
    const ann = await openSession(served.url, words.revision, { bearer: 'ann' });
    const foreign = await newTask(ann, call('echo', TASK));
    await until(ann, foreign, 'input_required');
    for (const taskId of ['nonsense', '', foreign, 7]) {
      for (const method of ['tasks/get', 'tasks/result', 'tasks/cancel']) {
        const reply = await session.post(request(method, { taskId }));
        expect([reply.status, errorIn(reply)]).toEqual([200, UNKNOWN]);
      }
      const reply = await answer(
        session,
        taskId as string,
        words.answers({ echo_input: accepted({ input: '' }) }),
      );
      expect(errorIn(reply)).toEqual(UNKNOWN);
    }
    await until(ann, foreign, 'input_required');
  });

  it('are gone after their ttl', async () => {
    vi.useFakeTimers({ toFake: ['Date'] });
    const session = await start();
    const taskId = await newTask(session, call('echo', { task: { ttl: 5_000 } }));
    await until(session, taskId, 'input_required');
    vi.setSystemTime(Date.now() + 5_001);
    for (const method of ['tasks/get', 'tasks/result', 'tasks/cancel']) {
      expect(errorIn(await session.post(request(method, { taskId })))).toEqual(UNKNOWN);
    }
    expect(errorIn(await answer(session, taskId, words.answers({})))).toEqual(UNKNOWN);
    expect(resultIn(await session.post(request('tasks/list')))).toMatchObject({ tasks: [] });
  });

  it('live no longer than the server lets them, and for a ttl that is one', async () => {
    const session = await start({ ttl: 30_000 });
    const long = await session.post(call('echo', TASK));
    expect(resultIn(long)).toMatchObject({ task: { ttl: 30_000 } });
    // A task that expires before its client can have its id is useless.
    const short = await session.post(call('echo', { task: { ttl: 0.5 } }));
    expect(resultIn(short)).toMatchObject({ task: { ttl: 1_000 } });
    for (const task of [7, { ttl: 'long' }, { ttl: -1 }]) {
      expect(errorIn(await session.post(call('echo', { task }))).code).toBe(-32602);
    }
    expect(resultIn(await session.post(call('echo', { task: {} })))).toMatchObject({ task: { ttl: 30_000 } });
  });

  it('are cancelled', async () => {
    const session = await start();
    const taskId = await newTask(session, call('echo', TASK));
    await until(session, taskId, 'input_required');
    const reply = await session.post(request('tasks/cancel', { taskId }));
    expect(resultIn(reply)).toMatchObject({ taskId, status: words.status('cancelled') });
    expect(errorIn(await resultOf(session, taskId)).message).toMatch(/cancelled/);
    expect(errorIn(await session.post(request('tasks/cancel', { taskId }))).code).toBe(-32602);
  });

  it('are completed by what the SDK reports as a result, and failed by an error, which is never -32042', async () => {
    const session = await start();
    const thrown = await newTask(session, call('throws', TASK));
    await until(session, thrown, words.status('completed'));
    expect(resultIn(await resultOf(session, thrown))).toMatchObject({
      isError: true,
      _meta: related(thrown),
    });
    const failed = await newTask(session, call('bad-url', TASK));
    await until(session, failed, words.status('failed'));
    const error = errorIn(await resultOf(session, failed));
    expect([error.code, error.message]).toEqual([-32603, expect.not.stringContaining('32042')]);
  });

  it('ask for the URLs of a thrown -32042, and run their tool again', async () => {
    const session = await start();
    const taskId = await newTask(session, call('needs-url', TASK));
    // It throws whatever was opened: `limits.reruns` ends it.
    const keys = new Set<string>();
    for (let round = 0; round < 3; round += 1) {
      await until(session, taskId, 'input_required');
      const [[key, ask] = ['', {}]] = Object.entries(words.asked((await resultOf(session, taskId)).message));
      keys.add(key);
      expect(JSON.stringify(ask)).toContain('https://example.com/pay');
      await answer(session, taskId, words.answers({ [key]: { action: 'accept' } }));
    }
    await until(session, taskId, words.status('completed'));
    expect(textIn(await resultOf(session, taskId))).toContain('still needs what is done at');
    expect(keys.size).toBe(3);
  });

  it('are listed for their caller, and where callers have no names for their session', async () => {
    const session = await start();
    const other = await openSession(served.url, words.revision);
    const mine = await newTask(session, call('echo', TASK));
    const listOf = async (whose: RawSession, params: Json = {}): Promise<string[]> => {
      const { tasks } = resultIn(await whose.post(request('tasks/list', params)));
      return (tasks as { taskId: string }[]).map(({ taskId }) => taskId);
    };
    expect(await listOf(session)).toEqual([mine]);
    expect(await listOf(other)).toEqual([]);
    const ann = await openSession(served.url, words.revision, { bearer: 'ann' });
    const hers = await newTask(ann, call('echo', TASK));
    const annAgain = await openSession(served.url, words.revision, { bearer: 'ann' });
    expect(await listOf(annAgain)).toEqual([hers]);
    const bad = await session.post(request('tasks/list', { cursor: 7 }));
    expect(errorIn(bad).code).toBe(-32602);
  });

  it('begin at their first step, with rounds before it, where their author wants it so', async () => {
    const session = await start({ tasks: () => 'after-asks' });
    const asking = call('order', TASK);
    const first = await session.post(asking);
    expect(Object.keys(words.asked(first.message))).toEqual(['address']);
    expect(effects).toEqual([]);
    const answers = words.answers({ address: accepted({ address: 'Ghent' }) });
    const created = await session.post(words.retry(again(asking), words.state(first.message), answers));
    const { taskId } = resultIn(created).task as { taskId: string };
    const asks = await resultOf(session, taskId);
    expect(Object.keys(words.asked(asks.message))).toEqual(['name']);
    await answer(session, taskId, words.answers({ name: accepted({ name: 'Ann' }) }));
    expect(textIn(await resultOf(session, taskId))).toBe('Ann, Ghent');
    expect(effects).toEqual(['charge']);
  });

  it('are no other requests than tools/call, whose wish for one is passed over', async () => {
    const session = await start();
    const prompt = await session.post(request('prompts/get', { name: 'greet', ...TASK }));
    expect(Object.keys(words.asked(prompt.message))).toEqual(['name']);
    expect(resultIn(await session.post(request('tools/list', TASK)))).toHaveProperty('tools');
  });

  it('are never made without their client wanting one', async () => {
    const session = await start({ tasks: () => 'now', limits: { taskAfter: 100 } });
    const reply = await session.post(call('slow'));
    expect(textIn(reply)).toBe('slow');
  });

  it('are refused where their author wants none', async () => {
    const session = await start({ tasks: () => 'never' });
    expect(errorIn(await session.post(call('slow', TASK))).code).toBe(-32601);
    expect(textIn(await session.post(call('slow')))).toBe('slow');
  });

  it('report their progress on the standing stream after that', async () => {
    const session = await start();
    const headers = { ...session.headers, accept: 'text/event-stream' };
    const standing = new Reader(await fetch(served.url, { headers }));
    const taskId = await newTask(session, call('notes', { ...TASK, _meta: { progressToken: 'p' } }));
    await until(session, taskId, 'input_required');
    await answer(session, taskId, words.answers({ name: accepted({ name: 'Ann' }) }));
    const note = await standing.next(({ method }) => method === 'notifications/progress');
    expect(note.params).toMatchObject({ progressToken: 'p' });
  });

  it('outlive their session', async () => {
    const session = await start();
    const taskId = await newTask(session, call('echo', TASK));
    await until(session, taskId, 'input_required');
    await fetch(served.url, { method: 'DELETE', headers: session.headers });
    const next = await openSession(served.url, words.revision);
    await answer(next, taskId, words.answers({ echo_input: accepted({ input: 'later' }) }));
    expect(textIn(await resultOf(next, taskId))).toBe('Echo: later');
  });
});

describe.each(DRAFTS)('what a server says of tasks itself ($revision)', (words) => {
  const [cell = CELLS[0]] = STORED;
  const options: AwaitOptions = { tasks: 'optional', ...(cell && optionsOf(cell)) };

  it('makes a tool a task alone, or never one', async () => {
    served = await serveHere(() => {
      const server = new McpServer({ name: 'marked', version: '1.0.0' });
      for (const support of ['required', 'forbidden']) {
        server.registerTool(support, { _meta: { [TASKS_META]: { support } } }, async () => ({
          content: [{ type: 'text', text: support }],
        }));
      }
      server.registerTool('other', {}, () => ({ content: [] }));
      return server;
    }, options);
    const session = await openSession(served.url, words.revision);
    const { tools } = resultIn(await session.post(request('tools/list'))) as { tools: { execution: Json }[] };
    expect(tools.map(({ execution }) => execution.taskSupport)).toEqual([
      'required',
      'forbidden',
      'optional',
    ]);
    expect(errorIn(await session.post(call('required'))).code).toBe(-32601);
    expect(errorIn(await session.post(call('forbidden', TASK))).code).toBe(-32601);
    expect(textIn(await session.post(call('forbidden')))).toBe('forbidden');
    expect(resultIn(await session.post(call('required', TASK)))).toHaveProperty('task');
  });

  it('keeps tasks of its own', async () => {
    served = await serveHere(() => {
      const capabilities = { tasks: { list: {}, requests: { tools: { call: {} } } } };
      const server = new McpServer({ name: 'own', version: '1.0.0' }, { capabilities });
      server.server.fallbackRequestHandler = async ({ method, params }) => ({ method, params });
      return server;
    }, options);
    const session = await openSession(served.url, words.revision);
    expect(session.begun.message).toMatchObject({
      result: { capabilities: { tasks: { list: {}, requests: { tools: { call: {} } } } } },
    });
    expect(session.begun.text).not.toContain('cancel');
    const got = resultIn(await session.post(request('tasks/get', { taskId: 'its own' })));
    expect(got).toMatchObject({ method: 'tasks/get', params: { taskId: 'its own' } });
    const called = resultIn(await session.post(call('any', TASK)));
    expect(called).toMatchObject({ params: { name: 'any', task: { ttl: 60_000 } } });
  });

  it('is no word where nothing keeps them', async () => {
    served = await serveHere(() => roundsServer(), { state: 'sealed', secrets: [SECRET] });
    const session = await openSession(served.url, words.revision);
    expect(resultIn(session.begun).capabilities).not.toHaveProperty('tasks');
    expect(errorIn(await session.post(request('tasks/get', { taskId: 'x' }))).code).toBe(-32601);
    expect(textIn(await session.post(call('slow', TASK)))).toBe('slow');
  });
});

it('an ask of a task that is answered by an error rejects (first draft)', async () => {
  const [cell] = STORED;
  if (cell === undefined) throw new Error('no cell with a store');
  served = await serveRounds(cell, { tasks: 'optional' });
  const session = await openSession(served.url, FIRST.revision);
  const taskId = await newTask(session, call('echo', TASK));
  await until(session, taskId, 'input_required');
  const error = { error: { code: -32000, message: 'no user here' } };
  const taken = await session.post(FIRST.taskAnswer(901, taskId, { echo_input: error, nobody: error }));
  expect(taken.status).toBe(202);
  await until(session, taskId, 'Completed');
  const final = await session.post(request('tasks/result', { taskId }));
  expect(textIn(final)).toContain('no user here');
});
