/** Streams that break before `input_required`, and what never opens them again. */
import { describe, expect, it } from 'vitest';
import {
  ask,
  bare,
  connected,
  message,
  onCall,
  onResume,
  onTurn,
  RESULT,
  result,
  type Scripted,
  serve,
  sleep,
  until,
} from './script.ts';

function said(server: Scripted): unknown[] {
  return server
    .turns()
    .map(({ verb, headers, body, batch }) => [
      verb,
      headers['last-event-id'],
      batch?.map(({ id }) => id) ?? body.method,
    ]);
}

describe('a stream that breaks before input_required', () => {
  it.each(['ends', 'is cut'])('(it %s) is opened again by GET, and its turn continues', async (how) => {
    const server = await serve(
      onCall((_, reply) => {
        reply.write(bare('buffer_input', '2'), message(ask('first', 'first'), '3'));
        if (how === 'ends') reply.end();
        else reply.cut();
      }),
      onResume('3', (_, reply) => {
        // The server may repeat its messages.
        const again = message(ask('first', 'first')) + message(ask('second', 'second'), '4');
        reply.write(again, bare('input_required', '5')).end();
      }),
      onTurn('5', (_, reply) => reply.write(message(result(1), '6')).end()),
    );
    const tokens: string[] = [];
    const { call, asked } = await connected(server.url);
    expect(await call('ask', { onresumptiontoken: (token) => void tokens.push(token) })).toEqual(RESULT);
    expect(asked).toEqual(['first', 'second']);
    expect(tokens).toEqual(['2', '3', '4', '5', '6']);
    expect(said(server)).toEqual([
      ['POST', undefined, 'tools/call'],
      ['GET', '3', undefined],
      ['POST', '5', ['first', 'second']],
    ]);
  });

  it('is opened again in a later turn too, with an id of that turn', async () => {
    const server = await serve(
      onCall((_, reply) =>
        reply.write(bare('buffer_input', '2'), message(ask(1, 'x')), bare('input_required', '4')).end(),
      ),
      onTurn('4', (_, reply) => reply.write('id: 5\n\n').end()),
      onResume('5', (_, reply) => reply.write(message(result(1), '6')).end()),
    );
    const { call } = await connected(server.url);
    expect(await call()).toEqual(RESULT);
  });

  it('is not opened again where none of its events had an id', async () => {
    const server = await serve(onCall((_, reply) => reply.write(': nothing\n\n').end()));
    const { call, errors } = await connected(server.url);
    await until(() => server.seen.length === 3);
    await expect(call()).rejects.toMatchObject({ code: -32000 });
    await sleep(100);
    // The one GET is the standing stream's.
    expect(server.seen.filter(({ verb }) => verb === 'GET')).toHaveLength(1);
    expect(errors).toContainEqual(expect.objectContaining({ code: 'stream' }));
  });

  it('waits as long as retry says', async () => {
    const server = await serve(
      onCall((_, reply) => reply.write('retry: 200\nid: 1\ndata:\n\n').end()),
      onResume('1', (_, reply) => reply.write(message(result(1))).end()),
    );
    const { call } = await connected(server.url);
    expect(await call()).toEqual(RESULT);
    const [post, get] = server.turns();
    expect((get?.at ?? 0) - (post?.at ?? 0)).toBeGreaterThan(190);
  });

  it('is tried again with longer and longer waits, and then given up', async () => {
    const server = await serve(
      onCall((_, reply) => reply.write('id: 1\ndata:\n\n').end()),
      onResume('1', (_, reply) => reply.json('down', 503)),
    );
    const { call, errors } = await connected(server.url, undefined, {
      reconnectionOptions: { initialReconnectionDelay: 40, reconnectionDelayGrowFactor: 3, maxRetries: 3 },
    });
    await expect(call()).rejects.toMatchObject({ code: -32000 });
    const times = server.turns().map(({ at }) => at);
    const waits = times.slice(1).map((at, index) => at - (times[index] ?? 0));
    expect(waits).toHaveLength(3);
    expect(waits[1]).toBeGreaterThan(110);
    expect(waits[2]).toBeGreaterThan(350);
    expect(errors.map(({ message: text }) => text)).toContain('Maximum reconnection attempts (3) exceeded.');
  });

  it('takes the user’s question with it when it is given up', async () => {
    const server = await serve(
      onCall((_, reply) => reply.write(bare('buffer_input', '1'), message(ask(1, 'x'), '2')).end()),
    );
    let aborted = false;
    const { call } = await connected(
      server.url,
      (_, { signal }) =>
        new Promise(() => {
          signal.addEventListener('abort', () => {
            aborted = true;
          });
        }),
    );
    // The server has no GET.
    await expect(call()).rejects.toMatchObject({
      code: -32000,
      message: expect.stringContaining('the call may have run'),
    });
    expect(aborted).toBe(true);
  });

  it('is not opened again once it has told an error, as its result would', async () => {
    const error = { jsonrpc: '2.0', id: 1, error: { code: -32602, message: 'no such tool' } };
    const server = await serve(onCall((_, reply) => reply.write(message(error, '1')).end()));
    const { call } = await connected(server.url);
    await expect(call()).rejects.toMatchObject({ code: -32602 });
    await sleep(100);
    expect(server.turns()).toHaveLength(1);
  });

  it('is not opened again once the client has closed or cancelled', async () => {
    const server = await serve(onCall((_, reply) => reply.write('id: 1\ndata:\n\n').end()));
    const reconnectionOptions = { initialReconnectionDelay: 500 };
    const closing = await connected(server.url, undefined, { reconnectionOptions });
    const closed = closing.call();
    await sleep(50);
    await closing.client.close();
    await expect(closed).rejects.toThrow('Connection closed');
    const cancelling = await connected(server.url, undefined, { reconnectionOptions });
    await expect(cancelling.call('ask', { timeout: 250 })).rejects.toThrow('timed out');
    await sleep(500);
    expect(server.turns().filter(({ verb }) => verb === 'GET')).toEqual([]);
  });
});

describe('after input_required', () => {
  it.each([
    ['ends', 0],
    ['is cut', 0],
    ['stays open', 0],
  ])('a stream that %s is not opened again, however long the user takes', async (how) => {
    const server = await serve(
      onCall((_, reply) => {
        reply.write(
          'retry: 1\n\n',
          bare('buffer_input', '2'),
          message(ask(1, 'x'), '3'),
          bare('input_required', '4'),
        );
        if (how === 'ends') reply.end();
        if (how === 'is cut') reply.cut();
      }),
      onTurn('4', (_, reply) => reply.json(result(1))),
    );
    const { call } = await connected(server.url, async () => {
      await sleep(600);
      return { action: 'decline' };
    });
    expect(await call()).toEqual(RESULT);
    expect(said(server)).toEqual([
      ['POST', undefined, 'tools/call'],
      ['POST', '4', [1]],
    ]);
  });
});

describe('a resumption token', () => {
  it('opens the stream instead of posting, and its result is the new request’s', async () => {
    const server = await serve(
      onResume('9', (_, reply) =>
        reply
          .write(bare('buffer_input', '10'), message(ask('later', 'later')), bare('input_required', '11'))
          .end(),
      ),
      onTurn('11', (_, reply) => reply.write(message(result('the old id'), '12')).end()),
    );
    const tokens: string[] = [];
    const { call, asked } = await connected(server.url);
    const options = { resumptionToken: '9', onresumptiontoken: (token: string) => void tokens.push(token) };
    expect(await call('ask', options)).toEqual(RESULT);
    expect(asked).toEqual(['later']);
    expect(tokens).toEqual(['10', '11', '12']);
    expect(said(server)).toEqual([
      ['GET', '9', undefined],
      ['POST', '11', ['later']],
    ]);
  });

  it('that the server does not know ends the request at once', async () => {
    const server = await serve(onResume('9', (_, reply) => reply.json('who?', 404)));
    const { call, transport, errors } = await connected(server.url);
    await expect(call('ask', { resumptionToken: '9' })).rejects.toMatchObject({ data: { status: 404 } });
    await expect(transport.resumeStream('9')).rejects.toMatchObject({ code: 404 });
    expect(errors).toHaveLength(1);
  });

  it('may be used without a request', async () => {
    const server = await serve(
      onResume('9', (_, reply) =>
        reply.write(message(ask('later', 'later'), '10'), message(result(77))).end(),
      ),
    );
    const { transport, messages, asked } = await connected(server.url);
    await transport.resumeStream('9');
    await until(() => messages.some((one) => 'result' in one && one.id === 77));
    expect(asked).toEqual(['later']);
  });
});

describe('the standing stream', () => {
  it('is opened again when it breaks, with or without an id', async () => {
    let opened = 0;
    const server = await serve(({ verb }, reply) => {
      if (verb !== 'GET') return false;
      opened += 1;
      if (opened < 3) reply.write(opened === 1 ? ': nothing\n\n' : 'id: s7\ndata:\n\n').end();
      else reply.write(message(ask('now', 'now'), 's8'));
      return true;
    });
    const { asked } = await connected(server.url);
    await until(() => asked.length === 1);
    const gets = server.seen.filter(({ verb }) => verb === 'GET');
    expect(gets.map(({ headers }) => headers['last-event-id'])).toEqual([undefined, undefined, 's7']);
  });
});
