/** The options of asks, and what comes for none, on the SDKs' own transports and hosted. */
import { randomUUID } from 'node:crypto';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { InMemoryEventStore } from '@modelcontextprotocol/sdk/examples/shared/inMemoryEventStore.js';
import { WebStandardStreamableHTTPServerTransport as TransportV1 } from '@modelcontextprotocol/sdk/server/webStandardStreamableHttp.js';
import { WebStandardStreamableHTTPServerTransport as TransportV2 } from '@modelcontextprotocol/server';
import { afterEach, describe, expect, it } from 'vitest';
import { type AwaitHandler, createAwaitHandler } from '../../src/index.ts';
import { LogBook } from '../e2e/harness.ts';
import { askerV1, askerV2 } from './asker.ts';
import { type Differs, expectSame } from './compare.ts';
import { nativeSessions } from './native.ts';
import { type Fetch, type How, type Json, sessionTalk, type Talk, type Told } from './talk.ts';

let handlers: AwaitHandler[] = [];
afterEach(async () => {
  await Promise.all(handlers.map((handler) => handler.close()));
  handlers = [];
});

const SERVERS = [
  {
    sdk: 'v1',
    build: askerV1,
    native: (): Fetch =>
      nativeSessions(async () => {
        const eventStore = new InMemoryEventStore();
        const transport = new TransportV1({ sessionIdGenerator: randomUUID, eventStore });
        await askerV1().connect(transport);
        return transport;
      }),
  },
  {
    sdk: 'v2',
    build: askerV2,
    native: (): Fetch =>
      nativeSessions(async () => {
        const eventStore = new InMemoryEventStore();
        const transport = new TransportV2({ sessionIdGenerator: randomUUID, eventStore });
        await askerV2().connect(transport);
        return transport;
      }),
  },
];

const resultOf = ({ response }: Told): unknown => response?.result;
const textOf = ({ response }: Told): unknown => {
  const { content } = (response?.result ?? { content: [] }) as { content: { text: string }[] };
  return JSON.parse(content[0]?.text ?? 'null');
};
const tool = (talk: Talk, name: string): Promise<Told> => talk.request('tools/call', { name, arguments: {} });

/** The params of an ask, with the kind of its token in place of the token. */
const paramsOf = ({ params }: Json): Json => {
  const { _meta, ...rest } = params as Json;
  const { progressToken } = (_meta ?? {}) as Json;
  return { ...rest, listens: progressToken !== undefined };
};

describe.each(SERVERS)('a server of SDK $sdk', ({ build, native }) => {
  const hosted = (): Fetch => {
    const handler = createAwaitHandler(() => build(), { logger: new LogBook() });
    handlers.push(handler);
    return (request) => handler.fetch(request);
  };
  const both = async (
    see: (talk: Talk) => Promise<unknown>,
    differs?: Differs,
    revision = '2025-11-25',
    how: How = {},
  ): Promise<void> => {
    const one = await see(await sessionTalk(native(), revision, how));
    expectSame(one, await see(await sessionTalk(hosted(), revision, how)), differs);
  };

  it.each(['listens', 'listens-by-method'])('gets what its client reports on an ask (%s)', async (name) => {
    await both(async (talk) => {
      const told = await tool(talk, name);
      const seen = textOf(told) as { reports: unknown[] };
      expect(seen.reports).toHaveLength(2);
      return { seen, asked: told.asked.map(paramsOf) };
    });
  });

  it.each(['gives-up', 'gives-up-in-all'])('gets the same error when it %s, and asks once', async (name) => {
    await both(
      async (talk) => {
        const told = await tool(talk, name);
        return { error: textOf(told), asked: told.asked.map(paramsOf) };
      },
      undefined,
      '2025-11-25',
      { silent: true },
    );
  });

  it('gets an error for progress on what it did not ask, and for an answer to it', async () => {
    await both(
      async (talk) => {
        await talk.notify('notifications/progress', { progressToken: 'p', progress: 1 });
        const status = await talk.respond?.('stray', { action: 'accept' });
        const repeated = await tool(talk, 'listens');
        const [ask] = repeated.asked;
        await talk.respond?.(ask?.id, { action: 'cancel' });
        const errors = textOf(await tool(talk, 'errors')) as string[];
        expect(errors).toHaveLength(3);
        return { status, errors: errors.map((error) => error.replace(/"id":[^,}]+/, '"id":"…"')) };
      },
      { status: 'stray-answer' },
    );
  });

  it.each(['2025-11-25', '2025-06-18'])('closes the streams of a client of %s alike', async (revision) => {
    await both(
      async (talk) => {
        const standing = await talk.listen?.();
        const seen = textOf(await tool(talk, 'closes')) as { standing: string };
        if (seen.standing === 'function') expect(await standing?.text()).toBeDefined();
        else await standing?.body?.cancel();
        return seen;
      },
      undefined,
      revision,
    );
  });

  it.each([
    ['opens', { elicitation: { form: {} } }],
    ['fills-in', { elicitation: { url: {} } }],
  ])('cannot ask in a mode that its client does not declare: %s', async (name, capabilities) => {
    const ask = async (fetch: Fetch): Promise<unknown> => {
      const versionNegotiation = { mode: 'legacy' as const };
      const client = new Client({ name: 'modes', version: '1' }, { capabilities, versionNegotiation });
      client.setRequestHandler('elicitation/create', () => ({ action: 'accept' }));
      const own = (url: string | URL, init?: RequestInit): Promise<Response> => fetch(new Request(url, init));
      const transport = new StreamableHTTPClientTransport(new URL('http://mirror.test/mcp'), { fetch: own });
      await client.connect(transport);
      const { content } = await client.callTool({ name, arguments: {} });
      await client.close();
      return content;
    };
    const one = await ask(native());
    expect(JSON.stringify(one)).toContain('-32602');
    expectSame(one, await ask(hosted()));
  });
});

it('the ask of a task that has ended goes out with tasks/result, and its answer comes in', async () => {
  const [v1] = SERVERS;
  const see = async (fetch: Fetch): Promise<unknown> => {
    const talk = await sessionTalk(fetch, '2025-11-25');
    const params = { name: 'asks-and-ends', arguments: {}, task: { ttl: 60_000 } };
    const created = await talk.request('tools/call', params);
    const { task } = resultOf(created) as { task: { taskId: string } };
    const told = await talk.request('tasks/result', { taskId: task.taskId });
    const { content } = resultOf(told) as Json;
    await expect.poll(async () => textOf(await tool(talk, 'answers'))).toHaveLength(1);
    return { asked: told.asked.map(paramsOf), content, answers: textOf(await tool(talk, 'answers')) };
  };
  const handler = createAwaitHandler(askerV1, { logger: new LogBook() });
  handlers.push(handler);
  expectSame(await see(v1?.native() as Fetch), await see((request) => handler.fetch(request)));
});
