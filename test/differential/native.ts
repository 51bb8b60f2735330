/** The servers on their own SDK's transports. */
import { randomUUID } from 'node:crypto';
import {
  createMcpHandler,
  type McpServer as McpServerV2,
  WebStandardStreamableHTTPServerTransport as TransportV2,
} from '@modelcontextprotocol/server';
import type { FactoryView } from './mirror-v2.ts';
import type { Fetch } from './talk.ts';

export function nativeModern(
  factory: (view: FactoryView) => McpServerV2,
  authInfo?: object,
  create = createMcpHandler,
): Fetch {
  const handler = create((context) => factory(context as FactoryView), { legacy: 'reject' });
  return (request) => handler.fetch(request, authInfo === undefined ? {} : { authInfo: authInfo as never });
}

interface SessionTransport {
  readonly sessionId?: string | undefined;
  handleRequest(request: Request, options?: { authInfo?: never }): Promise<Response>;
}

/** A server for each session, as the SDKs' own examples mount one. */
export function nativeSessions(open: () => Promise<SessionTransport>, authInfo?: object): Fetch {
  const sessions = new Map<string, SessionTransport>();
  return async (request) => {
    const id = request.headers.get('mcp-session-id');
    const transport = (id !== null && sessions.get(id)) || (await open());
    const options = authInfo === undefined ? {} : { authInfo: authInfo as never };
    const reply = await transport.handleRequest(request, options);
    if (transport.sessionId !== undefined) sessions.set(transport.sessionId, transport);
    return reply;
  };
}

export function nativeSessionsV2(factory: (view: FactoryView) => McpServerV2, authInfo?: object): Fetch {
  return nativeSessions(async () => {
    const transport = new TransportV2({ sessionIdGenerator: randomUUID });
    await factory({}).connect(transport);
    return transport;
  }, authInfo);
}
