/** A caller of a server behind the proxy, and its person. */
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { expect } from 'vitest';
import type { Served } from '../e2e/harness.ts';
import { PersonAtPage } from './person.ts';

const ORIGIN = 'http://127.0.0.1:1';
export const SERVER = new URL('../fixtures/stdio-server.mjs', import.meta.url).pathname;
export const ask = {
  page: `${ORIGIN}/ask`,
  authorize: () => 'ann',
  person: (authInfo: Readonly<Record<string, unknown>> | undefined) =>
    authInfo?.clientId as string | undefined,
};

export const linkIn = (text: string, served: Served): string =>
  (/http\S+/.exec(text)?.[0] ?? '').replace(ORIGIN, new URL(served.url).origin);

export async function callAs(
  who: string,
  url: string,
  tool = 'writes',
  headers: Readonly<Record<string, string>> = {},
): Promise<(signal?: AbortSignal) => Promise<string>> {
  const client = new Client({ name: 'host', version: '1' });
  const requestInit = { headers: { authorization: `Bearer ${who}`, ...headers } };
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }) as Transport);
  return async (signal) => {
    const { content } = await client.callTool({ name: tool, arguments: {} }, undefined, signal && { signal });
    return (content as { text: string }[])[0]?.text ?? '';
  };
}

export async function answer(url: string): Promise<void> {
  expect((await new PersonAtPage().answer(url, url, { name: 'Ada' })).status).toBe(303);
}
