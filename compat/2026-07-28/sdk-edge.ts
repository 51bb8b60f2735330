/**
 * The official SDK's own handler over a light server, whose requests go into an instance of the user's: requests that
 * cannot ask, invalid requests, and `subscriptions/listen`.
 */

import { AsyncLocalStorage } from 'node:async_hooks';
import {
  type AuthInfo,
  createMcpHandler,
  McpServer,
  ProtocolError,
  type ScopeChallengeHandler,
  type ServerCapabilities,
  type ServerEvent,
  type ServerEventBus,
} from '@modelcontextprotocol/server';
import { AjvJsonSchemaValidator } from '@modelcontextprotocol/server/validators/ajv';
import { Quota } from '../../src/base/quota.ts';
import { AwaitError, defined, isObject, type JsonObject, memoryOf, objectOf } from '../../src/base/values.ts';
import type { Client } from '../../src/call/journal/entries.ts';
import type { AbortSignalLike, Outcome, RequestContext } from '../../src/call/ports.ts';
import type { Inbound, Reply } from '../../src/doors/http/exchange.ts';
import { onExpiry } from '../../src/doors/http/expiry.ts';
import { replyOf } from '../../src/doors/http/fetch.ts';
import { isLocal } from '../../src/doors/http/local.ts';
import { idOf, rpcError } from '../../src/doors/http/reply.ts';
import type { Announcements } from '../../src/handler/announcements.ts';
import { challengeOf } from '../../src/handler/guards.ts';
import { openForRequest, type Services } from '../../src/handler/services.ts';
import type { HostInstance } from '../../src/host/instance.ts';
import { CachingValidator } from '../../src/host/validator.ts';
import { quotaKeyOf } from '../quota-key.ts';
import { kept } from '../sink.ts';
import { EXTENSION, makesTasks } from '../tasks/wish.ts';
import { taskResult } from './tasks.ts';
import { ASKING, errorOnWire, inputRequired, type ModernRequest, REVISION, readRequest } from './wire.ts';

/** The methods a server answers, by the capability that it declares them with. */
const METHODS: Readonly<Record<string, readonly string[]>> = {
  tools: ['tools/list', 'tools/call'],
  prompts: ['prompts/list', 'prompts/get'],
  resources: ['resources/list', 'resources/templates/list', 'resources/read'],
  completions: ['completion/complete'],
};

export interface CallSource {
  readonly inbound: Inbound;
  readonly signal: AbortSignalLike;
  /** See `RequestContext`. */
  readonly isRefused?: RequestContext['isRefused'];
  notify(notification: JsonObject): void;
}

interface SdkExchange {
  readonly inbound: Inbound;
  readonly body: unknown;
  /** How many tasks a stream of notices names beside the body: each is looked at as long as the stream is open. */
  readonly tasks?: number;
  /** Called in place of the request's handler, where only the checks before that are wanted. */
  readonly onPassed?: () => void;
  /** Why its server could not be made, which the SDK keeps to itself. */
  failure?: unknown;
}

export interface SdkEdge {
  /** @param tasks how many tasks a `subscriptions/listen` named, which are not in the body any more */
  serve(inbound: Inbound, body: unknown, tasks?: number): Promise<Reply>;
  /** The SDK's refusal of a valid request by its server's own declarations: scopes, mirrored headers. */
  refuse(inbound: Inbound, body: unknown): Promise<Reply | undefined>;
  /** Whether calls become tasks; where no instance has reported it yet, one is opened. */
  makesTasks(inbound: Inbound, body: unknown): Promise<boolean>;
  /** Ends the streams of `subscriptions/listen`: their clients listen again at another process. */
  leave(): Promise<void>;
  close(): Promise<void>;
}

/** Places of streams of notices: ten for each, since the SDK's handler has no more than 1,024, and one for each task. */
const LISTENERS = { all: 10_000, caller: 2_000, anonymous: 5_000 };

export function createSdkEdge(
  services: Services,
  run: (request: ModernRequest, source: CallSource) => Promise<Outcome>,
): SdkEdge {
  const exchanges = new WeakMap<Request, SdkExchange>();
  const validator = new CachingValidator(() => new AjvJsonSchemaValidator());
  const bus = new CallersBus(services.announcements);
  const listeners = new Quota(LISTENERS);
  const newHandler = () =>
    createMcpHandler(
      async ({ requestInfo }) => {
        const exchange = requestInfo && exchanges.get(requestInfo);
        if (exchange === undefined) throw new Error('a request that did not come through this edge');
        try {
          return await lightServer(services, exchange, validator, run);
        } catch (error) {
          exchange.failure = error;
          throw error;
        }
      },
      {
        bus,
        legacy: 'reject',
        maxRequestBodySize: services.settings.limits.bodyBytes,
        onerror: (error) =>
          services.settings.logger.debug('the 2026-07-28 edge refused a request', { error }),
      },
    );
  const handler = newHandler();
  // Apart, so that these streams can end while other requests are still served.
  let listening = newHandler();
  const fetched = (exchange: SdkExchange): Promise<Reply> =>
    isListening(exchange.body) ? counted(services, listeners, exchange, passed) : passed(exchange);
  const passed = async (exchange: SdkExchange): Promise<Reply> => {
    const { inbound, body } = exchange;
    const request = requestOf(inbound);
    exchanges.set(request, exchange);
    const authInfo = inbound.authInfo as AuthInfo | undefined;
    const isStanding = isListening(body);
    const { fetch } = isStanding ? listening : handler;
    const fetched = (): Promise<Response> => fetch(request, { parsedBody: body, ...defined({ authInfo }) });
    const response = await (isStanding ? bus.as(services.principal(inbound.authInfo), fetched) : fetched());
    if (exchange.failure !== undefined) throw exchange.failure;
    return replyOf(response);
  };
  return {
    serve: async (inbound, body, tasks = 0) => kept(services, await fetched({ inbound, body, tasks })),
    async refuse(inbound, body) {
      let hasPassed = false;
      const onPassed = (): void => {
        hasPassed = true;
      };
      const reply = await fetched({ inbound, body, onPassed });
      return hasPassed ? undefined : reply;
    },
    async makesTasks(inbound, body) {
      if (makesTasks(services, {})) return true;
      if (services.makesTasks === undefined) {
        const instance = await openInstance(
          services,
          readRequest(modernRequestOf(body), undefined).client,
          inbound,
        );
        instance.close();
        services.makesTasks = makesTasks(services, instance.initialized);
      }
      return services.makesTasks;
    },
    async leave() {
      const old = listening;
      listening = newHandler();
      await old.close();
    },
    async close() {
      await listening.close();
      await handler.close();
    },
  };
}

function isListening(body: unknown): boolean {
  return isObject(body) && body.method === 'subscriptions/listen';
}

/**
 * A stream of notices keeps what it was asked for as long as it is open: that counts among what requests without a reply
 * take.
 * @throws AwaitError `no-room`
 */
async function counted(
  services: Services,
  listeners: Quota,
  exchange: SdkExchange,
  serve: (exchange: SdkExchange) => Promise<Reply>,
): Promise<Reply> {
  const { memory } = services.traffic;
  const quotaKey = quotaKeyOf(services, exchange.inbound);
  const bytes = memoryOf(exchange.body);
  // The server elsewhere is sent a request for each of its resources: some 2,000 at most.
  if (services.isElsewhere && bytes > 131_072)
    return rpcError(413, -32602, 'Invalid params: above 128 KiB', idOf(exchange.body));
  const places = 10 + (exchange.tasks ?? 0);
  if (!memory.has(quotaKey, bytes) || !listeners.has(quotaKey, places))
    throw new AwaitError(
      'no-room',
      'a subscription was refused: those open reached limits.argumentBytes, or a share of 1,000 (ten taskIds count as one)',
    );
  const place = {};
  memory.hold(place, quotaKey, bytes);
  listeners.hold(place, quotaKey, places);
  const leave = (): void => {
    memory.leave(place);
    listeners.leave(place);
  };
  // Its client may go away before the stream is written.
  exchange.inbound.signal.addEventListener('abort', leave, { once: true });
  try {
    const reply = await serve(exchange);
    const { body } = reply;
    if (typeof body !== 'function') {
      leave();
      return reply;
    }
    return {
      ...reply,
      body: (writer) => {
        const expiry = onExpiry(exchange.inbound.authInfo, () => writer.destroy());
        writer.onClose(() => {
          leave();
          expiry?.cancel();
        });
        body(writer);
      },
    };
  } catch (error) {
    leave();
    throw error;
  }
}

/** The SDK reads the method, the headers and the signal; the body was read already. */
function requestOf(inbound: Inbound): Request {
  const original = inbound.request();
  return new Request(original.url, {
    method: original.method,
    headers: original.headers,
    signal: original.signal,
  });
}

async function lightServer(
  services: Services,
  { inbound, body, onPassed }: SdkExchange,
  validator: CachingValidator,
  run: (request: ModernRequest, source: CallSource) => Promise<Outcome>,
): Promise<McpServer> {
  const request = modernRequestOf(body);
  const { authInfo } = inbound;
  const { client } = readRequest(request, undefined);
  const instance = await openInstance(services, client, inbound);
  const { capabilities, serverInfo, instructions } = instance.initialized;
  services.serverInfo ??= serverInfo;
  const isTasking = makesTasks(services, instance.initialized);
  services.makesTasks ??= isTasking;
  // Tasks of 2025 are no capability here; the Tasks extension is, where calls become tasks.
  const { tasks: _2025, ...others } = objectOf(capabilities);
  const extensions = { ...objectOf(others.extensions), [EXTENSION]: {} };
  const declared = isTasking ? { ...others, extensions } : others;
  const own = new McpServer(serverInfo as { name: string; version: string }, {
    supportedProtocolVersions: [REVISION],
    ...(typeof instructions === 'string' && { instructions }),
    // biome-ignore lint/suspicious/noExplicitAny: the SDK's generic validator type fits ours at run time
    jsonSchemaValidator: validator as any,
  });
  const { server } = own;
  // Given to the constructor they would bring handlers along.
  server.registerCapabilities(declared as ServerCapabilities);
  own.toolInputSchemaJson = (tool) => {
    const schema = services.guards.schemaOf(instance, tool);
    const listed = services.marks.known(services.principal(authInfo), tool)?.mirrors;
    return inbound.piped ? undefined : (schema ?? listed);
  };
  own.resolveScopeChallenge = ({ request: checked }) =>
    challengeOf(instance, { ...checked }, inbound) as ReturnType<ScopeChallengeHandler>;
  if (request.method === 'subscriptions/listen') {
    // A server that runs elsewhere outlives the instance, and sends its updates to all listening streams.
    if (services.isElsewhere) await subscribe(instance, request, inbound.signal);
    // A listening stream only needs the server's declarations.
    instance.close();
  }
  server.onclose = () => instance.close();
  if (isObject(body) && body.id === undefined) passNotifications(own, instance);
  const source = (notify: CallSource['notify'], signal: AbortSignal): CallSource => ({
    inbound,
    signal,
    notify,
  });
  const methods = Object.entries(METHODS).flatMap(([name, list]) => (name in declared ? list : []));
  if (!methods.includes(request.method) && !instance.handles(request.method)) return own;
  server.fallbackRequestHandler = async (_parsed, context) => {
    if (onPassed !== undefined) {
      onPassed();
      return {};
    }
    const { signal, notify } = context.mcpReq;
    if (!ASKING.has(request.method)) {
      const { params, logLevel } = readRequest(request, undefined);
      const context = {
        ...defined({ authInfo, logLevel }),
        request: () => inbound.request(),
      };
      const response = await instance.request(
        { id: request.id, method: request.method, params },
        context,
        signal,
      );
      if ('error' in response) throw protocolError(response.error, request);
      const { result } = response;
      const principal = services.principal(authInfo);
      if (request.method === 'tools/list') services.marks.learn(principal, result, instance);
      return result;
    }
    const send: CallSource['notify'] = (notification) =>
      void notify(notification as { method: string }).catch(() => undefined);
    const outcome = await run(request, source(send, signal));
    if (outcome.kind === 'suspended') return inputRequired(outcome.asks, outcome.token);
    if (outcome.kind === 'gone') throw new Error('the client went away');
    if (outcome.kind === 'task') {
      return taskResult(services, outcome.taskId, services.principal(authInfo));
    }
    if ('error' in outcome.response) throw protocolError(outcome.response.error, request);
    return outcome.response.result;
  };
  return own;
}

/** The client's notifications reach the user's server where the SDK would have one of its own handle them. */
function passNotifications({ server }: McpServer, instance: HostInstance): void {
  const pass = async ({ method, params }: { method: string; params?: unknown }): Promise<void> =>
    instance.notify({ jsonrpc: '2.0', method, ...(isObject(params) && { params }) });
  // The SDK's own handler is for its requests, of which a server of this revision makes none.
  server.setNotificationHandler('notifications/progress', pass);
  server.fallbackNotificationHandler = pass;
}

/** Subscribes a server to the resources that a listening client names, until the client goes away. */
async function subscribe(
  instance: HostInstance,
  { id, params }: ModernRequest,
  signal: AbortSignalLike,
): Promise<void> {
  const { resourceSubscriptions: uris } = objectOf(params.notifications);
  if (!Array.isArray(uris)) return;
  for (const uri of uris) {
    if (!signal.aborted)
      await instance.request({ id: `${id} ${uri}`, method: 'resources/subscribe', params: { uri } }, {});
  }
}

/** Opens an instance for a request that is not a call. */
function openInstance(services: Services, client: Client, inbound: Inbound): Promise<HostInstance> {
  return openForRequest(services, inbound, {
    era: 'modern',
    revision: REVISION,
    client,
    isLocal: isLocal(inbound),
  });
}

function modernRequestOf(body: unknown): ModernRequest {
  const { id = 0, method = '', params } = objectOf(body) as Partial<ModernRequest>;
  return { id, method, params: objectOf(params) };
}

function protocolError(
  wrong: { code: number; message: string; data?: unknown },
  request: ModernRequest,
): ProtocolError {
  const { code, message, data } = errorOnWire(wrong, request);
  return new ProtocolError(code, message, data);
}

/** The SDK's event bus: an announcement reaches the streams that the callers it is for listen on, in this process. */
class CallersBus implements ServerEventBus {
  readonly #announcements: Announcements;
  readonly #listeners = new Map<(event: ServerEvent) => void, { readonly caller: string | undefined }>();
  /** The caller whose stream is being opened: the SDK names none. */
  readonly #opening = new AsyncLocalStorage<{ readonly caller: string | undefined; end?: () => void }>();

  constructor(announcements: Announcements) {
    this.#announcements = announcements;
    announcements.onHeard((message, audience) => {
      const event = eventOf(message);
      if (event === undefined) return;
      for (const [listener, { caller }] of this.#listeners)
        if (audience === null || audience === caller) listener(event);
    });
  }

  /** Opens a caller's stream. */
  async as<T>(caller: string | undefined, open: () => Promise<T>): Promise<T> {
    const end = await this.#announcements.listen();
    const opening: { readonly caller: string | undefined; end?: () => void } = { caller, end };
    try {
      return await this.#opening.run(opening, open);
    } finally {
      // It was refused.
      opening.end?.();
    }
  }

  publish(event: ServerEvent): void {
    for (const listener of this.#listeners.keys()) listener(event);
  }

  subscribe(listener: (event: ServerEvent) => void): () => void {
    const opening = this.#opening.getStore();
    const end = opening?.end;
    if (opening !== undefined) delete opening.end;
    this.#listeners.set(listener, { caller: opening?.caller });
    return () => {
      this.#listeners.delete(listener);
      end?.();
    };
  }
}

/** Undefined for what clients cannot listen to. */
function eventOf({ method, params }: JsonObject): ServerEvent | undefined {
  const { uri } = objectOf(params);
  if (method === 'notifications/resources/updated')
    return typeof uri === 'string' ? { kind: 'resource_updated', uri } : undefined;
  const [, what] = /^notifications\/(tools|prompts|resources)\/list_changed$/.exec(String(method)) ?? [];
  return what === undefined ? undefined : ({ kind: `${what}_list_changed` } as ServerEvent);
}
