/**
 * Catches a server's asks before its SDK sends them, so no SDK timer runs while a call is parked. The SDK's own
 * `request` is called once the answer is at hand: parsing, validation and errors stay the SDK's.
 * Replaced on one instance of the low-level server only (checked with @modelcontextprotocol/sdk 1.32 and
 * @modelcontextprotocol/server 2.4): `request`; on version 2 also `buildContext`, since `ctx.mcpReq.send` bypasses
 * `request`, and the loop that serves `inputRequired` tools to old clients, so that its asks keep their author's keys.
 */

import { defined, isObject, type JsonObject, objectOf } from '../base/values.ts';
import { ASK_METHODS } from '../call/ask/capability.ts';
import { type CallContext, currentContext, runInContext } from '../call/frame/context.ts';
import { KEY_META } from '../call/frame/place.ts';
import type { AskProgress } from '../call/frame/turn.ts';
import type { Response } from '../call/journal/entries.ts';
import { outsideOfEra } from './era.ts';
import type { LegacyLoop, LowLevel, RequestMethod } from './protocol.ts';
import { type HostTransport, progressOn } from './transport.ts';

export interface AskRequest {
  readonly method: string;
  readonly params: unknown;
  readonly relatedRequestId?: string | number;
  readonly timeout?: number;
  readonly signal?: AbortSignal;
  readonly progress?: AskProgress;
  readonly context: CallContext | undefined;
}

/** Resolves with the answer; never settles if the call is dropped. */
export type AskClient = (request: AskRequest) => Promise<Response>;

interface OptionsLike {
  relatedRequestId?: string | number;
  timeout?: number;
  signal?: AbortSignal;
  task?: unknown;
  relatedTask?: unknown;
  onprogress?: (progress: unknown) => void;
  resetTimeoutOnProgress?: boolean;
  maxTotalTimeout?: number;
}

/** Marks asks whose time limit is set by the SDK's loop, not by the author. */
const FROM_LOOP = 'mcp-await/loop';

/** @param isSingle the instance serves one call, to which asks of the server's own tasks belong too */
export function intercept(
  server: LowLevel,
  transport: HostTransport,
  ask: AskClient,
  isSingle: boolean,
): void {
  const native = server.request.bind(server);
  const original = outsideOfEra(server, native);
  const taken: RequestMethod = async (request, ...rest) => {
    const at = rest.length > 1 || !isSchema(rest[0]) ? rest.length - 1 : rest.length;
    const options: OptionsLike = (at >= 0 && isObject(rest[at]) ? rest[at] : undefined) ?? {};
    const isCalls = isSingle || options.relatedTask === undefined;
    const isAsk = ASK_METHODS.has(request.method) && options.task === undefined && isCalls;
    if (!isAsk) return native(request, ...rest);
    if (options.signal?.aborted) return original(request, ...rest);
    if (server._options?.enforceStrictCapabilities === true)
      server.assertCapabilityForMethod?.(request.method);
    const { params, fromLoop } = readLoopMark(request.params);
    const context = currentContext();
    const progress = progressOf(server, transport, options, context);
    const response = await withSignal(options.signal, (signal) =>
      ask({
        method: request.method,
        params,
        ...defined({ relatedRequestId: options.relatedRequestId }),
        ...(options.timeout !== undefined && !fromLoop && { timeout: options.timeout }),
        ...defined({ signal, progress }),
        context,
      }),
    );
    // An aborted signal makes the SDK throw its own error, as it would have.
    if (response === undefined) return original(request, ...rest);
    const others = { ...options };
    for (const name of TAKEN) delete others[name];
    const lateness = server.buildContext && latenessOf(response);
    if (lateness !== undefined) {
      const { maxTotalTimeout } = lateness;
      const again = (own: OptionsLike): Promise<unknown> =>
        original(request, ...withOptions(rest, at, { ...others, ...own }));
      return withData(
        lateness,
        maxTotalTimeout === undefined
          ? transport.answering('nothing', () => again({ timeout: 1 }))
          : transport.answering('progress', () => again(OVER_AT_ONCE)),
      );
    }
    return transport.answering(response, () => original(request, ...withOptions(rest, at, others)));
  };
  server.request = taken;
  if (server.buildContext !== undefined) takeContext(server, server.buildContext.bind(server), taken);
  if (server._legacyInputRequiredShim !== undefined)
    keepKeys(server, server._legacyInputRequiredShim.bind(server));
}

/** Options of an ask that the engine carries out, not the SDK. */
const TAKEN = [
  'timeout',
  'relatedTask',
  'onprogress',
  'resetTimeoutOnProgress',
  'maxTotalTimeout',
] as const satisfies (keyof OptionsLike)[];

/** With these, the SDK's own time for the whole of a request is over at its first progress. */
const OVER_AT_ONCE: OptionsLike = {
  onprogress: () => {},
  resetTimeoutOnProgress: true,
  maxTotalTimeout: -1,
};

/** Version 2 throws its own class of error for a time-out, from its own timer. */
async function withData(data: JsonObject, late: Promise<unknown>): Promise<unknown> {
  try {
    return await late;
  } catch (error) {
    if (isObject(error) && isObject(error.data)) Object.assign(error.data, data);
    throw error;
  }
}

/** The data of a time-out of the engine's. */
function latenessOf(response: Response): JsonObject | undefined {
  if (!('error' in response) || response.error.code !== -32001 || !isObject(response.error.data))
    return undefined;
  const { timeout, maxTotalTimeout } = response.error.data;
  return typeof (timeout ?? maxTotalTimeout) === 'number' ? response.error.data : undefined;
}

/** Tokens for reports of progress; an SDK's own are the ids of its requests, which are not negative. */
let tokens = 0;

/** The SDK reads each report itself, and calls `onprogress` in the async context of the ask. */
function progressOf(
  { _progressHandlers: handlers }: LowLevel,
  transport: HostTransport,
  { onprogress, resetTimeoutOnProgress, maxTotalTimeout }: OptionsLike,
  context: CallContext | undefined,
): AskProgress | undefined {
  if (onprogress === undefined || handlers === undefined) return undefined;
  return {
    report(params) {
      tokens -= 1;
      const token = tokens;
      handlers.set(token, (progress) => {
        if (context === undefined) onprogress(progress);
        else runInContext(context, () => onprogress(progress));
      });
      transport.deliver(progressOn(token, params));
      // Later than the microtasks in which the SDK reads it.
      setImmediate(() => handlers.delete(token));
    },
    resets: resetTimeoutOnProgress === true,
    ...defined({ total: maxTotalTimeout }),
  };
}

function withOptions(rest: unknown[], at: number, options: OptionsLike): unknown[] {
  if (at < 0) return [options];
  const replaced = [...rest];
  replaced[at] = options;
  return replaced;
}

/** Resolves to undefined when the signal fires first. */
function withSignal(
  signal: AbortSignal | undefined,
  start: (signal: AbortSignal | undefined) => Promise<Response>,
): Promise<Response | undefined> {
  if (signal === undefined) return start(undefined);
  return new Promise((resolve, reject) => {
    const onAbort = (): void => resolve(undefined);
    signal.addEventListener('abort', onAbort, { once: true });
    start(signal).then((response) => {
      signal.removeEventListener('abort', onAbort);
      resolve(response);
    }, reject);
  });
}

/** Zod 3 and 4, and Standard Schema: the result schemas that the SDKs accept. */
function isSchema(value: unknown): boolean {
  const isOpaque = (typeof value === 'object' && value !== null) || typeof value === 'function';
  return isOpaque && ['~standard', 'safeParse', '_def', '_zod'].some((name) => name in (value as object));
}

function takeContext(
  server: LowLevel,
  build: (context: JsonObject, transportInfo?: unknown) => JsonObject,
  taken: RequestMethod,
): void {
  server.buildContext = (context, transportInfo) => {
    const built = build(context, transportInfo);
    const { http } = built;
    if (isObject(http) && http.req instanceof LazyRequest)
      Object.defineProperty(http, 'req', { get: http.req.make, enumerable: true, configurable: true });
    if (!isObject(built.mcpReq) || typeof built.mcpReq.send !== 'function') return built;
    const { id, send } = built.mcpReq as { id: string | number; send: RequestMethod };
    const taking: RequestMethod = (request, ...rest) => {
      if (!ASK_METHODS.has(request.method)) return send(request, ...rest);
      const schema = isSchema(rest[0]) ? [rest[0]] : [];
      const options = rest[schema.length];
      return taken(request, ...schema, { ...objectOf(options), relatedRequestId: id });
    };
    built.mcpReq.send = taking;
    return built;
  };
}

/** Takes the place of a message's HTTP request until it is read: most tools never do. */
export class LazyRequest {
  readonly make: () => Request;

  constructor(make: () => Request) {
    this.make = make;
  }
}

/** A tool that returns `inputRequired` is looped over by the SDK itself; its keys go with its asks. */
function keepKeys(server: LowLevel, shim: () => LegacyLoop): void {
  server._legacyInputRequiredShim = () => {
    const loop = shim();
    return {
      fulfill: (method, handler, request, context, first) =>
        loop.fulfill(
          method,
          async (...args) => withKeys(await handler(...args)),
          request,
          context,
          withKeys(first),
        ),
    };
  };
}

function withKeys(result: unknown): unknown {
  if (!isObject(result) || !isObject(result.inputRequests)) return result;
  const inputRequests = Object.entries(result.inputRequests).map(([key, entry]) => {
    if (!isObject(entry)) return [key, entry];
    const params = objectOf(entry.params);
    return [
      key,
      {
        ...entry,
        params: { ...params, _meta: { [KEY_META]: key, ...objectOf(params._meta), [FROM_LOOP]: true } },
      },
    ];
  });
  return { ...result, inputRequests: Object.fromEntries(inputRequests) };
}

function readLoopMark(params: JsonObject | undefined): { params: JsonObject | undefined; fromLoop: boolean } {
  if (params === undefined || !isObject(params._meta) || params._meta[FROM_LOOP] !== true)
    return { params, fromLoop: false };
  const { [FROM_LOOP]: _mark, ...meta } = params._meta;
  return { params: { ...params, _meta: meta }, fromLoop: true };
}
