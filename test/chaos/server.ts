/** One process of the chaos run: a tool of several asks and steps, whose effects go into the driver's ledger. */
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import process from 'node:process';
import { setTimeout as sleep } from 'node:timers/promises';
import type KeyvSqlite from '@keyv/sqlite';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { currentContext } from '../../src/call/frame/context.ts';
import type { Frame } from '../../src/call/frame/frame.ts';
import { tuned } from '../../src/call/limits.ts';
import { openStore } from '../../src/checkpoint/open-store.ts';
import { createAwaitHandler, step } from '../../src/index.ts';
import { toNodeHandler } from '../../src/node.ts';
import { clock, type Event, LEASE, LONGEST_STEP } from './events.ts';
import { witness } from './witness.ts';

const [storeUrl = '', ledgerUrl = '', secret = ''] = process.argv.slice(2);
const ROUNDS = 3;

async function tell(event: Event): Promise<void> {
  await fetch(ledgerUrl, { method: 'POST', body: JSON.stringify(event) });
}

/** An event that the ledger lacks would excuse or accuse what did not happen: then this process ends, which is reported. */
async function tellSurely(event: Event): Promise<void> {
  for (let left = 3; ; left -= 1) {
    try {
      return await tell(event);
    } catch (error) {
      if (left === 0) throw error;
      await sleep(100);
    }
  }
}

interface Done {
  readonly step: string;
  readonly key: string;
  readonly run: string;
}

/** The begin is the effect: once the ledger has it, it happened. */
function act(call: string, name: string): Promise<Done> {
  return step(name, async ({ idempotencyKey: key }) => {
    const run = randomUUID();
    const effect = { call, step: name, key, run, pid: process.pid };
    await tell({ ...effect, type: 'begin', at: clock() });
    await sleep(LONGEST_STEP * (0.1 + 0.9 * Math.random()));
    await tell({ ...effect, type: 'end', at: clock() });
    return { step: name, key, run };
  });
}

function build(): McpServer {
  const server = new McpServer({ name: 'chaos', version: '1' });
  server.registerTool('work', {}, async () => {
    const { call } = (currentContext()?.call as Frame | undefined) ?? { call: { id: '' } };
    if (process.env.CHAOS_MOMENTS === '1')
      await tell({ type: 'moment', call: call.id, pid: process.pid, at: clock() });
    const done: Done[] = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      const requestedSchema = { type: 'object' as const, properties: { go: { type: 'boolean' as const } } };
      await server.server.elicitInput({ message: `Round ${round}?`, requestedSchema });
      done.push(...(await Promise.all([act(call.id, `a${round}`), act(call.id, `b${round}`)])));
      done.push(await act(call.id, `c${round}`));
    }
    return { content: [{ type: 'text', text: JSON.stringify(done) }] };
  });
  return server;
}

witness((event) => void tellSurely(event));
const store = await openStore(storeUrl);
const warn = (message: string, { cause = '' }: { readonly cause?: unknown } = {}): void => {
  if (message.startsWith('the store fails'))
    void tellSurely({ type: 'outage', cause: String(cause), pid: process.pid, at: clock() });
};
const handler = createAwaitHandler(build, {
  logger: { debug: () => {}, info: () => {}, warn, error: warn },
  store,
  secrets: [secret],
  tasks: () => 'now',
  ...tuned({ lease: LEASE, turnWait: 5_000 }),
});

/** A full disk, as SQLite sees it: no page more than there are. */
process.on('message', (message: { full: boolean }) => {
  const adapter = (store as unknown as { _store: KeyvSqlite })._store;
  const pages = message.full ? 1 : 1_073_741_823;
  void adapter.query(`PRAGMA max_page_count = ${pages}`).then(() => process.send?.('done'));
});

const http = createServer(toNodeHandler(handler));
http.listen(0, '127.0.0.1', () => process.stdout.write(`${(http.address() as AddressInfo).port}\n`));
