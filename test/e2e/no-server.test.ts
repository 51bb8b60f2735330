/** A server elsewhere that cannot be had: nothing has begun, so its client is told to send the same request again. */
import { afterEach, expect, it } from 'vitest';
import { AwaitError } from '../../src/index.ts';
import { modernHeaders, send } from './clients.ts';
import { type Served, serveHere } from './harness.ts';

let served: Served;
afterEach(() => served.close());

const clientInfo = { name: 'any', version: '1' };
const INITIALIZE = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo };
const _meta = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientInfo': clientInfo,
  'io.modelcontextprotocol/clientCapabilities': {},
};

it.each([
  ['2025-11-25', 'initialize', INITIALIZE, {}],
  ['2026-07-28', 'tools/list', { _meta }, modernHeaders('tools/list', '')],
])('%s: %s gets 503, with that advice', async (_revision, method, params, headers) => {
  served = await serveHere(() => {
    throw new AwaitError('host-gone', 'connect ECONNREFUSED 10.0.0.7:443');
  });
  const body = JSON.stringify({ jsonrpc: '2.0', id: 7, method, params });
  const reply = await send(served.url, body, { headers });
  expect([reply.status, reply.message]).toMatchObject([
    503,
    {
      id: 7,
      error: {
        message: 'The server behind this one ended or cannot be started; send the same request again',
        data: { 'mcp-await': { reason: 'host-gone', retry: true } },
      },
    },
  ]);
  expect(served.log.text).toContain('ECONNREFUSED');
});
