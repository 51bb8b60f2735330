/** Events with and without data, however the bytes are cut. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { boundedResponse } from '../../src/base/bounded-response.ts';
import { readEvents } from '../../src/client/event-stream.ts';

interface Heard {
  readonly id: string | undefined;
  readonly event: string | undefined;
  readonly data: string;
}

/** As an endpoint passes a stream on. */
function withLf(stream: ReadableStream<Uint8Array>): ReadableStream<Uint8Array> {
  const headers = { 'content-type': 'text/event-stream' };
  return boundedResponse(new Response(stream, { headers })).body ?? stream;
}

function streamOf(chunks: readonly Uint8Array[]): ReadableStream<Uint8Array> {
  return withLf(
    new ReadableStream<Uint8Array>({
      start(controller) {
        for (const chunk of chunks) controller.enqueue(chunk);
        controller.close();
      },
    }),
  );
}

async function eventsIn(chunks: readonly Uint8Array[]): Promise<{ events: Heard[]; retries: number[] }> {
  const events: Heard[] = [];
  const retries: number[] = [];
  for await (const { id, event, data } of readEvents(streamOf(chunks), (ms) => retries.push(ms))) {
    events.push({ id, event, data });
  }
  return { events, retries };
}

function bytes(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

/** Cuts at the given places, empty chunks among the pieces. */
function cut(whole: Uint8Array, places: readonly number[]): Uint8Array[] {
  const sorted = places.map((place) => place % (whole.length + 1)).sort((a, b) => a - b);
  return [0, ...sorted].map((from, index) => whole.subarray(from, sorted[index] ?? whole.length));
}

const ENDS = ['\n', '\r', '\r\n'] as const;

describe('events', () => {
  it('come with and without data', async () => {
    const text =
      'event: buffer_input\nid: 2\n\nid: 3\ndata: {"a":1}\n\nevent: input_required\nid: 4\ndata:\n\n';
    const { events } = await eventsIn([bytes(text)]);
    expect(events).toEqual([
      { id: '2', event: 'buffer_input', data: '' },
      { id: '3', event: undefined, data: '{"a":1}' },
      { id: '4', event: 'input_required', data: '' },
    ]);
  });

  it('are no comment, no retry, and nothing that the end of the stream cuts off', async () => {
    const text = ': a comment\n\nretry: 7\n\n\n: data: x\nevent: input_required\nid: 4\n';
    expect(await eventsIn([bytes(text)])).toEqual({ events: [], retries: [7] });
  });

  it('may have fields without colons, and more than one line of data', async () => {
    const { events } = await eventsIn([bytes('event:a\ndata\ndata: x\ndata:y\n\nid\nevent: b\n\n')]);
    expect(events).toEqual([
      { id: undefined, event: 'a', data: '\nx\ny' },
      { id: '', event: 'b', data: '' },
    ]);
  });

  it('are not named `data` by a field that only begins so', async () => {
    const { events } = await eventsIn([bytes('event: input_required\ndatabase: x\n\n')]);
    expect(events).toEqual([{ id: undefined, event: 'input_required', data: '' }]);
  });

  it('come as soon as their empty line has, with a CR alone too', async () => {
    for (const end of ENDS) {
      const source = new TransformStream<Uint8Array, Uint8Array>();
      const writer = source.writable.getWriter();
      const events = readEvents(withLf(source.readable), () => {});
      void writer.write(bytes(`event: input_required${end}id: 4${end}${end}`));
      const { value } = await events.next();
      expect(value).toEqual({ id: '4', event: 'input_required', data: '' });
      void writer.close();
      await events.return();
    }
  });

  it('are the same wherever the bytes are cut, with each line end', async () => {
    const field = fc.constantFrom('a', 'ä', '日本', '🚀', '{"x":1}', 'x: y');
    const block = fc.record({
      event: fc.option(fc.constantFrom('message', 'buffer_input', 'input_required'), { nil: undefined }),
      id: fc.option(fc.constantFrom('1', 'é~7', 'stream_2'), { nil: undefined }),
      data: fc.option(field, { nil: undefined }),
      comment: fc.boolean(),
      end: fc.constantFrom(...ENDS),
    });
    const blocks = fc.array(block, { minLength: 1, maxLength: 6 });
    const places = fc.array(fc.nat(400), { maxLength: 40 });
    await fc.assert(
      fc.asyncProperty(blocks, places, fc.boolean(), async (all, where, mark) => {
        const text = all.map(({ event, id, data, comment, end }) =>
          [
            ...(comment ? [': keep-alive'] : []),
            ...(event === undefined ? [] : [`event: ${event}`]),
            ...(id === undefined ? [] : [`id: ${id}`]),
            ...(data === undefined ? [] : [`data: ${data}`]),
            '',
          ]
            .map((line) => line + end)
            .join(''),
        );
        const expected = all
          .filter(({ event, id, data }) => event !== undefined || id !== undefined || data !== undefined)
          .map(({ event, id, data = '' }) => ({ event, id, data }));
        const whole = bytes((mark ? '\uFEFF' : '') + text.join(''));
        expect((await eventsIn(cut(whole, where))).events).toEqual(expected);
        expect((await eventsIn([...whole].map((byte) => Uint8Array.of(byte)))).events).toEqual(expected);
      }),
      { numRuns: 300 },
    );
  });
});

describe('a stream that is left early', () => {
  it('is read to its end, unseen', async () => {
    let ended = false;
    let cancelled = false;
    const body = new ReadableStream<Uint8Array>({
      async pull(controller) {
        await new Promise((resolve) => setTimeout(resolve, 20));
        if (ended) return;
        ended = true;
        controller.enqueue(bytes('data: 2\n\n'));
        controller.close();
      },
      start: (controller) => controller.enqueue(bytes('data: 1\n\n')),
      cancel: () => {
        cancelled = true;
      },
    });
    const seen: string[] = [];
    for await (const { data } of readEvents(body, () => {})) {
      seen.push(data);
      break;
    }
    expect({ seen, ended, cancelled }).toEqual({ seen: ['1'], ended: true, cancelled: false });
  });

  it('is cancelled where it does not end', async () => {
    let cancelled = false;
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => controller.enqueue(bytes('data: 1\n\n')),
      cancel: () => {
        cancelled = true;
      },
    });
    for await (const _ of readEvents(body, () => {})) break;
    expect(cancelled).toBe(true);
  });
});
