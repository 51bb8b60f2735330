/** A change of secrets while calls are under way, in its three phases, each with old and new processes at once. */
import { afterEach, describe, expect, it } from 'vitest';
import { openStore } from '../../src/checkpoint/open-store.ts';
import type { AwaitOptions } from '../../src/index.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { accept, messagesIn, post, type RawReply, textOf } from './clients.ts';
import { OLD_SECRET, SECRET, type Served, serveHere } from './harness.ts';
import { SQLITE } from './services.ts';

const [OLD, NEW] = [OLD_SECRET, SECRET];
/** What the processes of before have, and those that take their places. */
const PHASES: readonly (readonly [string, readonly string[], readonly string[]])[] = [
  ['one: all learn to open what is sealed with the new one', [OLD], [OLD, NEW]],
  ['two: the new one seals', [OLD, NEW], [NEW, OLD]],
  ['three: the old one goes, once nothing of it is under way', [NEW, OLD], [NEW]],
];
const KINDS: readonly (readonly [string, AwaitOptions])[] = [
  ['stored', {}],
  ['stored and encrypted', { encrypt: true }],
  ['sealed', { state: 'sealed' }],
];

const open: Served[] = [];
afterEach(() => Promise.all(open.splice(0).map((served) => served.close())));

describe.each(KINDS)('calls that are %s', (_kind, options) => {
  it.each(PHASES)('continue through phase %s', async (_name, before, after) => {
    const place = SQLITE.url();
    const serve = async (secrets: readonly string[]): Promise<string> => {
      const served = await serveHere(() => buildServer(() => {}), {
        store: await openStore(place),
        limits: { frames: 0 },
        ...options,
        secrets,
      });
      open.push(served);
      return served.url;
    };
    const [old, fresh] = [await serve(before), await serve(after)];
    const call = { tool: 'in-turn' };
    const go = (url: string, from: RawReply): Promise<RawReply> =>
      post(url, { ...call, state: from.state, responses: accept(from.keys, valuesOf(from)) });
    // There and back, in both directions.
    for (const [one, other] of [
      [old, fresh],
      [fresh, old],
    ] as const) {
      const first = await post(one, call);
      const second = await go(other, first);
      const third = await go(one, second);
      expect(textOf(await go(other, third))).toBe('Ann, Ann, Ann');
    }
  });

  it('end where the old one is gone too early, with the frozen sentence', async () => {
    const place = SQLITE.url();
    const shared = { ...options, store: await openStore(place) };
    const old = await serveHere(() => buildServer(() => {}), { ...shared, secrets: [OLD] });
    const fresh = await serveHere(() => buildServer(() => {}), { ...shared, secrets: [NEW] });
    open.push(old, fresh);
    const first = await post(old.url, { tool: 'one' });
    const refused = await post(fresh.url, { tool: 'one', state: first.state, responses: {} });
    expect(refused.text).toContain('Invalid or expired requestState');
  });
});

it.each(PHASES)('sessions continue through phase %s', async (_name, before, after) => {
  const place = SQLITE.url();
  const urls: string[] = [];
  for (const secrets of [before, after]) {
    const served = await serveHere(() => buildServer(() => {}), { store: await openStore(place), secrets });
    open.push(served);
    urls.push(served.url);
  }
  for (const [one, other] of [urls, [...urls].reverse()] as [string, string][]) {
    const send = (url: string, body: object, session?: string): Promise<Response> =>
      fetch(url, {
        method: 'POST',
        body: JSON.stringify({ jsonrpc: '2.0', ...body }),
        headers: {
          'content-type': 'application/json',
          accept: 'application/json, text/event-stream',
          ...(session !== undefined && { 'mcp-session-id': session }),
        },
      });
    const params = {
      protocolVersion: '2025-11-25',
      capabilities: {},
      clientInfo: { name: 'rotation', version: '1' },
    };
    const begun = await send(one, { id: 0, method: 'initialize', params });
    const session = begun.headers.get('mcp-session-id') ?? '';
    await begun.text();
    for (const url of [one, other]) {
      const reply = await send(url, { id: 1, method: 'tools/list', params: {} }, session);
      expect(messagesIn(await reply.text()).at(-1)?.result?.tools).not.toHaveLength(0);
    }
  }
});

/** Ann, whatever is asked. */
function valuesOf({ message }: RawReply): Record<string, string> {
  const fields = Object.values(message.result?.inputRequests ?? {}).flatMap(({ params }) => {
    const schema = (params?.requestedSchema ?? {}) as { properties?: object };
    return Object.keys(schema.properties ?? {});
  });
  return Object.fromEntries(fields.map((field) => [field, 'Ann']));
}
