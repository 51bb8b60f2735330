/** Calls side by side, withdrawn asks, and the ends of a suspended call. */
import { describe, expect, it } from 'vitest';
import { CLOSING } from '../fixtures/frozen.ts';
import {
  ask,
  asking,
  bare,
  connected,
  message,
  onCall,
  onResume,
  onTurn,
  RESULT,
  type Reply,
  result,
  scripted,
  serve,
  sleep,
  until,
} from './script.ts';

const NOTE = message({ jsonrpc: '2.0', method: 'notifications/message', params: { level: 'info', data: 1 } });

describe('calls at once', () => {
  it('each have their own turns, though their servers count asks and events alike', async () => {
    const names: (string | number)[] = [];
    const server = await serve(
      onCall(({ body }, reply) => {
        const tool = String(body.params?.name);
        reply.write(
          bare('buffer_input', `${tool}-2`),
          message(ask(1, `${tool} one`)),
          message(ask(2, `${tool} two`)),
          bare('input_required', `${tool}-4`),
        );
        reply.end();
      }),
      ...['left', 'right'].map((tool, index) =>
        onTurn(`${tool}-4`, ({ batch }, reply) => reply.json(result(index + 1, JSON.stringify(batch)))),
      ),
    );
    const { call, asked } = await connected(server.url, async (question, { requestId }) => {
      names.push(requestId);
      await until(() => names.length === 4);
      // The calls are answered crosswise.
      await sleep(question === 'left one' ? 120 : question.endsWith('two') ? 20 : 60);
      return { action: 'accept', content: { name: question } };
    });
    const results = await Promise.all([call('left'), call('right')]);
    const text = JSON.stringify(results);
    for (const question of asked) expect(text).toContain(question);
    expect(asked).toHaveLength(4);
    // The client hears four ids, and the server two of its own for each stream.
    expect(new Set(names).size).toBe(4);
    const batches = server.turns().filter(({ batch }) => batch !== undefined);
    for (const { batch, headers } of batches) {
      const tool = String(headers['last-event-id']).split('-')[0];
      expect(batch?.map(({ id }) => id)).toEqual([1, 2]);
      expect(batch?.map((answer) => answer.result?.content)).toEqual([
        { name: `${tool} one` },
        { name: `${tool} two` },
      ]);
    }
  });

  it('leave the standing stream alone: what it asks is answered at once', async () => {
    const server = await serve(
      ({ verb, headers }, reply) => {
        if (verb !== 'GET' || headers['last-event-id'] !== undefined) return false;
        // Its events mean nothing there.
        reply.write(bare('buffer_input', 's1'), message(ask('standing', 'standing'), 's2'));
        return true;
      },
      onCall((_, reply) => reply.write(asking('held')).end()),
      onTurn('4', (_, reply) => reply.json(result(1))),
    );
    const { call } = await connected(server.url, async (question) => {
      if (question === 'held') await sleep(200);
      return { action: 'accept', content: { name: question } };
    });
    const done = call();
    await until(() => server.seen.some(({ body }) => body.id === 'standing' && body.result !== undefined));
    expect(server.turns().some(({ batch }) => batch !== undefined)).toBe(false);
    expect(await done).toEqual(RESULT);
  });
});

describe('what is taken back', () => {
  it('by the server: the rest of the turn goes out without it', async () => {
    const server = await serve(
      onCall((_, reply) => {
        const cancelled = {
          jsonrpc: '2.0',
          method: 'notifications/cancelled',
          params: { requestId: 'stale' },
        };
        const held = message(ask('stale', 'stale')) + message(ask('good', 'good')) + message(cancelled);
        reply.write(bare('buffer_input', '2'), held, bare('input_required', '4')).end();
      }),
      onTurn('4', (_, reply) => reply.json(result(1))),
    );
    const { call } = await connected(server.url, (question) =>
      question === 'good' ? { action: 'decline' } : new Promise(() => {}),
    );
    expect(await call()).toEqual(RESULT);
    expect(server.turns()[1]?.batch).toMatchObject([{ id: 'good' }]);
  });

  it('by the client: the turn is not sent, and its user is asked no more', async () => {
    const server = await serve(onCall((_, reply) => reply.write(asking('forget it')).end()));
    let aborted = false;
    const { call, asked } = await connected(
      server.url,
      (_, { signal }) =>
        new Promise((resolve) => {
          signal.addEventListener('abort', () => {
            aborted = true;
            resolve({ action: 'accept', content: { name: 'too late' } });
          });
        }),
    );
    const controller = new AbortController();
    const done = call('ask', { signal: controller.signal });
    await until(() => asked.length === 1);
    await sleep(50);
    controller.abort('changed my mind');
    await expect(done).rejects.toThrow('changed my mind');
    await until(() => aborted);
    await sleep(100);
    expect(server.turns().map(({ body, batch }) => batch ?? body.method)).toEqual([
      'tools/call',
      'notifications/cancelled',
    ]);
  });

  it('by the client in the middle of a turn: later asks do not reach its user', async () => {
    const server = await serve(
      onCall(async (_, reply) => {
        reply.write(bare('buffer_input', '2'), message(ask('one', 'one')));
        await sleep(500);
        reply.write(message(ask('two', 'two')), bare('input_required', '4')).end();
      }),
    );
    const { call, asked } = await connected(server.url);
    await expect(call('ask', { timeout: 300 })).rejects.toThrow('timed out');
    await sleep(350);
    expect(asked).toEqual(['one']);
    expect(server.turns().map(({ body, batch }) => batch ?? body.method)).toEqual([
      'tools/call',
      'notifications/cancelled',
    ]);
  });

  it('by the client while the server cannot take it: it is not sent again', async () => {
    const server = await serve(
      onCall((_, reply) => reply.write(asking('x')).end()),
      onTurn('4', (_, reply) => reply.json('shutting down', 503)),
    );
    const reconnectionOptions = { initialReconnectionDelay: 500 };
    const { call } = await connected(server.url, undefined, { reconnectionOptions });
    await expect(call('ask', { timeout: 300 })).rejects.toThrow('timed out');
    await sleep(400);
    expect(server.turns().filter(({ batch }) => batch !== undefined)).toHaveLength(1);
  });

  it('by a result that came without the answer: it is never sent', async () => {
    const server = await serve(
      onCall((_, reply) =>
        reply.write(bare('buffer_input', '2'), message(ask('late', 'late')), message(result(1))).end(),
      ),
    );
    let aborted = false;
    const { call } = await connected(
      server.url,
      (_, { signal }) =>
        new Promise((resolve) => {
          signal.addEventListener('abort', () => {
            aborted = true;
            resolve({ action: 'decline' });
          });
        }),
    );
    expect(await call()).toEqual(RESULT);
    await until(() => aborted);
    await sleep(50);
    expect(server.turns()).toHaveLength(1);
  });
});

describe('the POST of a turn', () => {
  it.each([
    [
      'with the error of the server',
      400,
      { jsonrpc: '2.0', id: null, error: { code: -32602, message: 'Invalid or expired' } },
      { code: -32602, message: expect.stringContaining('Invalid or expired') },
    ],
    ['with the status', 406, 'no', { code: -32000, data: { status: 406 } }],
    [
      'with the status and what to do',
      404,
      'no',
      { code: -32000, message: expect.stringContaining('session is gone') },
    ],
  ])('that is refused ends the call %s', async (_, status, body, expected) => {
    const server = await serve(
      onCall((_, reply) => reply.write(asking('x')).end()),
      onTurn('4', (_, reply) => reply.json(body, status)),
    );
    const { call, errors } = await connected(server.url);
    await expect(call()).rejects.toMatchObject(expected);
    expect(errors).toContainEqual(expect.objectContaining({ name: 'EndpointError', code: status }));
  });

  it('that is answered 202, or with nothing, ends the call', async () => {
    const server = await serve(
      onCall((_, reply) => reply.write(asking('x')).end(), 'accepted'),
      onCall((_, reply) => reply.write(asking('x', 'without data', [5, 6, 7])).end(), 'nothing'),
      onTurn('4', (_, reply) => void reply.res.writeHead(202).end()),
      onTurn('7', (_, reply) => reply.write(': nothing\n\n').end()),
    );
    const { call } = await connected(server.url);
    await expect(call('accepted')).rejects.toMatchObject({
      code: -32000,
      message: expect.stringContaining('202'),
    });
    await expect(call('nothing')).rejects.toMatchObject({
      message: expect.stringContaining('without its result'),
    });
    // The id of `input_required` is another stream's: nothing is asked for under it.
    expect(server.turns().filter(({ verb }) => verb === 'GET')).toEqual([]);
  });

  it('is sent again where the server has not taken it: 503, or no connection', async () => {
    let refusals = 2;
    const server = await serve(
      onCall((_, reply) => reply.write(asking('x')).end()),
      onTurn('4', (_, reply) => {
        refusals -= 1;
        if (refusals >= 0) reply.json('shutting down', 503);
        else reply.json(result(1));
      }),
    );
    const gone = await scripted(() => false);
    await gone.close();
    let unreached = 1;
    const { call } = await connected(server.url, undefined, {
      reconnectionOptions: { initialReconnectionDelay: 5, maxRetries: 3 },
      fetch: (url, init) => {
        const turn = new Headers(init?.headers).has('last-event-id');
        if (turn && unreached-- > 0) return fetch(gone.url, init);
        return fetch(url, init);
      },
    });
    expect(await call()).toEqual(RESULT);
    expect(server.turns().filter(({ batch }) => batch !== undefined)).toHaveLength(3);
  });

  it('is not sent again where the server advises not to, whatever its status', async () => {
    const error = { ...CLOSING, data: { 'mcp-await': { reason: 'closed', retry: false } } };
    const server = await serve(
      onCall((_, reply) => reply.write(asking('x')).end()),
      onTurn('4', (_, reply) => reply.json({ jsonrpc: '2.0', id: null, error }, 503)),
    );
    const { call } = await connected(server.url);
    await expect(call()).rejects.toMatchObject({ code: CLOSING.code, data: error.data });
    expect(server.turns().filter(({ batch }) => batch !== undefined)).toHaveLength(1);
  });

  it.each<[string, (reply: Reply) => void]>([
    ['no reply', (reply) => void reply.res.destroy()],
    ['the 502 of a balancer', (reply) => reply.json('bad gateway', 502)],
    ['a refusal that advises it', (reply) => reply.json({ jsonrpc: '2.0', id: null, error: CLOSING }, 400)],
    ['the head of a stream', (reply) => reply.write(': hello\n\n').cut()],
    ['a part of a JSON body', (reply) => reply.write('{"jsonrpc"').cut()],
    ['a notification that has no id', (reply) => reply.write(NOTE).cut()],
  ])('is sent again as it was where there came %s', async (_, lose) => {
    let lost = 0;
    const server = await serve(
      onCall((_call, reply) => reply.write(asking('x')).end()),
      onTurn('4', (_turn, reply) => {
        lost += 1;
        if (lost < 4) lose(reply);
        else reply.write(message(result(1), '9')).end();
      }),
    );
    const { call, asked } = await connected(server.url);
    expect(await call()).toEqual(RESULT);
    expect(asked).toEqual(['x']);
    const turns = server.turns().slice(1);
    expect(turns.map(({ verb, batch }) => [verb, batch])).toEqual(turns.map(() => ['POST', turns[0]?.batch]));
    expect(turns).toHaveLength(4);
    expect((turns[3]?.at ?? 0) - (turns[0]?.at ?? 0)).toBeGreaterThan(10 + 15 + 22);
  });

  it('is not sent again once its reply has told an id: the rest comes by GET', async () => {
    let lost = 0;
    const server = await serve(
      onCall((_, reply) => reply.write(asking('x')).end()),
      onTurn('4', (_, reply) => {
        lost += 1;
        if (lost === 1) reply.write(': hello\n\n').cut();
        else reply.write('id: 8\ndata:\n\n').cut();
      }),
      onResume('8', (_, reply) => reply.write(message(result(1), '9')).end()),
    );
    const { call } = await connected(server.url);
    expect(await call()).toEqual(RESULT);
    expect(server.turns().map(({ verb }) => verb)).toEqual(['POST', 'POST', 'POST', 'GET']);
  });

  it('ends the call once it was sent often enough', async () => {
    const server = await serve(
      onCall((_, reply) => reply.write(asking('x')).end()),
      onTurn('4', (_, reply) => reply.cut()),
    );
    const { call } = await connected(server.url);
    await expect(call()).rejects.toMatchObject({ code: -32000 });
    expect(server.turns()).toHaveLength(7);
  });

  it('is not sent once the client has closed', async () => {
    const server = await serve(onCall((_, reply) => reply.write(asking('x')).end()));
    let release = (): void => {};
    const { call, client, asked, errors } = await connected(
      server.url,
      () =>
        new Promise((resolve) => {
          release = () => resolve({ action: 'decline' });
        }),
    );
    const done = call();
    await until(() => asked.length === 1);
    await sleep(50);
    await client.close();
    await expect(done).rejects.toThrow('Connection closed');
    release();
    await sleep(50);
    expect(server.turns()).toHaveLength(1);
    expect(errors).toEqual([]);
  });
});
