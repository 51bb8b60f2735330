/** A server that cannot be changed, behind the proxy: its user answers on the page as well. */
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { afterEach, expect, it } from 'vitest';
import { stdioHost } from '../../src/index.ts';
import { SECRET, type Served, serveHere } from '../e2e/harness.ts';

const ORIGIN = 'http://127.0.0.1:1';
const SERVER = new URL('../fixtures/stdio-server.mjs', import.meta.url).pathname;
const PYTHON = new URL('../fixtures/asking_server.py', import.meta.url).pathname;
const MODERN = new URL('../fixtures/modern-server.ts', import.meta.url).pathname;
const ask = {
  page: `${ORIGIN}/ask`,
  authorize: () => 'ann',
  person: (authInfo: Readonly<Record<string, unknown>> | undefined) =>
    authInfo?.clientId as string | undefined,
};
let served: Served;
afterEach(() => served.close());

const linkIn = (text: string): string =>
  (/http\S+/.exec(text)?.[0] ?? '').replace(ORIGIN, new URL(served.url).origin);

async function callAs(who: string, url: string, tool = 'writes'): Promise<() => Promise<string>> {
  const client = new Client({ name: 'host', version: '1' });
  const requestInit = { headers: { authorization: `Bearer ${who}` } };
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }) as Transport);
  return async () => {
    const { content } = await client.callTool({ name: tool, arguments: {} });
    return (content as { text: string }[])[0]?.text ?? '';
  };
}

it.each([
  ['of SDK v1', process.execPath, [SERVER], 'writes'],
  ['in Python, without an SDK', 'python3', [PYTHON], 'greet'],
  ['of 2026-07-28 alone', process.execPath, ['--import', 'tsx', MODERN], 'one'],
])('takes an answer for a server %s, when its calls may be run again', async (_kind, command, args, tool) => {
  // One that returns its asks has nothing to run again.
  const may = tool === 'one' ? { upstream: '2026-07-28' as const } : { replay: 'allow' as const };
  served = await serveHere(stdioHost({ command, args, ...may }), {
    secrets: [SECRET],
    ask,
  });
  const call = await callAs('ann', served.url, tool);
  const url = linkIn(await call());
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
  expect(await call()).toBe('Hello Ada');
});

it('says in the log that it takes none when they may not', async () => {
  served = await serveHere(stdioHost({ command: process.execPath, args: [SERVER] }), {
    secrets: [SECRET],
    ask,
  });
  expect(served.log.text).toContain('with --replay allow they may');
  expect(await (await callAs('ann', served.url))()).toContain('failed: ');
});
