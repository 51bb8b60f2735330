// The booking tool on SDK v2. It knows nothing of Workers, and nothing of waiting.
import { McpServer } from '@modelcontextprotocol/server';
import { step } from 'mcp-await';
import { z } from 'zod';

export default function buildServer(): McpServer {
  const server = new McpServer({ name: 'booking', version: '1.0.0' });
  server.registerTool(
    'book_flight',
    { description: 'Books a flight', inputSchema: z.object({ to: z.string() }) },
    async ({ to }, ctx) => {
      const when = await ctx.mcpReq.elicitInput({
        message: `When do you want to fly to ${to}?`,
        requestedSchema: { type: 'object', properties: { day: { type: 'string' } }, required: ['day'] },
      });
      const day = when.action === 'accept' ? when.content?.day : undefined;
      if (day === undefined) return text('Nothing was booked.');
      const seat = await step('hold a seat', ({ idempotencyKey }) => `12A (${idempotencyKey.slice(0, 4)})`);
      const sure = await ctx.mcpReq.elicitInput({
        message: `Seat ${seat} on ${day}. Book it?`,
        requestedSchema: { type: 'object', properties: { yes: { type: 'boolean' } }, required: ['yes'] },
      });
      if (sure.action !== 'accept' || sure.content?.yes !== true) return text('Nothing was booked.');
      return text(`Booked seat ${seat} to ${to} on ${day}.`);
    },
  );
  return server;
}

function text(message: string) {
  return { content: [{ type: 'text' as const, text: message }] };
}
