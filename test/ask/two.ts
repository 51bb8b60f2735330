/** Two processes with a page, as far as one can have them in a test, and clients of SDK v1 for them. */
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { ElicitRequestSchema, type ElicitResult } from '@modelcontextprotocol/sdk/types.js';
import type { AwaitOptions } from '../../src/index.ts';
import { openStore } from '../../src/store.ts';
import { send } from '../e2e/clients.ts';
import { SECRET, type Served, serveHere } from '../e2e/harness.ts';
import { SQLITE } from '../e2e/services.ts';
import { askOptions } from './person.ts';

const cleanUps: (() => unknown)[] = [];

export async function cleanUp(): Promise<void> {
  for (const one of cleanUps.splice(0).reverse()) await one();
}

/** @param other the second one's version of the server */
export async function serveTwo(
  build: () => McpServer,
  more: AwaitOptions = {},
  other = build,
): Promise<[Served, Served]> {
  const url = SQLITE.url();
  const serve = async (build: () => McpServer): Promise<Served> => {
    const store = await openStore(url);
    const served = await serveHere(build, {
      tasks: 'optional',
      secrets: [SECRET],
      store,
      ask: askOptions,
      ...more,
    });
    cleanUps.push(() => served.close());
    return served;
  };
  return [await serve(build), await serve(other)];
}

/** Ann's client. */
export async function connected(
  { url }: Served,
  capabilities: object,
  answers: (message: string) => ElicitResult | Promise<ElicitResult>,
): Promise<Client> {
  const client = new Client({ name: 'host', version: '1' }, { capabilities });
  if ('elicitation' in capabilities)
    client.setRequestHandler(ElicitRequestSchema, ({ params }) => answers(params.message));
  const requestInit = { headers: { authorization: 'Bearer ann' } };
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }) as Transport);
  cleanUps.push(() => client.close());
  return client;
}

let requests = 0;

/** A request of 2026-07-28 by hand, of Ann's client, which takes tasks. @returns the response */
export async function request(
  { url }: Served,
  method: string,
  params: Readonly<Record<string, unknown>>,
  capabilities: object = {},
): Promise<Record<string, unknown>> {
  requests += 1;
  const _meta = {
    ...(params._meta as object | undefined),
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientInfo': { name: 'host', version: '1' },
    'io.modelcontextprotocol/clientCapabilities': {
      ...capabilities,
      extensions: { 'io.modelcontextprotocol/tasks': {} },
    },
  };
  const headers = {
    'mcp-protocol-version': '2026-07-28',
    'mcp-method': method,
    'mcp-name': String(params.name ?? params.taskId),
    authorization: 'Bearer ann',
  };
  const body = JSON.stringify({ jsonrpc: '2.0', id: requests, method, params: { ...params, _meta } });
  return (await send(url, body, { headers })).message as unknown as Record<string, unknown>;
}
