import { exec, spawn } from 'node:child_process';
import { lookup } from 'node:dns/promises';
import fs, { createReadStream, readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { Agent, createServer, get } from 'node:http';
import { connect } from 'node:net';
import KeyvRedis from '@keyv/redis';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import Keyv from 'keyv';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { type AwaitOptions, step } from '../../src/index.ts';
import { legacy, modern } from '../e2e/clients.ts';
import { listen, SECRET, type Served, serveHere, shut, spawnServers } from '../e2e/harness.ts';
import { REDIS } from '../e2e/services.ts';

const FILE = new URL(import.meta.url).pathname;
const agent = new Agent({ keepAlive: true });
const upstream = createServer((_req, res) => res.end('hello'));
let origin = '';

beforeAll(async () => {
  origin = await listen(upstream);
});
afterAll(async () => {
  agent.destroy();
  await shut(upstream);
});
afterEach(() => vi.unstubAllEnvs());

const httpGet = () =>
  new Promise<void>((resolve) => {
    get(`${origin}/secret`, { agent }, (res) => res.on('end', () => resolve()).resume());
  });

/** Acts of a tool before it asks; as the name says, inside of a step or after the ask. */
const ACTS: Readonly<Record<string, () => unknown>> = {
  nothing: () => Math.random(),
  promises: () => readFile(FILE),
  callback: () => new Promise((resolve) => fs.readFile(FILE, resolve)),
  stream: () =>
    new Promise<void>((resolve) => {
      createReadStream(FILE)
        .on('close', () => resolve())
        .resume();
    }),
  sync: () => readFileSync(FILE),
  spawn: () => new Promise((resolve) => spawn('true').on('close', resolve)),
  exec: () => new Promise((resolve) => exec('true', resolve)),
  fetch: async () => (await fetch(`${origin}/secret`)).text(),
  http: httpGet,
  socket: () =>
    new Promise((resolve) => {
      const socket = connect(Number(new URL(origin).port), '127.0.0.1', () => socket.destroy());
      socket.on('close', resolve);
    }),
  dns: () => lookup('localhost'),
  both: async () => [await readFile(FILE), await httpGet()],
  print: () => process.stdout.write(''),
};

function build() {
  const server = new McpServer({ name: 'acts', version: '1' });
  const ask = () =>
    server.server.elicitInput({ message: '?', requestedSchema: { type: 'object', properties: {} } });
  const done = { content: [{ type: 'text' as const, text: 'done' }] };
  for (const [name, act] of Object.entries(ACTS)) {
    server.registerTool(name, {}, async () => {
      await act();
      await ask();
      return done;
    });
    server.registerTool(`${name}-in-step`, {}, async () => {
      await step('act', async () => {
        await act();
      });
      await ask();
      return done;
    });
    server.registerTool(`${name}-afterwards`, {}, async () => {
      await ask();
      await act();
      return done;
    });
  }
  server.registerPrompt('letter', {}, async () => {
    await readFile(FILE);
    await ask();
    return { messages: [] };
  });
  return server;
}

const told = ({ log }: Served) => log.lines.filter(({ message }) => message.includes('outside of a step'));

async function serving<T>(options: AwaitOptions, use: (served: Served) => Promise<T>): Promise<T> {
  const served = await serveHere(build, { secrets: [SECRET], ...options });
  try {
    return await use(served);
  } finally {
    await served.close();
  }
}

/** The warnings that calls of these tools lead to. */
function warningsOf(tools: readonly string[], options: AwaitOptions = {}): Promise<string[]> {
  return serving(options, async (served) => {
    const client = await modern(served.url);
    for (const tool of tools) expect(await client.tool(tool)).toBe('done');
    await client.close();
    return told(served).map(({ message }) => message);
  });
}

describe('what a tool used outside of a step before it asked', () => {
  it.each([
    ['promises', 'the file system (fs.promises.readFile)'],
    ['callback', 'the file system (fs.readFile)'],
    ['stream', 'the file system'],
    ['spawn', 'a child process (child_process.spawn)'],
    ['exec', 'a child process (child_process.exec)'],
    ['fetch', 'the network (GET http://127.0.0.1:'],
    ['http', 'the network (http.get)'],
    ['socket', 'the network (net.connect)'],
    ['dns', 'the network (dns.promises.lookup)'],
    ['both', 'the file system (fs.promises.readFile) and the network ('],
  ])('is told of: %s', async (tool, what) => {
    const [message, ...more] = await warningsOf([tool]);
    expect(message).toContain(`tool '${tool}' used ${what}`);
    expect(message).toContain("step('name', …)");
    expect(message).not.toContain('secret');
    expect(more).toEqual([]);
  });

  it('is told of once for each tool and handler, with where it was, also to clients of 2025', async () => {
    await serving({}, async (served) => {
      const client = await modern(served.url);
      for (const tool of ['promises', 'promises', 'callback']) await client.tool(tool);
      await client.prompt('letter');
      await client.close();
      const lines = told(served);
      expect(lines.map(({ message }) => message.split(' used ')[0])).toEqual([
        "tool 'promises'",
        "tool 'callback'",
        "prompt 'letter'",
      ]);
      for (const { detail } of lines) {
        expect(detail.at).toEqual([expect.stringMatching(/^unjournaled\.test\.ts:\d+$/)]);
      }
    });
    await serving({}, async (served) => {
      const client = await legacy(served.url);
      await client.tool('promises');
      await client.close();
      expect(told(served)).toHaveLength(1);
    });
  });

  it('is told of when the connection was there before', async () => {
    await httpGet();
    await ACTS.fetch?.();
    const [http, fetched] = await warningsOf(['http', 'fetch']);
    expect(http).toContain('the network (http.get)');
    expect(fetched).toContain(`the network (GET ${origin})`);
  });

  it('is not told of in a step, nor after the last ask, nor where there was nothing', async () => {
    const quiet = Object.keys(ACTS).flatMap((name) => [`${name}-in-step`, `${name}-afterwards`]);
    expect(await warningsOf(['nothing', 'print', ...quiet])).toEqual([]);
  });

  it('is not told of in production, nor when it is not wanted, nor without contexts', async () => {
    expect(await warningsOf(['promises'], { warnUnjournaled: false })).toEqual([]);
    expect(await warningsOf(['promises'], { steps: false })).toEqual([]);
    vi.stubEnv('NODE_ENV', 'production');
    expect(await warningsOf(['promises'])).toEqual([]);
    expect(await warningsOf(['promises'], { warnUnjournaled: true })).toHaveLength(1);
  });

  it.skipIf(REDIS.down)(
    'is not what the store does, though its first connection is made in a call',
    async () => {
      const redis = new KeyvRedis(REDIS.url());
      const store = new Keyv(redis);
      const tools = ['nothing', 'sync-in-step', 'nothing-afterwards'];
      expect(await warningsOf(tools, { store, limits: { frames: 0 } })).toEqual([]);
      await store.disconnect();
    },
  );

  it('is not a module that is loaded, nor what is printed', async () => {
    const [server] = await spawnServers('importing-server.mjs', 1);
    const client = await modern(server?.url ?? '');
    expect(await client.tool('load')).toBe('loaded');
    expect(server?.stderr()).not.toContain('outside of a step');
    expect(await client.tool('read')).toBe('read');
    expect(server?.stderr()).toContain("tool 'read' used the file system");
    await client.close();
    await server?.kill();
  });
});
