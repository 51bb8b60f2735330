/** A server whose calls are counted, and clients that make them. */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { step } from '../../src/index.ts';
import { answer, begin } from '../e2e/anywhere.ts';
import { messagesIn, type Rpc } from '../e2e/clients.ts';

const MODERN = '2026-07-28';
const ELICIT = 'elicitation/create';

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

/** Makes a call to its end; throws where it came to something else than it should. */
export type MakeCall = (what: What) => Promise<void>;

/** A client of one revision, which has begun its session where there are sessions. */
export async function clientOf(url: string, revision: string): Promise<MakeCall> {
  return revision === MODERN ? modern(url) : sessions(url, revision);
}

async function sessions(url: string, revision: string): Promise<MakeCall> {
  const session = await begin([{ url }], { elicitation: {} }, undefined, revision);
  let id = 0;
  return async (what) => {
    id += 1;
    const request = { id, method: 'tools/call', params: { name: what, arguments: {} } };
    const body = JSON.stringify({ jsonrpc: '2.0', ...request });
    const response = await fetch(url, { method: 'POST', headers: session.headers, body });
    let said = '';
    for await (const piece of response.body?.pipeThrough(new TextDecoderStream()) ?? []) {
      const before = asksIn(said).length;
      said += piece;
      for (const ask of asksIn(said).slice(before)) await answered(url, session.headers, ask);
    }
    check(what, messagesIn(said).at(-1));
  };
}

function asksIn(said: string): Rpc[] {
  return messagesIn(said.slice(0, said.lastIndexOf('\n\n') + 2)).filter(({ method }) => method === ELICIT);
}

async function answered(url: string, headers: Record<string, string>, ask: Rpc): Promise<void> {
  const body = JSON.stringify({ jsonrpc: '2.0', ...answer(ask, 'name') });
  const { status } = await fetch(url, { method: 'POST', headers, body });
  if (status !== 202) throw new Error(`an answer got ${status}`);
}

function modern(url: string): MakeCall {
  let id = 0;
  const post = async (what: What, more: object = {}): Promise<Rpc | undefined> => {
    id += 1;
    const _meta = {
      'io.modelcontextprotocol/protocolVersion': MODERN,
      'io.modelcontextprotocol/clientCapabilities': { elicitation: { form: {} } },
      'io.modelcontextprotocol/clientInfo': { name: 'counted', version: '1' },
    };
    const params = { name: what, arguments: {}, _meta, ...more };
    const response = await fetch(url, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        'mcp-protocol-version': MODERN,
        'mcp-method': 'tools/call',
        'mcp-name': what,
      },
      body: JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call', params }),
    });
    return messagesIn(await response.text()).at(-1);
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
