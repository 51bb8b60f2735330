/** What lives across calls: `instance: 'call' | 'session' | 'caller' | 'process'`. */
import { McpServer as McpServerV1 } from '@modelcontextprotocol/sdk/server/mcp.js';
import { McpServer } from '@modelcontextprotocol/server';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { z } from 'zod';
import {
  type AwaitHandler,
  type AwaitOptions,
  createAwaitHandler,
  type ServerOptions,
} from '../../src/index.ts';
import {
  allRounds,
  CAPABILITIES,
  type Fetch,
  INFO,
  modernTalk,
  sessionTalk,
  type Talk,
  type Told,
} from '../differential/talk.ts';
import { LogBook } from '../e2e/harness.ts';

const requestedSchema = { type: 'object' as const, properties: { name: { type: 'string' as const } } };
const reply = (value: unknown) => ({ content: [{ type: 'text' as const, text: JSON.stringify(value) }] });

let made: { id: number; authInfo: unknown }[] = [];
let cleaned: number[] = [];
const handlers: AwaitHandler[] = [];
afterEach(async () => {
  vi.useRealTimers();
  await Promise.all(handlers.splice(0).map((handler) => handler.close()));
  made = [];
  cleaned = [];
});

/** Says which of its instances a call is in, how many there were in it, and whom it may ask. */
function host(options: AwaitOptions): (caller?: string) => Fetch {
  const handler = createAwaitHandler(
    ({ authInfo }) => {
      const id = made.length + 1;
      made.push({ id, authInfo });
      const server = new McpServer({ name: 'counter', version: '1.0.0' });
      let calls = 0;
      server.registerTool('count', { inputSchema: z.object({}) }, () => {
        calls += 1;
        return reply({
          id,
          calls,
          elicits: server.server.getClientCapabilities()?.elicitation !== undefined,
        });
      });
      server.registerTool(
        'ask',
        { inputSchema: z.object({ who: z.string() }) },
        async ({ who }, { mcpReq }) => {
          const { content } = await mcpReq.elicitInput({ message: `${who}?`, requestedSchema });
          return reply({ id, who, name: content?.name });
        },
      );
      return { server, cleanup: () => cleaned.push(id) };
    },
    { logger: new LogBook(), ...options },
  );
  handlers.push(handler);
  return (caller) => (request) =>
    handler.fetch(
      request,
      caller === undefined ? {} : { authInfo: { token: caller, clientId: caller, scopes: [] } },
    );
}

const resultOf = ({ response }: Told): { id: number; calls: number; elicits: boolean } => {
  const { content } = (response?.result ?? { content: [] }) as { content: { text: string }[] };
  return JSON.parse(content[0]?.text ?? '{}');
};
const count = async (talk: Talk) =>
  resultOf(await talk.request('tools/call', { name: 'count', arguments: {} }));
const principal = (authInfo: Readonly<Record<string, unknown>> | undefined) =>
  typeof authInfo?.clientId === 'string' ? authInfo.clientId : undefined;

describe('an instance', () => {
  it('is a call’s on 2026-07-28 and a session’s on 2025-11-25 by default', async () => {
    const fetch = host({ principal })('ann');
    const modern = modernTalk(fetch);
    expect([(await count(modern)).id, (await count(modern)).id]).toEqual([1, 2]);
    const session = await sessionTalk(fetch, '2025-11-25');
    expect([(await count(session)).id, (await count(session)).calls]).toEqual([3, 2]);
  });

  it('of each known caller continues from call to call, and from session to session', async () => {
    const as = host({ instance: 'caller', principal });
    const ann = modernTalk(as('ann'));
    expect([(await count(ann)).calls, (await count(ann)).calls]).toEqual([1, 2]);
    expect((await ann.request('tools/list')).response).toMatchObject({ result: { tools: [{}, {}] } });
    expect(await count(modernTalk(as('bob')))).toMatchObject({ id: 2, calls: 1 });
    const one = await sessionTalk(as('ann'), '2025-11-25');
    const other = await sessionTalk(as('ann'), '2025-11-25');
    expect(await count(one)).toMatchObject({ id: 3, calls: 1 });
    expect(await count(other)).toMatchObject({ id: 3, calls: 2 });
    expect(made).toHaveLength(3);
  });

  it('of a caller is never an anonymous one’s', async () => {
    const talk = modernTalk(host({ instance: 'caller', principal })());
    expect([(await count(talk)).id, (await count(talk)).id]).toEqual([1, 2]);
  });

  it('of the process serves all callers, and is made without credentials', async () => {
    const as = host({ instance: 'process', principal });
    expect(await count(modernTalk(as('ann')))).toMatchObject({ id: 1, calls: 1 });
    expect(await count(modernTalk(as('bob')))).toMatchObject({ id: 1, calls: 2 });
    expect(await count(modernTalk(as()))).toMatchObject({ id: 1, calls: 3 });
    expect(made).toEqual([{ id: 1, authInfo: undefined }]);
  });

  it.each(['caller', 'process'] as const)(
    '(%s) is apart by what its client can be asked',
    async (instance) => {
      const fetch = host({ instance, principal })('ann');
      const mute = { capabilities: {} };
      expect(await count(modernTalk(fetch))).toMatchObject({ id: 1, elicits: true });
      expect(await count(modernTalk(fetch, mute))).toMatchObject({ id: 2, elicits: false });
      expect(await count(modernTalk(fetch))).toMatchObject({ id: 1, calls: 2, elicits: true });
      const other = { info: { ...INFO, name: 'other' } };
      expect(await count(modernTalk(fetch, other))).toMatchObject({ id: 3 });
      expect(await count(await sessionTalk(fetch, '2025-11-25', mute))).toMatchObject({
        id: 4,
        elicits: false,
      });
      expect(await count(await sessionTalk(fetch, '2025-11-25'))).toMatchObject({ id: 5, elicits: true });
      expect(await count(await sessionTalk(fetch, '2025-06-18'))).toMatchObject({ id: 6, elicits: true });
      expect(CAPABILITIES).toHaveProperty('elicitation');
    },
  );

  it('that is shared gives each call the answers to its own questions', async () => {
    const as = host({ instance: 'process', principal });
    const ask = (talk: Talk, who: string) =>
      allRounds(talk, 'tools/call', { name: 'ask', arguments: { who } });
    const asked = await Promise.all(['ann', 'bob', 'cleo'].map((who) => ask(modernTalk(as(who)), who)));
    for (const [index, who] of ['ann', 'bob', 'cleo'].entries()) {
      const { rounds, told } = asked[index] ?? { rounds: [], told: undefined };
      expect(JSON.stringify(rounds)).toContain(`${who}?`);
      expect(told && resultOf(told)).toMatchObject({ id: 1, who, name: 'Ann' });
    }
  });

  it('that is kept continues while calls in it are suspended, replayed or dropped', async () => {
    const fetch = host({ instance: 'caller', principal, limits: { frames: 0 } })('ann');
    const talk = modernTalk(fetch);
    const { told } = await allRounds(talk, 'tools/call', { name: 'ask', arguments: { who: 'ann' } });
    expect(resultOf(told)).toMatchObject({ id: 1, name: 'Ann' });
    await talk.request('tools/call', { name: 'ask', arguments: { who: 'never answered' } });
    expect(await count(talk)).toMatchObject({ id: 1 });
    expect(cleaned).toEqual([]);
  });

  it('of a caller is closed after a long time without use, and all are with the handler', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const as = host({ instance: 'caller', principal, limits: { sessionIdle: 60_000 } });
    await count(modernTalk(as('ann')));
    await count(modernTalk(as('bob')));
    vi.advanceTimersByTime(40_000);
    await count(modernTalk(as('bob')));
    vi.advanceTimersByTime(40_000);
    vi.useRealTimers();
    await expect.poll(() => cleaned).toEqual([1]);
    await Promise.all(handlers.splice(0).map((handler) => handler.close()));
    await expect.poll(() => cleaned).toEqual([1, 2]);
  });

  it('of a caller is closed early where too many are kept', async () => {
    const as = host({ instance: 'caller', principal, limits: { sessions: 2 } });
    for (const caller of ['ann', 'bob', 'ann', 'cleo']) await count(modernTalk(as(caller)));
    await expect.poll(() => cleaned).toEqual([2]);
  });

  const servers = {
    'SDK v1': (serverOptions: ServerOptions) => {
      const server = new McpServerV1({ name: 'sharing', version: '1.0.0' }, serverOptions);
      server.registerTool('ask', {}, async () => {
        const { content } = await server.server.elicitInput({ message: 'Who?', requestedSchema });
        return reply({ name: content?.name });
      });
      return server;
    },
    'SDK v2': (serverOptions: ServerOptions) => {
      const server = new McpServer({ name: 'sharing', version: '1.0.0' }, serverOptions);
      server.registerTool('ask', {}, async ({ mcpReq }) => {
        const { content } = await mcpReq.elicitInput({ message: 'Who?', requestedSchema });
        return reply({ name: content?.name });
      });
      return server;
    },
  };
  it.each(Object.entries(servers))('is given a validator that all share, for %s', async (_sdk, build) => {
    const given: ServerOptions[] = [];
    const handler = createAwaitHandler(
      ({ serverOptions }) => {
        given.push(serverOptions);
        return build(serverOptions);
      },
      { logger: new LogBook() },
    );
    handlers.push(handler);
    const talk = modernTalk((request) => handler.fetch(request));
    for (let nth = 0; nth < 3; nth += 1) {
      const { told } = await allRounds(talk, 'tools/call', { name: 'ask', arguments: {} });
      expect(resultOf(told)).toEqual({ name: 'Ann' });
    }
    expect(new Set(given.map(({ jsonSchemaValidator }) => jsonSchemaValidator)).size).toBe(1);
    expect(given).toHaveLength(3);
  });
});
