/** Remote servers that check bearer tokens as the SDKs' middleware does, and the authorization server that issues them. */
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { DemoInMemoryAuthProvider } from '@modelcontextprotocol/sdk/examples/server/demoInMemoryOAuthProvider.js';
import { InvalidTokenError } from '@modelcontextprotocol/sdk/server/auth/errors.js';
import { requireBearerAuth } from '@modelcontextprotocol/sdk/server/auth/middleware/bearerAuth.js';
import {
  createOAuthMetadata,
  getOAuthProtectedResourceMetadataUrl,
  mcpAuthMetadataRouter,
  mcpAuthRouter,
} from '@modelcontextprotocol/sdk/server/auth/router.js';
import type { AuthInfo } from '@modelcontextprotocol/sdk/server/auth/types.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { ElicitResultSchema } from '@modelcontextprotocol/sdk/types.js';
import {
  acceptedContent,
  createMcpHandler,
  inputRequired,
  McpServer as ModernServer,
} from '@modelcontextprotocol/server';
import express, { type Express, type Response as ExpressResponse, type Request } from 'express';
import { afterAll, afterEach } from 'vitest';
import { z } from 'zod';
import { listen, shut } from './harness.ts';

const HOUR = 3_600;

export interface Authority {
  readonly url: string;
  /** A token of a user's. */
  issue(user: string, token?: string): string;
  revoke(token: string): void;
  verifyAccessToken(token: string): Promise<AuthInfo>;
  close(): Promise<void>;
}

export const bearer = (token: string) => ({ authorization: `Bearer ${token}` });

/** The authorization server of a test file, and what each of its tests has to close. */
export async function authorityOfSuite() {
  const oauth = await authority();
  const closing: (() => Promise<unknown>)[] = [];
  afterEach(async () => {
    for (const close of closing.splice(0).reverse()) await close();
  });
  afterAll(() => oauth.close());
  return { oauth, closing };
}

/** An authorization server with registration of clients and PKCE, on an origin of its own; its user says yes at once. */
async function authority(): Promise<Authority> {
  const provider = new DemoInMemoryAuthProvider();
  const issued = new Map<string, AuthInfo>();
  const app = express();
  const server = createServer(app);
  const url = await listen(server);
  app.use(mcpAuthRouter({ provider, issuerUrl: new URL(url) }));
  return {
    url,
    issue: (user, token = `token-${user}-${randomUUID()}`) => {
      const expiresAt = Math.floor(Date.now() / 1_000) + HOUR;
      issued.set(token, { token, clientId: user, scopes: [], expiresAt });
      return token;
    },
    revoke: (token) => void issued.delete(token),
    verifyAccessToken: async (token) => {
      try {
        return issued.get(token) ?? (await provider.verifyAccessToken(token));
      } catch {
        throw new InvalidTokenError('Unknown token');
      }
    },
    close: () => shut(server),
  };
}

export interface Guarded {
  readonly url: string;
  /** Requests that came in: JSON-RPC method or HTTP method, and token. */
  readonly seen: { readonly method: string; readonly token: string | undefined }[];
  /** The tokens that were sent in each session. */
  readonly sessions: Map<string, Set<string>>;
  /** Most requests that were checked at once. */
  readonly mostAtOnce: () => number;
  /** What a check of a token waits for. */
  slow: Promise<unknown> | undefined;
  /** From now on its metadata names this URL as the resource. */
  publish(url: string): void;
  close(): Promise<void>;
}

export type Kind = '2025-11-25' | '2026-07-28';

/** A server whose tools say who calls; it knows the public URL that it is served at. */
export async function guarded(kind: Kind, oauth: Authority): Promise<Guarded> {
  const seen: Guarded['seen'] = [];
  const sessions = new Map<string, Set<string>>();
  const serve = kind === '2025-11-25' ? legacyEndpoint(sessions) : modernEndpoint();
  let atOnce = 0;
  let mostAtOnce = 0;
  const appFor = (publicUrl: string): Express => {
    const app = express();
    app.use(
      mcpAuthMetadataRouter({
        oauthMetadata: createOAuthMetadata({
          provider: { clientsStore: { registerClient: () => {} } } as never,
          issuerUrl: new URL(oauth.url),
        }),
        resourceServerUrl: new URL(publicUrl),
      }),
    );
    const verifier = {
      verifyAccessToken: async (token: string) => {
        atOnce += 1;
        mostAtOnce = Math.max(mostAtOnce, atOnce);
        await guard.slow;
        atOnce -= 1;
        return oauth.verifyAccessToken(token);
      },
    };
    const bearer = requireBearerAuth({
      verifier,
      resourceMetadataUrl: getOAuthProtectedResourceMetadataUrl(new URL(publicUrl)),
    });
    const note = (req: Request, _res: ExpressResponse, next: () => void): void => {
      const { method = req.method } = (req.body ?? {}) as { method?: string };
      seen.push({ method, token: req.headers.authorization?.replace('Bearer ', '') });
      next();
    };
    app.all('/mcp', express.json(), note, bearer, (req, res) => void serve(req, res));
    return app;
  };
  let app: Express | undefined;
  const server = createServer((req, res) => app?.(req, res));
  const url = `${await listen(server)}/mcp`;
  app = appFor(url);
  const guard: Guarded = {
    url,
    seen,
    sessions,
    mostAtOnce: () => mostAtOnce,
    slow: undefined,
    publish: (publicUrl) => {
      app = appFor(publicUrl);
    },
    close: () => shut(server),
  };
  return guard;
}

const NAMED = {
  type: 'object' as const,
  properties: { name: { type: 'string' as const } },
  required: ['name'],
};
const said = (text: string) => ({ content: [{ type: 'text' as const, text }] });

type Serve = (req: Request, res: ExpressResponse) => Promise<void>;

function legacyEndpoint(sessions: Map<string, Set<string>>): Serve {
  const transports = new Map<string, StreamableHTTPServerTransport>();
  return async (req, res) => {
    let transport = transports.get(String(req.headers['mcp-session-id']));
    if (transport === undefined) {
      const made = new StreamableHTTPServerTransport({
        sessionIdGenerator: () => randomUUID(),
        onsessioninitialized: (id) => void transports.set(id, made),
      });
      await legacyServer().connect(made as Transport);
      transport = made;
    }
    await transport.handleRequest(req, res, req.body);
    const { sessionId } = transport;
    const { auth } = req as Request & { auth?: AuthInfo };
    if (sessionId === undefined || auth === undefined) return;
    sessions.set(sessionId, (sessions.get(sessionId) ?? new Set()).add(auth.token));
  };
}

function legacyServer(): McpServer {
  const server = new McpServer({ name: 'guarded', version: '1.0.0' });
  server.registerTool('who', {}, ({ authInfo }) => said(String(authInfo?.clientId)));
  server.registerTool('ask', { annotations: { readOnlyHint: true } }, async ({ authInfo, sendRequest }) => {
    // On the stream of its call: the standing one may not be open yet.
    const params = { message: 'name?', requestedSchema: NAMED };
    const { content } = await sendRequest({ method: 'elicitation/create', params }, ElicitResultSchema);
    return said(`${String(content?.name)}, says ${authInfo?.clientId}`);
  });
  return server;
}

function modernEndpoint(): Serve {
  const handler = createMcpHandler(modernServer, { legacy: 'reject' });
  return async (req, res) => {
    const { auth } = req as Request & { auth?: AuthInfo };
    const response = await handler.fetch(
      new globalThis.Request(`http://${req.headers.host}${req.url}`, {
        method: req.method,
        headers: req.headers as Record<string, string>,
        ...(req.method === 'POST' && { body: JSON.stringify(req.body) }),
      }),
      { ...(auth !== undefined && { authInfo: auth }) },
    );
    res.writeHead(response.status, Object.fromEntries(response.headers));
    res.end(await response.text());
  };
}

function modernServer(): ModernServer {
  const server = new ModernServer({ name: 'guarded', version: '1.0.0' });
  const none = z.object({});
  server.registerTool(
    'slow',
    { inputSchema: none, annotations: { readOnlyHint: true } },
    async (_args, { mcpReq }) => {
      await sleep(120_000, undefined, { signal: mcpReq.signal, ref: false }).catch(() => {});
      return said('slow');
    },
  );
  server.registerTool('who', { inputSchema: none }, (_args, { http }) =>
    said(String(http?.authInfo?.clientId)),
  );
  server.registerTool(
    'ask',
    { inputSchema: none, annotations: { readOnlyHint: true } },
    (_args, { http, mcpReq }) => {
      const { name } = acceptedContent<{ name: string }>(mcpReq.inputResponses as never, 'name') ?? {};
      if (name !== undefined) return said(`${name}, says ${http?.authInfo?.clientId}`);
      const ask = inputRequired.elicit({ message: 'name?', requestedSchema: NAMED });
      return inputRequired({ inputRequests: { name: ask } });
    },
  );
  return server;
}
