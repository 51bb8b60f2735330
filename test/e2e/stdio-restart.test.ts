/** A server on stdio that is killed while its user is asked, and started again with the same store and secret. */
import { once } from 'node:events';
import { join } from 'node:path';
import process from 'node:process';
import { createInterface } from 'node:readline';
import { PassThrough } from 'node:stream';
import { Client as ModernClient } from '@modelcontextprotocol/client';
import { StdioClientTransport as ModernStdio } from '@modelcontextprotocol/client/stdio';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { afterEach, describe, expect, it } from 'vitest';
import { openStore } from '../../src/checkpoint/open-store.ts';
import { createStdio } from '../../src/stdio.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { SHORT, some } from '../short.ts';
import { accept, CAPABILITIES, legacyOver, modernOver, type Script, type TestClient } from './clients.ts';
import { compiled, LogBook, SECRET, scratch } from './harness.ts';
import { effectsFile, fixture, PYTHON } from './proxied.ts';
import { KINDS } from './services.ts';

const CLI = new URL('../../dist/src/cli/main.js', import.meta.url).pathname;
const ASKING = await compiled(fixture('asking-server.ts'));
const INFO = { name: 'e2e', version: '1.0.0' };
const ends: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

/** The command line on stdio, as each client starts it. */
function commandLine(args: readonly string[], effects: string) {
  return {
    command: process.execPath,
    args: [CLI, ...args],
    env: { PATH: process.env.PATH ?? '', MCP_AWAIT_SECRET: SECRET, EFFECTS: effects },
    stderr: 'ignore' as const,
  };
}

/** Clients of SDK v2 that keep a call's state themselves, each with a server of its own that can be killed. */
function rounds(args: readonly string[], effects: string, mode: 'auto' | { pin: string }) {
  let transport: ModernStdio;
  let client: ModernClient;
  const start = async (): Promise<void> => {
    transport = new ModernStdio(commandLine(args, effects));
    client = new ModernClient(INFO, { capabilities: CAPABILITIES, versionNegotiation: { mode } });
    const own = client;
    ends.push(() => own.close());
    await client.connect(transport);
  };
  return {
    start,
    kill: async (): Promise<void> => {
      const closed = new Promise<void>((resolve) => {
        client.onclose = resolve;
      });
      process.kill(transport.pid ?? 0, 'SIGKILL');
      await closed;
    },
    /** One round of a tool's call: the answers to the asks of the last one, if there is one. */
    round: async (name: string, last?: Round, content: Record<string, string> = {}): Promise<Round> => {
      const answers = last && {
        requestState: last.requestState,
        inputResponses: accept(Object.keys(last.inputRequests ?? {}), content),
      };
      const call = { name, arguments: {}, ...answers };
      return (await client.callTool(call, { allowInputRequired: true })) as Round;
    },
  };
}

interface Round {
  readonly inputRequests?: Readonly<Record<string, { readonly params?: { readonly message?: string } }>>;
  readonly requestState?: string;
  readonly content?: readonly { readonly text?: string }[];
}

const asksOf = ({ inputRequests = {} }: Round): unknown[] =>
  Object.values(inputRequests).map(({ params }) => params?.message);

const MODES = [
  ['pinned to 2026-07-28', { pin: '2026-07-28' }],
  ['that finds out', 'auto'],
] as const;
const KEPT = KINDS.flatMap((kind, at) => MODES.slice(at % 2, (at % 2) + 1).map((mode) => ({ kind, mode })));

describe('a call of 2026-07-28 continues in the next process', () => {
  for (const { kind, mode } of some(KEPT.map((row) => ({ ...row, down: row.kind.down })))) {
    it.skipIf(kind.down)(`with ${kind.name}, for a client ${mode[0]}`, async () => {
      const effects = effectsFile();
      const server = rounds(['serve', ASKING, '--stdio', ...kind.args()], effects.path, mode[1]);
      await server.start();
      const first = await server.round('order');
      expect(asksOf(first)).toEqual(['address?']);
      await server.kill();
      await server.start();
      const second = await server.round('order', first, { address: 'here' });
      expect(asksOf(second)).toEqual(['name?']);
      await server.kill();
      await server.start();
      const third = await server.round('order', second, { name: 'Ann' });
      expect(third.content?.[0]?.text).toMatch(/^Ann, here/);
      expect(effects.lines()).toEqual(['charge', 'ship', 'finally']);
    });
  }

  it.skipIf(SHORT).each([
    ['runs again where it may', 'greet', /^Hello Ann$/, ['greet', 'greet']],
    ['ends with an error where it may not', 'order', /may not be run again/, ['order']],
  ])('behind the proxy: one that was sent %s', async (_what, tool, told, ran) => {
    const effects = effectsFile();
    const store = `sqlite://${join(scratch(), 'calls.db')}`;
    const args = ['proxy', '--stdio', '--store', store, '--', ...PYTHON];
    const server = rounds(args, effects.path, { pin: '2026-07-28' });
    await server.start();
    const first = await server.round(tool);
    await server.kill();
    await server.start();
    const then = await server.round(tool, first, { name: 'Ann' }).catch(String);
    expect(typeof then === 'string' ? then : then.content?.[0]?.text).toMatch(told);
    expect(String(then)).not.toContain('Ann');
    expect(effects.lines()).toEqual(ran);
  });
});

type Connect = (effects: string, script: Script) => Promise<{ client: TestClient; pid: number }>;
const withStore = (effects: string) => {
  const store = `sqlite://${join(scratch(), 'calls.db')}`;
  return commandLine(['serve', ASKING, '--stdio', '--store', store], effects);
};
const SESSIONS: readonly (readonly [string, Connect])[] = [
  [
    'SDK v1',
    async (effects, script) => {
      const transport = new StdioClientTransport(withStore(effects));
      return { client: await legacyOver(transport, script), pid: transport.pid ?? 0 };
    },
  ],
  [
    'SDK v2 as it meets servers of 2025',
    async (effects, script) => {
      const transport = new ModernStdio(withStore(effects));
      return { client: await modernOver(transport, script, 'legacy'), pid: transport.pid ?? 0 };
    },
  ],
];

describe.each(some(SESSIONS))('a session of 2025 ends with its pipe: %s', (_name, connect) => {
  it('is told that the connection closed, and its call begins again when it is called again', async () => {
    const effects = effectsFile();
    let pid = 0;
    const first = await connect(effects.path, {
      answer: () => {
        process.kill(pid, 'SIGKILL');
        return new Promise(() => {});
      },
    });
    pid = first.pid;
    ends.push(() => first.client.close());
    await expect(first.client.tool('order')).rejects.toThrow(/Connection closed/);
    const second = await connect(effects.path, {});
    ends.push(() => second.client.close());
    expect(await second.client.tool('one')).toBe('Hello its name');
    expect(effects.lines()).toEqual(['charge']);
    expect(await second.client.tool('order')).toMatch(/^its name, its address/);
    expect(effects.lines()).toEqual(['charge', 'charge', 'ship', 'finally']);
  });
});

it('createStdio keeps the calls of a process that is gone, where it is given a store', async () => {
  const file = join(scratch(), 'calls.db');
  const effects: string[] = [];
  const served = async () => {
    const [stdin, stdout] = [new PassThrough(), new PassThrough()];
    const server = createStdio(() => buildServer((effect) => effects.push(effect)), {
      stdin,
      stdout,
      logger: new LogBook(),
      store: await openStore(`sqlite://${file}`),
      secrets: [SECRET],
    });
    const lines = createInterface({ input: stdout });
    const order = async (more: object): Promise<{ result: Round }> => {
      const _meta = {
        'io.modelcontextprotocol/protocolVersion': '2026-07-28',
        'io.modelcontextprotocol/clientInfo': INFO,
        'io.modelcontextprotocol/clientCapabilities': CAPABILITIES,
      };
      const params = { name: 'order', arguments: {}, _meta, ...more };
      stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params })}\n`);
      return JSON.parse((await once(lines, 'line'))[0]);
    };
    return { order, end: () => server.close() };
  };
  const one = await served();
  const { result } = await one.order({});
  await one.end();
  const two = await served();
  ends.push(two.end);
  const inputResponses = accept(Object.keys(result.inputRequests ?? {}), { address: 'here' });
  const then = await two.order({ requestState: result.requestState, inputResponses });
  expect(asksOf(then.result)).toEqual(['name?']);
  expect(effects).toEqual(['charge', 'ship']);
});
