/** Requests as bytes, sent to a server on its own SDK's transport and to the same server hosted, and what comes back. */
import { CAPABILITIES, type Fetch, INFO, type Json } from './talk.ts';

const URL_OF = 'http://mirror.test/mcp';

export interface RawRequest {
  readonly name: string;
  /** Default: POST. */
  readonly method?: string;
  /** Beside those of a sound request; null leaves one out. */
  readonly headers?: Readonly<Record<string, string | null>>;
  /** Text is sent as it is. */
  readonly body?: string | object;
  /** Whether its reply is a stream that stays open. */
  readonly isOpen?: true;
}

/** What the reply to one shows. */
export interface Seen {
  readonly status: number;
  readonly type: string;
  readonly allow: string | null;
  readonly challenge: string | null;
  /** Whether it names a session. */
  readonly session: boolean;
  /** The messages of its body, or the body's text where that is none. */
  readonly body: readonly unknown[] | string;
}

const SOUND = {
  'content-type': 'application/json',
  accept: 'application/json, text/event-stream',
};

async function sent(
  fetch: Fetch,
  given: RawRequest,
  headers: Readonly<Record<string, string>>,
): Promise<Seen> {
  const { method = 'POST', body, isOpen } = given;
  const own = new Headers({ ...SOUND, ...headers });
  for (const [name, value] of Object.entries(given.headers ?? {})) {
    if (value === null) own.delete(name);
    else own.set(name, value);
  }
  const text = typeof body === 'object' ? JSON.stringify(body) : body;
  const reply = await fetch(
    new Request(URL_OF, { method, headers: own, ...(text !== undefined && { body: text }) }),
  );
  const type = (reply.headers.get('content-type') ?? '').split(';')[0] ?? '';
  const seen = {
    status: reply.status,
    type,
    allow: reply.headers.get('allow'),
    challenge: reply.headers.get('www-authenticate'),
    session: reply.headers.has('mcp-session-id'),
  };
  if (isOpen && type === 'text/event-stream') {
    await reply.body?.cancel();
    return { ...seen, body: 'open' };
  }
  return { ...seen, body: bodyOf(type, await reply.text()) };
}

function bodyOf(type: string, text: string): readonly unknown[] | string {
  if (type === 'application/json') return [JSON.parse(text)].flat();
  if (type !== 'text/event-stream') return text;
  return text
    .split(/\n\n/)
    .map((event) => /^data: ?(.+)$/m.exec(event)?.[1] ?? '')
    .filter((data) => data !== '')
    .map((data): unknown => JSON.parse(data));
}

/** A request inside of a session that it begins. */
export async function inSession(
  fetch: Fetch,
  given: RawRequest,
  protocolVersion = '2025-11-25',
): Promise<Seen> {
  const params = { protocolVersion, capabilities: CAPABILITIES, clientInfo: INFO };
  const post = (body: object, more: object = {}): Promise<Response> =>
    fetch(
      new Request(URL_OF, { method: 'POST', headers: { ...SOUND, ...more }, body: JSON.stringify(body) }),
    );
  const begun = await post({ jsonrpc: '2.0', id: 'begin', method: 'initialize', params });
  const session = {
    'mcp-session-id': begun.headers.get('mcp-session-id') ?? '',
    'mcp-protocol-version': protocolVersion,
  };
  await begun.text();
  await (await post({ jsonrpc: '2.0', method: 'notifications/initialized' }, session)).text();
  return sent(fetch, given, session);
}

/** A request without a session: a first one. */
export function alone(fetch: Fetch, given: RawRequest): Promise<Seen> {
  return sent(fetch, given, {});
}

/** A request of 2026-07-28, with the headers that its body asks for. */
export function modern(fetch: Fetch, given: RawRequest): Promise<Seen> {
  const { body } = given;
  const { method, params } = (typeof body === 'object' ? body : {}) as { method?: unknown; params?: Json };
  const name = params?.name ?? params?.uri ?? params?.taskId;
  return sent(fetch, given, {
    'mcp-protocol-version': '2026-07-28',
    ...(typeof method === 'string' && { 'mcp-method': method }),
    ...(typeof name === 'string' && { 'mcp-name': name }),
  });
}

const META = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientInfo': INFO,
  'io.modelcontextprotocol/clientCapabilities': CAPABILITIES,
};

const rpc = (method: string, params?: object, id: unknown = 1): object => ({
  jsonrpc: '2.0',
  id,
  method,
  ...(params !== undefined && { params }),
});
const said = (method: string, params?: object): object => ({
  jsonrpc: '2.0',
  method,
  ...(params && { params }),
});
const ECHO = { name: 'echo', arguments: { value: 7 } };
const post = (name: string, body: string | object, headers: RawRequest['headers'] = {}): RawRequest => ({
  name,
  body,
  headers,
});

const ACCEPTS: readonly (string | null)[] = [
  null,
  '*/*',
  'application/*',
  'application/json',
  'text/event-stream',
  'text/event-stream, application/json',
  'application/json;q=0.9, text/event-stream;q=0.8',
  'application/json;q=0, text/event-stream',
  'application/json, text/event-stream;q=0',
  'APPLICATION/JSON, Text/Event-Stream',
  'text/html',
];
const IDS: readonly unknown[] = ['one', '', 0, -1, 1.5, 1e21, null, true, {}, []];
const BODIES: Readonly<Record<string, string | object>> = {
  'bad JSON': '{"jsonrpc":"2.0","id":1,',
  'an empty body': '',
  'a string': '"ping"',
  'a number': '7',
  null: 'null',
  'an empty object': {},
  'an empty batch': [],
  'another jsonrpc': { jsonrpc: '1.0', id: 1, method: 'ping' },
  'no jsonrpc': { id: 1, method: 'ping' },
  'no method': { jsonrpc: '2.0', id: 1 },
  'a method that is a number': { jsonrpc: '2.0', id: 1, method: 7 },
  'a member that nobody knows': { jsonrpc: '2.0', id: 1, method: 'ping', extra: true },
  'params that are an array': { jsonrpc: '2.0', id: 1, method: 'ping', params: [] },
  'params that are null': { jsonrpc: '2.0', id: 1, method: 'ping', params: null },
  'a response to nothing': { jsonrpc: '2.0', id: 77, result: {} },
  'an error to nothing': { jsonrpc: '2.0', id: 77, error: { code: -1, message: 'no' } },
  'a response with result and error': {
    jsonrpc: '2.0',
    id: 77,
    result: {},
    error: { code: -1, message: 'no' },
  },
};

/** What every revision has. */
function everywhere(meta: object): readonly RawRequest[] {
  const with_ = (params: object = {}): object => ({ ...params, ...meta });
  return [
    post('tools/call', rpc('tools/call', with_(ECHO))),
    post('tools/call of no tool', rpc('tools/call', with_({ name: 'nowhere', arguments: {} }))),
    post('tools/call without a name', rpc('tools/call', with_({ arguments: {} }))),
    post(
      'tools/call with arguments that are a string',
      rpc('tools/call', with_({ name: 'echo', arguments: 'x' })),
    ),
    post('tools/list', rpc('tools/list', with_())),
    post('tools/list with a cursor', rpc('tools/list', with_({ cursor: 'elsewhere' }))),
    post('tools/list with a cursor that is a number', rpc('tools/list', with_({ cursor: 7 }))),
    post('prompts/list', rpc('prompts/list', with_())),
    post('prompts/get', rpc('prompts/get', with_({ name: 'greet', arguments: { name: 'Ann' } }))),
    post('prompts/get of no prompt', rpc('prompts/get', with_({ name: 'nothing' }))),
    post('resources/list', rpc('resources/list', with_())),
    post('resources/read', rpc('resources/read', with_({ uri: 'note://one' }))),
    post('resources/read without a uri', rpc('resources/read', with_())),
    post('resources/templates/list', rpc('resources/templates/list', with_())),
    post('resources/subscribe', rpc('resources/subscribe', with_({ uri: 'note://one' }))),
    post(
      'completion/complete',
      rpc(
        'completion/complete',
        with_({ ref: { type: 'ref/prompt', name: 'greet' }, argument: { name: 'name', value: 'A' } }),
      ),
    ),
    post(
      'completion/complete of another kind',
      rpc('completion/complete', with_({ ref: { type: 'ref/other' }, argument: {} })),
    ),
    post('ping', rpc('ping', with_())),
    post('logging/setLevel', rpc('logging/setLevel', with_({ level: 'debug' }))),
    post('logging/setLevel to no level', rpc('logging/setLevel', with_({ level: 'loud' }))),
    post('an unknown method', rpc('vendor/nothing', with_())),
    post('a method of a client', rpc('elicitation/create', with_({ message: 'm' }))),
    post('server/discover', rpc('server/discover', with_())),
    post('notifications/cancelled of nothing', said('notifications/cancelled', with_({ requestId: 5 }))),
    post(
      'notifications/progress of nothing',
      said('notifications/progress', with_({ progressToken: 1, progress: 1 })),
    ),
    post('notifications/roots/list_changed', said('notifications/roots/list_changed', with_())),
    post('an unknown notification', said('notifications/vendor', with_())),
    ...IDS.map((id) => post(`an id: ${JSON.stringify(id)}`, rpc('tools/list', with_(), id))),
    ...ACCEPTS.map((accept) => post(`Accept: ${accept}`, rpc('tools/list', with_()), { accept })),
    ...Object.entries(BODIES).map(([name, body]) => post(name, body)),
    post('a batch of two', [rpc('tools/list', with_()), rpc('tools/call', with_(ECHO), 2)]),
    post('a batch of a request and a notification', [
      rpc('tools/list', with_()),
      said('notifications/vendor', with_()),
    ]),
    post('Content-Type: text/plain', rpc('tools/list', with_()), { 'content-type': 'text/plain' }),
    post('Content-Type with a charset', rpc('tools/list', with_()), {
      'content-type': 'application/json; charset=utf-8',
    }),
    post('no Content-Type', rpc('tools/list', with_()), { 'content-type': null }),
    post('a foreign Origin', rpc('tools/list', with_()), { origin: 'https://evil.example' }),
    post('an Origin of this machine', rpc('tools/list', with_()), { origin: 'http://localhost:5173' }),
    post('a foreign Host', rpc('tools/list', with_()), { host: 'evil.example' }),
    post('MCP-Protocol-Version: 1999-01-01', rpc('tools/list', with_()), {
      'mcp-protocol-version': '1999-01-01',
    }),
    post('no MCP-Protocol-Version', rpc('tools/list', with_()), { 'mcp-protocol-version': null }),
    { name: 'GET', method: 'GET', isOpen: true },
    { name: 'GET that accepts JSON', method: 'GET', headers: { accept: 'application/json' }, isOpen: true },
    { name: 'GET without Accept', method: 'GET', headers: { accept: null }, isOpen: true },
    {
      name: 'GET after an unknown event',
      method: 'GET',
      headers: { 'last-event-id': 'nothing' },
      isOpen: true,
    },
    { name: 'DELETE', method: 'DELETE' },
    { name: 'OPTIONS', method: 'OPTIONS' },
    { name: 'PUT', method: 'PUT', body: rpc('tools/list', with_()) },
    { name: 'PATCH', method: 'PATCH', body: rpc('tools/list', with_()) },
    { name: 'HEAD', method: 'HEAD' },
  ];
}

/** Inside of a session. */
export const SESSION: readonly RawRequest[] = [
  ...everywhere({}),
  post(
    'initialize again',
    rpc('initialize', { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: INFO }),
  ),
  post('an unknown session', rpc('tools/list'), { 'mcp-session-id': 'nobody' }),
  post('no session', rpc('tools/list'), { 'mcp-session-id': null }),
  post('an unknown session’s notification', said('notifications/initialized'), {
    'mcp-session-id': 'nobody',
  }),
  post('another version than that negotiated', rpc('tools/list'), { 'mcp-protocol-version': '2025-06-18' }),
  { name: 'GET of an unknown session', method: 'GET', headers: { 'mcp-session-id': 'nobody' }, isOpen: true },
  { name: 'GET without a session', method: 'GET', headers: { 'mcp-session-id': null }, isOpen: true },
  { name: 'DELETE of an unknown session', method: 'DELETE', headers: { 'mcp-session-id': 'nobody' } },
  { name: 'DELETE without a session', method: 'DELETE', headers: { 'mcp-session-id': null } },
];

const begin = (params: object, id: unknown = 1): object => rpc('initialize', params, id);

/** Those that begin a session. */
export const FIRST: readonly RawRequest[] = [
  post('initialize', begin({ protocolVersion: '2025-11-25', capabilities: {}, clientInfo: INFO })),
  post(
    'initialize, of 2025-03-26',
    begin({ protocolVersion: '2025-03-26', capabilities: {}, clientInfo: INFO }),
  ),
  post(
    'initialize, of 2024-11-05',
    begin({ protocolVersion: '2024-11-05', capabilities: {}, clientInfo: INFO }),
  ),
  post(
    'initialize, of 1999-01-01',
    begin({ protocolVersion: '1999-01-01', capabilities: {}, clientInfo: INFO }),
  ),
  post('initialize without params', rpc('initialize')),
  post('initialize without clientInfo', begin({ protocolVersion: '2025-11-25', capabilities: {} })),
  post(
    'initialize with capabilities that are a string',
    begin({ protocolVersion: '2025-11-25', capabilities: 'all', clientInfo: INFO }),
  ),
  post(
    'initialize with an id that is a string',
    begin({ protocolVersion: '2025-11-25', capabilities: {}, clientInfo: INFO }, 'one'),
  ),
  post('initialize in a batch of its own', [
    begin({ protocolVersion: '2025-11-25', capabilities: {}, clientInfo: INFO }),
  ]),
  post('initialize in a batch', [
    begin({ protocolVersion: '2025-11-25', capabilities: {}, clientInfo: INFO }),
    rpc('tools/list', {}, 2),
  ]),
  post(
    'initialize that accepts JSON alone',
    begin({ protocolVersion: '2025-11-25', capabilities: {}, clientInfo: INFO }),
    { accept: 'application/json' },
  ),
];

/** Those of 2026-07-28. */
export const MODERN: readonly RawRequest[] = [
  ...everywhere({ _meta: META }),
  post('no _meta', rpc('tools/list', {})),
  post('no params', rpc('tools/list')),
  post(
    '_meta without a version',
    rpc('tools/list', { _meta: { ...META, 'io.modelcontextprotocol/protocolVersion': undefined } }),
  ),
  post(
    '_meta without capabilities',
    rpc('tools/list', { _meta: { ...META, 'io.modelcontextprotocol/clientCapabilities': undefined } }),
  ),
  post(
    '_meta without clientInfo',
    rpc('tools/list', { _meta: { ...META, 'io.modelcontextprotocol/clientInfo': undefined } }),
  ),
  post(
    '_meta with another version',
    rpc('tools/list', { _meta: { ...META, 'io.modelcontextprotocol/protocolVersion': '1999-01-01' } }),
  ),
  post(
    'both with another version',
    rpc('tools/list', { _meta: { ...META, 'io.modelcontextprotocol/protocolVersion': '1999-01-01' } }),
    { 'mcp-protocol-version': '1999-01-01' },
  ),
  post('no Mcp-Method', rpc('tools/list', { _meta: META }), { 'mcp-method': null }),
  post('another Mcp-Method', rpc('tools/list', { _meta: META }), { 'mcp-method': 'tools/call' }),
  post('no Mcp-Name', rpc('tools/call', { ...ECHO, _meta: META }), { 'mcp-name': null }),
  post('another Mcp-Name', rpc('tools/call', { ...ECHO, _meta: META }), { 'mcp-name': 'other' }),
  post('a session of another revision', rpc('tools/list', { _meta: META }), { 'mcp-session-id': 'any' }),
  post(
    'initialize',
    begin({ protocolVersion: '2026-07-28', capabilities: {}, clientInfo: INFO, _meta: META }),
  ),
  post('a requestState of nobody', rpc('tools/call', { ...ECHO, requestState: 'x', _meta: META })),
  post(
    'inputResponses without a state',
    rpc('tools/call', { ...ECHO, inputResponses: { a: { action: 'accept' } }, _meta: META }),
  ),
  {
    ...post(
      'subscriptions/listen',
      rpc('subscriptions/listen', { notifications: { toolsListChanged: true }, _meta: META }),
    ),
    isOpen: true,
  },
  post('subscriptions/listen without notifications', rpc('subscriptions/listen', { _meta: META })),
];
