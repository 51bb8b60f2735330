/** Tasks whose store fails: each revision's client is advised to send the same request again, and is then served. */
import { afterEach, describe, expect, it } from 'vitest';
import { Names } from '../../src/checkpoint/names.ts';
import { type Flaky, flakyStore } from '../fixtures/flaky-store.ts';
import { STORE } from '../fixtures/frozen.ts';
import { buildTaskServer } from '../fixtures/task-server.ts';
import { some } from '../short.ts';
import { modernHeaders, send } from './clients.ts';
import { SECRET, type Served, serveHere } from './harness.ts';
import { APPROVED, call, FIRST, type Json, openSession, request, type Words } from './rounds.ts';

let served: Served;
let flaky: Flaky;
afterEach(async () => {
  flaky.unreadable = undefined;
  await served.close();
});

const start = async (): Promise<void> => {
  flaky = flakyStore();
  const limits = { drain: 50, lease: 200 };
  const options = { store: flaky.store, secrets: [SECRET], limits, tasks: () => 'now' as const };
  served = await serveHere(() => buildTaskServer(() => {}), options);
};

async function modern(method: string, params: Json): Promise<{ status: number; message: Json }> {
  const _meta = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientInfo': { name: 'tasks', version: '1' },
    'io.modelcontextprotocol/clientCapabilities': {
      elicitation: {},
      extensions: { 'io.modelcontextprotocol/tasks': {} },
    },
  };
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method, params: { ...params, _meta } });
  const headers = modernHeaders(method, String(params.name ?? params.taskId));
  return (await send(served.url, body, { headers })) as unknown as { status: number; message: Json };
}

it('2026-07-28: every request about a task', async () => {
  await start();
  const { message } = await modern('tools/call', { name: 'ship', arguments: {} });
  const { taskId } = message.result as { taskId: string };
  const requests: [string, Json][] = [
    ['tasks/get', { taskId }],
    ['tasks/update', { taskId, inputResponses: {} }],
    ['tasks/cancel', { taskId }],
  ];
  flaky.unreadable = new Names('mcp-await').label(taskId);
  for (const [method, params] of requests) {
    expect(await modern(method, params)).toMatchObject({ status: 200, message: { id: 1, error: STORE } });
  }
  expect(served.log.lines.some(({ detail }) => detail.code === 'store')).toBe(true);
  flaky.unreadable = undefined;
  for (const [method, params] of requests) {
    expect(await modern(method, params)).toMatchObject({ status: 200, message: { result: {} } });
  }
});

describe.each(
  some<readonly [string, Words | undefined]>([
    ['2025-11-25', undefined],
    [FIRST.revision, FIRST],
    [APPROVED.revision, APPROVED],
  ]),
)('%s', (revision, words) => {
  it('every request about a task', async () => {
    await start();
    const session = await openSession(served.url, revision);
    const created = await session.post(call('ship', { task: { ttl: 60_000 } }));
    const { taskId } = (created.message.result as { task: { taskId: string } }).task;
    flaky.unreadable = new Names('mcp-await').label(taskId);
    for (const method of ['tasks/get', 'tasks/result', 'tasks/cancel']) {
      const { message } = await session.post(request(method, { taskId }));
      expect([method, message.error]).toEqual([method, STORE]);
    }
    if (words !== undefined) {
      const { status, message } = await session.post(words.taskAnswer(7, taskId, words.answers({})));
      expect(message.error).toEqual(STORE);
      // No response is read to a message without a method.
      expect(status).toBe(words === FIRST ? 500 : 200);
    }
    flaky.unreadable = undefined;
    const { message } = await session.post(request('tasks/cancel', { taskId }));
    expect(message.result).toMatchObject({ taskId });
  });
});
