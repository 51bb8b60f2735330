/** The one handler over all revisions: who is it, which revision does it speak, and off it goes. */
import { isObject } from '../src/call/json.ts';
import { wireError } from '../src/call/wire-error.ts';
import { AwaitError } from '../src/error.ts';
import type { HostFactory } from '../src/host/host.ts';
import { readBody } from '../src/http/body.ts';
import { Departure } from '../src/http/departure.ts';
import type { Inbound, Reply } from '../src/http/exchange.ts';
import { type FetchOptions, inboundOf, responseOf } from '../src/http/fetch.ts';
import { type OriginRules, refuseForeign } from '../src/http/origin.ts';
import type { Place } from '../src/http/paths.ts';
import { empty, idOf, rpcError } from '../src/http/reply.ts';
import type { Counters } from '../src/observe/counters.ts';
import { type AwaitOptions, settle } from '../src/options.ts';
import { createEdge as create2024 } from './2024-11-05/edge.ts';
import { createEdge as create2025 } from './2025/edge.ts';
import { createEdge as create2026 } from './2026-07-28/edge.ts';
import { shuttingDown } from './failure.ts';
import { createServices } from './services.ts';
import { createEdge as createWorkspace } from './workspace-sse/edge.ts';
import { REVISION as WORKSPACE } from './workspace-sse/wire.ts';

/** The revisions whose clients begin with a session over Streamable HTTP. */
const SESSIONS: ReadonlySet<string> = new Set([
  '2025-03-26',
  '2025-06-18',
  '2025-11-25',
  'DRAFT-SEP-1858',
  'DRAFT-MRTR-2026-02',
  'DRAFT-SEP-2322',
]);

type Wire = Exclude<Place['wire'], 'mcp'>;

interface WireEdge {
  post?(inbound: Inbound, body: unknown, place: Place): Promise<Reply>;
  get?(inbound: Inbound, place: Place): Promise<Reply>;
  close?(): Promise<void> | void;
}

export interface AwaitHandler {
  /** One HTTP request of any revision: for Hono, Workers, Bun, Deno, and everything fetch-shaped. */
  readonly fetch: (request: Request, options?: FetchOptions) => Promise<Response>;
  /**
   * For shutting down: new requests get 503; turns that are being run have `limits.drain` to end, and are then
   * put down for other processes to take up; open streams end. Suspended calls stay good.
   */
  readonly close: () => Promise<void>;
  /** Frames parked in this process. */
  readonly parked: number;
  /** What happened since it was made. */
  readonly counters: Readonly<Counters>;
  /** Used by `mcp-await/node`, which saves making a `Request` and a `Response`. */
  readonly serve: (inbound: Inbound) => Promise<Reply>;
}

/**
 * Serves an await-style MCP server to clients of every revision.
 *
 * @param factory makes a server: an SDK v1 or v2 `McpServer` or `Server`, or `{ server, cleanup }`. It is
 *   called for each session, or each call where there are no sessions, and must return a fresh one.
 * @throws AwaitError `bad-option` for an option that makes no sense, with what to write instead
 */
export function createAwaitHandler(factory: HostFactory, options: AwaitOptions = {}): AwaitHandler {
  if (typeof factory !== 'function') {
    throw new AwaitError(
      'bad-option',
      'createAwaitHandler needs a factory that makes a server: createAwaitHandler(() => buildServer(), options)',
    );
  }
  const settings = settle(options);
  const services = createServices(factory, settings);
  const modern = settings.revisions.has('2026-07-28') ? create2026(services) : undefined;
  const legacy = [...settings.revisions].some((revision) => SESSIONS.has(revision))
    ? create2025(services)
    : undefined;
  /** The wires that have paths of their own. */
  const apart: Partial<Record<Wire, WireEdge>> = {
    ...(settings.revisions.has('2024-11-05') && create2024(services)),
    ...(settings.revisions.has(WORKSPACE) && { workspace: createWorkspace(services) }),
  };
  const rules: OriginRules = {
    origins: settings.allowedOrigins,
    ...(settings.allowedHosts !== undefined && { hosts: settings.allowedHosts }),
  };
  let closed = false;

  const route = async (inbound: Inbound, onBody: (body: unknown) => void): Promise<Reply> => {
    const refusal = refuseForeign(inbound, rules);
    if (refusal !== undefined) return refusal;
    if (closed) return (await lastWords(inbound)) ?? shuttingDown();
    const place = settings.paths.find(inbound.path, inbound.base);
    if (place === undefined) return rpcError(404, -32000, 'Not found: no workspace is called that');
    const edge = place.wire === 'mcp' ? undefined : apart[place.wire];
    if (edge !== undefined && !['GET', 'POST'].includes(inbound.method))
      return methodNotAllowed(allowedBy(edge));
    switch (inbound.method) {
      case 'POST': {
        const read = await readBody(inbound, settings.limits.bodyBytes);
        if ('reply' in read) return read.reply;
        onBody(read.body);
        const tooMuch = await services.rates?.refuse(inbound, read.body);
        if (tooMuch !== undefined) return tooMuch;
        if (edge !== undefined) return edge.post?.(inbound, read.body, place) ?? methodNotAllowed('GET');
        const version = inbound.header('mcp-protocol-version') ?? '';
        // The SDK knows no drafts, and would take one for a revision to come.
        if (version.startsWith('DRAFT-') && legacy !== undefined) return legacy.post(inbound, read.body);
        return (
          modern?.serve(inbound, read.body) ??
          legacy?.post(inbound, read.body) ??
          modern?.refuse(inbound, read.body) ??
          rpcError(404, -32000, 'Not found: no revision of Streamable HTTP is served here', idOf(read.body))
        );
      }
      case 'GET':
        if (edge !== undefined) return edge.get?.(inbound, place) ?? methodNotAllowed('POST');
        return legacy?.get(inbound) ?? methodNotAllowed('POST');
      case 'DELETE':
        if (edge !== undefined) return methodNotAllowed('GET, POST');
        return legacy?.end(inbound) ?? methodNotAllowed('POST');
      default:
        return methodNotAllowed(legacy === undefined ? 'POST' : 'GET, POST, DELETE');
    }
  };

  /** While turns come to their end, answers to what they asked are still taken. */
  const lastWords = async (inbound: Inbound): Promise<Reply | undefined> => {
    if (inbound.method !== 'POST') return undefined;
    const place = settings.paths.find(inbound.path, inbound.base);
    const edge = place === undefined || place.wire === 'mcp' ? undefined : apart[place.wire];
    const isOfSession = legacy !== undefined && inbound.header('mcp-session-id') !== undefined;
    if (edge === undefined && !isOfSession) return undefined;
    const read = await readBody(inbound, settings.limits.bodyBytes);
    if ('reply' in read) return read.reply;
    const messages = Array.isArray(read.body) ? read.body : [read.body];
    const isAnswer = messages.every((message) => isObject(message) && message.method === undefined);
    if (!isAnswer) return undefined;
    return edge === undefined || place === undefined
      ? legacy?.post(inbound, read.body)
      : edge.post?.(inbound, read.body, place);
  };

  const serve = async (inbound: Inbound): Promise<Reply> => {
    let id: string | number | null = null;
    try {
      return await route(inbound, (body) => {
        id = idOf(body);
      });
    } catch (error) {
      const failure = AwaitError.from(error);
      settings.logger.error(failure.message, { code: failure.code, cause: String(failure.cause ?? '') });
      if (failure.code !== 'limit') return rpcError(500, -32603, 'Internal error', id);
      const { code, message } = wireError(failure);
      return rpcError(429, code, message, id);
    }
  };

  return {
    serve,
    fetch: async (request, fetchOptions) => {
      const gone = new Departure();
      if (request.signal.aborted) gone.tell();
      request.signal.addEventListener('abort', gone.tell, { once: true });
      const reply = await serve({ ...inboundOf(request, fetchOptions), signal: gone });
      return responseOf(reply, gone.tell);
    },
    close: async () => {
      if (closed) return;
      closed = true;
      await services.close();
      legacy?.close();
      for (const edge of Object.values(apart)) await edge.close?.();
      await modern?.close();
    },
    counters: services.counters,
    get parked() {
      return services.engine.parked;
    },
  };
}

function allowedBy({ get, post }: WireEdge): string {
  return [...(get === undefined ? [] : ['GET']), ...(post === undefined ? [] : ['POST'])].join(', ');
}

function methodNotAllowed(allow: string): Reply {
  return { ...empty(405, { allow }), body: '' };
}
