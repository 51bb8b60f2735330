/** What the page refuses: everybody but its person, and every way to it but its own form. */
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import * as z from 'zod';
import type { AskEvent } from '../../src/ask/options.ts';
import { WaitingCalls } from '../../src/ask/waiting-calls.ts';
import { KeyvCallStore } from '../../src/checkpoint/call-store.ts';
import { type AwaitOptions, createAwaitHandler } from '../../src/index.ts';
import { openStore } from '../../src/store.ts';
import { SECRET, type Served, serveHere } from '../e2e/harness.ts';
import { SQLITE } from '../e2e/services.ts';
import { filledForm, linkIn, PAGE } from './person.ts';

const ORIGIN = 'http://127.0.0.1:1';
const FORM_TYPE = 'application/x-www-form-urlencoded';
const FORM = { type: 'object' as const, properties: { day: { type: 'string' as const } }, required: ['day'] };

let ended = 0;
function build(): McpServer {
  const server = new McpServer({ name: 'booking', version: '1' });
  server.registerTool('book', { inputSchema: { to: z.string() } }, async ({ to }) => {
    const { action, content } = await server.server.elicitInput({
      message: `When to ${to}?`,
      requestedSchema: FORM,
    });
    ended += 1;
    return { content: [{ type: 'text', text: `${action} ${content?.day}` }] };
  });
  return server;
}

const ask = {
  page: PAGE,
  authorize: (from: Request) => {
    const person = from.headers.get('x-person');
    return person === null
      ? new Response(null, {
          status: 302,
          headers: { location: 'https://login.example/?a=1', 'set-cookie': 'a=1' },
        })
      : person;
  },
  person: (authInfo: Readonly<Record<string, unknown>> | undefined) =>
    authInfo?.clientId as string | undefined,
};

let served: Served;
const open: Client[] = [];
beforeEach(async () => {
  ended = 0;
  served = await serveHere(build, { tasks: 'optional', secrets: [SECRET], ask });
});
afterEach(async () => {
  await Promise.all(open.splice(0).map((client) => client.close()));
  await served.close();
});

async function clientOf(who: string, at = served): Promise<Client> {
  const client = new Client({ name: 'host', version: '1' });
  const requestInit = { headers: { authorization: `Bearer ${who}` } };
  await client.connect(new StreamableHTTPClientTransport(new URL(at.url), { requestInit }) as Transport);
  open.push(client);
  return client;
}

async function call(client: Client, to = 'rome', options = {}): Promise<string> {
  const { content } = await client.callTool({ name: 'book', arguments: { to } }, undefined, options);
  return (content as { text: string }[])[0]?.text ?? '';
}

function get(url: string, headers: Record<string, string> = { 'x-person': 'ann' }, init: RequestInit = {}) {
  return fetch(url.replace(ORIGIN, new URL(served.url).origin), { redirect: 'manual', ...init, headers });
}

async function formOf(url: string, fields: Record<string, string> = { day: 'Monday' }): Promise<string> {
  return filledForm(await (await get(url)).text(), fields).toString();
}

function post(url: string, body: string, headers: Record<string, string> = {}) {
  const own = { 'x-person': 'ann', origin: ORIGIN, 'content-type': FORM_TYPE };
  return get(url, { ...own, ...headers }, { method: 'POST', body });
}

describe('the page of an ask', () => {
  it('is for the caller’s person alone; to all others it is as unknown as a guessed one', async () => {
    const url = linkIn(await call(await clientOf('ann')));
    const form = await formOf(url);
    const bob = await get(url, { 'x-person': 'bob' });
    const guessed = await get(`${PAGE}/${'x'.repeat(url.length)}`, { 'x-person': 'bob' });
    expect([bob.status, guessed.status]).toEqual([404, 404]);
    expect(await bob.text()).toBe(await guessed.text());
    expect((await post(url, form, { 'x-person': 'bob' })).status).toBe(404);
    expect(await (await get(PAGE, { 'x-person': 'bob' })).text()).not.toContain('rome');
    expect(await (await get(PAGE)).text()).toContain('When to rome?');
    expect(ended).toBe(0);
  });

  it('is no client’s to answer, even one that knew the call’s id', async () => {
    const written = vi.spyOn(KeyvCallStore.prototype, 'insertEntry');
    const opened = vi.spyOn(KeyvCallStore.prototype, 'open');
    await served.close();
    served = await serveHere(build, { secrets: [SECRET], ask, store: await openStore(SQLITE.url()) });
    const client = await clientOf('ann');
    const url = linkIn(await call(client));
    const ids = opened.mock.calls.map(([record]) => record.id).filter((id) => id.endsWith('~'));
    expect(ids).toHaveLength(1);
    const key = /name="key"[^>]*value="([^"]*)"/.exec(await (await get(url)).text())?.[1];
    const transport = client.transport as StreamableHTTPClientTransport;
    const response = await fetch(served.url, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        authorization: 'Bearer ann',
        'mcp-session-id': transport.sessionId ?? '',
        'mcp-protocol-version': '2025-11-25',
      },
      body: JSON.stringify({
        jsonrpc: '2.0',
        id: `${ids[0]}/${key}`,
        result: { action: 'accept', content: { day: 'x' } },
      }),
    });
    expect(response.status).toBe(400);
    expect(written.mock.calls.filter(([{ id }]) => ids.includes(id))).toEqual([]);
    await post(url, await formOf(url));
    expect(await call(client)).toBe('accept Monday');
    vi.restoreAllMocks();
  });

  it('sends those without a session to the login, with its cookies', async () => {
    const url = linkIn(await call(await clientOf('ann')));
    const response = await get(url, {});
    expect(response.status).toBe(302);
    expect(response.headers.getSetCookie()).toEqual(['a=1']);
    const curl = await post(url, await formOf(url), { 'x-person': '' });
    expect(curl.status).toBe(403);
  });

  it('says so to those whose session has ended meanwhile: a browser follows no form to another site', async () => {
    const url = linkIn(await call(await clientOf('ann')));
    const headers = { origin: ORIGIN, 'content-type': FORM_TYPE };
    const response = await get(url, headers, { method: 'POST', body: await formOf(url) });
    expect([response.status, response.headers.get('location')]).toEqual([403, null]);
    const text = await response.text();
    expect(text).toContain('You are signed out');
    expect(text).toContain(`href="${PAGE}"`);
    // The answer counts once they are back.
    expect((await post(url, await formOf(url))).status).toBe(303);
  });

  it('takes no form from elsewhere, and none without its token', async () => {
    const url = linkIn(await call(await clientOf('ann')));
    const body = await formOf(url);
    const token = (value: string): string => body.replace(/token=[^&]*/, `token=${value}`);
    const other = linkIn(await call(await clientOf('ann'), 'oslo'));
    const others = /token=([^&]*)/.exec(await formOf(other))?.[1] ?? '';
    for (const [wrong, headers] of [
      [body, { origin: 'https://evil.example' }],
      [body, { origin: 'null' }],
      [body, { 'sec-fetch-site': 'cross-site' }],
      [token(''), {}],
      [token(others), {}],
      [body.replace('accept', 'approve'), {}],
    ] as const)
      expect((await post(url, wrong, headers)).status).toBe(403);
    expect((await post(url, body, { 'content-type': 'text/plain' })).status).toBe(415);
    expect((await post(PAGE, body)).status).toBe(405);
    expect((await get(`${url}?${body}`)).status).toBe(200);
    expect((await post(url, `${body}&x=${'y'.repeat(300_000)}`)).status).toBe(413);
    expect(ended).toBe(0);
  });

  it('takes one answer, also from two forms at once, and says so', async () => {
    const client = await clientOf('ann');
    const url = linkIn(await call(client));
    const form = await formOf(url);
    const statuses = await Promise.all([post(url, form), post(url, form), post(url, form)]);
    expect(statuses.map(({ status }) => status).sort()).toEqual([303, 409, 409]);
    expect(await statuses.find(({ status }) => status === 409)?.text()).toContain('does not count');
    expect(await call(client)).toBe('accept Monday');
    expect((await post(url, form)).status).toBe(404);
    expect(ended).toBe(1);
  });

  it('shows a wrong answer again, and takes a right one', async () => {
    const client = await clientOf('ann');
    const url = linkIn(await call(client));
    const wrong = await post(url, await formOf(url, {}));
    expect(wrong.status).toBe(422);
    expect((await post(url, await formOf(url))).status).toBe(303);
    expect(await call(client)).toBe('accept Monday');
  });

  it('does nothing by itself: the call goes on with the next equal call alone', async () => {
    const client = await clientOf('ann');
    const url = linkIn(await call(client));
    await post(url, await formOf(url));
    await new Promise((resolve) => setTimeout(resolve, 1_200));
    expect(ended).toBe(0);
    expect(linkIn(await call(client, 'bern'))).not.toBe(url);
    const bob = await clientOf('bob');
    expect(linkIn(await call(bob))).not.toBe(url);
    expect(ended).toBe(0);
    expect(await call(client)).toBe('accept Monday');
  });

  it('takes no answer for a call that its client stopped, until it is called again', async () => {
    const client = await clientOf('ann');
    const url = linkIn(await call(client));
    const form = await formOf(url);
    const stop = new AbortController();
    const waiting = call(client, 'rome', { signal: stop.signal }).catch(() => 'stopped');
    await new Promise((resolve) => setTimeout(resolve, 300));
    stop.abort();
    expect(await waiting).toBe('stopped');
    await expect.poll(async () => (await get(url)).status).toBe(409);
    expect((await post(url, form)).status).toBe(409);
    const again = call(client);
    await expect.poll(async () => (await get(url)).status).toBe(200);
    expect((await post(url, form)).status).toBe(303);
    expect(await again).toBe('accept Monday');
  });

  it('takes an answer while one of two equal calls waits, when the client stopped the other', async () => {
    const client = await clientOf('ann');
    const url = linkIn(await call(client));
    const opened = vi.spyOn(WaitingCalls.prototype, 'resume');
    const stopped = vi.spyOn(KeyvCallStore.prototype, 'replace');
    const stop = new AbortController();
    const first = call(client, 'rome', { signal: stop.signal }).catch(() => 'stopped');
    const second = call(client);
    await expect.poll(() => opened.mock.calls.length).toBe(2);
    stop.abort();
    expect(await first).toBe('stopped');
    // Stopped by one, and resumed by the other.
    await expect.poll(() => stopped.mock.calls.filter(([name]) => name.endsWith(':stopped'))).toHaveLength(2);
    await Promise.all(stopped.mock.results.map(({ value }) => value));
    vi.restoreAllMocks();
    expect((await post(url, await formOf(url))).status).toBe(303);
    expect(await second).toBe('accept Monday');
  });

  it('lets a task wait, and go on by itself', async () => {
    const client = await clientOf('ann');
    const { task } = await client.request(
      { method: 'tools/call', params: { name: 'book', arguments: { to: 'lima' }, task: { ttl: 60_000 } } },
      z.looseObject({ task: z.looseObject({ taskId: z.string() }) }),
    );
    const { taskId } = task;
    const list = async (): Promise<string> => (await get(PAGE)).text();
    await expect.poll(list).toContain('When to lima?');
    const url = /href="(http[^"]*\/ask\/[^"]*)"/.exec(await list())?.[1] ?? '';
    expect(ended).toBe(0);
    expect((await post(url, await formOf(url))).status).toBe(303);
    const result = z.looseObject({ content: z.array(z.looseObject({ text: z.string() })) });
    const { content } = await client.request({ method: 'tasks/result', params: { taskId } }, result);
    expect(content[0]?.text).toBe('accept Monday');
    expect(ended).toBe(1);
  });

  it('takes no acceptance of what it cannot show whole, and lists its beginning', async () => {
    const client = await clientOf('ann');
    const url = linkIn((await call(client, 'x'.repeat(250_000))).split('\nLink: ')[1] ?? '');
    const list = await (await get(PAGE)).text();
    expect(list).toContain('When to xxx');
    expect(list.length).toBeLessThan(10_000);
    const text = await (await get(url)).text();
    expect(text).toContain('too long');
    expect(text).not.toContain('value="accept"');
    const accepted = await post(url, await formOf(url));
    expect([accepted.status, await accepted.text()]).toEqual([
      403,
      expect.stringContaining('cannot be accepted'),
    ]);
    const declined = (await formOf(url)).replace('action=accept', 'action=decline');
    expect((await post(url, declined)).status).toBe(303);
  });

  it('cannot be framed, is not kept, and runs no script', async () => {
    const { headers } = await get(linkIn(await call(await clientOf('ann'))));
    expect(headers.get('content-security-policy')).toMatch(/default-src 'none';.*frame-ancestors 'none'/);
    expect(headers.get('cache-control')).toBe('no-store');
    expect(headers.get('x-frame-options')).toBe('DENY');
    expect(headers.get('referrer-policy')).toBe('same-origin');
  });

  it('is over once its call has expired, and says so by `on`', async () => {
    const events: AskEvent[] = [];
    const on = (event: AskEvent): void => void events.push(event);
    const brief = await serveHere(build, { secrets: [SECRET], ttl: 1_500, ask: { ...ask, on } });
    const url = linkIn(await call(await clientOf('ann', brief)));
    const at = url.replace(ORIGIN, new URL(brief.url).origin);
    const shown = async (): Promise<number> => (await fetch(at, { headers: { 'x-person': 'ann' } })).status;
    expect(await shown()).toBe(200);
    await expect.poll(shown).toBe(404);
    await expect.poll(() => events.map(({ what }) => what)).toEqual(['opened', 'expired']);
    expect(JSON.stringify(events)).not.toContain('rome');
    await brief.close();
  });

  it('is not offered to an anonymous caller, nor to one without a person', async () => {
    const client = new Client({ name: 'host', version: '1' });
    await client.connect(new StreamableHTTPClientTransport(new URL(served.url)) as Transport);
    open.push(client);
    expect(await call(client)).toContain('Client does not support');
    const nobody = await serveHere(build, { secrets: [SECRET], ask: { ...ask, person: () => undefined } });
    expect(await call(await clientOf('ann', nobody))).toContain('Client does not support');
    expect((await fetch(nobody.url.replace('/mcp', '/ask'), { headers: { 'x-person': '' } })).status).toBe(
      403,
    );
    await nobody.close();
  });

  it('is erased with its caller’s calls', async () => {
    const url = linkIn(await call(await clientOf('ann')));
    expect((await post(url, await formOf(url, { day: 'a secret day' }))).status).toBe(303);
    const name = served.handler.nameOf({ clientId: 'ann', token: 'secret-of-ann', scopes: [] }) ?? '';
    expect(await served.handler.forget(name)).toBeGreaterThan(0);
    expect((await get(url)).status).toBe(404);
  });

  it('takes no answer that was on its way while its call was erased', async () => {
    const url = linkIn(await call(await clientOf('ann')));
    const form = await formOf(url, { day: 'a secret day' });
    const { answer } = WaitingCalls.prototype;
    let [goOn, comes] = [() => {}, () => {}];
    const arrived = new Promise<void>((resolve) => (comes = resolve));
    const erased = new Promise<void>((resolve) => (goOn = resolve));
    const slow = vi.spyOn(WaitingCalls.prototype, 'answer').mockImplementation(async function (
      this: WaitingCalls,
      ...args
    ) {
      comes();
      await erased;
      return answer.apply(this, args);
    });
    const insert = vi.spyOn(KeyvCallStore.prototype, 'insert');
    const sent = post(url, form);
    await arrived;
    const name = served.handler.nameOf({ clientId: 'ann', token: 'secret-of-ann', scopes: [] }) ?? '';
    expect(await served.handler.forget(name)).toBeGreaterThan(0);
    goOn();
    expect((await sent).status).toBe(409);
    const taken = insert.mock.calls.findIndex(([record]) => record.includes(':answer '));
    expect(await insert.mock.results[taken]?.value).toBe(false);
    slow.mockRestore();
    insert.mockRestore();
  });
});

it.each<[string, AwaitOptions]>([
  ['secrets', { ask }],
  ['a store', { secrets: [SECRET], state: 'sealed', ask }],
  ['https', { secrets: [SECRET], ask: { ...ask, page: 'http://mcp.example.com/ask' } }],
  ['user, query', { secrets: [SECRET], ask: { ...ask, page: 'https://ann:secret@mcp.example.com/ask' } }],
  ['query and', { secrets: [SECRET], ask: { ...ask, page: 'https://mcp.example.com/ask?' } }],
  ['fragment', { secrets: [SECRET], ask: { ...ask, page: 'https://mcp.example.com/ask#a' } }],
  ['a path of its own', { secrets: [SECRET], ask: { ...ask, page: 'https://mcp.example.com/' } }],
  ['must be a function', { secrets: [SECRET], ask: { ...ask, authorize: undefined as never } }],
  ['there are page', { secrets: [SECRET], ask: { ...ask, pages: 1 } as never }],
])('refuses the option without %s', (says, options) => {
  expect(() => createAwaitHandler(build, options)).toThrow(
    expect.objectContaining({ code: 'bad-option', message: expect.stringContaining(says) }),
  );
});

it.each([
  [
    'throws',
    () => {
      throw new Error('away');
    },
  ],
  [
    'returns a promise, which a name is not',
    (async () => {
      throw new Error('away');
    }) as never,
  ],
])('a caller has no person, and its process goes on, where `person` %s', async (_how, person) => {
  const errors: unknown[] = [];
  const logger = { debug() {}, info() {}, warn() {}, error: (message: string) => void errors.push(message) };
  const at = await serveHere(build, { secrets: [SECRET], ask: { ...ask, person }, logger });
  const client = await clientOf('ann', at);
  const { isError } = await client.callTool({ name: 'book', arguments: { to: 'rome' } });
  expect(isError).toBe(true);
  expect(errors).toContain('ask.person threw; the caller has no person');
  await at.close();
});
