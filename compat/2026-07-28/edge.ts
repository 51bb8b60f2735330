/**
 * 2026-07-28 over HTTP. `createMcpHandler` of the official SDK does the wire: validation, headers, errors,
 * discovery, subscriptions. The three requests that may ask take a lean path when there is nothing to
 * complain of: measured, a Server, a transport and a Response for each cost more than the whole call.
 */
import { classifyInboundRequest } from '@modelcontextprotocol/server';
import { isObject, type JsonObject } from '../../src/call/json.ts';
import type { Gone, Leg, Outcome } from '../../src/call/ports.ts';
import { INTERNAL, isBadToken } from '../../src/call/wire-error.ts';
import { Departure } from '../../src/http/departure.ts';
import type { Inbound, Reply, Writer } from '../../src/http/exchange.ts';
import { empty, isRequestId, json, SSE_HEADERS } from '../../src/http/reply.ts';
import { SSE_KEEP_ALIVE, sseMessage } from '../../src/stream/sse.ts';
import type { Services } from '../services.ts';
import { createSdkEdge } from './sdk-edge.ts';
import {
  ASKING,
  complete,
  errorOnWire,
  inputRequired,
  type ModernRequest,
  REVISION,
  type Read,
  readRequest,
  stamp,
  wanted,
} from './wire.ts';

const KEEP_ALIVE = 15_000;
/** Envelopes that are recognized without being looked at again, and how long one may be. */
const SOUND_KEPT = 500;
const SOUND_LENGTH = 2_000;

export interface Edge {
  /** Serves a body that is this revision's business, errors included; undefined for all others. */
  serve(inbound: Inbound, body: unknown): Promise<Reply> | undefined;
  /** Says no to a body that is no revision's business. */
  refuse(inbound: Inbound, body: unknown): Promise<Reply>;
  close(): Promise<void>;
}

export function createEdge(services: Services): Edge {
  /** Envelopes that the SDK found nothing wrong with: a client sends the same one with each of its requests. */
  const sound = new Set<string>();
  const sdk = createSdkEdge(services, (request, leg) => run(services, request, leg));
  return {
    serve: (inbound, body) => {
      const lean = leanRequest(inbound, body);
      if (lean !== undefined && sound.has(lean.envelope)) return serveLean(services, lean.request, inbound);
      const route = classify(inbound, body);
      if (route.kind === 'legacy') return undefined;
      const isOurs = route.kind === 'modern' && route.classification.revision === REVISION;
      if (lean === undefined || !isOurs) return sdk.serve(inbound, body);
      if (sound.size < SOUND_KEPT && lean.envelope.length < SOUND_LENGTH) sound.add(lean.envelope);
      return serveLean(services, lean.request, inbound);
    },
    refuse: (inbound, body) => sdk.serve(inbound, body),
    close: () => sdk.close(),
  };
}

/** Runs or goes on with a call; both paths come through here. */
function run(services: Services, request: ModernRequest, source: CallSource): Promise<Outcome> {
  const { settings } = services;
  const { arguments: given } = request.params;
  if (given !== undefined && !isObject(given)) {
    // An SDK v1 server would call this an internal error of its own.
    const error = { code: -32602, message: 'Invalid params: arguments must be an object' };
    return Promise.resolve({ kind: 'responded', response: { error } });
  }
  const read = readRequest(request, settings.principal(source.authInfo));
  const leg: Leg = {
    live: false,
    capabilities: read.client.capabilities,
    ...(source.authInfo !== undefined && { authInfo: source.authInfo }),
    ...(read.progressToken !== undefined && { progressToken: read.progressToken }),
    ...(source.request !== undefined && { request: source.request }),
    signal: source.signal,
    notify: (notification) => {
      if (wanted(notification, read.logLevel)) source.notify(notification);
    },
  };
  if (read.requestState !== undefined) {
    return resumeCall(services, read, leg, source.inbound);
  }
  return startCall(services, request, read, leg);
}

async function resumeCall(services: Services, read: Read, leg: Leg, inbound: Inbound): Promise<Outcome> {
  const { requestState, binding, inputResponses } = read;
  const outcome = await services.engine.resume(requestState as string, binding, inputResponses, leg);
  if (outcome.kind === 'responded' && isBadToken(outcome.response)) await services.rates?.badToken(inbound);
  return outcome;
}

function startCall(services: Services, request: ModernRequest, read: Read, leg: Leg): Promise<Outcome> {
  const { method, id: requestId } = request;
  const { params, client, binding, inputResponses } = read;
  const responses = inputResponses === undefined ? {} : { responses: inputResponses };
  return services.engine.start({ method, params, requestId, client, binding, ...responses }, leg).outcome;
}

export interface CallSource {
  readonly inbound: Inbound;
  readonly authInfo?: JsonObject;
  readonly request: Request | undefined;
  readonly signal: Gone;
  notify(notification: JsonObject): void;
}

type Route = ReturnType<typeof classifyInboundRequest>;

function classify(inbound: Inbound, body: unknown): Route {
  const header = (name: string): string | undefined => inbound.header(name);
  const version = header('mcp-protocol-version');
  const method = header('mcp-method');
  const name = header('mcp-name');
  return classifyInboundRequest({
    httpMethod: inbound.method,
    ...(version !== undefined && { protocolVersionHeader: version }),
    ...(method !== undefined && { mcpMethodHeader: method }),
    ...(name !== undefined && { mcpNameHeader: name }),
    body,
  });
}

/** The request, when it may ask and its headers say the same as its body; everything else is the SDK's. */
function leanRequest(
  inbound: Inbound,
  body: unknown,
): { request: ModernRequest; envelope: string } | undefined {
  if (!isObject(body) || typeof body.method !== 'string' || !ASKING.has(body.method)) return undefined;
  const { jsonrpc, id, method, params } = body;
  if (jsonrpc !== '2.0' || !isRequestId(id) || !isObject(params) || !isObject(params._meta)) return undefined;
  const { progressToken, ...envelope } = params._meta;
  const target = method === 'resources/read' ? params.uri : params.name;
  const agrees =
    (progressToken === undefined || isRequestId(progressToken)) &&
    inbound.header('mcp-protocol-version') === REVISION &&
    inbound.header('mcp-method') === method &&
    typeof target === 'string' &&
    inbound.header('mcp-name') === target;
  return agrees ? { request: { id, method, params }, envelope: JSON.stringify(envelope) } : undefined;
}

/** One JSON body, or a stream from the first notification on. */
function serveLean(services: Services, request: ModernRequest, inbound: Inbound): Promise<Reply> {
  const gone = new Departure();
  const abort = gone.tell;
  inbound.signal.addEventListener('abort', abort, { once: true });
  return new Promise((resolve) => {
    let stream: LeanStream | undefined;
    const outcome = run(services, request, {
      inbound,
      ...(inbound.authInfo !== undefined && { authInfo: inbound.authInfo }),
      request: undefined,
      signal: gone,
      notify: (notification) => {
        if (stream === undefined) {
          stream = new LeanStream(abort);
          resolve({ status: 200, headers: SSE_HEADERS, body: stream.body });
        }
        stream.send({ jsonrpc: '2.0', ...notification });
      },
    });
    const respond = ({ message, status }: { message: JsonObject; status: number }): void => {
      const reply = stream === undefined ? json(message, status) : undefined;
      if (reply !== undefined) resolve(reply);
      else stream?.send(message);
      stream?.end();
    };
    void outcome.then((ended) => {
      inbound.signal.removeEventListener('abort', abort);
      if (ended.kind === 'gone') {
        stream?.end();
        resolve(empty(499));
        return;
      }
      try {
        respond(messageOf(request, ended, services.serverInfo));
      } catch (error) {
        services.settings.logger.error('a result is no JSON', {
          method: request.method,
          error: String(error),
        });
        respond({ message: { jsonrpc: '2.0', id: request.id, error: INTERNAL }, status: 200 });
      }
    });
  });
}

function messageOf(
  request: ModernRequest,
  outcome: Exclude<Outcome, { kind: 'gone' }>,
  serverInfo: unknown,
): { message: JsonObject; status: number } {
  const head = { jsonrpc: '2.0', id: request.id };
  if (outcome.kind === 'suspended') {
    return {
      message: { ...head, result: stamp(inputRequired(outcome.asks, outcome.token), serverInfo) },
      status: 200,
    };
  }
  const { response } = outcome;
  if ('result' in response) {
    return {
      message: { ...head, result: complete(request.method, response.result, serverInfo) },
      status: 200,
    };
  }
  const error = errorOnWire(response.error, request);
  return { message: { ...head, error }, status: error.code === -32021 ? 400 : 200 };
}

/** The stream of one reply; what is sent before its head is out waits. */
class LeanStream {
  #writer: Writer | undefined;
  #waiting = '';
  #ended = false;
  #timer: NodeJS.Timeout | undefined;
  readonly #onGone: () => void;

  constructor(onGone: () => void) {
    this.#onGone = onGone;
  }

  readonly body = (writer: Writer): void => {
    this.#writer = writer;
    writer.onClose(() => {
      clearInterval(this.#timer);
      if (!this.#ended) this.#onGone();
    });
    if (this.#waiting !== '') writer.write(this.#waiting);
    if (this.#ended) writer.end();
    else this.#timer = setInterval(() => writer.write(SSE_KEEP_ALIVE), KEEP_ALIVE).unref();
  };

  send(message: JsonObject): void {
    const text = sseMessage(message);
    if (this.#writer === undefined) this.#waiting += text;
    else this.#writer.write(text);
  }

  end(): void {
    this.#ended = true;
    this.#writer?.end();
  }
}
