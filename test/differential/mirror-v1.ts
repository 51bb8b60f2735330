/** A server of SDK v1 whose tools report all that they can see, and do all that they can do. */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import {
  CreateMessageResultSchema,
  ElicitResultSchema,
  ErrorCode,
  ListRootsResultSchema,
  McpError,
} from '@modelcontextprotocol/sdk/types.js';
import { z } from 'zod';
import type { FactoryView } from './mirror-v2.ts';

const requestedSchema = {
  type: 'object' as const,
  properties: { name: { type: 'string' as const } },
  required: ['name'],
};
const text = (value: unknown) => ({ content: [{ type: 'text' as const, text: JSON.stringify(value) }] });

export function mirrorV1(view: FactoryView): McpServer {
  const server = new McpServer(
    { name: 'mirror', version: '1.0.0' },
    { capabilities: { logging: {} }, instructions: 'look into it' },
  );
  server.registerTool('see', {}, (extra) =>
    text({
      factory: view.requestInfo?.headers.get('x-tenant'),
      capabilities: server.server.getClientCapabilities(),
      client: server.server.getClientVersion(),
      id: typeof extra.requestId,
      session: typeof extra.sessionId,
      auth: extra.authInfo,
      tenant: extra.requestInfo?.headers['x-tenant'],
      url: extra.requestInfo?.url?.href,
      meta: extra._meta,
      aborted: extra.signal.aborted,
    }),
  );
  server.registerTool('fails', {}, () => {
    throw new Error('it broke');
  });
  server.registerTool('refuses', {}, () => {
    throw new McpError(ErrorCode.InvalidRequest, 'not today', { why: 'rain' });
  });
  server.registerTool('echo', { inputSchema: { value: z.number() } }, ({ value }) => text(value));
  server.registerTool('says', {}, async (extra) => {
    await extra.sendNotification({
      method: 'notifications/message',
      params: { level: 'warning', data: 'loud' },
    });
    const progressToken = extra._meta?.progressToken;
    if (progressToken !== undefined) {
      await extra.sendNotification({
        method: 'notifications/progress',
        params: { progressToken, progress: 1, total: 2 },
      });
    }
    return text('said');
  });
  server.registerTool('asks', {}, async ({ sendRequest }) => {
    const elicitation = {
      method: 'elicitation/create' as const,
      params: { message: 'name?', requestedSchema },
    };
    const elicited = await sendRequest(elicitation, ElicitResultSchema);
    const { roots } = await sendRequest({ method: 'roots/list' }, ListRootsResultSchema);
    const content = { type: 'text' as const, text: 'a poem' };
    const params = { messages: [{ role: 'user' as const, content }], maxTokens: 10 };
    const sampled = await sendRequest(
      { method: 'sampling/createMessage', params },
      CreateMessageResultSchema,
    );
    return text({ elicited, roots, sampled });
  });
  server.registerResource('note', 'note://one', { mimeType: 'text/plain' }, ({ href }) => ({
    contents: [{ uri: href, text: 'one' }],
  }));
  server.registerPrompt('greet', { argsSchema: { name: z.string() } }, ({ name }) => ({
    messages: [{ role: 'user', content: { type: 'text', text: `Greet ${name}` } }],
  }));
  return server;
}
