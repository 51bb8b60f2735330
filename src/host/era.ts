/**
 * The era of an SDK v2 server. A revision without sessions has no `initialize`: the SDK's own edge writes the revision
 * and the client into private state of each instance, and from then on `elicitInput`, `createMessage` and `listRoots`
 * throw before they send anything. This file writes the same state and bypasses those three. All knowledge of that
 * state is here; `test/published` checks it against each published 2.x.
 * A server whose SDK has another shape is refused, not served in another era: a server that believes that it cannot ask
 * acts without asking.
 */
import {
  CLIENT_CAPABILITIES_META_KEY,
  CLIENT_INFO_META_KEY,
  LOG_LEVEL_META_KEY as LOG_LEVEL,
  PROTOCOL_VERSION_META_KEY,
} from '@modelcontextprotocol/server';
import { type AwaitError, defined, isObject, type JsonObject, optionError } from '../base/values.ts';
import type { Client } from '../call/journal/entries.ts';
import type { Handler, LowLevel } from './protocol.ts';

type Method = (...args: unknown[]) => unknown;

export { LOG_LEVEL };

/** An SDK v2 server's private state of its era, and the methods that read it. */
interface EraServer extends LowLevel {
  _negotiatedProtocolVersion: string | undefined;
  _clientCapabilities: JsonObject | undefined;
  _clientVersion: JsonObject | undefined;
  readonly _serverInfo: JsonObject;
  readonly _instructions?: string;
  getCapabilities(): JsonObject;
  getNegotiatedProtocolVersion(): string | undefined;
  _servedModernEra(): boolean;
  _wireCodec(): Codec;
  _invokeInputRequiredCapableHandler: (
    method: string,
    handler: Handler,
    request: unknown,
    context: unknown,
  ) => Promise<unknown>;
  elicitInput: Method;
  createMessage: Method;
  listRoots: Method;
  createElicitationCompletionNotifier: Method;
}

interface Codec {
  samplingResultVariant(...args: unknown[]): unknown;
}

const FIELDS = ['_negotiatedProtocolVersion', '_clientCapabilities', '_clientVersion', '_serverInfo'];
const METHODS = [
  'getCapabilities',
  'getNegotiatedProtocolVersion',
  '_servedModernEra',
  '_wireCodec',
  '_invokeInputRequiredCapableHandler',
  'elicitInput',
  'createMessage',
  'listRoots',
  'createElicitationCompletionNotifier',
];
/** Thrown for URLs that a user has to open first. */
const URL_ELICITATION_REQUIRED = -32042;
/** Sent by tools that await an ask in URL mode; the era itself has no notification of that name. */
const COMPLETED = 'notifications/elicitation/complete';

/** The capabilities, name and version that a server declares in an era without `initialize`. */
export interface Declared {
  readonly capabilities: JsonObject;
  readonly serverInfo: JsonObject;
  readonly instructions?: string;
}

/** Whether a server's SDK has eras at all: version 2. */
export function hasEras(server: LowLevel | undefined): boolean {
  return typeof server?.buildContext === 'function';
}

/**
 * Puts a server that is not connected yet into the era of a revision without sessions, for one client.
 *
 * @throws AwaitError `bad-option` where the SDK has a shape that is not known here
 */
export function enterEra(server: LowLevel, revision: string, client: Client): Declared {
  if (!isEraServer(server)) throw unknownShape(revision, missingOf(server));
  server._negotiatedProtocolVersion = revision;
  if (server.getNegotiatedProtocolVersion() !== revision || !server._servedModernEra()) {
    throw unknownShape(revision, ['an era that follows _negotiatedProtocolVersion']);
  }
  server._clientCapabilities = client.capabilities;
  if (Object.keys(client.info).length > 0) server._clientVersion = client.info;
  goAroundGuards(server);
  return {
    capabilities: server.getCapabilities(),
    serverInfo: server._serverInfo,
    ...defined({ instructions: server._instructions }),
  };
}

/**
 * Wraps a function so that an SDK v2 server runs its synchronous part as if asks were live; in its own era the SDK
 * would throw. What the function awaits runs outside of the wrapper. For other servers it returns the function itself.
 */
export function outsideOfEra<A extends unknown[], R>(
  server: LowLevel,
  fn: (...args: A) => R,
): (...args: A) => R {
  if (!isEraServer(server)) return fn;
  return (...args) => {
    const { _negotiatedProtocolVersion: revision, _clientCapabilities: capabilities } = server;
    if (!server._servedModernEra()) return fn(...args);
    server._negotiatedProtocolVersion = undefined;
    server._clientCapabilities = withForms(capabilities);
    try {
      return fn(...args);
    } finally {
      server._negotiatedProtocolVersion = revision;
      server._clientCapabilities = capabilities;
    }
  };
}

/** The `_meta` with which a request names its revision and its client, in the form that the server reads. */
export function envelopeOf(revision: string, client: Client, logLevel: string | undefined): JsonObject {
  return {
    [PROTOCOL_VERSION_META_KEY]: revision,
    [CLIENT_CAPABILITIES_META_KEY]: client.capabilities,
    ...(Object.keys(client.info).length > 0 && { [CLIENT_INFO_META_KEY]: client.info }),
    ...defined({ [LOG_LEVEL]: logLevel }),
  };
}

function goAroundGuards(server: EraServer): void {
  for (const name of [
    'elicitInput',
    'createMessage',
    'listRoots',
    'createElicitationCompletionNotifier',
  ] as const) {
    server[name] = outsideOfEra(server, server[name].bind(server));
  }
  const { notification } = server;
  const outside = outsideOfEra(server, notification.bind(server));
  server.notification = (message, ...rest) =>
    message.method === COMPLETED ? outside(message, ...rest) : notification.call(server, message, ...rest);
  // `createMessage` reads its result by the wire of the era, which has no word for it.
  const wireCodec = server._wireCodec.bind(server);
  server._wireCodec = () => {
    const live = outsideOfEra(server, wireCodec)();
    const samplingResultVariant: Method = (...args) => live.samplingResultVariant(...args);
    return Object.assign(Object.create(wireCodec()), { samplingResultVariant });
  };
  // A thrown -32042 names URLs that the engine asks for; the SDK would make an internal error of it.
  const invoke = server._invokeInputRequiredCapableHandler.bind(server);
  server._invokeInputRequiredCapableHandler = (method, handler, request, context) =>
    invoke(method, (...args: unknown[]) => withoutClass(handler, args), request, context);
}

/** The SDK recognizes this one error by its class, and all others by their `code`. */
async function withoutClass(handler: Handler, args: unknown[]): Promise<unknown> {
  try {
    return await handler(...args);
  } catch (error) {
    if (!isObject(error) || error.code !== URL_ELICITATION_REQUIRED) throw error;
    const { code, message, data } = error;
    throw Object.assign(new Error(String(message)), { code, data });
  }
}

/** A client that declares elicitation without a mode takes forms, as `initialize` reads it. */
function withForms(capabilities: JsonObject | undefined): JsonObject | undefined {
  const elicitation = capabilities?.elicitation;
  if (!isObject(elicitation) || Object.keys(elicitation).length > 0) return capabilities;
  return { ...capabilities, elicitation: { form: {} } };
}

function isEraServer(server: LowLevel): server is EraServer {
  return hasEras(server) && missingOf(server).length === 0;
}

function missingOf(server: LowLevel): string[] {
  const hasNo = (name: string): boolean => typeof Reflect.get(server, name) !== 'function';
  return [...FIELDS.filter((name) => !(name in server)), ...METHODS.filter(hasNo)];
}

function unknownShape(revision: string, missing: readonly string[]): AwaitError {
  return optionError(
    `this server's SDK cannot be served on ${revision}: it lacks ${missing.join(', ')}. Install @modelcontextprotocol/server 2.0 to 2.4, or leave ${revision} out of the option revisions.`,
  );
}
