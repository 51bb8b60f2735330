/**
 * Calls tools of remote servers that reply with anything: each reply is written to the socket as bytes, many of them
 * damaged. Whatever comes, the process lives, no rejection is unhandled, each call gets a response once its server is
 * gone, no connection is left, and memory is bounded.
 */
import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { ElicitRequestSchema, McpError } from '@modelcontextprotocol/sdk/types.js';
import { AwaitClientTransport, type ClientRevision } from '../../src/client/index.ts';
import { createAwaitHandler, remoteHost } from '../../src/index.ts';
import { modernHeaders } from '../e2e/clients.ts';
import { type Random, randomOf } from '../fixtures/random.ts';
import { ODD, swapped } from './requests.ts';
import { FUZZED, type Heap, Watch } from './watch.ts';

/** Servers at once, and calls of each. */
const AT_ONCE = 16;
const CALLS = 5;
/** How long a call waits until its client gives up, and then for its response, in milliseconds. */
const PATIENCE = 2_000;
const SETTLED = 30_000;
/** How long a connection that nothing uses may be kept, in milliseconds: `fetch` keeps it for four seconds. */
const IDLE = 30_000;
/** Calls between two looks at the memory. */
const LOOK = 2_000;

const WIRES = ['2026-07-28', '2025-11-25', '2024-11-05'] as const;
type Wire = (typeof WIRES)[number];
/** What our client speaks with sessions. */
const DRAFTS = ['DRAFT-SEP-1858', 'DRAFT-SEP-2322', 'DRAFT-MRTR-2026-02'] as const;

export interface UpstreamFuzzReport {
  readonly calls: number;
  /** How calls ended: `result`, `error -32603`, `given up`. */
  readonly byEnd: ReadonlyMap<string, number>;
  readonly heap: Heap;
  readonly problems: readonly string[];
}

export async function fuzzUpstream(options: {
  readonly calls: number;
  readonly seed: number;
}): Promise<UpstreamFuzzReport> {
  const byEnd = new Map<string, number>();
  const watch = new Watch();
  const closing: Promise<unknown>[] = [];
  let [servers, calls, looked] = [0, 0, 0];
  const work = async (): Promise<void> => {
    while (calls < options.calls && !watch.failed) {
      servers += 1;
      const nth = servers;
      calls += CALLS;
      const { ends, problems, left } = await oneServer(randomOf(options.seed + nth));
      closing.push(
        left().then((count) => count > 0 && watch.problems.push(`server ${nth}: ${count} connections left`)),
      );
      for (const end of ends) byEnd.set(end, (byEnd.get(end) ?? 0) + 1);
      for (const problem of problems) watch.problems.push(`server ${nth}: ${problem}`);
      if (calls - looked < LOOK) continue;
      looked = calls;
      watch.measure();
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  await Promise.all(closing);
  await watch.stop();
  return { calls, byEnd, heap: watch.heap, problems: watch.problems };
}

interface Tried {
  readonly ends: readonly string[];
  readonly problems: readonly string[];
  /** Counts the connections that clients leave open, and closes the server. */
  readonly left: () => Promise<number>;
}

async function oneServer(random: Random): Promise<Tried> {
  const wire = random.pick(WIRES);
  const server = new BrokenServer(wire, random);
  if (wire !== '2024-11-05' && random.int(3) === 0) return oneClient(server, wire, random.pick(DRAFTS));
  const handler = createAwaitHandler(
    remoteHost({ url: await server.listen(), startTimeout: 1_500, queueWait: 1_500, cancelGrace: 50 }),
    FUZZED,
  );
  const problems: string[] = [];
  const ends: string[] = [];
  for (let nth = 0; nth < CALLS; nth += 1) {
    const givenUp = new AbortController();
    const patience = setTimeout(() => givenUp.abort(), PATIENCE);
    const request = new Request('http://127.0.0.1/mcp', requestFor(nth, givenUp.signal));
    const reply = handler
      .fetch(request)
      .then(async (response) => endOf(await response.text()))
      .catch((error: unknown) => `failed: ${error}`);
    const end = await inTime(reply, 'open');
    ends.push(end !== 'open' && givenUp.signal.aborted ? 'given up' : end);
    clearTimeout(patience);
  }
  if (ends.includes('open')) problems.push(`over ${wire} a call was not over`);
  if (
    !(await inTime(
      handler.close().then(() => true),
      false,
    ))
  )
    problems.push(`over ${wire} the handler did not close`);
  return { ends, problems, left: () => server.close() };
}

/** @param late what it is where it does not settle */
function inTime<T>(settling: Promise<T>, late: T): Promise<T> {
  return Promise.race([settling, sleep(SETTLED, late, { ref: false })]);
}

/** Without the proxy: the transport of our client. */
async function oneClient(server: BrokenServer, wire: Wire, draft: ClientRevision): Promise<Tried> {
  const transport = new AwaitClientTransport(await server.listen(), {
    revision: wire === '2026-07-28' ? wire : draft,
  });
  const client = new Client({ name: 'fuzz', version: '1' }, { capabilities: { elicitation: { form: {} } } });
  client.setRequestHandler(ElicitRequestSchema, () => ({ action: 'decline' }));
  const timed = { timeout: PATIENCE };
  const told = (error: unknown): string => (error instanceof McpError ? `error ${error.code}` : 'failed');
  const calls = async (): Promise<string[]> => {
    const ends: string[] = [];
    // Its handshake has no time-out of its own.
    const opened = await Promise.race([
      client.connect(transport, timed).catch(told),
      sleep(PATIENCE, 'late'),
    ]);
    if (opened !== undefined) return Array(CALLS).fill(`not connected: ${opened}`);
    for (let nth = 0; nth < CALLS; nth += 1) {
      const call =
        nth === 1 ? client.listTools({}, timed) : client.callTool({ name: 'try' }, undefined, timed);
      ends.push(await call.then(() => 'result', told));
    }
    return ends;
  };
  const ends = await inTime(calls(), ['open']);
  const problems = ends.includes('open') ? [`over ${wire} a call of the client was not over`] : [];
  if (
    !(await inTime(
      client.close().then(() => true),
      false,
    ))
  )
    problems.push(`over ${wire} the client did not close`);
  return { ends, problems, left: () => server.close() };
}

function requestFor(id: number, signal: AbortSignal): RequestInit {
  const meta = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientInfo': { name: 'fuzz', version: '1' },
    'io.modelcontextprotocol/clientCapabilities': { elicitation: { form: {} }, sampling: {} },
  };
  const method = id === 1 ? 'tools/list' : 'tools/call';
  return {
    method: 'POST',
    signal,
    headers: {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      ...modernHeaders(method, 'try'),
    },
    body: JSON.stringify({ jsonrpc: '2.0', id, method, params: { name: 'try', arguments: {}, _meta: meta } }),
  };
}

function endOf(text: string): string {
  const json = /^data: (.*"(?:result|error)".*)$/m.exec(text)?.[1] ?? text;
  try {
    const { error } = JSON.parse(json) as { error?: { code: number } };
    return error === undefined ? 'result' : `error ${error.code}`;
  } catch {
    return 'no response';
  }
}

// --- the server ---

interface Asked {
  readonly verb: string;
  readonly body: Record<string, unknown>;
}

class BrokenServer {
  readonly #wire: Wire;
  readonly #random: Random;
  readonly #sockets = new Set<Socket>();
  readonly #server = createServer((socket) => this.#serve(socket));
  /** The stream of an HTTP+SSE session. */
  #stream: Socket | undefined;

  constructor(wire: Wire, random: Random) {
    this.#wire = wire;
    this.#random = random;
  }

  async listen(): Promise<string> {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/mcp`;
  }

  /** @returns how many connections clients left open */
  async close(): Promise<number> {
    for (const end = Date.now() + IDLE; this.#open().length > 0 && Date.now() < end; ) await sleep(500);
    const left = this.#open();
    for (const socket of left) socket.destroy();
    this.#server.close();
    return left.length;
  }

  /** One that this server reset after it had ended its half emits no `close` where the kernel refuses the reset. */
  #open(): Socket[] {
    return [...this.#sockets].filter(({ destroyed }) => !destroyed);
  }

  #serve(socket: Socket): void {
    this.#sockets.add(socket);
    socket.on('error', () => {});
    socket.on('close', () => this.#sockets.delete(socket));
    // A server that hangs up at once, as one that starts anew.
    if (this.#oneIn(60)) socket.resetAndDestroy();
    let text = '';
    socket.on('data', (chunk) => {
      text += chunk.toString('latin1');
      for (;;) {
        const head = text.indexOf('\r\n\r\n');
        const length = Number(/^content-length: (\d+)/im.exec(text.slice(0, head))?.[1] ?? 0);
        if (head < 0 || text.length < head + 4 + length) return;
        const asked = askedIn(text.slice(0, head), text.slice(head + 4, head + 4 + length));
        text = text.slice(head + 4 + length);
        void this.#answer(socket, asked);
      }
    });
  }

  async #answer(socket: Socket, asked: Asked): Promise<void> {
    const random = this.#random;
    if (asked.verb === 'GET' && this.#wire === '2024-11-05') {
      this.#stream = socket;
      const endpoint = this.#oneIn(8) ? random.pick(ENDPOINTS) : '/messages?sessionId=1';
      await this.#write(socket, HEAD_OF_EVENTS + event(endpoint, 'event: endpoint\n'));
      return;
    }
    const message = this.#messageFor(asked);
    if (this.#wire === '2024-11-05' && this.#stream !== undefined) {
      await this.#write(socket, whole('202 Accepted', '', 'text/plain'));
      if (message !== undefined) await this.#write(this.#stream, this.#damagedEvents(message));
      return;
    }
    const isRefused = asked.verb !== 'POST' || (this.#wire === '2024-11-05' && message !== undefined);
    if (isRefused) await this.#write(socket, whole('405 Method Not Allowed', '', 'text/plain'));
    else if (message === undefined) await this.#write(socket, whole('202 Accepted', '', 'text/plain'));
    else if (this.#oneIn(2))
      await this.#write(socket, whole('200 OK', JSON.stringify(message), 'application/json'));
    else {
      await this.#write(socket, HEAD_OF_EVENTS + this.#damagedEvents(message));
      if (!this.#oneIn(10)) socket.end();
    }
  }

  /** The response, with a member that is something else now and then; undefined where none is due. */
  #messageFor({ body: { id, method, params } }: Asked): Record<string, unknown> | undefined {
    if (id === undefined || method === undefined) return undefined;
    const random = this.#random;
    const serverInfo = { name: 'broken', version: '1' };
    const capabilities = { tools: { listChanged: true }, logging: {} };
    const refused = { code: -32601, message: 'Method not found' };
    const tools = [{ name: 'try', inputSchema: { type: 'object' } }];
    const asks = { inputRequests: { a: { method: 'roots/list', params: {} } }, requestState: 'state' };
    const done = { content: [{ type: 'text', text: 'done' }] };
    const isModern = this.#wire === '2026-07-28';
    const results: Record<string, object> = {
      'server/discover': { supportedVersions: ['2026-07-28'], capabilities, serverInfo },
      initialize: { ...(params as object), capabilities, serverInfo },
      'tools/list': { tools, ...(isModern && { resultType: 'complete', ttlMs: 0, cacheScope: 'private' }) },
      'tools/call': this.#oneIn(4) && isModern ? { resultType: 'input_required', ...asks } : done,
    };
    const isKnown = method === 'server/discover' ? isModern : method !== 'initialize' || !isModern;
    const result = results[String(method)] ?? {};
    const response = { jsonrpc: '2.0', id, ...(isKnown ? { result } : { error: refused }) };
    return this.#oneIn(2) ? response : swapped(response, random);
  }

  /** Events of a response, with others before, after and inside. */
  #damagedEvents(message: Record<string, unknown>): string {
    const random = this.#random;
    const others = [
      { jsonrpc: '2.0', method: 'notifications/message', params: { level: 'info', data: random.pick(ODD) } },
      { jsonrpc: '2.0', method: 'notifications/progress', params: { progressToken: random.pick(ODD) } },
      { jsonrpc: '2.0', method: 'notifications/tools/list_changed' },
      { jsonrpc: '2.0', id: random.pick(ODD), method: 'elicitation/create', params: random.pick(ODD) },
      { jsonrpc: '2.0', id: 'a', method: 'sampling/createMessage', params: { messages: [] } },
      { jsonrpc: '2.0', id: random.pick(ODD), result: {} },
      message,
      [message, message],
    ];
    const some = Array.from({ length: random.int(3) }, () => swapped({ m: random.pick(others) }, random).m);
    const all = random
      .shuffled([...some, message])
      .map((each) => event(JSON.stringify(each), this.#fields()));
    const text = all.join(this.#oneIn(15) ? event(' '.repeat(random.int(3_000))).repeat(50) : '');
    return this.#oneIn(6) ? text.replaceAll('\n', random.pick(['\r', '\r\n', '\n\n'])) : text;
  }

  /** Fields of an event before its data. */
  #fields(): string {
    const random = this.#random;
    if (!this.#oneIn(4)) return '';
    const value = random.pick(['', '0', '-1', '1e9', '99999999999', 'é\u0000', 'a b', 'x'.repeat(9_000)]);
    return `${random.pick(['id', 'retry', 'event', ':', '\ufeffdata', 'data'])}: ${value}\n`;
  }

  /** Writes a reply, damaged now and then, in pieces. */
  async #write(socket: Socket, reply: string): Promise<void> {
    const random = this.#random;
    const text = this.#oneIn(2) ? random.pick(DAMAGES)(reply, random) : reply;
    const bytes = Buffer.from(text, 'latin1');
    if (this.#oneIn(10)) await sleep(random.int(50));
    const cut = this.#oneIn(10) ? random.int(bytes.length) : bytes.length;
    const middle = random.int(cut + 1);
    socket.write(bytes.subarray(0, middle));
    if (this.#oneIn(3)) await sleep(5);
    socket.write(bytes.subarray(middle, cut));
    if (cut === bytes.length) return;
    if (this.#oneIn(2)) socket.end();
    else if (random.int(2) === 0) setTimeout(() => socket.resetAndDestroy(), random.int(30));
  }

  #oneIn(chances: number): boolean {
    return this.#random.int(chances) === 0;
  }
}

const HEAD_OF_EVENTS =
  'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nmcp-session-id: 1\r\nconnection: close\r\n\r\n';

const ENDPOINTS = [
  '',
  '/',
  'http://127.0.0.1:1/x',
  'javascript:1',
  'http://[',
  '//evil.example/x',
  'x'.repeat(10_000),
  '\u0000',
  '/messages\nevent: endpoint\ndata: /two',
];

function askedIn(head: string, body: string): Asked {
  const parsed: unknown = body === '' ? {} : JSON.parse(body);
  return { verb: head.slice(0, head.indexOf(' ')), body: parsed as Record<string, unknown> };
}

function event(data: string, before = ''): string {
  return `${before}data: ${data}\n\n`;
}

function whole(status: string, body: string, type: string): string {
  const bytes = Buffer.from(body).toString('latin1');
  return `HTTP/1.1 ${status}\r\ncontent-type: ${type}\r\nmcp-session-id: 1\r\ncontent-length: ${bytes.length}\r\n\r\n${bytes}`;
}

type Damage = (reply: string, random: Random) => string;

const header =
  (...lines: readonly string[]): Damage =>
  (reply, random) =>
    reply.replace('\r\n', `\r\n${random.pick(lines)}\r\n`);
const status =
  (...lines: readonly string[]): Damage =>
  (reply, random) =>
    reply.replace(/^HTTP\/1\.1 [^\r]*/, `HTTP/1.1 ${random.pick(lines)}`);

/** What is done to the bytes of a reply. */
const DAMAGES: readonly Damage[] = [
  status('400 Bad', '401 No', '403 No', '404 Gone', '405 No', '406 No', '409 No', '429 Later', '500 No'),
  status('503 No', '100 Continue', '101 Switching Protocols', '103 Hints', '199 ?', '201 Made', '204 None'),
  status('205 Reset', '206 Part', '299 ?', '304 Same', '600 ?', '999 ?', '0 ?', '-1 ?', '20 OK', ''),
  (reply) => `HTTP/1.1 103 Early Hints\r\nlink: <x>\r\n\r\n${reply}`,
  (reply) => `HTTP/1.1 100 Continue\r\n\r\n`.repeat(20) + reply,
  (reply) => reply + reply,
  (reply) => reply.replace('HTTP/1.1', 'HTTP/1.0'),
  (reply) => reply.replaceAll('\r\n', '\n'),
  header('content-length: 0', 'content-length: 3', 'content-length: 999999', 'content-length: -1'),
  header('transfer-encoding: chunked', 'transfer-encoding: gzip', 'transfer-encoding: chunked, chunked'),
  header('content-encoding: gzip', 'content-encoding: br', 'content-encoding: x', 'content-encoding: ,'),
  header(
    `content-encoding: ${Array(9).fill('gzip').join(', ')}`,
    'content-encoding: deflate\r\n'.repeat(9).trim(),
  ),
  header('content-type: text/html', 'content-type: \u0000', 'content-type: application/json; charset=x'),
  header(
    'mcp-session-id: ',
    'mcp-session-id: é',
    `mcp-session-id: ${'x'.repeat(9_000)}`,
    'mcp-session-id: 2',
  ),
  header(
    'location: /elsewhere',
    'location: http://127.0.0.1:1/',
    'location: javascript:1',
    'location: http://[',
  ),
  header(
    'connection: close',
    'connection: upgrade\r\nupgrade: h2c',
    'keep-alive: timeout=-1',
    'keep-alive: x',
  ),
  header('retry-after: -1', 'retry-after: x', `x: ${'y'.repeat(17_000)}`, 'no colon', ': no name', 'a b: c'),
  header(
    'set-cookie: a=b',
    'www-authenticate: Bearer resource_metadata="http://127.0.0.1:1/x"',
    'trailer: x',
  ),
  (reply, random) =>
    reply
      .replace(/^HTTP\/1\.1 [^\r]*/, `HTTP/1.1 ${random.pick(['301 M', '302 M', '307 M', '308 M'])}`)
      .replace(
        '\r\n',
        `\r\nlocation: ${random.pick(['/mcp', '/other', 'http://localhost:1/', 'x://y', ''])}\r\n`,
      ),
  (reply, random) => {
    const at = random.int(reply.length);
    return `${reply.slice(0, at)}${String.fromCharCode(random.int(256))}${reply.slice(at + random.int(3))}`;
  },
  (reply) => {
    const body = reply.slice(reply.indexOf('\r\n\r\n') + 4);
    const head = reply.slice(0, reply.indexOf('\r\n\r\n')).replace(/\r\ncontent-length: \d+/, '');
    return `${head}\r\ntransfer-encoding: chunked\r\n\r\n${body.length.toString(16)}\r\n${body}\r\n`;
  },
  (_, random) => String.fromCharCode(...Array.from({ length: random.int(300) }, () => random.int(256))),
  () => '',
];
