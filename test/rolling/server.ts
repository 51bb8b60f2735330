/** One process of the rolling run, as the README mounts it. */
import process from 'node:process';
import express from 'express';
import { createAwaitHandler } from '../../src/index.ts';
import { closeOnSignals, toNodeHandler } from '../../src/node.ts';
import { openRelay } from '../../src/relay/open-relay.ts';
import { openStore } from '../../src/store.ts';
import buildServer from './tool.ts';

const [storeUrl = '', relayUrl = '', port = '', linger = '0'] = process.argv.slice(2);
const store = await openStore(storeUrl);
const handler = createAwaitHandler(buildServer, {
  store,
  secrets: [process.env.MCP_AWAIT_SECRET],
  ...(relayUrl !== '' && { relay: await openRelay(relayUrl) }),
});
const app = express();
app.all('/mcp', toNodeHandler(handler));
app.get('/readyz', async (_req, res) => {
  const health = await handler.health();
  res.status(health.ready ? 200 : 503).json(health);
});
const server = app.listen(Number(port), '127.0.0.1', (error?: Error) => {
  if (error) throw error;
  console.log(`listening on http://127.0.0.1:${port}/mcp`);
});
closeOnSignals(server, handler, { linger: Number(linger) });
