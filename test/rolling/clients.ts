/** Sixteen unmodified clients, with the defaults of their packages. A client that cannot connect counts, and tries again. */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  Client as ClientV2,
  StreamableHTTPClientTransport as TransportV2,
} from '@modelcontextprotocol/client';
import { Client as ClientV1 } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as TransportV1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { AwaitClientTransport } from '../../src/client/index.ts';

export const CLIENTS = ['v1 2025-11-25', 'v2 2025-11-25', 'v2 2026-07-28', 'await 2026-07-28'] as const;
type ClientName = (typeof CLIENTS)[number];

const EXPECTED = { order: 'charge,ship', steps: 'a,b,c', plain: 'plain' } as const;
type Tool = keyof typeof EXPECTED;

export interface Tally {
  completed: number;
  readonly failedCalls: string[];
  readonly failedConnects: string[];
}

interface Connected {
  call(name: Tool, args: { call: string; takes: number }): Promise<{ content?: unknown }>;
  close(): Promise<void>;
}

const INFO = { name: 'rolling', version: '1' };
const CAPABILITIES = { elicitation: { form: {} } };
/** Calls of a client before it begins anew. */
const CALLS = 6;

/** Most users take a second; a few take longer than a process that leaves waits for them. */
async function user(): Promise<{ action: 'accept'; content: { go: boolean } }> {
  await sleep(Math.random() < 0.06 ? 12_000 : 1_200 * Math.random());
  return { action: 'accept', content: { go: true } };
}

async function open(kind: ClientName, url: string): Promise<Connected> {
  if (kind === 'v1 2025-11-25' || kind === 'await 2026-07-28') {
    const client = new ClientV1(INFO, { capabilities: CAPABILITIES });
    client.setRequestHandler(ElicitRequestSchema, user);
    const transport =
      kind === 'v1 2025-11-25'
        ? new TransportV1(new URL(url))
        : new AwaitClientTransport(url, { revision: '2026-07-28' });
    await client.connect(transport as Transport);
    return {
      call: (name, args) => client.callTool({ name, arguments: args }) as Promise<{ content?: unknown }>,
      close: () => client.close(),
    };
  }
  const mode = kind === 'v2 2026-07-28' ? { pin: '2026-07-28' } : ('legacy' as const);
  const client = new ClientV2(INFO, { capabilities: CAPABILITIES, versionNegotiation: { mode } });
  client.setRequestHandler('elicitation/create', user);
  await client.connect(new TransportV2(new URL(url)));
  return {
    call: (name, args) => client.callTool({ name, arguments: args }),
    close: () => client.close(),
  };
}

/** One client after the other, each with one call at a time, until `isOver`. */
export async function clientLoop(
  kind: ClientName,
  url: string,
  tally: Tally,
  isOver: () => boolean,
): Promise<void> {
  while (!isOver()) {
    let client: Connected;
    try {
      client = await open(kind, url);
    } catch (error) {
      tally.failedConnects.push(`${kind}: ${reasonOf(error)}`);
      await sleep(100);
      continue;
    }
    for (let calls = 0; calls < CALLS && !isOver(); calls += 1) {
      const name = (['order', 'steps', 'plain'] as const)[Math.floor(3 * Math.random())] ?? 'order';
      const call = randomUUID();
      const began = performance.now();
      try {
        const { content } = await client.call(name, {
          call,
          takes: Math.round(50 + 1_500 * Math.random() ** 3),
        });
        const [said] = (content ?? []) as { text?: string }[];
        if (said?.text !== EXPECTED[name]) throw new Error(`wrong result: ${JSON.stringify(content)}`);
        tally.completed += 1;
      } catch (error) {
        const took = Math.round(performance.now() - began);
        tally.failedCalls.push(`${kind}, ${name} ${call}, after ${took} ms: ${reasonOf(error)}`);
      }
      await sleep(100 * Math.random());
    }
    await client.close().catch(() => {});
  }
}

function reasonOf(error: unknown): string {
  const causes: string[] = [];
  for (let at: unknown = error; at instanceof Error; at = at.cause) causes.push(at.message);
  return causes.join(' < ') || String(error);
}
