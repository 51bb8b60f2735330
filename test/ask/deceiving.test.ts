/** Clients that declare elicitation and do not ask their user: they answer by themselves, show nothing, or give up. */
import { randomUUID } from 'node:crypto';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { ElicitRequestSchema, type ElicitResult } from '@modelcontextprotocol/sdk/types.js';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import * as z from 'zod';
import type { AskEvent } from '../../src/ask/options.ts';
import { WaitingCalls } from '../../src/ask/waiting-calls.ts';
import { systemClock } from '../../src/base/values.ts';
import type { Entry } from '../../src/call/journal/entries.ts';
import { step } from '../../src/index.ts';
import { Retry } from '../../src/log/retry.ts';
import { openStore } from '../../src/store.ts';
import { post, type RawReply, textOf } from '../e2e/clients.ts';
import { SECRET, type Served, serveHere } from '../e2e/harness.ts';
import { POSTGRES, REDIS, SQLITE } from '../e2e/services.ts';
import { type Answers, type Caller, KINDS, openCaller } from './callers.ts';
import { clock, slowly, takeClock } from './clock.ts';
import { askOptions, linkIn, PAGE, PersonAtPage } from './person.ts';

const FORM = { type: 'object' as const, properties: { day: { type: 'string' as const } } };
const YES: ElicitResult = { action: 'accept', content: { day: 'by the client' } };
const NO: ElicitResult = { action: 'decline' };
const ann = new PersonAtPage();
const DAY = 86_400_000;
let effects: string[] = [];
let events: AskEvent[] = [];

function build(): McpServer {
  const server = new McpServer({ name: 'booking', version: '1' });
  server.registerTool('book', { inputSchema: { to: z.string() } }, async ({ to }) => {
    await step('hold', async () => void effects.push(`hold ${to}`));
    const { action, content } = await server.server.elicitInput({
      message: `When to ${to}?`,
      requestedSchema: FORM,
    });
    await step('pay', async () => void effects.push(`pay ${to}`));
    return { content: [{ type: 'text', text: `${action} ${content?.day}` }] };
  });
  return server;
}

const cleanUps: (() => unknown)[] = [];
let one: Served;
let two: Served;

async function serve(url: string): Promise<Served> {
  const served = await serveHere(build, {
    tasks: 'optional',
    secrets: [SECRET],
    store: await openStore(url),
    // Calls outlast the days that a test lets pass.
    ttl: 100 * DAY,
    ask: { ...askOptions, on: (event) => void events.push(event) },
    limits: { lease: 3_600_000 },
  });
  cleanUps.push(() => served.close());
  return served;
}

beforeEach(async () => {
  effects = [];
  events = [];
  takeClock();
  const url = SQLITE.url();
  one = await serve(url);
  two = await serve(url);
});
afterEach(async () => {
  for (const cleanUp of cleanUps.splice(0).reverse()) await cleanUp();
  vi.restoreAllMocks();
});

async function open(
  kind: (typeof KINDS)[number],
  at: Served,
  answers: Answers,
  { elicitation = { form: {} }, ...who }: { name?: string; who?: string; elicitation?: object } = {},
): Promise<Caller> {
  const caller = await openCaller(kind, at.url, answers, { ...who, capabilities: { elicitation } });
  cleanUps.push(() => caller.close());
  return caller;
}

describe.each(KINDS)('%s', (kind) => {
  it.each<ElicitResult>([NO, { action: 'cancel' }])(
    'asks on the page where a client answers $action at once',
    async (answer) => {
      let asked = 0;
      const caller = await open(kind, one, () => {
        asked += 1;
        return answer;
      });
      const first = await caller.call('rome');
      expect(first).toMatch(/^NOT DONE YET: book waits for a person\.\nQuestion: When to rome\?/);
      expect((await ann.answer(two.url, linkIn(first), { day: 'Monday' })).status).toBe(303);
      expect(await caller.call('rome')).toBe('accept Monday');
      expect([asked, effects]).toEqual([1, ['hold rome', 'pay rome']]);
      expect(events.map(({ what }) => what)).toEqual(['opened', 'answered']);
    },
  );

  it('believes an answer that a person may have given, and a decline of a client that is proven', async () => {
    expect(await (await open(kind, one, () => YES)).call('oslo')).toBe('accept by the client');
    expect(await (await open(kind, one, slowly(NO))).call('riga')).toBe('decline undefined');
    // None of these is a proof.
    expect(await (await open(kind, one, () => NO)).call('bern')).toMatch(/^NOT DONE YET/);
    expect(await (await open(kind, one, slowly({ action: 'accept', content: {} }))).call('lima')).toMatch(
      /^accept/,
    );
    expect(await (await open(kind, one, () => NO)).call('cairo')).toMatch(/^NOT DONE YET/);
    expect(await (await open(kind, one, slowly(YES))).call('paris')).toBe('accept by the client');
    expect(await (await open(kind, two, () => NO)).call('tokyo')).toBe('decline undefined');
  });

  it('keeps a proof for its caller and client, for thirty days', async () => {
    expect(await (await open(kind, one, slowly(YES))).call('rome')).toBe('accept by the client');
    expect(await (await open(kind, one, () => NO, { who: 'bob' })).call('rome')).toMatch(/^NOT DONE YET/);
    if (kind === '2025-11-25')
      expect(await (await open(kind, one, () => NO, { name: 'other' })).call('rome')).toMatch(
        /^NOT DONE YET/,
      );
    clock.ahead += 29 * DAY;
    expect(await (await open(kind, two, () => NO)).call('oslo')).toBe('decline undefined');
    clock.ahead += 2 * DAY;
    expect(await (await open(kind, two, () => NO)).call('bern')).toMatch(/^NOT DONE YET/);
    expect(await (await open(kind, two, slowly(YES))).call('riga')).toBe('accept by the client');
    expect(await (await open(kind, one, () => NO)).call('lima')).toBe('decline undefined');
  });
});

describe.each(KINDS)('%s: a client that declines at once', (kind) => {
  it.each([{ form: {} }, { url: {} }])(
    'is not believed where its first request heard nothing: %o',
    async (elicitation) => {
      const never = vi.fn((): Promise<ElicitResult> => new Promise(() => {}));
      const lost = await open(kind, one, never, { elicitation });
      lost.call('rome').catch(() => {});
      const doubted = vi.spyOn(WaitingCalls.prototype, 'doubt');
      await expect.poll(() => never.mock.calls.length).toBe(1);
      clock.ahead += 2_000;
      const declines = vi.fn((): ElicitResult => NO);
      const second = (await open(kind, one, declines, { elicitation })).call('rome');
      await expect.poll(() => declines.mock.calls.length).toBe(1);
      // It waits for the person beside the first one.
      if ('url' in elicitation) {
        await expect.poll(() => doubted.mock.calls.length).toBeGreaterThan(0);
        clock.ahead += 26_000;
      }
      const first = await second;
      expect(first).toMatch(/^NOT DONE YET/);
      expect((await ann.answer(two.url, linkIn(first), { day: 'Monday' })).status).toBe(303);
      expect(await (await open(kind, two, () => NO, { elicitation })).call('rome')).toMatch(/accept Monday$/);
      expect(effects).toEqual(['hold rome', 'pay rome']);
    },
  );

  it.each(['before it is asked', 'after it has answered'])('nor where the store is slow %s', async (when) => {
    let hasAnswered = false;
    let waiting = 0;
    let isSlow = true;
    const slow = (value: unknown): void => {
      const type = (value as Entry | undefined)?.type;
      // Live, its answer is written; later, more is read before.
      const isAnswer = hasAnswered && (kind === '2026-07-28' || type === 'completed');
      // The call itself waits first, and then its request.
      if (type === 'suspended') waiting += 1;
      const isQuestion = type === 'asked' || (type === 'suspended' && waiting === 2);
      if (!isSlow || !(when.startsWith('after') ? isAnswer : isQuestion)) return;
      isSlow = false;
      clock.ahead += 1_500;
    };
    const { insert, read } = Retry.prototype;
    vi.spyOn(Retry.prototype, 'insert').mockImplementation(async function (this: Retry, ...args) {
      const isThere = await insert.apply(this, args);
      slow(args[2]);
      return isThere;
    });
    vi.spyOn(Retry.prototype, 'read').mockImplementation(async function (this: Retry, ...args) {
      const value = await read.apply(this, args);
      slow(undefined);
      return value as never;
    });
    const decline = (): ElicitResult => {
      hasAnswered = true;
      return NO;
    };
    expect(await (await open(kind, one, decline)).call('oslo')).toMatch(/^NOT DONE YET/);
    expect(isSlow).toBe(false);
  });
});

describe('2025-11-25', () => {
  it('asks on the page where a client shows nothing for 45 seconds; what its user answers later counts', async () => {
    let answer: (given: ElicitResult) => void = () => {};
    const isAsked = vi.fn();
    const caller = await open('2025-11-25', one, () => {
      isAsked();
      return new Promise((resolve) => {
        answer = resolve;
      });
    });
    const first = caller.call('rome');
    await expect.poll(() => isAsked.mock.calls.length).toBe(1);
    clock.ahead += 44_000;
    await new Promise((resolve) => setTimeout(resolve, 700));
    clock.ahead += 2_000;
    expect(await first).toMatch(/^NOT DONE YET/);
    expect(await ann.read(two.url, linkIn(await first))).toContain('When to rome?');
    answer({ action: 'accept', content: { day: 'late' } });
    await expect.poll(() => ann.read(two.url, PAGE)).toContain('Nothing waits for you now');
    expect(await (await open('2025-11-25', two, () => NO)).call('rome')).toBe('accept late');
    // It was a proof.
    expect(await (await open('2025-11-25', two, () => NO)).call('riga')).toBe('decline undefined');
    expect(effects.filter((effect) => effect.endsWith('rome'))).toEqual(['hold rome', 'pay rome']);
  });

  it('takes an answer of a task’s client that comes after 45 seconds', async () => {
    let answer: ((given: ElicitResult) => void) | undefined;
    const client = new Client(
      { name: 'host', version: '1' },
      { capabilities: { elicitation: { form: {} } } },
    );
    client.setRequestHandler(
      ElicitRequestSchema,
      () =>
        new Promise<ElicitResult>((resolve) => {
          answer = resolve;
        }),
    );
    const requestInit = { headers: { authorization: 'Bearer ann' } };
    await client.connect(new StreamableHTTPClientTransport(new URL(one.url), { requestInit }) as Transport);
    cleanUps.push(() => client.close());
    const params = { name: 'book', arguments: { to: 'lima' }, task: { ttl: DAY } };
    const { task } = await client.request(
      { method: 'tools/call', params },
      z.looseObject({ task: z.looseObject({ taskId: z.string() }) }),
    );
    const result = client.request(
      { method: 'tasks/result', params: { taskId: task.taskId } },
      z.looseObject({ content: z.array(z.looseObject({ text: z.string() })) }),
    );
    await expect.poll(() => answer).toBeDefined();
    clock.ahead += 46_000;
    await expect.poll(() => events.map(({ what }) => what)).toEqual(['opened']);
    answer?.({ action: 'accept', content: { day: 'late' } });
    expect((await result).content[0]?.text).toBe('accept late');
    expect(effects).toEqual(['hold lima', 'pay lima']);
  });

  it('takes the page’s answer while the client shows the question', async () => {
    const isAsked = vi.fn();
    const caller = await open('2025-11-25', one, () => {
      isAsked();
      return new Promise<ElicitResult>(() => {});
    });
    const first = caller.call('oslo');
    await expect.poll(() => isAsked.mock.calls.length).toBe(1);
    const link = await expect
      .poll(() => ann.read(two.url, PAGE))
      .toContain('When to oslo?')
      .then(async () => /href="(http[^"]*\/ask\/[^"]*)"/.exec(await ann.read(two.url, PAGE))?.[1] ?? '');
    clock.ahead += 1_500;
    await ann.answer(two.url, link, { day: 'Friday' });
    expect(await first).toBe('accept Friday');
    // The person's answer proves nothing of the client.
    expect(await (await open('2025-11-25', one, () => NO)).call('riga')).toMatch(/^NOT DONE YET/);
  });

  it.each([NO, YES])(
    'does not believe that a person answered as a call was cancelled: $action',
    async (given) => {
      let say: (given: ElicitResult) => void = () => {};
      const isAsked = vi.fn();
      const caller = await open('2025-11-25', one, () => {
        isAsked();
        return new Promise<ElicitResult>((resolve) => {
          say = resolve;
        });
      });
      const stop = new AbortController();
      // The client's SDK sends no answer to a question of a call that it cancelled: a second one does.
      const first = caller.call('pisa', stop.signal).catch(() => 'cancelled');
      await expect.poll(() => isAsked.mock.calls.length).toBe(1);
      stop.abort();
      await first;
      await expect.poll(() => events.map(({ what }) => what)).toEqual(['opened']);
      say(given);
      await new Promise((resolve) => setTimeout(resolve, 300));
      if (given === NO) expect(await ann.read(two.url, PAGE)).toContain('When to pisa?');
      // It is no proof.
      expect(await (await open('2025-11-25', two, () => NO)).call('lund')).toMatch(/^NOT DONE YET/);
    },
  );

  it('ends the request alone where a call is cancelled while its question is open', async () => {
    const isAsked = vi.fn();
    const caller = await open('2025-11-25', one, () => {
      isAsked();
      return new Promise<ElicitResult>(() => {});
    });
    const stop = new AbortController();
    const first = caller.call('bern', stop.signal).catch(() => 'cancelled');
    await expect.poll(() => isAsked.mock.calls.length).toBe(1);
    stop.abort();
    expect(await first).toBe('cancelled');
    await expect.poll(() => events.map(({ what }) => what)).toEqual(['opened']);
    const link = events[0]?.url ?? '';
    expect((await ann.answer(two.url, link, { day: 'Sunday' })).status).toBe(303);
    expect(effects).toEqual(['hold bern']);
    expect(await caller.call('bern')).toBe('accept Sunday');
    expect([isAsked.mock.calls.length, effects]).toEqual([1, ['hold bern', 'pay bern']]);
  });
});

it('2026-07-28: asks on the page once a question was open for 45 seconds; a late answer by the client counts', async () => {
  const send = (more = {}): Promise<RawReply> =>
    post(one.url, {
      tool: 'book',
      args: { to: 'rome' },
      capabilities: { elicitation: { form: {} } },
      headers: { authorization: 'Bearer ann' },
      ...more,
    });
  const first = await send();
  clock.ahead += 46_000;
  const link = linkIn(textOf(await send()));
  expect(await ann.read(two.url, link)).toContain('When to rome?');
  const responses = Object.fromEntries(
    first.keys.map((key) => [key, { action: 'accept', content: { day: 'late' } }]),
  );
  expect(textOf(await send({ state: first.state, responses }))).toBe('accept late');
  expect(textOf(await send())).toMatch(/^This call was already done.*\naccept late/);
  expect(effects).toEqual(['hold rome', 'pay rome']);
});

describe.each([REDIS, POSTGRES])(
  '2026-07-28, where the clocks of two processes on $name differ',
  (service) => {
    beforeEach(() => {
      // A clock that is set says nothing of the time that passes.
      vi.spyOn(systemClock, 'elapsed').mockImplementation(() => performance.now());
    });
    const answered = async (answers: Answers): Promise<string> =>
      (await open('2026-07-28', await serve(service.url()), answers)).call(randomUUID());

    it.skipIf(service.down)('asks on the page if the client declines at once', async () => {
      const decline = (): ElicitResult => {
        // The process that gets it is ahead.
        clock.ahead += 5_000;
        return NO;
      };
      expect(await answered(decline)).toMatch(/^NOT DONE YET/);
    });

    it.skipIf(service.down)('believes a client that declines after more than a second', async () => {
      const decline = async (): Promise<ElicitResult> => {
        await new Promise((resolve) => setTimeout(resolve, 1_100));
        // The process that gets it is behind.
        clock.ahead -= 5_000;
        return NO;
      };
      expect(await answered(decline)).toBe('decline undefined');
    });
  },
);
