/** SEP-1858's turns, against bytes written by hand: which messages wait, which go out, and how a turn continues. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  ask,
  asking,
  bare,
  connected,
  FORMS,
  message,
  onCall,
  onTurn,
  RESULT,
  result,
  sampling,
  serve,
  sleep,
  until,
} from './script.ts';

describe.each(FORMS)('events %s', (form) => {
  it('hold the answer back, and it goes out as an array with the id of input_required', async () => {
    const server = await serve(
      onCall((_, reply) => reply.write(asking('your name', form)).end()),
      onTurn('4', ({ batch }, reply) => reply.json(result(1, JSON.stringify(batch)))),
    );
    const { call, asked, errors } = await connected(server.url);
    const answers = [
      { result: { action: 'accept', content: { name: 'to your name' } }, jsonrpc: '2.0', id: 'ask-1' },
    ];
    expect(await call()).toEqual({ content: [{ type: 'text', text: JSON.stringify(answers) }] });
    expect(asked).toEqual(['your name']);
    expect(errors).toEqual([]);
    expect(server.turns().map(({ verb, batch }) => [verb, batch?.length])).toEqual([
      ['POST', undefined],
      ['POST', 1],
    ]);
    expect(server.turns().map(({ headers }) => headers['mcp-protocol-version'])).toEqual([
      'DRAFT-SEP-1858',
      'DRAFT-SEP-1858',
    ]);
  });

  it('may come in any pieces', async () => {
    const text = new TextEncoder().encode(`\uFEFF: hello\r\n\r\n${asking('ваше имя 🚀', form)}`);
    let chunks: Uint8Array[] = [];
    const server = await serve(
      onCall(async (_, reply) => {
        for (const chunk of chunks) {
          reply.write(chunk);
          await new Promise(setImmediate);
        }
        reply.end();
      }),
      onTurn('4', (_, reply) => reply.json(result(current))),
    );
    const { client, call, asked } = await connected(server.url);
    let current = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(fc.nat(text.length), { maxLength: 12 }), async (places) => {
        const sorted = [...places].sort((a, b) => a - b);
        chunks = [0, ...sorted].map((from, index) => text.subarray(from, sorted[index] ?? text.length));
        current += 1;
        asked.length = 0;
        expect(await call()).toEqual(RESULT);
        expect(asked).toEqual(['ваше имя 🚀']);
      }),
      { numRuns: 40 },
    );
    await client.close();
  });
});

describe('a call', () => {
  it('takes as many turns as it takes, with notifications before, between and after', async () => {
    const progress = (value: number): string =>
      message({
        jsonrpc: '2.0',
        method: 'notifications/progress',
        params: { progressToken: 1, progress: value },
      });
    const server = await serve(
      onCall((_, reply) => reply.write(progress(1), asking('one'), progress(99)).end()),
      onTurn('4', (_, reply) => reply.write(progress(2), asking('two', 'with empty data', [5, 6, 7])).end()),
      onTurn('7', (_, reply) => reply.write(asking('three', 'without data', [8, 9, 10])).end()),
      onTurn('10', (_, reply) => reply.write(progress(3), message(result(1)), progress(4)).end()),
    );
    const seen: number[] = [];
    const { call, asked, errors } = await connected(server.url);
    const done = await call('ask', { onprogress: ({ progress }) => void seen.push(progress) });
    expect(done).toEqual(RESULT);
    expect(asked).toEqual(['one', 'two', 'three']);
    // What follows `input_required` is not read; what follows the result, the client no longer asks for.
    expect(seen).toEqual([1, 2, 3]);
    expect(server.turns()).toHaveLength(4);
    expect(errors.every(({ message: text }) => text.includes('unknown token'))).toBe(true);
  });

  it('answers what came before buffer_input at once, and the rest when all of it is answered', async () => {
    const server = await serve(
      onCall((_, reply) => {
        const live = message(ask('live', 'before'), '1');
        const held = message(ask('slow', 'after'), '3') + message(sampling('sample'), '4');
        reply.write(live, bare('buffer_input', '2'), held, bare('input_required', '5')).end();
      }),
      onTurn('5', (_, reply) => reply.write(message(result(1))).end()),
    );
    let release = (): void => {};
    const waiting = new Promise<void>((resolve) => {
      release = resolve;
    });
    const { call } = await connected(server.url, async (question) => {
      if (question === 'after') await waiting;
      return { action: 'decline' };
    });
    const done = call();
    await until(() => server.turns().length === 2);
    await sleep(100);
    const [, live, ...none] = server.turns();
    expect(none).toEqual([]);
    expect(live?.body).toMatchObject({ id: 'live', result: { action: 'decline' } });
    expect(live?.headers['last-event-id']).toBeUndefined();
    release();
    expect(await done).toEqual(RESULT);
    // In the order of the asks, though the second was answered first.
    expect(server.turns()[2]?.batch?.map(({ id }) => id)).toEqual(['slow', 'sample']);
  });

  it('sends answers that were ready before input_required only after it', async () => {
    const server = await serve(
      onCall(async (_, reply) => {
        reply.write(bare('buffer_input', '2'), message(ask(7, 'quick'), '3'));
        await sleep(100);
        reply.write(bare('input_required', '4')).end();
      }),
      onTurn('4', (_, reply) => reply.json(result(1))),
    );
    const { call } = await connected(server.url);
    expect(await call()).toEqual(RESULT);
    const [first, second, ...none] = server.turns();
    expect(none).toEqual([]);
    expect((second?.at ?? 0) - (first?.at ?? 0)).toBeGreaterThan(90);
    expect(second?.batch).toMatchObject([{ id: 7 }]);
  });

  it('may be told to buffer twice in one turn', async () => {
    const server = await serve(
      onCall((_, reply) => {
        reply.write(bare('buffer_input', '1'), message(ask('a', 'a'), '2'), bare('buffer_input', '3'));
        reply.write(message(ask('b', 'b'), '4'), bare('input_required', '5')).end();
      }),
      onTurn('5', (_, reply) => reply.json(result(1))),
    );
    const { call } = await connected(server.url);
    expect(await call()).toEqual(RESULT);
    expect(server.turns().map(({ batch }) => batch?.length)).toEqual([undefined, 2]);
  });

  it('carries an error among its answers', async () => {
    const server = await serve(
      onCall((_, reply) => {
        const held =
          message(ask('bad', 'fails')) + message({ jsonrpc: '2.0', id: 'roots', method: 'roots/list' });
        reply.write(bare('buffer_input', '2'), held, bare('input_required', '4')).end();
      }),
      onTurn('4', (_, reply) => reply.json(result(1))),
    );
    const { call } = await connected(server.url, () => {
      throw new Error('no window');
    });
    expect(await call()).toEqual(RESULT);
    expect(server.turns()[1]?.batch).toMatchObject([
      { id: 'bad', error: { code: -32603, message: 'no window' } },
      { id: 'roots', error: { code: -32601 } },
    ]);
  });

  it('that asks nothing comes back with an empty array, and then not without a pause', async () => {
    let polls = 0;
    const server = await serve(
      onCall((_, reply) => reply.write(bare('buffer_input', '1'), bare('input_required', '2')).end()),
      onTurn('2', (_, reply) => {
        polls += 1;
        if (polls === 4) reply.json(result(1));
        else reply.write(bare('input_required', '2')).end();
      }),
    );
    const { call } = await connected(server.url, undefined, {
      reconnectionOptions: { initialReconnectionDelay: 60, reconnectionDelayGrowFactor: 1 },
    });
    expect(await call()).toEqual(RESULT);
    const turns = server.turns();
    expect(turns.slice(1).map(({ batch }) => batch)).toEqual([[], [], [], []]);
    expect((turns[4]?.at ?? 0) - (turns[1]?.at ?? 0)).toBeGreaterThan(170);
  });

  it('whose input_required has no id answers under the last one, as the standard has it', async () => {
    const server = await serve(
      onCall((_, reply) =>
        reply.write(bare('buffer_input', '2'), message(ask(1, 'x'), '3'), bare('input_required')).end(),
      ),
      onTurn('3', (_, reply) => reply.json(result(1))),
    );
    const { call } = await connected(server.url);
    expect(await call()).toEqual(RESULT);
  });

  it('that was never given an id fails, and says so', async () => {
    const server = await serve(
      onCall((_, reply) =>
        reply.write(bare('buffer_input'), message(ask(1, 'x')), bare('input_required')).end(),
      ),
    );
    const { call, errors } = await connected(server.url);
    await expect(call()).rejects.toMatchObject({
      code: -32000,
      message: expect.stringContaining('without an id'),
    });
    expect(errors).toContainEqual(expect.objectContaining({ code: 'stream' }));
    expect(server.turns()).toHaveLength(1);
  });
});
