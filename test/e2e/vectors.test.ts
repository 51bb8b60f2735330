/** The example messages of both drafts: the client's are sent to our server, whose messages must be the draft's. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { CELLS, type Served } from './harness.ts';
import {
  APPROVED,
  again,
  call,
  FIRST,
  openSession,
  type RawSession,
  resultIn,
  serveRounds,
  textIn,
  until,
} from './rounds.ts';
import { blank, type Json, MRTR_DRAFT, SEP_2322, type Vector, type Vectors } from './vectors/vectors.ts';

const TASK = 'echo_dc792e24-01b5-4c0a-abcb-0559848ca3c5';

/** The example of this name, with the task's real id and the real state in it. */
function from(
  vectors: readonly Vector[],
  nth: number,
  real: { taskId?: string; state?: unknown } = {},
): Json {
  const { message } = vectors[nth] as Vector;
  const text = JSON.stringify(message).replaceAll(TASK, real.taskId ?? TASK);
  return JSON.parse(text.replaceAll('"foo"', JSON.stringify(real.state ?? 'foo'))) as Json;
}

function fragment(vectors: Vectors, nth: number): Json {
  return (vectors.fragments[nth] as Vector).message;
}

describe.each(CELLS)('the examples of the first draft ($name)', (cell) => {
  const { ephemeral, persistent } = MRTR_DRAFT;
  let served: Served;
  let session: RawSession;
  beforeEach(async () => {
    served = await serveRounds(cell, cell.state === 'stored' ? { tasks: 'optional' } : {});
    session = await openSession(served.url, FIRST.revision);
  });
  afterEach(() => served.close());

  it('the weather', async () => {
    const first = await session.post(from(ephemeral, 0));
    expect(first.type).toBe('application/json');
    expect(blank(first.message)).toEqual(blank(from(ephemeral, 1)));
    expect(first.message.id).toBe(2);
    const second = await session.post(from(ephemeral, 2, { state: first.message.request_state }));
    expect(second.message).toEqual(from(ephemeral, 3));
  });

  it('two requests at once, and their responses', async () => {
    const asking = call('both');
    const first = await session.post(asking);
    expect({ input_requests: first.message.input_requests }).toEqual(fragment(MRTR_DRAFT, 0));
    const retry = {
      ...again(asking),
      ...fragment(MRTR_DRAFT, 1),
      request_state: first.message.request_state,
    };
    expect(textIn(await session.post(retry))).toBe('octocat: The capital of France is Paris.');
  });

  it.skipIf(cell.state === 'sealed')('the echo, as a task', async () => {
    const created = await session.post(from(persistent, 0));
    expect(blank(created.message)).toEqual(blank(from(persistent, 1)));
    const { taskId } = resultIn(created).task as { taskId: string };
    await until(session, taskId, 'input_required');
    const waits = await session.post(from(persistent, 2, { taskId }));
    expect(blank(waits.message)).toEqual(blank(from(persistent, 3)));
    const asks = await session.post(from(persistent, 4, { taskId }));
    expect(asks.message).toEqual(from(persistent, 5, { taskId }));
    const answered = await session.post(from(persistent, 6, { taskId }));
    expect([answered.status, answered.text]).toEqual([202, '']);
    await until(session, taskId, 'Completed');
    const over = await session.post(from(persistent, 7, { taskId }));
    expect(blank(over.message)).toEqual(blank(from(persistent, 8)));
    const result = await session.post(from(persistent, 9, { taskId }));
    expect(result.message).toEqual(from(persistent, 10, { taskId }));
  });
});

describe.each(CELLS)('the examples of SEP-2322 ($name)', (cell) => {
  const { ephemeral, persistent } = SEP_2322;
  let served: Served;
  let session: RawSession;
  beforeEach(async () => {
    served = await serveRounds(cell, cell.state === 'stored' ? { tasks: 'optional' } : {});
    session = await openSession(served.url, APPROVED.revision);
  });
  afterEach(() => served.close());

  it('two requests at once, and their responses', async () => {
    const asking = call('both');
    const first = await session.post(asking);
    const { inputRequests, requestState } = resultIn(first);
    expect({ inputRequests }).toEqual(fragment(SEP_2322, 0));
    const retry = again(asking);
    const params = { ...(retry.params as Json), ...fragment(SEP_2322, 1), requestState };
    expect(textIn(await session.post({ ...retry, params }))).toBe('octocat: The capital of France is Paris.');
  });

  it('a retry without what was asked', async () => {
    const reply = await session.post(from(ephemeral, 0));
    expect(blank(reply.message)).toEqual(blank(from(ephemeral, 1)));
  });

  it.skipIf(cell.state === 'sealed')('an answer to a task with something else in it', async () => {
    const created = await session.post(call('echo', { task: { ttl: 60_000 } }));
    const { taskId } = resultIn(created).task as { taskId: string };
    await until(session, taskId, 'input_required');
    const answered = await session.post(from(persistent, 0, { taskId }));
    expect(answered.message).toEqual(from(persistent, 1, { taskId }));
    await until(session, taskId, 'input_required');
  });
});
