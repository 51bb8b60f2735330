/** Tools as `mcp-handler` takes them. */
import type { McpServer } from '@modelcontextprotocol/server';

export async function registerTools(server: McpServer): Promise<void> {
  server.registerTool('greet', { description: 'Greets its user by name' }, async (ctx) => {
    const answer = await ctx.mcpReq.elicitInput({
      message: 'What is your name?',
      requestedSchema: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] },
    });
    const name = answer.action === 'accept' ? answer.content?.name : undefined;
    return { content: [{ type: 'text', text: `${ctx.http?.authInfo?.clientId}: ${name}` }] };
  });
}
