/** A client that shows the wire: it posts by hand, and answers asks while it waits. */

export type Json = Readonly<Record<string, unknown>>;
export type Fetch = (request: Request) => Promise<Response>;

const URL_OF = 'http://mirror.test/mcp';
const ROOT = { uri: 'file:///home/ann', name: 'home' };
const ELICITED = { action: 'accept', content: { name: 'Ann' } };
const SAMPLED = { role: 'assistant', model: 'test', content: { type: 'text', text: 'a poem' } };

export const INFO = { name: 'differential', version: '1.0.0' };
export const CAPABILITIES = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} };

/** What one request came to. */
export interface Told {
  readonly status: number;
  /** Notifications, in their order. */
  readonly said: readonly Json[];
  /** Asks that came while the request was in work. */
  readonly asked: readonly Json[];
  /** Its response. */
  readonly response: Json | undefined;
}

export interface Talk {
  request(method: string, params?: Json, headers?: Readonly<Record<string, string>>): Promise<Told>;
  notify(method: string, params?: Json): Promise<number>;
  /** Answers an ask. @returns the status */
  respond?(id: unknown, result: Json): Promise<number>;
  /** The session's standing stream, where there is one. */
  listen?(): Promise<Response>;
}

export interface How {
  readonly capabilities?: Json;
  readonly info?: Json;
  /** The least severe log messages it wants, where each request says so. */
  readonly logLevel?: string;
  /** Whether it answers no asks. */
  readonly silent?: boolean;
}

export function answerTo({ method, params }: Json): Json {
  if (method === 'roots/list') return { roots: [ROOT] };
  if (method === 'sampling/createMessage') return SAMPLED;
  return (params as Json | undefined)?.mode === 'url' ? { action: 'accept' } : ELICITED;
}

/** A client of 2026-07-28, which sends each round itself: `request` is one round. */
export function modernTalk(
  fetch: Fetch,
  { capabilities = CAPABILITIES, info = INFO, logLevel }: How = {},
): Talk {
  let id = 0;
  return {
    async request(method, params = {}, headers = {}) {
      id += 1;
      const meta = {
        'io.modelcontextprotocol/protocolVersion': '2026-07-28',
        'io.modelcontextprotocol/clientCapabilities': capabilities,
        'io.modelcontextprotocol/clientInfo': info,
        ...(logLevel !== undefined && { 'io.modelcontextprotocol/logLevel': logLevel }),
        ...(params._meta as Json | undefined),
      };
      const name = params.name ?? params.uri;
      const named = typeof name === 'string' ? { 'mcp-name': name } : {};
      const body = { jsonrpc: '2.0', id, method, params: { ...params, _meta: meta } };
      const reply = await fetch(
        requestOf(body, { 'mcp-protocol-version': '2026-07-28', 'mcp-method': method, ...named, ...headers }),
      );
      return read(reply, id, async () => {});
    },
    notify: async () => 405,
  };
}

/** Rounds until the outcome, each with the answers to all that was asked. */
export async function allRounds(
  talk: Talk,
  method: string,
  params: Json,
): Promise<{ readonly rounds: Json[]; readonly told: Told }> {
  const rounds: Json[] = [];
  let retry: Json = {};
  for (let round = 0; round < 12; round += 1) {
    const told = await talk.request(method, { ...params, ...retry });
    const result = told.response?.result as Json | undefined;
    if (result?.resultType !== 'input_required') return { rounds, told };
    const asks = Object.entries((result.inputRequests ?? {}) as Record<string, Json>);
    rounds.push(Object.fromEntries(asks));
    retry = {
      ...(result.requestState !== undefined && { requestState: result.requestState }),
      ...(asks.length > 0 && {
        inputResponses: Object.fromEntries(asks.map(([key, ask]) => [key, answerTo(ask)])),
      }),
    };
  }
  throw new Error('more than twelve rounds');
}

/** A client with a session, which answers on the way. */
export async function sessionTalk(
  fetch: Fetch,
  revision: string,
  { capabilities = CAPABILITIES, info = INFO, silent = false }: How = {},
): Promise<Talk> {
  let id = 0;
  const begun = await fetch(
    requestOf({
      jsonrpc: '2.0',
      id,
      method: 'initialize',
      params: { protocolVersion: revision, capabilities, clientInfo: info },
    }),
  );
  const session = {
    'mcp-session-id': begun.headers.get('mcp-session-id') ?? '',
    'mcp-protocol-version': revision,
  };
  await begun.text();
  const notify = async (method: string, params?: Json): Promise<number> => {
    const message = { jsonrpc: '2.0', method, ...(params !== undefined && { params }) };
    const { status } = await fetch(requestOf(message, session));
    return status;
  };
  await notify('notifications/initialized');
  const respond = async (askId: unknown, result: Json): Promise<number> => {
    const { status } = await fetch(requestOf({ jsonrpc: '2.0', id: askId, result }, session));
    return status;
  };
  /** A client reports twice on an ask whose server listens. */
  const report = async ({ params }: Json): Promise<void> => {
    const { progressToken } = ((params as Json | undefined)?._meta ?? {}) as Json;
    if (progressToken === undefined) return;
    await notify('notifications/progress', { progressToken, progress: 1, total: 2, message: 'half' });
    await notify('notifications/progress', { progressToken, progress: 2, total: 2 });
  };
  return {
    notify,
    respond,
    listen: () => fetch(new Request(URL_OF, { headers: { ...session, accept: 'text/event-stream' } })),
    async request(method, params = {}, headers = {}) {
      id += 1;
      const reply = await fetch(
        requestOf({ jsonrpc: '2.0', id, method, params }, { ...session, ...headers }),
      );
      return read(reply, id, async (ask) => {
        await report(ask);
        if (!silent) await respond(ask.id, answerTo(ask));
      });
    },
  };
}

function requestOf(body: Json, headers: Readonly<Record<string, string>> = {}): Request {
  return new Request(URL_OF, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'x-tenant': 'acme',
      ...headers,
    },
    body: JSON.stringify(body),
  });
}

async function read(reply: Response, id: number, answer: (ask: Json) => Promise<void>): Promise<Told> {
  const said: Json[] = [];
  const asked: Json[] = [];
  let response: Json | undefined;
  const take = async (message: Json): Promise<void> => {
    if (message.method === undefined) {
      if (message.id === id || message.id === null) response = message;
    } else if (message.id === undefined) said.push(message);
    else {
      asked.push(message);
      await answer(message);
    }
  };
  if (reply.headers.get('content-type')?.startsWith('text/event-stream')) {
    for await (const message of messagesOf(reply)) {
      await take(message);
      if (response !== undefined) break;
    }
  } else {
    const text = await reply.text();
    if (text !== '') await take(JSON.parse(text) as Json);
  }
  return { status: reply.status, said, asked, response };
}

async function* messagesOf(reply: Response): AsyncGenerator<Json> {
  const decoder = new TextDecoder();
  let text = '';
  for await (const chunk of reply.body ?? []) {
    text += decoder.decode(chunk, { stream: true });
    const blocks = text.split('\n\n');
    text = blocks.pop() ?? '';
    for (const block of blocks) {
      const data = block
        .split('\n')
        .filter((line) => line.startsWith('data:'))
        .map((line) => line.slice(5).trimStart())
        .join('\n');
      if (data !== '') yield JSON.parse(data) as Json;
    }
  }
}
