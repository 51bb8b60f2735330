/** workspace-sse: which messages are refused, with which code, and that none of them reaches a tool. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { buildServer } from '../fixtures/asking-server.ts';
import { type Served, serveHere } from './harness.ts';
import { type Body, call, get, initialize, post, postText } from './workspace-wire.ts';

let served: Served;
let url = '';
let made = 0;
let workspaces = 0;
beforeAll(async () => {
  served = await serveHere(() => {
    made += 1;
    return buildServer(() => {});
  });
});
// One of its own for each: a stream that a test closed may be open for the server for a while.
beforeEach(() => {
  workspaces += 1;
  url = `${served.url}/acme-${workspaces}`;
});
afterAll(() => served.close());

const ping = { jsonrpc: '2.0', id: 1, method: 'ping' };
const result = { action: 'cancel' };

async function refused(body: Body): Promise<unknown[]> {
  const { status, json } = await body.end();
  expect(json).toMatchObject({ jsonrpc: '2.0' });
  expect(json.error?.message).toMatch(/\w/);
  return [status, json.error?.code, json.id];
}

describe('refuses before anything of it runs', () => {
  it.each<[string, unknown, number, unknown]>([
    ['no object', 5, -32600, null],
    ['a batch', [ping], -32600, null],
    ['an empty batch', [], -32600, null],
    ['no jsonrpc', { id: 1, method: 'ping' }, -32600, 1],
    ['another jsonrpc', { ...ping, jsonrpc: '1.0' }, -32600, 1],
    ['jsonrpc as a number', { ...ping, jsonrpc: 2 }, -32600, 1],
    ['a request whose id is null', { ...ping, id: null }, -32600, null],
    ['a response whose id is null', { jsonrpc: '2.0', id: null, result }, -32600, null],
    ['an id that is an object', { ...ping, id: {} }, -32600, null],
    ['an id that is true', { ...ping, id: true }, -32600, null],
    ['an id that is no whole number', { ...ping, id: 1.5 }, -32600, 1.5],
    ['a method that is no string', { ...ping, method: 7 }, -32600, null],
    ['a request with a result', { ...ping, result }, -32600, 1],
    ['a request with an error', { ...ping, error: { code: 1, message: 'no' } }, -32600, 1],
    ['neither method, result nor error', { jsonrpc: '2.0', id: 1 }, -32600, null],
    [
      'both result and error',
      { jsonrpc: '2.0', id: 1, result, error: { code: 1, message: 'no' } },
      -32600,
      null,
    ],
    ['a response without an id', { jsonrpc: '2.0', result }, -32600, null],
    ['a result that is no object', { jsonrpc: '2.0', id: 1, result: 'yes' }, -32600, null],
    ['an error that is no object', { jsonrpc: '2.0', id: 1, error: 'no' }, -32600, null],
    ['an error without a code', { jsonrpc: '2.0', id: 1, error: { message: 'no' } }, -32600, null],
    [
      'an error whose code is a word',
      { jsonrpc: '2.0', id: 1, error: { code: 'x', message: 'no' } },
      -32600,
      null,
    ],
    ['an error without a message', { jsonrpc: '2.0', id: 1, error: { code: -32000 } }, -32600, null],
    ['params that are no object', { ...ping, params: [1] }, -32602, 1],
    ['_meta that is no object', { ...ping, params: { _meta: 5 } }, -32602, 1],
    ['a progress token that is none', { ...ping, params: { _meta: { progressToken: {} } } }, -32602, 1],
    ['a tool without a name', { ...ping, method: 'tools/call', params: {} }, -32602, 1],
    ['a tool whose arguments are a list', { ...ping, ...call(1, 'one', []) }, -32602, 1],
    ['a prompt whose name is a number', { ...ping, method: 'prompts/get', params: { name: 5 } }, -32602, 1],
    ['a resource without a URI', { ...ping, method: 'resources/read' }, -32602, 1],
    ['initialize without params', { jsonrpc: '2.0', id: 1, method: 'initialize' }, -32602, 1],
  ])('%s', async (_name, message, code, id) => {
    const before = made;
    expect(await refused(await postText(url, JSON.stringify(message)))).toEqual([400, code, id]);
    expect(made).toBe(before);
  });

  it('what is no JSON: -32700', async () => {
    for (const text of ['', '{', '{"jsonrpc":"2.0",}']) {
      expect(await refused(await postText(url, text))).toEqual([400, -32700, null]);
    }
  });

  it.each<[string, object, number]>([
    ['a request with a result', { ...ping, id: 'bad', result }, -32600],
    ['a tool without a name', { id: 'bad', method: 'tools/call', params: {} }, -32602],
    ['initialize without params', { id: 'bad', method: 'initialize' }, -32602],
  ])('%s while a GET is open: on its stream', async (_name, message, code) => {
    const stream = await get(url);
    await stream.lifecycle('streamOpened');
    const reply = await (await post(url, message)).end();
    expect([reply.status, reply.text]).toEqual([202, '']);
    expect((await stream.response('bad')).message.error?.code).toBe(code);
    await stream.cancel();
  });

  it('what answers no request that its client waits for, while a GET is open: in the reply of the POST', async () => {
    const stream = await get(url);
    await stream.lifecycle('streamOpened');
    expect(await refused(await post(url, { ...ping, id: null }))).toEqual([400, -32600, null]);
    expect((await post(url, call('long', 'one'))).status).toBe(202);
    const again = { id: 'long', method: 'tools/call', params: {} };
    expect(await refused(await post(url, again))).toEqual([400, -32602, 'long']);
    expect(stream.responses().filter(({ error }) => error !== undefined)).toEqual([]);
    await stream.cancel();
  });
});

describe('answers as an event, with the code', () => {
  it.each<[string, object, number]>([
    ['-32601 to a method that is unknown', { id: 1, method: 'no/such' }, -32601],
    ['-32602 to a prompt that is unknown', { id: 1, method: 'prompts/get', params: { name: 'x' } }, -32602],
  ])('%s', async (_name, message, code) => {
    const body = await (await post(url, message)).end();
    expect(body.status).toBe(200);
    expect((await body.response(1)).message.error?.code).toBe(code);
  });

  it('-32603 where the server could not be made', async () => {
    const broken = await serveHere(() => {
      throw new Error('no database');
    });
    for (const message of [call(1, 'one'), initialize(1, {})]) {
      const body = await (await post(`${broken.url}/acme`, message)).end();
      expect((await body.response(1)).message.error).toEqual({ code: -32603, message: 'Internal error' });
    }
    await broken.close();
  });
});

describe('ids', () => {
  it('that were used on a stream are refused on it, whatever became of the request', async () => {
    const stream = await get(url);
    expect((await post(url, ping)).status).toBe(202);
    await stream.response(1);
    expect(await refused(await post(url, ping))).toEqual([400, -32600, 1]);
    expect((await post(url, { ...ping, id: '1' })).status).toBe(202);
    expect((await post(url, call('long', 'one'))).status).toBe(202);
    expect(await refused(await post(url, call('long', 'one')))).toEqual([400, -32600, 'long']);
    await stream.cancel();
    const next = await get(url);
    await next.lifecycle('streamOpened');
    expect((await post(url, ping)).status).toBe(202);
    await next.response(1);
    await next.cancel();
  });

  it('stay used when the stream broke and is gone on with', async () => {
    const stream = await get(url);
    expect((await post(url, ping)).status).toBe(202);
    await stream.response(1);
    await stream.cancel();
    const again = await get(url, { last: stream.last });
    expect(await refused(await post(url, ping))).toEqual([400, -32600, 1]);
    await again.cancel();
  });

  it('without a stream are their POST’s own', async () => {
    for (const body of await Promise.all([post(url, ping), post(url, ping)])) {
      await body.end();
      expect((await body.response(1)).message.result).toEqual({});
    }
  });
});

it('refuses a malformed Last-Event-ID, with one sentence', async () => {
  for (const last of ['nonsense', 'x'.repeat(5_000), 'abc_0', `${'z'.repeat(11)}.~${'A'.repeat(22)}_0`]) {
    const { status, json } = await (await get(url, { last })).end();
    expect([status, json.error]).toEqual([
      400,
      { code: -32602, message: 'Invalid or expired Last-Event-ID' },
    ]);
  }
});

it('takes GET and POST alone', async () => {
  const reply = await fetch(url, { method: 'DELETE' });
  expect([reply.status, reply.headers.get('allow')]).toEqual([405, 'GET, POST']);
});
