/** One process of the chaos run: a tool of several asks and steps, whose effects go into the driver's ledger. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import process from 'node:process';
import { setTimeout as sleep } from 'node:timers/promises';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { openStore } from '../../src/checkpoint/open-store.ts';
import { createAwaitHandler, step } from '../../src/index.ts';
import { toNodeHandler } from '../../src/node.ts';

const [storeUrl = '', ledgerUrl = '', secret = ''] = process.argv.slice(2);
/** Rounds of asks, and steps after each. */
const ROUNDS = 3;
const STEP_MS = 40;

async function effect(name: string, idempotencyKey: string): Promise<string> {
  await fetch(ledgerUrl, {
    method: 'POST',
    body: JSON.stringify({ name, key: idempotencyKey, pid: process.pid }),
  });
  await sleep(STEP_MS);
  return name;
}

function build(): McpServer {
  const server = new McpServer({ name: 'chaos', version: '1' });
  server.registerTool('work', {}, async () => {
    const done: string[] = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      const requestedSchema = { type: 'object' as const, properties: { go: { type: 'boolean' as const } } };
      await server.server.elicitInput({ message: `Round ${round}?`, requestedSchema });
      const both = ['a', 'b'].map((part) =>
        step(`${part}${round}`, ({ idempotencyKey }) => effect(`${part}${round}`, idempotencyKey)),
      );
      done.push(...(await Promise.all(both)));
    }
    return { content: [{ type: 'text', text: done.join(' ') }] };
  });
  return server;
}

const handler = createAwaitHandler(build, {
  store: await openStore(storeUrl),
  secrets: [secret],
  limits: { lease: 900, turnWait: 5_000 },
});
const http = createServer(toNodeHandler(handler));
http.listen(0, '127.0.0.1', () => process.stdout.write(`${(http.address() as AddressInfo).port}\n`));
