/** The clients of the end-to-end tests: pinned to 2026-07-28, of SDK v1 (2025-11-25), and one that posts by hand. */
import {
  Client as ModernClient,
  StreamableHTTPClientTransport as ModernTransport,
} from '@modelcontextprotocol/client';
import { Client as LegacyClient } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport, type SSEClientTransportOptions } from '@modelcontextprotocol/sdk/client/sse.js';
import { StreamableHTTPClientTransport as LegacyTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
  LoggingMessageNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';

type Json = Readonly<Record<string, unknown>>;

/** A type, since an interface has no index signature, and the SDKs want one. */
export type ElicitAnswer = {
  action: 'accept' | 'decline' | 'cancel';
  content?: Record<string, string | number | boolean | string[]>;
};

export interface Script {
  /** Answers an elicitation; by default it fills in every required field. */
  readonly answer?: (params: Json) => ElicitAnswer | Promise<ElicitAnswer>;
}

export interface TestClient {
  /** The asks to its user, in order: messages, `sampling` and `roots`. */
  readonly asked: string[];
  /** What log notifications said. */
  readonly logged: unknown[];
  readonly progressed: number[];
  /** Calls a tool; the texts of its result, joined. */
  tool(name: string, args?: Record<string, unknown>): Promise<string>;
  prompt(name: string): Promise<string>;
  resource(uri: string): Promise<string>;
  toolNames(): Promise<string[]>;
  close(): Promise<void>;
}

/** Streams end in the middle of a call, and their clients come back. */
const STUBBORN = {
  initialReconnectionDelay: 200,
  maxReconnectionDelay: 1_000,
  reconnectionDelayGrowFactor: 1.5,
  maxRetries: 30,
};
const INFO = { name: 'e2e', version: '1.0.0' };
export const CAPABILITIES = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} };
const ROOTS = { roots: [{ uri: 'file:///home/ann', name: 'home' }] };
const SAMPLE = {
  role: 'assistant' as const,
  model: 'test',
  content: { type: 'text' as const, text: 'a poem' },
};

/** Accepts, with `its <field>`, 7, true or the first choice for each required field. */
export function filledIn(params: Json): ElicitAnswer {
  if (params.mode === 'url') return { action: 'accept' };
  const schema = params.requestedSchema as {
    properties: Record<string, { type: string; enum?: string[]; oneOf?: { const: string }[] }>;
    required?: string[];
  };
  const content = (schema.required ?? []).map((field) => {
    const { type, enum: choices, oneOf } = schema.properties[field] ?? { type: 'string' };
    if (type === 'boolean') return [field, true] as const;
    if (type !== 'string') return [field, 7] as const;
    return [field, choices?.[0] ?? oneOf?.[0]?.const ?? `its ${field}`] as const;
  });
  return { action: 'accept', content: Object.fromEntries(content) };
}

function textsOf(result: unknown): string {
  const { content, isError } = result as { content: { type: string; text?: string }[]; isError?: boolean };
  const text = content.map((block) => block.text ?? block.type).join('\n');
  return isError === true ? `error: ${text}` : text;
}

/** The official client of 2026-07-28, pinned to it; or as it meets servers of 2025. */
export function modern(
  url: string,
  script: Script = {},
  mode: 'legacy' | { pin: string } = { pin: '2026-07-28' },
): Promise<TestClient> {
  return modernOver(new ModernTransport(new URL(url), { reconnectionOptions: STUBBORN }), script, mode);
}

/** The same over another transport; `auto` detects the server's revision. */
export async function modernOver(
  transport: Parameters<ModernClient['connect']>[0],
  script: Script = {},
  mode: 'auto' | 'legacy' | { pin: string } = { pin: '2026-07-28' },
): Promise<TestClient> {
  const client = new ModernClient(INFO, { capabilities: CAPABILITIES, versionNegotiation: { mode } });
  const asked: string[] = [];
  const logged: unknown[] = [];
  const progressed: number[] = [];
  client.setRequestHandler('elicitation/create', async ({ params }) => {
    asked.push(params.message);
    return (script.answer ?? filledIn)(params);
  });
  client.setRequestHandler('sampling/createMessage', () => {
    asked.push('sampling');
    return SAMPLE;
  });
  client.setRequestHandler('roots/list', () => {
    asked.push('roots');
    return ROOTS;
  });
  client.setNotificationHandler('notifications/message', ({ params }) => void logged.push(params.data));
  await client.connect(transport);
  // This SDK also reports a progress of its own for each round: one without a total.
  const onprogress = ({ progress, total }: { progress: number; total?: number | undefined }): void => {
    if (total !== undefined) progressed.push(progress);
  };
  return {
    asked,
    logged,
    progressed,
    tool: async (name, args = {}) => {
      const _meta = { 'io.modelcontextprotocol/logLevel': 'debug' as const };
      return textsOf(await client.callTool({ name, arguments: args, _meta }, { onprogress }));
    },
    prompt: async (name) => textOfPrompt(await client.getPrompt({ name })),
    resource: async (uri) => textOfResource(await client.readResource({ uri })),
    toolNames: async () => (await client.listTools()).tools.map(({ name }) => name),
    close: () => client.close(),
  };
}

/** The client of SDK v1, which speaks 2025-11-25, over its own transport or another one. */
export function legacy(
  url: string,
  script: Script = {},
  transport: Transport = new LegacyTransport(new URL(url), { reconnectionOptions: STUBBORN }) as Transport,
): Promise<TestClient> {
  return legacyOver(transport, script);
}

/** The same client over HTTP+SSE, whose stream is at `url`. */
export function oldest(
  url: string,
  script: Script = {},
  options: SSEClientTransportOptions = {},
): Promise<TestClient> {
  return legacyOver(new SSEClientTransport(new URL(url), options), script);
}

export async function legacyOver(transport: Transport, script: Script = {}): Promise<TestClient> {
  const client = new LegacyClient(INFO, { capabilities: CAPABILITIES });
  const asked: string[] = [];
  const logged: unknown[] = [];
  const progressed: number[] = [];
  client.setRequestHandler(ElicitRequestSchema, async ({ params }) => {
    asked.push(params.message);
    return (script.answer ?? filledIn)(params);
  });
  client.setRequestHandler(CreateMessageRequestSchema, () => {
    asked.push('sampling');
    return SAMPLE;
  });
  client.setRequestHandler(ListRootsRequestSchema, () => {
    asked.push('roots');
    return ROOTS;
  });
  client.setNotificationHandler(
    LoggingMessageNotificationSchema,
    ({ params }) => void logged.push(params.data),
  );
  await client.connect(transport);
  const onprogress = ({ progress }: { progress: number }): void => void progressed.push(progress);
  return {
    asked,
    logged,
    progressed,
    tool: async (name, args = {}) =>
      textsOf(await client.callTool({ name, arguments: args }, undefined, { onprogress })),
    prompt: async (name) => textOfPrompt(await client.getPrompt({ name })),
    resource: async (uri) => textOfResource(await client.readResource({ uri })),
    toolNames: async () => (await client.listTools()).tools.map(({ name }) => name),
    close: () => client.close(),
  };
}

function textOfPrompt(result: { messages: { content: unknown }[] }): string {
  return result.messages.map(({ content }) => (content as { text?: string }).text ?? '').join('\n');
}

function textOfResource(result: { contents: unknown[] }): string {
  return result.contents.map((item) => (item as { text?: string }).text ?? '').join('\n');
}

export interface Rpc {
  readonly id?: string | number | null;
  readonly method?: string;
  readonly params?: Json;
  readonly result?: Json & {
    readonly resultType?: string;
    readonly requestState?: string;
    readonly inputRequests?: Readonly<Record<string, { method: string; params?: Json }>>;
    readonly content?: readonly { readonly text?: string }[];
  };
  readonly error?: { readonly code: number; readonly message: string; readonly data?: unknown };
}

export interface RawReply {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** The response, the last message of a stream. */
  readonly message: Rpc;
  readonly notifications: readonly Rpc[];
  /** The keys that were asked for. */
  readonly keys: readonly string[];
  readonly state: string;
}

export interface RawCall {
  readonly method?: string;
  readonly tool?: string;
  readonly args?: unknown;
  readonly state?: unknown;
  readonly responses?: unknown;
  readonly capabilities?: Json;
  readonly id?: string | number;
  readonly progressToken?: string;
  readonly logLevel?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

let ids = 0;

/** One POST of 2026-07-28, by hand. */
export async function post(url: string, call: RawCall): Promise<RawReply> {
  const { method = 'tools/call', tool = '', args = {}, state, responses, capabilities = CAPABILITIES } = call;
  ids += 1;
  const params = {
    name: tool,
    arguments: args,
    ...(state !== undefined && { requestState: state }),
    ...(responses !== undefined && { inputResponses: responses }),
    _meta: {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientInfo': INFO,
      'io.modelcontextprotocol/clientCapabilities': capabilities,
      ...(call.logLevel !== undefined && { 'io.modelcontextprotocol/logLevel': call.logLevel }),
      ...(call.progressToken !== undefined && { progressToken: call.progressToken }),
    },
  };
  return send(url, JSON.stringify({ jsonrpc: '2.0', id: call.id ?? ids, method, params }), {
    headers: { ...modernHeaders(method, tool), ...call.headers },
    ...(call.signal !== undefined && { signal: call.signal }),
  });
}

export function modernHeaders(method: string, name: string): Record<string, string> {
  return { 'mcp-protocol-version': '2026-07-28', 'mcp-method': method, 'mcp-name': name };
}

/** A body as it is. */
export async function send(
  url: string,
  body: string,
  options: { headers?: Readonly<Record<string, string>>; signal?: AbortSignal } = {},
): Promise<RawReply> {
  const response = await fetch(url, {
    method: 'POST',
    body,
    headers: {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      ...options.headers,
    },
    ...(options.signal !== undefined && { signal: options.signal }),
  });
  const text = await response.text();
  const messages = messagesIn(text);
  const message = messages.at(-1) ?? {};
  return {
    status: response.status,
    headers: response.headers,
    text,
    message,
    notifications: messages.filter(({ id, method }) => id === undefined && method !== undefined),
    keys: Object.keys(message.result?.inputRequests ?? {}),
    state: message.result?.requestState ?? '',
  };
}

/** The messages of a JSON body, or of a stream. */
export function messagesIn(text: string): Rpc[] {
  if (text.startsWith('{')) return [JSON.parse(text) as Rpc];
  return text
    .split('\n')
    .filter((line) => line.startsWith('data: {'))
    .map((line) => JSON.parse(line.slice('data: '.length)) as Rpc);
}

/** An accepted elicitation for each of the keys. */
export function accept(keys: readonly string[], content: Json): Record<string, unknown> {
  return Object.fromEntries(keys.map((key) => [key, { action: 'accept', content }]));
}

export function textOf(reply: RawReply): string {
  return (reply.message.result?.content ?? []).map(({ text }) => text ?? '').join('\n');
}
