/** A server whose calls are counted, and clients that make them, over HTTP or without it. */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { speakerOf } from '../../src/compare/clients.ts';
import { type AwaitHandler, type Revision, step } from '../../src/index.ts';
import { answer } from '../e2e/anywhere.ts';
import { messagesIn, type Rpc } from '../e2e/clients.ts';
import { DRAFTS, type Words } from '../e2e/rounds.ts';

const MODERN = '2026-07-28';
const ELICIT = 'elicitation/create';
const HEADERS = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };

/** What a call does: nothing that is recorded, one step, one ask. */
export type What = 'plain' | 'step' | 'ask';

export function build(): McpServer {
  const server = new McpServer({ name: 'counted', version: '1' });
  const text = (said: string) => ({ content: [{ type: 'text' as const, text: said }] });
  server.registerTool('plain', {}, async () => text('plain'));
  server.registerTool('step', {}, async () => text(await step('charge', async () => 'step')));
  server.registerTool('ask', {}, async () => {
    const requestedSchema = { type: 'object' as const, properties: { name: { type: 'string' as const } } };
    const { content } = await server.server.elicitInput({ message: 'name?', requestedSchema });
    return text(String(content?.name));
  });
  return server;
}

type Headers = Readonly<Record<string, string>>;

/** Sends a body, and is told the text of the reply as it comes; resolves when that is over. */
export type Send = (
  headers: Headers,
  body: object,
  onText?: (text: string) => void,
) => Promise<{ readonly status: number; readonly session: string; readonly text: string }>;

/** @param caller sent as a bearer token; none: an anonymous one */
export function overHttp(url: string, caller?: string): Send {
  const own = caller === undefined ? {} : { authorization: `Bearer ${caller}` };
  return async (headers, body, onText) => {
    const response = await fetch(url, {
      method: 'POST',
      headers: { ...headers, ...own },
      body: JSON.stringify(body),
    });
    let text = '';
    for await (const piece of response.body?.pipeThrough(new TextDecoderStream()) ?? []) {
      text += piece;
      onText?.(text);
    }
    return { status: response.status, session: response.headers.get('mcp-session-id') ?? '', text };
  };
}

/** Into the handler, as `mcp-await/node` does, so that nothing else is counted. */
export function direct({ serve }: Pick<AwaitHandler, 'serve'>): Send {
  const signal = { aborted: false, addEventListener() {}, removeEventListener() {} };
  return async (headers, parsedBody, onText) => {
    const reply = await serve({
      method: 'POST',
      path: '/mcp',
      base: '',
      query: () => undefined,
      header: (name) => headers[name],
      text: async () => '',
      parsedBody,
      signal,
      request: () => new Request('http://localhost/mcp'),
    });
    const { status, body = '' } = reply;
    const session = reply.headers['mcp-session-id'] ?? '';
    if (typeof body === 'string') return { status, session, text: body };
    let text = '';
    await new Promise<void>((resolve) => {
      const closing = [resolve];
      body({
        write: (piece) => {
          text += piece;
          onText?.(text);
          return true;
        },
        unsent: 0,
        onDrain: () => {},
        end: () => {
          for (const close of closing.splice(0)) close();
        },
        destroy: () => {},
        onClose: (fn) => void closing.push(fn),
      });
    });
    return { status, session, text };
  };
}

/** Makes a call to its end; throws where it came to something else than it should. */
export type MakeCall = (what: What) => Promise<void>;

/** A case for each kind of call on each revision, with its bound. */
export function casesOf<R extends Revision, B>(
  bounds: Readonly<Record<R, Readonly<Record<What, B>>>>,
): { readonly revision: R; readonly what: What; readonly bound: B }[] {
  return (Object.keys(bounds) as R[]).flatMap((revision) =>
    (['plain', 'step', 'ask'] as const).map((what) => ({ revision, what, bound: bounds[revision][what] })),
  );
}

/** A client of one revision, which has begun its session where there are sessions. */
export async function clientOf(send: Send, revision: string): Promise<MakeCall> {
  if (revision === MODERN) return modern(send);
  if (revision === 'DRAFT-SEP-1858') return multiTurn(send, revision);
  const words = DRAFTS.find((draft) => draft.revision === revision);
  return words === undefined ? live(send, revision) : roundTrips(send, words);
}

/** The client that the side-by-side comparison has for a revision, on which `clientOf` has none. */
export async function speakerFor(origin: string, revision: Revision): Promise<MakeCall> {
  const who = { name: 'counted', capabilities: { elicitation: {} } };
  const accepts = async () => ({ action: 'accept', content: { name: 'its name' } });
  const player = await speakerOf(revision).open(origin, who, accepts);
  return async (what) => {
    const result = await player.request('tools/call', { name: what, arguments: {} }, 10_000);
    check(what, { result } as Rpc);
  };
}

/** Begins a session. */
async function sessionOf(send: Send, protocolVersion: string): Promise<Headers> {
  const params = {
    protocolVersion,
    capabilities: { elicitation: {} },
    clientInfo: { name: 'counted', version: '1' },
  };
  const begun = await send(HEADERS, { jsonrpc: '2.0', id: 0, method: 'initialize', params });
  return { ...HEADERS, 'mcp-session-id': begun.session, 'mcp-protocol-version': protocolVersion };
}

const calling = (id: number, what: What) => ({
  jsonrpc: '2.0',
  id,
  method: 'tools/call',
  params: { name: what, arguments: {} },
});

async function live(send: Send, revision: string): Promise<MakeCall> {
  const headers = await sessionOf(send, revision);
  let id = 0;
  return async (what) => {
    id += 1;
    const asked = new Set<unknown>();
    const answers: Promise<void>[] = [];
    const { text } = await send(headers, calling(id, what), (said) => {
      for (const ask of asksIn(said)) if (!asked.has(ask.id)) answers.push(reply(asked, ask));
    });
    await Promise.all(answers);
    check(what, messagesIn(text).at(-1));
  };

  async function reply(asked: Set<unknown>, ask: Rpc): Promise<void> {
    asked.add(ask.id);
    const { status } = await send(headers, { jsonrpc: '2.0', ...answer(ask, 'name') });
    if (status !== 202) throw new Error(`an answer got ${status}`);
  }
}

async function multiTurn(send: Send, revision: string): Promise<MakeCall> {
  const headers = await sessionOf(send, revision);
  let id = 0;
  return async (what) => {
    id += 1;
    let { text } = await send(headers, calling(id, what));
    const asks = asksIn(text);
    if (asks.length > 0) {
      const answers = asks.map((ask) => ({ jsonrpc: '2.0', ...answer(ask, 'name') }));
      const last = [...text.matchAll(/^id: (.+)$/gm)].at(-1)?.[1] ?? '';
      ({ text } = await send({ ...headers, 'last-event-id': last }, answers));
    }
    check(what, messagesIn(text).at(-1));
  };
}

async function roundTrips(send: Send, words: Words): Promise<MakeCall> {
  const headers = await sessionOf(send, words.revision);
  let id = 0;
  return async (what) => {
    id += 1;
    const request = calling(id, what);
    const first = messagesIn((await send(headers, request)).text).at(-1);
    const asked = Object.keys(words.asked({ ...first }));
    if (asked.length === 0) return check(what, first);
    id += 1;
    const results = asked.map((key) => [key, { action: 'accept', content: { name: 'its name' } }]);
    const answers = words.answers(Object.fromEntries(results));
    const { text } = await send(headers, words.retry({ ...request, id }, words.state({ ...first }), answers));
    check(what, messagesIn(text).at(-1));
  };
}

function asksIn(said: string): Rpc[] {
  return messagesIn(said.slice(0, said.lastIndexOf('\n\n') + 2)).filter(({ method }) => method === ELICIT);
}

function modern(send: Send): MakeCall {
  let id = 0;
  const _meta = {
    'io.modelcontextprotocol/protocolVersion': MODERN,
    'io.modelcontextprotocol/clientCapabilities': { elicitation: { form: {} } },
    'io.modelcontextprotocol/clientInfo': { name: 'counted', version: '1' },
  };
  const post = async (what: What, more: object = {}): Promise<Rpc | undefined> => {
    id += 1;
    const headers = {
      ...HEADERS,
      'mcp-protocol-version': MODERN,
      'mcp-method': 'tools/call',
      'mcp-name': what,
    };
    const params = { name: what, arguments: {}, _meta, ...more };
    const { text } = await send(headers, { jsonrpc: '2.0', id, method: 'tools/call', params });
    return messagesIn(text).at(-1);
  };
  return async (what) => {
    const first = await post(what);
    const { inputRequests, requestState } = first?.result ?? {};
    const keys = Object.keys(inputRequests ?? {});
    if (keys.length === 0) return check(what, first);
    const content = { name: 'its name' };
    const inputResponses = Object.fromEntries(keys.map((key) => [key, { action: 'accept', content }]));
    check(what, await post(what, { inputResponses, requestState }));
  };
}

function check(what: What, message: Rpc | undefined): void {
  const expected = what === 'ask' ? 'its name' : what;
  if (message?.result?.content?.[0]?.text !== expected)
    throw new Error(`${what}: ${JSON.stringify(message)}`);
}
