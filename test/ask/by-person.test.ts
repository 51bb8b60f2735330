/** Asks that a person answers on the page alone, though the client could be asked: `mcp-await/by`, `mcp-await/of`. */
import { setTimeout } from 'node:timers/promises';
import {
  Client as ModernClient,
  StreamableHTTPClientTransport as ModernTransport,
} from '@modelcontextprotocol/client';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { systemClock } from '../../src/base/values.ts';
import { type AwaitOptions, step } from '../../src/index.ts';
import { openStore } from '../../src/store.ts';
import { SECRET, type Served, serveHere } from '../e2e/harness.ts';
import { legacySession } from '../e2e/legacy-session.ts';
import { SQLITE } from '../e2e/services.ts';
import { askOptions, filledForm, linkIn, PAGE, PersonAtPage } from './person.ts';

const FORM = { type: 'object' as const, properties: { day: { type: 'string' as const } } };
const ROLES: Readonly<Record<string, readonly string[]>> = { ann: [], eve: ['sales'], fay: ['finance'] };
const ann = new PersonAtPage('ann');
const eve = new PersonAtPage('eve');
const fay = new PersonAtPage('fay');
let effects: string[] = [];

function build(): McpServer {
  const server = new McpServer({ name: 'bank', version: '1' });
  const ask = async (message: string, _meta?: Record<string, unknown>): Promise<string> => {
    const asked = { message, requestedSchema: FORM, ...(_meta !== undefined && { _meta }) };
    const { action, content } = await server.server.elicitInput(asked);
    return `${action} ${content?.day}`;
  };
  const said = (text: string) => ({ content: [{ type: 'text' as const, text }] });
  server.registerTool('plain', {}, async () => said(await ask('Plain?')));
  server.registerTool('pay', {}, async () => {
    await step('hold', async () => void effects.push('hold'));
    const mine = await ask('Mine?', { 'mcp-await/by': 'person' });
    await step('pay', async () => void effects.push('pay'));
    return said(mine);
  });
  server.registerTool('approve', {}, async () => said(await ask('Approved?', { 'mcp-await/of': 'finance' })));
  server.registerTool('either', {}, async () => {
    const person = await ask('By a person?', { 'mcp-await/by': 'person' }).catch(() => 'nobody');
    const client = await ask('By the client?');
    await step('after', async () => void effects.push(client));
    return said(`${person}, ${client}, ${await ask('And this?')}`);
  });
  server.registerTool('nobody', {}, async () => {
    const metas = [
      ...['', null, 7, ['finance']].map((role) => ({ 'mcp-await/of': role })),
      ...['me', null].map((who) => ({ 'mcp-await/by': who })),
      { 'mcp-await/by': 'me', 'mcp-await/of': 'finance' },
    ];
    const errors = metas.map((meta) => ask('For nobody?', meta).catch(String));
    const url = { mode: 'url', message: 'Sign?', url: 'https://sign.example', elicitationId: 'e' } as const;
    const _meta = { 'mcp-await/by': 'person' };
    const signed = server.server.elicitInput({ ...url, _meta }).catch(String);
    const messages = [{ role: 'user' as const, content: { type: 'text' as const, text: 'Say' } }];
    const drawn = server.server.createMessage({ messages, maxTokens: 9, _meta }).catch(String);
    return said((await Promise.all([...errors, signed, drawn])).join('\n'));
  });
  server.registerTool('odd', {}, async () => {
    const odd = { toString: 1 };
    const properties = { day: { enum: [odd] }, hour: { oneOf: [{ const: odd }] } };
    const params = { message: odd, requestedSchema: { type: 'object', properties } };
    const asked = { ...params, _meta: { 'mcp-await/of': 'finance' } } as never;
    return said((await server.server.elicitInput(asked)).action);
  });
  server.registerTool('mixed', {}, async () => {
    const all = [
      ask('Plain?'),
      ask('Mine?', { 'mcp-await/by': 'person' }),
      ask('F?', { 'mcp-await/of': 'finance' }),
    ];
    return said((await Promise.all(all)).join(', '));
  });
  return server;
}

const KINDS = ['2025-11-25', '2026-07-28'] as const;
const cleanUps: (() => unknown)[] = [];
afterEach(async () => {
  effects = [];
  for (const cleanUp of cleanUps.splice(0).reverse()) await cleanUp();
});

interface Caller {
  readonly asked: string[];
  call(name: string): Promise<string>;
}

/** A client that answers each ask by itself. @param declines it takes URLs alone, and declines to open them */
async function open(
  kind: (typeof KINDS)[number],
  { url }: Served,
  who = 'ann',
  declines = false,
): Promise<Caller> {
  const asked: string[] = [];
  const requestInit = who === '' ? {} : { headers: { authorization: `Bearer ${who}` } };
  const capabilities = { elicitation: declines ? { url: {} } : { form: {}, url: {} }, sampling: {} };
  const info = { name: 'host', version: '1' };
  const answer = async (message: string) => {
    asked.push(message);
    // A person takes their time.
    if (declines) await setTimeout(1_100);
    if (declines) return { action: 'decline' as const };
    return { action: 'accept' as const, content: { day: 'by the client' } };
  };
  let client: Client | ModernClient;
  if (kind === '2025-11-25') {
    client = new Client(info, { capabilities });
    client.setRequestHandler(ElicitRequestSchema, ({ params }) => answer(params.message));
    await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }) as Transport);
  } else {
    client = new ModernClient(info, { capabilities, versionNegotiation: { mode: { pin: kind } } });
    client.setRequestHandler('elicitation/create', ({ params }) => answer(params.message));
    await client.connect(new ModernTransport(new URL(url), { requestInit }));
  }
  cleanUps.push(() => client.close());
  return {
    asked,
    async call(name) {
      const { content } = (await client.callTool({ name, arguments: {} })) as { content: { text: string }[] };
      return content.map(({ text }) => text).join('\n');
    },
  };
}

const ask = {
  ...askOptions,
  authorize: (request: Request) => {
    const person = request.headers.get('x-person');
    return person === null ? undefined : { person, roles: ROLES[person] ?? [] };
  },
};

async function serve(url: string, options: AwaitOptions = { ask }): Promise<Served> {
  const served = await serveHere(build, { secrets: [SECRET], store: await openStore(url), ...options });
  cleanUps.push(() => served.close());
  return served;
}

describe.each(KINDS)('%s', (kind) => {
  it('takes the page’s answer alone, though the client could be asked', async () => {
    const url = SQLITE.url();
    const [one, two] = [await serve(url), await serve(url)];
    const caller = await open(kind, one);
    const first = await caller.call('pay');
    expect(first).toMatch(/^NOT DONE YET: pay waits for a person\.\nQuestion: Mine\?/);
    await ann.answer(two.url, linkIn(first), { day: 'Monday' });
    expect(await (await open(kind, two)).call('pay')).toBe('accept Monday');
    expect([caller.asked, effects]).toEqual([[], ['hold', 'pay']]);
  });

  it('takes no answer of a client that will not open the page', async () => {
    const served = await serve(SQLITE.url());
    const caller = await open(kind, served, 'ann', true);
    const paying = await caller.call('pay');
    for (const told of [paying, await caller.call('approve')]) expect(told).toMatch(/^NOT DONE YET/);
    expect(await caller.call('plain')).toContain('decline');
    await ann.answer(served.url, linkIn(paying), { day: 'Monday' });
    expect(await caller.call('pay')).toBe('accept Monday');
  });

  it('asks the client what has no such mark', async () => {
    const served = await serve(SQLITE.url());
    const caller = await open(kind, served);
    expect(await caller.call('plain')).toBe('accept by the client');
    expect(caller.asked).toEqual(['Plain?']);
    expect(await ann.read(served.url, PAGE)).toContain('Nothing waits for you now');
  });

  it('takes an answer of somebody with the role, and not of the caller without it', async () => {
    const served = await serve(SQLITE.url());
    const caller = await open(kind, served);
    const link = linkIn(await caller.call('approve'));
    const own = await ann.fetch(served.url, link);
    expect([own.status, await own.text()]).toEqual([200, expect.stringContaining('waits for somebody else')]);
    const other = await eve.fetch(served.url, link);
    const guessed = await eve.fetch(served.url, `${PAGE}/x`);
    expect([other.status, await other.text()]).toEqual([404, await guessed.text()]);
    for (const person of [ann, eve]) {
      // A form that fay was shown, sent by another.
      const body = filledForm(await fay.read(served.url, link));
      expect((await person.send(served.url, link, body)).status).toBe(person === ann ? 403 : 404);
    }
    expect(await ann.read(served.url, PAGE)).not.toContain('Approved?');
    expect(await eve.read(served.url, PAGE)).not.toContain('Approved?');
    expect(await fay.read(served.url, PAGE)).toContain('Approved?');
    expect((await fay.answer(served.url, link, { day: 'Friday' })).status).toBe(303);
    expect(await caller.call('approve')).toBe('accept Friday');
    expect(caller.asked).toEqual([]);
  });

  it('shows an ask whose texts are objects, and lists it beside others', async () => {
    const served = await serve(SQLITE.url());
    const caller = await open(kind, served);
    await caller.call('approve');
    const url = linkIn((await caller.call('odd')).split('\nLink: ')[1] ?? '');
    const list = await (await fay.fetch(served.url, PAGE)).text();
    expect(list).toContain('Approved?');
    expect(list).toContain('{&quot;toString&quot;:1}');
    expect((await fay.fetch(served.url, url)).status).toBe(200);
  });

  it('collects answers of the client, the caller’s person, and another', async () => {
    const served = await serve(SQLITE.url());
    const caller = await open(kind, served);
    const link = linkIn(await caller.call('mixed'));
    expect(caller.asked).toEqual(['Plain?']);
    expect(await ann.read(served.url, link)).toContain('Mine?');
    expect(await fay.read(served.url, link)).not.toContain('Mine?');
    await ann.answer(served.url, link, { day: 'A' });
    await fay.answer(served.url, link, { day: 'F' });
    expect(await caller.call('mixed')).toBe('accept by the client, accept A, accept F');
    expect(caller.asked).toEqual(['Plain?']);
  });

  it('gives the tool an error where it names nobody, or asks by anything but a form', async () => {
    const caller = await open(kind, await serve(SQLITE.url()));
    const lines = (await caller.call('nobody')).split('\n');
    expect(lines.slice(0, 7)).toEqual(Array(7).fill(expect.stringContaining("mcp-await/of a role's name")));
    expect(lines.slice(7)).toEqual(Array(2).fill(expect.stringContaining('must answer this form')));
    expect(caller.asked).toEqual([]);
  });

  it.each([
    ['of an anonymous caller', { ask }, ''],
    ['without a page', {}, 'ann'],
    ['of a caller without a person', { ask: { ...ask, person: () => undefined } }, 'ann'],
    ['of a tool that may not be run again', { ask, replay: () => 'never' as const }, 'ann'],
  ])('is not asked %s', async (_name, options, who) => {
    const caller = await open(kind, await serve(SQLITE.url(), options), who);
    // The tool may catch it, also on 2026-07-28.
    for (const tool of ['pay', 'approve'])
      expect(await caller.call(tool)).toMatch(/on the page of the option ask/);
    expect(caller.asked).toEqual([]);
  });
});

it('takes roles that are texts alone', async () => {
  const served = await serve(SQLITE.url(), {
    ask: { ...ask, authorize: () => ({ person: 'fay', roles: 'finance' as never }) },
  });
  expect((await fay.fetch(served.url, PAGE)).status).toBe(500);
  expect(served.log.text).toContain('ask.authorize must return');
});

it.each([
  ['pay', 'Mine?', ann],
  ['approve', 'Approved?', fay],
  ['plain', 'Plain?', ann],
])(
  '%s: takes no answer from a client that was sent the page, and declined at once',
  async (name, question, person) => {
    const one = await serve(SQLITE.url());
    // No time passes: it declines at once.
    const now = vi.spyOn(systemClock, 'now').mockReturnValue(Date.now());
    cleanUps.push(() => now.mockRestore());
    const { send } = await legacySession(
      one.url,
      { elicitation: { url: {} } },
      { authorization: 'Bearer ann' },
    );
    const params = { name, arguments: {} };
    const isAsk = ({ method }: { method?: string }): boolean => method === 'elicitation/create';
    const begun = await send({ id: 1, method: 'tools/call', params });
    const first = await begun.next(isAsk);
    const again = await send({ id: 2, method: 'tools/call', params });
    const second = await again.next(isAsk);
    await send({ id: second.id, result: { action: 'decline' } });
    await again.next(({ id }) => id === 2);
    await send({ method: 'notifications/cancelled', params: { requestId: 1 } });
    await send({ id: first.id, result: { action: 'accept', content: { day: 'by the client' } } });
    const link = String((first.params as { url: string }).url);
    // Called again, it takes the answer of its person.
    await send({ id: 3, method: 'tools/call', params });
    const page = () => person.read(one.url, link);
    await expect.poll(page).not.toContain('Stopped by the client');
    expect(await page()).toContain(question);
    expect(await page()).toContain('<form');
  },
);

it('takes the answer to a call with an idempotency key whose request was cancelled', async () => {
  const one = await serve(SQLITE.url());
  const { send } = await legacySession(one.url, {}, { authorization: 'Bearer ann' });
  const params = { name: 'pay', arguments: {}, _meta: { 'mcp-await/idempotency-key': 'cancelled' } };
  const first = await send({ id: 1, method: 'tools/call', params });
  const link = linkIn(JSON.stringify(await first.next(({ id }) => id === 1)).replaceAll('\\n', ' '));
  // Called again, it waits for its person; then its client cancels that.
  const again = await send({ id: 2, method: 'tools/call', params });
  await send({ method: 'notifications/cancelled', params: { requestId: 2 } });
  await again.cancel();
  expect((await ann.answer(one.url, link, { day: 'Monday' })).status).toBe(303);
  const last = await send({ id: 3, method: 'tools/call', params });
  expect(JSON.stringify(await last.next(({ id }) => id === 3))).toContain('accept Monday');
});

it.each(['ask', 'reuse'] as const)(
  'gives an ask for a person, that was caught, no answer of the client in a replay (drift: %s)',
  async (drift) => {
    const url = SQLITE.url();
    const one = await serve(url, { drift, limits: { frames: 0 } });
    const caller = await open('2026-07-28', one);
    expect(await caller.call('either')).toBe('nobody, accept by the client, accept by the client');
    expect(caller.asked).toEqual(['By the client?', 'And this?']);
    expect(effects).toEqual(['accept by the client']);
  },
);
