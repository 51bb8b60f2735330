/** Progress and log notifications reach the client in the turn they were made in, once (invariant 9). */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { createMcpHandler, McpServer as McpServerV2 } from '@modelcontextprotocol/server';
import { afterEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { openStore } from '../../src/checkpoint/open-store.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { begin, call } from './anywhere.ts';
import { accept, legacy, modern, post, type RawReply, textOf } from './clients.ts';
import { CELLS, optionsOf, SECRET, type Served, serveHere } from './harness.ts';
import type { Reader } from './reader.ts';
import { SQLITE } from './services.ts';

let served: Served;
afterEach(() => served.close());

const start = async (cell = CELLS[0]): Promise<string> => {
  served = await serveHere(() => buildServer(() => {}), cell === undefined ? {} : optionsOf(cell));
  return served.url;
};
const said = ({ notifications }: RawReply): unknown[] =>
  notifications.map(({ method, params }) =>
    method === 'notifications/progress' ? [params?.progressToken, params?.progress] : params?.data,
  );

describe.each(CELLS)('notifications ($name)', (cell) => {
  it('come in their turn, under the progress token of that turn', async () => {
    const url = await start(cell);
    const wishes = { tool: 'notes', logLevel: 'debug' };
    const first = await post(url, { ...wishes, progressToken: 'a' });
    expect(said(first)).toEqual(['note 1', ['a', 1]]);
    const named = { state: first.state, responses: accept(first.keys, { name: 'Ann' }) };
    const second = await post(url, { ...wishes, progressToken: 'b', ...named });
    expect(said(second)).toEqual(['note 2', ['b', 2]]);
    const placed = { state: second.state, responses: accept(second.keys, { city: 'Ghent' }) };
    const third = await post(url, { ...wishes, progressToken: 'c', ...placed });
    expect(said(third)).toEqual(['note 3', ['c', 3]]);
    expect(textOf(third)).toBe('Ann of Ghent');
  });

  it('are not sent to a turn that asked for none', async () => {
    const url = await start(cell);
    const first = await post(url, { tool: 'notes', logLevel: 'warning' });
    expect(said(first)).toEqual([]);
    const named = { state: first.state, responses: accept(first.keys, { name: 'Ann' }) };
    const second = await post(url, { tool: 'notes', logLevel: 'info', ...named });
    expect(said(second)).toEqual(['note 2']);
    const placed = { state: second.state, responses: accept(second.keys, { city: 'Ghent' }) };
    expect(said(await post(url, { tool: 'notes', ...placed }))).toEqual([]);
  });

  it('reach the official client once each', async () => {
    const client = await modern(await start(cell));
    expect(await client.tool('notes')).toBe('its name of its city');
    expect(client.logged).toEqual(['note 1', 'note 2', 'note 3']);
    expect(client.progressed).toEqual([1, 2, 3]);
    await client.close();
  });
});

describe('notifications to a 2025-11-25 client', () => {
  it('come once each, as they always did', async () => {
    const client = await legacy(await start());
    expect(await client.tool('notes')).toBe('its name of its city');
    expect(client.logged).toEqual(['note 1', 'note 2', 'note 3']);
    expect(client.progressed).toEqual([1, 2, 3]);
    await client.close();
  });
});

/** What a tool says of its server names its request, as the SDK's `extra.sendNotification` does. */
function changing(): McpServer {
  const lists = { listChanged: true };
  const capabilities = { resources: { ...lists, subscribe: true }, tools: lists, prompts: lists };
  const server = new McpServer({ name: 'changing', version: '1' }, { capabilities });
  server.registerTool('change', {}, async ({ sendNotification }) => {
    for (const list of ['tools', 'resources', 'prompts'] as const)
      await sendNotification({ method: `notifications/${list}/list_changed` });
    await sendNotification({ method: 'notifications/resources/updated', params: { uri: 'diary://today' } });
    return { content: [{ type: 'text', text: 'changed' }] };
  });
  server.registerTool('unnamed', {}, async () => {
    await server.server.sendResourceUpdated({ uri: 'diary://today' });
    return { content: [{ type: 'text', text: 'changed' }] };
  });
  return server;
}

const SAID = ['tools/list_changed', 'resources/list_changed', 'prompts/list_changed', 'resources/updated'];
const SESSIONS = ['2025-11-25', '2025-06-18', 'DRAFT-SEP-1858'];
const INSTANCES = [undefined, 'call', 'process'] as const;

describe.each(SESSIONS)('what a tool of %s says of its server', (version) => {
  it.each(INSTANCES)('is part of the reply to its call, with instance %s', async (instance) => {
    served = await serveHere(changing, {
      store: await openStore(SQLITE.url()),
      secrets: [SECRET],
      ...(instance !== undefined && { instance }),
    });
    const session = await begin([served], {}, undefined, version);
    const standing = await session.get(0);
    const reply = await session.post(0, call('change'));
    await reply.next(({ id }) => id === 7);
    const methods = ({ messages }: Reader) =>
      messages.map(({ method }) => method?.replace('notifications/', ''));
    expect(methods(reply)).toEqual([...SAID, undefined]);
    if (instance === undefined) {
      // Later than the others, on the standing stream.
      await session.post(0, call('unnamed'));
      await standing.next(({ method }) => method === 'notifications/resources/updated');
      expect(methods(standing)).toEqual(['resources/updated']);
    }
  });
});

describe('a client’s notifications on 2026-07-28', () => {
  const METHODS = ['notifications/progress', 'notifications/custom', 'notifications/other'];
  const seen: string[] = [];
  const listening = (): McpServerV2 => {
    const server = new McpServerV2({ name: 'listening', version: '1' }, { capabilities: { tools: {} } });
    server.server.setNotificationHandler('notifications/progress', ({ params }) => {
      seen.push(`progress ${params.progress}`);
    });
    const schemas = { params: z.object({ progress: z.number() }) };
    server.server.setNotificationHandler('notifications/custom', schemas, ({ progress }) => {
      seen.push(`custom ${progress}`);
    });
    server.server.fallbackNotificationHandler = async ({ method }) => void seen.push(method);
    return server;
  };

  it.each(['natively', 'behind mcp-await'])('reach their handlers, %s', async (where) => {
    seen.length = 0;
    served = await serveHere(listening);
    const native = createMcpHandler(async () => listening());
    for (const method of METHODS) {
      const _meta = {
        'io.modelcontextprotocol/protocolVersion': '2026-07-28',
        'io.modelcontextprotocol/clientInfo': { name: 'c', version: '1' },
        'io.modelcontextprotocol/clientCapabilities': {},
      };
      const params = { progressToken: 1, progress: 1, _meta };
      const request = new Request(served.url, {
        method: 'POST',
        body: JSON.stringify({ jsonrpc: '2.0', method, params }),
        headers: {
          'content-type': 'application/json',
          accept: 'application/json, text/event-stream',
          'mcp-protocol-version': '2026-07-28',
          'mcp-method': method,
        },
      });
      const reply = await (where === 'natively' ? native.fetch(request) : fetch(request));
      expect(reply.status).toBe(202);
    }
    await expect.poll(() => seen).toEqual(['progress 1', 'custom 1', 'notifications/other']);
  });
});
