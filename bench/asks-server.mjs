/** The process of one variant of the benchmark of asks. */
import { randomUUID } from 'node:crypto';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { createAwaitHandler } from '../dist/src/index.js';
import { toNodeHandler } from '../dist/src/node.js';
import { build } from './round-trip/await.mjs';
import { SECRET } from './round-trip/tool.mjs';
import { serve } from './serving.mjs';

function sdkV1() {
  const transports = new Map();
  return async (req, res) => {
    const known = transports.get(req.headers['mcp-session-id']);
    const transport =
      known ??
      new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        onsessioninitialized: (id) => transports.set(id, transport),
      });
    if (known === undefined) await build().connect(transport);
    await transport.handleRequest(req, res);
  };
}

const VARIANTS = {
  'sdk-v1': sdkV1,
  'sep-1858': () => toNodeHandler(createAwaitHandler(() => build(), { secrets: [SECRET] })),
};
serve(VARIANTS[process.argv[2]]());
