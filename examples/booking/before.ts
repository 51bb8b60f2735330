// The booking server as the official SDK serves it: one process, one open stream, 2025 clients alone.
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import express from 'express';
import buildServer from './server.ts';

const app = express();
const server = buildServer();
const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: () => crypto.randomUUID() });
await server.connect(transport);
app.all('/mcp', (req, res) => transport.handleRequest(req, res));
app.listen(3000, '127.0.0.1', () => console.log('listening on http://127.0.0.1:3000/mcp'));
