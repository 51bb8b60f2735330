/** What every mount must do: serve two callers on both eras, and keep their calls apart. */
import {
  Client as ModernClient,
  StreamableHTTPClientTransport as ModernTransport,
} from '@modelcontextprotocol/client';
import { Client as LegacyClient } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as LegacyTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { accept, post, textOf } from '../e2e/clients.ts';

const CAPABILITIES = { elicitation: { form: {} } };
const bearer = (caller: string): Record<string, string> => ({ authorization: `Bearer ${caller}` });

interface Texts {
  content: { text?: string }[];
}

/** What `tool` says to `caller`, whose user answers with the caller's name. */
async function modern(url: string, caller: string, tool: string): Promise<string> {
  const client = new ModernClient(
    { name: 'mounts', version: '1.0.0' },
    { capabilities: CAPABILITIES, versionNegotiation: { mode: { pin: '2026-07-28' } } },
  );
  client.setRequestHandler('elicitation/create', () => ({ action: 'accept', content: { name: caller } }));
  await client.connect(new ModernTransport(new URL(url), { requestInit: { headers: bearer(caller) } }));
  const result = (await client.callTool({ name: tool, arguments: {} })) as Texts;
  await client.close();
  return result.content[0]?.text ?? '';
}

async function legacy(url: string, caller: string, tool: string): Promise<string> {
  const client = new LegacyClient({ name: 'mounts', version: '1.0.0' }, { capabilities: CAPABILITIES });
  client.setRequestHandler(ElicitRequestSchema, () => ({ action: 'accept', content: { name: caller } }));
  const transport = new LegacyTransport(new URL(url), { requestInit: { headers: bearer(caller) } });
  await client.connect(transport as Transport);
  const result = (await client.callTool({ name: tool, arguments: {} })) as Texts;
  await client.close();
  return result.content[0]?.text ?? '';
}

export interface Seen {
  /** What the tool said to each caller, on 2026-07-28 and on 2025-11-25. */
  readonly said: readonly string[];
  /** The status for a request without a token. */
  readonly withoutToken: number;
  /** What the tool said when the caller who began a call went on with it. */
  readonly own: string;
  /** The error for another caller who presents that call's state. */
  readonly stolen: string;
}

/**
 * @param url of a server whose `tool` asks for a name and says `<clientId>: <name>`
 */
export async function twoCallers(url: string, tool = 'greet'): Promise<Seen> {
  const said = await Promise.all(
    [modern, legacy].flatMap((call) => ['ann', 'bob'].map((caller) => call(url, caller, tool))),
  );
  const withoutToken = (await post(url, { tool })).status;
  const asked = await post(url, { tool, headers: bearer('ann'), capabilities: CAPABILITIES });
  const answer = {
    tool,
    capabilities: CAPABILITIES,
    state: asked.state,
    responses: accept(asked.keys, { name: 'ann' }),
  };
  const stolen = await post(url, { ...answer, headers: bearer('bob') });
  const own = await post(url, { ...answer, headers: bearer('ann') });
  return { said, withoutToken, own: textOf(own), stolen: stolen.message.error?.message ?? stolen.text };
}

/** What `twoCallers` sees where all is well. */
export const APART: Seen = {
  said: ['ann: ann', 'bob: bob', 'ann: ann', 'bob: bob'],
  withoutToken: 401,
  own: 'ann: ann',
  stolen: 'Invalid or expired requestState',
};
