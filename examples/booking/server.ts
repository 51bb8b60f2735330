// A booking tool as it has always been written: it asks its user twice in its middle. It knows nothing of
// mcp-await, and is not changed for it.
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { z } from 'zod';

export default function buildServer(): McpServer {
  const server = new McpServer({ name: 'booking', version: '1.0.0' });

  server.registerTool(
    'book_flight',
    { description: 'Books a flight', inputSchema: { to: z.string() } },
    async ({ to }) => {
      const when = await server.server.elicitInput({
        message: `When do you want to fly to ${to}?`,
        requestedSchema: { type: 'object', properties: { day: { type: 'string' } }, required: ['day'] },
      });
      if (when.action !== 'accept') return text('Nothing was booked.');

      const sure = await server.server.elicitInput({
        message: `The flight to ${to} on ${when.content?.day} is 120 €. Book it?`,
        requestedSchema: { type: 'object', properties: { yes: { type: 'boolean' } }, required: ['yes'] },
      });
      if (sure.action !== 'accept' || sure.content?.yes !== true) return text('Nothing was booked.');

      return text(`Booked a flight to ${to} on ${when.content?.day}.`);
    },
  );

  return server;
}

function text(message: string): { content: { type: 'text'; text: string }[] } {
  return { content: [{ type: 'text', text: message }] };
}
