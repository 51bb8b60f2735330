/**
 * How an instance begins: hosts that wait in `connect`, hosts that hide their SDK's server, and objects that are not
 * hosts.
 */
import { EventEmitter, once } from 'node:events';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { make } from '../../src/host/host.ts';
import { type AwaitOptions, createAwaitHandler, type HostFactory } from '../../src/index.ts';
import {
  allRounds,
  answerTo,
  type Fetch,
  type Json,
  modernTalk,
  sessionTalk,
  type Told,
} from '../differential/talk.ts';
import { LogBook } from '../e2e/harness.ts';
import { countTurns } from '../loop-turns.ts';

const requestedSchema = { type: 'object' as const, properties: { name: { type: 'string' as const } } };

/** A server with a tool that asks. */
function asking(): McpServer {
  const server = new McpServer({ name: 'asking', version: '1.0.0' });
  server.registerTool('asks', {}, async () => {
    const { content } = await server.server.elicitInput({ message: 'name?', requestedSchema });
    return { content: [{ type: 'text', text: `Hello ${String(content?.name)}` }] };
  });
  return server;
}

let close = async (): Promise<void> => {};
afterEach(async () => {
  vi.useRealTimers();
  await close();
});

function host(factory: HostFactory, options: AwaitOptions = {}): { fetch: Fetch; log: LogBook } {
  const log = new LogBook();
  const handler = createAwaitHandler(factory, { logger: log, ...options });
  close = () => handler.close();
  return { fetch: (request) => handler.fetch(request), log };
}

const textOf = ({ response }: Told): string => {
  const { content } = (response?.result ?? { content: [] }) as { content: { text: string }[] };
  return content[0]?.text ?? JSON.stringify(response);
};

async function callOn(revision: string, fetch: Fetch): Promise<string> {
  const params: Json = { name: 'asks', arguments: {} };
  if (revision === '2026-07-28') {
    return textOf((await allRounds(modernTalk(fetch), 'tools/call', params)).told);
  }
  return textOf(await (await sessionTalk(fetch, revision)).request('tools/call', params));
}

describe.each(['2026-07-28', '2025-11-25'])('a host on %s', (revision) => {
  it('may wait in connect for what its client says of itself', async () => {
    const { fetch } = host(() => {
      const server = asking();
      const known = new EventEmitter();
      server.server.oninitialized = () => known.emit('client');
      return {
        async connect(transport) {
          const client = once(known, 'client');
          await server.connect(transport);
          await client;
          if (server.server.getClientVersion()?.name !== 'differential') throw new Error('nobody');
        },
      };
    });
    expect(await callOn(revision, fetch)).toBe('Hello Ann');
  });

  it('may make its server only as it is connected', async () => {
    const { fetch } = host(() => {
      const host: { server?: McpServer; connect(transport: never): Promise<void> } = {
        async connect(transport) {
          host.server = asking();
          await host.server.connect(transport);
        },
      };
      return host;
    });
    expect(await callOn(revision, fetch)).toBe('Hello Ann');
  });
});

describe('a host that keeps its server in', () => {
  it.each([
    ['a member', () => ({ mcpServer: asking() })],
    ['a member of a member', () => ({ session: { client: undefined, mcp: asking() } })],
  ])('%s is found there, and its asks time out no more than others', async (_where, wrap) => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const { fetch } = host(() => {
      const wrapped = wrap();
      const inner = 'mcpServer' in wrapped ? wrapped.mcpServer : wrapped.session.mcp;
      return Object.assign(wrapped, {
        connect: (transport: Parameters<McpServer['connect']>[0]) => inner.connect(transport),
      });
    });
    const talk = modernTalk(fetch);
    const params = { name: 'asks', arguments: {} };
    const { response } = await talk.request('tools/call', params);
    const { inputRequests = {}, requestState } = (response?.result ?? {}) as {
      inputRequests?: Json;
      requestState?: string;
    };
    // The SDKs give an ask 60 seconds.
    vi.advanceTimersByTime(120_000);
    const inputResponses = Object.fromEntries(
      Object.entries(inputRequests).map(([key, ask]) => [key, answerTo(ask as Json)]),
    );
    const resumed = await talk.request('tools/call', { ...params, requestState, inputResponses });
    expect(textOf(resumed)).toBe('Hello Ann');
  });
});

describe('a factory', () => {
  const checked = async (factory: HostFactory, options: AwaitOptions = {}): Promise<string> => {
    const log = new LogBook();
    const handler = createAwaitHandler(factory, { logger: log, ...options });
    close = () => handler.close();
    return handler.check().then(
      () => 'sound',
      (error: Error) => error.message,
    );
  };

  it('that returns no server is told what to return, at start', async () => {
    expect(await checked(() => ({ tools: [] }) as never)).toContain('the factory must return a server');
    expect(await checked((() => undefined) as never)).toContain('the factory must return a server');
  });

  it('that returns one server twice is told to make a new one, at start', async () => {
    const server = asking();
    expect(await checked(() => server)).toContain('must make a new server each time');
  });

  it('that returns servers of an unknown shape gets an error, at start', async () => {
    const strange = (): McpServer => {
      const server = asking();
      return Object.assign(server, { server: Object.assign(server.server, { buildContext: () => ({}) }) });
    };
    expect(await checked(strange)).toContain("this server's SDK cannot be served");
    expect(await checked(strange, { revisions: ['2025-11-25'] })).toBe('sound');
  });

  it('that throws without a client is not judged, and what it opened is closed', async () => {
    const cleanup = vi.fn();
    expect(
      await checked(({ authInfo }) => {
        if (authInfo === undefined) throw new Error('who is it?');
        return asking();
      }),
    ).toBe('sound');
    expect(await checked(() => ({ server: asking(), cleanup }))).toBe('sound');
    await vi.waitFor(() => expect(cleanup).toHaveBeenCalledTimes(2));
  });
});

it('gives each of many hosts that are ready at once a turn of the event loop', async () => {
  let open = (): void => {};
  const ready = new Promise<void>((resolve) => {
    open = resolve;
  });
  const factory: HostFactory = async () => {
    await ready;
    return asking();
  };
  const turns = countTurns();
  const made = Array.from({ length: 50 }, () => make(factory, {} as never).then(() => turns.now));
  open();
  expect(new Set(await Promise.all(made)).size).toBeGreaterThan(40);
  turns.stop();
});
