/** The process of one variant: `<transport> <store>`, such as `sdk-v1 redis`. */
import { randomUUID } from 'node:crypto';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { createMcpHandler, McpServer as McpServerV2 } from '@modelcontextprotocol/server';
import { createAwaitHandler } from '../../dist/src/index.js';
import { toNodeHandler } from '../../dist/src/node.js';
import { onNode } from '../round-trip/hand-written.mjs';
import { DESCRIPTION, INPUT, resultText, SECRET, SERVER, TOOL } from '../round-trip/tool.mjs';
import { serve } from '../serving.mjs';
import { storeNamed } from '../stores.mjs';

function build(Server) {
  const server = new Server(SERVER);
  server.registerTool(TOOL, { description: DESCRIPTION, inputSchema: INPUT }, async ({ branch }) => ({
    content: [{ type: 'text', text: resultText(branch) }],
  }));
  return server;
}

/** SDK v1's own transport with sessions; before each request one read of the store, where there is one. */
function sdkV1(store) {
  const transports = new Map();
  return async (req, res) => {
    const chunks = [];
    for await (const chunk of req) chunks.push(chunk);
    const id = req.headers['mcp-session-id'];
    if (id !== undefined) await store?.get(`ended ${id}`);
    const known = transports.get(id);
    const transport = known ?? new StreamableHTTPServerTransport({ sessionIdGenerator: randomUUID });
    if (known === undefined) await build(McpServer).connect(transport);
    await transport.handleRequest(req, res, JSON.parse(Buffer.concat(chunks).toString()));
    if (known === undefined) transports.set(transport.sessionId, transport);
  };
}

const ours = (store, Server = McpServer, options = {}) =>
  toNodeHandler(
    createAwaitHandler(() => build(Server), {
      secrets: [SECRET],
      ...(store !== undefined && { store }),
      ...options,
    }),
  );

const [whose, kind] = process.argv[2].split(' ');
const store = await storeNamed(kind);
const listeners = {
  'sdk-v1': sdkV1,
  'sdk-v2': () => onNode(createMcpHandler(() => build(McpServerV2))),
  'ours-2025': ours,
  'ours-2025-named': (store) => ours(store, McpServer, { steps: false }),
  'ours-2026-v1': ours,
  'ours-2026-v2': (store) => ours(store, McpServerV2),
};
serve(listeners[whose](store));
