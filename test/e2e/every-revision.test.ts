/** The same tools, the same answers, on every revision there is, as calls and as tasks: the same results. */
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import {
  CallToolResultSchema,
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { afterEach, describe, expect, it } from 'vitest';
import booking from '../../examples/booking/with-steps.ts';
import workItems from '../../examples/work-item/server.ts';
import { tuned } from '../../src/call/limits.ts';
import { AwaitClientTransport } from '../../src/client/index.ts';
import type { AwaitOptions, HostFactory, Revision } from '../../src/index.ts';
import '../../src/compare/vitest.ts';
import type { Answering } from '../../src/compare/index.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { SHORT } from '../short.ts';
import { CAPABILITIES, filledIn, legacy, modern, type Rpc } from './clients.ts';
import { type Served, serveHere } from './harness.ts';
import { TOOLS } from './tools.ts';

type Json = Record<string, unknown>;
interface Caller {
  tool(name: string, args?: Json): Promise<string>;
  close(): Promise<void>;
}
type Way = (url: string) => Promise<Caller>;

const SAMPLE = {
  role: 'assistant' as const,
  model: 'test',
  content: { type: 'text' as const, text: 'a poem' },
};
const ROOTS = { roots: [{ uri: 'file:///home/ann', name: 'home' }] };
const drafted =
  (revision: 'DRAFT-SEP-2322' | 'DRAFT-MRTR-2026-02' | '2026-07-28', tasks?: { ttl: number }): Way =>
  (url) =>
    legacy(
      url,
      {},
      new AwaitClientTransport(url, { revision, ...(tasks !== undefined && { tasks }) }) as Transport,
    );

/** By revision, the clients that `toEqualOnEveryRevision` does not play. */
const WAYS: readonly (readonly [Revision, string, Way])[] = [
  ['2025-11-25', 'SDK v2 in legacy mode', (url) => modern(url, {}, 'legacy')],
  ['2025-11-25', 'SDK v1, as tasks', sessionTasks],
  ['DRAFT-MRTR-2026-02', 'our client, as tasks', drafted('DRAFT-MRTR-2026-02', { ttl: 60_000 })],
  ['DRAFT-SEP-2322', 'our client, as tasks', drafted('DRAFT-SEP-2322', { ttl: 60_000 })],
  ['2026-07-28', 'our client', drafted('2026-07-28')],
  ['2026-07-28', 'our client, as tasks', drafted('2026-07-28', { ttl: 60_000 })],
];

/** The SDK's own client for tasks of 2025-11-25. */
async function sessionTasks(url: string): Promise<Caller> {
  const client = new Client({ name: 'tasks', version: '1' }, { capabilities: CAPABILITIES });
  client.setRequestHandler(ElicitRequestSchema, ({ params }) => filledIn(params));
  client.setRequestHandler(CreateMessageRequestSchema, () => SAMPLE);
  client.setRequestHandler(ListRootsRequestSchema, () => ROOTS);
  await client.connect(new StreamableHTTPClientTransport(new URL(url)) as Transport);
  return {
    tool: async (name, args = {}) => {
      const call = { name, arguments: args };
      const options = { task: { ttl: 60_000 } };
      for await (const message of client.experimental.tasks.callToolStream(
        call,
        CallToolResultSchema,
        options,
      )) {
        if (message.type === 'error') throw message.error;
        if (message.type === 'result') return textOf(message.result as Rpc['result']);
      }
      throw new Error('a task without a result');
    },
    close: () => client.close(),
  };
}

function textOf(result: Rpc['result']): string {
  return (result?.content ?? []).map(({ text }) => text).join('\n');
}

const SERVERS: readonly (readonly [string, HostFactory, readonly (readonly [string, Json, string])[]])[] = [
  [
    'one tool for each way to ask',
    () => buildServer(() => {}),
    TOOLS.map(([name, text]) => [name, {}, text]),
  ],
  [
    'work items',
    workItems,
    [
      [
        'update_work_item',
        { id: 4522, fields: { State: 'Resolved' } },
        'Work item 4522 is at revision 4525: State = Resolved, Resolution = Duplicate, DuplicateOf = its DuplicateOf.',
      ],
      [
        'update_work_item',
        { id: 7, fields: { State: 'Resolved', Resolution: 'Fixed' } },
        'Work item 7 is at revision 10: State = Resolved, Resolution = Fixed, RootCause = Code.',
      ],
      ['update_work_item', { id: 1, fields: { Title: 'x' } }, 'Work item 1 is at revision 2: Title = x.'],
    ],
  ],
  ['booking', booking, [['book_flight', { to: 'Rome' }, 'Booked seat 12A to Rome on its day: receipt 120-']]],
];

let served: Served | undefined;
let caller: Caller | undefined;
afterEach(async () => {
  await caller?.close();
  await served?.close();
  caller = undefined;
  served = undefined;
});

describe.each(WAYS)('%s, %s', (revision, who, open) => {
  it.each(SERVERS)('%s', async (_name, factory, calls) => {
    for (const frames of [1_000, 0]) {
      const options: AwaitOptions = {
        revisions: [revision],
        ...tuned({ frames, taskPoll: 20 }),
        ...(who.includes('tasks') && { tasks: () => 'now' as const }),
      };
      served = await serveHere(factory, options);
      caller = await open(served.url);
      for (const [tool, args, text] of calls) expect(await caller.tool(tool, args)).toContain(text);
      await caller.close();
      await served.close();
    }
  });
});

/** What the other clients of these tests answer. */
const answers: Answering = ({ method, params }) => {
  if (method === 'sampling/createMessage') return { sample: 'a poem' };
  return { accept: filledIn(params).content ?? true };
};

describe.each([
  ['frames kept in one process', 1],
  ['frames dropped, in two processes in turn', 2],
] as const)('on every revision, %s', (_frames, processes) => {
  it.skipIf(SHORT).each(SERVERS)('%s', async (_name, factory, calls) => {
    const steps = calls.map(([call, args, text]) => {
      // It returns the name of the model, which is another one here.
      const own = call === 'sample-by-extra' ? 'side-by-side' : text;
      return { call, with: args, answers, expect: { text: own } };
    });
    await expect(factory).toEqualOnEveryRevision({ steps }, { processes, callers: false });
  });
});
