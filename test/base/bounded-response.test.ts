/** A response is refused for what would be too much once it is parsed, before that. */
import { Readable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { boundedResponse, LINE_OVERHEAD, MOST_VALUES } from '../../src/base/bounded-response.ts';
import { Budget } from '../../src/base/budget.ts';

const json = (text: string): Response =>
  new Response(text, { headers: { 'content-type': 'application/json', 'content-length': `${text.length}` } });
const stream = (text: string): Response =>
  new Response(text, { headers: { 'content-type': 'text/event-stream' } });
const read = (response: Response): Promise<string> => boundedResponse(response).text();

const MANY = `[${'1,'.repeat(MOST_VALUES + 1)}1]`;
const DEEP = '['.repeat(600) + ']'.repeat(600);

describe('a response of a server', () => {
  it.each([
    ['a body', json],
    ['an event', (text: string) => stream(`data: ${text}\n\n`)],
    ['an event behind a quotation mark', (text: string) => stream(`: "\nid: "\ndata: ${text}\n\n`)],
    ['an event behind a comment', (text: string) => stream(`:${']'.repeat(1_000)}\ndata: ${text}\n\n`)],
    [
      'an event around comments',
      (text: string) => stream(text.replace(/.{1,400}/g, `data: $&\n:${']'.repeat(400)}\n`)),
    ],
    [
      'an event beside other fields',
      (text: string) => stream(`dat: ${']'.repeat(1_000)}\ndata: ${text}\n\n`),
    ],
    ['an event of two lines', (text: string) => stream(`data: "\ndata: ${text}\n\n`)],
  ])('is refused as %s of many values, or a deep one', async (_what, made) => {
    await expect(read(made(MANY))).rejects.toMatchObject({ code: 'limit' });
    await expect(read(made(DEEP))).rejects.toMatchObject({ code: 'limit' });
  });

  it('may be a long text, whatever is in it', async () => {
    const text = JSON.stringify({ text: `${'a,[{"\\'.repeat(100_000)}` });
    expect(await read(json(text))).toBe(text);
    expect(await read(stream(`data: ${text}\n\n`))).toBe(`data: ${text}\n\n`);
  });

  it('may be a stream of many events', async () => {
    const event = `data: [${'1,'.repeat(MOST_VALUES / 2)}1]\n\n`;
    expect(await read(stream(event.repeat(4)))).toBe(event.repeat(4));
  });

  it('is refused for its lines, each of which takes memory', async () => {
    const lines = 'data:\n'.repeat(1_000);
    const most = 1_000 * LINE_OVERHEAD;
    await expect(boundedResponse(stream(lines), most).text()).rejects.toMatchObject({ code: 'limit' });
    expect(await boundedResponse(json(lines), most).text()).toBe(lines);
    const events = 'data:\n\n'.repeat(1_000);
    expect(await boundedResponse(stream(events), most).text()).toBe(events);
  });
});

it('an event counts until the next one, since who reads the stream keeps it', async () => {
  const budget = new Budget(10_000_000);
  const controllers: ReadableStreamDefaultController<Uint8Array>[] = [];
  const body = new ReadableStream<Uint8Array>({ start: (controller) => void controllers.push(controller) });
  const response = new Response(body, { headers: { 'content-type': 'text/event-stream' } });
  const account = (breakOff: () => void) => budget.open({}, breakOff);
  const reader = boundedResponse(response, undefined, { account }).body?.getReader();
  const sent = async (text: string): Promise<number> => {
    controllers[0]?.enqueue(new TextEncoder().encode(text));
    await reader?.read();
    return budget.bytes;
  };
  expect(await sent(`data: ${'x'.repeat(1_000_000)}\n\n`)).toBeGreaterThan(1_900_000 - 524_288);
  // What its reader passes over lets go of nothing.
  for (const text of ['\n', ':\n\n', 'dat\n\n', 'dat: x\n\n'])
    expect(await sent(text)).toBeGreaterThan(1_900_000 - 524_288);
  expect(await sent('data: x\n\n')).toBeLessThan(1_000);
  await reader?.cancel();
  expect(budget.bytes).toBe(0);
});

it('a stream of many events in one piece leaves others their turns', async () => {
  const event = 'data: x\n\n';
  const reader = boundedResponse(stream(event.repeat(10_000))).body?.getReader();
  const decoder = new TextDecoder();
  let read = 0;
  let most = 0;
  let inTurn = 0;
  let isOver = false;
  const countAnew = (): void => {
    inTurn = 0;
    if (!isOver) setImmediate(countAnew);
  };
  countAnew();
  for (;;) {
    const { value, done } = (await reader?.read()) ?? { done: true };
    if (done) break;
    const events = decoder.decode(value).split('\n\n').length - 1;
    read += events;
    inTurn += events;
    most = Math.max(most, inTurn);
  }
  isOver = true;
  expect(read).toBe(10_000);
  expect(most).toBeLessThan(500);
});

it.each([1, 2, 3, 7, 1_000])('a stream in pieces of %i bytes has line ends of one kind', async (size) => {
  const text = 'id: 1\r\ndata: a\r\rdata: b\n\r\n\n\rdata: \u0d41\r\n\r\n';
  const bytes = new TextEncoder().encode(text);
  const pieces = Array.from({ length: Math.ceil(bytes.length / size) }, (_, nth) =>
    bytes.subarray(nth * size, (nth + 1) * size),
  );
  const headers = { 'content-type': 'text/event-stream' };
  const cut = new Response(Readable.toWeb(Readable.from(pieces)) as ReadableStream, { headers });
  expect(await read(cut)).toBe(text.replaceAll(/\r\n|\r/g, '\n'));
  expect(await read(json(text))).toBe(text);
});

describe('responses with one budget', () => {
  function bench() {
    const budget = new Budget(20_000);
    const failed: string[] = [];
    const open = (name: string) => {
      const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
      const made = new Response(readable, { headers: { 'content-type': 'text/event-stream' } });
      const account = (breakOff: () => void) => budget.open({}, breakOff);
      const { body } = boundedResponse(made, 9_000, { onExceeded: () => void failed.push(name), account });
      const writer = writable.getWriter();
      const reader = body?.getReader();
      return {
        reader,
        writer,
        /** Sends so many bytes, and reads them. */
        pass: async (text: string) => {
          const read = reader?.read();
          await writer.write(new TextEncoder().encode(text));
          return read;
        },
      };
    };
    return { budget, failed, open };
  }
  const PART = `data: ${'x'.repeat(3_994)}`;

  it('fail, the one first that held bytes of a message for longest, and no more than that', async () => {
    const { budget, failed, open } = bench();
    const all = [open('one'), open('two'), open('three')];
    for (const { pass } of all) await pass(PART);
    expect([failed, budget.bytes]).toEqual([['one'], 8_000]);
    await expect(all[0]?.reader?.read()).rejects.toMatchObject({ code: 'limit' });
    // Who reads the stream keeps a message until the next one is whole.
    await all[2]?.pass('\n\ndata: x\n\n');
    expect(budget.bytes).toBeLessThan(4_500);
    await all[2]?.pass(PART);
    expect(failed).toEqual(['one']);
  });

  it('hold nothing once they ended, were left or failed', async () => {
    const { budget, failed, open } = bench();
    const [ended, left, broken, large] = [open('ended'), open('left'), open('broken'), open('large')];
    await ended.pass('data: x');
    const last = ended.reader?.read();
    await ended.writer.close();
    expect((await last)?.done).toBe(true);
    await left.pass('data: x');
    await left.reader?.cancel();
    await broken.pass('data: x');
    const next = broken.reader?.read();
    void broken.writer.abort(new Error('gone'));
    await expect(next).rejects.toThrow('gone');
    await large.pass(PART);
    await large.pass(PART);
    await expect(large.pass(PART)).rejects.toMatchObject({ code: 'limit' });
    expect([failed, budget.bytes]).toEqual([['large'], 0]);
  });
});
