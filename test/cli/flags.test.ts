/** The table of flags: each option of a deployment has one, each sets its option, and senseless values are refused. */
import process from 'node:process';
import { describe, expect, it, vi } from 'vitest';
import { KNOWN } from '../../compat/revisions.ts';
import { helpOfFlags, readArguments } from '../../src/cli/arguments.ts';
import { FLAGS, PROXY_FLAGS } from '../../src/cli/flags.ts';
import { settle } from '../../src/handler/settings.ts';

const SECRET = 'a secret of the flags that is longer than 32 bytes';

/** A value for each flag whose value is not any text. */
const SAMPLES: Readonly<Record<string, string>> = {
  port: '0',
  path: 'sse=/events',
  connections: '5',
  rate: 'calls=10/1m',
  store: 'memory:',
  state: 'stored',
  relay: 'redis://127.0.0.1:6379',
  instance: 'call',
  tasks: 'never',
  replay: 'never',
  drift: 'fail',
  'on-drop': 'unwind',
  'warn-unjournaled': 'no',
  limit: 'sessions=7',
  log: 'error',
  secret: SECRET,
  revision: '2026-07-28',
};

/** Every option, as the error says them that an unknown one gets. */
function options(): string[] {
  try {
    settle({ nonsense: true } as object, KNOWN);
  } catch (error) {
    return /there are (.*)\./.exec(String(error))?.[1]?.split(', ') ?? [];
  }
  return [];
}

describe('a flag', () => {
  it('--secret warns that others can read it in the list of processes', async () => {
    const written = vi.spyOn(process.stderr, 'write').mockReturnValue(true);
    await readArguments(['--secret', SECRET]);
    const said = written.mock.calls.map(([text]) => String(text)).join('');
    written.mockRestore();
    expect(said).toContain('use MCP_AWAIT_SECRET or --secret-file');
    expect(said).not.toContain(SECRET);
  });

  it('exists for each option that is no code', async () => {
    const all = Object.values(FLAGS).flat();
    const args = all.flatMap(({ name, value }) => {
      // The command is never read with --watch.
      if (['relay', 'secret-file', 'watch'].includes(name)) return [];
      return value === undefined
        ? [`--${name}`]
        : [`--${name}`, SAMPLES[name] ?? (value === 'TIME' ? '2s' : 'x')];
    });
    const { options: set } = await readArguments(args);
    const without = options().filter((name) => !(name in set) && name !== 'relay');
    // Who a caller is, is said by code, and `ask` by several flags together (ask.test.ts); the others have a flag as
    // soon as they have one.
    const code = ['principal', 'ask', 'encrypt', 'audience', 'audit', 'revisions'];
    expect(options().length).toBeGreaterThan(20);
    expect(without.filter((name) => !code.includes(name))).toEqual([]);
    expect(() => settle(set, KNOWN)).not.toThrow();
  });

  it('sets what it says', async () => {
    const {
      options: set,
      serving,
      positionals,
    } = await readArguments([
      ...['server.ts', '--port', '81', '--connections', '9', '--body-time', '1m', '--forwarded'],
      ...[
        '--limit',
        'bodyBytes=1MiB',
        '--limit',
        'lease=20s',
        '--limit',
        'sessions=5',
        '--ttl',
        '90d',
        '--revision',
        'DRAFT-SEP-1858:literal',
      ],
      ...[
        '--rate',
        'calls=100/1m',
        '--path',
        'sse=off',
        '--path',
        'workspace=/w/:workspace',
        '--tasks',
        'now',
      ],
      ...['--revision', 'all', '--revision', 'workspace-sse:elicitation,roots'],
      ...['--allow-host', 'a.example', '--allow-host', 'b.example'],
    ]);
    expect(positionals).toEqual(['server.ts']);
    expect(serving).toMatchObject({
      port: 81,
      connections: 9,
      bodyTime: 60_000,
      forwarded: true,
    });
    expect(set).toMatchObject({
      limits: { bodyBytes: 1_048_576, lease: 20_000, sessions: 5 },
      ttl: 7_776_000_000,
      revisions: [
        { name: 'DRAFT-SEP-1858', literal: true },
        '*',
        { name: 'workspace-sse', capabilities: { elicitation: {}, roots: {} } },
      ],
      rateLimit: { calls: { most: 100, per: 60_000 } },
      paths: { sse: false, workspace: '/w/:workspace' },
      allowedHosts: ['a.example', 'b.example'],
      tasks: 'now',
    });
  });

  it.each([
    ['--port', '70000'],
    ['--port', 'x'],
    ['--ttl', 'soon'],
    ['--limit', 'sessions'],
    ['--limit', 'sessions=many'],
    ['--rate', 'calls=10'],
    ['--rate', 'cals=10/1m'],
    ['--state', 'sealde'],
    ['--nonsense', '1'],
    ['--log', 'loud'],
  ])('%s %s is refused with what to write', async (flag, value) => {
    await expect(readArguments([flag, value])).rejects.toMatchObject({ code: 'bad-option' });
  });

  it('stands in --help, with its value', () => {
    const help = helpOfFlags();
    for (const { name, value } of Object.values(FLAGS).flat()) {
      expect(help).toContain(`--${name}${value === undefined ? '' : ` ${value}`}`);
    }
    expect(help.split('\n').every((line) => line.length <= 101)).toBe(true);
  });
});

describe('a flag of the proxy', () => {
  const TABLE = { ...PROXY_FLAGS, ...FLAGS };

  it('sets an option of the server behind it', async () => {
    const { peer } = await readArguments(
      [
        ...['--children', '3', '--shared', '--start-timeout', '5s', '--ask-timeout', '0'],
        ...['--url', 'https://example.com/mcp', '--header', 'X-Key=a=b', '--replay', 'allow'],
      ],
      TABLE,
    );
    expect(peer).toMatchObject({ url: 'https://example.com/mcp', headers: { 'X-Key': 'a=b' } });
    expect(peer.options).toMatchObject({
      children: 3,
      shared: true,
      startTimeout: 5_000,
      askTimeout: 0,
      replay: 'allow',
    });
  });

  it('has a name that no flag of serve has', () => {
    const names = Object.values(TABLE)
      .flat()
      .map(({ name }) => name);
    expect(new Set(names).size).toBe(names.length);
  });
});
