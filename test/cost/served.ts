/** A server whose calls are counted, and clients that make them, over HTTP or without it. */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { type AwaitHandler, step } from '../../src/index.ts';
import { answer } from '../e2e/anywhere.ts';
import { messagesIn, type Rpc } from '../e2e/clients.ts';

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

export function overHttp(url: string): Send {
  return async (headers, body, onText) => {
    const response = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) });
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

/** A client of one revision, which has begun its session where there are sessions. */
export async function clientOf(send: Send, revision: string): Promise<MakeCall> {
  return revision === MODERN ? modern(send) : sessions(send, revision);
}

async function sessions(send: Send, protocolVersion: string): Promise<MakeCall> {
  const params = {
    protocolVersion,
    capabilities: { elicitation: {} },
    clientInfo: { name: 'counted', version: '1' },
  };
  const begun = await send(HEADERS, { jsonrpc: '2.0', id: 0, method: 'initialize', params });
  const headers = { ...HEADERS, 'mcp-session-id': begun.session, 'mcp-protocol-version': protocolVersion };
  let id = 0;
  return async (what) => {
    id += 1;
    const asked = new Set<unknown>();
    const answers: Promise<void>[] = [];
    const call = { jsonrpc: '2.0', id, method: 'tools/call', params: { name: what, arguments: {} } };
    const { text } = await send(headers, call, (said) => {
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
