/** What the fuzz starts from: real tokens of real calls and sessions, and the services that must refuse others. */
import Keyv from 'keyv';
import { KNOWN, TABLE } from '../../compat/revisions.ts';
import { identifier } from '../../compat/session/identity.ts';
import { Sessions } from '../../compat/session/sessions.ts';
import { isObject } from '../../src/base/values.ts';
import type { Binding, RequestContext } from '../../src/call/ports.ts';
import { createServices, type Services } from '../../src/handler/services.ts';
import { settle } from '../../src/handler/settings.ts';
import { type AwaitHandler, type AwaitOptions, createAwaitHandler, type Logger } from '../../src/index.ts';
import { CAPABILITIES, modernHeaders } from '../e2e/clients.ts';
import { buildServer } from '../fixtures/asking-server.ts';

const INFO = { name: 'fuzz', version: '1.0.0' };
export const SECRETS = [
  'the first secret of the fuzz run: longer than 32 bytes',
  'the second secret of the fuzz run: as long again',
];
export const UNKNOWN_SECRET = 'a secret that nobody in the fuzz run knows: long';

/** A request that takes a call up, without its token. */
export interface Asking {
  readonly method: string;
  readonly name: string;
  readonly args: object;
  readonly caller?: string;
}

interface StateToken {
  readonly kind: 'stored' | 'sealed';
  readonly token: string;
  readonly binding: Binding;
  readonly asking: Asking;
}

interface SessionToken {
  readonly kind: 'session';
  readonly token: string;
  readonly caller?: string;
}

export type Token = StateToken | SessionToken;

export interface Material {
  readonly tokens: readonly Token[];
  /** Services that did not make the tokens themselves, over the same store. */
  readonly stored: Services;
  readonly sealed: Services;
  readonly sessions: Sessions;
  /** The handlers that made them, and that keep their frames. */
  readonly handlers: { readonly stored: AwaitHandler; readonly sealed: AwaitHandler };
  /** How often the store was touched. */
  touched(): number;
  close(): Promise<void>;
}

const silent: Logger = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };

/** No sweeper and no heartbeat reads the store: only tokens may touch it. */
const NEVER = { lease: 3_600_000 };

export function servicesWith(options: AwaitOptions): Services {
  return createServices(
    () => buildServer(() => {}),
    settle({ secrets: SECRETS, logger: silent, limits: NEVER, ...options }, KNOWN),
    TABLE,
  );
}

export const context: RequestContext = { live: false, capabilities: CAPABILITIES, notify: () => {} };

const ASKINGS: readonly Asking[] = [
  { method: 'tools/call', name: 'echo', args: { word: 'hi' } },
  { method: 'tools/call', name: 'echo', args: { word: 'ho' }, caller: 'ann' },
  { method: 'tools/call', name: 'one', args: {}, caller: 'ann' },
  { method: 'tools/call', name: 'order', args: {}, caller: 'bob' },
  { method: 'prompts/get', name: 'greet', args: {} },
];

export async function gather(): Promise<Material> {
  let touched = 0;
  const map = new Map<string, unknown>();
  const counted = <A extends unknown[], R>(method: (...args: A) => R) => {
    return (...args: A): R => {
      touched += 1;
      return method(...args);
    };
  };
  const store = new Keyv({
    store: {
      opts: {},
      get: counted((key: string) => map.get(key)),
      set: counted((key: string, value: unknown) => map.set(key, value)),
      delete: counted((key: string) => map.delete(key)),
      has: counted((key: string) => map.has(key)),
      clear: counted(() => map.clear()),
    },
  });
  const build = () => buildServer(() => {});
  const options: AwaitOptions = {
    // Every reply is to be compared, however many there are.
    rateLimit: false,
    store,
    secrets: SECRETS,
    logger: silent,
    limits: NEVER,
  };
  const handlers = {
    stored: createAwaitHandler(build, options),
    sealed: createAwaitHandler(build, { ...options, state: 'sealed' }),
  };
  const stored = servicesWith({ store });
  const sealed = servicesWith({ store, state: 'sealed' });
  const sessions = new Sessions(stored, identifier(stored));
  const tokens: Token[] = [];
  for (const kind of ['stored', 'sealed'] as const) {
    for (const asking of ASKINGS) {
      const { text } = await ask(handlers[kind], asking, 1);
      const { result } = JSON.parse(text) as { result: { requestState: string } };
      const token = result.requestState;
      const { binding } = await stored.sealer.open('state', token);
      if (!isObject(binding)) throw new Error(`${asking.name} did not suspend`);
      tokens.push({ kind, token, binding: binding as unknown as Binding, asking });
    }
  }
  for (const [info, caller] of [[INFO], [INFO, 'ann'], [{ ...INFO, title: 'x'.repeat(2_000) }]] as const) {
    const token = await initialize(handlers.stored, info, caller);
    tokens.push({ kind: 'session', token, ...(caller !== undefined && { caller }) });
  }
  return {
    tokens,
    stored,
    sealed,
    sessions,
    handlers,
    touched: () => touched,
    async close() {
      sessions.close();
      stored.close();
      sealed.close();
      await Promise.all([handlers.stored.close(), handlers.sealed.close()]);
    },
  };
}

/** All of a reply that a client sees. */
export interface Wire {
  readonly status: number;
  readonly headers: string;
  readonly text: string;
}

/** One request of 2026-07-28; with an encoded name the SDK itself serves it, else the lean path. */
export function ask(
  handler: AwaitHandler,
  asking: Asking,
  id: number,
  state?: unknown,
  encoded = false,
): Promise<Wire> {
  const { method, name, args, caller } = asking;
  const params = {
    name,
    arguments: args,
    ...(state !== undefined && { requestState: state, inputResponses: {} }),
    _meta: {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientInfo': INFO,
      'io.modelcontextprotocol/clientCapabilities': CAPABILITIES,
    },
  };
  const told = encoded ? `=?base64?${Buffer.from(name).toString('base64')}?=` : name;
  return send(handler, { jsonrpc: '2.0', id, method, params }, modernHeaders(method, told), caller);
}

/** A request in a session; undefined when no HTTP client could send such an id. */
export async function inSession(
  handler: AwaitHandler,
  token: unknown,
  caller?: string,
): Promise<Wire | undefined> {
  const headers = { 'mcp-session-id': String(token), 'mcp-protocol-version': '2025-11-25' };
  try {
    // White space around a header's value is not part of it.
    if (new Headers(headers).get('mcp-session-id') !== token) return undefined;
  } catch {
    return undefined;
  }
  return send(handler, { jsonrpc: '2.0', id: 5, method: 'tools/list' }, headers, caller);
}

async function initialize(handler: AwaitHandler, clientInfo: object, caller?: string): Promise<string> {
  const params = { protocolVersion: '2025-11-25', capabilities: CAPABILITIES, clientInfo };
  const { headers } = await send(
    handler,
    { jsonrpc: '2.0', id: 0, method: 'initialize', params },
    {},
    caller,
  );
  const entries = JSON.parse(headers) as [string, string][];
  return new Headers(entries).get('mcp-session-id') ?? '';
}

async function send(
  handler: AwaitHandler,
  message: object,
  headers: Readonly<Record<string, string>>,
  caller: string | undefined,
): Promise<Wire> {
  const request = new Request('http://127.0.0.1/mcp', {
    method: 'POST',
    body: JSON.stringify(message),
    headers: {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      ...headers,
    },
  });
  const auth = authInfoOf(caller);
  const authInfo = auth === undefined ? {} : { authInfo: auth };
  const response = await handler.fetch(request, authInfo);
  return {
    status: response.status,
    headers: JSON.stringify([...response.headers]),
    text: await response.text(),
  };
}

export function authInfoOf(caller: string | undefined) {
  return caller === undefined ? undefined : { token: 'x', clientId: caller, scopes: [] };
}
