/**
 * Random HTTP requests on every wire: mostly valid ones with one mistake here and there, and with the ids of earlier
 * replies. As text, to be cut into pieces.
 */
import { NAMES } from '../../compat/revisions.ts';
import type { Random } from '../fixtures/random.ts';

/** What earlier replies told: the newest of each kind. */
export class Known {
  readonly #values = new Map<string, string[]>();

  learn(kind: string, value: string): void {
    const values = this.#values.get(kind) ?? [];
    values.push(value);
    if (values.length > 50) values.shift();
    this.#values.set(kind, values);
  }

  pick(kind: string, random: Random): string {
    const values = this.#values.get(kind);
    return values === undefined || random.int(10) === 0 ? random.pick(NONSENSE) : random.pick(values);
  }
}

const NONSENSE = [
  '',
  'x',
  '__proto__',
  'constructor',
  '../..',
  '0',
  '-1',
  '1e400',
  'a'.repeat(3_000),
  'é',
  '%00',
  'null',
];
const TOOLS = ['one', 'echo', 'in-turn', 'at-once', 'by-extra', 'nobody', '__proto__', ''];
const METHODS = ['GET', 'DELETE', 'OPTIONS', 'PUT', 'HEAD', 'PATCH', 'TRACE', 'FOO', 'post', ''];
const PATHS = [
  '/mcp',
  '/mcp',
  '/mcp',
  '/sse',
  '/messages',
  '/mcp/acme',
  '/mcp/',
  '/',
  '//',
  '/mcp/%zz',
  '/mcp/a/b',
  '*',
  '/mcp?x=%',
];
const RPC = [
  ...[
    'tools/call',
    'tools/call',
    'tools/call',
    'prompts/get',
    'resources/read',
    'tools/list',
    'ping',
    'initialize',
  ],
  ...['tasks/get', 'tasks/result', 'tasks/cancel', 'tasks/list', 'tasks/update', 'tasks/input_response'],
  ...[
    'server/discover',
    'subscriptions/listen',
    'logging/setLevel',
    'completion/complete',
    'resources/subscribe',
  ],
  ...['notifications/initialized', 'notifications/cancelled', 'notifications/progress', '__proto__', ''],
];
export const ODD: readonly unknown[] = [
  null,
  true,
  0,
  -1,
  1.5,
  1e308,
  '',
  'x',
  [],
  [[]],
  {},
  { a: {} },
  ['a', 1],
  '\ud800',
  '\u0000',
];
const VERSIONS = [...NAMES, '2027-01-01', 'x', ''];

export function requestText(random: Random, known: Known): string {
  const revision = random.pick(NAMES);
  const path = pathOf(random, known, revision);
  const method = random.int(10) < 7 ? 'POST' : random.pick(METHODS);
  const body = method === 'POST' || random.int(10) === 0 ? bodyOf(random, known, revision) : '';
  const headers = headersOf(random, known, revision, body);
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
  const isChunked = headers['transfer-encoding'] === 'chunked';
  return `${method} ${path} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n${isChunked ? chunked(body, random) : body}`;
}

function chance(random: Random, oneIn: number): boolean {
  return random.int(oneIn) === 0;
}

function pathOf(random: Random, known: Known, revision: string): string {
  if (chance(random, 15)) return random.pick(PATHS);
  if (revision === 'workspace-sse') return '/mcp/acme';
  if (revision !== '2024-11-05' || chance(random, 4)) return '/mcp';
  return chance(random, 8)
    ? '/sse'
    : `/messages?sessionId=${encodeURIComponent(known.pick('oldest', random))}`;
}

function headersOf(random: Random, known: Known, revision: string, body: string): Record<string, string> {
  const parsed = /"method":"([^"\\]{1,40})"/.exec(body)?.[1] ?? '';
  const name = /"name":"([^"\\]{1,40})"/.exec(body)?.[1] ?? '';
  const isBeginning = parsed === 'initialize';
  const headers: Record<string, string> = {
    host: 'localhost',
    connection: 'close',
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    ...(body !== '' && { 'content-length': String(Buffer.byteLength(body)) }),
    ...(!isBeginning &&
      revision !== '2026-07-28' && { 'mcp-session-id': known.pick(`session ${revision}`, random) }),
    ...(!isBeginning && { 'mcp-protocol-version': revision }),
    ...(revision === '2026-07-28' && { 'mcp-method': parsed, 'mcp-name': name }),
  };
  if (chance(random, 5)) headers['last-event-id'] = known.pick('event', random);
  if (chance(random, 10)) headers['mcp-protocol-version'] = random.pick(VERSIONS);
  if (chance(random, 12))
    headers.accept = random.pick(['*/*', 'application/json', 'text/event-stream', 'text/html', '']);
  if (chance(random, 20))
    headers.origin = random.pick(['null', 'http://localhost', 'https://evil.example', 'x', '']);
  if (chance(random, 20)) headers['sec-fetch-site'] = random.pick(['cross-site', 'same-origin', 'none', 'x']);
  if (chance(random, 20))
    headers.host = random.pick(['evil.example', '[::1]:1', '127.0.0.1', '[::bad', 'u:p@localhost', 'a b']);
  if (chance(random, 20))
    headers['content-type'] = random.pick([
      'text/plain',
      'application/json; charset=x',
      'APPLICATION/JSON',
      '',
    ]);
  if (chance(random, 30)) headers['content-encoding'] = random.pick(['gzip', 'identity', 'x']);
  if (chance(random, 20))
    headers['accept-encoding'] = random.pick(['gzip', ' ,'.repeat(2_000), 'gzip;q=0, *;q=x']);
  if (chance(random, 20))
    headers.authorization = random.pick(['Bearer ann', 'Bearer bob', 'Bearer', 'Basic x']);
  if (chance(random, 30)) headers['mcp-stream-id'] = known.pick('event', random);
  if (chance(random, 30)) headers['access-control-request-method'] = 'POST';
  if (chance(random, 30)) headers['mcp-session-id'] = known.pick(`session ${random.pick(NAMES)}`, random);
  if (chance(random, 30)) headers['content-length'] = random.pick(['0', '5', '99999999', '-1', 'x']);
  else if (chance(random, 12) && body !== '') {
    delete headers['content-length'];
    headers['transfer-encoding'] = 'chunked';
  }
  // Node refuses an invalid header value before the handler is called.
  for (const name of Object.keys(headers))
    headers[name] = (headers[name] ?? '').replaceAll(/[^\t\x20-\x7e]/g, '?');
  return headers;
}

export function bodyOf(random: Random, known: Known, revision: string): string {
  if (chance(random, 40))
    return random.pick([
      '',
      '{',
      '[]',
      'null',
      '"x"',
      '['.repeat(600),
      '{"a":'.repeat(600),
      '\ufeff{}',
      '1e999',
    ]);
  const messages = Array.from({ length: chance(random, 12) ? random.int(120) : 1 }, () =>
    message(random, known, revision),
  );
  const text = JSON.stringify(messages.length === 1 && !chance(random, 20) ? messages[0] : messages);
  return chance(random, 15) ? damaged(text, random) : text;
}

function message(random: Random, known: Known, revision: string): unknown {
  const id = chance(random, 15) ? random.pick(ODD) : random.int(1_000);
  const kind = random.int(10);
  if (kind < 3) return answer(random, known);
  const method = chance(random, 6) ? 'initialize' : random.pick(RPC);
  const params = paramsOf(random, known, method, revision);
  const whole: Record<string, unknown> = { jsonrpc: '2.0', id, method, params };
  if (method.startsWith('notifications/')) delete whole.id;
  if (revision === 'DRAFT-MRTR-2026-02' && chance(random, 2)) {
    whole.request_state = known.pick('state', random);
    whole.input_responses = { [known.pick('key', random)]: { result: accepted(random) } };
  }
  return swapped(whole, random);
}

function answer(random: Random, known: Known): unknown {
  return swapped({ jsonrpc: '2.0', id: known.pick('ask', random), result: accepted(random) }, random);
}

function accepted(random: Random): unknown {
  return {
    action: random.pick(['accept', 'decline', 'cancel', 'x']),
    content: { name: 'Ann', city: 'Rome', street: 'A' },
  };
}

function paramsOf(random: Random, known: Known, method: string, revision: string): Record<string, unknown> {
  const capabilities = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} };
  const info = { name: 'fuzz', version: '1' };
  if (method === 'initialize')
    return {
      protocolVersion: random.pick([revision, revision, ...VERSIONS]),
      capabilities,
      clientInfo: info,
    };
  const meta: Record<string, unknown> =
    revision === '2026-07-28'
      ? {
          'io.modelcontextprotocol/protocolVersion': revision,
          'io.modelcontextprotocol/clientInfo': info,
          'io.modelcontextprotocol/clientCapabilities': capabilities,
        }
      : {};
  if (chance(random, 4)) meta.progressToken = random.pick(ODD);
  const params: Record<string, unknown> = { name: random.pick(TOOLS), arguments: { word: 'x' }, _meta: meta };
  if (chance(random, 3)) {
    params.requestState = known.pick('state', random);
    params.inputResponses = { [known.pick('key', random)]: accepted(random) };
  }
  if (chance(random, 8)) params.task = random.pick<unknown>([{}, { ttl: 1_000 }, ...ODD]);
  if (method.startsWith('tasks/')) params.taskId = known.pick('task', random);
  if (method === 'subscriptions/listen')
    params.notifications = { taskIds: [known.pick('task', random)], tools: true };
  if (method === 'notifications/cancelled') params.requestId = random.int(1_000);
  return params;
}

/** One member, at any depth, is something else. */
export function swapped(value: Record<string, unknown>, random: Random): Record<string, unknown> {
  if (!chance(random, 6)) return value;
  const names = Object.keys(value);
  const name = random.pick(names);
  const inner = value[name];
  const isObject =
    typeof inner === 'object' && inner !== null && !Array.isArray(inner) && Object.keys(inner).length > 0;
  const next =
    isObject && !chance(random, 3) ? swapped(inner as Record<string, unknown>, random) : random.pick(ODD);
  return { ...value, [name]: next };
}

function damaged(text: string, random: Random): string {
  const at = random.int(text.length);
  const cut = random.int(3);
  if (cut === 0) return text.slice(0, at);
  return (
    text.slice(0, at) +
    random.pick(['"', '{', ']', '\\', '\u0000', '\ud800', 'é', ',']) +
    text.slice(at + cut - 1)
  );
}

function chunked(body: string, random: Random): string {
  const bytes = Buffer.from(body);
  let text = '';
  for (let at = 0; at < bytes.length; ) {
    const size = 1 + random.int(bytes.length);
    const piece = bytes.subarray(at, at + size).toString('latin1');
    text += `${piece.length.toString(16)}\r\n${piece}\r\n`;
    at += size;
  }
  return chance(random, 20) ? `${text}zz\r\n` : `${text}0\r\n\r\n`;
}
