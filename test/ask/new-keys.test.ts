/** A host that gives each of its model's calls an idempotency key of its own: an equal call goes on with one that waits. */
import type { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { ElicitResult } from '@modelcontextprotocol/sdk/types.js';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import * as z from 'zod';
import { systemClock } from '../../src/base/values.ts';
import { step } from '../../src/index.ts';
import { post } from '../e2e/clients.ts';
import type { Served } from '../e2e/harness.ts';
import { clock, slowly, takeClock } from './clock.ts';
import { linkIn, PAGE, PersonAtPage } from './person.ts';
import { cleanUp, connected, request, serveTwo } from './two.ts';

const requestedSchema = { type: 'object' as const, properties: { day: { type: 'string' as const } } };
const ann = new PersonAtPage();
const SENT_BEFORE = 'This call was already done; this is its result again. Nothing was done a second time.';
const reserved: string[] = [];
const never = (): Promise<ElicitResult> => new Promise(() => {});
/** What the tool waits for after its answer. */
let works: Promise<void> | undefined;
let working = 0;

function build(): McpServer {
  const server = new McpServer({ name: 'booking', version: '1' });
  server.registerTool('book', { inputSchema: { room: z.string() } }, async ({ room }) => {
    await step('reserve', () => void reserved.push(room));
    const { content } = await server.server.elicitInput({ message: `When ${room}?`, requestedSchema });
    working += 1;
    await works;
    return { content: [{ type: 'text', text: `${room} on ${content?.day}` }] };
  });
  return server;
}

let one: Served;
let two: Served;
beforeEach(async () => {
  reserved.length = 0;
  works = undefined;
  working = 0;
  [one, two] = await serveTwo(build);
});
afterEach(() => vi.restoreAllMocks());
afterEach(cleanUp);

const host = (at: Served): Promise<Client> => connected(at, {}, () => ({ action: 'decline' }));

const ONE = { action: 'accept', content: { day: 'Monday' } } as const;
const NO = { action: 'decline' } as const;

/** Asks its user itself, and is not proven. @param answers one for each question, after more than a second */
function asking(at: Served, answers: ElicitResult[]): Promise<Client> {
  return connected(at, { elicitation: { form: {} } }, async () => {
    const answer = answers.shift() ?? NO;
    await new Promise((resolve) => setTimeout(resolve, 1_200));
    return answer;
  });
}

/** Ann's, in her list. */
async function links(at = two): Promise<string[]> {
  const list = await ann.read(at.url, PAGE);
  return [...list.matchAll(/href="(http[^"]*\/ask\/[^"]*)"/g)].map(([, link = '']) => link);
}

async function book(client: Client, room: string, key?: string): Promise<string> {
  const _meta = key && { 'mcp-await/idempotency-key': key };
  const { content } = await client.callTool({ name: 'book', arguments: { room }, ...(_meta && { _meta }) });
  return (content as { text: string }[]).map(({ text }) => text).join('\n');
}

describe('an equal call with another idempotency key', () => {
  it.each([['a key'], [undefined]])('goes on with the one that waits, begun with %s', async (first) => {
    const client = await host(one);
    const told = await book(client, 'red', first);
    expect(told).toMatch(/^NOT DONE YET/);
    expect((await ann.answer(two.url, linkIn(told), { day: 'Monday' })).status).toBe(303);
    const other = await host(two);
    expect(await book(other, 'red', 'key 2')).toBe('red on Monday');
    expect(reserved).toEqual(['red']);
    // From now on it names that call, as the first one does.
    for (const key of ['key 2', ...(first ? [first] : [])])
      expect(await book(client, 'red', key)).toBe('red on Monday');
    expect(reserved).toEqual(['red']);
  });

  it('is the same question on the page, also where several come at once', async () => {
    const clients = [await host(one), await host(two)] as const;
    await book(clients[0], 'red', 'key 1');
    const calls = ['key 2', 'key 3', 'key 4', 'key 3'].map((key, nth) =>
      book(clients[nth % 2 === 0 ? 0 : 1], 'red', key),
    );
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    const page = await ann.read(one.url, PAGE);
    expect(page.match(/When red\?/g)).toHaveLength(1);
    const link = /href="(http[^"]*\/ask\/[^"]*)"/.exec(page)?.[1] ?? '';
    expect((await ann.answer(two.url, link, { day: 'Monday' })).status).toBe(303);
    expect(new Set(await Promise.all(calls))).toEqual(new Set(['red on Monday']));
    expect(reserved).toEqual(['red']);
  });

  it('is told that it was done for ten minutes, by each key once, and is a new call after that', async () => {
    const client = await host(one);
    const told = await book(client, 'red', 'key 1');
    await ann.answer(two.url, linkIn(told), { day: 'Monday' });
    expect(await book(client, 'red', 'key 2')).toBe('red on Monday');
    const other = await host(two);
    expect(await book(other, 'red', 'key 3')).toBe(`${SENT_BEFORE}\nred on Monday`);
    expect(await book(client, 'red', 'key 3')).toBe('red on Monday');
    expect(reserved).toEqual(['red']);
    const { now } = Date;
    vi.spyOn(systemClock, 'now').mockImplementation(() => now() + 601_000);
    expect(await book(client, 'red', 'key 4')).toMatch(/^NOT DONE YET/);
    expect(await book(client, 'red', 'key 3')).toBe('red on Monday');
    expect(reserved).toEqual(['red', 'red']);
  });

  it('keeps its own answer where it began beside an equal one, and its process leaves', async () => {
    const [from, to] = await serveTwo(build, { tasks: 'now' });
    const begin = async (key: string): Promise<string> => {
      const _meta = { 'mcp-await/idempotency-key': key };
      const { result } = await request(from, 'tools/call', {
        name: 'book',
        arguments: { room: 'red' },
        _meta,
      });
      return String((result as { taskId: unknown }).taskId);
    };
    const tasks = await Promise.all([begin('key 1'), begin('key 2')]);
    await expect.poll(() => links(to)).toHaveLength(2);
    const [first = '', second = ''] = await links(to);
    const seen = async (): Promise<string> =>
      JSON.stringify(await Promise.all(tasks.map((taskId) => request(to, 'tasks/get', { taskId }))));
    expect((await ann.answer(to.url, first, { day: 'Monday' })).status).toBe(303);
    await expect.poll(seen, { timeout: 15_000 }).toContain('red on Monday');
    await from.close();
    // By then the other process has taken it up.
    await new Promise((resolve) => setTimeout(resolve, 7_000));
    expect((await ann.answer(to.url, second, { day: 'Friday' })).status).toBe(303);
    await expect.poll(seen, { timeout: 15_000 }).toContain('red on Friday');
    expect(await seen()).not.toContain('already done');
  });

  it.each([['one after the other'], ['at once']])(
    'is another call with an answer of its own, where the client asked its user: %s',
    async (how) => {
      const [answers, order] = [[NO, ONE], how === 'at once' ? 300 : 2_000];
      const client = await asking(one, answers);
      const elsewhere = await asking(two, answers);
      const first = book(client, 'red', 'key 1');
      await new Promise((resolve) => setTimeout(resolve, order));
      expect(await Promise.all([first, book(elsewhere, 'red', 'key 2')])).toEqual([
        'red on undefined',
        'red on Monday',
      ]);
      for (const client of [await asking(two, []), await host(one)]) {
        expect(await book(client, 'red', 'key 1')).toBe('red on undefined');
        expect(await book(client, 'red', 'key 2')).toBe('red on Monday');
      }
    },
  );

  it('goes on with the one that the client did not ask, and the page does', async () => {
    const client = await connected(one, { elicitation: { form: {} } }, () => NO);
    const told = await book(client, 'red', 'key 1');
    expect(told).toMatch(/^NOT DONE YET/);
    expect((await ann.answer(two.url, linkIn(told), { day: 'Monday' })).status).toBe(303);
    expect(await book(await asking(two, [NO]), 'red', 'key 2')).toBe('red on Monday');
    expect(await book(client, 'red', 'key 3')).toBe(`${SENT_BEFORE}\nred on Monday`);
    expect(reserved).toEqual(['red']);
  });

  it('goes on with one whose client has shown nothing for 45 seconds, and not with one before', async () => {
    takeClock();
    const capabilities = { elicitation: { form: {} } };
    const asked = async (key: string): Promise<string> => {
      const headers = { authorization: 'Bearer ann', 'idempotency-key': key };
      const { text } = await post(two.url, { tool: 'book', args: { room: 'red' }, capabilities, headers });
      return text;
    };
    expect(await asked('key 1')).toContain('input_required');
    clock.ahead = 44_000;
    expect(await asked('key 2')).toContain('input_required');
    expect(reserved).toEqual(['red', 'red']);
    clock.ahead = 46_000;
    expect(await asked('key 3')).toContain('NOT DONE YET');
    expect(reserved).toEqual(['red', 'red']);
  });

  it.each([['its client'], ['the page']])(
    'is another call where a tool works for a minute after %s has answered',
    async (who) => {
      takeClock();
      let go = (): void => {};
      works = new Promise((resolve) => (go = resolve));
      const capabilities = { elicitation: { form: {} } };
      const client = await connected(one, capabilities, who === 'its client' ? slowly(ONE) : never);
      const first = book(client, 'red', 'key 1');
      if (who === 'the page') {
        await expect.poll(() => links()).toHaveLength(1);
        await ann.answer(two.url, (await links())[0] ?? '', { day: 'Monday' });
      }
      await expect.poll(() => working).toBe(1);
      clock.ahead += 60_000;
      const second = book(await asking(two, [NO]), 'red', 'key 2');
      await expect.poll(() => reserved.length).toBe(2);
      go();
      expect(await Promise.all([first, second])).toEqual(['red on Monday', 'red on undefined']);
    },
  );

  it('goes on with one that was answered in the list, and whose client and process are gone', async () => {
    const client = await connected(one, { elicitation: { form: {} } }, never);
    book(client, 'red', 'key 1').catch(() => {});
    await expect.poll(() => links()).toHaveLength(1);
    await client.close();
    await one.close();
    const [link = ''] = await links();
    expect((await ann.answer(two.url, link, { day: 'Monday' })).status).toBe(303);
    expect(await book(await host(two), 'red', 'key 2')).toMatch(/red on Monday$/);
    expect(reserved).toEqual(['red']);
  });

  it('is another call where its arguments are others, and then is refused under a key of that one', async () => {
    const client = await host(one);
    const told = await book(client, 'red', 'key 1');
    expect(linkIn(await book(client, 'blue', 'key 2'))).not.toBe(linkIn(told));
    await expect(book(client, 'blue', 'key 1')).rejects.toThrow('other arguments');
    expect(reserved).toEqual(['red', 'blue']);
  });
});
