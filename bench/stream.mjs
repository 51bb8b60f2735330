/**
 * Measures the cost of a stream: appending an event in memory (time) and on Redis (commands, as the server counts
 * them), and the heap of open, idle streams.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { createServer, request } from 'node:http';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { systemClock } from '../dist/src/base/clock.js';
import { limitsOf } from '../dist/src/call/limits.js';
import { KeyvCallStore } from '../dist/src/checkpoint/call-store.js';
import { openStore } from '../dist/src/checkpoint/open-store.js';
import { toNodeHandler } from '../dist/src/node.js';
import { EventStreams } from '../dist/src/stream/event-streams.js';
import { sseSink } from '../dist/src/stream/sse-sink.js';
import { ownRedis } from './own-redis.mjs';

const SCOPE = 'a session';
const LIMITS = limitsOf();
const SSE = { clock: systemClock, keepAlive: LIMITS.keepAlive, stalled: LIMITS.stalled };
/** A progress notification. */
const DATA = JSON.stringify({
  jsonrpc: '2.0',
  method: 'notifications/progress',
  params: { progressToken: 1, progress: 42, total: 100, message: 'copying the files you asked for' },
});

export async function main(args) {
  const { values } = parseArgs({
    args,
    options: {
      events: { type: 'string', default: '20000' },
      streams: { type: 'string', default: '1000' },
      port: { type: 'string', default: '26379' },
    },
  });
  const events = Number(values.events);
  for (const kind of ['no store', 'in-memory store']) {
    const { median, p99 } = await appendInMemory(kind, events);
    console.log(
      `append, ${kind}: median ${median.toFixed(1)} us, 99th percentile ${p99.toFixed(1)} us (wanted: under 20 us)`,
    );
  }
  await appendOnRedis(Number(values.port));
  await idle(Number(values.streams));
}

/** @param store a Keyv, or `memory`; undefined: none */
function streamsOn(store) {
  const keyv = store === 'memory' ? undefined : store;
  return new EventStreams({
    ...(store !== undefined && { records: new KeyvCallStore(keyv, systemClock, LIMITS.lease) }),
    clock: systemClock,
    limits: { ...LIMITS, streams: 1_000_000 },
    warn: console.warn,
  });
}

/** Streams of 200 events, each followed by a connection that takes them at once. */
async function appendInMemory(kind, events) {
  const streams = streamsOn(kind === 'no store' ? undefined : 'memory');
  const times = [];
  for (let done = 0; done < events * 2; ) {
    const stream = streams.open(SCOPE);
    await (await streams.find(stream.id, 0, SCOPE)).follow(silentSink());
    for (let nth = 0; nth < 200; nth += 1, done += 1) {
      const before = performance.now();
      await stream.append({ event: 'message', data: DATA });
      // The first half warms up.
      if (done >= events) times.push((performance.now() - before) * 1_000);
    }
    streams.drop(SCOPE);
  }
  await streams.close();
  times.sort((a, b) => a - b);
  return { median: times[Math.floor(times.length / 2)], p99: times[Math.floor(times.length * 0.99)] };
}

function silentSink() {
  return { send: () => true, onReady() {}, onClose() {}, end() {} };
}

/** On a server of its own, so that all it counts is ours. */
async function appendOnRedis(port) {
  const redis = await ownRedis(port);
  if (redis === undefined) {
    console.log('append, Redis: skipped, redis-server does not start');
    return;
  }
  const { client } = redis;
  const keyv = await openStore(`redis://127.0.0.1:${port}`);
  const streams = streamsOn(keyv);
  for (const [what, first, appended] of [
    ['of a new stream that is followed', 0, 400],
    ['of a stream that is full (oldest deleted behind)', 600, 1_000],
  ]) {
    const stream = streams.open(SCOPE);
    await (await streams.find(stream.id, 0, SCOPE)).follow(silentSink());
    for (let nth = 0; nth < first; nth += 1) await stream.append({ data: DATA });
    await settled();
    await client.sendCommand(['CONFIG', 'RESETSTAT']);
    const before = performance.now();
    for (let nth = 0; nth < appended; nth += 1) await stream.append({ event: 'message', data: DATA });
    const each = (performance.now() - before) / appended;
    await settled();
    const counted = [];
    let total = 0;
    for (const [, name, calls] of (await client.info('commandstats')).matchAll(
      /^cmdstat_([^:]+):calls=(\d+)/gm,
    )) {
      if (['config|resetstat', 'info'].includes(name)) continue;
      counted.push(`${name} ${(Number(calls) / appended).toFixed(3)}`);
      total += Number(calls);
    }
    console.log(
      `append, Redis, ${what}: ${(total / appended).toFixed(3)} commands an event (${counted.join(', ')}); ${(each * 1_000).toFixed(0)} us (wanted: at most one round trip awaited)`,
    );
  }
  await streams.close();
  await keyv.disconnect();
  await redis.stop();
}

function settled() {
  return new Promise((resolve) => setTimeout(resolve, 300));
}

/** With one event in each: alone, and behind HTTP connections whose clients are another process. */
async function idle(count) {
  const wire = () => {
    const writer = { unsent: 0, write: () => true, end() {}, destroy() {}, onDrain() {}, onClose() {} };
    return sseSink(writer, SSE);
  };
  const streams = streamsOn('memory');
  const opened = [];
  const before = heap();
  for (let nth = 0; nth < count; nth += 1) opened.push(await openOne(streams, `session ${nth}`, wire()));
  const alone = (heap() - before) / count / 1_024;
  console.log(`heap of an idle stream, of ${opened.length}: ${alone.toFixed(1)} KiB (wanted: under 20 KiB)`);
  await streams.close();

  const served = streamsOn('memory');
  let connections = 0;
  const listener = toNodeHandler({
    serve: async () => ({
      status: 200,
      headers: { 'content-type': 'text/event-stream' },
      body: (writer) => {
        connections += 1;
        void openOne(served, `session ${connections}`, sseSink(writer, SSE));
      },
    }),
  });
  const server = createServer(listener).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const empty = heap();
  const client = fork(fileURLToPath(import.meta.url), [], {
    env: { ...process.env, BENCH_CONNECT: `${server.address().port} ${count}` },
  });
  await once(client, 'message');
  await settled();
  const all = (heap() - empty) / count / 1_024;
  console.log(`  with its HTTP connection, of ${connections}: ${all.toFixed(1)} KiB`);
  client.kill();
  await served.close();
  server.closeAllConnections();
  server.close();
}

async function openOne(streams, scope, sink) {
  const stream = streams.open(scope);
  await (await streams.find(stream.id, 0, scope)).follow(sink);
  await stream.append({ data: '', retry: 1_000 });
  return stream;
}

/** Without a flag on the command line: `gc` exists in contexts that are made once it is allowed. */
setFlagsFromString('--expose-gc');
const gc = runInNewContext('gc');

function heap() {
  for (let times = 0; times < 3; times += 1) gc();
  return process.memoryUsage().heapUsed;
}

async function hold(port, count) {
  for (let nth = 0; nth < count; nth += 1) {
    await new Promise((resolve, reject) => {
      const get = request({ port, host: '127.0.0.1', agent: false }, (response) => {
        response.once('data', resolve).resume();
      });
      get.on('error', reject).end();
    });
  }
  process.send('connected');
  process.on('disconnect', () => process.exit());
}

if (process.env.BENCH_CONNECT !== undefined) {
  const [port, count] = process.env.BENCH_CONNECT.split(' ').map(Number);
  await hold(port, count);
}
