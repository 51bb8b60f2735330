/**
 * Suspended calls: the heap that each one takes, and the time to resume one at another process, among few and among
 * many on Redis. The many are copies of one record under other names; the two stores are measured in turns.
 */
import { fork } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { openStore } from '../dist/src/checkpoint/open-store.js';
import { createAwaitHandler } from '../dist/src/index.js';
import { Connection, unexpected } from './connection.mjs';
import { median } from './interleaved.mjs';
import { ownRedis } from './own-redis.mjs';
import { build } from './round-trip/await.mjs';
import { HEAD } from './round-trip/client.mjs';
import { answered, asking, REVISION, SECRET, TOOL } from './round-trip/tool.mjs';

const SERVER = fileURLToPath(new URL('suspended-server.mjs', import.meta.url));
/** Calls whose heap is measured, after as many that warm up. */
const SUSPENDED = 2_000;
const CONNECTIONS = 50;
const PIPELINE = 10_000;

export async function main(args) {
  const { values } = parseArgs({
    args,
    options: {
      calls: { type: 'string', default: '400' },
      few: { type: 'string', default: '1000' },
      many: { type: 'string', default: '1000000' },
      port: { type: 'string', default: '26380' },
      'skip-heap': { type: 'boolean', default: false },
    },
  });
  if (!values['skip-heap']) await heap();
  await resumed(Number(values.calls), [Number(values.few), Number(values.many)], Number(values.port));
}

async function heap() {
  for (const [what, state, frames] of [
    ['parked', 'stored', 1_000_000],
    ['dropped, in memory', 'stored', 10],
    ['dropped, sealed', 'sealed', 10],
  ]) {
    const child = fork(SERVER, [state, String(frames)], {
      execArgv: ['--expose-gc'],
      env: { ...process.env, NODE_ENV: 'production' },
    });
    const [{ port }] = await once(child, 'message');
    const used = async () => {
      child.send('heap');
      const [reply] = await once(child, 'message');
      return reply;
    };
    await suspend(port, SUSPENDED);
    const before = await used();
    await suspend(port, SUSPENDED);
    const after = await used();
    child.disconnect();
    const kept = after.parked - before.parked;
    if (kept !== (frames > SUSPENDED ? SUSPENDED : 0)) throw new Error(`${kept} frames were kept`);
    const each = (after.heap - before.heap) / SUSPENDED / 1_024;
    console.log(`heap of a suspended call, ${what}: ${each.toFixed(1)} KiB`);
  }
}

/** Leaves calls suspended, over connections that close. */
async function suspend(port, calls) {
  const connections = await Promise.all(Array.from({ length: CONNECTIONS }, () => Connection.open(port)));
  for (let done = 0; done < calls; done += CONNECTIONS) {
    await Promise.all(
      connections.map(async (connection, nth) => {
        const { message } = await connection.exchange(HEAD, asking(done + nth, `branch-${done + nth}`));
        if (message?.result?.resultType !== 'input_required') throw unexpected(message);
      }),
    );
  }
  for (const connection of connections) connection.close();
}

async function resumed(calls, sizes, port) {
  const stores = await Promise.all(sizes.map((size, nth) => storeOf(size, port + nth)));
  if (stores.includes(undefined)) {
    console.log('resume: skipped, redis-server does not start');
    return;
  }
  for (let nth = -100; nth < calls; nth += 1) {
    for (const { handlers, times } of stores) {
      const [here, elsewhere] = handlers;
      const { inputRequests, requestState } = (await post(here, asking(1, `branch-${nth}`))).result;
      const [key] = Object.keys(inputRequests);
      const began = performance.now();
      await post(elsewhere, answered(2, `branch-${nth}`, key, requestState));
      // The first ones warm up.
      if (nth >= 0) times.push(performance.now() - began);
    }
  }
  const medians = stores.map(({ times }) => median(times));
  for (const [nth, size] of sizes.entries())
    console.log(`resume elsewhere, Redis, ${size} suspended: ${medians[nth].toFixed(2)} ms`);
  console.log(`ratio: ${(medians[1] / medians[0]).toFixed(2)} (wanted: at most 1.2)`);
  for (const { stop } of stores) await stop();
}

/** Two handlers on a store with so many suspended calls. */
async function storeOf(size, port) {
  const redis = await ownRedis(port);
  if (redis === undefined) return undefined;
  const opened = [await openStore(redis.url), await openStore(redis.url)];
  const handlers = opened.map((store) => createAwaitHandler(() => build(), { secrets: [SECRET], store }));
  await post(handlers[0], asking(1, 'copied'));
  const [name] = await redis.client.keys('*');
  const value = await redis.client.get(name);
  // Its name ends in a digest of 22 characters and the position.
  const copy = () => name.replace(/[\w-]{22}:0$/, `${randomBytes(17).toString('base64url').slice(0, 22)}:0`);
  for (let done = 0; done < size; done += PIPELINE) {
    const batch = redis.client.multi();
    for (let nth = done; nth < Math.min(done + PIPELINE, size); nth += 1) batch.set(copy(), value);
    await batch.execAsPipeline();
  }
  console.log(`${await redis.client.dbSize()} records at port ${port}`);
  const stop = async () => {
    for (const handler of handlers) await handler.close();
    // A client whose server stops would try to reconnect for ever.
    for (const store of opened) await store.disconnect();
    await redis.stop();
  };
  return { handlers, times: [], stop };
}

async function post({ fetch }, body) {
  const headers = {
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    'mcp-protocol-version': REVISION,
    'mcp-method': 'tools/call',
    'mcp-name': TOOL,
  };
  const request = new Request('http://127.0.0.1/mcp', {
    method: 'POST',
    headers,
    body: JSON.stringify(body),
  });
  return (await fetch(request)).json();
}
