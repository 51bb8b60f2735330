/** A response is refused for what would be too much once it is parsed, before that. */
import { describe, expect, it } from 'vitest';
import { boundedResponse, MOST_VALUES } from '../../src/base/bounded-response.ts';

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
});
