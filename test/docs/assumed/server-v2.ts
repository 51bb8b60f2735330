/** The same server on SDK v2. */
import { McpServer } from '@modelcontextprotocol/server';

export default function buildServer(): McpServer {
  const server = new McpServer({ name: 'greeter', version: '1.0.0' });
  server.registerTool('greet', { description: 'Greets its user by name' }, async (ctx) => {
    const answer = await ctx.mcpReq.elicitInput({
      message: 'What is your name?',
      requestedSchema: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] },
    });
    const name = answer.action === 'accept' ? answer.content?.name : undefined;
    return { content: [{ type: 'text', text: `${ctx.http?.authInfo?.clientId}: ${name}` }] };
  });
  return server;
}
