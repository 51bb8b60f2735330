/** The one handler over all revisions: who is it, which revision does it speak, and off it goes. */
import { isObject } from '../src/call/json.ts';
import { CLOSING } from '../src/call/wire-error.ts';
import { AwaitError } from '../src/error.ts';
import type { HostFactory } from '../src/host/host.ts';
import { readBody } from '../src/http/body.ts';
import { Departure } from '../src/http/departure.ts';
import type { Inbound, Reply } from '../src/http/exchange.ts';
import { type FetchOptions, inboundOf, responseOf } from '../src/http/fetch.ts';
import { type OriginRules, refuseForeign } from '../src/http/origin.ts';
import { empty, idOf, rpcError } from '../src/http/reply.ts';
import type { Counters } from '../src/observe/counters.ts';
import { type AwaitOptions, settle } from '../src/options.ts';
import { createEdge as create2025 } from './2025/edge.ts';
import { createEdge as create2026 } from './2026-07-28/edge.ts';
import { createServices } from './services.ts';

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
  const legacy = [...settings.revisions].some((revision) => revision !== '2026-07-28')
    ? create2025(services)
    : undefined;
  const rules: OriginRules = {
    origins: settings.allowedOrigins,
    ...(settings.allowedHosts !== undefined && { hosts: settings.allowedHosts }),
  };
  let closed = false;

  const route = async (inbound: Inbound, onBody: (body: unknown) => void): Promise<Reply> => {
    const refusal = refuseForeign(inbound, rules);
    if (refusal !== undefined) return refusal;
    if (closed) return (await lastWords(inbound)) ?? shuttingDown();
    switch (inbound.method) {
      case 'POST': {
        const read = await readBody(inbound, settings.limits.bodyBytes);
        if ('reply' in read) return read.reply;
        onBody(read.body);
        const tooMuch = await services.rates?.refuse(inbound, read.body);
        if (tooMuch !== undefined) return tooMuch;
        const version = inbound.header('mcp-protocol-version') ?? '';
        // The SDK knows no drafts, and would take one for a revision to come.
        if (version.startsWith('DRAFT-') && legacy !== undefined) return legacy.post(inbound, read.body);
        return (
          modern?.serve(inbound, read.body) ??
          legacy?.post(inbound, read.body) ??
          modern?.refuse(inbound, read.body) ??
          rpcError(404, -32000, 'Not found', idOf(read.body))
        );
      }
      case 'GET':
        return legacy?.get(inbound) ?? methodNotAllowed('POST');
      case 'DELETE':
        return legacy?.end(inbound) ?? methodNotAllowed('POST');
      default:
        return methodNotAllowed(legacy === undefined ? 'POST' : 'GET, POST, DELETE');
    }
  };

  /** While turns come to their end, answers to what they asked are still taken. */
  const lastWords = async (inbound: Inbound): Promise<Reply | undefined> => {
    if (inbound.method !== 'POST' || legacy === undefined || inbound.header('mcp-session-id') === undefined) {
      return undefined;
    }
    const read = await readBody(inbound, settings.limits.bodyBytes);
    if ('reply' in read) return read.reply;
    const messages = Array.isArray(read.body) ? read.body : [read.body];
    const isAnswer = messages.every((message) => isObject(message) && message.method === undefined);
    return isAnswer ? legacy.post(inbound, read.body) : undefined;
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
      return rpcError(500, -32603, 'Internal error', id);
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
      await modern?.close();
    },
    counters: services.counters,
    get parked() {
      return services.engine.parked;
    },
  };
}

function shuttingDown(): Reply {
  const reply = rpcError(503, CLOSING.code, CLOSING.message);
  return { ...reply, headers: { ...reply.headers, 'retry-after': '1' } };
}

function methodNotAllowed(allow: string): Reply {
  return { ...empty(405, { allow }), body: '' };
}
