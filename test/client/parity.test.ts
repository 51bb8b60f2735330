/** Where the server does not speak the draft, this transport is the SDK's: the same scenarios over both. */
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { InMemoryEventStore } from '@modelcontextprotocol/sdk/examples/shared/inMemoryEventStore.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  LATEST_PROTOCOL_VERSION,
  ListRootsRequestSchema,
  LoggingMessageNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { describe, expect, it } from 'vitest';
import { AwaitClientTransport } from '../../src/client/index.ts';
import { listen, SECRET, serveHere, shut } from '../e2e/harness.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import {
  ask,
  closing,
  DRAFT,
  message,
  onCall,
  onResume,
  QUICK,
  result,
  routes,
  scripted,
  sleep,
  until,
} from './script.ts';

const RECONNECTION = { ...QUICK, reconnectionDelayGrowFactor: 1.5, maxRetries: 2 };

interface Both extends Transport {
  terminateSession(): Promise<void>;
  readonly protocolVersion?: string | undefined;
}

const TRANSPORTS: readonly ((url: string) => Both)[] = [
  // The SDK's own transport does not satisfy its own interface under exactOptionalPropertyTypes.
  (url) => new StreamableHTTPClientTransport(new URL(url), { reconnectionOptions: RECONNECTION }) as Both,
  (url) => new AwaitClientTransport(url, { revision: DRAFT, reconnectionOptions: RECONNECTION }),
];

interface Actor {
  readonly client: Client;
  readonly transport: Both;
  /** Everything that a user of the client could notice, in order. */
  readonly noticed: unknown[];
}

async function act(transport: Both): Promise<Actor> {
  const noticed: unknown[] = [];
  const client = new Client(
    { name: 'parity', version: '1.0.0' },
    { capabilities: { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} } },
  );
  client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
    noticed.push(['asked', params.message]);
    return { action: 'accept', content: { name: 'Ann', city: 'Rome', street: 'Via' } };
  });
  client.setRequestHandler(CreateMessageRequestSchema, () => {
    const content = { type: 'text' as const, text: 'a poem' };
    return { role: 'assistant' as const, model: 'test', content };
  });
  client.setRequestHandler(ListRootsRequestSchema, () => ({ roots: [{ uri: 'file:///home/ann' }] }));
  client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => {
    noticed.push(['logged', params.data]);
  });
  client.onerror = (error) => void noticed.push(['error', 'code' in error ? error.code : error.name]);
  client.onclose = () => void noticed.push(['closed']);
  await client.connect(transport);
  closing(client);
  // The standing stream, on which the SDK's server asks what names no request.
  await sleep(100);
  noticed.push(['version', transport.protocolVersion, typeof transport.sessionId]);
  return { client, transport, noticed };
}

/** The outcome of each step, success or not. */
async function scenarios({ client, transport, noticed }: Actor): Promise<unknown[]> {
  const note = async (name: string, doing: () => Promise<unknown>): Promise<void> => {
    const outcome = await doing().then(
      (value) => value ?? 'nothing',
      (error: unknown) => (error instanceof Error ? { message: error.message } : error),
    );
    noticed.push([name, outcome]);
  };
  const tools = [
    'one',
    'by-extra',
    'in-turn',
    'at-once',
    'link',
    'sample-by-extra',
    'roots',
    'throws',
    'throws-later',
  ];
  await note('tools', async () => (await client.listTools()).tools.map(({ name }) => name));
  for (const name of tools) await note(name, () => client.callTool({ name, arguments: {} }));
  await note('no such tool', () => client.callTool({ name: 'nobody' }));
  await note('no such method', () =>
    client.complete({ ref: { type: 'ref/prompt', name: 'x' }, argument: { name: 'a', value: '' } }),
  );
  await note('prompt', () => client.getPrompt({ name: 'greet' }));
  await note('resource', () => client.readResource({ uri: 'diary://today' }));
  await note('ping', () => client.ping());
  const controller = new AbortController();
  const cancelled = client.callTool({ name: 'one', arguments: {} }, undefined, { signal: controller.signal });
  controller.abort('enough');
  await note('cancelled', () => cancelled);
  await sleep(50);
  // Streams that the server ends with the session are tried again, as far as there is time.
  client.onerror = () => {};
  await note('terminated', () => transport.terminateSession());
  await note('after its end', async () => {
    await client.listTools().catch((error: unknown) => {
      throw new Error(String(error instanceof Error && 'code' in error ? error.code : error));
    });
  });
  // What follows a close is left out: the SDK's transport still tries to open its streams again, and fails.
  const before = [...noticed];
  await client.close();
  return before;
}

/** The SDK's own server, with an event store, and a server for each session. */
async function sdkServer(): Promise<string> {
  const sessions = new Map<string, StreamableHTTPServerTransport>();
  const server = createServer(async (req, res) => {
    const known = sessions.get(String(req.headers['mcp-session-id']));
    if (known !== undefined) return known.handleRequest(req, res);
    const fresh = new StreamableHTTPServerTransport({
      sessionIdGenerator: () => randomUUID(),
      eventStore: new InMemoryEventStore(),
      onsessioninitialized: (id) => void sessions.set(id, fresh),
    });
    await buildServer(() => {}).connect(fresh as Transport);
    await fresh.handleRequest(req, res);
  });
  closing({ close: () => shut(server) });
  return `${await listen(server)}/mcp`;
}

async function ownHandler(): Promise<string> {
  // A server that does not speak the draft.
  const options = { secrets: [SECRET], revisions: ['2025-11-25'] } as const;
  const served = await serveHere(() => buildServer(() => {}), options);
  closing(served);
  return served.url;
}

describe.each([
  ['the SDK’s own server', sdkServer],
  ['this package’s handler', ownHandler],
])('%s', (_, serve) => {
  it('makes no difference between the transports', async () => {
    const [theirs, ours] = await Promise.all(
      TRANSPORTS.map(async (make) => scenarios(await act(make(await serve())))),
    );
    // The SDK's transport reopens a stream that delivered an error, and reports the reply to that.
    const isError = (one: unknown): boolean => Array.isArray(one) && one[0] === 'error';
    expect(ours).toEqual(theirs?.filter((one) => !isError(one)));
    expect(ours).toContainEqual(['version', LATEST_PROTOCOL_VERSION, 'string']);
    expect(ours).toContainEqual(['by-extra', { content: [{ type: 'text', text: 'Hello Ann' }] }]);
  });
});

/** Bytes that no well-behaved server sends, and what both transports make of them on the wire. */
async function overWire(make: (url: string) => Both): Promise<unknown> {
  const progress = {
    jsonrpc: '2.0',
    method: 'notifications/progress',
    params: { progressToken: 3, progress: 1 },
  };
  const server = await scripted(
    routes(
      onCall(({ body }, reply) => reply.json(result(body.id)), 'json'),
      onCall(({ body }, reply) => reply.json([result(body.id)]), 'batch'),
      onCall(
        ({ body }, reply) => reply.write(message(progress), message(result(body.id), 'x')).end(),
        'stream',
      ),
      onCall(({ body }, reply) => {
        reply.write(message(ask('live', 'live'), '1'), 'event: other\ndata: {}\n\n', ': hm\n\n');
        setTimeout(() => reply.write(message(result(body.id))).end(), 50);
      }, 'live'),
      onCall((_, reply) => reply.write('retry: 30\nid: 7\ndata:\n\n').end(), 'broken'),
      onCall((_, reply) => reply.write('id: 9\ndata:\n\n').cut(), 'cut'),
      onCall((_, reply) => reply.write('id: 8\ndata:\n\n').end(), 'lost'),
      onCall((_, reply) => reply.json('teapot', 418), 'refused'),
      onCall(
        (_, reply) => void reply.res.writeHead(200, { 'content-type': 'text/plain' }).end('hi'),
        'plain',
      ),
      onCall((_, reply) => void reply.res.writeHead(302, { location: '/other' }).end(), 'redirected'),
      onCall((_, reply) => reply.write('data: nope\n\n', message(result(13))).end(), 'noise'),
      onResume('7', (_, reply) => reply.write(message(result(5), '10')).end()),
      onResume('9', (_, reply) => reply.write(message(result(6), '10')).end()),
      onResume('8', (_, reply) => reply.json('no', 500)),
      onResume('42', (_, reply) => reply.write(message(result('from before'), '43')).end()),
    ),
    '2025-03-26',
  );
  closing(server);
  const { client, transport, noticed } = await act(make(server.url));
  const tokens: string[] = [];
  const progressed: number[] = [];
  for (const name of [
    'json',
    'batch',
    'stream',
    'live',
    'broken',
    'cut',
    'lost',
    'refused',
    'plain',
    'redirected',
  ]) {
    const options = {
      timeout: 700,
      onprogress: ({ progress: value }: { progress: number }) => void progressed.push(value),
      onresumptiontoken: (token: string) => void tokens.push(token),
    };
    const outcome = await client.callTool({ name, arguments: {} }, undefined, options).then(
      (value) => value,
      (error: { code: unknown }) => error.code,
    );
    noticed.push([name, outcome]);
  }
  const resumed = await client.callTool({ name: 'json' }, undefined, { resumptionToken: '42' });
  noticed.push(['resumed', resumed]);
  await transport.terminateSession();
  await client.close();
  await until(() => server.seen.some(({ verb }) => verb === 'DELETE'));
  const wire = server.seen.map(({ verb, headers, body }) => ({
    verb,
    body: { ...body, params: { ...body.params, protocolVersion: undefined } },
    headers: { ...headers, host: '', 'content-length': '' },
  }));
  return { noticed, tokens, progressed, wire };
}

describe('on the wire', () => {
  it('both transports send the same, header for header', async () => {
    const [theirs, ours] = await Promise.all(TRANSPORTS.map(overWire));
    expect(ours).toEqual(theirs);
    expect(JSON.stringify(ours)).toContain('"last-event-id":"9"');
  });
});
