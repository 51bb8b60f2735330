/** A caller of a server behind the proxy, and its person. */
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { expect } from 'vitest';
import type { Served } from '../e2e/harness.ts';

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
): Promise<() => Promise<string>> {
  const client = new Client({ name: 'host', version: '1' });
  const requestInit = { headers: { authorization: `Bearer ${who}`, ...headers } };
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }) as Transport);
  return async () => {
    const { content } = await client.callTool({ name: tool, arguments: {} });
    return (content as { text: string }[])[0]?.text ?? '';
  };
}

export async function answer(url: string): Promise<void> {
  const shown = await (await fetch(url)).text();
  const value = (name: string): string =>
    new RegExp(`name="${name}"[^>]*value="([^"]*)"`).exec(shown)?.[1] ?? '';
  const body = new URLSearchParams({
    'field.name': 'Ada',
    key: value('key'),
    token: value('token'),
    action: 'accept',
  });
  const headers = { origin: ORIGIN, 'content-type': 'application/x-www-form-urlencoded' };
  expect((await fetch(url, { method: 'POST', body, headers, redirect: 'manual' })).status).toBe(303);
}
