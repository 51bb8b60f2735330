/**
 * What a connected client of 2025-11-25 costs, and one whose user is being asked: heap of the server's process, with
 * SDK v1 alone beside it, and commands of a Redis of the benchmark's own.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { ownRedis } from './own-redis.mjs';

const SERVER = fileURLToPath(new URL('connected-server.mjs', import.meta.url));
/** After these the pauses between two looks are as long as they get. */
const SETTLED = 5_000;

export async function main(args) {
  const { values } = parseArgs({
    args,
    options: {
      clients: { type: 'string', default: '100' },
      seconds: { type: 'string', default: '20' },
      port: { type: 'string', default: '26390' },
    },
  });
  const redis = await ownRedis(Number(values.port));
  if (redis === undefined) {
    console.log('connected: skipped, redis-server does not start');
    return;
  }
  for (const variant of ['sdk', 'redis', 'relay'])
    await measure(variant, redis, Number(values.clients), Number(values.seconds));
  await redis.stop();
}

async function measure(variant, { url, client: redis }, clients, seconds) {
  const child = fork(SERVER, [variant, url], {
    execArgv: ['--expose-gc'],
    env: { ...process.env, NODE_ENV: 'production' },
  });
  const [{ port }] = await once(child, 'message');
  const heap = async () => {
    child.send('heap');
    const [used] = await once(child, 'message');
    return used;
  };
  const commands = async () => {
    await redis.sendCommand(['CONFIG', 'RESETSTAT']);
    await sleep(seconds * 1_000);
    const info = await redis.info('commandstats');
    const counts = [...info.matchAll(/^cmdstat_([^:]+):calls=(\d+)/gm)].filter(
      ([, name]) => name !== 'info' && !name.startsWith('config'),
    );
    return counts.reduce((sum, [, , calls]) => sum + Number(calls), 0) / clients / seconds;
  };
  const print = (what, bytes, rate) =>
    console.log(
      `${variant}, ${what}: ${(bytes / clients / 1_024).toFixed(1)} KiB, ${rate.toFixed(2)} commands a second`,
    );

  const connected = await connect(port, clients);
  const before = await heap();
  connected.push(...(await connect(port, clients)));
  const idle = await heap();
  // The half that warmed up is gone: its looks do not count.
  for (const client of connected.splice(0, clients)) await end(client);
  await sleep(SETTLED);
  print('connected', idle - before, await commands());
  const waiting = await heap();
  for (const client of connected) client.callTool({ name: 'ask', arguments: {} }).catch(() => {});
  await sleep(SETTLED);
  print('asked', (await heap()) - waiting, await commands());
  for (const client of connected) await client.close();
  child.disconnect();
}

async function connect(port, clients) {
  const connected = [];
  for (let nth = 0; nth < clients; nth += 1) {
    const client = new Client({ name: 'client', version: '1' }, { capabilities: { elicitation: {} } });
    client.setRequestHandler(ElicitRequestSchema, () => new Promise(() => {}));
    await client.connect(new StreamableHTTPClientTransport(new URL(`http://127.0.0.1:${port}/mcp`)));
    await client.listTools();
    connected.push(client);
  }
  return connected;
}

async function end(client) {
  await client.transport.terminateSession();
  await client.close();
}
