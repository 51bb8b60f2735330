/** The factory that the pages assume: SDK v1, one tool that asks. */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';

export default function buildServer(): McpServer {
  const server = new McpServer({ name: 'greeter', version: '1.0.0' });
  server.registerTool('greet', { description: 'Greets its user by name' }, async ({ authInfo }) => {
    const answer = await server.server.elicitInput({
      message: 'What is your name?',
      requestedSchema: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] },
    });
    return { content: [{ type: 'text', text: `${authInfo?.clientId}: ${answer.content?.name}` }] };
  });
  return server;
}
