/** The process of one variant of the benchmark of asks. */
import { randomUUID } from 'node:crypto';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { createAwaitHandler } from '../dist/src/index.js';
import { toNodeHandler } from '../dist/src/node.js';
import { build } from './round-trip/await.mjs';
import { SECRET } from './round-trip/tool.mjs';
import { serve } from './serving.mjs';
import { storeNamed } from './stores.mjs';

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

const ours = (options) => toNodeHandler(createAwaitHandler(() => build(), { secrets: [SECRET], ...options }));
const oursOn = (name) => async () => ours({ store: await storeNamed(name) });

const VARIANTS = {
  'sdk-v1': sdkV1,
  'ours-2025': ours,
  'ours-2025-redis': oursOn('redis'),
  'ours-2025-postgres': oursOn('postgres'),
  'ours-2025-sqlite': oursOn('sqlite'),
  'sep-1858': ours,
};
serve(await VARIANTS[process.argv[2]]());
