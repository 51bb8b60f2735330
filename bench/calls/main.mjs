/**
 * Calls per second of a tool that never asks, against its peer: on 2025-11-25 SDK v1's own transport with sessions,
 * with one read of the same store before each call and without a store, ours with an async context and without
 * (`steps: false`); on 2026-07-28 SDK v2's own handler, while ours hosts the server of SDK v2, and of v1.
 */
import { parseArgs } from 'node:util';
import { load as loadOf, unexpected } from '../connection.mjs';
import { interleave, positive } from '../interleaved.mjs';
import { asking, REVISION, resultText, TOOL } from '../round-trip/tool.mjs';

const STORES = ['memory', 'redis', 'postgres', 'sqlite'];
const CONCURRENCIES = [8, 1];
const SESSIONS = '2025-11-25';

export async function main(args) {
  const { values } = parseArgs({
    args,
    options: {
      rounds: { type: 'string', default: '5' },
      seconds: { type: 'string', default: '1' },
      stores: { type: 'string', default: STORES.join() },
      profile: { type: 'string' },
    },
  });
  for (const store of values.stores.split(',')) await measure(store, values);
}

/** One store after the other, so that few servers share the machine. */
async function measure(store, { rounds, seconds, profile }) {
  const pairs = [
    { revision: SESSIONS, ours: `ours-2025 ${store}`, peer: `sdk-v1 ${store}` },
    { revision: `${SESSIONS}, alone`, ours: `ours-2025 ${store}`, peer: 'sdk-v1 memory' },
    { revision: `${SESSIONS}, no context`, ours: `ours-2025-named ${store}`, peer: `sdk-v1 ${store}` },
    { revision: `${REVISION}, v2`, ours: `ours-2026-v2 ${store}`, peer: 'sdk-v2 memory' },
    { revision: `${REVISION}, v1`, ours: `ours-2026-v1 ${store}`, peer: 'sdk-v2 memory' },
  ];
  const measured = await interleave({
    script: new URL('./server.mjs', import.meta.url),
    variants: [...new Set(pairs.flatMap(({ ours, peer }) => [ours, peer]))],
    concurrencies: CONCURRENCIES,
    rounds: positive('rounds', rounds),
    seconds: positive('seconds', seconds),
    profile,
    load,
  });
  for (const concurrency of CONCURRENCIES) {
    console.log(
      `\nno ask, concurrency ${concurrency}`.padEnd(34),
      '     ours      peer   ratio  cpu µs/call      peer',
    );
    for (const { revision, ours, peer } of pairs) {
      const [a, b] = [ours, peer].map((name) => measured.get(name).get(concurrency));
      const ratio = (a.rate / b.rate).toFixed(2).padStart(7);
      const rates = [a, b].map(({ rate }) => rate.toFixed(0).padStart(9));
      const figures = [...rates, ratio, a.cpu.toFixed(0).padStart(12), b.cpu.toFixed(0).padStart(9)];
      console.log(`${revision}, ${store}`.padEnd(33), ...figures);
    }
  }
}

export function load({ name, port }, concurrency, seconds) {
  const isModern = name.startsWith('sdk-v2') || name.startsWith('ours-2026');
  return loadOf(port, concurrency, seconds, isModern ? modern : session);
}

const HEAD = [
  'POST /mcp HTTP/1.1',
  'Host: 127.0.0.1',
  'Content-Type: application/json',
  'Accept: application/json, text/event-stream',
];

function modern(connection, index) {
  const head = [...HEAD, `MCP-Protocol-Version: ${REVISION}`, 'Mcp-Method: tools/call', `Mcp-Name: ${TOOL}`];
  return calls(connection, head, index, asking);
}

/** Each worker has a session. */
async function session(connection, index) {
  const clientInfo = { name: 'bench-client', version: '1.0.0' };
  const params = { protocolVersion: SESSIONS, capabilities: {}, clientInfo };
  const initialize = { jsonrpc: '2.0', id: 0, method: 'initialize', params };
  const { head } = await connection.exchange(HEAD.join('\r\n'), initialize);
  const id = /^mcp-session-id: (\S+)/im.exec(head)?.[1];
  if (id === undefined) throw unexpected(head);
  const lines = [...HEAD, `Mcp-Session-Id: ${id}`, `MCP-Protocol-Version: ${SESSIONS}`];
  await connection.exchange(lines.join('\r\n'), { jsonrpc: '2.0', method: 'notifications/initialized' });
  return calls(connection, lines, index, (nth, branch) => ({
    jsonrpc: '2.0',
    id: nth + 1,
    method: 'tools/call',
    params: { name: TOOL, arguments: { branch } },
  }));
}

function calls(connection, lines, index, request) {
  const head = lines.join('\r\n');
  return async (nth) => {
    const branch = `branch-${index}-${nth}`;
    const { message } = await connection.exchange(head, request(nth, branch));
    if (message?.result?.content?.[0]?.text !== resultText(branch)) throw unexpected(message);
  };
}
