/** A service of the security tests: a tool that asks, and a server that believes each token's claims. */
import { createServer } from 'node:http';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js';
import { z } from 'zod';
import { type AwaitHandler, type AwaitOptions, createAwaitHandler } from '../../src/index.ts';
import { type NodeRequest, toNodeHandler } from '../../src/node.ts';
import { LogBook, listen, SECRET, shut } from '../e2e/harness.ts';

/** What only the caller whose call it is may see. */
export const WORD = 'the-callers-own-word';
export const QUESTION = 'the-callers-own-question';

export interface Service {
  /** Without a path. */
  readonly root: string;
  readonly handler: AwaitHandler;
  readonly log: LogBook;
  /** Its tools' effects, by the service's name. */
  readonly effects: string[];
  close(): Promise<void>;
}

/** `hold` asks a question and then acts; it runs as a task where its client can take one and `job` is its name. */
function serverOf(name: string, effects: string[]) {
  return (): McpServer => {
    const server = new McpServer({ name, version: '1.0.0' });
    const tool = async ({ word }: { word: string }): Promise<CallToolResult> => {
      const { action, content } = await server.server.elicitInput({
        message: QUESTION,
        requestedSchema: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] },
      });
      const text = `${word} ${action === 'accept' ? String(content?.name) : action}`;
      effects.push(`${name}: ${text}`);
      return { content: [{ type: 'text', text }] };
    };
    for (const each of ['hold', 'job'])
      server.registerTool(each, { inputSchema: { word: z.string() } }, tool);
    return server;
  };
}

/** @param name the service's name, in its tools' effects */
export async function serve(name: string, options: AwaitOptions = {}): Promise<Service> {
  const effects: string[] = [];
  const log = new LogBook();
  const handler = createAwaitHandler(serverOf(name, effects), {
    secrets: [SECRET],
    logger: log,
    tasks: ({ params }) => (params.name === 'job' ? 'now' : 'never'),
    revisions: ['*', { name: 'workspace-sse', capabilities: { elicitation: {} } }],
    ...options,
    limits: { drain: 200, lease: 1_500, ...options.limits },
  });
  const listener = toNodeHandler(handler);
  const server = createServer((req: NodeRequest, res) => {
    const token = /^Bearer (\S+)$/.exec(req.headers.authorization ?? '')?.[1];
    // As the SDKs' middleware leaves it: whose client it is, and the token.
    if (token !== undefined) req.auth = { token, clientId: 'the-one-client', scopes: [] };
    void listener(req, res);
  });
  const root = await listen(server);
  return {
    root,
    handler,
    log,
    effects,
    async close() {
      await handler.close();
      await shut(server);
    },
  };
}

/** A token as an identity provider signs it; its signature is not checked here, but by the middleware in front. */
export function jwt(claims: object): string {
  const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');
  return `${part({ alg: 'RS256', kid: 'k' })}.${part(claims)}.c2lnbmF0dXJl`;
}
