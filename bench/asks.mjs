/**
 * A tool that asks once, called by SDK v1's client: on 2025-11-25 with both of SDK v1's own transports, and with ours on
 * the server's side, in memory and on three stores; on SEP-1858 with ours on both sides.
 */
import { parseArgs } from 'node:util';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { AwaitClientTransport } from '../dist/src/client/index.js';
import { interleave, positive } from './interleaved.mjs';
import { resultText, TOOL } from './round-trip/tool.mjs';

const PEER = 'sdk-v1';
const DRAFT = 'sep-1858';
const OURS = ['ours-2025', 'ours-2025-redis', 'ours-2025-postgres', 'ours-2025-sqlite', DRAFT];

export async function main(args) {
  const { values } = parseArgs({
    args,
    options: { rounds: { type: 'string', default: '5' }, seconds: { type: 'string', default: '1' } },
  });
  const measured = await interleave({
    script: new URL('./asks-server.mjs', import.meta.url),
    variants: [PEER, ...OURS],
    concurrencies: [8, 1],
    rounds: positive('rounds', values.rounds),
    seconds: positive('seconds', values.seconds),
    load,
  });
  for (const concurrency of [8, 1]) {
    const rate = (name) => measured.get(name).get(concurrency).rate;
    const told = (name) => {
      const cpu = measured.get(name).get(concurrency).cpu.toFixed(0);
      return `${rate(name).toFixed(0)} calls/s, ${cpu} µs of processor time a call`;
    };
    console.log(`one ask, concurrency ${concurrency}: SDK v1 on 2025-11-25 ${told(PEER)}`);
    for (const name of OURS) {
      const wanted = name === DRAFT ? ' (wanted: 1.2)' : '';
      const ratio = (rate(name) / rate(PEER)).toFixed(2);
      console.log(`${name.padEnd(18)} ${told(name)}, ratio ${ratio}${wanted}`);
    }
  }
}

async function load({ name, port }, concurrency, seconds) {
  const url = new URL(`http://127.0.0.1:${port}/mcp`);
  const clients = await Promise.all(Array.from({ length: concurrency }, () => connected(name, url)));
  const began = performance.now();
  const until = began + seconds * 1_000;
  const counts = await Promise.all(
    clients.map(async (client, index) => {
      let calls = 0;
      for (; performance.now() < until; calls += 1) {
        const branch = `branch-${index}-${calls}`;
        const { content } = await client.callTool({ name: TOOL, arguments: { branch } });
        if (content[0].text !== resultText(branch))
          throw new Error(`not what was expected: ${content[0].text}`);
      }
      return calls;
    }),
  );
  const elapsed = (performance.now() - began) / 1_000;
  for (const client of clients) await client.close();
  return { calls: counts.reduce((sum, count) => sum + count, 0), elapsed };
}

async function connected(name, url) {
  const client = new Client({ name: 'bench', version: '1.0.0' }, { capabilities: { elicitation: {} } });
  client.setRequestHandler(ElicitRequestSchema, () => ({ action: 'accept', content: { confirm: true } }));
  const transport =
    name === DRAFT
      ? new AwaitClientTransport(url, { revision: 'DRAFT-SEP-1858' })
      : new StreamableHTTPClientTransport(url);
  await client.connect(transport);
  // The asks of SDK v1's server go out on the GET that its client opens now, and are lost before.
  await new Promise((resolve) => setTimeout(resolve, 300));
  return client;
}
