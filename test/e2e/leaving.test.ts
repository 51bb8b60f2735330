/** Processes that end by a signal, as `closeOnSignals` does it: what their clients get meanwhile, and that they end. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { Agent, type IncomingMessage, request } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import process from 'node:process';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeAll, describe, expect, it } from 'vitest';
import { ownStore } from '../chaos/stores.ts';
import { some } from '../short.ts';
import { CAPABILITIES, modernHeaders, post, type Rpc, textOf } from './clients.ts';
import { compiled, effectsIn, SECRET, scratch } from './harness.ts';
import { NATS, NATS_URL, REDIS, REDIS_URL, SQLITE, STORES } from './services.ts';

interface Leaving {
  readonly url: string;
  readonly child: ChildProcess;
  /** The code that it exits with, by itself. */
  readonly exit: Promise<number | null>;
  readonly stderr: () => string;
}

/** A process with nothing to do before it ends. */
const IDLE = `
import { createServer } from 'node:http';
import { closeOnSignals } from '${new URL('../../dist/src/node.js', import.meta.url).href}';
const nothing = async () => {};
const server = createServer().listen(0, '127.0.0.1', () => console.log('listening'));
closeOnSignals(server, { leave: nothing, close: nothing, release: nothing });
`;
const CLI = new URL('../../dist/src/cli/main.js', import.meta.url).pathname;
let script = '';
beforeAll(async () => {
  script = await compiled(new URL('../fixtures/leaving-server.ts', import.meta.url).pathname);
});
const children: ChildProcess[] = [];
afterEach(() => children.splice(0).forEach((child) => void child.kill('SIGKILL')));

async function start(args: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<Leaving> {
  const child = spawn(process.execPath, args, {
    env: { ...process.env, MCP_AWAIT_SECRET: SECRET, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  children.push(child);
  let stderr = '';
  child.stderr.on('data', (chunk: Buffer) => {
    stderr += chunk.toString();
  });
  const exit = once(child, 'exit').then(([code]) => code as number | null);
  const [line] = (await once(createInterface({ input: child.stdout }), 'line')) as [string];
  return { url: line.replace('listening on ', ''), child, exit, stderr: () => stderr };
}

interface Own {
  readonly store: string;
  readonly relay?: string;
  readonly gate?: string;
  readonly drain?: number;
}

function own({ store, relay = '', gate = join(scratch(), 'gate'), drain = 10_000 }: Own): Promise<Leaving> {
  return start([script], {
    LEAVING_STORE: store,
    LEAVING_RELAY: relay,
    LEAVING_GATE: gate,
    LEAVING_DRAIN: String(drain),
  });
}

/** Resolves once a process refuses new connections. */
async function refusing(url: string): Promise<void> {
  const { port } = new URL(url);
  const isRefused = (): Promise<boolean> =>
    new Promise((resolve) => {
      const socket = connect(Number(port), '127.0.0.1', () => {
        socket.destroy();
        resolve(false);
      });
      socket.once('error', () => resolve(true));
    });
  await expect.poll(isRefused).toBe(true);
}

interface Exchanged {
  readonly status: number | undefined;
  readonly type: string | undefined;
  readonly connection: string | undefined;
  readonly keepAlive: string | undefined;
  readonly reused: boolean;
  readonly text: string;
}

/** A call of 2026-07-28 on a connection of an agent. */
function callOn(agent: Agent, url: string, name: string): Promise<Exchanged> {
  const params = {
    name,
    _meta: {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientInfo': { name: 'e2e', version: '1' },
      'io.modelcontextprotocol/clientCapabilities': CAPABILITIES,
    },
  };
  return postOn(agent, url, params, modernHeaders('tools/call', name));
}

async function postOn(
  agent: Agent,
  url: string,
  params: object,
  headers: Readonly<Record<string, string>>,
): Promise<Exchanged> {
  const sent = request(url, {
    agent,
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      ...headers,
    },
  });
  sent.end(JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params }));
  const [reply] = (await once(sent, 'response')) as [IncomingMessage];
  let text = '';
  for await (const chunk of reply) text += chunk;
  const { connection, 'keep-alive': keepAlive, 'content-type': type } = reply.headers;
  return {
    status: reply.statusCode,
    type,
    connection,
    keepAlive: String(keepAlive),
    reused: sent.reusedSocket,
    text,
  };
}

/** A stream of a session of 2025-11-25, as text. */
class Wire {
  text = '';
  over = false;

  constructor(response: Response) {
    void this.#read(response);
  }

  async #read(response: Response): Promise<void> {
    for await (const chunk of response.body?.pipeThrough(new TextDecoderStream()) ?? []) this.text += chunk;
    this.over = true;
  }

  get lastId(): string {
    return [...this.text.matchAll(/^id: (.*)$/gm)].at(-1)?.[1] ?? '';
  }

  messages(): Rpc[] {
    return [...this.text.matchAll(/^data: (\{.*\})$/gm)].map((match) => JSON.parse(match[1] ?? '') as Rpc);
  }
}

class Session {
  headers: Record<string, string> = {};

  static async begin(url: string): Promise<Session> {
    const session = new Session();
    const clientInfo = { name: 'e2e', version: '1' };
    const params = { protocolVersion: '2025-11-25', capabilities: { elicitation: {} }, clientInfo };
    const reply = await session.post(url, { id: 0, method: 'initialize', params });
    await reply.text();
    session.headers = {
      'mcp-session-id': reply.headers.get('mcp-session-id') ?? '',
      'mcp-protocol-version': '2025-11-25',
    };
    return session;
  }

  post(url: string, message: object): Promise<Response> {
    return fetch(url, {
      method: 'POST',
      body: JSON.stringify({ jsonrpc: '2.0', ...message }),
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        connection: 'close',
        ...this.headers,
      },
    });
  }

  get(url: string, last?: string): Promise<Response> {
    const from = last === undefined ? {} : { 'last-event-id': last };
    return fetch(url, {
      headers: { accept: 'text/event-stream', connection: 'close', ...this.headers, ...from },
    });
  }
}

describe.each(some(STORES))('a process on $name that gets SIGTERM', ({ url: placeOf, down }) => {
  it.skipIf(down)('serves what comes on open connections, closes each, and exits by itself', async () => {
    const leaving = await own({ store: placeOf() });
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    expect(await callOn(agent, leaving.url, 'hello')).toMatchObject({
      status: 200,
      connection: 'keep-alive',
    });
    leaving.child.kill('SIGTERM');
    await refusing(leaving.url);
    const last = await callOn(agent, leaving.url, 'hello');
    expect(last).toMatchObject({ status: 200, connection: 'close', reused: true });
    expect(last.text).toContain('hello');
    expect(await leaving.exit).toBe(0);
    expect(leaving.stderr()).toBe('');
    agent.destroy();
  });

  it.skipIf(down)('says of a connection that has an event stream what becomes of it', async () => {
    const gate = join(scratch(), 'gate');
    writeFileSync(gate, '');
    const leaving = await own({ store: placeOf(), gate });
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const { headers } = await Session.begin(leaving.url);
    const work = () => postOn(agent, leaving.url, { name: 'work', arguments: {} }, headers);
    const stream = { status: 200, type: 'text/event-stream' };
    expect(await work()).toMatchObject({ ...stream, connection: 'keep-alive', keepAlive: 'timeout=2' });
    leaving.child.kill('SIGTERM');
    await refusing(leaving.url);
    expect(await work()).toMatchObject({ ...stream, connection: 'close', reused: true });
    expect(await leaving.exit).toBe(0);
    agent.destroy();
  });

  it.skipIf(down)(
    'ends the stream of a call that waits with a pause, and another process goes on',
    async () => {
      const store = placeOf();
      const [leaving, staying] = [await own({ store, drain: 50 }), await own({ store, drain: 50 })];
      const session = await Session.begin(leaving.url);
      const standing = new Wire(await session.get(leaving.url));
      const message = { id: 7, method: 'tools/call', params: { name: 'ask', arguments: {} } };
      const first = new Wire(await session.post(leaving.url, message));
      await expect.poll(() => first.text).toContain('elicitation/create');
      leaving.child.kill('SIGTERM');
      await expect.poll(() => [first.over, standing.over]).toEqual([true, true]);
      for (const { text } of [first, standing]) expect(text).toMatch(/\nretry: 5000\n\n: closing/);
      expect(first.messages().filter(({ id }) => id === 7)).toEqual([]);
      const again = new Wire(await session.get(staying.url, first.lastId));
      await expect.poll(() => again.text).toContain('data: \n\n');
      expect(again.text).toMatch(/^retry: 1000\n\nid: .*\ndata: \n\n/);
      expect(again.text.split('\n')).toContain(`id: ${first.lastId}`);
      const ask = first.messages().find(({ method }) => method === 'elicitation/create');
      const answer = { id: ask?.id, result: { action: 'accept', content: {} } };
      expect((await session.post(staying.url, answer)).status).toBe(202);
      await expect.poll(() => again.text).toContain('"accept"');
      expect(await leaving.exit).toBe(0);
    },
  );

  it.skipIf(down)('says to a workspace’s stream that it ends, also right after its GET', async () => {
    const leaving = await own({ store: placeOf(), drain: 50 });
    const stream = await fetch(new URL('/mcp/here', leaving.url), {
      headers: { accept: 'text/event-stream', connection: 'close' },
    });
    leaving.child.kill('SIGTERM');
    expect(await stream.text()).toMatch(/"method":"streamClosed","params":\{"reason":"shutdown"\}\}\n\n$/);
    expect(await leaving.exit).toBe(0);
  });

  const relays = [
    { relay: REDIS_URL, service: REDIS },
    { relay: NATS_URL, service: NATS },
  ];
  describe.each(relays)('with a relay over $service.name', ({ relay, service }) => {
    it.skipIf(down || service.down)('exits by itself too', async () => {
      const leaving = await own({ store: placeOf(), relay });
      expect((await post(leaving.url, { tool: 'ask' })).keys).toHaveLength(1);
      leaving.child.kill('SIGTERM');
      expect(await leaving.exit).toBe(0);
      expect(leaving.stderr()).toBe('');
    });
  });
});

describe('a process that gets SIGTERM', () => {
  it('lets a call end that runs, whatever other signal comes beside it', async () => {
    const gate = join(scratch(), 'gate');
    const leaving = await own({ store: SQLITE.url(), gate });
    const running = post(leaving.url, { tool: 'work' });
    await expect.poll(() => effectsIn(`${gate}.done`)).toEqual(['slow']);
    leaving.child.kill('SIGTERM');
    await refusing(leaving.url);
    leaving.child.kill('SIGINT');
    await sleep(200);
    writeFileSync(gate, '');
    expect(textOf(await running)).toBe('worked');
    expect(await leaving.exit).toBe(0);
    expect(effectsIn(`${gate}.done`)).toEqual(['slow', 'next']);
  });

  it.each([2, 4, 6, 7, 8, 9, 10, 12])(
    'ends by itself with code 0, another signal %i ms later',
    async (later) => {
      const idle = await start(['--input-type=module', '-e', IDLE]);
      idle.child.kill('SIGTERM');
      await sleep(later);
      idle.child.kill('SIGTERM');
      expect(await idle.exit).toBe(0);
    },
  );

  it('ends at once at the third signal', async () => {
    const gate = join(scratch(), 'gate');
    const leaving = await own({ store: SQLITE.url(), gate });
    const running = post(leaving.url, { tool: 'work' }).catch(() => 'broken');
    await expect.poll(() => effectsIn(`${gate}.done`)).toEqual(['slow']);
    leaving.child.kill('SIGTERM');
    await refusing(leaving.url);
    leaving.child.kill('SIGINT');
    leaving.child.kill('SIGHUP');
    expect([129, 130, 143]).toContain(await leaving.exit);
    expect(await running).toBe('broken');
  });

  it.each(some([true, false]))(
    'serves a request as late as its client was told: signalled %s',
    async (isSignalled) => {
      const leaving = await own({ store: SQLITE.url() });
      const agent = new Agent({ keepAlive: true, maxSockets: 1 });
      const { keepAlive } = await callOn(agent, leaving.url, 'hello');
      const announced = Number(/timeout=(\d+)/.exec(keepAlive ?? '')?.[1]);
      if (isSignalled) leaving.child.kill('SIGTERM');
      await sleep(announced * 1_000);
      expect(await callOn(agent, leaving.url, 'hello')).toMatchObject({ status: 200, reused: true });
      if (!isSignalled) leaving.child.kill('SIGTERM');
      expect(await leaving.exit).toBe(0);
      agent.destroy();
    },
  );
});

describe('mcp-await serve', () => {
  const fixture = new URL('../fixtures/asking-server.ts', import.meta.url).pathname;

  it('says at /readyz that it leaves, and serves on for as long as it lingers', async () => {
    const args = ['--port', '0', '--store', SQLITE.url(), '--linger', '3s', '--idle-time', '1s'];
    const leaving = await start([CLI, 'serve', await compiled(fixture), ...args]);
    const at = async (path: string): Promise<unknown> => {
      const reply = await fetch(new URL(path, leaving.url), { headers: { connection: 'close' } });
      return [reply.status, await reply.json()];
    };
    expect(await at('/readyz')).toEqual([200, { ready: true }]);
    leaving.child.kill('SIGTERM');
    const reason = 'this process is about to end';
    await expect.poll(() => at('/readyz')).toEqual([503, { ready: false, reason }]);
    expect(await at('/healthz')).toEqual([200, { ready: true }]);
    expect((await post(leaving.url, { tool: 'one', headers: { connection: 'close' } })).keys).toHaveLength(1);
    expect(await leaving.exit).toBe(0);
  });

  it.skipIf(REDIS.down).each([
    ['store', (url: string) => ['--store', url]],
    ['relay', (url: string) => ['--store', SQLITE.url(), '--relay', url]],
  ] as const)('ends by itself while its %s is silent, and says so', async (what, on) => {
    const redis = await ownStore('redis');
    try {
      const args = [...on(redis.url), '--limit', 'lease=1000', '--idle-time', '1s'];
      const leaving = await start([CLI, 'serve', await compiled(fixture), '--port', '0', ...args]);
      await redis.pause();
      // Where it reads its store, that read is under way.
      const ready = await fetch(new URL('/readyz', leaving.url), { headers: { connection: 'close' } });
      expect(ready.status).toBe(what === 'store' ? 503 : 200);
      leaving.child.kill('SIGTERM');
      expect(await leaving.exit).toBe(1);
      expect(leaving.stderr()).toContain(`the ${what} does not answer, so its connection stays open`);
    } finally {
      redis.remove();
    }
  });
});
