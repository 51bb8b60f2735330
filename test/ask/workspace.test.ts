/** workspace-sse with the page: each way in which a response goes out. */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { afterEach, beforeEach, expect, it } from 'vitest';
import * as z from 'zod';
import { step } from '../../src/index.ts';
import { openStore } from '../../src/store.ts';
import { SECRET, type Served, serveHere } from '../e2e/harness.ts';
import { SQLITE } from '../e2e/services.ts';
import {
  type Body,
  call,
  get,
  initialize,
  post,
  textOf,
  type WireEvent,
  type WireOptions,
} from '../e2e/workspace-wire.ts';
import { askOptions, linkIn, PAGE, PersonAtPage } from './person.ts';

const FORM = { type: 'object' as const, properties: { day: { type: 'string' as const } }, required: ['day'] };
const ann = new PersonAtPage();
const effects: string[] = [];

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

let one: Served;
let two: Served;
beforeEach(async () => {
  effects.length = 0;
  const url = SQLITE.url();
  const serve = async (): Promise<Served> =>
    serveHere(build, { secrets: [SECRET], store: await openStore(url), ask: askOptions });
  one = await serve();
  two = await serve();
});
afterEach(() => Promise.all([one.close(), two.close()]));

const AS = { as: 'ann' } as const;
let ids = 0;
const acme = ({ url }: Served): string => `${url}/acme`;

/** The text of a call's result, in the POST's own body. */
async function book(at: Served, to: string, options: WireOptions = {}): Promise<string> {
  ids += 1;
  const body: Body = await (await post(acme(at), call(ids, 'book', { to }), { ...AS, ...options })).end();
  const event: WireEvent | undefined =
    options.accept === 'application/json'
      ? { event: 'response', id: undefined, message: body.json }
      : body.events.find(({ event }) => event === 'response');
  return event === undefined ? '' : textOf(event);
}

it.each([
  ['as events', {}],
  ['as JSON', { accept: 'application/json' }],
])('takes an answer of a caller whose responses come %s', async (_name, options) => {
  const first = await book(one, 'rome', options);
  expect(first).toMatch(/^NOT DONE YET: book waits for a person\./);
  expect((await ann.answer(two.url, linkIn(first), { day: 'Monday' })).status).toBe(303);
  expect(await book(two, 'rome', options)).toBe('accept Monday');
  expect(await book(one, 'rome', options)).toMatch(/^This call was already done/);
  expect(effects).toEqual(['hold rome', 'pay rome']);
});

it('takes an answer of a caller whose responses come on its GET, and wakes the call that waits', async () => {
  const stream = await get(acme(one), AS);
  await stream.lifecycle('streamOpened');
  expect((await post(acme(two), call('a', 'book', { to: 'oslo' }), AS)).status).toBe(202);
  const link = linkIn(textOf(await stream.response('a')));
  expect((await post(acme(two), call('b', 'book', { to: 'oslo' }), AS)).status).toBe(202);
  await ann.answer(one.url, link, { day: 'Friday' });
  expect(textOf(await stream.response('b'))).toBe('accept Friday');
  expect(effects).toEqual(['hold oslo', 'pay oslo']);
  await stream.cancel();
});

it('asks a client itself that declares forms on its GET', async () => {
  const stream = await get(acme(one), AS);
  await stream.lifecycle('streamOpened');
  await post(acme(one), initialize('i', { elicitation: { form: {} } }), AS);
  await stream.response('i');
  await post(acme(one), call('c', 'book', { to: 'lima' }), AS);
  const { message } = await stream.next(({ message: { params } }) => params?.message === 'When to lima?');
  await post(acme(two), { id: message.id, result: { action: 'accept', content: { day: 'Tuesday' } } }, AS);
  expect(textOf(await stream.response('c'))).toBe('accept Tuesday');
  expect(await ann.read(one.url, PAGE)).toContain('Nothing waits for you now');
  await stream.cancel();
});

it('takes no answer once a call that waits was cancelled, until it is called again', async () => {
  const link = linkIn(await book(one, 'bern'));
  const stream = await get(acme(one), AS);
  await stream.lifecycle('streamOpened');
  await post(acme(one), call('d', 'book', { to: 'bern' }), AS);
  await new Promise((resolve) => setTimeout(resolve, 300));
  await post(acme(two), { method: 'notifications/cancelled', params: { requestId: 'd' } }, AS);
  await expect.poll(() => ann.read(one.url, link)).toContain('Stopped by the client');
  await post(acme(one), call('e', 'book', { to: 'bern' }), AS);
  await expect.poll(() => ann.read(one.url, link)).toContain('When to bern?');
  await ann.answer(two.url, link, { day: 'Sunday' });
  expect(textOf(await stream.response('e'))).toBe('accept Sunday');
  expect(effects).toEqual(['hold bern', 'pay bern']);
  await stream.cancel();
});

it('continues no call of another workspace, and none of another caller', async () => {
  const other = async (to: string, as: string, more: object = {}): Promise<WireEvent['message']> => {
    const body = await (
      await post(`${one.url}/other`, { ...call('x', 'book', { to }), ...more }, { as })
    ).end();
    return body.events.find(({ event }) => event === 'response')?.message ?? body.json;
  };
  const link = linkIn(await book(one, 'riga'));
  const texts = await Promise.all([other('riga', 'ann'), other('riga', 'bob')]);
  const links = texts.map(({ result }) => linkIn(result?.content?.[0]?.text ?? ''));
  expect(new Set([link, ...links]).size).toBe(3);
  expect(effects).toEqual(['hold riga', 'hold riga', 'hold riga']);
});
