/** The process whose heap is measured: clients of 2025-11-25 are connected to it, by mcp-await or by SDK v1 alone. */
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { setImmediate as turn } from 'node:timers/promises';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { openStore } from '../dist/src/checkpoint/open-store.js';
import { createAwaitHandler } from '../dist/src/index.js';
import { toNodeHandler } from '../dist/src/node.js';
import { redisRelay } from '../dist/src/relay/redis.js';
import { SECRET } from './round-trip/tool.mjs';

const [variant, url] = process.argv.slice(2);

function build() {
  const server = new McpServer({ name: 'connected', version: '1' });
  const text = (said) => ({ content: [{ type: 'text', text: said }] });
  const requestedSchema = { type: 'object', properties: { day: { type: 'string' } } };
  server.registerTool('ask', {}, async () =>
    text((await server.server.elicitInput({ message: 'Which day?', requestedSchema })).action),
  );
  server.registerTool('plain', {}, () => text('plain'));
  server.registerTool('other', {}, () => text('other'));
  return server;
}

async function listenerOf() {
  if (variant === 'sdk') return alone();
  const store = await openStore(url);
  const relay = variant === 'relay' ? await redisRelay(url) : undefined;
  return toNodeHandler(createAwaitHandler(build, { store, secrets: [SECRET], ...(relay && { relay }) }));
}

/** As SDK v1's documentation has it. */
function alone() {
  const transports = new Map();
  return async (request, response) => {
    let transport = transports.get(request.headers['mcp-session-id']);
    if (transport === undefined) {
      transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        onsessioninitialized: (id) => void transports.set(id, transport),
      });
      await build().connect(transport);
    }
    await transport.handleRequest(request, response);
  };
}

const server = createServer(await listenerOf());
server.listen(0, '127.0.0.1', () => process.send({ port: server.address().port }));
process.on('message', async () => {
  for (let round = 0; round < 5; round += 1) {
    await turn();
    globalThis.gc();
  }
  process.send(process.memoryUsage().heapUsed);
});
process.on('disconnect', () => process.exit());
