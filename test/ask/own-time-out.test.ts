/** A question with a time-out of its own ends then, whichever way it goes; until then the first answer counts. */
import type { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { ElicitResult } from '@modelcontextprotocol/sdk/types.js';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import * as z from 'zod';
import { WaitingCalls } from '../../src/ask/waiting-calls.ts';
import { post, type RawReply, textOf } from '../e2e/clients.ts';
import type { Served } from '../e2e/harness.ts';
import { clock, takeClock } from './clock.ts';
import { linkIn, PAGE, PersonAtPage } from './person.ts';
import { cleanUp, connected, serveTwo } from './two.ts';

const FORM = { type: 'object' as const, properties: { day: { type: 'string' as const } } };
const NO: ElicitResult = { action: 'decline' };
const OWN = 1_500;
/** Until a person has answered, on a busy machine. */
const LONG = 6_000;
const DAY = 86_400_000;
const TIMED_OUT = /Request timed out/;
const FORMS = { elicitation: { form: {} } };
const URLS = { elicitation: { url: {} } };
const ann = new PersonAtPage();

function build(): McpServer {
  const server = new McpServer({ name: 'booking', version: '1' });
  const ask = async (message: string, timeout: number): Promise<string> => {
    const asked = server.server.elicitInput({ message, requestedSchema: FORM }, { timeout });
    return asked.then(({ action, content }) => `${action} ${content?.day}`, String);
  };
  for (const [name, ...times] of [
    ['hasty', OWN],
    ['slow', LONG],
    ['later', DAY],
    ['both', OWN, DAY],
    ['all', DAY, DAY],
  ] as const)
    server.registerTool(name, {}, async () => {
      const [now, later] = times;
      const answers = [
        ask(name === 'later' ? 'Later?' : 'Now?', now),
        ...(later === undefined ? [] : [ask('Later?', later)]),
      ];
      return { content: [{ type: 'text', text: (await Promise.all(answers)).join(', ') }] };
    });
  return server;
}

let one: Served;
let two: Served;
beforeEach(async () => {
  takeClock();
  [one, two] = await serveTwo(build, { limits: { lease: 3_600_000 } });
});
afterEach(async () => {
  await cleanUp();
  vi.restoreAllMocks();
});

const open = (capabilities: object, answers: () => ElicitResult | Promise<ElicitResult>): Promise<Client> =>
  connected(one, capabilities, answers);

async function called(client: Client, name = 'hasty'): Promise<string> {
  const { content } = await client.callTool({ name });
  return (content as { text: string }[]).map(({ text }) => text).join('\n');
}

async function asTask(client: Client, name: string): Promise<string> {
  const anything = z.looseObject({});
  const params = { name, arguments: {}, task: { ttl: 60_000 } };
  const created = await client.request({ method: 'tools/call', params }, anything);
  const { taskId } = created.task as { taskId: string };
  const result = await client.request({ method: 'tasks/result', params: { taskId } }, anything);
  return (result.content as { text: string }[]).map(({ text }) => text).join('\n');
}

const never = (): Promise<ElicitResult> => new Promise(() => {});
/** The link of a question that is on the page. */
const listed = async (): Promise<string> =>
  /href="(http[^"]*\/ask\/[^"]*)"/.exec(await ann.read(two.url, PAGE))?.[1] ?? '';

it('2025-11-25: after a client that declines by itself', async () => {
  const client = await open(FORMS, () => NO);
  const told = await called(client);
  expect(told).toMatch(/^NOT DONE YET/);
  clock.ahead += 2 * OWN;
  expect(await ann.read(two.url, linkIn(told))).toContain('There is no such question');
  expect(await called(client)).toMatch(TIMED_OUT);
});

it('2026-07-28: after a client that declines by itself', async () => {
  const send = (more = {}): Promise<RawReply> =>
    post(one.url, { tool: 'hasty', capabilities: FORMS, headers: { authorization: 'Bearer ann' }, ...more });
  const first = await send();
  const responses = Object.fromEntries(first.keys.map((key) => [key, NO]));
  expect(textOf(await send({ state: first.state, responses }))).toMatch(/^NOT DONE YET/);
  clock.ahead += 2 * OWN;
  expect(textOf(await send())).toMatch(TIMED_OUT);
});

describe.each([
  ['without elicitation', {}],
  ['that declines by itself', FORMS],
])('in a task of a client %s', (_which, capabilities) => {
  it('ends the wait for the page', async () => {
    expect(await asTask(await open(capabilities, () => NO), 'hasty')).toMatch(TIMED_OUT);
  });
});

it('leaves the other questions of the task open', async () => {
  const text = asTask(await open({}, never), 'both');
  const listedNow = async (): Promise<string[]> =>
    (await ann.read(two.url, PAGE)).match(/Now\?|Later\?/g) ?? [];
  await expect.poll(listedNow).toEqual(['Later?']);
  expect((await ann.answer(two.url, await listed(), { day: 'Monday' })).status).toBe(303);
  expect(await text).toMatch(/Request timed out.*, accept Monday/);
});

describe('a client that takes URLs alone', () => {
  it('gets the time-out where nobody answers on the page that it opened', async () => {
    expect(await called(await open(URLS, () => ({ action: 'accept' })))).toMatch(TIMED_OUT);
  });

  it('gets it where it opens nothing', async () => {
    expect(await called(await open(URLS, never))).toMatch(TIMED_OUT);
  });

  it('gets the answer of a person who came to the page by the list', async () => {
    const text = called(await open(URLS, never), 'all');
    await expect.poll(listed).not.toBe('');
    await ann.answer(two.url, await listed(), { day: 'Monday' });
    await ann.answer(two.url, await listed(), { day: 'Friday' });
    expect(await text).toBe('accept Monday, accept Friday');
  });
});

describe('an answer that the page has acknowledged', () => {
  it('goes before an error of the client', async () => {
    const client = await open(FORMS, async () => {
      expect((await ann.answer(two.url, await listed(), { day: 'Monday' })).status).toBe(303);
      throw new Error('closed');
    });
    expect(await called(client, 'slow')).toBe('accept Monday');
  });

  it('goes before the end of its time', async () => {
    // This process looks for answers rarely.
    const { answerTo } = WaitingCalls.prototype;
    const until = Date.now() + LONG;
    vi.spyOn(WaitingCalls.prototype, 'answerTo').mockImplementation(async function (
      this: WaitingCalls,
      ...of
    ) {
      return Date.now() < until ? undefined : answerTo.apply(this, of);
    });
    const client = await open(FORMS, async () => {
      expect((await ann.answer(two.url, await listed(), { day: 'Monday' })).status).toBe(303);
      return never();
    });
    expect(await called(client, 'slow')).toBe('accept Monday');
  });

  it('is not acknowledged once an error of the client counts', async () => {
    const client = await open(FORMS, async () => {
      throw new Error('closed');
    });
    const answered = vi.spyOn(WaitingCalls.prototype, 'answer');
    expect(await called(client)).toContain('closed');
    const [call, ask] = answered.mock.calls[0] ?? [];
    const [book] = answered.mock.contexts as WaitingCalls[];
    const kept = await book?.answerTo(call?.id ?? '', ask?.key ?? '');
    expect(kept?.response).toHaveProperty('error');
  });
});

it('is asked once of a client that answers what does not fit', async () => {
  const asked = vi.fn(() => ({ action: 'accept', content: { day: 5 } }) as const);
  expect(await called(await open(FORMS, asked), 'later')).toContain('does not fit its question');
  expect(asked).toHaveBeenCalledTimes(1);
});

it('is answered on its page while a client that is proven by now shows it', async () => {
  let answer: () => ElicitResult | Promise<ElicitResult> = () => NO;
  const client = await open(FORMS, () => answer());
  const link = linkIn(await called(client, 'later'));
  answer = () => {
    clock.ahead += 1_500;
    return { action: 'accept', content: { day: 'Friday' } };
  };
  expect(await called(client, 'slow')).toBe('accept Friday');
  const shows = vi.fn(never);
  answer = shows;
  const text = called(client, 'later');
  await expect.poll(() => shows.mock.calls.length).toBe(1);
  expect((await ann.answer(two.url, link, { day: 'Monday' })).status).toBe(303);
  expect(await text).toBe('accept Monday');
});

it('is asked anew once its call is over', async () => {
  const client = await open({}, never);
  const link = linkIn(await called(client, 'later'));
  clock.ahead += 3_660_000;
  expect(await ann.read(two.url, link)).toContain('There is no such question');
  const again = linkIn(await called(client, 'later'));
  expect(again).not.toBe(link);
  expect(await ann.read(two.url, again)).toContain('Later?');
});
