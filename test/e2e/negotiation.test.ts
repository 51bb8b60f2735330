/** The reply to a client whose first message is of an older, or newer, revision than it expects. */
import { afterEach, expect, it } from 'vitest';
import type { AwaitOptions } from '../../src/index.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { call, HEADERS, initialize, inSession, Peer } from '../security/peer.ts';
import { SECRET, type Served, serveHere } from './harness.ts';

let served: Served;
afterEach(() => served.close());

async function serve(options: AwaitOptions = {}): Promise<string> {
  served = await serveHere(() => buildServer(() => {}), { secrets: [SECRET], ...options });
  return served.url;
}

async function negotiated(
  url: string,
  wanted: string,
  headers: Record<string, string> = {},
): Promise<unknown> {
  const { status, messages } = await new Peer(url, headers).post(initialize(wanted));
  return [status, messages[0]?.result?.protocolVersion];
}

it('2024-11-05 is spoken over Streamable HTTP, to the end of a call', async () => {
  const url = await serve();
  expect(await negotiated(url, '2024-11-05')).toEqual([200, '2024-11-05']);
  const { headers } = await inSession(url, '2024-11-05');
  const { 'mcp-protocol-version': _none, ...without } = headers as Record<string, string>;
  for (const peer of [new Peer(url, headers), new Peer(url, without)]) {
    const { status, messages } = await peer.post({ jsonrpc: '2.0', id: 1, method: 'tools/list' });
    expect([status, messages[0]?.id]).toEqual([200, 1]);
  }
  expect((await new Peer(url, headers).post([call(1, 'one')])).status).toBe(400);
});

it('is the latest where 2024-11-05 is not served', async () => {
  expect(await negotiated(await serve({ revisions: ['2025-06-18'] }), '2024-11-05')).toEqual([
    200,
    '2025-06-18',
  ]);
});

it.each(['2027-01-01', 'nonsense', '2024-10-07'])(
  'is negotiated where the header of initialize says %s',
  async (version) => {
    const url = await serve();
    expect(await negotiated(url, version, { 'mcp-protocol-version': version })).toEqual([200, '2025-11-25']);
    expect(await negotiated(url, '2025-06-18', { 'mcp-protocol-version': version })).toEqual([
      200,
      '2025-06-18',
    ]);
  },
);

it.each(['GET', 'DELETE'])('%s of a client of 2026-07-28 is 405, which names POST', async (method) => {
  const url = await serve();
  for (const more of [{}, { 'mcp-session-id': 'whatever' }]) {
    const headers = { ...HEADERS, 'mcp-protocol-version': '2026-07-28', ...more };
    const { status, headers: said } = await fetch(url, { method, headers });
    expect([status, said.get('allow')]).toEqual([405, 'POST']);
  }
  expect((await fetch(url, { method, headers: HEADERS })).status).toBe(400);
});
