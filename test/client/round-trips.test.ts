/** Round trips of the drafts and of the released revision, against servers written by hand: asks, retries, and ends. */
import { CallToolResultSchema, LoggingMessageNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { describe, expect, it } from 'vitest';
import { resuming, type SavedCall } from '../../src/client/index.ts';
import {
  brought,
  calls,
  connect,
  DRAFTS,
  done,
  incomplete,
  inTurn,
  LOGIN,
  RESULT,
  REVISIONS,
  serve,
} from './round-trip-script.ts';
import { message, onCall, type Seen, serveVersion, sleep, until } from './script.ts';
import { FIRST, type Message, SEP, under } from './vectors.ts';

describe.each(REVISIONS)('%s', (revision) => {
  it('asks several things at once, and retries with their answers alone, under a new id', async () => {
    const asks = FIRST.inputRequests;
    const server = await serve(
      revision,
      inTurn(
        ({ body }, reply) => reply.json(incomplete(revision, body.id, { asks, state: 'one' })),
        ({ body }, reply) =>
          reply.json(incomplete(revision, body.id, { asks: { again: LOGIN }, state: 'two' })),
        ({ body }, reply) => reply.json(done(body.id)),
      ),
    );
    const { client } = await connect(server.url, { revision });
    expect(await client.callTool({ name: 'ask', arguments: { a: 1 } })).toEqual(RESULT);
    const [first, second, third] = calls(server);
    expect(brought(first as Seen)).toEqual({ answers: undefined, state: undefined });
    expect(brought(second as Seen)).toEqual({ answers: SEP.inputResponses, state: 'one' });
    const again = { action: 'accept', content: { name: 'octocat' } };
    expect(brought(third as Seen)).toEqual({ answers: { again }, state: 'two' });
    expect(new Set(calls(server).map(({ body }) => body.id)).size).toBe(3);
    for (const { body } of calls(server))
      expect(body.params).toMatchObject({ name: 'ask', arguments: { a: 1 } });
  });

  it('echoes the state byte for byte, and none when none came', async () => {
    const states = ['', ' "\\\u0000é\u2028😀\ud800 ', undefined, 'x'.repeat(100_000), '{"a":1}'];
    let nth = 0;
    const server = await serve(
      revision,
      onCall(({ body }, reply) => {
        const state = states[nth];
        nth += 1;
        reply.json(nth > states.length ? done(body.id) : incomplete(revision, body.id, { state }));
      }),
    );
    const { client, asked } = await connect(server.url, { revision });
    await client.callTool({ name: 'ask', arguments: {} });
    expect(asked).toEqual([]);
    const [, ...retries] = calls(server);
    expect(retries.map((seen) => brought(seen).state)).toEqual(states);
    for (const seen of retries) {
      expect(brought(seen).answers).toBeUndefined();
      const stateless = JSON.stringify(seen.body).includes('tate"');
      expect(stateless).toBe(brought(seen).state !== undefined);
    }
  });

  it('keeps calls that run side by side apart, though their keys are the same', async () => {
    const server = await serve(
      revision,
      onCall((seen, reply) => {
        const { body } = seen;
        const tool = String(body.params?.name);
        const { answers, state } = brought(seen);
        if (state === undefined) {
          const asks = { key: { ...LOGIN, params: { ...LOGIN.params, message: tool } } };
          reply.json(incomplete(revision, body.id, { asks, state: `state of ${tool}` }));
        } else reply.json(done(body.id, JSON.stringify({ state, answers })));
      }),
    );
    let open = 0;
    const { client } = await connect(server.url, { revision }, async (tool) => {
      open += 1;
      await until(() => open === 5);
      await sleep(Math.random() * 40);
      return { action: 'accept', content: { name: `to ${tool}` } };
    });
    const tools = ['a', 'b', 'c', 'd', 'e'];
    const results = await Promise.all(tools.map((name) => client.callTool({ name, arguments: {} })));
    for (const [nth, tool] of tools.entries()) {
      const answers = { key: { action: 'accept', content: { name: `to ${tool}` } } };
      const told = JSON.stringify({ state: `state of ${tool}`, answers });
      expect(results[nth]?.content).toEqual([{ type: 'text', text: told }]);
    }
  });

  it('takes a result without a type for complete, takes the type out, and knows no other', async () => {
    const server = await serve(
      revision,
      onCall(({ body }, reply) => {
        const resultType = body.params?.name === 'odd' ? 'postponed' : 'complete';
        reply.json({ jsonrpc: '2.0', id: body.id, result: { ...RESULT, resultType } });
      }),
      ({ body }, reply) => {
        if (body.method !== 'ping') return false;
        reply.json({ jsonrpc: '2.0', id: body.id, result: { resultType: 'complete' } });
        return true;
      },
    );
    const { client } = await connect(server.url, { revision });
    expect(await client.callTool({ name: 'ask', arguments: {} })).toEqual(RESULT);
    // SDK v1 lets nothing stand in an empty result.
    expect(await client.ping()).toEqual({});
    await expect(client.callTool({ name: 'odd', arguments: {} })).rejects.toThrow(/unknown type "postponed"/);
  });

  it('gives up after maxRounds, and says so', async () => {
    const server = await serve(
      revision,
      onCall(({ body }, reply) => reply.json(incomplete(revision, body.id, { state: 'more' }))),
    );
    const { client } = await connect(server.url, { revision, maxRounds: 3 });
    await expect(client.callTool({ name: 'ask', arguments: {} })).rejects.toThrow(/3 rounds.*maxRounds/);
    expect(calls(server)).toHaveLength(4);
    const usual = await connect(server.url, { revision });
    await expect(usual.client.callTool({ name: 'ask', arguments: {} })).rejects.toThrow(/100 rounds/);
    expect(calls(server)).toHaveLength(4 + 101);
  });

  it('refuses what is no input request and no state', async () => {
    for (const wrong of [
      { asks: [LOGIN] as unknown as Message },
      { asks: { key: null } },
      { asks: { key: { params: {} } } },
      { asks: { key: { method: 'elicitation/create', params: [] } } },
      { state: 7 },
      { state: null },
    ]) {
      const server = await serve(
        revision,
        onCall(({ body }, reply) => reply.json(incomplete(revision, body.id, wrong))),
      );
      const { client } = await connect(server.url, { revision });
      await expect(client.callTool({ name: 'ask', arguments: {} })).rejects.toThrow(
        /The server answered with/,
      );
      expect(calls(server)).toHaveLength(1);
    }
  });

  it('answers an elicitation that its handler refuses with cancel, and fails the call for all else', async () => {
    const server = await serve(
      revision,
      inTurn(
        ({ body }, reply) => reply.json(incomplete(revision, body.id, { asks: { login: LOGIN } })),
        ({ body }, reply) => reply.json(done(body.id)),
        ({ body }, reply) =>
          reply.json(
            incomplete(revision, body.id, {
              asks: { login: LOGIN, roots: { method: 'roots/list' }, more: LOGIN },
            }),
          ),
      ),
    );
    let aborted = 0;
    const { client, asked, errors } = await connect(server.url, { revision }, (_, { signal }) => {
      if (calls(server).length === 1) throw new Error('nobody is here');
      return new Promise((_resolve) => {
        const abort = (): void => {
          aborted += 1;
        };
        if (signal.aborted) abort();
        else signal.addEventListener('abort', abort);
      });
    });
    await client.callTool({ name: 'ask', arguments: {} });
    expect(brought(calls(server)[1] as Seen).answers).toEqual({ login: { action: 'cancel' } });
    expect(errors.map(String).join()).toContain('nobody is here');
    // This client has no roots, and says so; the other ask leaves the screen.
    await expect(client.callTool({ name: 'ask', arguments: {} })).rejects.toThrow(/Method not found/);
    await until(() => aborted === 1);
    expect(asked).toHaveLength(2);
    expect(calls(server)).toHaveLength(3);
  });

  it('passes on what is said before the response, under the token of the client', async () => {
    const progress = (progressToken: unknown, value: number) =>
      message({
        jsonrpc: '2.0',
        method: 'notifications/progress',
        params: { progressToken, progress: value },
      });
    const log = message({
      jsonrpc: '2.0',
      method: 'notifications/message',
      params: { level: 'info', data: 'a note' },
    });
    const token = ({ body }: Seen) => (body.params?._meta as Message | undefined)?.progressToken;
    const server = await serve(
      revision,
      inTurn(
        (seen, reply) =>
          reply
            .write(progress(token(seen), 1), log)
            .write(message(incomplete(revision, seen.body.id, { asks: { login: LOGIN }, state: 's' })))
            .end(),
        (seen, reply) => reply.write(progress(token(seen), 2), message(done(seen.body.id))).end(),
      ),
    );
    const { client, errors } = await connect(server.url, { revision });
    const heard: unknown[] = [];
    client.setNotificationHandler(
      LoggingMessageNotificationSchema,
      ({ params }) => void heard.push(params.data),
    );
    const onprogress = ({ progress: value }: { progress: number }) => void heard.push(value);
    await client.callTool({ name: 'ask', arguments: {} }, CallToolResultSchema, { onprogress });
    expect(heard).toEqual([1, 'a note', 2]);
    expect(errors).toEqual([]);
  });

  it('is cancelled while its user is asked: the question goes, and nothing is sent again', async () => {
    const server = await serve(
      revision,
      onCall(({ body }, reply) => reply.json(incomplete(revision, body.id, { asks: { login: LOGIN } }))),
    );
    let aborted = false;
    const { client, asked } = await connect(
      server.url,
      { revision },
      (_, { signal }) =>
        new Promise((resolve) =>
          signal.addEventListener('abort', () => {
            aborted = true;
            resolve({ action: 'accept', content: { name: 'too late' } });
          }),
        ),
    );
    const controller = new AbortController();
    const called = client.callTool({ name: 'ask', arguments: {} }, undefined, { signal: controller.signal });
    await until(() => asked.length === 1);
    controller.abort('enough');
    await expect(called).rejects.toThrow(/enough/);
    await until(() => aborted);
    await sleep(50);
    expect(calls(server)).toHaveLength(1);
  });

  it('gives the server’s error to the client, of a retry too', async () => {
    const error = { code: -32602, message: 'Invalid or expired requestState' };
    const server = await serve(
      revision,
      inTurn(
        ({ body }, reply) => reply.json(incomplete(revision, body.id, { state: 's' })),
        ({ body }, reply) => reply.json({ jsonrpc: '2.0', id: body.id, error }, 400),
      ),
    );
    const { client } = await connect(server.url, { revision });
    await expect(client.callTool({ name: 'ask', arguments: {} })).rejects.toMatchObject({ code: -32602 });
  });

  it('tells its states, for one call under one name, until it has its response', async () => {
    const server = await serve(
      revision,
      inTurn(
        ({ body }, reply) =>
          reply.json(incomplete(revision, body.id, { asks: { login: LOGIN }, state: 'a' })),
        ({ body }, reply) => reply.json(incomplete(revision, body.id, { state: 'b' })),
        ({ body }, reply) => reply.json(done(body.id)),
      ),
    );
    const told: (SavedCall | undefined)[] = [];
    const names = new Set<string>();
    const { client } = await connect(server.url, {
      revision,
      onState: (saved, call) => {
        told.push(saved);
        names.add(call);
      },
    });
    await client.callTool({ name: 'ask', arguments: { a: 1 } }, undefined, { onprogress: () => {} });
    await until(() => told.length === 3);
    const [call] = names;
    const params = { name: 'ask', arguments: { a: 1 } };
    const common = { call, revision, method: 'tools/call', params };
    expect(told).toEqual([
      { ...common, inputRequests: { login: LOGIN }, requestState: 'a' },
      { ...common, requestState: 'b' },
      undefined,
    ]);
    expect(names.size).toBe(1);
  });
});

describe.each(DRAFTS)('%s, over a session,', (revision) => {
  it('is asked for, told to the client as what it knows, and named in every request', async () => {
    const server = await serveVersion(
      revision,
      onCall(({ body }, reply) => reply.json(done(body.id))),
    );
    const { client, transport } = await connect(server.url, { revision });
    await client.callTool({ name: 'ask', arguments: {} });
    expect(server.seen[0]?.body.params?.protocolVersion).toBe(revision);
    expect(transport.protocolVersion).toBe(revision);
    for (const { headers } of server.seen.slice(1)) {
      expect(headers['mcp-protocol-version']).toBe(revision);
      expect(headers['mcp-session-id']).toBe('session-1');
    }
  });

  it('is cancelled in flight under the id that is in flight', async () => {
    const server = await serveVersion(
      revision,
      inTurn(
        ({ body }, reply) => reply.json(incomplete(revision, body.id, { state: 's' })),
        (_, reply) => reply.write(': wait\n\n'),
      ),
    );
    const { client } = await connect(server.url, { revision });
    const controller = new AbortController();
    const called = client.callTool({ name: 'ask', arguments: {} }, undefined, { signal: controller.signal });
    await until(() => calls(server).length === 2);
    controller.abort('enough');
    await expect(called).rejects.toThrow(/enough/);
    const cancelled = () => server.seen.find(({ body }) => body.method === 'notifications/cancelled');
    await until(() => cancelled() !== undefined);
    expect(cancelled()?.body.params).toEqual({
      requestId: calls(server)[1]?.body.id,
      reason: expect.anything(),
    });
  });
});

describe.each(DRAFTS)('a call of %s that is left', (revision) => {
  it('is gone on with by another client of its session, and its state is as it came', async () => {
    const state = 'é\\u2028 "state"';
    const server = await serveVersion(
      revision,
      onCall((seen, reply) => {
        const { body } = seen;
        const asks = { login: LOGIN };
        reply.json(
          brought(seen).state === undefined ? incomplete(revision, body.id, { asks, state }) : done(body.id),
        );
      }),
    );
    const kept: (string | undefined)[] = [];
    const onState = (saved: SavedCall | undefined) => void kept.push(saved && JSON.stringify(saved));
    const first = await connect(server.url, { revision, onState }, () => new Promise(() => {}));
    first.client.callTool({ name: 'ask', arguments: { a: 1 }, _meta: { trace: 't' } }).catch(() => {});
    await until(() => first.asked.length === 1);
    const { sessionId } = first.transport;
    await first.client.close();

    const second = await connect(server.url, { revision, onState, sessionId });
    const saved = JSON.parse(kept[0] ?? '') as SavedCall;
    const heard: number[] = [];
    const onprogress = ({ progress }: { progress: number }) => void heard.push(progress);
    expect(await second.client.callTool(resuming(saved), undefined, { onprogress })).toEqual(RESULT);
    expect(second.asked).toEqual(first.asked);
    expect(calls(server)).toHaveLength(2);
    const retry = calls(server)[1] as Seen;
    expect(brought(retry)).toEqual({
      answers: { login: { action: 'accept', content: { name: 'octocat' } } },
      state,
    });
    // The params are the call's own, and the progress token is the new caller's.
    expect(retry.body.params).toMatchObject({
      name: 'ask',
      arguments: { a: 1 },
      _meta: { trace: 't', progressToken: expect.anything() },
    });
    expect(retry.body.params?._meta).not.toHaveProperty('mcp-await/resume');
    await until(() => kept.length === 3);
    // Told again under the same name, and then no more.
    expect(kept).toEqual([kept[0], kept[0], undefined]);
  });
});

describe('the examples of the first draft', () => {
  const revision = 'DRAFT-MRTR-2026-02';

  it('for ephemeral tools: what we write is theirs, apart from the ids', async () => {
    const server = await serveVersion(
      revision,
      inTurn(
        ({ body }, reply) => reply.json(under(body.id, FIRST.incomplete)),
        ({ body }, reply) => reply.json(under(body.id, FIRST.result)),
      ),
    );
    const { client, asked } = await connect(server.url, { revision });
    const { params } = FIRST.call;
    expect(await client.callTool(params as { name: string })).toEqual(FIRST.result.result);
    expect(asked).toEqual(['Please provide your GitHub username']);
    const [first, second] = calls(server).map(({ body }) => body);
    expect(first).toEqual(under(first?.id, FIRST.call));
    expect(second).toEqual(under(second?.id, FIRST.retry));
  });

  it('for its maps of requests and responses', async () => {
    const server = await serveVersion(
      revision,
      inTurn(
        ({ body }, reply) => reply.json(incomplete(revision, body.id, { asks: FIRST.inputRequests })),
        ({ body }, reply) => reply.json(done(body.id)),
      ),
    );
    const { client } = await connect(server.url, { revision });
    await client.callTool({ name: 'ask', arguments: {} });
    expect(calls(server)[1]?.body.input_responses).toEqual(FIRST.inputResponses);
  });
});

describe('the examples of SEP-2322', () => {
  const revision = 'DRAFT-SEP-2322';

  it('for input_required without a state: the retry has none', async () => {
    const server = await serveVersion(
      revision,
      inTurn(
        ({ body }, reply) => reply.json(under(body.id, SEP.inputRequired)),
        ({ body }, reply) => reply.json(done(body.id)),
      ),
    );
    const { client } = await connect(server.url, { revision });
    await client.callTool(FIRST.call.params as { name: string });
    const [first, retry] = calls(server).map(({ body }) => body);
    expect(first).toEqual(under(first?.id, FIRST.call));
    const inputResponses = { github_login: SEP.inputResponses.github_login };
    expect(retry).toEqual({ ...FIRST.call, id: retry?.id, params: { ...FIRST.call.params, inputResponses } });
  });

  it('refuses input_required to a request that may not ask', async () => {
    const server = await serveVersion(revision, ({ body }, reply) => {
      if (body.method !== 'tools/list') return false;
      reply.json(incomplete(revision, body.id, { asks: { login: LOGIN } }));
      return true;
    });
    const { client, asked } = await connect(server.url, { revision });
    await expect(client.listTools()).rejects.toThrow(/tools\/list, which may not ask/);
    expect(asked).toEqual([]);
  });

  it('opens a URL that has no elicitationId', async () => {
    const asks = {
      pay: {
        method: 'elicitation/create',
        params: { mode: 'url', message: 'pay', url: 'https://example.com/' },
      },
    };
    const server = await serveVersion(
      revision,
      inTurn(
        ({ body }, reply) => reply.json(incomplete(revision, body.id, { asks })),
        ({ body }, reply) => reply.json(done(body.id)),
      ),
    );
    const { client } = await connect(server.url, { revision }, () => ({ action: 'accept' }));
    await client.callTool({ name: 'ask', arguments: {} });
    expect(brought(calls(server)[1] as Seen).answers).toEqual({ pay: { action: 'accept' } });
  });
});

describe('a server that agrees to no draft', () => {
  it.each(DRAFTS)('is served as the SDK would, under 2025-11-25 instead of %s', async (revision) => {
    const server = await serveVersion(
      '2025-11-25',
      onCall(({ body }, reply) => reply.json(incomplete('DRAFT-SEP-2322', body.id, { state: 's' }))),
    );
    const { client, transport } = await connect(server.url, { revision });
    expect(transport.protocolVersion).toBe('2025-11-25');
    expect(await client.callTool({ name: 'ask', arguments: {} })).toMatchObject({ requestState: 's' });
    expect(calls(server)).toHaveLength(1);
  });
});
