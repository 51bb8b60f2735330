/** A raw 2025 client whose every request goes to the process it names. */
import type { Rpc } from './clients.ts';
import { Reader } from './reader.ts';

const HEADERS = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };
const ELICIT = 'elicitation/create';

export interface Session {
  readonly headers: Record<string, string>;
  post(to: number, message: object): Promise<Reader>;
  get(to: number, last?: string): Promise<Reader>;
}

export async function begin(
  servers: readonly { readonly url: string }[],
  capabilities: object = { elicitation: {} },
  caller?: string,
): Promise<Session> {
  const base = { ...HEADERS, ...(caller !== undefined && { authorization: `Bearer ${caller}` }) };
  const url = (nth: number): string => servers[nth]?.url ?? '';
  const params = {
    protocolVersion: '2025-11-25',
    capabilities,
    clientInfo: { name: 'anywhere', version: '1' },
  };
  const body = JSON.stringify({ jsonrpc: '2.0', id: 0, method: 'initialize', params });
  const first = await fetch(url(0), { method: 'POST', headers: base, body });
  await first.text();
  const session = first.headers.get('mcp-session-id') ?? '';
  const headers = { ...base, 'mcp-session-id': session, 'mcp-protocol-version': '2025-11-25' };
  return {
    headers,
    post: async (to, message) => {
      const text = JSON.stringify({ jsonrpc: '2.0', ...message });
      return new Reader(await fetch(url(to), { method: 'POST', headers, body: text }));
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
