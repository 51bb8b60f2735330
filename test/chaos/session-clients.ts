/**
 * Clients with a session, unmodified, behind a balancer: the official ones, and this package's for the drafts. They come back by themselves to a stream
 * that broke; a call is lost when its client had an event of it, and then no result.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import {
  Client as ClientV2,
  StreamableHTTPClientTransport as TransportV2,
} from '@modelcontextprotocol/client';
import { Client as ClientV1 } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StreamableHTTPClientTransport as TransportV1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { CallToolResultSchema, ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { AwaitClientTransport } from '../../src/client/index.ts';
import { stepsIn, type Tally } from './clients.ts';

/** A call without any event is given up after this long, in milliseconds; one that had one, after the other. */
const NO_EVENT = 10_000;
const STUBBORN_FOR = 90_000;
const INFO = { name: 'chaos', version: '1' };
const OPTIONS = { capabilities: { elicitation: { form: {} } } };
const YES = { action: 'accept' as const, content: { go: true } };
const RECONNECTION = {
  initialReconnectionDelay: 100,
  maxReconnectionDelay: 1_000,
  reconnectionDelayGrowFactor: 1.5,
  maxRetries: 200,
};

interface CallOptions {
  readonly signal: AbortSignal;
  readonly timeout: number;
  readonly onresumptiontoken: () => void;
}

interface SessionClient {
  call(options: CallOptions): Promise<unknown>;
  close(): Promise<void>;
}

const WORK = { name: 'work', arguments: {} };

export const OLDER = ['2024-11-05', 'DRAFT-SEP-1858', 'DRAFT-SEP-2322', 'DRAFT-MRTR-2026-02'] as const;
export type Kind = 'v1' | 'v2' | (typeof OLDER)[number];

function transportV1(kind: Exclude<Kind, 'v2'>, url: string): Transport {
  const reconnectionOptions = RECONNECTION;
  if (kind === 'v1') return new TransportV1(new URL(url), { reconnectionOptions }) as Transport;
  if (kind === '2024-11-05') return new SSEClientTransport(new URL('/sse', url));
  return new AwaitClientTransport(url, { revision: kind, reconnectionOptions }) as Transport;
}

async function open(kind: Kind, url: string): Promise<SessionClient> {
  if (kind !== 'v2') {
    const client = new ClientV1(INFO, OPTIONS);
    client.setRequestHandler(ElicitRequestSchema, () => YES);
    await client.connect(transportV1(kind, url));
    return {
      call: (options) => client.callTool(WORK, CallToolResultSchema, options),
      close: () => client.close(),
    };
  }
  const client = new ClientV2(INFO, { ...OPTIONS, versionNegotiation: { mode: 'legacy' } });
  client.setRequestHandler('elicitation/create', () => YES);
  await client.connect(new TransportV2(new URL(url), { reconnectionOptions: RECONNECTION }));
  return { call: (options) => client.callTool(WORK, options), close: () => client.close() };
}

export async function sessionClient(
  kind: Kind,
  url: string,
  tally: Tally,
  isOver: () => boolean,
): Promise<void> {
  let client: SessionClient | undefined;
  while (!isOver()) {
    try {
      client ??= await open(kind, url);
    } catch {
      await sleep(100);
      continue;
    }
    // Where no event has an id that the client is told of, each call counts from its start.
    let events = kind === 'v1' || kind === 'v2' ? 0 : 1;
    const stop = new AbortController();
    const impatient = setTimeout(() => events === 0 && stop.abort(), NO_EVENT);
    try {
      const result = await client.call({
        signal: stop.signal,
        timeout: STUBBORN_FOR,
        onresumptiontoken: () => {
          events += 1;
        },
      });
      const done = stepsIn({ result } as Parameters<typeof stepsIn>[0]);
      if (done === undefined) tally.lost.push(JSON.stringify(result));
      else {
        tally.completed += 1;
        tally.done.push(...done);
      }
    } catch (error) {
      if (events === 0) tally.neverBegan += 1;
      else tally.lost.push(`after ${events} events: ${String(error)}`);
      await sleep(50);
    } finally {
      clearTimeout(impatient);
    }
  }
  await client?.close();
}
