/** A client that calls the tool `book`, of 2025-11-25 and of 2026-07-28, and what answers for its user. */
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  type ElicitResult,
} from '@modelcontextprotocol/sdk/types.js';
import { post, type RawReply, textOf } from '../e2e/clients.ts';

export const KINDS = ['2025-11-25', '2026-07-28'] as const;
const SAMPLED = { model: 'm', role: 'assistant' as const, content: { type: 'text' as const, text: 'hello' } };

/** How a client answers: an answer, or none yet. */
export type Answers = () => ElicitResult | Promise<ElicitResult>;

export interface Caller {
  call(to: string, signal?: AbortSignal): Promise<string>;
  close(): unknown;
}

/** @param answers to elicitations; it samples by itself */
export async function openCaller(
  kind: (typeof KINDS)[number],
  url: string,
  answers: Answers,
  {
    name = 'host',
    who = 'ann',
    capabilities = { elicitation: { form: {} } },
  }: { name?: string; who?: string; capabilities?: Record<string, object> } = {},
): Promise<Caller> {
  const headers = { authorization: `Bearer ${who}` };
  if (kind === '2025-11-25') {
    const client = new Client({ name, version: '1' }, { capabilities });
    if (capabilities.elicitation) client.setRequestHandler(ElicitRequestSchema, () => answers());
    if (capabilities.sampling) client.setRequestHandler(CreateMessageRequestSchema, () => SAMPLED);
    const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
    await client.connect(transport as Transport);
    return {
      async call(to, signal) {
        const request = { name: 'book', arguments: { to } };
        const { content } = await client.callTool(request, undefined, signal && { signal });
        return (content as { text: string }[]).map(({ text }) => text).join('\n');
      },
      close: () => client.close(),
    };
  }
  const send = (to: string, more = {}): Promise<RawReply> =>
    post(url, { tool: 'book', args: { to }, capabilities, headers, ...more });
  return {
    async call(to) {
      let reply = await send(to);
      while (reply.state !== '') {
        const answer = async (key: string): Promise<[string, object]> => [
          key,
          key.startsWith('sampling') ? SAMPLED : await answers(),
        ];
        const responses = Object.fromEntries(await Promise.all(reply.keys.map(answer)));
        reply = await send(to, { state: reply.state, responses });
      }
      return textOf(reply);
    },
    close: () => {},
  };
}
