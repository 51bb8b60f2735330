/** A client of 2025 by hand: sessions, single messages and arrays, and what each got in reply. */
import { messagesIn, type Rpc } from '../e2e/clients.ts';
import { Reader } from '../e2e/reader.ts';

type Headers = Readonly<Record<string, string>>;

export const HEADERS: Headers = {
  'content-type': 'application/json',
  accept: 'application/json, text/event-stream',
};

export interface Got {
  readonly status: number;
  readonly headers: globalThis.Headers;
  readonly text: string;
  readonly messages: readonly Rpc[];
}

async function got(response: Response): Promise<Got> {
  const text = await response.text();
  const messages = text.startsWith('[') ? (JSON.parse(text) as Rpc[]) : messagesIn(text);
  return { status: response.status, headers: response.headers, text, messages };
}

export class Peer {
  readonly url: string;
  readonly headers: Headers;

  constructor(url: string, headers: Headers) {
    this.url = url;
    this.headers = headers;
  }

  /** One POST, whose reply may be a stream that lasts. */
  send(body: unknown, more: Headers = {}): Promise<Response> {
    const headers = { ...HEADERS, ...this.headers, ...more };
    return fetch(this.url, { method: 'POST', headers, body: JSON.stringify(body) });
  }

  async post(body: unknown, more: Headers = {}): Promise<Got> {
    return got(await this.send(body, more));
  }

  async stream(body: unknown): Promise<Reader> {
    return new Reader(await this.send(body));
  }
}

export const call = (id: string | number, name: string, args: object = {}) => ({
  jsonrpc: '2.0',
  id,
  method: 'tools/call',
  params: { name, arguments: args },
});

export const initialize = (version: string) => ({
  jsonrpc: '2.0',
  id: 'begin',
  method: 'initialize',
  params: {
    protocolVersion: version,
    capabilities: { elicitation: { form: {} } },
    clientInfo: { name: 'peer', version: '1' },
  },
});

/** A new session; undefined fields of the reply tell of a refusal. */
export async function begin(url: string, version: string, headers: Headers = {}): Promise<Got> {
  return new Peer(url, headers).post(initialize(version));
}

/** A client in a session of its own. */
export async function inSession(url: string, version: string, headers: Headers = {}): Promise<Peer> {
  const begun = await begin(url, version, headers);
  const session = begun.headers.get('mcp-session-id');
  if (session === null) throw new Error(`no session: ${begun.status} ${begun.text}`);
  return new Peer(url, { ...headers, 'mcp-session-id': session, 'mcp-protocol-version': version });
}

export const answer = (id: Rpc['id'], content: object) => ({
  jsonrpc: '2.0',
  id,
  result: { action: 'accept', content },
});
