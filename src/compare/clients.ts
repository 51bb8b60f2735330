/** Which client speaks which revision: the official ones where they do, ours elsewhere. */
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { createParser, type EventSourceMessage } from 'eventsource-parser';
import type { Revision } from '../../compat/revisions.ts';
import { mediaType } from '../base/bounded-response.ts';
import { importPeer } from '../base/peer.ts';
import { isObject, type JsonObject, objectOf, optionError, sleep, systemClock } from '../base/values.ts';
import { readEvents } from '../client/event-stream.ts';
import { AwaitClientTransport, type ClientRevision } from '../client/index.ts';
import type { OnAsk, PlayedCaller, Player } from './player.ts';

/** A client of `workspace-sse`, which has no official one: a POST, the events on its body, a POST for each answer. */

/** How often a broken body is resumed, and the pause before it in milliseconds. */
const RETRIES = 100;
const PAUSE = 100;

async function openWorkspace(origin: string, who: PlayedCaller, onAsk: OnAsk): Promise<Player> {
  const url = new URL('/mcp/side-by-side', origin);
  const ended = new AbortController();
  let ids = 0;
  const send = (method: 'GET' | 'POST', signal: AbortSignal, more: RequestInit & { headers?: object } = {}) =>
    fetch(url, {
      ...more,
      method,
      signal,
      headers: {
        ...headersOf(who),
        'user-agent': who.name,
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        ...more.headers,
      },
    });
  const post = (message: JsonObject, signal: AbortSignal): Promise<Response> =>
    send('POST', signal, { body: JSON.stringify({ jsonrpc: '2.0', ...message }) });

  const request = async (method: string, params: JsonObject, timeout: number): Promise<JsonObject> => {
    ids += 1;
    const id = `request-${ids}`;
    const signal = AbortSignal.any([ended.signal, AbortSignal.timeout(timeout)]);
    const answered = new Set<unknown>();
    let outcome: JsonObject | undefined;
    let lastEventId: string | undefined;
    const take = (message: unknown): void => {
      if (!isObject(message)) return;
      if (message.id === id && message.method === undefined) outcome = message;
      else if (message.id !== undefined && !answered.has(message.id)) {
        answered.add(message.id);
        const asked = onAsk(String(message.method), objectOf(message.params));
        // An answer that cannot be sent leaves its ask open, and the request to its time-out.
        void asked.then((result) => post({ id: message.id, result }, signal)).catch(() => {});
      }
    };
    const onEvent = (event: EventSourceMessage): void => {
      lastEventId = event.id ?? lastEventId;
      if (event.event !== 'lifecycle' && event.data !== '') take(JSON.parse(event.data));
    };
    let response = await post({ id, method, params }, signal);
    for (let retries = 0; ; retries += 1) {
      await readBody(response, onEvent, take).catch(() => {});
      signal.throwIfAborted();
      if (isObject(outcome?.result)) return outcome.result;
      if (outcome !== undefined) {
        const { code, message, data } = objectOf(outcome.error);
        throw Object.assign(new Error(String(message)), { code, data });
      }
      if (lastEventId === undefined || retries === RETRIES)
        throw new Error('the stream ended without a response');
      await sleep(systemClock, PAUSE);
      const headers = { accept: 'text/event-stream', 'last-event-id': lastEventId };
      response = await send('GET', signal, { headers }).catch(() => response);
    }
  };
  return { request, close: async () => ended.abort() };
}

async function readBody(
  response: Response,
  onEvent: (event: EventSourceMessage) => void,
  onMessage: (message: unknown) => void,
): Promise<void> {
  if (mediaType(response) !== 'text/event-stream' || response.body === null)
    return onMessage(await response.json());
  for await (const event of readEvents(response.body, () => {})) onEvent(event);
}

// --- clients of all revisions ---

/** @param origin of the server, without a path */
type OpenClient = (origin: string, who: PlayedCaller, onAsk: OnAsk) => Promise<Player>;

interface Speaker {
  /** As the report names it. */
  readonly client: string;
  readonly open: OpenClient;
}

const SDK = '@modelcontextprotocol/sdk';
const OURS: Speaker['client'] = 'mcp-await/client';

const SPEAKERS: Readonly<Record<Revision, Speaker>> = {
  '2024-11-05': { client: '@modelcontextprotocol/sdk, SSEClientTransport', open: overSse },
  '2025-03-26': { client: '@modelcontextprotocol/sdk', open: overHttp },
  '2025-06-18': { client: '@modelcontextprotocol/sdk', open: overHttp },
  '2025-11-25': { client: '@modelcontextprotocol/sdk', open: overHttp },
  'DRAFT-SEP-1858': { client: OURS, open: drafted('DRAFT-SEP-1858') },
  'DRAFT-MRTR-2026-02': { client: OURS, open: drafted('DRAFT-MRTR-2026-02') },
  'DRAFT-SEP-2322': { client: OURS, open: drafted('DRAFT-SEP-2322') },
  '2026-07-28': { client: '@modelcontextprotocol/client', open: modern },
  'workspace-sse': { client: 'a client by hand', open: openWorkspace },
};

export function speakerOf(revision: Revision): Speaker {
  return SPEAKERS[revision];
}

/** Processes end and start during a call: a broken stream is reopened at once, for half a minute. */
const RECONNECTION = {
  initialReconnectionDelay: 50,
  maxReconnectionDelay: 500,
  reconnectionDelayGrowFactor: 1.5,
  maxRetries: 80,
};

async function overSse(origin: string, who: PlayedCaller, onAsk: OnAsk): Promise<Player> {
  const { SSEClientTransport } = await importPeer(
    SDK,
    () => import('@modelcontextprotocol/sdk/client/sse.js'),
  );
  const headers = headersOf(who);
  return legacy(
    new SSEClientTransport(new URL('/sse', origin), { fetch: resuming(headers), requestInit: { headers } }),
    who,
    onAsk,
  );
}

/**
 * SDK v1 (1.32) replaces the headers of its EventSource, and `Last-Event-ID` with them, so that its client loses its
 * session with its stream: this puts it back.
 */
function resuming(more: Readonly<Record<string, string>>): typeof fetch {
  let lastEventId: string | undefined;
  return async (input, init) => {
    const headers = new Headers({ ...Object.fromEntries(new Headers(init?.headers)), ...more });
    const isStream = init?.method !== 'POST';
    if (isStream && lastEventId !== undefined) headers.set('last-event-id', lastEventId);
    const response = await fetch(input, { ...init, headers });
    if (!isStream || response.body === null) return response;
    const parser = createParser({
      onEvent: ({ id }) => {
        lastEventId = id ?? lastEventId;
      },
    });
    const decoder = new TextDecoder();
    const watched = new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller) {
        parser.feed(decoder.decode(chunk, { stream: true }));
        controller.enqueue(chunk);
      },
    });
    return new Response(response.body.pipeThrough(watched), response);
  };
}

async function overHttp(origin: string, who: PlayedCaller, onAsk: OnAsk): Promise<Player> {
  const { StreamableHTTPClientTransport } = await importPeer(
    SDK,
    () => import('@modelcontextprotocol/sdk/client/streamableHttp.js'),
  );
  let isClosed = false;
  const options = {
    reconnectionOptions: RECONNECTION,
    requestInit: { headers: headersOf(who) },
    // SDK v1 (1.32) keeps reopening a broken stream after its client is closed: 405 ends that.
    fetch: async (url: string | URL, init?: RequestInit): Promise<Response> =>
      isClosed ? new Response(null, { status: 405 }) : fetch(url, init),
  };
  const transport = new StreamableHTTPClientTransport(new URL('/mcp', origin), options);
  const player = await legacy(transport as Transport, who, onAsk);
  const close = (): Promise<void> => {
    isClosed = true;
    return player.close();
  };
  return { ...player, close };
}

function drafted(revision: ClientRevision): OpenClient {
  return (origin, who, onAsk) => {
    const options = { revision, reconnectionOptions: RECONNECTION, headers: headersOf(who), maxRounds: 50 };
    return legacy(new AwaitClientTransport(new URL('/mcp', origin), options) as Transport, who, onAsk);
  };
}

async function legacy(
  transport: Transport,
  { name, capabilities }: PlayedCaller,
  onAsk: OnAsk,
): Promise<Player> {
  const [{ Client }, types] = await importPeer(SDK, () =>
    Promise.all([
      import('@modelcontextprotocol/sdk/client/index.js'),
      import('@modelcontextprotocol/sdk/types.js'),
    ]),
  );
  const client = new Client({ name, version: '1.0.0' }, { capabilities });
  const { elicitation, sampling, roots } = capabilities;
  const asked = ({ method, params }: { method: string; params?: unknown }): Promise<JsonObject> =>
    onAsk(method, objectOf(params));
  const handlers = [
    [elicitation, types.ElicitRequestSchema, types.ElicitResultSchema],
    [sampling, types.CreateMessageRequestSchema, types.CreateMessageResultSchema],
    [roots, types.ListRootsRequestSchema, types.ListRootsResultSchema],
  ] as const;
  for (const [capability, request, result] of handlers)
    if (capability !== undefined)
      client.setRequestHandler(request, async (ask) => result.parse(await asked(ask)));
  await client.connect(transport);
  return {
    request: (method, params, timeout) => client.request({ method, params }, types.ResultSchema, { timeout }),
    close: () => client.close(),
  };
}

async function modern(
  origin: string,
  { name, capabilities, ...who }: PlayedCaller,
  onAsk: OnAsk,
): Promise<Player> {
  const sdk = await importPeer('@modelcontextprotocol/client', () => import('@modelcontextprotocol/client'));
  const client = new sdk.Client(
    { name, version: '1.0.0' },
    {
      capabilities,
      versionNegotiation: { mode: { pin: '2026-07-28' } },
      inputRequired: { maxRounds: 50 },
      listMaxPages: 100,
    },
  );
  const { elicitation, sampling, roots } = capabilities;
  const asked = ({ method, params }: { method: string; params?: unknown }): Promise<JsonObject> =>
    onAsk(method, objectOf(params));
  const { specTypeSchemas: schemas } = sdk;
  const results = {
    'elicitation/create': elicitation && schemas.ElicitResult,
    'sampling/createMessage': sampling && schemas.CreateMessageResult,
    'roots/list': roots && schemas.ListRootsResult,
  };
  for (const [method, schema] of Object.entries(results))
    if (schema !== undefined)
      client.setRequestHandler(method as 'roots/list', async (ask) =>
        checked(schema as typeof schemas.ListRootsResult, await asked(ask)),
      );
  const options = { requestInit: { headers: headersOf({ name, capabilities, ...who }) } };
  await client.connect(new sdk.StreamableHTTPClientTransport(new URL('/mcp', origin), options));
  const send = (method: string, params: JsonObject, timeout: number): Promise<JsonObject> => {
    const patience = { timeout };
    if (method === 'tools/list') return client.listTools({}, patience);
    // It checks what the tool declares.
    if (method === 'tools/call') return client.callTool(params as { name: string }, patience);
    return client.request({ method: method as 'prompts/get', params: params as { name: string } }, patience);
  };
  return { request: send, close: () => client.close() };
}

/** Checks a handler's result with the SDK's own schema. */
async function checked<T>(
  schema: { '~standard': { validate(value: unknown): unknown } },
  value: JsonObject,
): Promise<T> {
  const verdict = await schema['~standard'].validate(value);
  if (isObject(verdict) && 'value' in verdict) return verdict.value as T;
  throw optionError(`the scenario's answer is not a result: ${JSON.stringify(value)}`);
}

function headersOf({ token }: PlayedCaller): Record<string, string> {
  return token === undefined ? {} : { authorization: `Bearer ${token}` };
}
