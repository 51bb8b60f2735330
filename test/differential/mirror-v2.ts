/** A server of SDK v2 whose tools report all that they can see, and do all that they can do. */
import * as installed from '@modelcontextprotocol/server';
import { z } from 'zod';

const form = {
  type: 'object' as const,
  properties: { name: { type: 'string' as const } },
  required: ['name'],
};
const text = (value: unknown) => ({ content: [{ type: 'text' as const, text: JSON.stringify(value) }] });

/** The factory's view of its client, natively and hosted. */
export interface FactoryView {
  readonly era?: string;
  readonly requestInfo?: Request;
  readonly authInfo?: unknown;
}

function seen(server: installed.McpServer, context: installed.ServerContext, view: FactoryView) {
  const { mcpReq, http, sessionId } = context;
  return {
    factory: {
      era: view.era,
      tenant: view.requestInfo?.headers.get('x-tenant'),
      method: view.requestInfo?.method,
      authInfo: view.authInfo,
    },
    version: server.server.getNegotiatedProtocolVersion(),
    capabilities: server.server.getClientCapabilities(),
    client: server.server.getClientVersion(),
    envelope: mcpReq.envelope,
    meta: mcpReq._meta,
    method: mcpReq.method,
    id: typeof mcpReq.id,
    session: typeof sessionId,
    responses: mcpReq.inputResponses,
    dropped: mcpReq.droppedInputResponseKeys,
    state: mcpReq.requestState(),
    aborted: mcpReq.signal.aborted,
    http: http?.req && {
      tenant: http.req.headers.get('x-tenant'),
      method: http.req.method,
      url: http.req.url,
      version: http.req.headers.get('mcp-protocol-version'),
    },
    auth: http?.authInfo,
  };
}

/** The SDK, in any of its releases. */
export type Sdk = typeof installed;

export function mirrorV2(view: FactoryView, sdk: Sdk = installed): installed.McpServer {
  const { acceptedContent, completable, inputRequired, McpServer, ProtocolError, ResourceTemplate } = sdk;
  const server = new McpServer(
    { name: 'mirror', version: '2.0.0' },
    {
      capabilities: { logging: {} },
      instructions: 'look into it',
      cacheHints: {
        'resources/read': { ttlMs: 60_000, cacheScope: 'public' },
        'tools/list': { ttlMs: 30_000, cacheScope: 'private' },
      },
    },
  );
  const none = { inputSchema: z.object({}) };
  server.registerTool('see', none, (_args, context) => text(seen(server, context, view)));
  server.registerTool('fails', none, () => {
    throw new Error('it broke');
  });
  server.registerTool('refuses', none, () => {
    throw new ProtocolError(-32_099, 'not today', { why: 'rain' });
  });
  server.registerTool('lists', { ...none, outputSchema: z.array(z.number()) }, () => ({
    content: [],
    structuredContent: [1, 2, 3],
  }));
  server.registerTool('counts', { ...none, outputSchema: z.number() }, () => ({
    content: [],
    structuredContent: 0,
  }));
  server.registerTool('describes', { ...none, outputSchema: z.object({ a: z.number() }) }, () => ({
    content: [],
    structuredContent: { a: 1 },
  }));
  server.registerTool('breaks-its-schema', { ...none, outputSchema: z.object({ a: z.number() }) }, () => ({
    content: [],
    structuredContent: { a: 'one' } as unknown as { a: number },
  }));
  server.registerTool('echo', { inputSchema: z.object({ value: z.number() }) }, ({ value }) => text(value));
  server.registerTool('says', none, async (_args, { mcpReq }) => {
    await mcpReq.log('debug', 'quiet');
    await mcpReq.log('warning', 'loud', 'mirror');
    await mcpReq.notify({ method: 'notifications/vendor/tick', params: { n: 1 } });
    const progressToken = mcpReq._meta?.progressToken;
    if (progressToken !== undefined) {
      await mcpReq.notify({
        method: 'notifications/progress',
        params: { progressToken, progress: 1, total: 2 },
      });
    }
    return text('said');
  });
  server.registerTool('needs', none, (_args, context) => {
    const { mcpReq } = context;
    const who = acceptedContent<{ name: string }>(mcpReq.inputResponses, 'who');
    if (who === undefined) {
      return inputRequired({
        inputRequests: {
          who: inputRequired.elicit({ message: 'who?', requestedSchema: form }),
          where: inputRequired.listRoots(),
        },
        requestState: 'of its own',
      });
    }
    return text({ who, responses: mcpReq.inputResponses, state: mcpReq.requestState() });
  });
  server.registerTool('needs-thrice', none, (_args, { mcpReq }) => {
    const count = Number(mcpReq.requestState() ?? 0);
    if (count === 3) return text({ count, responses: mcpReq.inputResponses });
    return inputRequired({
      inputRequests: { again: inputRequired.elicit({ message: `round ${count}`, requestedSchema: form }) },
      requestState: String(count + 1),
    });
  });
  server.registerTool('needs-time', none, (_args, { mcpReq }) => {
    const state = mcpReq.requestState<string>();
    return state === undefined ? inputRequired({ requestState: 'later' }) : text({ state });
  });
  server.registerTool('needs-what-nobody-has', none, () =>
    inputRequired({ inputRequests: { poem: inputRequired.createMessage({ messages: [], maxTokens: 1 }) } }),
  );
  server.registerTool('needs-nothing', none, () => inputRequired({ inputRequests: {} } as never));
  server.registerResource('note', 'note://one', { mimeType: 'text/plain' }, ({ href }) => ({
    contents: [{ uri: href, text: 'one' }],
  }));
  const template = new ResourceTemplate('note://{name}/more', { list: undefined });
  server.registerResource('more', template, {}, ({ href }) => ({ contents: [{ uri: href, text: 'more' }] }));
  server.registerPrompt(
    'greet',
    { argsSchema: z.object({ name: completable(z.string(), (value) => [`${value}a`, `${value}b`]) }) },
    ({ name }) => ({ messages: [{ role: 'user', content: { type: 'text', text: `Greet ${name}` } }] }),
  );
  return server;
}
