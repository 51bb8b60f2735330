/** A raw 2025 client whose every request goes to the process it names. */
import type { Rpc } from './clients.ts';
import { Reader } from './reader.ts';

const HEADERS = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };
const ELICIT = 'elicitation/create';

export interface Session {
  readonly headers: Record<string, string>;
  /** @param more headers besides those of the session */
  post(to: number, message: object, more?: Record<string, string>): Promise<Reader>;
  get(to: number, last?: string): Promise<Reader>;
}

export async function begin(
  servers: readonly { readonly url: string }[],
  capabilities: object = { elicitation: {} },
  caller?: string,
  version = '2025-11-25',
): Promise<Session> {
  const base = { ...HEADERS, ...(caller !== undefined && { authorization: `Bearer ${caller}` }) };
  const url = (nth: number): string => servers[nth]?.url ?? '';
  const params = {
    protocolVersion: version,
    capabilities,
    clientInfo: { name: 'anywhere', version: '1' },
  };
  const body = JSON.stringify({ jsonrpc: '2.0', id: 0, method: 'initialize', params });
  const first = await fetch(url(0), { method: 'POST', headers: base, body });
  await first.text();
  const session = first.headers.get('mcp-session-id') ?? '';
  const headers = { ...base, 'mcp-session-id': session, 'mcp-protocol-version': version };
  return {
    headers,
    post: async (to, message, more = {}) => {
      const text = JSON.stringify(Array.isArray(message) ? message : { jsonrpc: '2.0', ...message });
      return new Reader(
        await fetch(url(to), { method: 'POST', headers: { ...headers, ...more }, body: text }),
      );
    },
    get: async (to, last) => {
      const id = last === undefined ? {} : { 'last-event-id': last };
      return new Reader(
        await fetch(url(to), { headers: { ...headers, accept: 'text/event-stream', ...id } }),
      );
    },
  };
}

export const asks = (field: string) => (message: Rpc) =>
  message.method === ELICIT && message.params?.message === `${field}?`;
export const answer = ({ id }: Rpc, field: string) => ({
  id,
  result: { action: 'accept', content: { [field]: `its ${field}` } },
});
export const call = (name: string) => ({ id: 7, method: 'tools/call', params: { name, arguments: {} } });
