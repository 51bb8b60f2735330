/**
 * 2026-07-28 over HTTP. `createMcpHandler` of the official SDK does the wire: validation, headers, errors,
 * discovery, subscriptions. The three requests that may ask take a lean path when there is nothing to
 * complain of: measured, a Server, a transport and a Response for each cost more than the whole call.
 */
import { classifyInboundRequest } from '@modelcontextprotocol/server';
import { defined, invalidParams, isObject, type JsonObject } from '../../src/base/values.ts';
import { isMeta } from '../../src/call/ask/meta.ts';
import type { Response, TaskWish } from '../../src/call/journal/entries.ts';
import type { Instance, Outcome, RequestContext } from '../../src/call/ports.ts';
import { INTERNAL, isBadToken } from '../../src/call/run/wire-error.ts';
import { DisconnectSignal } from '../../src/doors/http/disconnect-signal.ts';
import type { GuardedWriter, Inbound, Reply } from '../../src/doors/http/exchange.ts';
import { isLocal } from '../../src/doors/http/local.ts';
import { empty, isRequestId, json, rpcError, SSE_HEADERS } from '../../src/doors/http/reply.ts';
import { passes } from '../../src/handler/guards.ts';
import type { Services } from '../../src/handler/services.ts';
import type { HostInstance } from '../../src/host/instance.ts';
import { SPOKEN } from '../../src/host/spoken.ts';
import type { Sink } from '../../src/stream/tail.ts';
import { failure } from '../failure.ts';
import type { Edges } from '../revision.ts';
import { sourceOf } from '../session/start.ts';
import { sinkOf, WITHOUT_IDS } from '../sink.ts';
import type { TaskMark } from '../tasks/marks.ts';
import { declaresTasks, makesTasks, taskRequest, wishFor } from '../tasks/wish.ts';
import { type CallSource, createSdkEdge, type SdkEdge } from './sdk-edge.ts';
import { alsoTelling, listensToTasks, tasksListenedTo, withoutTaskIds } from './task-listening.ts';
import { MISSING, serveTask, taskResult } from './tasks.ts';
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

/** A header contradicts the body (SEP-2243). */
const HEADER_MISMATCH = -32020;
/** Most envelopes that are remembered as valid, and how long one may be. */
const SOUND_KEPT = 500;
const SOUND_LENGTH = 2_000;
const UNFIT: Response = { error: MISSING };

export function createEdge(services: Services): Edges {
  /** Envelopes that the SDK found nothing wrong with: a client sends the same one with each of its requests. */
  const sound = new Set<string>();
  const sdk = createSdkEdge(services, (request, source) => run(services, request, source));
  const serveChecked = async (request: ModernRequest, inbound: Inbound): Promise<Reply> => {
    const { method, params } = request;
    const principal = services.principal(inbound.authInfo);
    const isMirrored =
      method === 'tools/call' && services.marks.known(principal, String(params.name))?.mirrors !== undefined;
    const { guards } = services;
    const message = { jsonrpc: '2.0', ...request };
    if (isMirrored || (params.requestState !== undefined && guards.mayRefuse(method, params.name))) {
      const refusal = await sdk.refuse(inbound, message);
      if (refusal !== undefined) return refusal;
    }
    if (params.requestState !== undefined) return serveLean(services, request, inbound);
    // A call that begins has a server of its own to ask.
    return serveLean(services, request, inbound, (instance) => {
      if (instance.guards === undefined) return undefined;
      const mirrors = !isMirrored && method === 'tools/call' && guards.mirrors(instance, String(params.name));
      if (mirrors) return sdk.refuse(inbound, message);
      return passes(instance, message, inbound).then((is) => (is ? undefined : sdk.refuse(inbound, message)));
    });
  };
  const post = (inbound: Inbound, body: unknown): Promise<Reply> | undefined => {
    const lean = leanRequest(inbound, body);
    if (lean !== undefined && sound.has(lean.envelope)) return serveChecked(lean.request, inbound);
    if (isElsewhere(inbound, body)) return undefined;
    const route = classify(inbound, body);
    if (route.kind === 'legacy') return undefined;
    const isOurs = route.kind === 'modern' && route.classification.revision === REVISION;
    if (isOurs && isObject(body) && (isTaskRequest(body) || listensToTasks(body)))
      return aboutTasks(services, sdk, inbound, body);
    if (lean === undefined || !isOurs) return sdk.serve(inbound, body);
    if (sound.size < SOUND_KEPT && lean.envelope.length < SOUND_LENGTH) sound.add(lean.envelope);
    return serveChecked(lean.request, inbound);
  };
  return {
    mcp: {
      post,
      refuse: (inbound, body) => sdk.serve(inbound, body),
      // There are neither sessions nor a stream to GET.
      owns: (inbound) => inbound.header('mcp-protocol-version')?.trim() === REVISION,
      leave: () => sdk.leave(),
      close: () => sdk.close(),
    },
  };
}

/** The SDK knows no drafts, and a client that begins a session negotiates, whatever its header hopes for. */
function isElsewhere(inbound: Inbound, body: unknown): boolean {
  const version = inbound.header('mcp-protocol-version') ?? '';
  if (inbound.header('mcp-session-id') !== undefined && SPOKEN.has(version) && isOfSession(body)) return true;
  const begins = isObject(body) && body.method === 'initialize' && version !== REVISION;
  return begins || version.startsWith('DRAFT-');
}

/** Whether a body is a sound request without an envelope: the SDK would find the same, and take longer. */
function isOfSession(body: unknown): boolean {
  if (!isObject(body) || body.jsonrpc !== '2.0' || typeof body.method !== 'string') return false;
  const { id, params } = body;
  return isRequestId(id) && isObject(params) && params._meta === undefined;
}

/** The SDK knows these methods, as another revision had them, and refuses them. */
function isTaskRequest(body: unknown): body is JsonObject & ModernRequest {
  if (!isObject(body) || !/^tasks\/(get|update|cancel)$/.test(String(body.method))) return false;
  return isRequestId(body.id) && isObject(body.params);
}

/** A request about tasks; without any, it is the SDK's as all others. */
async function aboutTasks(
  services: Services,
  sdk: SdkEdge,
  inbound: Inbound,
  body: JsonObject,
): Promise<Reply> {
  if (!(await sdk.makesTasks(inbound, body))) return sdk.serve(inbound, body);
  return isTaskRequest(body)
    ? serveTaskRequest(services, body, inbound)
    : listen(services, sdk, inbound, body);
}

async function serveTaskRequest(
  services: Services,
  body: JsonObject & ModernRequest,
  inbound: Inbound,
): Promise<Reply> {
  const { id, method, params } = body;
  const names: readonly (readonly [string, unknown])[] = [
    ['mcp-method', method],
    ['mcp-name', params.taskId],
  ];
  for (const [header, value] of names) {
    if (inbound.header(header)?.trim() === value) continue;
    return rpcError(
      400,
      HEADER_MISMATCH,
      `Bad Request: the ${header} header must say what the body says`,
      id,
    );
  }
  const principal = services.principal(inbound.authInfo);
  const response = await serveTask(
    services,
    body,
    principal,
    declaresTasks(readRequest(body, principal).client.capabilities),
  );
  const head = { jsonrpc: '2.0', id };
  if ('error' in response) {
    return json({ ...head, error: response.error }, response.error.code === MISSING.code ? 400 : 200);
  }
  return json({ ...head, result: complete(method, response.result, services.serverInfo) });
}

/** A subscription that names tasks. */
async function listen(services: Services, sdk: SdkEdge, inbound: Inbound, body: JsonObject): Promise<Reply> {
  const principal = services.principal(inbound.authInfo);
  const { id = null, method, params } = body as unknown as ModernRequest;
  const { client } = readRequest({ id: id ?? '', method, params }, principal);
  if (!declaresTasks(client.capabilities)) {
    return rpcError(400, MISSING.code, MISSING.message, id, MISSING.data);
  }
  const ids = tasksListenedTo(body);
  if (ids === undefined) {
    return rpcError(200, -32602, 'Invalid params: notifications.taskIds must be an array of strings', id);
  }
  const reply = await sdk.serve(inbound, withoutTaskIds(body), ids.length);
  return alsoTelling(services, reply, ids, principal, id);
}

/** Runs or continues a call; both paths come through here. It never rejects. */
function run(services: Services, request: ModernRequest, source: CallSource): Promise<Outcome> {
  return serveCall(services, request, source).catch(failure(services));
}

async function serveCall(services: Services, request: ModernRequest, source: CallSource): Promise<Outcome> {
  const { arguments: given, _meta: meta } = request.params;
  // An SDK v1 server would call the one an internal error of its own, and drop the other.
  const wrong =
    given !== undefined && !isObject(given)
      ? 'arguments must be an object'
      : isMeta(meta)
        ? undefined
        : '_meta must be an object of what MCP says';
  if (wrong !== undefined) {
    return { kind: 'responded', response: { error: invalidParams(wrong) } };
  }
  const read = readRequest(request, services.principal(source.inbound.authInfo));
  const task = request.method === 'tools/call' ? taskFor(services, read) : undefined;
  if (typeof task === 'object' && !('when' in task)) return { kind: 'responded', response: task };
  const takesTasks = declaresTasks(read.client.capabilities);
  const context: RequestContext = {
    live: false,
    sheds: true,
    refuses: true,
    capabilities: read.client.capabilities,
    ...defined({ progressToken: read.progressToken }),
    ...sourceOf(source.inbound),
    ...defined({ logLevel: read.logLevel }),
    signal: source.signal,
    ...defined({ isRefused: source.isRefused }),
    ...(isLocal(source.inbound) && { isLocal: true }),
    takesTasks,
    taskRefusal: UNFIT,
    notify: (notification) => {
      if (wanted(notification, read.logLevel)) source.notify(notification);
    },
  };
  if (read.requestState === undefined) return startCall(services, request, read, context, task);
  const outcome = await resumeCall(services, read, context, source.inbound);
  // An earlier send of the same retry may have made it a task; each request is judged by its own declaration.
  const isUnfit = outcome.kind === 'task' && !takesTasks;
  return isUnfit ? { kind: 'responded', response: UNFIT } : outcome;
}

/** How a call of a tool may become a task; `unknown` where its instance must be asked. */
function taskFor(services: Services, read: Read): TaskWish | Response | undefined | 'unknown' {
  const { engine, marks, settings } = services;
  if (engine.tasks === undefined) return undefined;
  const mark = marks.known(read.binding.principal, read.binding.target);
  return mark === undefined || typeof settings.tasks !== 'function'
    ? 'unknown'
    : wishOf(services, read, mark);
}

function wishOf(services: Services, read: Read, mark: TaskMark): TaskWish | Response | undefined {
  const { params, client, binding } = read;
  const wish = wishFor(services, {
    request: taskRequest('tools/call', params, REVISION, binding.principal),
    mark,
    canTake: declaresTasks(client.capabilities),
    isWanted: false,
  });
  return wish === 'required' ? { error: MISSING } : wish;
}

async function resumeCall(
  services: Services,
  read: Read,
  context: RequestContext,
  inbound: Inbound,
): Promise<Outcome> {
  const { requestState, binding, inputResponses } = read;
  const outcome = await services.engine.resume(requestState as string, binding, inputResponses, context);
  if (isBadToken(outcome)) await services.rates?.badToken(inbound);
  return outcome;
}

function startCall(
  services: Services,
  request: ModernRequest,
  read: Read,
  context: RequestContext,
  task: TaskWish | 'unknown' | undefined,
): Promise<Outcome> {
  const { method, id: requestId } = request;
  const { params, client, binding, inputResponses } = read;
  const choose = async (opened: Instance): Promise<TaskWish | Response | undefined> => {
    const instance = opened as HostInstance;
    const mark = await services.marks.of(binding.principal, binding.target, instance);
    return makesTasks(services, instance.initialized) ? wishOf(services, read, mark) : undefined;
  };
  const call = {
    method,
    params,
    requestId,
    client,
    binding,
    ...defined({ responses: inputResponses }),
    ...(task === 'unknown' ? { choose } : task !== undefined && { task }),
  };
  return services.engine.start(call, context).outcome;
}

type Route = ReturnType<typeof classifyInboundRequest>;

function classify(inbound: Inbound, body: unknown): Route {
  const header = (name: string): string | undefined => inbound.header(name);
  const version = header('mcp-protocol-version');
  const method = header('mcp-method');
  const name = header('mcp-name');
  return classifyInboundRequest({
    httpMethod: inbound.method,
    ...defined({ protocolVersionHeader: version, mcpMethodHeader: method, mcpNameHeader: name }),
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

/**
 * One JSON body, or a stream from the first notification on.
 * @param refuse the reply where the server of a call that begins would have its SDK refuse the request
 */
function serveLean(
  services: Services,
  request: ModernRequest,
  inbound: Inbound,
  refuse?: (instance: HostInstance) => Promise<Reply | undefined> | undefined,
): Promise<Reply> {
  const gone = new DisconnectSignal();
  const abort = gone.fire;
  inbound.signal.addEventListener('abort', abort, { once: true });
  return new Promise((resolve) => {
    let stream: LeanStream | undefined;
    const outcome = run(services, request, {
      inbound,
      signal: gone,
      ...(refuse !== undefined && {
        isRefused: (instance: Instance) => {
          const refused = refuse(instance as HostInstance)?.then((refusal) => {
            if (refusal !== undefined) resolve(refusal);
            return refusal !== undefined;
          });
          return refused ?? false;
        },
      }),
      notify: (notification) => {
        if (stream === undefined) {
          stream = new LeanStream(services, abort);
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
    void outcome.then(async (ended) => {
      inbound.signal.removeEventListener('abort', abort);
      if (ended.kind === 'gone') {
        stream?.end();
        resolve(empty(499));
        return;
      }
      try {
        const principal = services.principal(inbound.authInfo);
        respond(await messageOf(services, request, ended, principal));
      } catch (error) {
        services.settings.logger.error('a result could not be written as JSON', {
          method: request.method,
          error,
        });
        respond({ message: { jsonrpc: '2.0', id: request.id, error: INTERNAL }, status: 200 });
      }
    });
  });
}

async function messageOf(
  services: Services,
  request: ModernRequest,
  outcome: Exclude<Outcome, { kind: 'gone' }>,
  principal: string | undefined,
): Promise<{ message: JsonObject; status: number }> {
  const { serverInfo } = services;
  if (outcome.kind === 'task') {
    const result = stamp(await taskResult(services, outcome.taskId, principal), serverInfo);
    return { message: { jsonrpc: '2.0', id: request.id, result }, status: 200 };
  }
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

/** The stream of one reply; events wait until its head is sent. */
class LeanStream {
  readonly #services: Services;
  readonly #onGone: () => void;
  #sink: Sink | undefined;
  #waiting: JsonObject[] = [];
  #ended = false;

  constructor(services: Services, onGone: () => void) {
    this.#services = services;
    this.#onGone = onGone;
  }

  readonly body = (writer: GuardedWriter): void => {
    this.#services.counters.postStreams += 1;
    this.#sink = sinkOf(this.#services, writer, { framing: WITHOUT_IDS });
    this.#sink.onClose(() => {
      if (!this.#ended) this.#onGone();
    });
    for (const message of this.#waiting.splice(0)) this.send(message);
    if (this.#ended) this.#sink.end('finished');
  };

  send(message: JsonObject): void {
    const event = { event: 'message', data: JSON.stringify(message) };
    if (this.#sink === undefined) this.#waiting.push(message);
    else this.#sink.send(event, '');
  }

  end(): void {
    this.#ended = true;
    this.#sink?.end('finished');
  }
}
