/**
 * What requests hold while the store keeps them waiting: sixty requests of a stranger to sixty calls, stopped before
 * their first operation of the store, before their second, and so on. Of the long records that they have read by then
 * the process holds no more than those that are being read, wherever they are stopped.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import Keyv from 'keyv';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { deferred } from '../../src/base/values.ts';
import { tuned } from '../../src/call/limits.ts';
import { type AwaitHandler, createAwaitHandler } from '../../src/index.ts';
import { accept, post, type Rpc } from '../e2e/clients.ts';
import { SECRET } from '../e2e/harness.ts';
import { answer, call, HEADERS, inSession, type Peer } from './peer.ts';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

const CALLS = 60;
/** Characters of the arguments, answers and results: each is a byte in memory. */
const LONG = 300_000;
/** Long texts that may be in memory: eight are read at once, and each is there as a record and as what was read of it. */
const MOST = 30;
/** Bytes of arguments, as they are estimated, that the attacked process may hold of one caller. */
const ARGUMENTS = 8 * LONG;

const long = (): string => 'x'.repeat(LONG);

/** The operations of the store that each request has made. */
const requests = new AsyncLocalStorage<{ made: number }>();
let most = Infinity;
let operations = 0;
let gate = deferred();
const records = new Map<string, string>();

async function pass(): Promise<void> {
  operations += 1;
  const request = requests.getStore();
  if (request === undefined) return;
  request.made += 1;
  if (request.made > most) await gate.promise;
}

const adapter = () => ({
  opts: {},
  get: async (key: string) => {
    await pass();
    return records.get(key);
  },
  set: async (key: string, value: string) => {
    await pass();
    return records.set(key, value) !== undefined;
  },
  delete: async (key: string) => {
    await pass();
    return records.delete(key);
  },
  clear: () => records.clear(),
});

function build(): McpServer {
  const server = new McpServer({ name: 'held', version: '1' });
  const ask = async (): Promise<string> => {
    const requestedSchema = { type: 'object' as const, properties: { text: { type: 'string' as const } } };
    const { content } = await server.server.elicitInput({ message: '?', requestedSchema });
    return String(content?.text);
  };
  const text = (value: string) => ({ content: [{ type: 'text' as const, text: value }] });
  server.registerTool('large', {}, () => text(long()));
  server.registerTool('late', {}, async () => {
    await sleep(50);
    return text(long());
  });
  server.registerTool('asks', { inputSchema: { text: z.string() } }, async () => text(await ask()));
  server.registerTool('twice', {}, async () => text(`${(await ask()).length} ${(await ask()).length}`));
  return server;
}

function process(argumentBytes: number): AwaitHandler {
  return createAwaitHandler(build, {
    ...tuned({
      lease: 60_000,
      drain: 1,
      argumentBytes: 4 * argumentBytes,
      callerArgumentBytes: argumentBytes,
    }),
    store: new Keyv({ store: adapter() }),
    secrets: [SECRET],
    tasks: 'now',
    logger: { debug() {}, info() {}, warn() {}, error() {} },
  });
}

const OWNER = 'http://owner/mcp';
const OTHER = 'http://other/mcp';
const handlers = new Map<string, AwaitHandler>();
const global = globalThis.fetch;

beforeEach(() => {
  globalThis.fetch = (input, init) => {
    const request = new Request(input, init);
    const handler = handlers.get(new URL(request.url).hostname);
    if (handler === undefined) throw new Error(`no process ${request.url}`);
    return handler.fetch(request);
  };
});
afterEach(() => {
  globalThis.fetch = global;
});

/** Ten at a time. */
async function each<T>(make: (nth: number) => Promise<T>): Promise<T[]> {
  const made: T[] = [];
  while (made.length < CALLS)
    made.push(...(await Promise.all(Array.from({ length: 10 }, (_, nth) => make(made.length + nth)))));
  return made;
}

/** Begins a call that asks, and reads its reply on. @returns its question, and the id of its first event */
async function asked(peer: Peer, nth: number): Promise<{ ask: Rpc; first: string }> {
  const { body } = await peer.send(call(nth, 'asks', { text: long() }));
  const reader = body?.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  while (!/^data: \{.*"elicitation\/create".*\n/m.test(text)) text += (await reader?.read())?.value ?? '';
  void (async () => {
    while ((await reader?.read())?.done === false);
  })();
  const [, ask = ''] = /^data: (\{.*"elicitation\/create".*)/m.exec(text) ?? [];
  return { ask: JSON.parse(ask), first: /^id: (.+)$/m.exec(text)?.[1] ?? '' };
}

interface Send {
  (nth: number, signal: AbortSignal): Promise<unknown>;
  /** What is still served after all of them. */
  readonly next?: () => Promise<void>;
}

const sending =
  (peer: Peer, body: (nth: number) => object): Send =>
  (nth, signal) =>
    fetch(OTHER, {
      method: 'POST',
      headers: { ...HEADERS, ...peer.headers },
      body: JSON.stringify(body(nth)),
      signal,
    });
const resuming =
  (peer: Peer, ids: readonly string[]): Send =>
  (nth, signal) =>
    fetch(OTHER, {
      headers: { ...peer.headers, accept: 'text/event-stream', 'last-event-id': ids[nth] ?? '' },
      signal,
    });

/** What is done before, and then asked for in another process. */
const KINDS: Readonly<Record<string, (peer: Peer) => Promise<Send>>> = {
  'resumes of replies': async (peer) => {
    const replies = await each(async (nth) => (await peer.send(call(nth, 'late'))).text());
    return resuming(
      peer,
      replies.map((text) => /^id: (.+)$/m.exec(text)?.[1] ?? ''),
    );
  },
  'resumes of waiting calls': async (peer) => {
    const calls = await each((nth) => asked(peer, nth));
    return resuming(
      peer,
      calls.map(({ first }) => first),
    );
  },
  answers: async (peer) => {
    const calls = await each((nth) => asked(peer, nth));
    return sending(peer, (nth) => answer(calls[nth]?.ask.id, { text: 'y' }));
  },
  'answers that break their schema': async (peer) => {
    const calls = await each((nth) => asked(peer, nth));
    return sending(peer, (nth) => answer(calls[nth]?.ask.id, { text: 5 }));
  },
  cancellations: async (peer) => {
    await each((nth) => asked(peer, nth));
    return sending(peer, (requestId) => ({
      jsonrpc: '2.0',
      method: 'notifications/cancelled',
      params: { requestId },
    }));
  },
  'looks at tasks that wait': async (peer) => {
    const ids = await each(async (nth) => {
      const request = call(nth, 'asks', { text: long() });
      const { text } = await peer.post({ ...request, params: { ...request.params, task: {} } });
      return /"taskId":"([^"]+)"/.exec(text)?.[1];
    });
    return sending(peer, (nth) => ({
      jsonrpc: '2.0',
      id: nth + CALLS,
      method: 'tasks/get',
      params: { taskId: ids[nth] },
    }));
  },
  'results of tasks': async (peer) => {
    const ids = await each(async (nth) => {
      const request = call(nth, 'large', {});
      const { text } = await peer.post({ ...request, params: { ...request.params, task: {} } });
      return /"taskId":"([^"]+)"/.exec(text)?.[1];
    });
    const request = sending(peer, (nth) => ({
      jsonrpc: '2.0',
      id: nth + CALLS,
      method: 'tasks/result',
      params: { taskId: ids[nth % CALLS] },
    }));
    // Read at once: what a client has not read yet is counted elsewhere.
    const send: Send = async (nth, signal) =>
      (await ((await request(nth, signal)) as Response).text()).length;
    // Four are made at once: none of those that went may be in the way of the next one.
    const next = async (): Promise<void> => {
      expect(await send(CALLS, AbortSignal.timeout(30_000))).toBeGreaterThan(LONG);
    };
    return Object.assign(send, { next });
  },
  'states behind long answers': async () => {
    const replies = await each(async () => {
      const first = await post(OWNER, { tool: 'twice' });
      return post(OWNER, {
        tool: 'twice',
        state: first.state,
        responses: accept(first.keys, { text: long() }),
      });
    });
    return async (nth, signal) => {
      const { state, keys = [] } = replies[nth] ?? {};
      return post(OTHER, { tool: 'twice', state, responses: accept(keys, { text: 'z' }), signal });
    };
  },
};

/** @returns how many long texts are held while each request waits for an operation; false once none does any more */
async function heldAt(operation: number, kind: (peer: Peer) => Promise<Send>): Promise<number | false> {
  most = Infinity;
  gate = deferred();
  records.clear();
  handlers.set('owner', process(CALLS * 4 * LONG));
  handlers.set('other', process(ARGUMENTS));
  const send = await kind(await inSession(OWNER, '2025-11-25'));
  most = operation;
  await sleep(100);
  collect();
  const before = globalThis.process.memoryUsage().heapUsed;
  const stop = new AbortController();
  let done = 0;
  // Undici cancels the body of a `Response` that is garbage-collected.
  const replies: unknown[] = [];
  const over = (reply: unknown): void => {
    replies.push(reply);
    done += 1;
  };
  const sent = Array.from({ length: CALLS }, (_, nth) =>
    requests.run({ made: 0 }, () => send(nth, stop.signal)).then(over, over),
  );
  for (let last = ''; last !== `${operations} ${done}`; ) {
    last = `${operations} ${done}`;
    await sleep(60);
  }
  collect();
  const held = (globalThis.process.memoryUsage().heapUsed - before) / LONG;
  const isOver = done === CALLS && replies.length === CALLS;
  stop.abort();
  gate.resolve();
  await Promise.race([Promise.all(sent), sleep(1_000)]);
  await requests.run({ made: -Infinity }, async () => send.next?.());
  for (const handler of handlers.values()) void handler.close();
  // A reply that is made stays until the record beside it is written: what such requests leave behind is tried instead.
  if (send.next === undefined) expect(held, `before operation ${operation + 1}`).toBeLessThan(MOST);
  return isOver ? false : held;
}

describe('a process holds what is being read, and no more, for', () => {
  it.each(Object.entries(KINDS))('%s', { timeout: 300_000 }, async (_what, kind) => {
    let operation = 0;
    while ((await heldAt(operation, kind)) !== false) operation += 1;
    expect(operation).toBeGreaterThan(0);
  });
});
