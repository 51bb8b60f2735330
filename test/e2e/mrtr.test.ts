/** Rounds of both drafts of multi round-trip requests, in one process: raw messages over HTTP. */
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { tuned } from '../../src/call/limits.ts';
import type { AwaitOptions } from '../../src/index.ts';
import { BAD_TOKEN } from '../fixtures/frozen.ts';
import { CELLS, optionsOf, type Served, serveHere } from './harness.ts';
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
  request,
  resultIn,
  type Said,
  serveRounds,
  textIn,
  type Words,
} from './rounds.ts';

const ALL = { tools: {}, prompts: {}, resources: { subscribe: true }, completions: {}, logging: {} };
const INITIALIZED = {
  protocolVersion: '2025-11-25',
  capabilities: ALL,
  serverInfo: { name: 'asks', version: '1.0.0' },
};
const MATRIX = DRAFTS.flatMap((words) => CELLS.map((cell) => ({ words, cell, name: cell.name })));

let served: Served;
const effects: string[] = [];

afterEach(async () => {
  vi.useRealTimers();
  effects.length = 0;
  await served.close();
});

describe.each(MATRIX)('$words.revision ($name)', ({ words, cell }) => {
  const start = async (options: AwaitOptions = {}): Promise<RawSession> => {
    served = await serveRounds(cell, options, { act: (effect) => effects.push(effect) });
    return openSession(served.url, words.revision);
  };
  const keysOf = ({ message }: Said): string[] => Object.keys(words.asked(message));
  const retry = (asking: Json, before: Said, results?: Json): Json =>
    words.retry(again(asking), words.state(before.message), results && words.answers(results));

  it('negotiates itself, and serves what cannot ask as plain JSON', async () => {
    const session = await start();
    expect(session.begun.message).toMatchObject({
      result: { protocolVersion: words.revision, serverInfo: { name: 'rounds' } },
    });
    for (const method of ['ping', 'tools/list', 'prompts/list', 'resources/templates/list']) {
      const reply = await session.post(request(method));
      expect([reply.status, reply.type]).toEqual([200, 'application/json']);
      expect(resultIn(reply).resultType).toBe(words === APPROVED ? 'complete' : undefined);
    }
    expect(resultIn(session.begun).resultType).toBe(words === APPROVED ? 'complete' : undefined);
  });

  it('asks in several rounds, of which no step is done twice', async () => {
    const session = await start();
    const asking = call('order');
    const first = await session.post(asking);
    expect([first.type, keysOf(first)]).toEqual(['application/json', ['address']]);
    const second = await session.post(retry(asking, first, { address: accepted({ address: 'Ghent' }) }));
    expect(keysOf(second)).toEqual(['name']);
    const body = retry(asking, second, { name: accepted({ name: 'Ann' }) });
    const third = await session.post(body);
    expect(textIn(third)).toBe('Ann, Ghent');
    expect(third.message.id).toBe(body.id);
    expect(resultIn(third).resultType).toBe(words === APPROVED ? 'complete' : undefined);
    expect(effects).toEqual(['charge']);
    // The same POST again has the same outcome.
    expect((await session.post(body)).message).toEqual(third.message);
    expect(effects).toEqual(['charge']);
  });

  it('asks in prompts too', async () => {
    const session = await start();
    const asking = request('prompts/get', { name: 'greet' });
    const first = await session.post(asking);
    const reply = await session.post(retry(asking, first, { name: accepted({ name: 'Ann' }) }));
    expect(resultIn(reply)).toMatchObject({ messages: [{ content: { text: 'Greet Ann' } }] });
  });

  it('asks again what is missing and what is bad, under the names that their author gave; ignores the rest', async () => {
    const session = await start();
    const asking = call('login');
    const first = await session.post(asking);
    expect(keysOf(first)).toEqual(['github_login', 'google_login']);
    const none = await session.post(retry(asking, first, { nobody: accepted({ name: 'x' }) }));
    expect(keysOf(none)).toEqual(['github_login', 'google_login']);
    const without = await session.post(retry(asking, first));
    expect(keysOf(without)).toEqual(['github_login', 'google_login']);
    const bad = await session.post(
      retry(asking, none, {
        github_login: accepted({ name: 'octocat' }),
        google_login: accepted({ other: 1 }),
      }),
    );
    expect(keysOf(bad)).toEqual(['google_login']);
    const done = await session.post(retry(asking, bad, { google_login: accepted({ name: 'ann' }) }));
    expect(textIn(done)).toBe('octocat & ann');
  });

  it('takes a retry without arguments for the same call as one with none', async () => {
    const session = await start();
    const { params, ...asking } = call('login') as { params: { name: string; arguments?: object } };
    const { arguments: _none, ...without } = params;
    const first = await session.post({ ...asking, params: without });
    const answers = { github_login: accepted({ name: 'a' }), google_login: accepted({ name: 'b' }) };
    const reply = await session.post(
      retry({ ...asking, params: { ...without, arguments: {} } }, first, answers),
    );
    expect(textIn(reply)).toBe('a & b');
  });

  it('takes answers without a state for a new call, by explicit key', async () => {
    const session = await start();
    const given = words.answers({ github_login: accepted({ name: 'octocat' }), other: accepted({}) });
    const reply = await session.post(words.retry(call('login'), undefined, given));
    expect(keysOf(reply)).toEqual(['google_login']);
  });

  it('refuses answers that are none', async () => {
    const session = await start();
    const asking = call('echo');
    const first = await session.post(asking);
    const state = words.state(first.message);
    for (const answers of ['text', 7, [], null, { echo_input: 'text' }, { echo_input: { other: {} } }]) {
      const reply = await session.post(words.retry(again(asking), state, answers));
      expect([reply.status, errorIn(reply).code]).toEqual([200, -32602]);
      expect(errorIn(reply).message).toMatch(/^Invalid params: input/);
    }
    const done = await session.post(retry(asking, first, { echo_input: accepted({ input: 'still here' }) }));
    expect(textIn(done)).toBe('Echo: still here');
  });

  it('refuses a state that is not good in one sentence', async () => {
    const session = await start();
    const asking = call('get_weather', { arguments: { location: 'Rome' } });
    const first = await session.post(asking);
    const state = String(words.state(first.message));
    const answers = words.answers({ github_login: accepted({ name: 'ann' }) });
    const with_ = (message: Json, bad: unknown = state): Json => words.retry(again(message), bad, answers);
    const middle = Math.floor(state.length / 2);
    const flipped = state.slice(0, middle) + (state[middle] === 'A' ? 'B' : 'A') + state.slice(middle + 1);
    const elsewhere = call('get_weather', { arguments: { location: 'Oslo' } });
    for (const bad of [
      with_(asking, 'nonsense'),
      with_(asking, ''),
      with_(asking, 7),
      with_(asking, flipped),
      with_(asking, `${state}A`),
      with_(elsewhere),
      with_(call('echo')),
      with_(request('prompts/get', { name: 'greet' })),
    ]) {
      const reply = await session.post(bad);
      expect([reply.status, reply.message]).toEqual([200, { jsonrpc: '2.0', id: bad.id, error: BAD_TOKEN }]);
    }
    const ann = await openSession(served.url, words.revision, { bearer: 'ann' });
    expect(errorIn(await ann.post(with_(asking)))).toEqual(BAD_TOKEN);
    const other = DRAFTS.find((draft) => draft !== words) as Words;
    const session2 = await openSession(served.url, other.revision);
    const given = other.answers({ github_login: accepted({ name: 'ann' }) });
    expect(errorIn(await session2.post(other.retry(again(asking), state, given)))).toEqual(BAD_TOKEN);
    expect(textIn(await session.post(with_(asking)))).toContain('Rome');
  });

  it('refuses a state that is too old', async () => {
    vi.useFakeTimers({ toFake: ['Date'] });
    const session = await start();
    const asking = call('echo');
    const first = await session.post(asking);
    vi.setSystemTime(Date.now() + 3_600_001);
    const late = retry(asking, first, { echo_input: accepted({ input: 'late' }) });
    expect(errorIn(await session.post(late))).toEqual(BAD_TOKEN);
  });

  it('refuses a session in other words, and touches nothing', async () => {
    const session = await start();
    const asking = call('echo');
    const first = await session.post(asking);
    const body = retry(asking, first, { echo_input: accepted({ input: 'hi' }) });
    const others = ['2025-11-25', 'DRAFT-SEP-1858', ...DRAFTS.map(({ revision }) => revision)];
    for (const version of others.filter((revision) => revision !== words.revision)) {
      expect((await session.post(body, 0, { 'mcp-protocol-version': version })).status).toBe(400);
    }
    const { 'mcp-protocol-version': _none, ...without } = session.headers;
    const bare = await fetch(served.url, { method: 'POST', headers: without, body: JSON.stringify(body) });
    expect(bare.status).toBe(400);
    expect(textIn(await session.post(body))).toBe('Echo: hi');
    const plain = await openSession(served.url, '2025-11-25');
    const mixed = await plain.post(call('throws'), 0, { 'mcp-protocol-version': words.revision });
    expect(mixed.status).toBe(400);
  });

  it('gives a call up with a state and without asks', async () => {
    const session = await start();
    const asking = call('sheds');
    const first = await session.post(asking);
    expect(words.state(first.message)).toEqual(expect.any(String));
    expect(first.text).not.toMatch(/input_?[rR]equests/);
    const second = await session.post(retry(asking, first));
    expect(keysOf(second)).toEqual(['name']);
    const third = await session.post(retry(asking, second, { name: accepted({ name: 'Ann' }) }));
    expect(textIn(third)).toBe('computed, Ann');
    expect(effects).toEqual(['compute']);
  });

  it('never lets -32042 out', async () => {
    const session = await start();
    const asking = call('needs-url');
    const first = await session.post(asking);
    const [key = ''] = keysOf(first);
    expect(words.asked(first.message)[key]).toMatchObject({
      method: 'elicitation/create',
      params: { mode: 'url', url: 'https://example.com/pay' },
    });
    const declined = await session.post(retry(asking, first, { [key]: { action: 'decline' } }));
    expect(resultIn(declined)).toMatchObject({ isError: true });
    expect(errorIn(await session.post(call('bad-url'))).code).toBe(-32603);
    // Nor from a request that does not usually ask.
    const ref = { type: 'ref/prompt', name: 'greet' };
    const completion = { ref, argument: { name: 'who', value: 'a' } };
    const reply = await session.post(request('completion/complete', completion));
    expect(reply.text).not.toContain('"code":-32042');
    if (words === APPROVED) expect(errorIn(reply).code).toBe(-32603);
    else expect(Object.values(words.asked(reply.message))).toMatchObject([{ params: { mode: 'url' } }]);
  });

  it('tells what a tool throws as its SDK does', async () => {
    const session = await start();
    expect(resultIn(await session.post(call('throws')))).toMatchObject({
      isError: true,
      content: [{ text: 'out of paper' }],
    });
    const reply = await session.post(request('prompts/get', { name: 'broken' }));
    expect(errorIn(reply)).toMatchObject({ code: -32603 });
  });

  it('stops a call that its client cancels', async () => {
    const session = await start();
    const asking = call('slow');
    const running = session.post(asking);
    await new Promise((resolve) => setTimeout(resolve, 100));
    const cancel = { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: asking.id } };
    expect((await session.post(cancel)).status).toBe(202);
    expect(await running).toMatchObject({ status: 202, text: '' });
  });

  it('refuses what is no message, batches, and an id that is in work', async () => {
    const session = await start();
    for (const body of [
      [],
      [request('ping')],
      { jsonrpc: '2.0' },
      { jsonrpc: '1.0', id: 1, method: 'ping' },
    ]) {
      const reply = await session.post(body);
      expect([reply.status, errorIn(reply).code]).toEqual([400, -32600]);
    }
    const asking = call('slow');
    const running = session.post(asking);
    await new Promise((resolve) => setTimeout(resolve, 50));
    const twice = await session.post(asking);
    expect([twice.status, errorIn(twice).code]).toEqual([400, -32600]);
    expect(textIn(await running)).toBe('slow');
  });
});

describe.each(CELLS)('SEP-2322 alone ($name)', (cell) => {
  const start = async (): Promise<RawSession> => {
    served = await serveRounds(cell);
    return openSession(served.url, APPROVED.revision);
  };

  it('refuses a retry under the id of the request that it retries', async () => {
    const session = await start();
    const asking = call('login');
    const first = await session.post(asking);
    const answers = { github_login: accepted({ name: 'octocat' }), google_login: accepted({ other: 1 }) };
    const retried = (message: Json, before: Said, results: Json): Json =>
      APPROVED.retry(message, APPROVED.state(before.message), results);
    const same = await session.post(retried(asking, first, answers));
    expect([same.status, errorIn(same).code]).toEqual([200, -32600]);
    const body = retried(again(asking), first, answers);
    const second = await session.post(body);
    const [key = ''] = Object.keys(APPROVED.asked(second.message));
    const named = { [key]: accepted({ name: 'ann' }) };
    // Each round's id is good for that round alone.
    expect(errorIn(await session.post(retried({ ...asking, id: body.id }, second, named))).code).toBe(-32600);
    expect(textIn(await session.post(retried(again(asking), second, named)))).toBe('octocat & ann');
  });

  it('streams from the first notification on, and ends the stream with an incomplete result', async () => {
    const session = await start();
    const asking = call('notes', { _meta: { progressToken: 'p' } });
    const first = await session.post(asking);
    expect(first.type).toBe('text/event-stream');
    expect(first.notifications).toMatchObject([{ params: { progressToken: 'p', progress: 1 } }]);
    expect(resultIn(first)).toMatchObject({ resultType: 'input_required' });
    const state = APPROVED.state(first.message);
    const second = await session.post(
      APPROVED.retry(again(call('notes', { _meta: { progressToken: 'q' } })), state, {
        name: accepted({ name: 'Ann' }),
      }),
    );
    expect(second.notifications).toMatchObject([{ params: { progressToken: 'q', progress: 2 } }]);
    expect(resultIn(second)).toMatchObject({ resultType: 'input_required' });
    const third = await session.post(
      APPROVED.retry(
        again(call('notes', { _meta: { progressToken: 'r' } })),
        APPROVED.state(second.message),
        {
          city: accepted({ city: 'Ghent' }),
        },
      ),
    );
    expect(third.notifications).toMatchObject([{ params: { progressToken: 'r', progress: 3 } }]);
    expect(textIn(third)).toBe('Ann of Ghent');
    const quiet = await session.post(call('notes'));
    expect(quiet.type).toBe('application/json');
  });

  it('gives a client whose stream broke the rest of it by GET', async () => {
    const session = await start();
    const asking = call('notes', { _meta: { progressToken: 'p' } });
    const first = await session.post(asking);
    const [id = ''] = /^id: (.+)$/m.exec(first.text)?.slice(1) ?? [];
    const headers = { ...session.headers, accept: 'text/event-stream', 'last-event-id': id };
    const rest = await (await fetch(served.url, { headers })).text();
    expect(rest).toContain('"resultType":"input_required"');
    expect(rest).not.toContain('"progress":1');
  });

  it('keeps to its section on errors: protocol errors, what is too much, what is missing', async () => {
    const session = await start();
    const broken = await fetch(served.url, { method: 'POST', headers: session.headers, body: '{"jsonrpc":' });
    expect([broken.status, ((await broken.json()) as { error: Json }).error.code]).toEqual([400, -32700]);
    const asking = call('login');
    const first = await session.post(asking);
    const send = (before: Said, results: unknown) =>
      session.post(APPROVED.retry(again(asking), APPROVED.state(before.message), results));
    expect(errorIn(await send(first, 'no object')).code).toBe(-32602);
    // It cannot be an answer to that ask.
    expect(errorIn(await send(first, { github_login: { action: 'perhaps' } })).code).toBe(-32602);
    const some = await send(first, { github_login: accepted({ name: 'octocat' }), more: 'than was asked' });
    expect(Object.keys(APPROVED.asked(some.message))).toEqual(['google_login']);
    const done = await send(some, { google_login: { ...accepted({ name: 'gus' }), more: 'than is needed' } });
    expect(textIn(done)).toBe('octocat & gus');
  });

  it.each([
    'ping',
    'completion/complete',
    'logging/setLevel',
    'prompts/list',
    'resources/list',
    'resources/templates/list',
    'resources/subscribe',
    'resources/unsubscribe',
    'tools/list',
    'tasks/get',
    'tasks/list',
    'tasks/cancel',
    'tasks/input_response',
  ])('never leaves %s incomplete', async (method) => {
    served = await serveHere(
      () => {
        const server = new Server({ name: 'asks', version: '1.0.0' }, { capabilities: ALL });
        const low = server as unknown as { _requestHandlers: Map<string, unknown> };
        low._requestHandlers.clear();
        server.fallbackRequestHandler = async ({ method: asked }) => {
          if (asked === 'initialize') return INITIALIZED;
          await server.elicitInput({ message: 'who?', requestedSchema: { type: 'object', properties: {} } });
          return {};
        };
        return server;
      },
      { ...optionsOf(cell), ...(cell.state === 'stored' && { tasks: 'optional' }) },
    );
    const session = await openSession(served.url, APPROVED.revision);
    const reply = await session.post(request(method));
    expect(reply.type).toBe('application/json');
    expect(reply.text).not.toContain('input_required');
    expect(resultIn(reply).resultType ?? errorIn(reply).code).toEqual(
      method === 'tasks/list' && cell.state === 'stored' ? 'complete' : expect.any(Number),
    );
  });

  it('asks in no request that its table says no for', async () => {
    const session = await start();
    const reply = await session.post(request('resources/list'));
    expect([reply.type, errorIn(reply).code]).toEqual(['application/json', -32603]);
    expect(reply.text).not.toContain('input_required');
  });
});

describe.each(CELLS)('the first draft alone ($name)', (cell) => {
  const start = async (options: AwaitOptions = {}): Promise<RawSession> => {
    served = await serveRounds(cell, options);
    return openSession(served.url, FIRST.revision);
  };
  const notes = (progressToken: string, before?: Said, results?: Json): Json =>
    FIRST.retry(
      call('notes', { _meta: { progressToken } }),
      before && FIRST.state(before.message),
      results && FIRST.answers(results),
    );

  it('holds what is said until the outcome, and keeps it for the next turn when that is incomplete', async () => {
    const session = await start();
    const first = await session.post(notes('p'));
    expect([first.type, first.notifications]).toEqual(['application/json', []]);
    const second = await session.post(notes('q', first, { name: accepted({ name: 'Ann' }) }));
    expect([second.type, second.notifications]).toEqual(['application/json', []]);
    // A refused request changes nothing in it.
    const state = FIRST.state(second.message);
    await session.post(FIRST.retry(call('notes', { _meta: { progressToken: 'x' } }), state, 'nonsense'));
    const third = await session.post(notes('r', second, { city: accepted({ city: 'Ghent' }) }));
    expect(third.type).toBe('text/event-stream');
    expect(third.notifications).toMatchObject(
      [1, 2, 3].map((progress) => ({ params: { progressToken: 'r', progress } })),
    );
    expect(textIn(third)).toBe('Ann of Ghent');
  });

  it('holds no more than it may', async () => {
    const session = await start({ ...tuned({ heldNotifications: 2 }) });
    const first = await session.post(notes('p'));
    const second = await session.post(notes('p', first, { name: accepted({ name: 'Ann' }) }));
    const third = await session.post(notes('p', second, { city: accepted({ city: 'Ghent' }) }));
    expect(third.notifications).toMatchObject([{ params: { progress: 2 } }, { params: { progress: 3 } }]);
  });

  it('has in its state what was said, the newest of it, and for that call alone', async () => {
    const session = await start();
    const lines = (text: string): Promise<Said> => session.post(call('lines', { arguments: { text } }));
    const quiet = String(FIRST.state((await lines('')).message));
    const loud = String(FIRST.state((await lines('x'.repeat(6_000))).message));
    expect(loud.length).toBeLessThan(quiet.length + 40_000);
    const mixed = [quiet.split('~')[0], loud.split('~')[1]].join('~');
    const asking = call('lines', { arguments: { text: '' } });
    const answers = FIRST.answers({ go: accepted({ name: 'Ann' }) });
    const refused = await session.post(FIRST.retry(again(asking), mixed, answers));
    expect(errorIn(refused)).toMatchObject({ code: -32602, message: 'Invalid or expired requestState' });
    const same = call('lines', { arguments: { text: 'x'.repeat(6_000) } });
    const done = await session.post(FIRST.retry(again(same), loud, answers));
    // Two of the three that came before the ask fit, and the one after it.
    expect(done.notifications).toMatchObject(
      [2, 3, 4].map((line) => ({ params: { data: expect.stringMatching(`^${line} x`) } })),
    );
  });

  it('rejects an ask that is answered by an error', async () => {
    const session = await start();
    const asking = call('echo');
    const first = await session.post(asking);
    const error = { error: { code: -32000, message: 'no user here' } };
    const state = FIRST.state(first.message);
    const reply = await session.post(FIRST.retry(again(asking), state, { echo_input: error }));
    expect(resultIn(reply)).toMatchObject({ isError: true });
    expect(textIn(reply)).toContain('no user here');
  });

  it('asks in every request', async () => {
    const session = await start();
    const asking = request('resources/list');
    const first = await session.post(asking);
    const answers = FIRST.answers({ list: accepted({ name: 'Ann' }) });
    const reply = await session.post(FIRST.retry(again(asking), FIRST.state(first.message), answers));
    expect(resultIn(reply)).toEqual({ resources: [] });
  });
});
