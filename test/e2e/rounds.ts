/** A raw client of the two drafts of multi round-trip requests: each says the same in its own words. */
import { expect } from 'vitest';
import type { AwaitOptions } from '../../src/index.ts';
import { type RoundsOptions, roundsServer } from '../fixtures/rounds-server.ts';
import { CAPABILITIES, messagesIn } from './clients.ts';
import { type Cell, optionsOf, type Served, serveHere } from './harness.ts';

export type Json = Readonly<Record<string, unknown>>;

export const RELATED = 'io.modelcontextprotocol/related-task';

export interface Said {
  readonly status: number;
  /** `application/json`, `text/event-stream`, or nothing. */
  readonly type: string;
  readonly text: string;
  /** The response, the last message of a stream. */
  readonly message: Json;
  readonly notifications: readonly Json[];
}

export interface Words {
  readonly revision: string;
  /** A request with answers and state. */
  retry(request: Json, state?: unknown, answers?: unknown): Json;
  /** Answers as this draft has them: results by key. */
  answers(results: Json): Json;
  asked(message: Json): Json;
  state(message: Json): unknown;
  /** What tells a task's answers to the server. */
  taskAnswer(id: number, taskId: string, answers: unknown): Json;
  /** As this draft spells a status of 2025-11-25. */
  status(status: string): string;
}

const objectOf = (value: unknown): Json =>
  typeof value === 'object' && value !== null ? (value as Json) : {};

export const FIRST: Words = {
  revision: 'DRAFT-MRTR-2026-02',
  retry: (request, state, answers) => ({
    ...request,
    ...(answers !== undefined && { input_responses: answers }),
    ...(state !== undefined && { request_state: state }),
  }),
  answers: (results) => Object.fromEntries(Object.entries(results).map(([key, result]) => [key, { result }])),
  asked: (message) => objectOf(message.input_requests),
  state: (message) => message.request_state,
  taskAnswer: (id, taskId, answers) => ({
    jsonrpc: '2.0',
    id,
    input_responses: answers,
    _meta: { [RELATED]: { taskId } },
  }),
  status: (status) =>
    status === 'input_required' ? status : `${status[0]?.toUpperCase()}${status.slice(1)}`,
};

export const APPROVED: Words = {
  revision: 'DRAFT-SEP-2322',
  retry: (request, state, answers) => ({
    ...request,
    params: {
      ...objectOf(request.params),
      ...(answers !== undefined && { inputResponses: answers }),
      ...(state !== undefined && { requestState: state }),
    },
  }),
  answers: (results) => results,
  asked: (message) => objectOf(objectOf(message.result).inputRequests),
  state: (message) => objectOf(message.result).requestState,
  taskAnswer: (id, taskId, answers) => ({
    jsonrpc: '2.0',
    id,
    method: 'tasks/input_response',
    params: { inputResponses: answers, _meta: { [RELATED]: { taskId } } },
  }),
  status: (status) => status,
};

export const DRAFTS = [FIRST, APPROVED];

export interface RawSession {
  readonly begun: Said;
  readonly headers: Readonly<Record<string, string>>;
  /** @param to the index of the server */
  post(message: unknown, to?: number, headers?: Readonly<Record<string, string>>): Promise<Said>;
}

/** A session of a draft over one server, or several of which each request names its own. */
export async function openSession(
  urls: string | readonly string[],
  revision: string,
  { capabilities = CAPABILITIES, bearer }: { capabilities?: Json; bearer?: string } = {},
): Promise<RawSession> {
  const urlOf = (to: number): string => (typeof urls === 'string' ? urls : (urls[to % urls.length] ?? ''));
  const base = {
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    ...(bearer !== undefined && { authorization: `Bearer ${bearer}` }),
  };
  const post = async (body: unknown, to: number, headers: Readonly<Record<string, string>>): Promise<Said> =>
    said(await fetch(urlOf(to), { method: 'POST', headers, body: JSON.stringify(body) }));
  const params = { protocolVersion: revision, capabilities, clientInfo: { name: 'raw', version: '1' } };
  const first = await fetch(urlOf(0), {
    method: 'POST',
    headers: base,
    body: JSON.stringify({ jsonrpc: '2.0', id: 'begin', method: 'initialize', params }),
  });
  const session = first.headers.get('mcp-session-id') ?? '';
  const headers = { ...base, 'mcp-session-id': session, 'mcp-protocol-version': revision };
  return {
    begun: await said(first),
    headers,
    post: (message, to = 0, others = {}) => post(message, to, { ...headers, ...others }),
  };
}

async function said(response: Response): Promise<Said> {
  const text = await response.text();
  const messages = messagesIn(text) as unknown as Json[];
  return {
    status: response.status,
    type: (response.headers.get('content-type') ?? '').split(';')[0] ?? '',
    text,
    message: messages.at(-1) ?? {},
    notifications: messages.filter(({ id, method }) => id === undefined && method !== undefined),
  };
}

let ids = 100;

/** A request with an id of its own. */
export function request(method: string, params: Json = {}): Json {
  ids += 1;
  return { jsonrpc: '2.0', id: ids, method, params };
}

export function call(name: string, more: Json = {}): Json {
  return request('tools/call', { name, arguments: {}, ...more });
}

/** The same request under an id of its own. */
export function again(message: Json): Json {
  ids += 1;
  return { ...message, id: ids };
}

export function accepted(content: Json): Json {
  return { action: 'accept', content };
}

export function textIn({ message }: Said): string {
  const { content } = objectOf(message.result);
  return (Array.isArray(content) ? content : []).map(({ text }) => String(text)).join('\n');
}

export function errorIn({ message }: Said): Json {
  return objectOf(message.error);
}

export function resultIn({ message }: Said): Json {
  return objectOf(message.result);
}

/** Asks for a task until it is as wanted. */
export async function until(session: RawSession, taskId: string, status: string, to = 0): Promise<Json> {
  let task: Json = {};
  await expect
    .poll(async () => {
      task = resultIn(await session.post(request('tasks/get', { taskId }), to));
      return task.status;
    })
    .toBe(status);
  return task;
}

/** The examples' server in this process. Tasks that wait when it is closed are not waited for. */
export function serveRounds(
  cell: Cell,
  options: AwaitOptions = {},
  rounds: RoundsOptions = {},
): Promise<Served> {
  const base = optionsOf(cell);
  const limits = { drain: 50, ...base.limits, ...options.limits };
  return serveHere(() => roundsServer(rounds), { ...base, ...options, limits });
}
