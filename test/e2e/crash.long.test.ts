/** The only process crashes while a user is asked, and its supervisor needs a few seconds to start it again. */
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { expect, it } from 'vitest';
import { spawnServers } from './harness.ts';
import { SQLITE } from './services.ts';

it('costs an SDK’s client of 2025-11-25 no call, with the pauses that it has by default', async () => {
  const args = ['--store', SQLITE.url()];
  const started = async (port = '0') => {
    const [server] = await spawnServers('asking-server.ts', 1, { args: [...args, '--port', port] });
    if (server === undefined) throw new Error('no server was started');
    return server;
  };
  const first = await started();
  const client = new Client({ name: 'host', version: '1' }, { capabilities: { elicitation: {} } });
  let asked = 0;
  const isAsked = new Promise<void>((resolve) => {
    client.setRequestHandler(ElicitRequestSchema, async () => {
      asked += 1;
      resolve();
      // What was shown before the crash is not answered: no SDK sends an answer again.
      if (asked === 1) await new Promise(() => {});
      return { action: 'accept', content: { name: 'Ann' } };
    });
  });
  await client.connect(new StreamableHTTPClientTransport(new URL(first.url)) as Transport);
  const result = client.callTool({ name: 'one', arguments: {} });
  await isAsked;
  await first.kill();
  await sleep(3_500);
  const second = await started(new URL(first.url).port);
  try {
    expect((await result).content).toEqual([{ type: 'text', text: 'Hello Ann' }]);
    expect(asked).toBe(2);
  } finally {
    await client.close();
    await second.kill();
  }
});
