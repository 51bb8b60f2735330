/** A server whose bytes are written by hand, and SDK v1's own client before it. */
import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  type ElicitResult,
  type JSONRPCMessage,
} from '@modelcontextprotocol/sdk/types.js';
import { afterEach } from 'vitest';
import { type AwaitClientOptions, AwaitClientTransport } from '../../src/client/index.ts';
import { listen, shut } from '../e2e/harness.ts';

export const DRAFT = 'DRAFT-SEP-1858';
export const RESULT = { content: [{ type: 'text', text: 'done' }] };

interface Body {
  readonly id?: string | number;
  readonly method?: string;
  readonly params?: Readonly<Record<string, unknown>> & { readonly protocolVersion?: string };
  readonly result?: { readonly content?: unknown; readonly action?: string };
  readonly error?: { readonly code: number; readonly message: string };
  /** The first draft's own. */
  readonly input_responses?: unknown;
  readonly request_state?: unknown;
}

/** One request as it came in. */
export interface Seen {
  readonly verb: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: Body;
  /** The members of a body that is an array. */
  readonly batch: readonly Body[] | undefined;
  /** The ordinal of the connection it came on. */
  readonly socket: number;
  readonly at: number;
}

export interface Reply {
  readonly res: ServerResponse;
  json(value: unknown, status?: number, headers?: Record<string, string>): void;
  /** Begins a stream, or goes on with it. */
  write(...parts: (string | Uint8Array)[]): Reply;
  end(): void;
  /** Breaks the connection. */
  cut(): void;
}

/** Whether it has replied; other requests get the default reply. */
export type Route = (seen: Seen, reply: Reply) => boolean | undefined;

export interface Scripted {
  readonly url: string;
  readonly seen: Seen[];
  readonly sockets: () => number;
  /** The requests other than initialization and the standing stream. */
  turns(): Seen[];
  close(): Promise<void>;
}

export async function scripted(route: Route, version: string = DRAFT): Promise<Scripted> {
  const seen: Seen[] = [];
  const sockets = new Map<unknown, number>();
  const server = createServer(async (req, res) => {
    let text = '';
    for await (const chunk of req) text += String(chunk);
    const parsed: unknown = text === '' ? {} : JSON.parse(text);
    const one: Seen = {
      verb: req.method ?? '',
      headers: req.headers,
      body: Array.isArray(parsed) ? {} : (parsed as Body),
      batch: Array.isArray(parsed) ? (parsed as Body[]) : undefined,
      socket: sockets.get(req.socket) ?? -1,
      at: performance.now(),
    };
    seen.push(one);
    const reply = replyOf(res);
    if (route(one, reply) !== true) ordinary(one, reply, version);
  });
  server.on('connection', (socket) => sockets.set(socket, sockets.size));
  const url = `${await listen(server)}/mcp`;
  const turns = (): Seen[] =>
    seen.filter(
      ({ verb, headers, body }) =>
        !(verb === 'GET' && headers['last-event-id'] === undefined) &&
        !['initialize', 'notifications/initialized'].includes(body.method ?? ''),
    );
  return { url, seen, sockets: () => sockets.size, turns, close: () => shut(server) };
}

function replyOf(res: ServerResponse): Reply {
  const reply: Reply = {
    res,
    json: (value, status = 200, headers = {}) => {
      res.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(value));
    },
    write: (...parts) => {
      if (!res.headersSent) res.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' });
      res.flushHeaders();
      for (const part of parts) res.write(part);
      return reply;
    },
    end: () => void res.end(),
    cut: () => void setTimeout(() => res.destroy(), 20),
  };
  return reply;
}

function ordinary({ verb, body, batch }: Seen, reply: Reply, version: string): void {
  if (verb === 'GET') reply.res.writeHead(405).end();
  else if (body.method === 'initialize') {
    const result = {
      protocolVersion: version,
      capabilities: { tools: {} },
      serverInfo: { name: 'scripted', version: '1.0.0' },
    };
    reply.json({ jsonrpc: '2.0', id: body.id, result }, 200, { 'mcp-session-id': 'session-1' });
  } else if (batch === undefined && body.id !== undefined && body.method !== undefined) reply.json(null, 500);
  else reply.res.writeHead(verb === 'DELETE' ? 200 : 202).end();
}

/** Every route, until one has answered. */
export function routes(...all: Route[]): Route {
  return (seen, reply) => all.some((route) => route(seen, reply) === true);
}

/** Answers a call of the named tool, or of any. */
export function onCall(answer: (seen: Seen, reply: Reply) => void, tool?: string): Route {
  return (seen, reply) => {
    if (seen.body.method !== 'tools/call') return false;
    if (tool !== undefined && seen.body.params?.name !== tool) return false;
    answer(seen, reply);
    return true;
  };
}

/** Answers the array of a turn, by the id of its `input_required`. */
export function onTurn(lastEventId: string, answer: (seen: Seen, reply: Reply) => void): Route {
  return (seen, reply) => {
    if (seen.batch === undefined || seen.headers['last-event-id'] !== lastEventId) return false;
    answer(seen, reply);
    return true;
  };
}

/** Answers a GET that goes on with a stream. */
export function onResume(lastEventId: string, answer: (seen: Seen, reply: Reply) => void): Route {
  return (seen, reply) => {
    if (seen.verb !== 'GET' || seen.headers['last-event-id'] !== lastEventId) return false;
    answer(seen, reply);
    return true;
  };
}

export type Form = 'without data' | 'with empty data';
export const FORMS: readonly Form[] = ['without data', 'with empty data'];

export function bare(
  event: 'buffer_input' | 'input_required',
  id?: string,
  form: Form = 'without data',
): string {
  const named = id === undefined ? '' : `id: ${id}\n`;
  return `event: ${event}\n${named}${form === 'without data' ? '' : 'data:\n'}\n`;
}

export function message(value: unknown, id?: string): string {
  return `${id === undefined ? '' : `id: ${id}\n`}event: message\ndata: ${JSON.stringify(value)}\n\n`;
}

export function result(id: string | number | undefined, text = 'done'): unknown {
  return { jsonrpc: '2.0', id, result: { content: [{ type: 'text', text }] } };
}

export function ask(id: string | number, question: string): unknown {
  const requestedSchema = { type: 'object', properties: { name: { type: 'string' } } };
  const params = { message: question, requestedSchema };
  return { jsonrpc: '2.0', id, method: 'elicitation/create', params };
}

export function sampling(id: string | number): unknown {
  const params = { messages: [], maxTokens: 10 };
  return { jsonrpc: '2.0', id, method: 'sampling/createMessage', params };
}

export function asking(question: string, form: Form = 'without data', ids = [2, 3, 4]): string {
  const [buffer, at, required] = ids.map(String);
  return (
    bare('buffer_input', buffer, form) +
    message(ask('ask-1', question), at) +
    bare('input_required', required, form)
  );
}

export interface Connected {
  readonly client: Client;
  readonly transport: AwaitClientTransport;
  readonly asked: string[];
  readonly errors: Error[];
  /** What the transport gave to the client. */
  readonly messages: JSONRPCMessage[];
  call(tool?: string, options?: Parameters<Client['callTool']>[2]): Promise<unknown>;
}

export type Answering = (
  question: string,
  extra: { readonly signal: AbortSignal; readonly requestId: string | number },
) => ElicitResult | Promise<ElicitResult>;

export const QUICK = { initialReconnectionDelay: 10, maxReconnectionDelay: 50 };

export async function connect(
  url: string,
  answering: Answering = (question) => ({ action: 'accept', content: { name: `to ${question}` } }),
  options: Partial<AwaitClientOptions> = {},
): Promise<Connected> {
  const transport = new AwaitClientTransport(url, {
    revision: DRAFT,
    reconnectionOptions: QUICK,
    ...options,
  });
  const asked: string[] = [];
  const errors: Error[] = [];
  const messages: JSONRPCMessage[] = [];
  const client = new Client(
    { name: 'test', version: '1.0.0' },
    { capabilities: { elicitation: {}, sampling: {} } },
  );
  client.setRequestHandler(ElicitRequestSchema, (request, { signal, requestId }) => {
    asked.push(request.params.message);
    return answering(request.params.message, { signal, requestId });
  });
  client.setRequestHandler(CreateMessageRequestSchema, () => ({
    role: 'assistant',
    model: 'test',
    content: { type: 'text', text: 'a poem' },
  }));
  client.onerror = (error) => void errors.push(error);
  transport.onmessage = (received) => void messages.push(received);
  await client.connect(transport);
  const call: Connected['call'] = (name = 'ask', more = {}) =>
    client.callTool({ name, arguments: {} }, undefined, more);
  return { client, transport, asked, errors, messages, call };
}

const open: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of open.splice(0)) await one.close();
});

/** Closes it after the test, before everything opened earlier. */
export function closing<T extends { close(): Promise<void> }>(one: T): T {
  open.unshift(one);
  return one;
}

/** A server of the draft that lives as long as the test. */
export async function serve(...all: Route[]): Promise<Scripted> {
  return closing(await scripted(routes(...all)));
}

/** The same, of another version. */
export async function serveVersion(version: string, ...all: Route[]): Promise<Scripted> {
  return closing(await scripted(routes(...all), version));
}

export async function connected(...args: Parameters<typeof connect>): Promise<Connected> {
  const one = await connect(...args);
  closing(one.client);
  return one;
}

export async function until(condition: () => boolean): Promise<void> {
  for (const end = Date.now() + 5_000; !condition(); ) {
    if (Date.now() > end) throw new Error(`waited in vain for ${condition}`);
    await sleep(5);
  }
}

export function sleep(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
