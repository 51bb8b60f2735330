/** Two `proxy --forward-authorization` on one store: a call goes on at the other one, with its own caller's token. */
import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { openStore } from '../../src/checkpoint/open-store.ts';
import { answer, asks, begin } from './anywhere.ts';
import { CAPABILITIES, modernHeaders, post, send, textOf } from './clients.ts';
import { authorityOfSuite, bearer, type Guarded, guarded, type Kind } from './guarded.ts';
import { type RunningProxy, startProxy } from './proxied.ts';
import { REDIS, redisDatabase, SQLITE } from './services.ts';

const { oauth, closing } = await authorityOfSuite();

interface Two {
  readonly upstream: Guarded;
  readonly proxies: readonly [RunningProxy, RunningProxy];
  readonly store: string;
}

async function start(kind: Kind, more: readonly string[] = []): Promise<Two> {
  const upstream = await guarded(kind, oauth);
  closing.push(() => upstream.close());
  const store = SQLITE.url();
  const flags = ['--url', upstream.url, '--forward-authorization', '--store', store, '--limit', 'lease=2500'];
  const proxies = await Promise.all([
    startProxy([], [...flags, ...more]),
    startProxy([], [...flags, ...more]),
  ]);
  closing.push(() => Promise.all(proxies.map((proxy) => proxy.stop('SIGKILL'))));
  upstream.seen.length = 0;
  return { upstream, proxies, store };
}

const RESPONSES = { name: { action: 'accept', content: { name: 'Ann' } } };

async function recordsIn(url: string): Promise<string> {
  const keyv = await openStore(url);
  const records: string[] = [];
  for await (const [key, value] of keyv.iterator?.(keyv.namespace) ?? [])
    records.push(`${String(key)} ${JSON.stringify(value)}`);
  await keyv.disconnect();
  return records.join('\n');
}

/** Of the calls that came in. */
function tokensOf({ upstream }: Two): Set<string | undefined> {
  return new Set(upstream.seen.filter(({ method }) => method === 'tools/call').map(({ token }) => token));
}

describe.each<Kind>(['2025-11-25', '2026-07-28'])('before a server of %s', (kind) => {
  it('a call of 2026-07-28 goes on at the other proxy, for its own caller alone', async () => {
    const two = await start(kind);
    const [one, other] = two.proxies;
    const [ann, ben] = [oauth.issue('ann'), oauth.issue('ben')];
    const asked = await post(one.url, { tool: 'ask', headers: bearer(ann) });
    const [key = ''] = asked.keys;
    const retry = { tool: 'ask', state: asked.state, responses: { [key]: RESPONSES.name } };
    await one.stop('SIGKILL');
    expect((await post(other.url, { ...retry, headers: bearer(ben) })).message.error?.code).toBe(-32602);
    expect((await post(other.url, { ...retry, headers: bearer(randomUUID()) })).status).toBe(401);
    expect((await post(other.url, retry)).status).toBe(401);
    expect(textOf(await post(other.url, { ...retry, headers: bearer(ann) }))).toBe('Ann, says ann');
    expect(tokensOf(two)).toEqual(new Set([ann]));
    for (const text of [await recordsIn(two.store), one.stderr(), other.stderr()])
      expect(text).not.toContain(ann);
  });

  it('a call of 2025-11-25 goes on at the other proxy', async () => {
    const two = await start(kind);
    const [one, other] = two.proxies;
    const ann = oauth.issue('ann');
    const session = await begin(two.proxies, { elicitation: {} }, ann);
    const stream = await session.post(0, {
      id: 7,
      method: 'tools/call',
      params: { name: 'ask', arguments: {} },
    });
    const ask = await stream.next(asks('name'));
    const { last } = stream;
    await one.stop('SIGKILL');
    await session.post(1, answer(ask, 'name'));
    const resumed = await session.get(1, last);
    const { result } = await resumed.next(({ id }) => id === 7);
    expect(result?.content?.[0]?.text).toBe('its name, says ann');
    expect(tokensOf(two)).toEqual(new Set([ann]));
    for (const text of [await recordsIn(two.store), other.stderr()]) expect(text).not.toContain(ann);
  });
});

it.skipIf(REDIS.down)('over a relay, a call goes on in the session that it has at the server', async () => {
  const two = await start('2025-11-25', ['--relay', redisDatabase(5)]);
  const [one, other] = two.proxies;
  const [ann, ben] = [oauth.issue('ann'), oauth.issue('ben')];
  const asked = await post(one.url, { tool: 'ask', headers: bearer(ann) });
  const [key = ''] = asked.keys;
  const retry = {
    tool: 'ask',
    state: asked.state,
    responses: { [key]: RESPONSES.name },
    headers: bearer(ann),
  };
  expect(textOf(await post(other.url, retry))).toBe('Ann, says ann');
  for (const proxy of two.proxies) {
    expect(textOf(await post(proxy.url, { tool: 'who', headers: bearer(ben) }))).toBe('ben');
    expect(textOf(await post(proxy.url, { tool: 'who', headers: bearer(ann) }))).toBe('ann');
  }
  // One for each caller.
  expect([...two.upstream.sessions.values()].map((tokens) => [...tokens])).toEqual([[ann], [ben]]);
  expect(two.upstream.seen.filter(({ method }) => method === 'tools/call')).toHaveLength(5);
});

it('a task whose process is killed gets no other token, and ends with an error', async () => {
  const two = await start('2026-07-28', ['--tasks', 'now']);
  const [one, other] = two.proxies;
  const ann = oauth.issue('ann');
  const headers = bearer(ann);
  const capabilities = { ...CAPABILITIES, extensions: { 'io.modelcontextprotocol/tasks': {} } };
  const made = await post(one.url, { tool: 'slow', headers, capabilities });
  const taskId = String(made.message.result?.taskId);
  await expect.poll(() => two.upstream.seen.some(({ method }) => method === 'tools/call')).toBe(true);
  await one.stop('SIGKILL');
  const get = async (): Promise<unknown> => {
    const _meta = {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientInfo': { name: 'e2e', version: '1' },
      'io.modelcontextprotocol/clientCapabilities': capabilities,
    };
    const body = { jsonrpc: '2.0', id: 1, method: 'tasks/get', params: { taskId, _meta } };
    const { message } = await send(other.url, JSON.stringify(body), {
      headers: { ...modernHeaders('tasks/get', taskId), ...headers },
    });
    return message.result?.status ?? message;
  };
  await expect.poll(get).toBe('failed');
  expect(tokensOf(two)).toEqual(new Set([ann]));
});
