// The same server for clients of every revision, from as many processes as share the store.
import express from 'express';
import { createAwaitHandler } from 'mcp-await';
import { closeOnSignals, toNodeHandler } from 'mcp-await/node';
import { openStore } from 'mcp-await/store';
import buildServer from './server.ts';

const app = express();
const handler = createAwaitHandler(buildServer, {
  store: await openStore(process.env.REDIS_URL ?? 'redis://127.0.0.1:6379'),
  secrets: [process.env.MCP_AWAIT_SECRET],
});
app.all('/mcp', toNodeHandler(handler));
const server = app.listen(3000, '127.0.0.1', (error) => {
  if (error) throw error;
  console.log('listening on http://127.0.0.1:3000/mcp');
});
closeOnSignals(server, handler);
