/** Messages that the SDKs' schemas do not take, and drop in silence: they are refused, and cost no call. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { buildServer } from '../fixtures/asking-server.ts';
import { answer, asks, begin, call, type Session } from './anywhere.ts';
import { CAPABILITIES } from './clients.ts';
import { type Served, serveHere } from './harness.ts';

const RELATED = 'io.modelcontextprotocol/related-task';
const good = { action: 'accept', content: { name: 'Ann' } };
const ANSWERS: readonly [string, object][] = [
  ['a code that is no whole number', { error: { code: 1.5, message: 'no' } }],
  ['a code that is a text', { error: { code: '5', message: 'no' } }],
  ['an error without a message', { error: { code: 5 } }],
  ['a result that is a text', { result: 'yes' }],
  ['a _meta that is a text', { result: { ...good, _meta: 'x' } }],
  ['a related task without an id', { result: { ...good, _meta: { [RELATED]: {} } } }],
  ['a result and an error', { result: good, error: { code: 5, message: 'no' } }],
];
const REQUESTS: readonly [string, object][] = [
  ['a related task that is a number', { params: { name: 'one', _meta: { [RELATED]: 5 } } }],
  ['a progress token that is an object', { params: { name: 'one', _meta: { progressToken: {} } } }],
  ['a result', { params: { name: 'one' }, result: {} }],
];

let served: Served;
beforeEach(async () => {
  served = await serveHere(() => buildServer(() => {}), {
    revisions: ['*', { name: 'workspace-sse', capabilities: CAPABILITIES }],
  });
});
afterEach(() => served.close());

const start = (): Promise<Session> => begin([served], CAPABILITIES);

describe('a session of 2025', () => {
  it.each(ANSWERS)('refuses an answer with %s, and takes a good one afterwards', async (_what, bad) => {
    const session = await start();
    const stream = await session.post(0, call('one'));
    const ask = await stream.next(asks('name'));
    const refused = await session.post(0, { id: ask.id, ...bad });
    await expect.poll(() => refused.over).toBe(true);
    expect([refused.status, JSON.parse(refused.text).error.code]).toEqual([400, -32600]);
    await session.post(0, answer(ask, 'name'));
    expect((await stream.next(({ id }) => id === 7)).result?.content?.[0]?.text).toBe('Hello its name');
  });

  it.each(REQUESTS)('refuses a request with %s', async (_what, bad) => {
    const session = await start();
    const refused = await session.post(0, { id: 7, method: 'tools/call', ...bad });
    await expect.poll(() => refused.over).toBe(true);
    expect([refused.status, JSON.parse(refused.text).error.code]).toEqual([400, -32600]);
  });
});

describe('workspace-sse', () => {
  const headers = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };
  const post = (message: object): Promise<Response> =>
    fetch(`${served.url}/acme`, {
      method: 'POST',
      headers,
      body: JSON.stringify({ jsonrpc: '2.0', ...message }),
    });

  it.each(REQUESTS)('refuses a request with %s', async (_what, bad) => {
    const refused = await post({ id: 7, method: 'tools/call', ...bad });
    expect(refused.status).toBe(400);
    expect(((await refused.json()) as { error: { code: number } }).error.code).toBeLessThanOrEqual(-32600);
  });

  it.each(ANSWERS)('refuses an answer with %s', async (_what, bad) => {
    const refused = await post({ id: 'anything', ...bad });
    expect(refused.status).toBe(400);
  });
});
