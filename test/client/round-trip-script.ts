/** Servers and clients of round trips: incomplete responses as each draft spells them, and the contents of a retry. */
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import {
  CreateMessageRequestSchema,
  type CreateMessageResult,
  ElicitRequestSchema,
  type ElicitResult,
} from '@modelcontextprotocol/sdk/types.js';
import { type AwaitClientOptions, AwaitClientTransport } from '../../src/client/index.ts';
import {
  closing,
  onCall,
  QUICK,
  type Reply,
  type Route,
  type Scripted,
  type Seen,
  serveVersion,
} from './script.ts';
import { FIRST, type Message, SEP } from './vectors.ts';

export type Draft = 'DRAFT-SEP-2322' | 'DRAFT-MRTR-2026-02';
export type Revision = Draft | '2026-07-28';
export const DRAFTS: readonly Draft[] = ['DRAFT-SEP-2322', 'DRAFT-MRTR-2026-02'];
export const REVISIONS: readonly Revision[] = [...DRAFTS, '2026-07-28'];
export const LOGIN = FIRST.inputRequests.github_login as Message;
export const RESULT = { content: [{ type: 'text', text: 'done' }] };

/** An incomplete response, as the revision spells it. */
export function incomplete(
  revision: Revision,
  id: unknown,
  { asks, state }: { asks?: Message; state?: unknown },
) {
  if (revision === 'DRAFT-MRTR-2026-02') {
    return {
      jsonrpc: '2.0',
      id,
      ...(asks !== undefined && { input_requests: asks }),
      ...(state !== undefined && { request_state: state }),
    };
  }
  const result = {
    resultType: 'input_required',
    ...(asks !== undefined && { inputRequests: asks }),
    ...(state !== undefined && { requestState: state }),
  };
  return { jsonrpc: '2.0', id, result };
}

/** The parts of an earlier round in a request. */
export function brought({ body }: Seen): { answers: unknown; state: unknown } {
  const { inputResponses, requestState } = body.params ?? {};
  const lifted = body.input_responses as Record<string, { result: unknown }> | undefined;
  const unwrapped =
    lifted && Object.fromEntries(Object.entries(lifted).map(([key, { result }]) => [key, result]));
  return { answers: inputResponses ?? unwrapped, state: requestState ?? body.request_state };
}

export const done = (id: unknown, text = 'done') => ({
  jsonrpc: '2.0',
  id,
  result: { content: [{ type: 'text', text }] },
});

/** A server of a revision: one of 2026-07-28 is discovered instead of initialized. */
export function serve(revision: Revision, ...all: Route[]): Promise<Scripted> {
  return serveVersion(revision, ...all, ({ body }, reply) => {
    if (body.method !== 'server/discover') return false;
    const result = { supportedVersions: [revision], capabilities: { tools: {} } };
    reply.json({ jsonrpc: '2.0', id: body.id, result });
    return true;
  });
}

/** The replies to the calls of a tool, one after the other. */
export function inTurn(...replies: ((seen: Seen, reply: Reply) => void)[]): Route {
  let nth = 0;
  return onCall((seen, reply) => {
    const answer = replies[Math.min(nth, replies.length - 1)];
    nth += 1;
    answer?.(seen, reply);
  });
}

export type Elicit = (
  message: string,
  extra: { signal: AbortSignal },
) => ElicitResult | Promise<ElicitResult>;

export async function connect(
  url: string,
  options: Partial<AwaitClientOptions> & Pick<AwaitClientOptions, 'revision'>,
  elicit: Elicit = () => ({ action: 'accept', content: { name: 'octocat' } }),
) {
  const client = new Client(
    { name: 'test', version: '1.0.0' },
    { capabilities: { elicitation: { form: {}, url: {} }, sampling: {} } },
  );
  const asked: string[] = [];
  const errors: Error[] = [];
  client.setRequestHandler(ElicitRequestSchema, ({ params }, { signal }) => {
    asked.push(params.message);
    return elicit(params.message, { signal });
  });
  client.setRequestHandler(
    CreateMessageRequestSchema,
    () => SEP.inputResponses.capital_of_france as CreateMessageResult,
  );
  client.onerror = (error) => void errors.push(error);
  const transport = new AwaitClientTransport(url, { reconnectionOptions: QUICK, ...options });
  await client.connect(transport);
  closing(client);
  return { client, transport, asked, errors };
}

export const calls = (server: Scripted) => server.turns().filter(({ body }) => body.method === 'tools/call');
