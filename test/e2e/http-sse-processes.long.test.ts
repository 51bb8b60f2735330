/** HTTP+SSE of 2024-11-05 over several processes: the stream is at one, whatever is posted goes to the others. */
import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import process from 'node:process';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { CAPABILITIES, oldest, type Rpc } from './clients.ts';
import { effectsIn, Fleet, LEASE, type Spawned, scratch, spawnServers } from './harness.ts';
import { Reader } from './reader.ts';
import { REDIS, REDIS_URL, SQLITE } from './services.ts';
import { TOOLS } from './tools.ts';

const KINDS = [
  { name: REDIS.name, down: REDIS.down, args: () => ['--store', REDIS_URL] },
  {
    name: `${REDIS.name}, with a relay`,
    down: REDIS.down,
    args: () => ['--store', REDIS_URL, '--relay', REDIS_URL],
  },
  { name: SQLITE.name, down: false, args: () => ['--store', SQLITE.url()] },
];
/** A call is taken over after a lease of silence, once another process noticed it. */
const PATIENCE = 60_000;

let servers: Spawned[] = [];

const rootOf = (nth: number): string => (servers[nth]?.url ?? '').replace(/\/mcp$/, '');

interface Line {
  /** The path to post to, the same at every process. */
  readonly endpoint: string;
  readonly reader: Reader;
}

async function open(at: number, last?: string): Promise<Line> {
  const headers = { accept: 'text/event-stream', ...(last !== undefined && { 'last-event-id': last }) };
  const reader = new Reader(await fetch(`${rootOf(at)}/sse`, { headers }));
  await expect.poll(() => reader.text).toContain('sessionId=');
  return { reader, endpoint: /^data: (.+)$/m.exec(reader.text)?.[1] ?? '' };
}

async function post({ endpoint }: Line, to: number, message: object): Promise<void> {
  const response = await fetch(`${rootOf(to)}${endpoint}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ jsonrpc: '2.0', ...message }),
  });
  expect([response.status, await response.text()]).toEqual([202, 'Accepted']);
}

/** A session whose stream is at the first process, and whose client introduced itself at another. */
async function begin(): Promise<Line> {
  const line = await open(0);
  const clientInfo = { name: 'anywhere', version: '1' };
  const params = { protocolVersion: '2024-11-05', capabilities: CAPABILITIES, clientInfo };
  await post(line, 1, { id: 'begin', method: 'initialize', params });
  await line.reader.next(({ id }) => id === 'begin');
  return line;
}

const asks = (field: string) => (message: Rpc) =>
  message.method === 'elicitation/create' && message.params?.message === `${field}?`;
const answer = ({ id }: Rpc, field: string) => ({
  id,
  result: { action: 'accept', content: { [field]: `its ${field}` } },
});
const call = (name: string) => ({ id: 7, method: 'tools/call', params: { name, arguments: {} } });
const isResult = ({ id }: Rpc): boolean => id === 7;
const textIn = ({ result }: Rpc): string | undefined => result?.content?.[0]?.text;

/**
 * Sends requests where `root` says. The SDK's transport replaces the headers of its EventSource, and
 * `Last-Event-ID` with them: this puts it back.
 */
function resuming(root: () => string): typeof fetch {
  let last: string | undefined;
  return async (input, init) => {
    const { pathname, search } = new URL(String(input));
    const headers = new Headers(init?.headers);
    const isStream = init?.method !== 'POST';
    if (isStream && last !== undefined) headers.set('last-event-id', last);
    const send = (): Promise<Response> => fetch(`${root()}${pathname}${search}`, { ...init, headers });
    // An answer that a dying process did not take may be sent again: its first counts.
    const response = await (isStream ? send() : send().catch(send));
    if (!isStream || response.body === null) return response;
    // An event counts once it is whole.
    let text = '';
    const watched = new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller) {
        text += Buffer.from(chunk).toString('latin1');
        const end = text.lastIndexOf('\n\n') + 1;
        last = [...text.slice(0, end).matchAll(/^id: (.+)$/gm)].at(-1)?.[1] ?? last;
        text = text.slice(end);
        controller.enqueue(chunk);
      },
    });
    return new Response(response.body.pipeThrough(watched), response);
  };
}

for (const kind of KINDS) {
  describe.skipIf(kind.down)(`HTTP+SSE at processes on ${kind.name}`, () => {
    const effects = join(scratch(), 'effects');
    const fleet = new Fleet('asking-server.ts', 3, { args: kind.args(), env: { EFFECTS: effects } });
    afterAll(() => fleet.down());
    const start = async (count: number): Promise<void> => {
      servers = (await fleet.up()).slice(0, count);
    };
    const actedSince = (before: number): string[] =>
      effectsIn(effects)
        .slice(before)
        .filter((effect) => effect !== 'finally');

    it.each([2, 3])(
      "%i processes: the SDK's client completes every tool, no POST where its stream is",
      async (count) => {
        await start(count);
        let posts = 0;
        const client = await oldest(
          `${rootOf(0)}/sse`,
          {},
          {
            fetch: (url, init) => {
              if (init?.method !== 'POST') return fetch(url, init);
              posts += 1;
              const { pathname, search } = new URL(url);
              return fetch(`${rootOf(1 + (posts % (count - 1)))}${pathname}${search}`, init);
            },
          },
        );
        for (const [tool, result] of TOOLS) expect(await client.tool(tool)).toBe(result);
        const asked = TOOLS.flatMap(([, , questions]) => questions);
        expect([...client.asked].sort()).toEqual([...asked].sort());
        await client.close();
        expect(posts).toBeGreaterThan(asked.length + TOOLS.length);
      },
    );

    it('take the answer to an ask at a process that neither runs the call nor has the stream', async () => {
      await start(3);
      const line = await begin();
      await post(line, 1, call('in-turn'));
      for (const [nth, field] of ['name', 'city', 'street'].entries()) {
        await post(line, [2, 0, 1][nth] ?? 0, answer(await line.reader.next(asks(field)), field));
      }
      expect(textIn(await line.reader.next(isResult))).toBe('its name, its city, its street');
      expect(line.reader.messages.filter(isResult)).toHaveLength(1);
    });

    it(
      'end a call whose process was killed, on the open stream, and run no completed step twice',
      async () => {
        await start(3);
        const line = await begin();
        const before = effectsIn(effects).length;
        await post(line, 1, call('order'));
        const ask = await line.reader.next(asks('address'));
        await servers[1]?.kill();
        // In the call's log, though no process runs it.
        await post(line, 2, answer(ask, 'address'));
        const name = await line.reader.next(asks('name'));
        await post(line, 2, answer(name, 'name'));
        expect(textIn(await line.reader.next(isResult))).toBe('its name, its address, 43');
        expect(actedSince(before)).toEqual(['charge', 'ship']);
        expect(line.reader.messages.filter(isResult)).toHaveLength(1);
      },
      PATIENCE,
    );

    it('continue at another process when the one that has the stream is killed', async () => {
      await start(3);
      const line = await begin();
      await post(line, 1, call('in-turn'));
      const ask = await line.reader.next(asks('name'));
      const { last } = line.reader;
      await servers[0]?.kill();
      await expect.poll(() => line.reader.over).toBe(true);
      // Events are kept while the client is not connected.
      await post(line, 1, answer(ask, 'name'));
      const again = await open(2, last);
      expect(again.endpoint).toBe(line.endpoint);
      await post(again, 2, answer(await again.reader.next(asks('city')), 'city'));
      await post(again, 1, answer(await again.reader.next(asks('street')), 'street'));
      expect(textIn(await again.reader.next(isResult))).toBe('its name, its city, its street');
      expect(again.reader.messages.filter(asks('name'))).toEqual([]);
    });

    it(
      'go on when the process that has the stream and runs the call is killed',
      async () => {
        await start(2);
        const line = await begin();
        const before = effectsIn(effects).length;
        await post(line, 0, call('order'));
        const ask = await line.reader.next(asks('address'));
        const { last } = line.reader;
        await servers[0]?.kill();
        const again = await open(1, last);
        await post(again, 1, answer(ask, 'address'));
        await post(again, 1, answer(await again.reader.next(asks('name')), 'name'));
        expect(textIn(await again.reader.next(isResult))).toBe('its name, its address, 43');
        expect(actedSince(before)).toEqual(['charge', 'ship']);
      },
      PATIENCE,
    );

    it('know what a client set in another one: its log level', async () => {
      await start(3);
      const line = await begin();
      let nth = 0;
      const level = async (to: number, wanted: string): Promise<void> => {
        nth += 1;
        const id = `level ${nth}`;
        await post(line, to, { id, method: 'logging/setLevel', params: { level: wanted } });
        await line.reader.next((message) => message.id === id);
      };
      const said = async (to: number): Promise<number> => {
        nth += 1;
        const id = `notes ${nth}`;
        const from = line.reader.messages.length;
        const since = (): Rpc[] => line.reader.messages.slice(from);
        await post(line, to, { ...call('notes'), id });
        for (const field of ['name', 'city']) {
          await expect.poll(() => since().some(asks(field))).toBe(true);
          await post(line, to, answer(since().find(asks(field)) ?? {}, field));
        }
        await line.reader.next((message) => message.id === id);
        return since().filter(({ method }) => method === 'notifications/message').length;
      };
      await level(1, 'error');
      expect([await said(2), await said(0)]).toEqual([0, 0]);
      await level(0, 'debug');
      expect([await said(1), await said(2)]).toEqual([3, 3]);
    });
  });
}

describe.skipIf(REDIS.down)(`HTTP+SSE at processes on ${REDIS.name}, in numbers and at the end`, () => {
  afterEach(async () => {
    await Promise.all(servers.splice(0).map((server) => server.kill()));
  });

  it(
    'a process that is shut down puts its calls down, and they end at another',
    async () => {
      servers = await spawnServers('asking-server.ts', 2, { args: ['--store', REDIS_URL] });
      const line = await begin();
      await post(line, 1, call('in-turn'));
      const ask = await line.reader.next(asks('name'));
      process.kill(servers[1]?.pid ?? 0, 'SIGTERM');
      await expect
        .poll(() =>
          fetch(`${rootOf(1)}/sse`).then(
            () => true,
            () => false,
          ),
        )
        .toBe(false);
      await post(line, 0, answer(ask, 'name'));
      for (const field of ['city', 'street']) {
        await post(line, 0, answer(await line.reader.next(asks(field)), field));
      }
      const results = (): Rpc[] => line.reader.messages.filter(isResult);
      await expect.poll(() => results().map(textIn)).toEqual(['its name, its city, its street']);
    },
    PATIENCE,
  );

  it(
    'a process that slept past its lease says nothing of the call that was taken from it',
    async () => {
      servers = await spawnServers('asking-server.ts', 3, { args: ['--store', REDIS_URL] });
      const line = await begin();
      await post(line, 1, call('order'));
      const ask = await line.reader.next(asks('address'));
      const { pid = 0 } = servers[1] ?? {};
      process.kill(pid, 'SIGSTOP');
      await post(line, 2, answer(ask, 'address'));
      const name = await line.reader.next(asks('name'));
      process.kill(pid, 'SIGCONT');
      await new Promise((resolve) => setTimeout(resolve, 3_000));
      await post(line, 2, answer(name, 'name'));
      await line.reader.next(isResult);
      await new Promise((resolve) => setTimeout(resolve, 2_000));
      expect(line.reader.messages.filter(isResult).map(textIn)).toEqual(['its name, its address, 43']);
    },
    PATIENCE,
  );

  it(
    "the SDK's client goes on at another process when that of its stream is killed in a call",
    async () => {
      servers = await spawnServers('asking-server.ts', 2, { args: ['--store', REDIS_URL] });
      let alive = 0;
      const answered: string[] = [];
      const client = await oldest(
        `${rootOf(0)}/sse`,
        {
          answer: async ({ message }) => {
            const field = String(message).slice(0, -1);
            if (answered.push(field) === 1) {
              alive = 1;
              await servers[0]?.kill();
            }
            return { action: 'accept', content: { [field]: `its ${field}` } };
          },
        },
        { fetch: resuming(() => rootOf(alive)) },
      );
      expect(await client.tool('in-turn')).toBe('its name, its city, its street');
      expect(new Set(answered)).toEqual(new Set(['name', 'city', 'street']));
      await client.close();
    },
    PATIENCE,
  );

  it(
    'fifty calls at three processes are each told once, also after the stream was opened anew',
    async () => {
      servers = await spawnServers('asking-server.ts', 3, { args: ['--store', REDIS_URL] });
      const line = await begin();
      const ids = Array.from({ length: 50 }, (_, nth) => `call ${nth}`);
      await Promise.all(ids.map((id, nth) => post(line, nth % 3, { ...call('throws'), id })));
      const told = (reader: Reader): string[] =>
        reader.messages.map(({ id }) => String(id)).filter((id) => id.startsWith('call '));
      await expect.poll(() => told(line.reader).sort()).toEqual([...ids].sort());
      const again = await open(2, line.reader.last);
      await new Promise((resolve) => setTimeout(resolve, 1.6 * LEASE));
      // The process that has the stream now read all of them, and found no outcome to send.
      expect(told(again.reader)).toEqual([]);
    },
    PATIENCE,
  );

  it('what a server asks outside of calls may be answered at any process', async () => {
    servers = await spawnServers('early-server.ts', 2, { args: ['--store', REDIS_URL] });
    const line = await begin();
    const roots = await line.reader.next(({ method }) => method === 'roots/list');
    await post(line, 0, { id: roots.id, result: { roots: [{ uri: 'file:///home/ann' }] } });
    await expect
      .poll(async () => {
        const id = randomUUID();
        await post(line, 1, { ...call('root'), id });
        return textIn(await line.reader.next((message) => message.id === id));
      })
      .toBe('file:///home/ann');
  });
});
