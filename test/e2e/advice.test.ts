/** `error.data['mcp-await']` is made here alone: a server's own errors, and those of one behind a proxy, pass as they are. */
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { CallToolRequestSchema, McpError } from '@modelcontextprotocol/sdk/types.js';
import { afterEach, describe, expect, it } from 'vitest';
import { AwaitClientTransport } from '../../src/client/index.ts';
import { type AwaitOptions, type HostFactory, remoteHost } from '../../src/index.ts';
import { CLOSING } from '../fixtures/frozen.ts';
import { post } from './clients.ts';
import { type Served, serveHere } from './harness.ts';

const open: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close();
});

async function serve(factory: HostFactory, options?: AwaitOptions): Promise<Served> {
  const served = await serveHere(factory, options);
  open.push(served.close);
  return served;
}

/** A server whose one tool fails, with data of its own. */
function failing(data: unknown): HostFactory {
  return () => {
    const server = new Server({ name: 'fails', version: '1' }, { capabilities: { tools: {} } });
    server.setRequestHandler(CallToolRequestSchema, () => {
      throw new McpError(-32000, 'send the same request again', data);
    });
    return server;
  };
}

async function over(transport: StreamableHTTPClientTransport | AwaitClientTransport): Promise<Client> {
  const client = new Client({ name: 'test', version: '1' });
  await client.connect(transport as Parameters<Client['connect']>[0]);
  open.push(() => client.close());
  return client;
}

const WIRES = [
  ['2025-11-25', (url: string) => over(new StreamableHTTPClientTransport(new URL(url)))],
  ...(['2026-07-28', 'DRAFT-SEP-2322', 'DRAFT-MRTR-2026-02', 'DRAFT-SEP-1858'] as const).map(
    (revision) => [revision, (url: string) => over(new AwaitClientTransport(url, { revision }))] as const,
  ),
] as const;

describe.each([
  ['none', undefined],
  ['data of its own', { own: 1 }],
  ['an advice, of whomever', { own: 1, 'mcp-await': { reason: 'closed', retry: true } }],
])('an error of the server itself, with %s,', (_, data) => {
  it.each(WIRES)('reaches a client of %s unchanged, through a proxy too', async (_revision, connect) => {
    const upstream = await serve(failing(data));
    const proxy = await serve(remoteHost({ url: upstream.url }));
    for (const { url } of [upstream, proxy]) {
      const client = await connect(url);
      const error = await client.callTool({ name: 'any' }).catch((thrown: unknown) => thrown);
      expect(error).toMatchObject({ code: -32000, message: expect.stringContaining('same request again') });
      expect((error as McpError).data).toEqual(data);
    }
  });
});

it('a handler that is closed advises the same request with its 503', async () => {
  const served = await serve(failing(undefined));
  await served.handler.close();
  const { status, message } = await post(served.url, { tool: 'any' });
  expect([status, message.error]).toEqual([503, CLOSING]);
});
