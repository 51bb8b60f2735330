// A server on Cloudflare Workers, sealed: a call that waits for its user is inside of its token, and nothing is
// stored anywhere. Deploy with `nodejs_compat`, and MCP_AWAIT_SECRET as a secret.
import { env } from 'cloudflare:workers';
import { createAwaitHandler } from 'mcp-await';
import buildServer from './server.js';

const handler = createAwaitHandler(buildServer, { state: 'sealed', secrets: [env.MCP_AWAIT_SECRET] });

export default { fetch: (request: Request) => handler.fetch(request) };
