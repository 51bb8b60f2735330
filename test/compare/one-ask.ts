/** Run by scripts/revisions.mjs: on every revision that is left, a real client's tool asks once and is answered. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import process from 'node:process';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { NAMES, TABLE } from '../../compat/revisions.ts';
import { speakerOf } from '../../src/compare/clients.ts';
import { createAwaitHandler } from '../../src/index.ts';
import { toNodeHandler } from '../../src/node.ts';

function build(): McpServer {
  const server = new McpServer({ name: 'greeter', version: '1.0.0' });
  server.registerTool('greet', {}, async () => {
    const requestedSchema = { type: 'object' as const, properties: { name: { type: 'string' as const } } };
    const { content } = await server.server.elicitInput({ message: 'Who are you?', requestedSchema });
    return { content: [{ type: 'text', text: `Hello ${String(content?.name)}` }] };
  });
  return server;
}

const gone: string | undefined = process.argv[2];
if (NAMES.some((name) => name === gone)) throw new Error(`${gone} is still there`);
for (const name of NAMES) {
  const hasCapabilities = TABLE.get(name)?.options?.includes('capabilities') === true;
  const handler = createAwaitHandler(build, {
    secrets: ['one secret of at least thirty-two bytes'],
    revisions: [hasCapabilities ? { name, capabilities: { elicitation: {} } } : name],
  });
  const server = createServer(toNodeHandler(handler));
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  const { port } = server.address() as AddressInfo;
  const who = { name: 'ann', capabilities: { elicitation: {} } };
  const answer = async () => ({ action: 'accept', content: { name: 'Ann' } });
  const player = await speakerOf(name).open(`http://127.0.0.1:${port}`, who, answer);
  const result = await player.request('tools/call', { name: 'greet', arguments: {} }, 10_000);
  if (!JSON.stringify(result).includes('Hello Ann')) throw new Error(`${name}: ${JSON.stringify(result)}`);
  await player.close();
  await handler.close();
  server.closeAllConnections();
  server.close();
}
process.exit(0);
