// The booking server as the official SDK serves it: one process that holds its sessions, 2025 clients alone.
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import express from 'express';
import buildServer from './server.ts';

const app = express();
const transports = new Map<string, StreamableHTTPServerTransport>();
app.all('/mcp', async (req, res) => {
  let transport = transports.get(String(req.headers['mcp-session-id']));
  if (transport === undefined) {
    const created = new StreamableHTTPServerTransport({
      sessionIdGenerator: () => crypto.randomUUID(),
      onsessioninitialized: (id) => void transports.set(id, created),
    });
    await buildServer().connect(created);
    transport = created;
  }
  await transport.handleRequest(req, res);
});
app.listen(3000, '127.0.0.1', (error) => {
  if (error) throw error;
  console.log('listening on http://127.0.0.1:3000/mcp');
});
