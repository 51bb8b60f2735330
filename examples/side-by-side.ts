// One server with both styles: a tool that awaits, and one that returns `inputRequired` and is called again.
// SEP-2322 calls the first style legacy; a server can move its tools one by one, or never.
//
//   npx mcp-await serve examples/side-by-side.ts
import { acceptedContent, inputRequired, McpServer } from '@modelcontextprotocol/server';
import { z } from 'zod';

const NAME = {
  type: 'object' as const,
  properties: { name: { type: 'string' as const } },
  required: ['name'],
};

export default function buildServer(): McpServer {
  const server = new McpServer({ name: 'side-by-side', version: '1.0.0' });

  server.registerTool('greet_await', { description: 'Awaits its user' }, async (ctx) => {
    const answer = await ctx.mcpReq.elicitInput({ message: 'What is your name?', requestedSchema: NAME });
    return greet(answer.action === 'accept' ? String(answer.content?.name) : 'whoever you are');
  });

  server.registerTool('greet_input_required', { description: 'Is called again' }, async (ctx) => {
    const answer = await acceptedContent(ctx.mcpReq.inputResponses, 'name', z.object({ name: z.string() }));
    if (answer !== undefined) return greet(answer.name);
    return inputRequired({
      inputRequests: { name: inputRequired.elicit({ message: 'What is your name?', requestedSchema: NAME }) },
    });
  });

  return server;
}

function greet(name: string): { content: { type: 'text'; text: string }[] } {
  return { content: [{ type: 'text', text: `Hello, ${name}!` }] };
}
