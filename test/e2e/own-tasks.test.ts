/** A server with tasks of its own, the reference server: kept for 2025-11-25, and tasks of ours on 2026-07-28. */

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { CallToolResultSchema, ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { AwaitClientTransport } from '../../src/client/index.ts';
import type { HostFactory } from '../../src/index.ts';
import { SHORT } from '../short.ts';
import { filledIn, post } from './clients.ts';
import { type Served, serveHere } from './harness.ts';

// It comes without types.
const MODULE = '../fixtures/everything.mjs';
const { default: createServer } = (await import(MODULE)) as { default: HostFactory };

const TOOL = 'simulate-research-query';
const QUERY = { name: TOOL, arguments: { topic: 'python', ambiguous: true } };

let served: Served;
beforeEach(async () => {
  served = await serveHere(createServer);
});
afterEach(() => served.close());

async function connect(transport: Transport): Promise<{ client: Client; asked: string[] }> {
  const client = new Client({ name: 'own', version: '1' }, { capabilities: { elicitation: {} } });
  const asked: string[] = [];
  client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
    asked.push(params.message);
    return filledIn(params);
  });
  await client.connect(transport);
  return { client, asked };
}

describe('a tool that its server runs as a task of its own', () => {
  it('is a task of ours on 2026-07-28, asks included', async () => {
    const transport = new AwaitClientTransport(served.url, { revision: '2026-07-28' });
    const { client, asked } = await connect(transport as Transport);
    const { content } = await client.callTool(QUERY);
    expect((content as { text: string }[])[0]?.text).toContain('# Research Report: python (programming)');
    expect(asked).toHaveLength(1);
    await client.close();
  });

  it('is refused there to a client that cannot take a task', async () => {
    const { message } = await post(served.url, { tool: TOOL, args: QUERY.arguments });
    expect(message.error).toMatchObject({ code: -32021 });
  });

  it.skipIf(SHORT)('stays its server’s own on 2025-11-25', async () => {
    const { client } = await connect(new StreamableHTTPClientTransport(new URL(served.url)) as Transport);
    expect(client.getServerCapabilities()?.tasks).toBeDefined();
    await client.listTools();
    const query = { ...QUERY, arguments: { topic: 'python', ambiguous: false } };
    const ids: string[] = [];
    const stream = client.experimental.tasks.callToolStream(query, CallToolResultSchema, {
      task: { ttl: 60_000 },
    });
    for await (const message of stream) {
      if (message.type === 'error') throw message.error;
      if (message.type === 'taskCreated') ids.push(message.task.taskId);
      if (message.type === 'result')
        expect(JSON.stringify(message.result)).toContain('# Research Report: python');
    }
    // The id is one of the SDK's, which tells no time.
    expect(ids[0]).not.toContain('.');
    await client.close();
  });
});
