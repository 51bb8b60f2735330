/**
 * The official clients with a session, unmodified, behind a balancer. They come back by themselves to a stream
 * that broke; a call is lost when its client had an event of it, and then no result.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import {
  Client as ClientV2,
  StreamableHTTPClientTransport as TransportV2,
} from '@modelcontextprotocol/client';
import { Client as ClientV1 } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as TransportV1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { CallToolResultSchema, ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { stepsIn, type Tally } from './clients.ts';

/** A call without any event is given up after this long, in milliseconds; one that had one, after the other. */
const NO_EVENT = 4_000;
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

async function open(kind: 'v1' | 'v2', url: string): Promise<SessionClient> {
  if (kind === 'v1') {
    const client = new ClientV1(INFO, OPTIONS);
    client.setRequestHandler(ElicitRequestSchema, () => YES);
    await client.connect(new TransportV1(new URL(url), { reconnectionOptions: RECONNECTION }) as Transport);
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
  kind: 'v1' | 'v2',
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
    let events = 0;
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
