// The booking tool of server.ts, where what must not happen twice is in a step: a call that goes on in another
// process is run again from its start there, and holds no second seat.
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { step } from 'mcp-await';
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

      const hold = await step('hold a seat', () => ({ seat: '12A', by: process.pid }));

      const sure = await server.server.elicitInput({
        message: `Seat ${hold.seat} to ${to} on ${when.content?.day} is 120 €. Book it?`,
        requestedSchema: { type: 'object', properties: { yes: { type: 'boolean' } }, required: ['yes'] },
      });
      if (sure.action !== 'accept' || sure.content?.yes !== true) return text('Nothing was booked.');

      const receipt = await step('charge', ({ idempotencyKey }) => charge(120, idempotencyKey));
      return text(`Booked seat ${hold.seat} to ${to} on ${when.content?.day}: receipt ${receipt}.`);
    },
  );

  return server;
}

/** Stands for a payment service: the same key gets the same receipt. */
function charge(amount: number, idempotencyKey: string): string {
  return `${amount}-${idempotencyKey.slice(0, 6)}`;
}

function text(message: string): { content: { type: 'text'; text: string }[] } {
  return { content: [{ type: 'text', text: message }] };
}
