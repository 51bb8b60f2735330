/** Which way an ask goes, what its client is told, and what is kept of the answer. */
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import * as z from 'zod';
import { WaitingCalls } from '../../src/ask/waiting-calls.ts';
import { systemClock } from '../../src/base/values.ts';
import { KeyvCallStore } from '../../src/checkpoint/call-store.ts';
import type { AuditEvent } from '../../src/observe/audit.ts';
import { openStore } from '../../src/store.ts';
import { accept, post, type RawCall, type RawReply, textOf } from '../e2e/clients.ts';
import { SECRET, type Served, serveHere } from '../e2e/harness.ts';
import { SQLITE } from '../e2e/services.ts';
import { askOptions, linkIn, PAGE, PersonAtPage } from './person.ts';

const FORM = { type: 'object' as const, properties: { day: { type: 'string' as const } }, required: ['day'] };
const MINUTE = 60_000;
const ann = new PersonAtPage();
const audited: AuditEvent[] = [];
let runs = 0;

function build(): McpServer {
  const server = new McpServer({ name: 'booking', version: '1' });
  const outputSchema = { booked: z.string() };
  server.registerTool('book', { inputSchema: { to: z.string() }, outputSchema }, async ({ to }) => {
    runs += 1;
    const message = `When to ${to}?`;
    const { action, content } = await server.server.elicitInput({ message, requestedSchema: FORM });
    const booked = `${action} ${content?.day}`;
    return { content: [{ type: 'text', text: booked }], structuredContent: { booked } };
  });
  server.registerTool('hasty', { inputSchema: { timeout: z.number() } }, async ({ timeout }) => {
    const asked = server.server.elicitInput({ message: 'Now?', requestedSchema: FORM }, { timeout });
    const text = await asked.then(({ action }) => action, String);
    return { content: [{ type: 'text', text }] };
  });
  return server;
}

const served: Served[] = [];
const open: Client[] = [];
let one: Served;
let two: Served;
let jump = 0;
beforeEach(async () => {
  audited.length = 0;
  runs = 0;
  jump = 0;
  const url = SQLITE.url();
  const serve = async (): Promise<Served> =>
    serveHere(build, {
      secrets: [SECRET],
      store: await openStore(url),
      ask: askOptions,
      audit: (event) => void audited.push(event),
      limits: { lease: 3_600_000 },
    });
  one = await serve();
  two = await serve();
  served.push(one, two);
});
afterEach(async () => {
  vi.restoreAllMocks();
  await Promise.all(open.splice(0).map((client) => client.close()));
  await Promise.all(served.splice(0).map((one) => one.close()));
});

async function clientOf(at: Served, capabilities = {}, day?: string): Promise<Client> {
  const client = new Client({ name: 'host', version: '1' }, { capabilities });
  if (day !== undefined)
    client.setRequestHandler(ElicitRequestSchema, () => ({ action: 'accept', content: { day } }));
  const requestInit = { headers: { authorization: 'Bearer ann' } };
  await client.connect(new StreamableHTTPClientTransport(new URL(at.url), { requestInit }) as Transport);
  open.push(client);
  return client;
}

async function book(client: Client, to: string): Promise<string> {
  const { content } = await client.callTool({ name: 'book', arguments: { to } });
  return (content as { text: string }[]).map(({ text }) => text).join('\n');
}

function byHand(at: Served, to: string, more: RawCall = {}): Promise<RawReply> {
  return post(at.url, {
    tool: 'book',
    args: { to },
    capabilities: {},
    ...more,
    headers: { authorization: 'Bearer ann' },
  });
}

const hasty = (): Promise<RawReply> =>
  post(one.url, {
    tool: 'hasty',
    args: { timeout: MINUTE },
    capabilities: {},
    headers: { authorization: 'Bearer ann' },
  });

/** A request, of whose wait for the person 25 seconds pass whenever something begins to listen. */
async function atOnce<T>(request: () => Promise<T>): Promise<T> {
  vi.spyOn(systemClock, 'elapsed').mockImplementation(() => performance.now() + jump);
  const listen = WaitingCalls.prototype.listen;
  const spied = vi.spyOn(WaitingCalls.prototype, 'listen').mockImplementation(function (
    this: WaitingCalls,
    id,
    heard,
  ) {
    jump += 25_000;
    return listen.call(this, id, heard);
  });
  try {
    return await request();
  } finally {
    spied.mockRestore();
  }
}

it('asks a client itself that declares forms', async () => {
  const client = await clientOf(one, { elicitation: { form: {} } }, 'Monday');
  expect(await book(client, 'rome')).toBe('accept Monday');
  expect(await ann.read(one.url, PAGE)).toContain('Nothing waits for you now');
});

it('ends a question with the time-out that its tool passed, where its client is asked', async () => {
  const client = await clientOf(one, { elicitation: { form: {} } }, '');
  client.setRequestHandler(ElicitRequestSchema, () => new Promise(() => {}));
  const { content } = await client.callTool({ name: 'hasty', arguments: { timeout: 1_500 } });
  expect((content as { text: string }[])[0]?.text).toContain('Request timed out');
});

it('takes an answer that was given within the tool’s own time-out, however late the call comes back', async () => {
  const link = linkIn(textOf(await hasty()));
  await ann.answer(two.url, link, { day: 'Monday' });
  vi.spyOn(Date, 'now').mockReturnValue(Date.now() + 2 * MINUTE);
  expect(textOf(await hasty())).toBe('accept');
});

it('takes none after it, and ends the question with the time-out', async () => {
  const told = textOf(await hasty());
  const until = /expires at (\S+)\./.exec(told)?.[1] ?? '';
  expect(Date.parse(until) - Date.now()).toBeLessThanOrEqual(MINUTE);
  vi.spyOn(Date, 'now').mockReturnValue(Date.now() + 2 * MINUTE);
  expect(await ann.read(two.url, linkIn(told))).toContain('There is no such question');
  expect(textOf(await hasty())).toContain('Request timed out');
});

it('has an SDK’s client take the result of a tool with an output schema', async () => {
  const client = await clientOf(one);
  // It compiles the schemas of the tools that it has listed, and checks each result that is no error.
  await client.listTools();
  const first = await client.callTool({ name: 'book', arguments: { to: 'rome' } });
  expect(first.isError).toBe(true);
  const [{ text = '' } = {}] = first.content as { text: string }[];
  await ann.answer(one.url, linkIn(text), { day: 'Monday' });
  const last = await client.callTool({ name: 'book', arguments: { to: 'rome' } });
  expect(last.structuredContent).toEqual({ booked: 'accept Monday' });
});

it('continues the call for the same caller, client and revision alone', async () => {
  const link = linkIn(await book(await clientOf(one), 'rome'));
  const other = await byHand(one, 'rome');
  expect(linkIn(textOf(other))).not.toBe(link);
  expect(runs).toBe(2);
  const again = await clientOf(two);
  expect(linkIn(await atOnce(() => book(again, 'rome')))).toBe(link);
  expect(runs).toBe(2);
});

it('repeats an outcome for ten minutes, and begins anew after that', async () => {
  const client = await clientOf(one);
  await ann.answer(one.url, linkIn(await book(client, 'rome')), { day: 'Monday' });
  expect(await book(client, 'rome')).toBe('accept Monday');
  const now = vi.spyOn(systemClock, 'now');
  now.mockImplementation(() => Date.now() + 599_000);
  expect(await book(client, 'rome')).toMatch(/^This call was already done.*\naccept Monday/);
  now.mockImplementation(() => Date.now() + 601_000);
  expect(await book(client, 'rome')).toMatch(/^NOT DONE YET/);
  expect(runs).toBe(2);
});

describe('2026-07-28 with URL mode alone', () => {
  const capabilities = { elicitation: { url: {} } };
  const opened = ({ state, keys }: RawReply): RawCall => ({
    capabilities,
    state,
    ...(keys.length > 0 && {
      responses: Object.fromEntries(keys.map((key) => [key, { action: 'accept' }])),
    }),
  });
  const waited = (at: Served, before: RawReply): Promise<RawReply> =>
    atOnce(() => byHand(at, 'rome', opened(before)));

  it('gets rounds without asks while its person answers, and then the outcome', async () => {
    const first = await byHand(one, 'rome', { capabilities });
    const [ask] = Object.values(first.message.result?.inputRequests ?? {});
    expect(ask?.params).toMatchObject({ mode: 'url', message: 'When to rome?' });
    const link = String(ask?.params?.url);
    const second = await waited(two, first);
    expect([second.keys, second.message.result?.resultType]).toEqual([[], 'input_required']);
    await ann.answer(two.url, link, { day: 'Monday' });
    expect(textOf(await byHand(one, 'rome', opened(second)))).toBe('accept Monday');
    expect(runs).toBe(1);
  });

  it('gets a result after five of these, and continues with its next equal call', async () => {
    let reply = await byHand(one, 'rome', { capabilities });
    const link = String(Object.values(reply.message.result?.inputRequests ?? {})[0]?.params?.url);
    for (let round = 0; round < 5; round += 1) {
      reply = await waited(round % 2 === 0 ? two : one, reply);
      expect([round, reply.keys, reply.message.result?.resultType]).toEqual([round, [], 'input_required']);
    }
    const last = await waited(two, reply);
    expect(textOf(last)).toMatch(/^NOT DONE YET/);
    expect(linkIn(textOf(last))).toBe(link);
    await ann.answer(one.url, link, { day: 'Monday' });
    const again = await byHand(one, 'rome', { capabilities });
    expect(textOf(again)).toBe('accept Monday');
  });

  it('is asked with its own answer where it opens nothing', async () => {
    const first = await byHand(one, 'rome', { capabilities });
    const responses = Object.fromEntries(first.keys.map((key) => [key, { action: 'decline' }]));
    const now = Date.now() + 1_100;
    vi.spyOn(KeyvCallStore.prototype, 'time').mockReturnValue(now);
    const last = await byHand(two, 'rome', { capabilities, state: first.state, responses });
    expect(textOf(last)).toBe('decline undefined');
  });

  it('is not believed where it declines at once, nor asked again', async () => {
    const first = await byHand(one, 'rome', { capabilities });
    const [shown] = Object.values(first.message.result?.inputRequests ?? {});
    const responses = Object.fromEntries(first.keys.map((key) => [key, { action: 'decline' }]));
    const { state } = first;
    const refused = await atOnce(() => byHand(two, 'rome', { capabilities, state, responses }));
    expect(textOf(refused)).toMatch(/^NOT DONE YET/);
    const again = await atOnce(() => byHand(two, 'rome', { capabilities }));
    expect(textOf(again)).toMatch(/^NOT DONE YET/);
    await ann.answer(one.url, String(shown?.params?.url), { day: 'Monday' });
    expect(textOf(await byHand(one, 'rome', { capabilities }))).toBe('accept Monday');
  });
});

it('lists the calls of one tool together, with what each was called with', async () => {
  const client = await clientOf(one);
  const links = [linkIn(await book(client, 'rome')), linkIn(await book(client, 'Rome \u202egnp.exe'))];
  const list = await ann.read(two.url, PAGE);
  expect(list).toContain('These are 2 calls. Each one that you accept takes effect.');
  expect(list).toContain('{&quot;to&quot;:&quot;Rome &lt;U+202E&gt;gnp.exe&quot;}');
  const places = links.map((link) => list.indexOf(link));
  expect(places[0]).toBeGreaterThan(places[1] ?? 0);
  expect(await ann.read(two.url, links[1] ?? '')).toContain('&lt;U+202E&gt;gnp.exe');
});

it('tells the person what happens next', async () => {
  const link = linkIn(await book(await clientOf(one), 'rome'));
  const sent = await ann.answer(two.url, link, { day: 'Monday' });
  const location = sent.headers.get('location') ?? '';
  expect([sent.status, location.split('?')[0]]).toEqual([303, link]);
  const next = await ann.read(two.url, location);
  expect(next).toContain('go back to your assistant and say that you have answered');
  expect(next).toContain('Until then nothing is done with your answer.');
  expect(next).not.toContain('<form');
});

it.each([0, 1])(
  'tells the person of a call that has gone on by itself, answered at process %d',
  async (nth) => {
    const at = [one, two][nth] ?? one;
    const client = await clientOf(one);
    const link = linkIn(await book(client, 'rome'));
    const waiting = book(client, 'rome');
    const sent = await ann.answer(at.url, link, { day: 'Monday' });
    expect(await waiting).toContain('Monday');
    const location = sent.headers.get('location') ?? '';
    const next = await ann.fetch(at.url, location);
    expect([next.status, await next.text()]).toEqual([200, expect.stringContaining('goes on by itself')]);
    // To others it is as unknown as before; so is the link alone, and a link that somebody made.
    for (const [person, url] of [
      [new PersonAtPage('eve'), location],
      [ann, link],
      [ann, `${link}?answered=yes`],
    ] as const)
      expect((await person.fetch(at.url, url)).status).toBe(404);
  },
);

it('takes no answer to a call that has expired since the form was shown', async () => {
  const link = linkIn(await book(await clientOf(one), 'rome'));
  const read = ann.read.bind(ann);
  const late = Date.now() + 3_600_000;
  vi.spyOn(ann, 'read').mockImplementationOnce(async (at, url) => {
    const text = await read(at, url);
    vi.spyOn(Date, 'now').mockReturnValue(late);
    return text;
  });
  expect((await ann.answer(one.url, link, { day: 'Monday' })).status).toBe(404);
  expect(audited.filter(({ what }) => what === 'given')).toEqual([]);
});

it('keeps who answered, by which way and when, with digests of the question and the arguments', async () => {
  const inserted = vi.spyOn(KeyvCallStore.prototype, 'insert');
  const client = await clientOf(one);
  const link = linkIn(await book(client, 'rome'));
  await ann.answer(two.url, link, { day: 'Monday' });
  expect(await book(client, 'rome')).toBe('accept Monday');
  const digests = {
    question: expect.stringMatching(/^\S{16,}$/),
    arguments: expect.stringMatching(/^\S{16,}$/),
  };
  const kept = inserted.mock.calls.filter(([name]) => name.includes(':answer '));
  expect(kept.map(([, value]) => value)).toEqual([
    expect.objectContaining({ by: 'ann', route: 'page', time: expect.any(Number), ...digests }),
  ]);
  const given = audited.filter(({ what }) => what === 'given');
  expect(given).toEqual([
    expect.objectContaining({
      person: 'ann',
      route: 'page',
      time: expect.any(Number),
      target: 'book',
      ...digests,
    }),
  ]);
  expect(JSON.stringify(audited)).not.toMatch(/rome|Monday/);
});

it('does not answer by `inputResponses` of a first request', async () => {
  const first = await byHand(one, 'rome');
  const key =
    /name="key"[^>]*value="([^"]*)"/.exec(await ann.read(one.url, linkIn(textOf(first))))?.[1] ?? '';
  const guess = accept([key], { day: 'Friday' });
  const reply = byHand(two, 'rome', { responses: guess });
  await ann.answer(one.url, linkIn(textOf(first)), { day: 'Monday' });
  expect(textOf(await reply)).toBe('accept Monday');
});
