/** Questions that are asked at once do not wait for one another; and who waits where, and until when. */
import type { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { ElicitResult } from '@modelcontextprotocol/sdk/types.js';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import * as z from 'zod';
import { systemClock } from '../../src/base/values.ts';
import { step } from '../../src/index.ts';
import type { Served } from '../e2e/harness.ts';
import { linkIn, PAGE, PersonAtPage } from './person.ts';
import { cleanUp, connected, serveTwo } from './two.ts';

const FORM = { type: 'object' as const, properties: { day: { type: 'string' as const } } };
const FORMS = { elicitation: { form: {} } };
const ACCEPT: ElicitResult = { action: 'accept', content: { day: 'Friday' } };
const ann = new PersonAtPage();
let ahead = 0;
/** What the tool got, in its order. */
let got: string[];

function build(): McpServer {
  const server = new McpServer({ name: 'booking', version: '1' });
  const inputSchema = {
    asks: z.array(
      z.object({ message: z.string(), timeout: z.number().optional(), isFor: z.string().optional() }),
    ),
    wanted: z.number(),
  };
  server.registerTool('next', {}, async () => {
    const stop = new AbortController();
    const ask = (message: string, isFor?: string, signal?: AbortSignal) =>
      server.server.elicitInput(
        { message, requestedSchema: FORM, ...(isFor && { _meta: { 'mcp-await/by': isFor } }) },
        { timeout: 86_400_000, ...(signal && { signal }) },
      );
    ask('Given up?', undefined, stop.signal).catch(() => {});
    const first = await ask('First?');
    await step('once', () => got.push(`once ${first.content?.day}`));
    stop.abort();
    const { content } = await ask('Then?', 'person');
    return { content: [{ type: 'text', text: `${first.content?.day}, ${content?.day}` }] };
  });
  server.registerTool(
    'race',
    { inputSchema: { besides: z.enum(['timer', 'step']) } },
    async ({ besides }) => {
      const stop = new AbortController();
      const asked = server.server
        .elicitInput(
          { message: 'Or else?', requestedSchema: FORM },
          { timeout: 86_400_000, signal: stop.signal },
        )
        .then(({ content }) => content?.day, String);
      const other = async (): Promise<string> => {
        if (besides === 'step') return step('other', async () => `step ${got.push(await until())}`);
        return until();
      };
      const first = await Promise.race([asked, other()]);
      stop.abort();
      await step('then', () => got.push('then'));
      return { content: [{ type: 'text', text: String(first) }] };
    },
  );
  server.registerTool('polls', {}, async () => {
    let day: unknown;
    void server.server
      .elicitInput({ message: 'Which day?', requestedSchema: FORM }, { timeout: 86_400_000 })
      .then(({ content }) => {
        day = content?.day;
      });
    for (let nth = 1; day === undefined; nth += 1) {
      await step(`poll ${nth}`, () => got.push(`poll ${nth}`));
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    return { content: [{ type: 'text', text: String(day) }] };
  });
  server.registerTool('gated', { inputSchema: { isFor: z.string().optional() } }, async ({ isFor }) => {
    const ask = async (message: string, by?: string): Promise<string> => {
      const params = { message, requestedSchema: FORM, ...(by && { _meta: { 'mcp-await/by': by } }) };
      const { content } = await server.server.elicitInput(params, { timeout: 86_400_000 });
      return String(content?.day);
    };
    const second = ask('Second?');
    const first = await ask('First?', isFor);
    await step('gate', async () => {
      got.push(`First? ${first}`);
      await until();
    });
    return { content: [{ type: 'text', text: `${first}, ${await second}` }] };
  });
  server.registerTool('ask', { inputSchema }, async ({ asks, wanted }) => {
    const all = new Promise<void>((resolve) => {
      for (const { message, timeout = 86_400_000, isFor } of asks)
        server.server
          .elicitInput(
            { message, requestedSchema: FORM, ...(isFor && { _meta: { 'mcp-await/by': isFor } }) },
            { timeout },
          )
          .then(({ action, content }) => `${message} ${action} ${content?.day}`, String)
          .then((text) => got.push(text) === wanted && resolve());
    });
    await all;
    return { content: [{ type: 'text', text: got.join(', ') }] };
  });
  return server;
}

/** Resolves when the test says so. */
let open: (value: string) => void;
let until: () => Promise<string>;

let one: Served;
let two: Served;
beforeEach(async () => {
  ahead = 0;
  got = [];
  const gate = new Promise<string>((resolve) => (open = resolve));
  until = () => gate;
  vi.spyOn(systemClock, 'now').mockImplementation(() => Date.now() + ahead);
  [one, two] = await serveTwo(build, { limits: { lease: 3_600_000 } });
});
afterEach(async () => {
  await cleanUp();
  vi.restoreAllMocks();
});

type Call = Parameters<Client['callTool']>[0];

/** Calls a tool: `ask` with these arguments, or `next`, if it is not named. */
async function called(
  client: Client,
  call?: Call | { asks: unknown[]; wanted: number },
  signal?: AbortSignal,
): Promise<string> {
  const whole =
    call === undefined ? { name: 'next' } : 'asks' in call ? { name: 'ask', arguments: call } : call;
  const { content } = await client.callTool(whole as Call, undefined, signal && { signal });
  return (content as { text: string }[]).map(({ text }) => text).join('\n');
}

/** A client's user, who answers when the test says so. */
class User {
  readonly #asked = new Map<string, (given: ElicitResult) => void>();
  readonly answers = (message: string): Promise<ElicitResult> =>
    new Promise((resolve) => this.#asked.set(message, resolve));

  async isAsked(message: string): Promise<void> {
    await expect.poll(() => [...this.#asked.keys()]).toContain(message);
  }

  async answer(message: string): Promise<void> {
    await this.isAsked(message);
    this.#asked.get(message)?.(ACCEPT);
  }
}

const never = (): Promise<ElicitResult> => new Promise(() => {});
const listed = (): Promise<string> => ann.read(two.url, PAGE);
const link = async (): Promise<string> => /href="(http[^"]*\/ask\/[^"]*)"/.exec(await listed())?.[1] ?? '';
const NATIVE = { message: 'Native?' };
const BY_PERSON = { message: 'By a person?', isFor: 'person' };

describe('questions at once', () => {
  it('puts one for a person on the page while the client shows the other', async () => {
    const text = called(await connected(one, FORMS, never), { asks: [NATIVE, BY_PERSON], wanted: 1 });
    await expect.poll(listed).toContain('By a person?');
    expect((await ann.answer(two.url, await link(), { day: 'Monday' }, 'accept', 1)).status).toBe(303);
    expect(await text).toBe('By a person? accept Monday');
  });

  it('gives the tool the client’s answer while the other waits for its person', async () => {
    const client = await connected(one, FORMS, () => ACCEPT);
    expect(await called(client, { asks: [NATIVE, BY_PERSON], wanted: 1 })).toBe('Native? accept Friday');
  });

  it('ends the time of one while the client shows the other', async () => {
    const asks = [{ message: 'Now?', timeout: 1_500 }, NATIVE];
    expect(await called(await connected(one, FORMS, never), { asks, wanted: 1 })).toMatch(/timed out/);
  });

  it('waits for the second on a page that the client opened, once the first is answered', async () => {
    const client = await connected(one, { elicitation: { url: {} } }, () => ({ action: 'accept' }));
    const text = called(client, { asks: [NATIVE, { message: 'Second?' }], wanted: 2 });
    await expect.poll(listed).toContain('Second?');
    await ann.answer(two.url, await link(), { day: 'Monday' });
    await expect.poll(() => got).toEqual(['Native? accept Monday']);
    await ann.answer(two.url, await link(), { day: 'Friday' });
    expect(await text).toBe('Native? accept Monday, Second? accept Friday');
  });

  it('asks for what is left once one is answered, and keeps what the tool got', async () => {
    const args = { asks: [NATIVE, BY_PERSON], wanted: 2 };
    const client = await connected(one, FORMS, () => ACCEPT);
    const told = await called(client, args);
    expect(told).toMatch(/^NOT DONE YET/);
    expect(told).not.toContain('Native?');
    expect(got).toEqual(['Native? accept Friday']);
    await ann.answer(two.url, linkIn(told), { day: 'Monday' });
    expect(await called(client, args)).toBe('Native? accept Friday, By a person? accept Monday');
  });
});

describe('a question that the tool gave up', () => {
  /** Answers the first question, and no other. */
  const asked = vi.fn();
  const answers = (message: string): ElicitResult | Promise<ElicitResult> => {
    asked(message);
    if (message !== 'First?') return never();
    // It is proven by then.
    ahead += 1_500;
    return ACCEPT;
  };
  beforeEach(() => asked.mockClear());

  it('is not waited for by a request whose next question is on the page', async () => {
    const client = await connected(one, FORMS, answers);
    const told = await called(client);
    expect(told).toMatch(/^NOT DONE YET/);
    expect(told).toContain('Then?');
    await ann.answer(two.url, linkIn(told), { day: 'Monday' });
    expect(await called(client)).toBe('Friday, Monday');
    expect(got).toEqual(['once Friday']);
  });

  it('does not have a call end that is cancelled while its next question is on the page', async () => {
    const client = await connected(one, FORMS, answers);
    await called(client);
    const url = await link();
    const stop = new AbortController();
    const again = called(client, undefined, stop.signal).catch(() => 'stopped');
    await new Promise((resolve) => setTimeout(resolve, 700));
    stop.abort();
    expect(await again).toBe('stopped');
    const next = called(client);
    await expect.poll(async () => (await ann.answer(two.url, url, { day: 'Monday' })).status).toBe(303);
    expect(await next).toBe('Friday, Monday');
    expect([got, asked.mock.calls.filter(([message]) => message === 'First?')]).toEqual([
      ['once Friday'],
      [['First?']],
    ]);
  });
});

describe('a tool that goes on beside its question', () => {
  it.each(['timer', 'step'])('ends its call while a request waits for its person: %s', async (besides) => {
    const client = await connected(one, {}, never);
    const race = { name: 'race', arguments: { besides } };
    expect(await called(client, race)).toMatch(/^NOT DONE YET/);
    const text = called(client, race);
    setTimeout(() => open('first'), 700);
    expect(await text).toBe(besides === 'step' ? 'step 1' : 'first');
    expect(got).toEqual(besides === 'step' ? ['first', 'then'] : ['then']);
    await expect.poll(listed).toContain('Nothing waits for you now');
  });

  it('waits for its person all the same, and polls ever less often', async () => {
    const client = await connected(one, {}, never);
    const told = await called(client, { name: 'polls' });
    expect(told).toMatch(/^NOT DONE YET/);
    const text = called(client, { name: 'polls' });
    const before = got.length;
    await new Promise((resolve) => setTimeout(resolve, 6_000));
    // After half a second, one, two and four.
    expect(got.length - before).toBeLessThan(20);
    await ann.answer(two.url, linkIn(told), { day: 'Monday' });
    expect(await text).toBe('Monday');
    expect(new Set(got).size).toBe(got.length);
  });

  it('ends its call in another process, once its step is done', async () => {
    const [a, b] = await serveTwo(build, { limits: { lease: 1_500 } });
    const race = { name: 'race', arguments: { besides: 'step' } };
    expect(await called(await connected(a, {}, never), race)).toMatch(/^NOT DONE YET/);
    const text = called(await connected(b, {}, never), race);
    setTimeout(() => open('first'), 700);
    expect(await text).toBe('step 1');
    expect(got).toEqual(['first', 'then']);
  });
});

it('takes the answer that one of two requests of a key got, and tells both', async () => {
  const user = new User();
  const client = await connected(one, FORMS, async () => {
    ahead += 1_500;
    return ACCEPT;
  });
  // It is proven from here on.
  await called(client, { asks: [{ message: 'Is it?' }], wanted: 1 });
  got = [];
  const call = {
    name: 'ask',
    arguments: { asks: [NATIVE], wanted: 1 },
    _meta: { 'mcp-await/idempotency-key': 'one' },
  };
  const hears = new User();
  const first = called(await connected(one, FORMS, hears.answers), call);
  await hears.isAsked('Native?');
  const second = called(await connected(two, FORMS, user.answers), call);
  await user.answer('Native?');
  expect(await Promise.all([first, second])).toEqual(Array(2).fill('Native? accept Friday'));
  expect(got).toEqual(['Native? accept Friday']);
});

describe('an answer while the call goes on with another', () => {
  const GATED = { name: 'gated', arguments: {} };

  it('counts if it comes late', async () => {
    const user = new User();
    const gated = { ...GATED, arguments: { isFor: 'person' } };
    const client = await connected(one, FORMS, user.answers);
    const told = called(client, gated);
    await user.isAsked('Second?');
    ahead += 46_000;
    const url = linkIn(await told);
    expect(await told).toMatch(/^NOT DONE YET/);
    const text = called(client, gated);
    await ann.answer(two.url, url, { day: 'Monday' }, 'accept', 1);
    await expect.poll(() => got).toEqual(['First? Monday']);
    await user.answer('Second?');
    await expect.poll(() => ann.read(two.url, url)).not.toContain('Second?');
    open('');
    expect(await text).toBe('Monday, Friday');
  });

  it('counts if another request of the call got it', async () => {
    const [first, second] = [new User(), new User()];
    const text = called(await connected(one, FORMS, first.answers), GATED);
    await first.isAsked('First?');
    const other = called(await connected(two, FORMS, second.answers), GATED);
    await second.isAsked('Second?');
    await first.answer('First?');
    await expect.poll(() => got).toEqual(['First? Friday']);
    await second.answer('Second?');
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    open('');
    expect(await Promise.all([text, other])).toEqual(['Friday, Friday', 'Friday, Friday']);
    expect(got).toEqual(['First? Friday']);
  });
});

it('does not hold the request of a client that takes URLs alone, and shows none', async () => {
  const client = await connected(one, { elicitation: { url: {} } }, never);
  const text = called(client, { asks: [NATIVE], wanted: 1 });
  await expect.poll(listed).toContain('Native?');
  await new Promise((resolve) => setTimeout(resolve, 300));
  ahead += 46_000;
  expect(await text).toMatch(/^NOT DONE YET/);
});

it('takes an answer at its page when another process’s request was cancelled', async () => {
  const args = { asks: [BY_PERSON], wanted: 1 };
  const [a, b] = [await connected(one, {}, never), await connected(two, {}, never)];
  const url = linkIn(await called(a, args));
  const stop = new AbortController();
  const first = called(a, args, stop.signal).catch(() => 'stopped');
  const second = called(b, args);
  await new Promise((resolve) => setTimeout(resolve, 300));
  stop.abort();
  expect(await first).toBe('stopped');
  await new Promise((resolve) => setTimeout(resolve, 1_500));
  expect((await ann.answer(one.url, url, { day: 'Monday' })).status).toBe(303);
  expect(await second).toBe('By a person? accept Monday');
});

it('takes a late answer to a question of a second request of the call', async () => {
  const args = { asks: [NATIVE], wanted: 1 };
  await connected(one, FORMS, never).then((client) => {
    void called(client, args).catch(() => {});
  });
  await expect.poll(listed).toContain('Native?');
  let answer: ((given: ElicitResult) => void) | undefined;
  const client = await connected(two, FORMS, () => new Promise((resolve) => (answer = resolve)));
  const text = called(client, args);
  await expect.poll(() => answer).toBeDefined();
  ahead += 46_000;
  expect(await text).toMatch(/^NOT DONE YET/);
  answer?.(ACCEPT);
  await expect.poll(listed).toContain('Nothing waits for you now');
  expect(await called(client, args)).toBe('Native? accept Friday');
});
